#!/usr/bin/env python3
"""A server and three clients on loopback: one with the server's key, one whose MAC excludes TCP options, one without a key.
Then it runs the command in its arguments, with the sockets still open."""
import socket
import struct
import subprocess
import sys


def add_key(sock, peer, send_id, recv_id, flags=0):
    addr = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(peer)).ljust(128, b"\0")
    key = b"a secret of both"
    sock.setsockopt(socket.IPPROTO_TCP, 38, addr + struct.pack(
        "=64siIHBBBBBB80s", b"hmac(sha256)", 0, 0, 0, 32, send_id, recv_id, 16, flags, len(key), key))


def client(flags=None):
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    if flags is not None:
        add_key(sock, "127.0.0.2", 2, 1, flags)
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
