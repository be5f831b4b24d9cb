#!/usr/bin/env python3
"""Watches the ESP packets that arrive at or leave by a device, until its standard input ends.

usage: esp_numbers.py DEVICE

A line `again N` on standard input repeats the first N frames of ESP that this host has sent. At the end it prints

    clear C esp E twice T longest L ms

frames with the marker of the tests, frames of ESP (by itself or in UDP), pairs of SPI and sequence number that were sent more
than once (repeated frames do not count), and the longest time between two frames of ESP that came from the same address.
"""
import os
import select
import socket
import sys
import time

from frames import from_daemon

MARKER = b"never in clear"
sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
sock.bind((sys.argv[1], 0))
sock.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE


def esp_at(frame):
    """Where ESP begins in a frame, and the outer source."""
    kind = frame[12:14]
    if kind == b"\x08\x00":
        proto, at, source = frame[23], 34, frame[26:30]
    elif kind == b"\x86\xdd":
        proto, at, source = frame[20], 54, frame[22:38]
    else:
        return None, None
    if proto == 50:
        return at, source
    if proto == 17 and frame[at + 2 : at + 4] == (4500).to_bytes(2, "big"):
        return at + 8, source
    return None, None


sent, seen, last = [], set(), {}
clear = esp = twice = repeating = 0
longest = 0.0
returned = from_daemon(sys.argv[1])
print("watching", flush=True)
while True:
    ready, _, _ = select.select([sock, sys.stdin], [], [])
    if sock in ready:
        frame, address = sock.recvfrom(65536)
        clear += MARKER in frame and not returned(frame, address)
        at, source = esp_at(frame)
        if at is None:
            continue
        ours = address[2] == socket.PACKET_OUTGOING
        if ours and repeating and frame in sent:
            repeating -= 1
            continue
        now = time.monotonic()
        esp += 1
        longest = max(longest, now - last.get(source, now))
        last[source] = now
        number = source + frame[at : at + 8]
        twice += number in seen
        seen.add(number)
        if ours and len(sent) < 1000:
            sent.append(frame)
    elif sys.stdin in ready:
        line = os.read(0, 100).split()
        if not line:
            break
        count = int(line[1])
        repeating = count
        for frame in sent[:count]:
            sock.send(frame)
        print(f"repeated {min(count, len(sent))}", flush=True)
print(f"clear {clear} esp {esp} twice {twice} longest {longest * 1000:.0f} ms")
