#!/usr/bin/env python3
"""A local user without rights who has very many sockets at one UDP port, each at another address of loopback: the kernel takes
long to list them. He gets no port of which the daemon has a socket for all addresses.

usage: ports_flood.py SOCKETS

Prints "bound" when it has them, and ends with its standard input."""
import socket
import sys

import nobody

count = int(sys.argv[1])
nobody.become(count + 64)
socks = []
for number in range(count):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((f"127.{1 + number // 62500}.{number // 250 % 250}.{1 + number % 250}", 4501))
    socks.append(sock)
print("bound", flush=True)
sys.stdin.read()
