#!/usr/bin/env python3
"""Sends a marker by UDP to an address, 1,000 times a second, until its standard input ends; prints how many sends worked."""
import select
import socket
import sys

family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
s = socket.socket(family, socket.SOCK_DGRAM)
s.setblocking(False)
sent = refused = 0
while not select.select([sys.stdin], [], [], 0.001)[0]:
    try:
        s.sendto(b"never in clear " * 4, (sys.argv[1], 7))
        sent += 1
    except OSError:
        refused += 1
print(f"sent {sent} refused {refused}")
