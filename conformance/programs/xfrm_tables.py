#!/usr/bin/env python3
"""Carries the tables of IPsec from one engine to another one: defaults, policies and states, without packets' counts.

    xfrm_tables.py tell    prints a message of NETLINK_XFRM that adds each of them, in hexadecimal
    xfrm_tables.py add     adds what is on its standard input to tables that are empty
"""
import os
import socket
import struct
import sys

ERROR, DONE = 2, 3
NEWSA, GETSA, NEWPOLICY, GETPOLICY, SETDEFAULT, GETDEFAULT = 0x10, 0x12, 0x13, 0x15, 0x27, 0x28
REQUEST, ACK, DUMP, CREATE_EXCL = 1, 4, 0x300, 0x600
SA_LEN, POLICY_LEN, POLICY_INDEX = 224, 168, 156
OFFLOAD_DEV, OFFLOAD_INBOUND = 28, 2
# Attributes with an algorithm: a state without one is waiting for its key manager.
ALGORITHMS = {1, 2, 3, 18, 20}

SOL_NETLINK, CAP_ACK, EXT_ACK = 270, 10, 11

s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
s.setsockopt(SOL_NETLINK, CAP_ACK, 1)
s.setsockopt(SOL_NETLINK, EXT_ACK, 1)


def messages(kind, flags, body):
    """The messages of an answer: their types and payloads."""
    s.send(struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, 1, 0) + body)
    while True:
        frame, at = s.recv(1 << 20), 0
        while at < len(frame):
            n, answer = struct.unpack_from("=IH", frame, at)
            payload, at = frame[at + 16 : at + n], at + (n + 3 & ~3)
            if answer == ERROR and (failed := -struct.unpack_from("=i", payload)[0]):
                # The text stands behind the request's header.
                sys.exit(f"{kind:02x} {body.hex()}: {os.strerror(failed)} {payload[20:]}")
            if answer in (ERROR, DONE):
                return
            yield answer, payload
        if not flags & (DUMP | ACK):
            return


def attributes(payload, at):
    """The kinds of a message's attributes, and where their contents are."""
    places = {}
    while at < len(payload):
        n, kind = struct.unpack_from("=HH", payload, at)
        places[kind] = at + 4
        at += n + 3 & ~3
    return places


def show(kind, payload, at=0):
    """Prints a message, and the name of its device, whose index is another one elsewhere."""
    device = attributes(payload, at).get(OFFLOAD_DEV) if at else None
    name = socket.if_indextoname(struct.unpack_from("=i", payload, device)[0]) if device else ""
    print(f"{kind:02x} {payload.hex()}", device or 0, name)


def tell():
    for _, payload in messages(GETDEFAULT, 0, bytes(4)):
        show(SETDEFAULT, payload)
    # In the order in which they were added: indices are given one after another.
    for _, payload in sorted(messages(GETPOLICY, DUMP, b""), key=lambda found: struct.unpack_from("=I", found[1], POLICY_INDEX)):
        show(NEWPOLICY, payload[:POLICY_INDEX] + bytes(4) + payload[POLICY_INDEX + 4 :], POLICY_LEN)
    # The latest is told first.
    for _, payload in reversed(list(messages(GETSA, DUMP, b""))):
        if ALGORITHMS.intersection(attributes(payload, SA_LEN)):
            show(NEWSA, payload, SA_LEN)


def add():
    for line in sys.stdin:
        kind, payload, device, *name = line.split()
        body = bytearray.fromhex(payload)
        if name:
            struct.pack_into("=i", body, int(device), socket.if_nametoindex(name[0]))
            if int(kind, 16) == NEWPOLICY:
                # It is told of a policy, which has its own direction, and refused with one.
                body[int(device) + 4] &= ~OFFLOAD_INBOUND
        for _ in messages(int(kind, 16), ACK | CREATE_EXCL, body):
            pass


{"tell": tell, "add": add}[sys.argv[1]]()
