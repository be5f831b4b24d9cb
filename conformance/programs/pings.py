#!/usr/bin/env python3
"""Pings, and waits for late answers too: the ping of iputils takes the last one for lost after two round trips.

  pings.py SOURCE DESTINATION HOW-MANY INTERVAL SIZE PATIENCE [AHEAD]

SOURCE `-` leaves the choice to the kernel. HOW-MANY is a number, or a file whose existence ends it. With INTERVAL 0 requests are
sent as fast as answers come, up to AHEAD (128) at a time. Answers may come until PATIENCE seconds after the last request. Exit status: 0
all were answered, 1 not. It also prints how many answers came twice, and how many after an answer to a later request.
"""

import os
import select
import socket
import struct
import sys
import time


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def request(kind, ident, number, size):
    body = struct.pack("!HH", ident, number) + bytes(size + size % 2)
    # The kernel computes the checksum of ICMPv6, which covers addresses.
    return struct.pack("!BBH", kind, 0, checksum(bytes([kind, 0]) + body)) + body


def main(source, destination, how_many, interval, size, patience, ahead="128"):
    interval, size, patience, ahead = float(interval), int(size), float(patience), int(ahead)
    v6 = ":" in destination
    echo, reply = (128, 129) if v6 else (8, 0)
    s = socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) if v6 else socket.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    if source != "-":
        s.bind((source, 0))
    s.connect((destination, 0))
    ident, sent, missing = os.getpid() & 0xFFFF, 0, set()
    last = twice = out_of_order = 0

    def done():
        return sent >= int(how_many) if how_many.isdigit() else sent > 0 and os.path.exists(how_many)

    due = time.monotonic()
    end = None
    while end is None or (missing and time.monotonic() < end):
        now = time.monotonic()
        full = interval == 0 and len(missing) >= ahead
        if end is None and now >= due and (not full or now >= due + patience):
            sent += 1
            missing.add(sent & 0xFFFF)
            try:
                s.send(request(echo, ident, sent & 0xFFFF, size))
            except OSError as e:
                print(f"request {sent}: {e}")
            due = max(due + interval, now)
            if done():
                end = now + patience
        wait = (due + (patience if full else 0) if end is None else end) - time.monotonic()
        if select.select([s], [], [], max(wait, 0))[0]:
            try:
                packet = s.recv(65536)
            except OSError as e:
                print(f"after request {sent}: {e}")
                continue
            icmp = packet if v6 else packet[(packet[0] & 15) * 4 :]
            if icmp[0] == reply and struct.unpack("!H", icmp[4:6])[0] == ident:
                number = struct.unpack("!H", icmp[6:8])[0]
                twice += number not in missing
                out_of_order += (number - last) & 0xFFFF >= 0x8000
                last = number
                missing.discard(number)
    answered = f"no answer to {sorted(missing)}" if missing else "all answered"
    print(f"{sent} pings, {answered}, {twice} twice, {out_of_order} out of order")
    return 1 if missing else 0


sys.exit(main(*sys.argv[1:]))
