#!/usr/bin/env python3
"""What NAT and the marks of others make of flows that IPsec policies cover, own, forwarded and incoming.

usage: nat_matrix.py CLIENT GATEWAY REMOTE [EXPECTED]

The three network namespaces exist, and are empty. A client is behind a gateway, which has policies for flows to the nets of a
remote gateway. With SEALANE, an executable, its daemon serves both gateways; without it the kernel's own IPsec does. Each probe
has a port of its own, for which the gateway translates addresses in one way, and sends COUNT datagrams that are answered. All
are tried three times: first in a gateway that had a table which marks packets before it had policies, then without that table,
then with a new one.

Prints for each probe how many datagrams and answers the gateways have sent in clear, how many have arrived, from where and to
where, and how many answers have come back. A time has ended when nothing has come for QUIET_S, or as soon as it is as in the
file EXPECTED, for at most PATIENCE_S.
"""
import ipaddress, re, selectors, socket, struct, sys, time
from three_spaces import FAMILY, Net, address, key_manager, name, policies, prefix, state

COUNT = 2
QUIET_S = 3
PATIENCE_S = 30
# After what was expected, something else may still come.
AFTER_S = 0.5
MARK = 10
CLEAR = re.compile(rb"(question|answer), never in clear <([^>]*)>")

def family(version):
    return "ip" if version == 4 else "ip6"


def to(where):
    """Translates into an address."""
    return lambda v: f"{family(v)} to {address(v, where)}"


def netmap(way, from_, into):
    """Translates the addresses of one net into those of another one."""
    return lambda v: f"{family(v)} prefix to {family(v)} {way} map {{ {prefix(v, *from_)} : {prefix(v, *into)} }}"


# What is translated how, the sender, its address, the destination, a chain and a rule for it.
PROBES = [
    ("nothing, forwarded", "c", "lan.2", "remote.1", None, ""),
    ("nothing, own", "g", "lan.1", "remote.1", None, ""),
    ("nothing, incoming", "r", "remote.1", "lan.1", None, ""),
    ("nothing, incoming for a client", "r", "remote.1", "lan.2", None, ""),
    ("nothing, not covered, forwarded", "c", "lan.2", "world.1", None, ""),
    ("nothing, not covered, own", "g", "wire.1", "world.1", None, ""),
    ("nothing, a policy by mark, forwarded", "c", "outside.2", "world.3", None, ""),
    ("nothing, a policy by mark, own", "g", "wire.1", "world.3", None, ""),
    ("masquerade, forwarded", "c", "lan.2", "remote.1", "post", 'oifname "wire" masquerade'),
    ("masquerade, own", "g", "lan.1", "remote.1", "post", 'oifname "wire" masquerade'),
    ("masquerade, not covered, forwarded", "c", "lan.2", "world.1", "post", 'oifname "wire" masquerade'),
    ("masquerade, clients of the tunnel", "r", "any.1", "outside.2", "post", 'oifname "lan" masquerade'),
    ("masquerade without IPsec, forwarded", "c", "lan.2", "remote.1", "post", 'oifname "wire" rt ipsec missing masquerade'),
    ("masquerade without IPsec, own", "g", "lan.1", "remote.1", "post", 'oifname "wire" rt ipsec missing masquerade'),
    ("SNAT into a policy, forwarded", "c", "outside.2", "remote.1", "post", ("snat", to("lan.77"))),
    ("SNAT into a policy, own", "g", "wire.1", "remote.1", "post", ("snat", to("lan.1"))),
    ("SNAT within a policy, forwarded", "c", "lan.2", "remote.1", "post", ("snat", to("lan.77"))),
    ("SNAT out of a policy, forwarded", "c", "lan.2", "remote.1", "post", ("snat", to("wire.1"))),
    ("SNAT out of a policy, own", "g", "lan.1", "remote.1", "post", ("snat", to("wire.1"))),
    ("SNAT, incoming", "r", "remote.1", "lan.1", "in", ("snat", to("virtual.1"))),
    ("SNAT, incoming for a client", "r", "any.1", "lan.2", "post", ("snat", to("lan.1"))),
    ("DNAT into a policy, forwarded", "c", "lan.2", "virtual.1", "pre", ("dnat", to("remote.1"))),
    ("DNAT into a policy, own", "g", "lan.1", "virtual.1", "out", ("dnat", to("remote.1"))),
    ("DNAT out of a policy, forwarded", "c", "lan.2", "remote.1", "pre", ("dnat", to("world.1"))),
    ("DNAT out of a policy, own", "g", "lan.1", "remote.1", "out", ("dnat", to("world.1"))),
    ("DNAT, incoming for a client", "r", "remote.1", "lan.1", "pre", ("dnat", to("lan.2"))),
    ("DNAT, incoming", "r", "remote.1", "lan.2", "pre", ("dnat", to("lan.1"))),
    ("redirect, forwarded", "c", "lan.2", "remote.1", "pre", "redirect"),
    ("redirect, own", "g", "lan.1", "remote.1", "out", "redirect"),
    ("redirect, incoming", "r", "remote.1", "lan.2", "pre", "redirect"),
    ("NETMAP of sources, forwarded", "c", "outside.2", "remote.1", "post", ("snat", netmap("saddr", ("outside",), ("lan",)))),
    ("NETMAP of sources, own", "g", "wire.1", "remote.1", "post", ("snat", netmap("saddr", ("wire",), ("lan",)))),
    ("NETMAP of destinations, forwarded", "c", "lan.2", "virtual.1", "pre", ("dnat", netmap("daddr", ("virtual",), ("remote",)))),
    ("NETMAP of destinations, own", "g", "lan.1", "virtual.1", "out", ("dnat", netmap("daddr", ("virtual",), ("remote",)))),
    ("NETMAP, incoming", "r", "remote.1", "lan.66", "pre", ("dnat", netmap("daddr", ("lan", 64, 2), ("lan", 0, 2)))),
]
PORT = 7000
HOOKS = {"pre": ("prerouting", -100), "out": ("output", -100), "in": ("input", 100), "post": ("postrouting", 100)}


