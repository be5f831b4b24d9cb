#!/usr/bin/env python3
"""Unmodified `ip xfrm` sets up an ESP tunnel between two network namespaces on a kernel without ESP. The demo shows the packets on
the wire, a killed daemon, and the cost."""

import json
import os
import subprocess
import sys
import time

from demo_spaces import A, ADDR, B, SEALANE, SKIPPED, Wire, cpu_seconds, inside, run, sh

INNER = {A: "192.168.101.1", B: "192.168.102.1"}
NET = {A: "192.168.101.0/24", B: "192.168.102.0/24"}
PROTO_UDP, PROTO_ESP = 17, 50
ESP_IN_UDP = 4500
SECONDS = int(os.environ.get("DEMO_SECONDS", 4))
# Linux's three data paths: the division of work, and the device that each needs.
PATHS = {
    "software": ("the stack's thread does all", None),
    "crypto": ("a core beside it does the crypto", "sealane0"),
    "packet": ("a core beside it does all", "sealane1"),
}
# A key for each direction, as from a key manager.
SUITES = {
    "aes-gcm": ("aead", "rfc4106(gcm(aes))", 20, "128"),
    "chacha20-poly1305": ("aead", "rfc7539esp(chacha20,poly1305)", 36, "128"),
    "aes-cbc, hmac-sha256": ("auth-trunc", "hmac(sha256)", 32, "128", "enc", "cbc(aes)", 16),
}


def key(size, which):
    return "0x" + bytes((which * 16 + i) % 256 for i in range(size)).hex()


def algorithms(suite, which):
    return [key(word, which) if isinstance(word, int) else word for word in SUITES[suite]]


class Frames:
    """Counts outbound packets of a namespace: ESP, and those that should have been ESP."""

    def __init__(self):
        self.esp = self.clear = 0

    def look(self, _, frame):
        if frame[12:14] != b"\x08\x00":
            return
        ip = frame[14:]
        header = (ip[0] & 15) * 4
        protocol, source = ip[9], ".".join(map(str, ip[12:16]))
        if protocol == PROTO_ESP or (protocol == PROTO_UDP and int.from_bytes(ip[header:header + 2], "big") == ESP_IN_UDP):
            self.esp += 1
        elif source in INNER.values():
            self.clear += 1


def routes():
    for ns, other in ((A, B), (B, A)):
        sh("ip", "-n", ns, "addr", "add", INNER[ns] + "/24", "dev", "lo")
        sh("ip", "-n", ns, "route", "add", NET[other], "via", ADDR[other], "src", INNER[ns])


def xfrm(ns, words, launcher=(SEALANE, "run", "--")):
    # Debian 12's ip does not know packet offload yet; the grammar is the same.
    program = [SEALANE, "xfrm"] if "packet" in words else [*launcher, "ip", "xfrm"]
    return sh("ip", "netns", "exec", ns, *program, *words, check=False)


def states(suite, encap, path="software"):
    """Puts the same two states on both ends, in place of earlier ones."""
    for ns in (A, B):
        xfrm(ns, ["state", "flush"])
        for which, (src, dst) in enumerate(((A, B), (B, A))):
            words = ["state", "add", "src", ADDR[src], "dst", ADDR[dst], "proto", "esp", "spi", f"0x{0x1000 + which:x}",
                     "reqid", "1", "mode", "tunnel", "replay-window", "128", *algorithms(suite, which + 1)]
            words += ["encap", "espinudp", str(ESP_IN_UDP), str(ESP_IN_UDP), "0.0.0.0"] if encap else []
            if PATHS[path][1]:
                words += ["offload", *(["packet"] if path == "packet" else []), "dev", PATHS[path][1]]
                words += ["dir", "out" if src == ns else "in"]
            done = xfrm(ns, words)
            if done.returncode:
                raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")


def policies(path="software"):
    offload = ["offload", "packet", "dev", PATHS[path][1]] if path == "packet" else []
    for ns, other in ((A, B), (B, A)):
        xfrm(ns, ["policy", "flush"])
        for direction, src, dst in (("out", ns, other), ("in", other, ns)):
            done = xfrm(ns, ["policy", "add", "src", NET[src], "dst", NET[dst], "dir", direction, *offload, "tmpl",
                             "src", ADDR[src], "dst", ADDR[dst], "proto", "esp", "reqid", "1", "mode", "tunnel"])
            if done.returncode:
                raise RuntimeError(f"ip xfrm policy add dir {direction}: {done.stderr.strip()}")


def daemon(work):
    config = work / "sealane.toml"
    text = f'[ipsec]\nnetns = ["{A}", "{B}"]\n'
    for kind, (_, name) in PATHS.items():
        for ns in (A, B) if name else ():
            text += f'[[ipsec.device]]\nname = "{name}"\nkind = "{kind}"\nnetns = "{ns}"\n'
    config.write_text(text)
    config.chmod(0o600)
    started = subprocess.Popen([SEALANE, "daemon", "--config", str(config)], stderr=subprocess.PIPE, text=True)
    line = started.stderr.readline().strip()
    if "IPsec" not in line:
        raise RuntimeError(line)
    return started


