#!/usr/bin/env python3
"""Watches a device until its standard input ends, while ESP there authenticates and does not encrypt (GMAC with an ICV of 16
bytes). Prints how many ESP packets have IPComp inside, how many have IP, and how many something else; and those with IPComp
whose header is not as RFC 3173 says."""
import select
import socket
import struct
import sys

ESP, COMP = 50, 108
HEADER, ICV = 8 + 8, 16
device, cpis = sys.argv[1], {int(cpi, 16) for cpi in sys.argv[2:]}
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
s.bind((device, 0))
s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
comp = ip = other = wrong = 0
print("watching", flush=True)
while True:
    ready, _, _ = select.select([s, sys.stdin], [], [])
    if s in ready:
        frame = s.recv(65536)
        packet = frame[14:]
        if frame[12:14] == b"\x08\x00":
            proto, at, end = packet[9], 20, struct.unpack_from("!H", packet, 2)[0]
        elif frame[12:14] == b"\x86\xdd":
            proto, at, end = packet[6], 40, 40 + struct.unpack_from("!H", packet, 4)[0]
        else:
            continue
        if proto != ESP:
            continue
        inside = packet[end - ICV - 1]
        if inside == COMP:
            comp += 1
            _, flags, cpi = struct.unpack_from("!BBH", packet, at + HEADER)
            wrong += flags != 0 or cpi not in cpis
        elif inside in (4, 41):
            ip += 1
        else:
            other += 1
    elif sys.stdin in ready:
        break
print(f"comp {comp} ip {ip} other {other} wrong {wrong}.")
