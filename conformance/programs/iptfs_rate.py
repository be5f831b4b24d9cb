#!/usr/bin/env python3
"""Watches ESP from one IPv4 address on a device: usage iptfs_rate.py DEVICE ADDRESS COUNT.

Prints a line when so many packets have come, and `quiet` when then none has come for three seconds, with the lengths of all
packets, and of the first COUNT the microseconds from the first to the last by the kernel's clock. A superframe, which a card would
cut, does not occur: raw ESP has none."""
import select
import socket
import struct
import sys

device, address, count = sys.argv[1], socket.inet_aton(sys.argv[2]), int(sys.argv[3])
IP, ESP, QUIET = 0x0800, 50, 3
SO_TIMESTAMPNS = 35
s = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
s.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
s.bind((device, 0))
s.setsockopt(socket.SOL_SOCKET, 33, 32 << 20)  # SO_RCVBUFFORCE
times, lengths = [], set()
print("watching", flush=True)
while True:
    if not select.select([s], [], [], QUIET)[0]:
        if len(times) >= count:
            break
        continue
    packet, ancillary, _, (_, protocol, *_) = s.recvmsg(1 << 17, 256)
    if protocol != IP or packet[9] != ESP or packet[12:16] != address:
        # What else there is, as neighbours' questions, is no traffic that makes it less quiet; nor does it come often.
        continue
    seconds, nanoseconds = struct.unpack("=qq", next(data for level, kind, data in ancillary if kind == SO_TIMESTAMPNS))
    times.append(seconds * 10**6 + nanoseconds // 1000)
    lengths.add(struct.unpack_from("!H", packet, 2)[0])
    if len(times) == count:
        print("they have come", flush=True)
print(f"quiet: lengths {sorted(lengths)}, in {times[count - 1] - times[0]} us.")
