#!/usr/bin/env python3
"""Watches a device until its standard input ends. Prints the number of frames with an unencrypted marker, and of frames with ESP
(by itself or in UDP). With `again` as second argument it repeats each of the first 50 ESP frames that this host sends. With `outside`
it counts IPv4 outside ESP in place of markers: ESP without encryption shows them."""
import socket
import sys

from frames import frames, packet_socket

MARKER = b"never in clear"
device = sys.argv[1]
again, outside = "again" in sys.argv[2:], "outside" in sys.argv[2:]
s = packet_socket()
clear = esp = replayed = 0
for frame, address in frames(s, device, 8 << 20, 65536):
    kind = frame[12:14]
    proto = frame[23] if kind == b"\x08\x00" else frame[20] if kind == b"\x86\xdd" else 0
    at = 34 if kind == b"\x08\x00" else 54
    clear += (kind == b"\x08\x00" and proto != 50) if outside else MARKER in frame
    if proto == 50 or (proto == 17 and frame[at + 2 : at + 4] == (4500).to_bytes(2, "big")):
        esp += 1
        if again and address[2] == socket.PACKET_OUTGOING and replayed < 50 and len(frame) < 1514:
            replayed += 1
            s.send(frame)
print(f"clear {clear} esp {esp} replayed {replayed}")
