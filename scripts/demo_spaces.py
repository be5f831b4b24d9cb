"""Shared parts of the network demos: two network namespaces with a wire between them, programs in them, frames on the wire."""

import ctypes
import os
import pathlib
import socket
import struct
import subprocess
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEALANE = os.environ.get("SEALANE", str(ROOT / "target/release/sealane"))
A, B = "sealane-demo-a", "sealane-demo-b"
ADDR = {A: "10.249.0.1", B: "10.249.0.2"}
MEGABYTE = 1_000_000
SKIPPED = 77  # the exit status that test drivers take for "skipped"
CLONE_NEWNET = 0x40000000
SO_ATTACH_FILTER = 26


def sh(*argv, check=True):
    return subprocess.run(argv, check=check, capture_output=True, text=True)


def inside(ns, argv, **kw):
    """Starts a program in a namespace."""
    return subprocess.Popen(["ip", "netns", "exec", ns] + argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                            **kw)


def setup():
    teardown()
    for ns in (A, B):
        sh("ip", "netns", "add", ns)
    sh("ip", "link", "add", "wire", "netns", A, "type", "veth", "peer", "name", "wire", "netns", B)
    for ns in (A, B):
        sh("ip", "-n", ns, "link", "set", "lo", "up")
        sh("ip", "-n", ns, "link", "set", "wire", "up")
        sh("ip", "-n", ns, "addr", "add", ADDR[ns] + "/24", "dev", "wire")


def teardown():
    for ns in (A, B):
        sh("ip", "netns", "del", ns, check=False)


class Wire(threading.Thread):
    """Passes every outbound frame of one end to `look(tap, frame)`, with the packet socket that it came from.

    What it sees costs CPU time, by far more for many short frames than for a few long ones: it is told to overlook what a
    measurement is about."""

    def __init__(self, space, look):
        super().__init__(daemon=True)
        self.space = space
        self.look = look
        self.ready = threading.Event()
        self.start()
        self.ready.wait(5)

    def run(self):
        libc = ctypes.CDLL(None, use_errno=True)
        with open(f"/run/netns/{self.space}") as ns:
            if libc.setns(ns.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        self.tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.tap.bind(("wire", 0))
        self.ready.set()
        while True:
            try:
                frame, meta = self.tap.recvfrom(1 << 16)
            except OSError:
                # The namespace has been deleted.
                return
            if meta[2] == socket.PACKET_OUTGOING:
                self.look(self.tap, frame)

    def overlook(self, *where):
        """Overlooks IPv4 packets of these protocols, each a number and a source port, or None for all of it."""
        # struct sock_filter: code, jump if true, jump if false, operand. Headers are without IP options.
        load_byte, load_half, equal, give = 0x30, 0x28, 0x15, 0x06
        code = [(load_half, 0, 0, 12), (equal, 1, 0, 0x0800), (give, 0, 0, 1 << 18)]
        for protocol, port in where:
            of_port = [] if port is None else [(load_half, 0, 0, 34), (equal, 0, 1, port)]
            code += [(load_byte, 0, 0, 23), (equal, 0, len(of_port) + 1, protocol), *of_port, (give, 0, 0, 0)]
        code += [(give, 0, 0, 1 << 18)]
        steps = b"".join(struct.pack("HBBI", *step) for step in code)
        kept = ctypes.create_string_buffer(steps)
        self.tap.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HxxxxxxP", len(code), ctypes.addressof(kept)))


def cpu_seconds():
    """CPU seconds of the whole machine."""
    with open("/proc/stat") as f:
        ticks = [int(v) for v in f.readline().split()[1:9]]
    busy = sum(ticks) - ticks[3] - ticks[4]
    return busy / os.sysconf("SC_CLK_TCK")


def run(name, demo):
    """Runs `demo(folder)` between the two namespaces. Returns its exit status, or SKIPPED where namespaces cannot be made."""
    def skip(reason):
        print(f"SKIP {name}: {reason}")
        return SKIPPED

    if os.geteuid() != 0:
        return skip(f"network namespaces need root: sudo python3 scripts/{name.replace('-', '_')}.py")
    try:
        setup()
    except subprocess.CalledProcessError as e:
        teardown()
        return skip(f"no network namespaces here: {(e.stderr.strip().splitlines() or [str(e)])[-1]}")
    with tempfile.TemporaryDirectory(prefix="sealane-demo-") as folder:
        try:
            return demo(pathlib.Path(folder))
        finally:
            teardown()
