#!/usr/bin/env python3
"""Bridges beside IPsec policies: what a bridge brings to a gateway that has them, and what is bridged past it.

usage: bridges.py CLIENT GATEWAY REMOTE      see three_spaces.py

First the gateway's device to the client is a port of a bridge, and policies protect the client's flows to the net behind the
remote gateway. Then the wire is a port of that bridge, too, so that client and remote host are neighbours, and policies protect the
same flows, or block them. All are tried with br_netfilter, which shows bridged packets to the rules of IP, and without.

Prints how many datagrams come back, and what leaves by the wire.
"""
import contextlib, select, socket, sys, threading
from three_spaces import FAMILY, Net, address, key_manager, left, policies, prefix, state

PORT = 7000
COUNT = 2
TEXT, LAST = b"never in clear", b"the last one"
PATIENCE_S = 30


def serve(sockets):
    """Sends back what comes, that of the first sockets first."""
    while True:
        select.select(sockets, [], [])
        for s in sockets:
            with contextlib.suppress(BlockingIOError):
                while True:
                    data, peer = s.recvfrom(2048)
                    s.sendto(data, peer)


def server(net, version, hosts):
    sockets = []
    for host in hosts:
        s = net.socket("r", FAMILY[version], socket.SOCK_DGRAM)
        s.setblocking(False)
        s.bind((address(version, host), PORT))
        sockets.append(s)
    threading.Thread(target=serve, args=[sockets], daemon=True).start()


def probe(net, version, wire, last):
    """Sends datagrams to the net that policies are about, and one to an address of that kind after them, if there is one."""
    with net.socket("c", FAMILY[version], socket.SOCK_DGRAM) as s:
        s.settimeout(PATIENCE_S)
        s.bind((address(version, "lan.2"), 0))
        left(wire, TEXT)
        for _ in range(COUNT):
            s.sendto(TEXT, (address(version, "remote.1"), PORT))
        if last:
            s.sendto(LAST, (address(version, last), PORT))
        count = 0
        while (last or count < COUNT) and s.recv(100) != LAST:
            count += 1
        return f"{count} come back, leaves {left(wire, TEXT)}"


def protection(end, action):
    script = "ip xfrm policy flush; ip xfrm state flush\n"
    for version, way in [(version, way) for version in (4, 6) for way in (0, 1)]:
        of = policies(version, way, end, prefix(version, "lan"), prefix(version, "remote"))
        script += state(version, way)
        for line in of.splitlines():
            script += (line if action == "protect" else f"{line.split(' tmpl')[0]} action block") + "\n"
    return script


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    wire = net.watch("g", "wire")
    net.ip("g", "link", "add", "bridge", "type", "bridge", "mcast_snooping", "0")
    net.ip("g", "link", "set", "lan", "master", "bridge")
    net.ip("g", "link", "set", "bridge", "up")
    for version in (4, 6):
        net.ip("g", "addr", "del", prefix(version, "lan", 1), "dev", "lan")
        net.ip("g", "addr", "add", prefix(version, "lan", 1), "dev", "bridge")
        net.ip("r", "addr", "add", prefix(version, "lan", 3), "dev", "wire")
        server(net, version, ["remote.1", "lan.3"])

    def turns(title, last):
        for on in (0, 1):
            net.inside("g", "sysctl", "-qw", *[f"net.bridge.bridge-nf-call-{which}tables={on}" for which in ("ip", "ip6")])
            for version in (4, 6):
                found = probe(net, version, wire, last)
                print(f"IPv{version}, {title}, {'with' if on else 'without'} br_netfilter: {found}", flush=True)

    with key_manager(net) as run:
        for end, place in enumerate("gr"):
            run(place, protection(end, "protect"))
        turns("a bridge before a gateway", None)
        net.ip("g", "link", "set", "wire", "master", "bridge")
        for version in (4, 6):
            net.ip("c", f"-{version}", "route", "add", prefix(version, "remote"), "via", address(version, "lan.3"))
        run("r", "ip xfrm policy flush")
        turns("past policies that protect", "lan.3")
        run("g", protection(0, "block"))
        turns("past policies that block", "lan.3")


main()
