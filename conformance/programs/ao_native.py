#!/usr/bin/env python3
"""A session by the kernel's own TCP-AO beside a program that Sealane serves in the same network namespace.

usage: ao_native.py SEALANE      (in a kernel with TCP-AO)

Prints what goes on. Exit status: 0 all does, 1 not."""
import socket
import subprocess
import sys
from ao_key import add_key


def served():
    """The program that Sealane serves, with a key for another peer."""
    sock = socket.socket()
    add_key(sock, "127.0.0.9", 1, 2)
    sock.bind(("127.0.0.3", 1791))
    sock.listen()
    print("serves", flush=True)
    sys.stdin.read()


def client():
    sock = socket.socket()
    sock.settimeout(5)
    sock.bind(("127.0.0.1", 0))
    add_key(sock, "127.0.0.2", 2, 1)
    sock.connect(("127.0.0.2", 1790))
    return sock


def talk(what, one, other):
    other.settimeout(5)
    one.sendall(b"question")
    assert other.recv(100) == b"question"
    other.sendall(b"answer")
    assert one.recv(100) == b"answer"
    print(what, flush=True)


def main(sealane):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    listener = socket.socket()
    add_key(listener, "127.0.0.1", 1, 2)
    listener.bind(("127.0.0.2", 1790))
    listener.listen()
    one = client()
    other = listener.accept()[0]
    talk("before", one, other)
    argv = [sealane, "run", "--tcp-ao", "--", sys.executable, __file__, "served"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beside:
        assert beside.stdout.readline() == "serves\n"
        talk("beside", one, other)
        talk("anew", client(), listener.accept()[0])
        beside.stdin.close()
    talk("after", one, other)


served() if sys.argv[1] == "served" else main(sys.argv[1])
