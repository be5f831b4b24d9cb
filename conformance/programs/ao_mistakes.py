#!/usr/bin/env python3
"""Makes common mistakes one after another, on loopback. After each it prints `== MISTAKE` and runs the command in its arguments."""
import socket
import struct
import subprocess
import sys
import time
from ao_key import add_key

SERVER = ("127.0.0.2", 1790)


def client(address, **key):
    sock = socket.socket()
    sock.bind((address, 0))
    if key:
        add_key(sock, SERVER[0], **key)
    sock.settimeout(0.3)
    try:
        sock.connect(SERVER)
    except TimeoutError:
        return None
    return sock


def tell(mistake):
    print(f"== {mistake}", flush=True)
    subprocess.run(sys.argv[1:])


listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.bind(SERVER)
add_key(listener, "127.0.0.1", 1, 2)
listener.listen()
good = {"send_id": 2, "recv_id": 1}
for mistake, key in {
    "no key": {},
    "wrong key": good | {"secret": b"another secret"},
    "options left out": good | {"flags": 2},
    "unknown KeyID": {"send_id": 9, "recv_id": 1},
    "MAC length": good | {"mac_len": 12},
    "algorithm": good | {"alg": b"hmac(sha1)"},
    "new line": good | {"secret": b"a secret of both\n"},
}.items():
    assert client("127.0.0.1", **key) is None, mistake
    tell(mistake)
# An end with another sequence number extension, as after a restore from a wrong image.
sock = client("127.0.0.1", **good)
peer, _ = listener.accept()
sock.sendall(b"question")
assert peer.recv(100) == b"question"
sock.setsockopt(socket.IPPROTO_TCP, 19, 1)
repair = list(struct.unpack("=IIII", sock.getsockopt(socket.IPPROTO_TCP, 42, 16)))
sock.setsockopt(socket.IPPROTO_TCP, 42, struct.pack("=IIII", repair[0], repair[1], 1, repair[3]))
sock.setsockopt(socket.IPPROTO_TCP, 19, -1)
sock.sendall(b"question")
time.sleep(0.3)
tell("SNE")
