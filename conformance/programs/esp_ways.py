#!/usr/bin/env python3
"""Counts outbound IPsec packets by device.

    esp_ways.py SPI COUNT   waits for COUNT packets of ESP (also in UDP) or AH with this SPI, or 40 seconds, and prints how many
                            were sent by each device, COUNT at most"""
import collections
import socket
import struct
import sys
import time

ALL, OUTGOING = 3, 4
RCVBUFFORCE = 33


def packets_of(frame, spi):
    """The number of packets in a frame: a superframe has several."""
    ip = frame[14:]
    if frame[12:14] == b"\x08\x00":
        protocol, upper = ip[9], ip[(ip[0] & 15) * 4 :]
    elif frame[12:14] == b"\x86\xdd":
        protocol, upper = ip[6], ip[40:]
    else:
        return 0
    at = {50: 0, 51: 4, 17: 8}.get(protocol)
    if at is None or len(upper) < at + 8:
        return 0
    found, number = struct.unpack_from("!II", upper, at)
    count = 0
    while found == spi and at >= 0:
        count += 1
        at = upper.find(struct.pack("!II", spi, number + count), at)
    return count


def main():
    spi, count = int(sys.argv[1], 0), int(sys.argv[2])
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ALL))
    # No frame is lost while it waits.
    sock.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, 64 << 20)
    sock.settimeout(1)
    end = time.monotonic() + 40
    print("watching", flush=True)
    ways = collections.Counter()
    while sum(ways.values()) < count and time.monotonic() < end:
        try:
            frame, address = sock.recvfrom(1 << 17)
        except TimeoutError:
            continue
        if address[2] == OUTGOING:
            ways[address[0]] += packets_of(frame, spi)
    print(*(f"{name} {min(n, count)}" for name, n in sorted(ways.items()) if n), "done", flush=True)


main()
