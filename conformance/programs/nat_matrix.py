#!/usr/bin/env python3
"""What NAT and the marks of others make of flows that IPsec policies cover, own, forwarded and incoming.

usage: nat_matrix.py CLIENT GATEWAY REMOTE [EXPECTED]

The three network namespaces exist, and are empty. A client is behind a gateway, which has policies for flows to the nets of a
remote gateway. With SEALANE, an executable, its daemon serves both gateways; without it the kernel's own IPsec does. Each probe
has a port of its own, for which the gateway translates addresses in one way, and sends COUNT datagrams that are answered. All
are tried again and again: first in a gateway that had a table which marks packets before it had policies, then without that
table, with a new one, with one that keeps marks with connections, by connections of TCP, with chains of other priorities, and
with those rules that iptables knows, by iptables.

Prints for each probe how many datagrams and answers the gateways have sent in clear, how many have arrived, from where and to
where, and how many answers have come back; of TCP, which repeats what is lost, only whether. A time has ended when nothing has
come for QUIET_S, or as soon as it is as in the file EXPECTED, for at most PATIENCE_S.
"""
import errno, ipaddress, os, re, resource, selectors, socket, struct, sys, time
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


def rules(later=0):
    """Chains of nftables, at priorities that are so much farther from the policies."""
    text = "table inet others {\n"
    for chain, (hook, priority) in HOOKS.items():
        priority += -later if priority < 0 else later
        text += f"chain {chain} {{ type nat hook {hook} priority {priority};\n"
        for at, (*_, there, rule) in enumerate(PROBES):
            if there != chain:
                continue
            for version in (4, 6):
                what = rule if isinstance(rule, str) else f"{rule[0]} {rule[1](version)}"
                text += f"meta nfproto ipv{version} meta l4proto {{ tcp, udp }} th dport {PORT + at} {what}\n"
        text += "}\n"
    return text + "}\n"


IPTABLES = {"pre": "PREROUTING", "out": "OUTPUT", "in": "INPUT", "post": "POSTROUTING"}


def by_iptables(version):
    """Those of the rules that iptables has without more modules, for iptables-restore; and the places of their probes."""
    lines, places = [], []
    for at, (*_, chain, rule) in enumerate(PROBES):
        if isinstance(rule, str):
            target = {"": None, 'oifname "wire" masquerade': "-o wire -j MASQUERADE", 'oifname "lan" masquerade': "-o lan -j MASQUERADE"}.get(rule)
        else:
            where = rule[1](version).split(" to ")
            target = None if where[0] not in ("ip", "ip6") else f"-j {rule[0].upper()} --to-{'source' if rule[0] == 'snat' else 'destination'} {where[1]}"
        if target:
            lines.append(f"-A {IPTABLES[chain]} -p udp --dport {PORT + at} {target}")
            places.append(at)
    return "*nat\n" + "\n".join(lines) + "\nCOMMIT\n", places


