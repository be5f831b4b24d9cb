#!/usr/bin/env python3
"""Unmodified OpenSSL serves TLS by a private key that it never has: `sealane keeper` has it, and signs. The demo shows the
certificate and the session, looks for private keys in files and in the memory of processes, and shows the cost, also of other homes of keys."""

import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEALANE = pathlib.Path(os.environ.get("SEALANE", ROOT / "target/release/sealane")).resolve()
PROVIDER = SEALANE.parent / "libsealane_provider.so"
HOMES = ("this process", "guarded memory", "keeper")
EXAMPLE = ROOT / "etc/openssl-sealane.cnf"
YAMA = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
# The demo's names of keys, those of `bench/signatures.py`, and how openssl makes them.
KINDS = {"rsa": ("RSA-2048", ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"]), "ec": ("EC-256", ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"])}
SECONDS = 0.5
PIECE_LEN = 16 << 20
SUITE = "TLS_CHACHA20_POLY1305_SHA256"
# More than any step takes on a machine that does not hang.
LIMIT_S = 120


class Failed(Exception):
    """Something that the demo needs did not work."""


def replaced(pattern, line, text):
    """A text with the one line of this pattern replaced."""
    text, count = re.subn(pattern, lambda _: line, text, flags=re.M)
    if count != 1:
        raise Failed(f"{EXAMPLE} has {count} lines of {pattern}")
    return text


def wait_for(what, process, log, condition):
    """Waits until this is so, and as long as the process lives."""
    end = time.monotonic() + LIMIT_S
    while not (value := condition()):
        if process.poll() is not None or time.monotonic() > end:
            raise Failed(f"{what} does not serve: {log.read_text(errors='replace')}")
        time.sleep(0.02)
    return value


