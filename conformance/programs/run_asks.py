#!/usr/bin/env python3
"""Asks on a socket of NETLINK_XFRM that it has from the beginning, and on a new one each time, until an answer fails; then it
prints the error. An answer that does not come within three seconds is asked for once more. A line for every ten rounds."""
import errno
import socket
import struct

GETSADINFO, ERROR = 0x23, 2


def new():
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
    s.settimeout(3)
    return s


def ask(s, number):
    for last in (False, True):
        s.send(struct.pack("=IHHIII", 20, GETSADINFO, 1, number, 0, 0))
        try:
            answer = s.recv(65536)
            break
        except TimeoutError:
            if last:
                raise
            print("asked again", flush=True)
    if struct.unpack_from("=H", answer, 4)[0] == ERROR:
        raise OSError(-struct.unpack_from("=i", answer, 16)[0], "answered")


first, rounds = new(), 0
try:
    while True:
        ask(first, rounds)
        with new() as other:
            ask(other, rounds)
        rounds += 1
        if rounds % 10 == 0:
            print("round", flush=True)
except OSError as e:
    # In one piece: who reads it may look in between.
    print(f"failed: {errno.errorcode.get(e.errno, e)}", flush=True)
