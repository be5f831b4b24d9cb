#!/usr/bin/env python3
"""Takes the usual port of IPsec's requests, of both protocols, as soon as it is free, as user 65534, and keeps it."""
import errno
import socket
import time

from nobody import become

PORT = 0x58460001
USERSOCK, GENERIC = 2, 16


def take(protocol):
    """Returns a socket that has the port."""
    taker = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    while True:
        try:
            taker.bind((PORT, 0))
            return taker
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        time.sleep(0.001)


become(64)
print("waits", flush=True)
taken = [take(USERSOCK), take(GENERIC)]
print("has it", flush=True)
while True:
    time.sleep(60)
