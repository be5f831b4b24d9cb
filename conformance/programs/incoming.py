#!/usr/bin/env python3
"""Opened packets by the interface that they come in by, as sockets, routers and rules see it.

usage: incoming.py CLIENT GATEWAY REMOTE      see three_spaces.py

The remote gateway sends datagrams through a tunnel: to the gateway itself, and to the client behind it. Then its policies are gone, so
that they come in clear, which the gateway's forbid.

Prints for each setting of the gateway whether the datagram arrives, by which interface the gateway's socket says, and whether rules for
the wire, where nobody has overwritten the mark that they look for, have seen it.
"""
import contextlib, socket, struct, sys, time
from three_spaces import FAMILY, SEALANE, Net, address, key_manager, policies, prefix, state

PORT, AFTER = 7000, 7001
PATIENCE_S = 30
# The destinations: the gateway, and the client behind it; and one of each that no policy covers.
KINDS = {"own": ("g", "lan.1", "outside.1"), "forwarded": ("c", "lan.2", "outside.2")}
RULES = """
table inet seen {
  chain input { type filter hook input priority 10; iifname "wire" udp dport 7000 counter; }
  chain forward { type filter hook forward priority 10; iifname "wire" udp dport 7000 counter; }
}
"""
MARKS = """
table inet marks {
  chain first { type filter hook prerouting priority -350; meta mark set 7; }
  chain mangle { type filter hook prerouting priority -150; meta mark set 9; }
  chain forward { type filter hook forward priority -150; meta mark set 11; }
}
"""
# The settings of the gateway, each with what takes it back.
SETTINGS = {
    "as it is": ([], []),
    "marks of others": ([["nft", MARKS]], [["nft", "delete table inet marks\n"]]),
    "a strict source filter": ([["sysctl", "-qw", "net.ipv4.conf.wire.rp_filter=1"]], []),
    "a strict source filter, and another way back": (
        [["ip", "route", "add", prefix(4, "remote"), "via", address(4, "lan.2")]],
        [["ip", "route", "del", prefix(4, "remote")], ["sysctl", "-qw", "net.ipv4.conf.wire.rp_filter=0"]],
    ),
    "forwarding of the two interfaces alone": (
        [["sysctl", "-qw", "net.ipv4.ip_forward=0"]] + [["sysctl", "-qw", f"net.ipv4.conf.{d}.forwarding=1"] for d in ("lan", "wire")],
        [["sysctl", "-qw", "net.ipv4.ip_forward=1"]],
    ),
    "without our device": ([["ip", "link", "del", "sealane-in0"]] if SEALANE else [], []),
}


def apply(net, commands):
    for command in commands:
        if command[0] == "nft":
            net.inside("g", "nft", "-f", "-", text=command[1])
        else:
            net.inside("g", *command)


def counted(net):
    """The datagrams that rules for the wire have seen."""
    lines = [line for line in net.inside("g", "nft", "list", "table", "inet", "seen").splitlines() if "packets" in line]
    return sum(int(line.split("packets")[1].split()[0]) for line in lines)


def receiver(net, version, kind, host, port):
    s = net.socket(KINDS[kind][0], FAMILY[version], socket.SOCK_DGRAM)
    level, option = (socket.IPPROTO_IP, 8) if version == 4 else (socket.IPPROTO_IPV6, socket.IPV6_RECVPKTINFO)
    s.setsockopt(level, option, 1)
    s.settimeout(PATIENCE_S)
    s.bind((address(version, host), port))
    return s


def interface(net, version, kind, control):
    """The interface by which a datagram has come."""
    index = struct.unpack("=I", control[0][2][:4] if version == 4 else control[0][2][16:20])[0]
    return net.within(KINDS[kind][0], lambda: socket.if_indextoname(index))


def send(net, version, source, destination, port):
    with net.socket("r", FAMILY[version], socket.SOCK_DGRAM) as s:
        s.bind((address(version, source), 0))
        s.sendto(b"a datagram", (address(version, destination), port))


def arrives(net, version, kind):
    """Sends a sealed datagram. Returns what has become of it."""
    before, host = counted(net), KINDS[kind][1]
    with receiver(net, version, kind, host, PORT) as there:
        send(net, version, "remote.1", host, PORT)
        try:
            control = there.recvmsg(100, 100)[1]
        except TimeoutError:
            return "does not arrive"
    by = f" by {interface(net, version, kind, control)}" if kind == "own" else ""
    return f"arrives{by}, rules for the wire see {counted(net) - before}"


def comes_in_clear(net, version, kind):
    """Sends a datagram in clear, and one behind it that no policy covers."""
    _, host, other = KINDS[kind]
    with receiver(net, version, kind, host, PORT) as there, receiver(net, version, kind, other, AFTER) as behind:
        send(net, version, "remote.1", host, PORT)
        send(net, version, "remote.1", other, AFTER)
        behind.recv(100)
        there.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            there.recv(100)
            return "arrives"
    return "does not arrive"


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    net.inside("g", "nft", "-f", "-", text=RULES)
    with key_manager(net) as run:
        for end, place in enumerate("gr"):
            text = ""
            for version in (4, 6):
                near, far = prefix(version, "lan"), prefix(version, "remote")
                for way in (0, 1):
                    text += state(version, way) + policies(version, way, end, near, far)
            run(place, text)
        for setting, (there, back) in SETTINGS.items():
            apply(net, there)
            # The daemon believes for a second what it knows of interfaces and routes.
            time.sleep(1.5)
            for version in (4, 6):
                for kind in KINDS:
                    print(f"IPv{version}, {kind}, {setting}: {arrives(net, version, kind)}", flush=True)
            if setting != "a strict source filter":
                apply(net, back)
        run("r", "ip xfrm policy flush")
        for version in (4, 6):
            for kind in KINDS:
                print(f"IPv{version}, {kind}, in clear: {comes_in_clear(net, version, kind)}", flush=True)


main()
