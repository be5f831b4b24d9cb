#!/usr/bin/env python3
"""What senders hear when IPsec policies keep their packets from leaving, of the host itself and behind a gateway.

usage: refused.py CLIENT GATEWAY REMOTE [EXPECTED]

The three network namespaces exist, and are empty. A client is behind a gateway, which has policies for flows to the addresses of
a remote host. With SEALANE, an executable, its daemon serves both; without it the kernel's own IPsec does. Nothing listens at
the remote host, so that connections that get there are refused.

Prints for each flow what its sender hears, and which counters of the gateway have changed. A time has ended after QUIET_S, or
with the file EXPECTED as soon as it is as in there, for at most PATIENCE_S.
"""
import errno, socket, struct, sys, time
from three_spaces import FAMILY, Net, address, key_manager, outer

QUIET_S = 3
PATIENCE_S = 30
MARK = 10
PORTS = [7001, 7002]
HOSTS = [f"world.{last}" for last in range(4, 12)]
# The kinds of routes to ends of tunnels, and the hosts behind these.
NOWHERE = {"unreachable": "world.8", "blackhole": "world.10", "prohibit": "world.11"}


def name(number):
    return errno.errorcode.get(number, str(number)) if number else "sent"


def attempt(do):
    """The name of the error of a call."""
    try:
        do()
    except OSError as e:
        return name(e.errno)
    return "sent"


def any_of(version):
    return "0.0.0.0/0" if version == 4 else "::/0"


def to(version, host, more="", selects=""):
    """The command for an outbound policy for an address."""
    selector = f"src {any_of(version)} dst {address(version, host)} {selects}"
    return f"ip xfrm policy add {selector} dir out {more}\n"


def tunnel(version, reqid):
    return f"tmpl {outer(version, 0)} proto esp reqid {reqid} mode tunnel"


def nowhere(version, kind):
    """The end of a tunnel that a route of this kind keeps packets from."""
    last = 1 + list(NOWHERE).index(kind)
    return f"192.0.2.{last}" if version == 4 else f"2001:db8::{last}"


def lost(version, kind):
    """The commands for a policy whose state has such an end."""
    ends = f"src {address(version, 'wire.1')} dst {nowhere(version, kind)}"
    return (
        f"ip xfrm state add {ends} proto esp spi {0x99000 + version} reqid 99 mode tunnel "
        f"aead 'rfc4106(gcm(aes))' 0x{version:08x}02030405060708090a0b0c0d0e0f1011 128\n"
        + to(version, NOWHERE[kind], f"tmpl {ends} proto esp reqid 99 mode tunnel")
    )


# The times: what they are called, the commands of the gateway's key manager for a version, and the flows: what they are called,
# and their destination and port.
TIMES = [
    (
        "policies that block",
        lambda v: to(v, "world.1", "action block")
        + to(v, "world.3", "action block", f"proto udp dport {PORTS[0]}")
        + to(v, "any.1", "action block priority 20")
        + to(v, "any.1", "priority 10", "proto tcp")
        + to(v, "world.4", f"mark {MARK} mask 0xff action block"),
        [
            ("all", "world.1", 0),
            ("its port", "world.3", 0),
            ("another port", "world.3", 1),
            ("all but TCP", "any.1", 0),
            ("a mark", "world.4", 0),
        ],
    ),
    (
        "states that are missing",
        lambda v: to(v, "world.5", tunnel(v, 77)) + to(v, "world.6", "tmpl proto esp reqid 78 mode transport level use"),
        [("required", "world.5", 0), ("optional", "world.6", 0)],
    ),
    (
        "states that are missing, packets wait",
        lambda v: "sysctl -qw net.core.xfrm_larval_drop=0 2>/dev/null || true\n" + to(v, "world.5", tunnel(v, 77)),
        [("required", "world.5", 0)],
    ),
    (
        "no way to the peer",
        lambda v: "".join(lost(v, kind) for kind in NOWHERE),
        [(f"a tunnel, {kind}", host, 0) for kind, host in NOWHERE.items()],
    ),
    (
        "no policy, which is blocked",
        lambda v: to(v, "world.7") + ("ip xfrm policy setdefault out block\n" if v == 4 else ""),
        [("without one", "world.9", 0), ("with one", "world.7", 0)],
    ),
]


