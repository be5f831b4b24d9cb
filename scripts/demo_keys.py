#!/usr/bin/env python3
"""Unmodified OpenSSL serves TLS by a private key that it never has: `sealane keeper` has it, and signs. The demo shows the
certificate and the session, looks for private keys in files and in the memory of processes, and shows the cost."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEALANE = pathlib.Path(os.environ.get("SEALANE", ROOT / "target/release/sealane"))
PROVIDER = SEALANE.parent / "libsealane_provider.so"
EXAMPLE = ROOT / "etc/openssl-sealane.cnf"
SECONDS = 0.5
SUITE = "TLS_CHACHA20_POLY1305_SHA256"
# What only a machine that hangs takes.
LIMIT_S = 120


class Failed(Exception):
    """Something that the demo needs did not work."""


class Place:
    """A folder with a keeper's configuration and one of OpenSSL."""

    def __init__(self, work):
        self.work, self.socket = work, work / "socket"
        (work / "passphrase").touch(mode=0o600)
        (work / "passphrase").write_text("of the demo\n")
        (work / "keeper.toml").write_text(f"socket = '{self.socket}'\nstore = '{work}/keys'\npassphrase-file = '{work}/passphrase'\n"
                                          f"admin-users = [{os.geteuid()}]\n")
        text = EXAMPLE.read_text().replace("# sealane-keeper = /run/sealane-keeper/socket", f"sealane-keeper = {self.socket}")
        (work / "openssl.cnf").write_text(re.sub("^module = .*$", f"module = {PROVIDER}", text, flags=re.M))
        self.environment = {**os.environ, "OPENSSL_CONF": str(work / "openssl.cnf"), "SEALANE_KEEPER": str(self.socket)}

    def run(self, *argv, text=None, is_needed=True):
        done = subprocess.run([str(word) for word in argv], env=self.environment, input=text, capture_output=True, text=True,
                              timeout=LIMIT_S, stdin=subprocess.DEVNULL if text is None else None)
        if is_needed and done.returncode:
            raise Failed(f"{argv[0]} {argv[1]}: exit {done.returncode}: {done.stderr.strip()}")
        return done

    def start(self, *argv, **more):
        return subprocess.Popen([str(word) for word in argv], env=self.environment, stdin=subprocess.DEVNULL, text=True, **more)


def ended(process):
    process.terminate()
    try:
        process.wait(LIMIT_S)
    finally:
        process.kill()