PORTS = f"{PORT}-{PORT + len(PROBES)}"
MARKS = f"""table inet marks {{
chain pre {{ type filter hook prerouting priority -150; udp dport {PORTS} meta mark set {MARK}; }}
chain out {{ type route hook output priority -150; udp dport {PORTS} meta mark set {MARK}; }}
}}
"""
# As with `-j CONNMARK --restore-mark` and `--save-mark`: the whole mark, for both directions.
KEPT_MARKS = f"""table inet marks {{
chain kept {{ meta mark set ct mark; meta mark 0 udp dport {PORTS} meta mark set {MARK}; ct mark set meta mark; }}
chain pre {{ type filter hook prerouting priority -150; jump kept; }}
chain out {{ type route hook output priority -150; jump kept; }}
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
                    s = self.socket(place, version)
                    level, option = (socket.IPPROTO_IP, 8) if version == 4 else (socket.IPPROTO_IPV6, 49)  # PKTINFO
                    s.setsockopt(level, option, 1)
                    s.bind(("0.0.0.0" if version == 4 else "::", port))
                    self.select.register(s, selectors.EVENT_READ, self.serve)
                    s = self.socket(place, version, socket.SOCK_STREAM)
                    s.bind(("0.0.0.0" if version == 4 else "::", port))
                    s.listen()
                    self.select.register(s, selectors.EVENT_READ, self.accept)

    def socket(self, place, version, kind=socket.SOCK_DGRAM):
        s = self.net.socket(place, FAMILY[version], kind)
        s.setblocking(False)
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

    def accept(self, listener):
        s, peer = listener.accept()
        s.setblocking(False)
        self.select.register(s, selectors.EVENT_READ, lambda s: self.serve_stream(s, peer[0]))

    def serve_stream(self, s, peer):
        data = self.received(s)
        if data:
            self.note(CLEAR.search(data)[2].decode(), f"arrived {name(peer)} > {name(s.getsockname()[0])}")
            s.send(data.replace(b"question", b"answer"))

    def received(self, s):
        """What a connection has received; it is closed at its end."""
        data = b""
        try:
            data = s.recv(2048)
        finally:
            if not data:
                self.select.unregister(s)
                s.close()
        return data

    def connected(self, s, tag):
        failed = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if failed:
            self.note(tag, f"no connection: {os.strerror(failed)}")
            self.select.unregister(s)
            return
        self.select.modify(s, selectors.EVENT_READ, self.answered_stream)
        s.send(f"question, never in clear <{tag}>".encode())

    def answered_stream(self, s):
        peer, data = s.getpeername()[0], self.received(s)
        if data:
            self.note(CLEAR.search(data)[2].decode(), f"answered by {name(peer)}")

    def answered(self, s):
        data, peer = s.recvfrom(2048)
        self.note(CLEAR.search(data)[2].decode(), f"answered by {name(peer[0])}")

    def send(self, tag, place, version, source, to):
        s = self.socket(place, version)
        s.bind((address(version, source), 20000 + len(self.clients)))
        self.select.register(s, selectors.EVENT_READ, self.answered)
        self.clients.append(s)
        for _ in range(COUNT):
            try:
                s.sendto(f"question, never in clear <{tag}>".encode(), to)
            except OSError as e:
                self.note(tag, f"not sent: {e.strerror}")
            self.poll(0)

    def connect(self, tag, place, version, source, to):
        s = self.socket(place, version, socket.SOCK_STREAM)
        s.bind((address(version, source), 20000 + len(self.clients)))
        self.clients.append(s)
        failed = s.connect_ex(to)
        if failed != errno.EINPROGRESS:
            self.note(tag, f"no connection: {os.strerror(failed)}")
            return
        self.select.register(s, selectors.EVENT_WRITE, lambda s: self.connected(s, tag))
        self.poll(0)

    def turn(self, turn, expected, send=None, places=range(len(PROBES)), shown=None):
        """Probes these once."""
        self.seen, self.shown = {}, shown or (lambda what, count: f"{what} {count}")
        tags = []
        for version in (4, 6):
            for at in places:
                what, place, source, destination, *_ = PROBES[at]
                tag = f"{turn}: IPv{version}, {what}"
                tags.append(tag)
                (send or self.send)(tag, place, version, source, (address(version, destination), PORT + at))
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
        return f"{tag}: " + ("; ".join(self.shown(what, seen[what]) for what in sorted(seen)) or "nothing")


def main():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    expected = set(open(sys.argv[4]).read().splitlines()) if len(sys.argv) > 4 else set()
    probing = Probing(net)
    load = lambda text: net.inside("g", "nft", "-f", "-", text=text)
    load(rules())
    load(MARKS)
    with key_manager(net) as run:
        for end, place in enumerate("gr"):
            run(place, protection(end))
        probing.turn("a table of marks before", expected)
        load("delete table inet marks")
        probing.turn("no marks", expected)
        load(MARKS)
        probing.turn("a table of marks after", expected)
        load("delete table inet marks\n" + KEPT_MARKS)
        probing.turn("marks of connections", expected)
        load("delete table inet marks")
        probing.turn("TCP", expected, probing.connect, shown=lambda what, _: what)
        load("delete table inet others\n" + rules(later=10))
        probing.turn("chains at other priorities", expected)
        load("delete table inet others")
        for version, program in [(4, "iptables-nft-restore"), (6, "ip6tables-nft-restore")]:
            text, places = by_iptables(version)
            net.inside("g", program, text=text)
        probing.turn("iptables", expected, places=places)


main()
