#!/usr/bin/env python3
"""Pings, and waits for late answers too: the ping of iputils takes the last one for lost after two round trips.

  pings.py SOURCE DESTINATION HOW-MANY INTERVAL SIZE PATIENCE

HOW-MANY is a number, or a file: until it is there. Answers may come until PATIENCE seconds after the last request. Exit status: 0 all
were answered, 1 not.
"""

import os
import select
import socket
import struct
import sys
import time

ECHO_REPLY, ECHO_REQUEST = 0, 8


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def request(ident, number, size):
    body = struct.pack("!HH", ident, number) + bytes(size + size % 2)
    return struct.pack("!BBH", ECHO_REQUEST, 0, checksum(bytes([ECHO_REQUEST, 0]) + body)) + body


def main(source, destination, how_many, interval, size, patience):
    interval, size, patience = float(interval), int(size), float(patience)
    s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    s.bind((source, 0))
    s.connect((destination, 0))
    ident, sent, missing = os.getpid() & 0xFFFF, 0, set()

    def done():
        return sent >= int(how_many) if how_many.isdigit() else sent > 0 and os.path.exists(how_many)

    due = time.monotonic()
    end = None
    while end is None or (missing and time.monotonic() < end):
        now = time.monotonic()
        if end is None and now >= due:
            sent += 1
            missing.add(sent & 0xFFFF)
            try:
                s.send(request(ident, sent & 0xFFFF, size))
            except OSError as e:
                print(f"request {sent}: {e}")
            due = max(due + interval, now)
            if done():
                end = now + patience
        wait = (due if end is None else end) - time.monotonic()
        if select.select([s], [], [], max(wait, 0))[0]:
            try:
                packet = s.recv(65536)
            except OSError as e:
                print(f"after request {sent}: {e}")
                continue
            icmp = packet[(packet[0] & 15) * 4 :]
            if icmp[0] == ECHO_REPLY and struct.unpack("!H", icmp[4:6])[0] == ident:
                missing.discard(struct.unpack("!H", icmp[6:8])[0])
    print(f"{sent} pings, " + (f"no answer to {sorted(missing)}" if missing else "all answered"))
    return 1 if missing else 0


sys.exit(main(*sys.argv[1:]))
