#!/usr/bin/env python3
"""A server and three clients on loopback: one with the server's key, one whose MAC excludes TCP options, one without a key.
Then it runs the command in its arguments, with the sockets still open."""
import socket
import subprocess
import sys
from ao_key import add_key


def client(flags=None):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    if flags is not None:
        add_key(sock, "127.0.0.2", 2, 1, flags=flags)
    sock.settimeout(0.5)
    try:
        sock.connect(("127.0.0.2", 1790))
    except TimeoutError:
        return None
    return sock


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
add_key(listener, "127.0.0.1", 1, 2)
listener.bind(("127.0.0.2", 1790))
listener.listen()
good = client(0)
peer, _ = listener.accept()
for _ in range(3):
    good.sendall(b"question")
    peer.recv(100)
    peer.sendall(b"answer")
    good.recv(100)
assert client() is None and client(2) is None
sys.exit(subprocess.run(sys.argv[1:]).returncode)
