#!/usr/bin/env python3
"""Many BGP-like sessions, each with its own keys, by the kernel's socket options.

    ao_many.py serve   ADDRESS PEERS KEYS
    ao_many.py connect ADDRESS PEERS KEYS SECONDS
    ao_many.py flood   ADDRESS COUNT
    ao_many.py forge   ADDRESS SECONDS PEERS

Peer i has the address 10.90.0.0 + i and KEYS keys on both ends. `serve` accepts and echoes until its standard input ends.
`connect` opens a session from each address, then sends a keepalive (19 bytes) on each once a second and waits for its echo, for
SECONDS, or with 0 until its standard input ends.
`forge` sends segments with an option whose MAC is wrong for so many seconds, with the addresses of the first PEERS peers, or with 0
from addresses that are no peer's: 10.90.200.0/24.
`flood` sends COUNT SYNs from addresses of peers, half without the option, half with an option whose MAC is wrong.
Each role prints a line for each step; `connect` exits with 1 when a session breaks."""
import itertools
import random
import resource
import select
import selectors
import socket
import struct
import sys
import time
from ao_key import add_key

PORT = 179
BASE = 0x0A5A0000
KEEPALIVE = bytes.fromhex("ff" * 16 + "001304")


def peer(i):
    return socket.inet_ntoa(struct.pack(">I", BASE + i))


def add_key_of(sock, addr, number, key, chosen=False):
    add_key(sock, addr, key, key, secret=b"key %d of %d" % (key, number), mac_len=12, chosen=chosen)


def say(text):
    print(text, flush=True)


def serve(address, peers, keys):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    start = time.monotonic()
    for i in range(peers):
        for key in range(keys):
            add_key_of(listener, peer(i), i, key)
    say(f"keys {peers * keys} in {time.monotonic() - start:.2f} s")
    listener.bind((address, PORT))
    listener.listen(4096)
    say("listening")
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for ready, _ in selector.select():
            sock = ready.fileobj
            if sock is sys.stdin:
                return 0
            if sock is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif data := sock.recv(4096):
                sock.sendall(data)
            else:
                selector.unregister(sock)
                sock.close()


def connect(address, peers, keys, seconds):
    start = time.monotonic()
    socks = []
    for i in range(peers):
        sock = socket.socket()
        sock.bind((peer(i), 0))
        for key in range(keys):
            add_key_of(sock, address, i, key, chosen=key == i % keys)
        socks.append(sock)
    say(f"keys {peers * keys} in {time.monotonic() - start:.2f} s")
    start = time.monotonic()
    for sock in socks:
        sock.settimeout(120)
        sock.connect((address, PORT))
    say(f"sessions {peers} in {time.monotonic() - start:.2f} s")
    slowest = 0.0
    start = time.monotonic()
    for beat in range(seconds) if seconds else itertools.count():
        if not seconds and select.select([sys.stdin], [], [], 0)[0]:
            break
        for i, sock in enumerate(socks):
            # Keepalives are spread over the second, like timers of sessions.
            time.sleep(max(0.0, start + beat + i / peers - time.monotonic()))
            said = time.monotonic()
            sock.sendall(KEEPALIVE)
            assert sock.recv(19, socket.MSG_WAITALL) == KEEPALIVE, f"session {i}"
            slowest = max(slowest, time.monotonic() - said)
    say(f"keepalives {peers * (seconds or beat)} in {time.monotonic() - start:.2f} s, slowest answer {slowest * 1000:.1f} ms")
    sys.stdin.read()
    return 0


def flood(address, count):
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    rng = random.Random(1)
    to = socket.inet_aton(address)
    start = time.monotonic()
    for n in range(count):
        source = struct.pack(">I", BASE + rng.randrange(1000))
        option = struct.pack("BBBB", 29, 16, 0, 0) + rng.randbytes(12) if n % 2 else b""
        tcp = struct.pack(">HHIIBBHHH", rng.randrange(1024, 65536), PORT, rng.randrange(1 << 32), 0,
                          (5 + len(option) // 4) << 4, 2, 64000, 0, 0) + option
        total = sum(struct.unpack(f">{len(tcp) // 2}H", tcp)) + sum(struct.unpack(">4H", source + to)) + 6 + len(tcp)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        tcp = tcp[:16] + struct.pack(">H", ~total & 0xFFFF) + tcp[18:]
        sock.sendto(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + to + tcp, (address, 0))
    say(f"SYNs {count} in {time.monotonic() - start:.2f} s")
    return 0


def forge(address, seconds, peers):
    sock = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
    rng = random.Random(1)
    to = socket.inet_aton(address)
    packets = []
    for n in range(4096):
        # With the addresses of peers, or of nobody.
        source = struct.pack(">I", BASE + n % peers if peers else BASE + (200 << 8) + n % 256)
        # Some of them to the port that is served.
        tcp = struct.pack(">HHIIBBHHH", 1024 + n, PORT if n % 2 else 9, rng.randrange(1 << 32), 1, 9 << 4, 16, 64000, 0, 0)
        tcp += struct.pack("BBBB", 29, 16, 0, 0) + rng.randbytes(12)
        total = sum(struct.unpack(f">{len(tcp) // 2}H", tcp)) + sum(struct.unpack(">4H", source + to)) + 6 + len(tcp)
        while total >> 16:
            total = (total & 0xFFFF) + (total >> 16)
        tcp = tcp[:16] + struct.pack(">H", ~total & 0xFFFF) + tcp[18:]
        packets.append(struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0, 64, 6, 0) + source + to + tcp)
    start, count = time.monotonic(), 0
    while time.monotonic() - start < seconds:
        for packet in packets:
            sock.sendto(packet, (address, 0))
        count += len(packets)
    say(f"{count} forged segments in {time.monotonic() - start:.2f} s")
    return 0


if __name__ == "__main__":
    role, address, *numbers = sys.argv[1:]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    sys.exit({"serve": serve, "connect": connect, "flood": flood, "forge": forge}[role](address, *map(int, numbers)))
