#!/usr/bin/env python3
"""Two sockets of one process with TCP-AO: what has happened when connect() and close() return, while both CPUs are busy.

usage: ao_at_once.py COUNT

Prints, of COUNT connections, how many connect() calls that do not wait had made one that could be accepted at once, and how many
ends knew of the peer's reset at once."""
import errno
import multiprocessing
import os
import socket
import struct
import sys

from ao_key import add_key

HOST = "127.0.0.1"


def spin():
    while True:
        pass


def connection(port):
    listener = socket.socket()
    add_key(listener, HOST, 1, 1)
    listener.bind((HOST, port))
    listener.listen(1)
    listener.setblocking(False)
    client = socket.socket()
    add_key(client, HOST, 1, 1)
    client.setblocking(False)
    if client.connect_ex((HOST, port)) not in (0, errno.EINPROGRESS):
        raise SystemExit("connect() fails")
    try:
        accepted = listener.accept()[0]
    except BlockingIOError:
        return False, False
    accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    accepted.close()
    return True, client.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNRESET


count = int(sys.argv[1])
busy = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count())]
for process in busy:
    process.start()
done = [connection(7001 + n) for n in range(count)]
for process in busy:
    process.kill()
    process.join()
print(f"connected {sum(c for c, _ in done)}, reset {sum(r for _, r in done)}")