class Place:
    """A folder with a keeper's configuration and one of OpenSSL."""

    def __init__(self, work):
        self.work, self.socket = work, work / "socket"
        (work / "passphrase").touch(mode=0o600)
        (work / "passphrase").write_text("of the demo\n")
        (work / "keeper.toml").write_text(f"socket = '{self.socket}'\nstore = '{work}/keys'\npassphrase-file = '{work}/passphrase'\n"
                                          f"admin-users = [{os.geteuid()}]\n")
        text = replaced("^# sealane-keeper = .*$", f"sealane-keeper = {self.socket}", EXAMPLE.read_text())
        (work / "openssl.cnf").write_text(replaced("^module = .*$", f"module = {PROVIDER}", text))
        self.environment = {**os.environ, "OPENSSL_CONF": str(work / "openssl.cnf"), "SEALANE_KEEPER": str(self.socket)}

    def run(self, *argv, text=None, is_needed=True):
        done = subprocess.run([str(word) for word in argv], env=self.environment, input=text, capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL if text is None else None)
        if is_needed and done.returncode:
            raise Failed(f"{argv[0]} {argv[1]}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    @contextlib.contextmanager
    def started(self, log, *argv):
        """A process, from `with` to its end."""
        with open(log, "wb") as out:
            process = subprocess.Popen([str(word) for word in argv], env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(LIMIT_S)
            finally:
                process.kill()

    @contextlib.contextmanager
    def keeper(self):
        log = self.work / "log"
        with self.started(log, SEALANE, "keeper", "--config", self.work / "keeper.toml") as process:
            # 1: it has no keys yet.
            wait_for("the keeper", process, log, lambda: self.run(SEALANE, "key", "list", is_needed=False).returncode in (0, 1))
            yield process

    @contextlib.contextmanager
    def server(self, key, certificate):
        """`openssl s_server`, from the time at which it listens."""
        log = self.work / "server"
        with self.started(log, "openssl", "s_server", "-accept", "127.0.0.1:0", "-www", "-key", key, "-cert", certificate) as process:
            found = wait_for("openssl s_server", process, log,
                             lambda: re.search(r"^ACCEPT 127\.0\.0\.1:(\d+)\n", log.read_text(errors="replace"), re.M))
            yield Server(self, process, found[1], certificate)

    def uses(self, name):
        """Operations by all versions of a key."""
        key = next(key for key in json.loads(self.run(SEALANE, "key", "list", "--json").stdout) if key["name"] == name)
        return sum(version["operations"] for version in key["versions"])


class Server:
    """A server that listens."""

    def __init__(self, place, process, port, certificate):
        self.place, self.process, self.port, self.certificate = place, process, port, certificate

    def fetch(self):
        """A page, and what `openssl s_client` says of the session."""
        return self.place.run("openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-CAfile", self.certificate,
                              "-verify_return_error", "-ciphersuites", SUITE, "-ign_eof", text="GET / HTTP/1.0\r\n\r\n").stdout


def secrets(place, file):
    """The ends of a private key's secret numbers, in both orders of bytes, each as it is, in hex and in base64."""
    shown = place.run("openssl", "pkey", "-in", file, "-noout", "-text").stdout
    found = re.findall(r"^(?:priv|prime[12]|privateExponent):\n((?: {4}[0-9a-f:]+\n)+)", shown, re.M)
    ends = [bytes.fromhex(re.sub(r"[\s:]", "", digits))[-16:] for digits in found]
    if not ends:
        raise Failed(f"openssl pkey shows no secret of {file}")
    return [form for end in ends for order in (end, end[::-1]) for form in forms(order)]


def forms(text):
    """A text of 16 bytes as it is, in hex, and in base64 as it stands there after any number of other bytes."""
    yield text
    yield text.hex().encode()
    yield text.hex().upper().encode()
    for before in range(3):
        # The first and last characters are of neighbours, too.
        yield base64.b64encode(bytes(before) + text + bytes(2))[4 if before else 0:20]


def has(piece, texts):
    return any(text in piece for text in texts)


def is_in_memory(process, texts):
    """Whether memory that can be read has one of these; None where this user may not look."""
    overlap = max(map(len, texts)) - 1
    try:
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines():
                span, rights = line.split()[:2]
                if not rights.startswith("r"):
                    continue
                at, end = (int(address, 16) for address in span.split("-"))
                kept = b""
                try:
                    memory.seek(at)
                    while at < end and (more := memory.read(min(end - at, PIECE_LEN))):
                        at += len(more)
                        if has(kept + more, texts):
                            return True
                        kept = more[-overlap:]
                except (OSError, OverflowError):
                    continue  # some mappings of the kernel
    except PermissionError:
        return None
    return False


def is_in_files(files, texts):
    """Whether one of the files has one of these; lines, spaces and colons between the digits do not hide it."""
    for file in files:
        content = file.read_bytes()
        if has(content, texts) or has(re.sub(rb"[\s:]", b"", content), texts):
            return True
    return False


def word(found):
    return {True: "found", False: "not there", None: "only root may look"}[found]


def serve(place):
    """A key that is made in the keeper, its certificate, and a session."""
    print("1. The keeper makes a key, OpenSSL asks it for the signature of a certificate, and serves TLS by its name\n")
    made = place.run(SEALANE, "key", "generate", "web", "--algorithm", "ec-p256").stdout.strip()
    certificate = place.work / "web.crt"
    place.run("openssl", "req", "-x509", "-key", "sealane://web", "-subj", "/CN=localhost", "-days", "2", "-out", certificate)
    refused = place.run("openssl", "pkey", "-in", "sealane://web", is_needed=False)
    print(f"   sealane key generate web --algorithm ec-p256    {made}")
    print(f"   openssl req -x509 -key sealane://web            {certificate.name}")
    is_kept = refused.returncode != 0 and "PRIVATE" not in refused.stdout
    print(f"   openssl pkey -in sealane://web                  {'no private part to write' if is_kept else 'WRITES ONE'}")
    with place.server("sealane://web", certificate) as server:
        before = place.uses("web")
        session = server.fetch()
        signed = place.uses("web") - before
        has_provider = str(PROVIDER) in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    is_good = all(words in session for words in ("HTTP/1.0 200", "Verify return code: 0 (ok)", f"Cipher is {SUITE}"))
    print(f"   openssl s_server -key sealane://web             {'serves' if is_good else 'DOES NOT SERVE'}, "
          f"{'with' if has_provider else 'WITHOUT'} sealane.so")
    fetched = f"certificate verified, {SUITE}, page fetched"
    print(f"   openssl s_client                                {fetched if is_good else 'FAILS'}")
    print(f"   signatures by the keeper for this session       {signed or 'NONE'}")
    signs = f"user {os.geteuid()}: sign 'web'"
    is_told = signs in (place.work / "log").read_text()
    print(f"   the keeper's log                                {signs if is_told else 'NOTHING'}")
    return is_kept and is_good and has_provider and signed > 0 and is_told


def look(place, keeper):
    """Searches for private keys that the demo has made in files, and so knows."""
    print("\n2. Private keys that the demo knows, searched for in files and in the memory of running processes\n")
    print(f"   {'':<8} {'s_server, key of a file':<24} {'s_server, sealane://':<21} {'keeper':<19} {'the file':<9} the keeper's files")
    is_good, may_look = True, True
    store = place.work / "keys"
    for name, (kind, options) in KINDS.items():
        file, certificate = place.work / f"{name}.pem", place.work / f"{name}.crt"
        place.run("openssl", "genpkey", "-algorithm", *options, "-out", file)
        texts = secrets(place, file)
        place.run(SEALANE, "key", "import", name, "--file", file)
        place.run("openssl", "req", "-x509", "-key", f"sealane://{name}", "-subj", "/CN=localhost", "-days", "2", "-out", certificate)
        cells = []
        for key in (file, f"sealane://{name}"):
            with place.server(key, certificate) as server:
                is_good = "HTTP/1.0 200" in server.fetch() and is_good
                cells.append(is_in_memory(server.process.pid, texts))
        files = [path for path in store.rglob("*") if path.is_file()]
        if not {store / "store", store / f"{name}.key"} <= set(files):
            raise Failed(f"{store} lacks the keeper's files: it has {files}")
        cells += [is_in_memory(keeper.pid, texts), is_in_files([file], texts), is_in_files(files, texts)]
        words = [word(cell) for cell in cells]
        print(f"   {kind:<8} {words[0]:<24} {words[1]:<21} {words[2]:<19} {words[3]:<9} {words[4]}")
        # The search has to find a key where it is, before it tells anything where it is not.
        may_look = may_look and cells[0] is not None
        in_memory = cells[:2] == [True, False] and cells[2] is not False if may_look else True not in cells[:2]
        is_good = is_good and in_memory and cells[3:] == [True, False]
    if not may_look:
        scope = YAMA.read_text().strip() if YAMA.exists() else "absent"
        print(f"SKIP demo-keys-memory: this user may not look into memory of its own processes (kernel.yama.ptrace_scope: {scope})")
    return is_good


def cost(place, keeper):
    print("\n3. Signatures by one thread of a program: OpenSSL signs by the key of a file, AWS-LC in the keeper\n")
    keys = [key for name in KINDS for key in (place.work / f"{name}.pem", f"sealane://{name}")]
    rows = json.loads(place.run(sys.executable, ROOT / "bench/signatures.py", "--json", "--rounds", 2, "--seconds", SECONDS,
                                "--keeper", keeper.pid, *keys).stdout)
    print(f"   {'':<28} {'CPU us for each by the keeper:':>42}")
    print(f"   {'':<9} {'by a file, 1/s':>15} {'by the keeper, 1/s':>19} {'program':>18} {'keeper':>8}")
    for file, kept in zip(rows[::2], rows[1::2]):
        used = [f"{'-' if kept[cell] is None else format(kept[cell], '.0f')}" for cell in ("cpu_us", "keeper_cpu_us")]
        print(f"   {file['kind']:<9} {file['rate']:15,.0f} {kept['rate']:19,.0f} {used[0]:>18} {used[1]:>8}")
    print("\n   A short run. Where AWS-LC's RSA is much faster than this machine's OpenSSL, the keeper signs faster than the program.")
    return all(row["rate"] > 0 for row in rows)


def homes(place):
    """The table of costs of ciphers' keys: the part `homes` of a report."""
    print("\n4. Ciphers by one thread, by the home of the key: the program's heap, guarded memory of the program, the keeper\n")
    folder = place.work / "report"
    place.run(SEALANE, "bench", "--quick", "--only", "homes", "--out", folder)
    report = json.loads((folder / "data.json").read_text())
    part, = [part for part in report["parts"] if part["id"] == "homes"]
    medians = {chart["id"]: {series["name"]: {point["x"]: point["figure"]["median"] for point in series["points"]}
                             for series in chart["series"]} for chart in part["charts"]}
    print(f"   {'':<9} {'':>10} {'MB/s':>28} {'of the process':>17} {'CPU seconds for each GB':>27}")
    print(f"   {'':<9} {'bytes':>10} {'process':>10} {'guarded':>8} {'keeper':>8} {'guarded':>9} {'keeper':>7} {'process':>10} {'guarded':>8} {'keeper':>7}")
    needed = []
    for algorithm in ("ctr", "gcm"):
        for length in medians[f"{algorithm}-rate"]["this process"]:
            of = lambda what: [medians[f"{algorithm}-{what}"].get(home, {}).get(length) for home in HOMES]
            rates, cpu = of("rate"), of("cpu")
            shares = [rate and rate / rates[0] for rate in rates[1:]]
            # A machine may have no guarded memory.
            needed += [rates[0], rates[2]]
            cells = [*zip(rates, (10, 8, 8), ",,,"), *zip(shares, (9, 7), "  "), *zip(cpu, (10, 8, 7), "   ")]
            words = [f"{'-' if value is None else format(value, ',.0f' if group == ',' else '.2f'):>{width}}" for value, width, group in cells]
            print(f"   {algorithm + '(aes)':<9} {length:>10.0f} {' '.join(words)}")
    for why in part["outcome"].get("why", []):
        print(f"\n   {why}")
    print("\n   A short run. What gets a key from each home: docs/homes.md.")
    return all(needed)


def demo(work):
    place = Place(work)
    version = " ".join(place.run("openssl", "version").stdout.split()[:2])
    print(f"\nPrivate keys in a process of their own, for unmodified {version}\n")
    with place.keeper() as keeper:
        is_good = [serve(place), look(place, keeper), cost(place, keeper), homes(place)]
    print(f"\n{'All is as it should be.' if all(is_good) else 'NOT as it should be.'}")
    return 0 if all(is_good) else 1


def main():
    # Whatever ends the demo, the processes that it has started end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    work = pathlib.Path(tempfile.mkdtemp(prefix="sealane-demo-"))
    try:
        for file in (SEALANE, PROVIDER):
            if not file.exists():
                raise Failed(f"there is no {file}: make build")
        return demo(work)
    except FileNotFoundError as error:
        print(f"demo_keys: there is no {error.filename}", file=sys.stderr)
        return 1
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"demo_keys: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
