#!/usr/bin/env python3
"""Which opened packets policies with a mark let in, to a gateway itself and to a client behind it.

usage: inbound_marks.py CLIENT GATEWAY REMOTE      see three_spaces.py

A remote host sends a packet from an address for which the gateway's policies ask for a mark, and one from an address for which
they do not, on the same way. Prints for each receiver whether the first one arrives. The mark is that of the sealed packet, or
the state gives it.
"""
import socket, sys
from three_spaces import FAMILY, SEALANE, Net, address, key_manager, outer, prefix

MARK, PORT, NAT_T = 42, 7001, 4500
UDP_ENCAP, UDP_ENCAP_ESPINUDP = 100, 2
PATIENCE_S = 30

# The cases: what they are called, what rules mark sealed packets with, and more of the state and of the policies.
BY_MARK = f"mark {MARK} mask 0xff"
GIVES = f"output-mark {MARK} mask 0xff"
CASES = [
    ("nobody marks it", None, "", BY_MARK),
    ("rules mark it", MARK, "", BY_MARK),
    ("rules mark it, with other bits", 0x700 + MARK, "", BY_MARK),
    ("rules mark it otherwise", MARK + 1, "", BY_MARK),
    ("the state marks it", None, GIVES, BY_MARK),
    ("the state marks it, and rules otherwise", MARK + 1, GIVES, BY_MARK),
    ("the state marks it otherwise, and rules", MARK, f"output-mark {MARK + 1} mask 0xff", BY_MARK),
    ("other bits of the state, and rules", MARK, "output-mark 0x700 mask 0xff00", BY_MARK),
    ("a state with a mark, nobody marks it", None, BY_MARK, ""),
    ("a state with a mark, rules mark it", MARK, BY_MARK, ""),
]


def kinds(version):
    """The kinds of states: what they are called, what they say of it, and what rules know sealed packets by."""
    in_udp = f"encap espinudp {NAT_T} {NAT_T} {address(version, 'any.9')}"
    return [("ESP", "", "meta l4proto esp"), ("UDP", in_udp, f"udp dport {NAT_T}")]


def state(version, reqid, encap, more=""):
    """The command for the state of packets to the gateway with a request id."""
    spi = 0x1000 * version + reqid
    return (
        f"ip xfrm state add {outer(version, 1)} proto esp spi {spi} reqid {reqid} mode tunnel replay-window 128 {more} {encap} "
        f"aead 'rfc4106(gcm(aes))' 0x{spi:08x}02030405060708090a0b0c0d0e0f1011 128\n"
    )


def policy(version, reqid, direction, net, more=""):
    """The command for a policy from an address of a remote net to those behind the gateway."""
    selector = f"src {address(version, f'{net}.1')} dst {prefix(version, 'lan')} {more}"
    return f"ip xfrm policy add {selector} dir {direction} tmpl {outer(version, 1)} proto esp reqid {reqid} mode tunnel\n"


def received(s):
    """Whether a packet comes before the one behind it."""
    found = False
    while (text := s.recv(100)) != b"after":
        found |= text == b"packet"
    return "arrives" if found else "does not arrive"


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    encaps = []
    if not SEALANE:
        for place in "gr":
            for version in (4, 6):
                encaps.append(net.socket(place, FAMILY[version], socket.SOCK_DGRAM))
                encaps[-1].setsockopt(socket.IPPROTO_UDP, UDP_ENCAP, UDP_ENCAP_ESPINUDP)
                encaps[-1].bind((address(version, "wire.1" if place == "g" else "wire.2"), NAT_T))
    with key_manager(net) as run:
        for version in (4, 6):
            senders = {}
            for which in ("remote", "world"):
                senders[which] = net.socket("r", FAMILY[version], socket.SOCK_DGRAM)
                senders[which].bind((address(version, f"{which}.1"), 0))
            receivers = {"own": ("g", "lan.1"), "forwarded": ("c", "lan.2")}
            for who, (place, host) in receivers.items():
                s = net.socket(place, FAMILY[version], socket.SOCK_DGRAM)
                s.bind((address(version, host), PORT))
                s.settimeout(PATIENCE_S)
                receivers[who] = (s, host)
            for kind, encap, sealed in kinds(version):
                for what, mark, of_state, of_policy in CASES:
                    rules = "add table inet marks; delete table inet marks; add table inet marks; "
                    rules += "add chain inet marks p { type filter hook prerouting priority -150; }; "
                    rules += f"add rule inet marks p {sealed} meta mark set {mark};" if mark else ""
                    net.inside("g", "nft", rules)
                    here = state(version, 1, encap, of_state) + state(version, 2, encap)
                    there = state(version, 1, encap) + state(version, 2, encap)
                    for direction in ("in", "fwd"):
                        here += policy(version, 1, direction, "remote", of_policy) + policy(version, 2, direction, "world")
                    there += policy(version, 1, "out", "remote") + policy(version, 2, "out", "world")
                    for place, script in [("g", here), ("r", there)]:
                        run(place, "ip xfrm policy flush; ip xfrm state flush\n" + script)
                    for who, (s, host) in receivers.items():
                        to = (address(version, host), PORT)
                        senders["remote"].sendto(b"packet", to)
                        senders["world"].sendto(b"after", to)
                        print(f"IPv{version}, {kind}, {what}, {who}: {received(s)}", flush=True)


main()
