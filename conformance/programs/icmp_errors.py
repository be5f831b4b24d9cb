#!/usr/bin/env python3
"""ICMP errors about packets of a tunnel, from routers that its policies do not select, with and without `flag icmp`.

usage: icmp_errors.py CLIENT GATEWAY REMOTE      see three_spaces.py

A tunnel protects what goes between a net that the client routes and one that the remote gateway routes. Datagrams of few hops die
at the gateway, at the client and at the remote gateway. Prints for each how the error passes the wire ("sealed", "in clear"),
what the datagram's sender hears, and which counters of the gateways have changed.
"""
import errno, socket, sys
from three_spaces import FAMILY, Net, address, key_manager, policies, prefix, state

MARKER = b"never in clear"
PORT = 7001
PATIENCE_S = 30
IP_RECVERR, IPV6_RECVERR, IPV6_UNICAST_HOPS = 11, 25, 16

# Where the datagram dies, its sender and the hops that it may take, its addresses, and the gateway that sends the error.
CASES = [
    ("at the gateway", "r", 1, "remote.1", "virtual.5", "g"),
    ("behind the gateway", "r", 2, "remote.1", "virtual.5", "g"),
    ("at the remote gateway", "c", 2, "virtual.1", "remote.9", "r"),
]

# What policies and states have.
FLAGS = [
    ("no flag", "", ""),
    ("both flags", "flag icmp", "icmp"),
    ("that of policies", "flag icmp", ""),
    ("that of states", "", "icmp"),
]


def script(version, end, policy_flag, state_flag):
    """The commands for the tunnel, at an end: 0 the gateway, 1 the remote one."""
    nets = [prefix(version, "virtual"), prefix(version, "remote")]
    text = ""
    for way in (0, 1):
        # A state for output may not have the flag.
        flags = f"esn {state_flag}" if way != end else "esn"
        selector = f"sel src {nets[way]} dst {nets[1 - way]}"
        text += state(version, way).replace("flag esn", f"{selector} flag {flags}")
        text += policies(version, way, end, *nets, f" {policy_flag}")
    return text


def datagrams(net, place, version, host, port=0):
    s = net.socket(place, FAMILY[version], socket.SOCK_DGRAM)
    s.settimeout(PATIENCE_S)
    s.bind((address(version, host), port))
    return s


def counters(run):
    return [dict(line.split() for line in run(place, "cat /proc/net/xfrm_stat").splitlines()) for place in "gr"]


def passes(version, wire):
    """How the next error passes the wire."""
    while True:
        frame, about = wire.recvfrom(65536)
        if about[2] == socket.PACKET_OUTGOING:
            if frame[23 if version == 4 else 20] == socket.IPPROTO_ESP:
                return "sealed"
            if MARKER in frame:
                return "in clear"


def error_about(net, run, version, case):
    _, sender, hops, source, destination, router = case
    before = counters(run)
    wire = net.watch(router, "wire")
    wire.settimeout(PATIENCE_S)
    s = datagrams(net, sender, version, source)
    if version == 4:
        s.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, hops)
        s.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
    else:
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_UNICAST_HOPS, hops)
        s.setsockopt(socket.IPPROTO_IPV6, IPV6_RECVERR, 1)
    s.sendto(MARKER, (address(version, destination), PORT))
    how = passes(version, wire)
    # What comes after it on the same way.
    ends = [("c", "virtual.1"), ("r", "remote.1")]
    (near, near_host), (far, far_host) = ends if router == "g" else reversed(ends)
    last = datagrams(net, far, version, far_host, PORT)
    datagrams(net, near, version, near_host).sendto(b"after it", last.getsockname())
    last.recv(100)
    error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    changed = [
        f"{counter} of {place}"
        for place, was, now in zip("gr", before, counters(run))
        for counter in now
        if now[counter] != was[counter]
    ]
    heard = errno.errorcode[error] if error else "nothing"
    return f"{how}, its sender hears {heard}, counters {' '.join(changed) or 'none'}"


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    for version in (4, 6):
        net.ip("c", "addr", "add", f"{address(version, 'virtual.1')}/{32 if version == 4 else 128}", "dev", "lo")
        net.ip("g", f"-{version}", "route", "add", prefix(version, "virtual"), "via", address(version, "lan.2"))
    with key_manager(net) as run:
        for version in (4, 6):
            for flags, policy_flag, state_flag in FLAGS:
                for end, place in enumerate("gr"):
                    run(place, script(version, end, policy_flag, state_flag))
                for case in CASES:
                    print(f"IPv{version}, {flags}, {case[0]}: {error_about(net, run, version, case)}", flush=True)
                for place in "gr":
                    run(place, "ip xfrm policy flush; ip xfrm state flush")


main()
