#!/usr/bin/env python3
"""Two daemons under a load for a long time: rekeyed every 5 seconds, over a wire that loses, duplicates and reorders, one of
them killed every minute.

usage: ipsec_soak.py [MINUTES [PATH]]          (30 software)

PATH is the data path of both ends: software, crypto (a crypto core) or packet (a packet core).

Needs root, iputils-ping, iperf3, and target/release with sealane and lossy-link. Every outbound frame of both
ends is inspected: no packet with inner addresses may be unencrypted, and no SPI may send a sequence number twice. The daemon that
is not killed must not grow. Exit status: 0 all as it should be, 1 not."""
import ctypes
import os
import pathlib
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEALANE = os.environ.get("SEALANE", str(ROOT / "target/release/sealane"))
LINK = str(pathlib.Path(SEALANE).with_name("lossy-link"))
NAME = f"soak{os.getpid()}"
A, M, B = (f"{NAME}-{end}" for end in "amb")
OUTER = {A: "10.85.0.1", B: "10.85.0.2"}
INNER = {A: "10.86.1.1", B: "10.86.2.1"}
REKEY, GRACE, KILL = 5, 2, 60
PATHS = ("software", "crypto", "packet")
DEVICE = "sealane0"
LOSS = ["--of", "esp", "--loss", "1", "--duplicate", "1", "--reorder", "2", "--seed", "7"]


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def inside(space, *words, **more):
    return subprocess.Popen(["ip", "netns", "exec", space, *words], **more)


class Watch(threading.Thread):
    """The outbound packets of a namespace."""

    def __init__(self, space):
        super().__init__(daemon=True)
        self.space, self.ready = space, threading.Event()
        self.esp = self.clear = self.repeated = self.missed = 0
        self.last = {}
        self.inner = [socket.inet_aton(address) for address in INNER.values()]
        self.start()
        self.ready.wait(5)

    def run(self):
        with open(f"/run/netns/{self.space}") as ns:
            if ctypes.CDLL(None, use_errno=True).setns(ns.fileno(), 0x40000000):
                raise OSError(ctypes.get_errno(), "setns")
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        tap.bind(("wire", 0))
        tap.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
        self.tap = tap
        self.ready.set()
        while True:
            try:
                frame, meta = tap.recvfrom(1 << 17)
            except OSError:
                return
            if meta[2] != socket.PACKET_OUTGOING or frame[12:14] != b"\x08\x00":
                continue
            packet = frame[14:]
            at = (packet[0] & 15) * 4
            if packet[9] == 50:
                self.one(packet[at:at + 8])
            elif packet[9] == 17 and packet[at:at + 2] == (4500).to_bytes(2, "big"):
                self.one(packet[at + 8:at + 16])
            else:
                self.clear += packet[12:16] in self.inner or packet[16:20] in self.inner

    def one(self, head):
        """One worker seals for an SPI, so its numbers only grow. A superframe shows its first number."""
        spi, seq = head[:4], int.from_bytes(head[4:], "big")
        self.esp += 1
        self.repeated += seq <= self.last.get(spi, 0)
        self.last[spi] = seq

    def drops(self):
        return int.from_bytes(self.tap.getsockopt(263, 6, 8)[4:], sys.byteorder)  # SOL_PACKET, PACKET_STATISTICS


class Daemon:
    def __init__(self, space, folder, path):
        self.space, self.folder, self.path = space, folder, path
        self.runtime = {**os.environ, "SEALANE_RUNTIME_DIR": f"{folder}/run-{space}"}
        self.config = pathlib.Path(f"{folder}/{space}.toml")
        device = f'[[ipsec.device]]\nname = "{DEVICE}"\nkind = "{path}"\n' if path != "software" else ""
        self.config.write_text(f"[ipsec]\n{device}")
        self.start()

    def start(self):
        log = open(f"{self.folder}/{self.space}.log", "w")
        self.process = inside(self.space, SEALANE, "daemon", "--config", str(self.config), env=self.runtime, stderr=log)
        while "IPsec in" not in pathlib.Path(log.name).read_text():
            time.sleep(0.02)
            if self.process.poll() is not None:
                raise SystemExit(pathlib.Path(log.name).read_text())

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def xfrm(self, *lines):
        inside = ["ip", "netns", "exec", self.space, SEALANE]
        known = [line for line in lines if "offload packet" not in line]
        commands = [([*inside, "run", "--", "ip", "-batch", "-"], "\n".join(f"xfrm {line}" for line in known) + "\n")]
        # Older versions of ip do not know packet offload; the grammar is the same.
        commands += [([*inside, "xfrm", *line.split()], "") for line in lines if line not in known]
        for words, text in commands:
            done = subprocess.run(words, input=text, text=True, env=self.runtime, capture_output=True)
            if done.returncode:
                raise RuntimeError(f"{self.space}: {done.stderr.strip()}")

    def state(self, line, way):
        """Adds a state, with its offload."""
        word = {"software": "", "crypto": f"offload dev {DEVICE} dir {way}", "packet": f"offload packet dev {DEVICE} dir {way}"}
        self.xfrm(f"{line} {word[self.path]}")

    def policies(self):
        other = {A: B, B: A}[self.space]
        rows = [("out", self.space, other), ("in", other, self.space)]
        offload = f"offload packet dev {DEVICE}" if self.path == "packet" else ""
        self.xfrm(*(f"policy update src {INNER[src]} dst {INNER[dst]} dir {way} {offload} tmpl src {OUTER[src]} dst {OUTER[dst]} proto esp "
                    "reqid 1 mode tunnel" for way, src, dst in rows))

    def memory(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]), len(os.listdir(f"/proc/{self.process.pid}/fd"))


