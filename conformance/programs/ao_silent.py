#!/usr/bin/env python3
"""A daemon of TCP-AO that takes requests and does not answer, and a program that goes on meanwhile.

usage: ao_silent.py daemon FOLDER    serves launchers of this network namespace by FOLDER; "asked" has a byte for each request
                                     that is not answered before a file "answer" is there
       ao_silent.py program FOLDER   under `sealane run --tcp-ao`: children of it wait for the daemon, one after another, and the program
                                     does not"""
import hashlib
import os
import socket
import struct
import sys
import threading
import time

from ao_key import add_key

SO_NETNS_COOKIE = 71
# The question of the preloaded library whether segments are under way.
SETTLED_QUERY = 0x5EA2
VERSION, SERVES, DONE, HEAD_LEN = 1, 1, 1, 24
ROLE, FOLDER = sys.argv[1:]
ASKED, ANSWER = f"{FOLDER}/asked", f"{FOLDER}/answer"


def until(there):
    while not there():
        time.sleep(0.01)


def serve(stream):
    """The frames of crates/host/tcp-ao/src/remote/wire.rs."""
    while head := stream.recv(HEAD_LEN, socket.MSG_WAITALL):
        stream.recv(struct.unpack_from("<I", head, 20)[0], socket.MSG_WAITALL)
        if head[1] != SERVES:
            with open(ASKED, "ab") as asked:
                asked.write(b".")
            until(lambda: os.path.exists(ANSWER))
        stream.send(bytes([VERSION, DONE]).ljust(HEAD_LEN, b"\0"))


def daemon():
    os.makedirs(FOLDER, mode=0o700)
    probe = socket.socket(socket.AF_UNIX)
    cookie = struct.unpack("=Q", probe.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8))[0]
    probe.bind(f"{FOLDER}/tcp-ao-{cookie}.sock")
    probe.listen()
    open(ASKED, "wb").close()
    print("listening", flush=True)
    while True:
        threading.Thread(target=serve, args=(probe.accept()[0],), daemon=True).start()


def uses():
    """Calls that the launcher makes or looks at, but no daemon."""
    with socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET) as alg:
        alg.bind(("hash", "sha256"))
        with alg.accept()[0] as operation:
            operation.send(b"abc")
            assert operation.recv(32) == hashlib.sha256(b"abc").digest()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.bind(("127.0.0.1", 4500))


def fork(what):
    child = os.fork()
    if child == 0:
        what()
        os._exit(0)
    return child


def settles():
    socket.socket().getsockopt(socket.IPPROTO_TCP, SETTLED_QUERY)


def asks():
    add_key(socket.socket(), "127.0.0.2", 1, 1)


def program():
    # The first one finds a launcher with a single thread.
    for what in settles, asks:
        waiting = fork(what)
        until(lambda: os.path.getsize(ASKED) > 0)
        uses()
        assert os.waitpid(fork(uses), 0)[1] == 0
        # A launcher that waited itself would have given up, and asked again.
        waits = os.waitpid(waiting, os.WNOHANG) == (0, 0)
        print(what.__name__, os.path.getsize(ASKED), "times, waits:", waits, flush=True)
        open(ANSWER, "wb").close()
        assert os.waitpid(waiting, 0)[1] == 0
        os.unlink(ANSWER)
        os.truncate(ASKED, 0)


{"daemon": daemon, "program": program}[ROLE]()
