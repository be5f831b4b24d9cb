#!/usr/bin/env python3
"""Sends requests on a socket of NETLINK_XFRM, as a key manager does, and waits for each answer without limit, until sending or
the answer fails; then it prints the error."""
import errno
import socket
import struct

GETSADINFO, ERROR = 0x23, 2

s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
asked = 0
try:
    while True:
        s.send(struct.pack("=IHHIII", 20, GETSADINFO, 1, asked, 0, 0))
        answer = s.recv(65536)
        if struct.unpack_from("=H", answer, 4)[0] == ERROR:
            raise OSError(-struct.unpack_from("=i", answer, 16)[0], "answered")
        asked += 1
        if asked == 100:
            print("busy", flush=True)
except OSError as e:
    print(errno.errorcode.get(e.errno, e.errno), flush=True)
