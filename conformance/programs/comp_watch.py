#!/usr/bin/env python3
"""Watches a device until its standard input ends, while ESP there authenticates and does not encrypt (GMAC with an ICV of 16
bytes). Prints how many ESP packets have IPComp inside, how many have IP, and how many something else; and those with IPComp
whose header is not as RFC 3173 says."""
import struct
import sys

from frames import frames, ip, packet_socket

ESP, COMP = 50, 108
HEADER, ICV = 8 + 8, 16
device, cpis = sys.argv[1], {int(cpi, 16) for cpi in sys.argv[2:]}
comp = in_ip = other = wrong = 0
for frame, _ in frames(packet_socket(), device, 8 << 20, 65536):
    found = ip(frame)
    if not found or found[1] != ESP:
        continue
    packet, _, at, end = found
    inside = packet[end - ICV - 1]
    if inside == COMP:
        comp += 1
        _, flags, cpi = struct.unpack_from("!BBH", packet, at + HEADER)
        wrong += flags != 0 or cpi not in cpis
    elif inside in (4, 41):
        in_ip += 1
    else:
        other += 1
print(f"comp {comp} ip {in_ip} other {other} wrong {wrong}.")
