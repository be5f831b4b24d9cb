#!/usr/bin/env python3
"""Unmodified programs hash and encrypt real files of this machine through AF_ALG, served by Sealane. Each result is compared with
that of coreutils or OpenSSL."""

import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEALANE = os.environ.get("SEALANE", str(ROOT / "target/release/sealane"))
KEY = bytes(range(16)).hex()
IV = bytes(range(16, 32)).hex()

PYTHON = r"""
import socket, sys
kind, name, path, out = sys.argv[1:5]
data = open(path, 'rb').read()
with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0) as tfm:
    tfm.bind((kind, name))
    if kind == 'hash':
        if name.startswith('hmac'):
            tfm.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, bytes.fromhex(sys.argv[5]))
        op, _ = tfm.accept()
        view = memoryview(data)
        for i in range(0, len(view), 1 << 16):
            op.send(view[i:i + (1 << 16)], socket.MSG_MORE)
        open(out, 'w').write(op.recv(64).hex())
    else:
        tfm.setsockopt(socket.SOL_ALG, socket.ALG_SET_KEY, bytes.fromhex(sys.argv[5]))
        op, _ = tfm.accept()
        op.sendmsg_afalg(op=socket.ALG_OP_ENCRYPT, iv=bytes.fromhex(sys.argv[6]), flags=socket.MSG_MORE)
        with open(out, 'wb') as f:
            view, step = memoryview(data), 1 << 16
            for i in range(0, len(view), step):
                piece = view[i:i + step]
                last = i + step >= len(view)
                op.send(piece, 0 if last else socket.MSG_MORE)
                f.write(op.recv(len(piece)))
"""

ENGINE_CONF = """openssl_conf = sealane_demo
[sealane_demo]
engines = engine_list
[engine_list]
afalg = afalg_section
[afalg_section]
engine_id = afalg
default_algorithms = ALL
init = 1
"""


def run(argv, **kw):
    return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, **kw)


def pick_file(limit=48 << 20):
    """A large real file: a library of this machine, cut to whole cipher blocks for all modes."""
    best = None
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib", "/usr/bin"):
        for path in pathlib.Path(folder).glob("*"):
            try:
                if path.is_file() and not path.is_symlink() and path.stat().st_size <= limit:
                    best = max(best or (0, path), (path.stat().st_size, path))
            except OSError:
                continue
    return best[1]


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="sealane-demo-"))
    try:
        return demo(work)
    finally:
        for path in work.iterdir():
            path.unlink()
        work.rmdir()


def demo(work):
    original = pick_file()
    data = original.read_bytes()
    data = data[: len(data) // 4096 * 4096]
    big = work / "file"
    big.write_bytes(data)
    (work / "openssl.cnf").write_text(ENGINE_CONF)
    script = work / "afalg.py"
    script.write_text(PYTHON)
    print(f"Input: {original}, {len(data) / 1e6:.1f} MB. Kernel: {os.uname().release}\n")

    print("1. Without Sealane")
    for title, argv in (
        ("kcapi-dgst -c sha256 FILE", ["kcapi-dgst", "-c", "sha256", "--hex", str(big)]),
        ("python3: socket(AF_ALG)", ["python3", str(script), "hash", "sha256", str(big), str(work / "out")]),
    ):
        with open(big, "rb") as f:
            done = run(argv, stdin=f)
        text = (done.stderr.decode(errors="replace").strip().splitlines() or ["(no message)"])[-1]
        print(f"   {title}: exit {done.returncode}: {text}" if done.returncode else
              f"   {title}: works, this kernel has AF_ALG; Sealane serves it below all the same")
    print("\n2. The same programs under 'sealane run', not a byte of them changed\n")

    out = work / "out"
    jobs = []
    for alg in ("sha1", "sha256", "sha512"):
        jobs.append((f"kcapi-dgst -c {alg}", alg, ["kcapi-dgst", "-c", alg, "--hex"], "stdin-hex", [alg + "sum", str(big)]))
    jobs.append(("python3 socket(AF_ALG)", "sha256", ["python3", str(script), "hash", "sha256", str(big), str(out)],
                 "out-hex", ["sha256sum", str(big)]))
    jobs.append(("python3 socket(AF_ALG)", "hmac(sha256)",
                 ["python3", str(script), "hash", "hmac(sha256)", str(big), str(out), KEY], "out-hex",
                 ["openssl", "dgst", "-sha256", "-mac", "HMAC", "-macopt", "hexkey:" + KEY, "-r", str(big)]))
    for mode, openssl in (("ctr(aes)", "-aes-128-ctr"), ("cbc(aes)", "-aes-128-cbc")):
        jobs.append(("python3 socket(AF_ALG)", mode,
                     ["python3", str(script), "skcipher", mode, str(big), str(out), KEY, IV], "out-file",
                     ["openssl", "enc", openssl, "-K", KEY, "-iv", IV, "-nopad", "-in", str(big), "-out",
                      str(work / "want")]))
    jobs.append(("openssl enc -engine afalg", "cbc(aes)",
                 ["openssl", "enc", "-engine", "afalg", "-aes-128-cbc", "-K", KEY, "-iv", IV, "-nopad", "-in", str(big),
                  "-out", str(out)], "out-file",
                 ["openssl", "enc", "-aes-128-cbc", "-K", KEY, "-iv", IV, "-nopad", "-in", str(big), "-out",
                  str(work / "want")]))

    rows, failed = [], 0
    for program, alg, argv, how, reference in jobs:
        for path in (out, work / "want"):
            path.unlink(missing_ok=True)
        start = time.monotonic()
        want = run(reference)
        reference_s = time.monotonic() - start
        report = work / "audit.json"
        with open(big, "rb") as stdin:
            start = time.monotonic()
            done = run([SEALANE, "audit", "--json", "--output", str(report), "--"] + argv,
                       stdin=stdin if how == "stdin-hex" else subprocess.DEVNULL)
            took = time.monotonic() - start
        if how == "out-file":
            equal = out.exists() and hashlib.sha256(out.read_bytes()).digest() == \
                hashlib.sha256((work / "want").read_bytes()).digest()
        else:
            got = done.stdout.decode().split() if how == "stdin-hex" else out.read_text().split() if out.exists() else []
            equal = bool(got) and want.stdout.decode().split()[0] in got[0]
        served = [a for a in json.loads(report.read_text())["algorithms"] if a["name"] == alg and a["bytes"]] \
            if report.exists() else []
        driver = ", ".join(a["driver"] for a in served) or "none"
        count = sum(a["bytes"] for a in served)
        equal = equal and done.returncode == 0 and bool(served)
        failed += not equal
        rows.append((program, alg, driver, f"{count:,}", f"{len(data) / took / 1e6:.0f}",
                     f"{len(data) / reference_s / 1e6:.0f}", "yes" if equal else "NO"))
        if not equal:
            print(f"   {program} {alg}: exit {done.returncode}\n{done.stderr.decode(errors='replace')}", file=sys.stderr)

    heads = ("program", "algorithm", "driver", "bytes", "MB/s", "reference MB/s", "equal")
    widths = [max(len(r[i]) for r in rows + [heads]) for i in range(len(heads))]
    right = {3, 4, 5}
    for row in [heads] + rows:
        cells = (c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths)))
        print("   " + "  ".join(cells).rstrip())
    print("\n   MB/s counts the whole program, start and files included; the reference is coreutils or OpenSSL by itself.")
    print(f"\n{len(rows) - failed} of {len(rows)} results equal.")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