def ping():
    done = sh("ip", "netns", "exec", A, "ping", "-c", "3", "-i", "0.2", "-W", "1", INNER[B], check=False)
    told = [line for line in done.stdout.splitlines() if "packets transmitted" in line or line.startswith("rtt")]
    return told or [done.stderr.strip()]


def iperf3(to):
    """Gbit/s of one TCP stream, CPU seconds of the whole machine per GB."""
    server = inside(B, ["iperf3", "-s", "-1", "-B", to])
    for _ in range(200):
        if ":5201 " in sh("ip", "netns", "exec", B, "ss", "-ltn", check=False).stdout:
            break
        time.sleep(0.02)
    before = cpu_seconds()
    client = inside(A, ["iperf3", "-c", to, "-t", str(SECONDS), "-J"])
    out, _ = client.communicate(timeout=60)
    used = cpu_seconds() - before
    server.communicate(timeout=10)
    received = json.loads(out)["end"]["sum_received"]
    return received["bits_per_second"] / 1e9, used / received["bytes"] * 1e9


def demo(work):
    print("\nIPsec for unmodified programs: ip xfrm sets up a tunnel on a kernel without ESP\n")
    failed = 0
    if not os.path.exists("/dev/net/tun"):
        print("SKIP demo-ipsec: no /dev/net/tun here")
        return SKIPPED
    add = ["state", "add", "src", ADDR[A], "dst", ADDR[B], "proto", "esp", "spi", "1", "mode", "tunnel", *algorithms("aes-gcm", 1)]
    plain = xfrm(A, add, launcher=())
    print(f"   without Sealane   ip xfrm state add ...: {plain.stderr.strip() or 'works: this kernel has it'}")
    routes()
    baseline = iperf3(INNER[B])

    frames = Frames(), Frames()
    wires = [Wire(ns, end.look) for ns, end in zip((A, B), frames)]
    serving = daemon(work)
    try:
        states("aes-gcm", encap=True)
        policies()
        lines = xfrm(A, ["state"]).stdout.splitlines()
        print(f"   with Sealane      ip xfrm state: {len([l for l in lines if l.startswith('src')])} states; the first:")
        # Keys are never printed.
        print("\n".join(f"      {line.rstrip()}" for line in lines[:3]))
        answers = ping()
        failed += "3 received" not in answers[0]
        print(f"   through it        ping {INNER[B]}: {'; '.join(answers)}")

        # From now on they only look for what is in clear.
        for wire in wires:
            wire.overlook((PROTO_ESP, None), (PROTO_UDP, ESP_IN_UDP))
        rows = [("no IPsec", baseline)]
        for suite in SUITES:
            states(suite, encap=True)
            rows.append((f"{suite}, ESP in UDP", iperf3(INNER[B])))
        states("aes-gcm", encap=False)
        rows.append(("aes-gcm, ESP", iperf3(INNER[B])))

        for path, (what, name) in PATHS.items():
            states("aes-gcm", encap=True, path=path)
            policies(path)
            rows.append((f"{path}{' offload' if name else ''}: {what}", iperf3(INNER[B])))
            # Debian 12's ip does not show the kind of offload.
            shown = sh("ip", "netns", "exec", A, SEALANE, "xfrm", "state").stdout
            told = [line.strip() for line in shown.splitlines() if "offload" in line]
            failed += bool(name) != bool(told) or any((path == "packet") != ("mode packet" in line) for line in told)
            if name:
                print(f"   {path + ' offload':17} sealane xfrm state: {told[0] if told else 'NOT offloaded'}")
    finally:
        serving.kill()
        serving.communicate()
    answers = ping()
    # With a route to a device that is gone, ping fails at once.
    failed += " 0 received" not in answers[0] and "No route to host" not in answers[0]
    print(f"   daemon killed     ping: {answers[-1]}")
    serving = daemon(work)
    try:
        answers = ping()
        failed += "3 received" not in answers[0]
        print(f"   started again     ping: {answers[-1]}, with the keys of before")
    finally:
        serving.terminate()
        serving.communicate()
        for ns in (A, B):
            sh("ip", "netns", "exec", ns, SEALANE, "xfrm", "clear")
    esp, clear = (sum(getattr(f, what) for f in frames) for what in ("esp", "clear"))
    failed += clear != 0 or esp == 0
    print(f"   on the wire       {esp:,} packets of ESP seen before the measurements; in all that time {clear} in clear")

    print(f"\n   {'':49}  {'Gbit/s':>7}  {'CPU-s per GB':>12}")
    for label, (gbps, cost) in rows:
        print(f"   {label:49}  {gbps:7.2f}  {cost:12.2f}")
    print("\n   iperf3, one TCP stream over a veth pair, both ends on this machine. CPU seconds are the whole machine's.")
    print(f"   {'all as it should be' if not failed else f'{failed} NOT as it should be'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run("demo-ipsec", demo))