def protection(end):
    """The commands for states and policies of an end."""
    script = ""
    for version in (4, 6):
        everywhere = "0.0.0.0/0" if version == 4 else "::/0"
        for way in (0, 1):
            script += state(version, way)
            for near, there in [(prefix(version, "lan"), "remote"), (everywhere, "any")]:
                script += policies(version, way, end, near, prefix(version, there))
        # The gateway selects these by the mark.
        selects = f" mark {MARK} mask 0xff" if end == 0 else ""
        for net in ("outside", "wire"):
            script += policies(version, 0, end, prefix(version, net), address(version, "world.3"), selects)
    return script


def rules():
    text = "table inet others {\n"
    for chain, (hook, priority) in HOOKS.items():
        text += f"chain {chain} {{ type nat hook {hook} priority {priority};\n"
        for at, (*_, there, rule) in enumerate(PROBES):
            if there != chain:
                continue
            for version in (4, 6):
                what = rule if isinstance(rule, str) else f"{rule[0]} {rule[1](version)}"
                text += f"meta nfproto ipv{version} udp dport {PORT + at} {what}\n"
        text += "}\n"
    return text + "}\n"


MARKS = f"""table inet marks {{
chain pre {{ type filter hook prerouting priority -150; udp dport {PORT}-{PORT + len(PROBES)} meta mark set {MARK}; }}
chain out {{ type route hook output priority -150; udp dport {PORT}-{PORT + len(PROBES)} meta mark set {MARK}; }}
}}
"""


