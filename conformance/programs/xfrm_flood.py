#!/usr/bin/env python3
"""A local user without rights who asks the daemon of IPsec all the time, by many sockets, and reads no answer.

usage: xfrm_flood.py SOCKETS

Sends requests of NETLINK_XFRM and Sealane's own questions to the daemon's port of NETLINK_USERSOCK as user 65534, prints "floods" when
all sockets have sent, and ends with its standard input: then it prints how many it has sent."""
import itertools
import select
import socket
import struct
import sys

import nobody

NETLINK_USERSOCK, XFRM_PORT = 2, 0x58460001
# A dump of the states, XFRM_MSG_GETSADINFO, NLMSG_NOOP with an acknowledgement, the questions for status and counters.
REQUESTS = [struct.pack("=IHHII", 16, kind, flags, 1, 0) for kind, flags in ((0x12, 0x301), (0x1D, 1), (1, 5), (0xFF01, 1), (0xFF00, 1))]


def main(count):
    nobody.become(count + 64)
    socks = []
    for _ in range(count):
        sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_USERSOCK)
        sock.setblocking(False)
        sock.connect((XFRM_PORT, 0))
        socks.append(sock)
    sent = 0
    for round in itertools.count():
        for sock in socks:
            for request in REQUESTS:
                try:
                    sock.send(request)
                    sent += 1
                except BlockingIOError:
                    pass
        if round == 0:
            print("floods", flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            print(f"sent {sent}")
            return


main(int(sys.argv[1]))
