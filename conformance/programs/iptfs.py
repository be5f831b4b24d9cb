#!/usr/bin/env python3
"""Gives one end of a tunnel of IP-TFS its states and policies, which this iproute2 does not know yet. Those of before go.

usage: iptfs.py END OUTER OUTER INNER INNER [OPTION[=NUMBER]...]

END is 0 or 1, the place of its own addresses. ESP authenticates and does not encrypt (GMAC), so that a watch sees what is in it.
Options of what it sends: dont-frag, init-delay, max-queue-size, pkt-size; of what it receives: drop-time, reorder-window; of
both: encap (ESP in UDP), encrypt (AES-128-GCM), pcpu, esn."""
import socket
import struct
import sys

NEWSA, NEWPOLICY, FLUSHSA, FLUSHPOLICY = 16, 19, 28, 29
REQUEST = 1 | 4
ATTRIBUTES = {"drop-time": (36, "=I"), "reorder-window": (37, "=H"), "dont-frag": (38, ""), "init-delay": (39, "=I"),
              "max-queue-size": (40, "=I"), "pkt-size": (41, "=I")}
INBOUND = ("drop-time", "reorder-window")
IPTFS, ESP, IN, OUT, ESN = 5, 50, 1, 2, 128
FOREVER = b"\xff" * 32 + bytes(32)
SPIS = [0x7f01, 0x7f02]

sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)


def attr(kind, data):
    return struct.pack("=HH", len(data) + 4, kind) + data + bytes(-len(data) % 4)


def ask(kind, body, *attrs):
    payload = body + bytes(-len(body) % 4) + b"".join(attrs)
    sock.send(struct.pack("=IHHII", 16 + len(payload), kind, REQUEST, 1, 0) + payload)
    answer = sock.recv(65536)
    error = struct.unpack_from("=i", answer, 16)[0]
    # ESRCH: there was nothing to flush.
    if error not in (0, -3):
        sys.exit(f"request {kind}: error {-error}: {answer!r}")


def family(text):
    return socket.AF_INET6 if ":" in text else socket.AF_INET


def address(text):
    return socket.inet_pton(family(text), text).ljust(16, b"\0")


def selector(src, dst):
    bits = 128 if ":" in src else 32
    return address(dst) + address(src) + struct.pack("=HHHHHBBB3xiI", 0, 0, 0, 0, family(src), bits, bits, 0, 0, 0)


def add(end, outer, inner, options):
    ask(FLUSHSA, b"\0")
    ask(FLUSHPOLICY, b"")
    for sender in (0, 1):
        src, dst = outer[sender], outer[1 - sender]
        direction = OUT if sender == end else IN
        window = 64 if direction == IN and "esn" not in options else 0
        info = (bytes(56) + address(dst) + struct.pack("!IB3x", SPIS[sender], ESP) + address(src) + FOREVER + bytes(32 + 12)
                + struct.pack("=IIHBBB7x", 0, 1, family(src), IPTFS, window, ESN if "esn" in options else 0))
        aead = b"rfc4106(gcm(aes))" if "encrypt" in options else b"rfc4543(gcm(aes))"
        attrs = [attr(18, struct.pack("=64sII", aead, 160, 128) + bytes(range(20))), attr(33, bytes([direction]))]
        for name, number in options.items():
            if name in ATTRIBUTES and (name in INBOUND) == (direction == IN):
                kind, form = ATTRIBUTES[name]
                attrs.append(attr(kind, struct.pack(form, number) if form else b""))
        if "encap" in options:
            attrs.append(attr(4, struct.pack("=H", 2) + struct.pack("!HH2x", 4500, 4500) + bytes(16)))
        if "esn" in options:
            words = 0 if direction == OUT else 4
            attrs.append(attr(23, struct.pack("=6I", words, 0, 0, 0, 0, 32 * words) + bytes(4 * words)))
        ask(NEWSA, info, *attrs)
        template = (address(dst) + struct.pack("!IB3x", 0, ESP) + struct.pack("=H2x", family(src)) + address(src)
                    + struct.pack("=IBBBxIII", 1, IPTFS, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff))
        policy = selector(inner[sender], inner[1 - sender]) + FOREVER + bytes(32)
        policy += struct.pack("=IIBBBB4x", 0, 0, 1 if direction == OUT else 0, 0, 0, 0)
        ask(NEWPOLICY, policy, attr(5, template))


words = [word.partition("=") for word in sys.argv[6:]]
add(int(sys.argv[1]), sys.argv[2:4], sys.argv[4:6], {name: int(number or 1) for name, _, number in words})
