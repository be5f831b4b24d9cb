#!/usr/bin/env python3
"""Adds a state in UDP from one address to another that wants a NAT keep-alive every two seconds (`XFRMA_NAT_KEEPALIVE_INTERVAL`,
which `ip` does not know), or, with one address, receives three and prints whether they came two seconds apart. The kernel's time
of arrival counts. A keep-alive may be late but not early: the first one by up to a second, the third one by any time."""
import socket
import struct
import sys

ALG_AEAD, ENCAP, SA_DIR, KEEPALIVE = 18, 4, 33, 34
PORTS = (4500, 4501)
TIMESTAMPNS = 35

if len(sys.argv) == 2:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind((sys.argv[1], PORTS[1]))
    s.setsockopt(socket.SOL_SOCKET, TIMESTAMPNS, 1)
    s.settimeout(50)
    print("listening", flush=True)
    times = []
    while len(times) < 3:
        data, more, _, (_, port) = s.recvmsg(100, 100)
        seconds, ns = struct.unpack("=qq", more[0][2])
        times.append(seconds + ns / 1e9)
        assert (data, port) == (b"\xff", PORTS[0]), (data, port)
    took = times[2] - times[0]
    print("three, two seconds apart" if took > 3 else f"three within {took} seconds", flush=True)
    sys.exit()


def address(text):
    return socket.inet_aton(text) + bytes(12)


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


source, destination = sys.argv[1:]
selector = bytes(40) + struct.pack("=HBBB", socket.AF_INET, 0, 0, 0) + bytes(11)
name = address(destination) + struct.pack("!I", 0x100) + bytes([socket.IPPROTO_ESP, 0, 0, 0])
limits = struct.pack("=8Q", *[2**64 - 1] * 4, *[0] * 4)
rest = bytes(32 + 12) + struct.pack("=IIHBBB7x", 0, 1, socket.AF_INET, 1, 0, 0)
body = selector + name + address(source) + limits + rest
body += attribute(ALG_AEAD, b"rfc4106(gcm(aes))".ljust(64, b"\0") + struct.pack("=II", 160, 128) + bytes(range(20)))
body += attribute(ENCAP, struct.pack("=H", 2) + struct.pack("!HHH", *PORTS, 0) + bytes(16))
body += attribute(SA_DIR, b"\2") + attribute(KEEPALIVE, struct.pack("=I", 2))
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
s.send(struct.pack("=IHHII", 16 + len(body), 0x10, 0x605, 1, 0) + body)
error = struct.unpack_from("=i", s.recv(4096), 16)[0]
sys.exit(f"error {error}" if error else 0)
