#!/usr/bin/env python3
"""Which policy is for a forwarded packet, by its upper protocol: GRE by key, ICMP by type and code, mobility messages, AH of
others, whatever it protects.

usage: upper_protocols.py CLIENT GATEWAY REMOTE      see three_spaces.py

A gateway has policies that protect, and better ones that block, by these. A client sends one packet of each kind. Prints what the
gateway makes of it: "sealed", "in clear", or "nothing".
"""
import socket, struct, sys
from three_spaces import FAMILY, Net, address, key_manager, policy, state

PROTECTED, BLOCKED = 0x00010005, 0x00010006
UDP, GRE, AH, MOBILITY = 17, 47, 51, 135
ICMP, ICMPV6 = socket.IPPROTO_ICMP, socket.IPPROTO_ICMPV6
MARKER = b"never in clear"
LONG = 500
PATIENCE_S = 30


def gre(key, flags=0x2000, protocol=0x0800, more=b""):
    checksum = b"\1\2\3\4" if flags & 0x8000 else b""
    return struct.pack("!HH", flags, protocol) + checksum + (struct.pack("!I", key) if flags & 0x2000 else b"") + more


def pptp(call, flags=0x2001, protocol=0x880B):
    """A header of version 1 (RFC 2637): the payload's length and the call."""
    return struct.pack("!HHHH", flags, protocol, len(MARKER), call)


def ah(next_header, content):
    """A header whose check nobody makes: its length, SPI, number and ICV."""
    return struct.pack("!BBHII", next_header, 4, 0, 0x4242, 1) + bytes(12) + content


def udp():
    return struct.pack("!HHHH", 9, 9, 8 + len(MARKER), 0)


# Headers and packets by name; a packet is a protocol and its content.
GRES = {
    "GRE, protected key": gre(PROTECTED),
    "GRE, blocked key": gre(BLOCKED),
    "GRE, another key": gre(7),
    "GRE, protected key behind a checksum": gre(PROTECTED, 0xA000),
    "GRE, blocked key behind a checksum": gre(BLOCKED, 0xA000),
    "GRE, protected key before a number": gre(PROTECTED, 0x3000, more=b"\0\0\0\1"),
    "GRE, protected key, all": gre(PROTECTED, 0xB000, more=b"\0\0\0\1"),
    "GRE, protected key, another payload": gre(PROTECTED, 0x2000, 0x86DD),
    "GRE, protected key, reserved bits": gre(PROTECTED, 0x2008),
    "GRE, protected key and routes": gre(PROTECTED, 0x6000),
    "GRE, protected key, version 2": gre(PROTECTED, 0x2002),
    "GRE without a key, that number as payload": gre(PROTECTED, 0, more=struct.pack("!I", PROTECTED)),
    "GRE, key 0": gre(0),
    "PPTP, a protected call": pptp(9),
    "PPTP, a blocked call": pptp(10),
    "PPTP, another call": pptp(5),
    "PPTP, a protected call, another payload": pptp(9, protocol=0x0800),
    "GRE, the key of a protected call": gre(9),
    "GRE, the key of a blocked call": gre(10),
}
PACKETS = {name: (GRE, content) for name, content in GRES.items()} | {
    "UDP, which is blocked": (UDP, udp()),
    "AH of UDP": (AH, ah(UDP, udp())),
    "AH of GRE, protected key": (AH, ah(GRE, gre(PROTECTED))),
}
# Those of one family.
OTHERS = {
    4: {
        "ICMP, a protected type": (ICMP, bytes([8, 0]) + bytes(6)),
        "ICMP, a blocked code": (ICMP, bytes([3, 5]) + bytes(6)),
        "ICMP, another code": (ICMP, bytes([3, 4]) + bytes(6)),
    },
    6: {
        "ICMPv6, a protected type": (ICMPV6, bytes([128, 0]) + bytes(6)),
        "ICMPv6, another type": (ICMPV6, bytes([130, 0]) + bytes(6)),
        "mobility, a protected message": (MOBILITY, bytes([59, 0, 5, 0, 0, 0, 0, 0])),
        "mobility, another message": (MOBILITY, bytes([59, 0, 6, 0, 0, 0, 0, 0])),
    },
}


def policies(version):
    any_ = "src 0.0.0.0/0 dst 0.0.0.0/0" if version == 4 else "src ::/0 dst ::/0"
    protect = [f"proto gre key {PROTECTED}", "proto gre key 9"]
    protect += ["proto icmp type 8"] if version == 4 else ["proto ipv6-icmp type 128", "proto 135 type 5"]
    block = [f"proto gre key {BLOCKED}", "proto gre key 10", "proto udp"]
    block += ["proto icmp type 3 code 5"] if version == 4 else []
    script = state(version, 0)
    for what in protect:
        script += policy(version, 0, "out", f"{any_} {what}")
    for what in block:
        script += f"ip xfrm policy add {any_} {what} dir out action block priority 1\n"
    return script


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    with key_manager(net) as run:
        for version in (4, 6):
            run("g", policies(version))
            # Whatever the rules are, an administrator can list them.
            net.inside("g", "nft", "list", "ruleset")
            wire = net.watch("g", "wire")
            wire.settimeout(PATIENCE_S)
            to = (address(version, "remote.1"), 0)
            after = net.socket("c", FAMILY[version], socket.SOCK_RAW, GRE)
            for name, (protocol, content) in (PACKETS | OTHERS[version]).items():
                net.socket("c", FAMILY[version], socket.SOCK_RAW, protocol).sendto(content + MARKER, to)
                # What comes after it on the same way, and is sealed.
                after.sendto(gre(PROTECTED) + bytes(LONG), to)
                found = "nothing"
                while True:
                    frame, about = wire.recvfrom(65536)
                    if about[2] != socket.PACKET_OUTGOING or frame[23 if version == 4 else 20] not in (socket.IPPROTO_ESP, protocol):
                        continue
                    if len(frame) > LONG:
                        break
                    found = "in clear" if MARKER in frame else "sealed"
                print(f"IPv{version}, {name}: {found}", flush=True)


main()