class Probing:
    """Probes, their answers, and what is seen of them."""

    def __init__(self, net):
        self.net, self.seen, self.clients = net, {}, []
        self.select = selectors.DefaultSelector()
        for place in "gr":
            self.select.register(net.watch(place, "wire"), selectors.EVENT_READ, self.watch)
        for place in net.names:
            for version in (4, 6):
                for port in range(PORT, PORT + len(PROBES)):
                    s = self.udp(place, version)
                    level, option = (socket.IPPROTO_IP, 8) if version == 4 else (socket.IPPROTO_IPV6, 49)  # PKTINFO
                    s.setsockopt(level, option, 1)
                    s.bind(("0.0.0.0" if version == 4 else "::", port))
                    self.select.register(s, selectors.EVENT_READ, self.serve)

    def udp(self, place, version):
        s = self.net.socket(place, FAMILY[version], socket.SOCK_DGRAM)
        if version == 6:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        return s

    def note(self, tag, what):
        self.seen.setdefault(tag, {}).setdefault(what, 0)
        self.seen[tag][what] += 1

    def watch(self, s):
        frame, about = s.recvfrom(65536)
        found = CLEAR.search(frame)
        if about[2] == socket.PACKET_OUTGOING and found:
            self.note(found[2].decode(), "in clear" if found[1] == b"question" else "answers in clear")

    def serve(self, s):
        data, extra, _, peer = s.recvmsg(2048, 256)
        version = 4 if s.family == socket.AF_INET else 6
        (_, _, info), = [e for e in extra if e[1] in (8, 50)]
        here = info[8:12] if version == 4 else info[:16]
        self.note(CLEAR.search(data)[2].decode(), f"arrived {name(peer[0])} > {name(str(ipaddress.ip_address(here)))}")
        level, kind = (socket.IPPROTO_IP, 8) if version == 4 else (socket.IPPROTO_IPV6, 50)
        source = struct.pack("=I4s4s", 0, here, bytes(4)) if version == 4 else here + bytes(4)
        try:
            s.sendmsg([data.replace(b"question", b"answer")], [(level, kind, source)], 0, peer)
        except OSError as e:
            self.note(CLEAR.search(data)[2].decode(), f"no answer: {e.strerror}")

    def answered(self, s):
        data, peer = s.recvfrom(2048)
        self.note(CLEAR.search(data)[2].decode(), f"answered by {name(peer[0])}")

    def turn(self, turn, expected):
        """Probes all once."""
        self.seen = {}
        tags = []
        for version in (4, 6):
            for at, (what, place, source, destination, *_) in enumerate(PROBES):
                tag = f"{turn}: IPv{version}, {what}"
                tags.append(tag)
                s = self.udp(place, version)
                s.bind((address(version, source), 20000 + len(self.clients)))
                self.select.register(s, selectors.EVENT_READ, self.answered)
                self.clients.append(s)
                for _ in range(COUNT):
                    try:
                        s.sendto(f"question, never in clear <{tag}>".encode(), (address(version, destination), PORT + at))
                    except OSError as e:
                        self.note(tag, f"not sent: {e.strerror}")
                    self.poll(0)
        begun = last = time.monotonic()
        while True:
            if self.poll(0.1):
                last = time.monotonic()
            lines = [self.line(tag) for tag in tags]
            now = time.monotonic()
            if expected and set(lines) <= expected:
                if now - last > AFTER_S:
                    break
            elif now - last > QUIET_S and not expected or now - begun > PATIENCE_S:
                break
        print("\n".join(lines), flush=True)

    def poll(self, patience_s):
        ready = self.select.select(patience_s)
        for key, _ in ready:
            try:
                key.data(key.fileobj)
            except OSError:
                # An ICMP error.
                pass
        return ready

    def line(self, tag):
        seen = self.seen.get(tag, {})
        return f"{tag}: " + ("; ".join(f"{what} {seen[what]}" for what in sorted(seen)) or "nothing")


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    expected = set(open(sys.argv[4]).read().splitlines()) if len(sys.argv) > 4 else set()
    probing = Probing(net)
    net.inside("g", "nft", "-f", "-", text=rules())
    net.inside("g", "nft", "-f", "-", text=MARKS)
    with key_manager(net) as run:
        for end, place in enumerate("gr"):
            run(place, protection(end))
        probing.turn("a table of marks before", expected)
        net.inside("g", "nft", "delete table inet marks")
        probing.turn("no marks", expected)
        net.inside("g", "nft", "-f", "-", text=MARKS)
        probing.turn("a table of marks after", expected)


main()