class Flow:
    """A sender in a place and what it hears of one flow."""

    def __init__(self, net, place, version, host, port, mark):
        self.to = (address(version, host), port)
        self.heard = {}
        raw = (socket.SOCK_RAW, socket.IPPROTO_ICMP if version == 4 else socket.IPPROTO_ICMPV6)
        kinds = {"UDP": (socket.SOCK_DGRAM, 0), "connected": (socket.SOCK_DGRAM, 0), "ping": raw, "TCP": (socket.SOCK_STREAM, 0)}
        self.sockets = {kind: net.socket(place, FAMILY[version], *what) for kind, what in kinds.items()}
        for s in self.sockets.values():
            s.setblocking(False)
            if mark:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_MARK, mark)
        echo = struct.pack("!BBHHH", 8 if version == 4 else 128, 0, 0xf7ff if version == 4 else 0, 0, 0)
        udp, connected, tcp = (self.sockets[kind] for kind in ("UDP", "connected", "TCP"))
        self.heard["UDP"] = attempt(lambda: udp.sendto(b"x", self.to))
        self.heard["ping"] = attempt(lambda: self.sockets["ping"].sendto(echo, (self.to[0], 0)))
        self.heard["connected"] = attempt(lambda: connected.connect(self.to))
        if self.heard["connected"] == "sent":
            self.heard["connected"] = attempt(lambda: connected.send(b"x"))
        self.heard["TCP"] = attempt(lambda: tcp.connect(self.to)).replace("EINPROGRESS", "waits")

    def listen(self):
        """Takes up what has come meanwhile. An ICMP error stands behind what was heard before."""
        for kind, s in self.sockets.items():
            error = s.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if error and kind == "TCP":
                self.heard[kind] = name(error)
            elif error:
                self.heard[kind] += f", then {name(error)}"


def counters(run):
    text = run("g", "cat /proc/net/xfrm_stat")
    return dict(line.split() for line in text.splitlines())


def lines(title, flows, before, after):
    text = [
        f"{title}: IPv{version}, {what}, {who}, {kind}: {heard}"
        for (version, what, who), flow in flows.items()
        for kind, heard in flow.heard.items()
    ]
    changed = [counter for counter, value in after.items() if value != before[counter]]
    return text + [f"{title}: counters: {' '.join(changed) or 'none'}"]


def neighbours(net):
    """Makes neighbours known: what blocks everything may block their discovery."""
    for one, other, device, hosts in [("g", "r", "wire", ["wire.2"]), ("r", "g", "wire", ["wire.1"]),
                                      ("g", "c", "lan", ["lan.2"]), ("c", "g", "lan", ["lan.1"])]:
        link = net.inside(other, "cat", f"/sys/class/net/{device}/address").strip()
        for version in (4, 6):
            for host in hosts:
                net.ip(one, "neigh", "replace", address(version, host), "lladdr", link, "dev", device, "nud", "permanent")


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    expected = open(sys.argv[4]).read().splitlines() if len(sys.argv) > 4 else []
    for version in (4, 6):
        for host in HOSTS:
            net.ip("r", "addr", "add", f"{address(version, host)}/{32 if version == 4 else 128}", "dev", "lo")
        for kind in NOWHERE:
            net.ip("g", f"-{version}", "route", "add", kind, nowhere(version, kind))
    neighbours(net)
    with key_manager(net) as run:
        for title, script, cases in TIMES:
            for version in (4, 6):
                run("g", script(version))
            before = counters(run)
            flows = {}
            for version in (4, 6):
                for what, host, port in cases:
                    for who, place, mark in [("own", "g", 0), ("forwarded", "c", 0)] + [("marked", "g", MARK)] * (what == "a mark"):
                        flows[version, what, who] = Flow(net, place, version, host, PORTS[port], mark)
            begun = time.monotonic()
            while True:
                time.sleep(0.2)
                for flow in flows.values():
                    flow.listen()
                passed = time.monotonic() - begun
                if passed < QUIET_S:
                    continue
                found = lines(title, flows, before, counters(run))
                if not expected or set(found) <= set(expected) or passed > PATIENCE_S:
                    break
            print("\n".join(found), flush=True)
            run("g", "ip xfrm policy setdefault out accept; ip xfrm policy flush; ip xfrm state flush")


main()