class Keys:
    """Generations of two states, one for each direction, alternating between ESP in UDP and plain ESP."""

    def __init__(self, daemons):
        self.daemons, self.number, self.old = daemons, 0, []

    def lines(self, number, keys):
        encap = "encap espinudp 4500 4500 0.0.0.0" if number % 2 else ""
        for i, (src, dst) in enumerate(((A, B), (B, A))):
            yield (f"state add src {OUTER[src]} dst {OUTER[dst]} proto esp spi {0x1000 + 2 * number + i:#x} reqid 1 mode tunnel "
                   f"replay-window 1024 aead rfc4106(gcm(aes)) 0x{keys[i]} 128 {encap}")

    def renew(self):
        """Make before break: inbound states first, then outbound ones."""
        self.number += 1
        there, back = self.lines(self.number, [secrets.token_hex(20) for _ in range(2)])
        self.daemons[B].state(there, "in")
        self.daemons[A].state(back, "in")
        self.daemons[A].state(there, "out")
        self.daemons[B].state(back, "out")

    def forget(self, missing=()):
        """Deletes all but the newest states."""
        for number in range(max(1, self.number - 3), self.number):
            for i, (src, dst) in enumerate(((A, B), (B, A))):
                for space, daemon in self.daemons.items():
                    if (number, space) not in self.old and space not in missing:
                        daemon.xfrm(f"state delete src {OUTER[src]} dst {OUTER[dst]} proto esp spi {0x1000 + 2 * number + i:#x}")
            self.old += [(number, A), (number, B)]


def wire():
    for space in (A, M, B):
        ip("netns", "add", space)
    for space, end in ((A, "left"), (B, "right")):
        ip("link", "add", "wire", "netns", space, "type", "veth", "peer", "name", end, "netns", M)
        ip("-n", M, "link", "set", end, "up")
        other = {A: B, B: A}[space]
        for words in (["addr", "add", f"{OUTER[space]}/24", "dev", "wire"], ["addr", "add", f"{INNER[space]}/32", "dev", "lo"],
                      ["link", "set", "lo", "up"], ["link", "set", "wire", "up"],
                      ["route", "add", f"{INNER[other]}/32", "via", OUTER[other], "src", INNER[space]]):
            ip("-n", space, *words)


def soak(minutes, path, folder):
    wire()
    link = inside(M, LINK, "left", "right", *LOSS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    watches = [Watch(space) for space in (A, B)]
    daemons = {space: Daemon(space, folder, path) for space in (A, B)}
    keys = Keys(daemons)
    for daemon in daemons.values():
        daemon.policies()
    keys.renew()
    seconds = int(minutes * 60)
    ping = inside(A, "ping", "-q", "-n", "-i", "0.05", "-W", "1", "-w", str(seconds), INNER[B], stdout=subprocess.PIPE, text=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = inside(B, "iperf3", "-s", "-B", INNER[B], **quiet)
    client = None
    start = killed = rekeyed = time.monotonic()
    early = None
    kills = 0
    while (now := time.monotonic()) - start < seconds:
        if client is None or client.poll() is not None:
            client = inside(A, "iperf3", "-c", INNER[B], "-B", INNER[A], "-t", str(seconds), "-b", "40M", **quiet)
        if now - killed >= KILL:
            killed = now
            kills += 1
            daemons[A].kill()
            time.sleep(1)
            daemons[A].start()
            # Its states are gone, and their keys are never used again.
            keys.old += [(number, A) for number in range(1, keys.number + 1)]
            daemons[A].policies()
            keys.renew()
            rekeyed = now
        elif now - rekeyed >= REKEY:
            rekeyed = now
            keys.renew()
            time.sleep(GRACE)
            keys.forget()
        if early is None and now - start >= min(90, seconds / 3):
            early = daemons[B].memory()
        time.sleep(0.1)
    late = daemons[B].memory()
    told = ping.communicate(timeout=30)[0]
    for process in (client, server):
        process.terminate()
    for daemon in daemons.values():
        daemon.process.terminate()
        daemon.process.wait()
    spoilt = link.communicate(input="", timeout=10)[0].strip()
    esp, clear, repeated, missed = (sum(values) for values in zip(*((w.esp, w.clear, w.repeated, w.drops()) for w in watches)))
    print(f"{keys.number} generations of keys, daemon killed {kills} times; the wire: {spoilt}")
    print("\n".join(line for line in told.splitlines() if "packets transmitted" in line or line.startswith("rtt")))
    print(f"seen leaving: {esp:,} frames of ESP, {clear} in clear, {repeated} with a number used before; {missed} frames were missed")
    print(f"the daemon that lived: {early[0]} kB and {early[1]} descriptors early, {late[0]} kB and {late[1]} at the end")
    received = re.search(r"(\d+) packets transmitted, (\d+) received", told)
    lost = 1 - int(received[2]) / int(received[1])
    # Each kill loses the packets until the next generation.
    allowed = 0.05 + kills * 5 / seconds
    checks = {
        "nothing left in clear": clear == 0 and esp > 0,
        "no number left twice": repeated == 0,
        f"at most {allowed:.0%} of the pings were lost ({lost:.1%})": lost <= allowed,
        "memory does not grow": late[0] <= early[0] * 1.2 + 4096 and late[1] <= early[1] + 4,
    }
    for what, good in checks.items():
        print("PASS" if good else "FAIL", what)
    return 0 if all(checks.values()) else 1


def main():
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 30
    path = sys.argv[2] if len(sys.argv) > 2 else "software"
    if path not in PATHS:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory(prefix="sealane-soak-") as folder:
        try:
            return soak(minutes, path, folder)
        finally:
            for space in (A, M, B):
                pids = subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split()
                for pid in pids:
                    os.kill(int(pid), signal.SIGKILL)
                subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
