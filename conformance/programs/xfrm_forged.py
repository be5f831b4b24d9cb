#!/usr/bin/env python3
"""Sends messages to a socket of NETLINK_XFRM that only the daemon may send; prints `clean` when none of them arrives."""
import socket
import struct

s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
s.bind((0, 0xFF))
port = s.getsockname()[0]
forger = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 2)
forged = struct.pack("=IHHII", 20, 2, 0, 1, 0) + bytes(4)
for _ in range(10):
    forger.sendto(forged, (port, 0))
    for group in range(1, 9):
        try:
            forger.sendto(forged, (0, 1 << (group - 1)))
        except ConnectionRefusedError:
            pass
try:
    raise SystemExit(f"arrived: {s.recv(4096, socket.MSG_DONTWAIT).hex()}")
except BlockingIOError:
    pass
for _ in range(10):
    forger.sendto(forged, (port, 0))
s.send(struct.pack("=IHHIII", 20, 0x23, 1, 7, 0, 0))
answer = s.recv(4096)
assert struct.unpack_from("=H", answer, 4)[0] == 0x22 and struct.unpack_from("=I", answer, 8)[0] == 7, answer.hex()
print("clean")
