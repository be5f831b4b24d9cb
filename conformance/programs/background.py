#!/usr/bin/env python3
"""Goes to the background as a daemon does, and then uses sockets of each kind.

    background.py FILE      The first process ends with status 5, and its number of the launcher is in FILE.launcher. When FILE.go
                            is there, the second writes a line for each kind of socket to FILE; when FILE.end is there, it ends.
"""
import os
import socket
import struct
import sys
import time

file = sys.argv[1]


def write(name, text):
    with open(name + ".new", "w") as out:
        out.write(text)
    os.rename(name + ".new", name)


def wait(name):
    while not os.path.exists(name):
        time.sleep(0.01)


if os.fork():
    write(file + ".launcher", str(os.getppid()))
    os._exit(5)
os.setsid()
null = os.open("/dev/null", os.O_RDWR)
for standard in range(3):
    os.dup2(null, standard)


def xfrm():
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6) as s:
        s.settimeout(30)
        s.send(struct.pack("=IHHIII", 20, 0x23, 1, 1, 0, 0))
        s.recv(4096)


def alg():
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as s:
        s.bind(("hash", "sha256"))
        operation, _ = s.accept()
        operation.send(b"abc")
        operation.recv(32)


def bound(family, address, kind=socket.SOCK_DGRAM):
    with socket.socket(family, kind) as s:
        s.bind(address)


wait(file + ".go")
lines = ""
for name, use in [
    ("TCP", lambda: bound(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_STREAM)),
    ("UDP", lambda: bound(socket.AF_INET, ("127.0.0.1", 0))),
    ("UNIX", lambda: bound(socket.AF_UNIX, file + ".socket")),
    ("rtnetlink", lambda: bound(socket.AF_NETLINK, (0, 0), socket.SOCK_RAW)),
    ("XFRM", xfrm),
    ("AF_ALG", alg),
]:
    try:
        use()
        lines += f"{name}: used\n"
    except OSError as e:
        lines += f"{name}: {e.strerror}\n"
write(file, lines)
wait(file + ".end")