class Server:
    """`openssl s_server`, from the time at which it listens."""

    def __init__(self, place, key, certificate):
        self.place, self.certificate = place, certificate
        self.process = place.start("openssl", "s_server", "-accept", "127.0.0.1:0", "-www", "-key", key, "-cert", certificate,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for line in self.process.stdout:
            if found := re.match(r"ACCEPT 127\.0\.0\.1:(\d+)", line):
                self.port = found[1]
                return
        ended(self.process)
        raise Failed("openssl s_server does not serve")

    def fetch(self):
        """A page, and what `openssl s_client` says of the session."""
        return self.place.run("openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-CAfile", self.certificate,
                              "-verify_return_error", "-ciphersuites", SUITE, "-ign_eof", text="GET / HTTP/1.0\r\n\r\n").stdout

    def __enter__(self):
        return self

    def __exit__(self, *_):
        ended(self.process)
        self.process.stdout.close()


def secrets(place, file):
    """The ends of a private key's secret numbers, in both orders of bytes."""
    shown = place.run("openssl", "pkey", "-in", file, "-noout", "-text").stdout
    found = re.findall(r"^(?:priv|prime[12]|privateExponent):\n((?: {4}[0-9a-f:]+\n)+)", shown, re.M)
    ends = [bytes.fromhex(re.sub(r"[\s:]", "", digits))[-16:] for digits in found]
    if not ends:
        raise Failed(f"openssl pkey shows no secret of {file}")
    return [order for end in ends for order in (end, end[::-1])]


def is_in_memory(process, texts):
    """Whether memory that the process may write has one of these; None where nobody may look."""
    found = False
    try:
        with open(f"/proc/{process}/mem", "rb", buffering=0) as memory:
            for line in pathlib.Path(f"/proc/{process}/maps").read_text().splitlines():
                span, rights = line.split()[:2]
                if not rights.startswith("rw"):
                    continue
                start, end = (int(at, 16) for at in span.split("-"))
                try:
                    memory.seek(start)
                    piece = memory.read(end - start)
                except OSError:
                    continue  # some mappings of the kernel
                found = found or any(text in piece for text in texts)
    except PermissionError:
        return None
    return found


def is_in_files(folder, texts):
    return any(text in path.read_bytes() for path in folder.rglob("*") if path.is_file() for text in texts)


def word(found):
    return {True: "found", False: "not there", None: "nobody may look"}[found]


def start_keeper(place):
    log = open(place.work / "log", "wb")
    keeper = place.start(SEALANE, "keeper", "--config", place.work / "keeper.toml", stdout=log, stderr=log)
    log.close()
    end = time.monotonic() + LIMIT_S
    # 1: it has no keys yet.
    while place.run(SEALANE, "key", "list", is_needed=False).returncode not in (0, 1):
        if keeper.poll() is not None or time.monotonic() > end:
            ended(keeper)
            raise Failed(f"the keeper does not serve: {(place.work / 'log').read_text()}")
        time.sleep(0.02)
    return keeper


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
    with Server(place, "sealane://web", certificate) as server:
        session = server.fetch()
        has_provider = str(PROVIDER) in pathlib.Path(f"/proc/{server.process.pid}/maps").read_text()
    is_good = all(words in session for words in ("HTTP/1.0 200", "Verify return code: 0 (ok)", f"Cipher is {SUITE}"))
    print(f"   openssl s_server -key sealane://web             {'serves' if is_good else 'DOES NOT SERVE'}, "
          f"{'with' if has_provider else 'WITHOUT'} sealane.so")
    fetched = f"certificate verified, {SUITE}, page fetched"
    print(f"   openssl s_client                                {fetched if is_good else 'FAILS'}")
    log = (place.work / "log").read_text()
    signs = f"user {os.geteuid()}: sign 'web'"
    print(f"   the keeper's log                                {signs if signs in log else 'NOTHING'}")
    return is_kept and is_good and has_provider and signs in log


def look(place, keeper):
    """Where private keys are that the demo knows, because it makes them in files."""
    print("\n2. Private keys that the demo knows, searched for in files and in the memory of running processes\n")
    print(f"   {'':<8} {'s_server, key of a file':<24} {'s_server, sealane://':<21} {'keeper':<16} its files")
    is_good = True
    for name, options in (("ec", ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]), ("rsa", ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"])):
        file, certificate = place.work / f"{name}.pem", place.work / f"{name}.crt"
        place.run("openssl", "genpkey", "-algorithm", *options, "-out", file)
        texts = secrets(place, file)
        place.run(SEALANE, "key", "import", name, "--file", file)
        place.run("openssl", "req", "-x509", "-key", f"sealane://{name}", "-subj", "/CN=localhost", "-days", "2", "-out", certificate)
        cells = []
        for key in (file, f"sealane://{name}"):
            with Server(place, key, certificate) as server:
                is_good = "HTTP/1.0 200" in server.fetch() and is_good
                cells.append(is_in_memory(server.process.pid, texts))
        cells += [is_in_memory(keeper.pid, texts), is_in_files(place.work / "keys", texts)]
        print(f"   {name:<8} {word(cells[0]):<24} {word(cells[1]):<21} {word(cells[2]):<16} {word(cells[3])}")
        is_good = is_good and cells[0] is True and cells[1] is False and cells[2] is not False and cells[3] is False
    return is_good


def cost(place, keeper):
    print("\n3. What it costs: signatures by one thread of a program\n")
    names = ("rsa", "ec")
    keys = [key for name in names for key in (place.work / f"{name}.pem", f"sealane://{name}")]
    rows = json.loads(place.run(sys.executable, ROOT / "bench/signatures.py", "--json", "--rounds", 2, "--seconds", SECONDS,
                                "--keeper", keeper.pid, *keys).stdout)
    print(f"   {'':<9} {'by a file, 1/s':>15} {'by the keeper, 1/s':>19} {'CPU us: program':>16} {'keeper':>7}")
    for file, kept in zip(rows[::2], rows[1::2]):
        print(f"   {file['kind']:<9} {file['rate']:15,.0f} {kept['rate']:19,.0f} {kept['cpu_us']:16.0f} {kept['keeper_cpu_us']:7.0f}")
    return all(row["rate"] > 0 for row in rows)


def demo(work):
    place = Place(work)
    version = " ".join(place.run("openssl", "version").stdout.split()[:2])
    print(f"\nPrivate keys in a process of their own, for unmodified {version}\n")
    keeper = start_keeper(place)
    try:
        is_good = [serve(place), look(place, keeper), cost(place, keeper)]
    finally:
        ended(keeper)
    print(f"\n{'All is as it should be.' if all(is_good) else 'NOT as it should be.'}")
    return 0 if all(is_good) else 1


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="sealane-demo-"))
    try:
        return demo(work)
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"demo_keys: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    sys.exit(main())
