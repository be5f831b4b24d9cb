#!/usr/bin/env python3
"""Whether tunnels of others work beside IPsec policies, and what of them leaves in clear: IPIP, SIT, GRE, VXLAN, GENEVE, WireGuard.

usage: tunnels.py CLIENT GATEWAY REMOTE      see three_spaces.py

A tunnel of each kind, between the gateway and the remote one, is the way to the net behind that. It is made five times, beside
other policies: none; such as protect what the tunnel sends; such as protect the flows in it, between the addresses of its devices,
so that it carries ESP; the same between the gateways themselves, so that ESP goes past it; such as block what it sends. The client
and the gateway send datagrams, and a stream that is much longer than a packet, which the remote gateway sends back.

Prints what has come back, the protocols between the gateways, and whether the text was in clear there.
"""
import contextlib, socket, struct, sys, threading
from three_spaces import FAMILY, Net, address, key_manager, leaving, policies, prefix, state

PORT, AFTER = 7000, 7001
COUNT = 2
TEXT = b"never in clear. "
STREAM = TEXT * 12_345
LONG = 400
PATIENCE_S = 60
WG_PORT, WG_KEYS = 51820, [bytes([n]) * 32 for n in (1, 2)]
PROTOCOLS = {4: "IPIP", 6: "TCP", 17: "UDP", 41: "IPv6", 47: "GRE", 50: "ESP"}
# The policies that there are.
PROTECTED, BLOCKED = "its packets protected", "its packets blocked"
INSIDE, PAST = "flows in it protected", "its flows protected past it"
SITUATIONS = ["no policies", PROTECTED, INSIDE, PAST, BLOCKED]
# Names, the versions around and inside, the type of the device, and what selects what it sends.
KINDS = [
    ("IPIP", 4, 4, "ipip {ends}", "proto 4"),
    ("SIT", 4, 6, "sit {ends}", "proto 41"),
    ("GRE", 4, 4, "gre {ends}", "proto gre"),
    ("GRE with a key", 4, 6, "gre {ends} key 5", "proto gre key 5"),
    ("GRE of Ethernet", 4, 4, "gretap {ends}", "proto gre"),
    ("VXLAN", 4, 4, "vxlan id 5 {ends} dstport 4789", "proto udp dport 4789"),
    ("GENEVE", 4, 6, "geneve id 5 {remote} dstport 6081", "proto udp dport 6081"),
    ("WireGuard", 4, 4, "wireguard", f"proto udp dport {WG_PORT}"),
    ("IPv4 in IPv6", 6, 4, "ip6tnl mode any {ends}", "proto 4"),
    ("IPv6 in IPv6", 6, 6, "ip6tnl mode any {ends}", "proto 41"),
    ("GRE over IPv6", 6, 4, "ip6gre {ends}", "proto gre"),
    ("VXLAN over IPv6", 6, 4, "vxlan id 5 {ends} dstport 4789", "proto udp dport 4789"),
    ("GENEVE over IPv6", 6, 4, "geneve id 5 {remote} dstport 6081", "proto udp dport 6081"),
    ("WireGuard over IPv6", 6, 6, "wireguard", f"proto udp dport {WG_PORT}"),
]


def attribute(kind, content):
    return struct.pack("=HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def attributes(data):
    while data:
        length, kind = struct.unpack_from("=HH", data)
        yield kind & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3:]


class Generic:
    """Generic netlink in a namespace."""

    def __init__(self, net, place):
        self.socket = net.socket(place, socket.AF_NETLINK, socket.SOCK_RAW, 16)
        self.family = 16
        # CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, CTRL_ATTR_FAMILY_ID
        self.family, = struct.unpack("=H", self.ask(3, 5, attribute(2, b"wireguard\0"))[1])

    def ask(self, command, flags, content):
        """Sends a request. Returns the attributes of its answer."""
        self.socket.send(struct.pack("=IHHIIBBH", 20 + len(content), self.family, flags, 1, 0, command, 1, 0) + content)
        found = b""
        while True:
            data = self.socket.recv(65536)
            while data:
                length, kind = struct.unpack_from("=IH", data)
                if kind in (2, 3):
                    error, = struct.unpack_from("=i", data, 16)
                    return sys.exit(f"generic netlink: {error}") if error else dict(attributes(found))
                found, data = data[20:length], data[(length + 3) & ~3:]


def wireguard(net, version):
    """Gives both devices keys, and each other as their peers."""
    # WG_CMD_SET_DEVICE, WG_CMD_GET_DEVICE, WGDEVICE_A_IFNAME, _PRIVATE_KEY, _PUBLIC_KEY, _LISTEN_PORT, _PEERS
    device, ends = attribute(2, b"tunnel\0"), [Generic(net, place) for place in "gr"]
    keys = []
    for end, key in zip(ends, WG_KEYS):
        end.ask(1, 5, device + attribute(3, key) + attribute(6, struct.pack("=H", WG_PORT)))
        keys.append(end.ask(0, 0x301, device)[4])
    for n, end in enumerate(ends):
        packed = socket.inet_pton(FAMILY[version], address(version, ["wire.2", "wire.1"][n]))
        to = struct.pack("=H", FAMILY[version]) + struct.pack("!H", WG_PORT)
        to += packed + bytes(8) if version == 4 else bytes(4) + packed + bytes(4)
        # WGPEER_A_PUBLIC_KEY, _ENDPOINT, _ALLOWEDIPS; WGALLOWEDIP_A_FAMILY, _IPADDR, _CIDR_MASK
        allowed = b""
        for family, long in [(socket.AF_INET, 4), (socket.AF_INET6, 16)]:
            everything = attribute(1, struct.pack("=H", family)) + attribute(2, bytes(long)) + attribute(3, b"\0")
            allowed += attribute(0x8000, everything)
        peer = attribute(1, keys[1 - n]) + attribute(4, to) + attribute(0x8009, allowed)
        end.ask(1, 5, device + attribute(0x8008, attribute(0x8000, peer)))


def make(net, version, inside, kind):
    """Makes a tunnel, and the routes through it."""
    for place, near, far, host in [("g", "wire.1", "wire.2", "virtual.1"), ("r", "wire.2", "wire.1", "virtual.2")]:
        remote = f"remote {address(version, far)}"
        ends = f"local {address(version, near)} {remote}"
        net.ip(place, "link", "add", "tunnel", "type", *kind.format(ends=ends, remote=remote).split())
        net.ip(place, "addr", "add", prefix(inside, *host.split(".")), "dev", "tunnel")
    if kind == "wireguard":
        wireguard(net, version)
    for place, there, via in [("g", "remote", "virtual.2"), ("r", "lan", "virtual.1")]:
        net.ip(place, "link", "set", "tunnel", "up")
        net.ip(place, f"-{inside}", "route", "add", prefix(inside, there), "via", address(inside, via), "dev", "tunnel")


def transport(commands):
    """The same commands for transport mode."""
    return commands.replace("mode tunnel", "mode transport")


def protection(situation, version, inside, selects, end):
    """The commands of the key manager of an end."""
    script = "ip xfrm policy flush; ip xfrm state flush\n"
    hosts = [f"{address(version, f'wire.{n}')}/{32 if version == 4 else 128}" for n in (1, 2)]
    nets = [prefix(inside, net) for net in ("lan", "remote")]
    for way in (0, 1):
        if situation == PROTECTED:
            script += transport(state(version, way) + policies(version, way, end, *hosts, f" {selects}"))
        elif situation == INSIDE:
            text = state(inside, way) + policies(inside, way, end, *nets)
            for n in (1, 2):
                text = text.replace(f"{address(inside, f'wire.{n}')} ", f"{address(inside, f'virtual.{n}')} ")
            script += text
        elif situation == PAST:
            script += state(inside, way) + policies(inside, way, end, *nets)
        elif situation == BLOCKED:
            script += transport(state(version, way) + policies(version, way, end, *hosts, f" proto udp dport {AFTER}"))
    if situation == BLOCKED:
        script += f"ip xfrm policy add src {hosts[end]} dst {hosts[1 - end]} {selects} dir out action block\n"
    return script


class Wire:
    """What the gateways send."""

    def __init__(self, net):
        self.sockets = [net.watch(place, "wire") for place in "gr"]
        self.take()

    def take(self):
        """The protocols since the last time, and whether the text was seen."""
        protocols, clear = set(), False
        for s in self.sockets:
            for frame, protocol in leaving(s):
                # Destination options (the limit of encapsulation), fragments: IPv6 has them.
                if protocol in (44, 60):
                    protocol = frame[54]
                # Kernels say something of their own, which is short.
                if len(frame) > LONG:
                    protocols.add(PROTOCOLS[protocol])
                clear |= TEXT in frame
        return f"{', '.join(sorted(protocols)) or 'nothing'}{' in clear' if clear else ''}"


def serve(datagrams, listener):
    """Sends back what comes."""
    def echo(s):
        with s, contextlib.suppress(OSError):
            while data := s.recv(65536):
                s.sendall(data)

    def accept():
        while True:
            threading.Thread(target=echo, args=[listener.accept()[0]], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    while True:
        data, peer = datagrams.recvfrom(2048)
        datagrams.sendto(data, peer)


def ask(s, to):
    """Sends datagrams."""
    s.connect(to)
    for _ in range(COUNT):
        with contextlib.suppress(OSError):
            s.send(TEXT)


def answers(s):
    """The datagrams that come back."""
    count = 0
    with contextlib.suppress(OSError):
        while count < COUNT:
            s.recv(2048)
            count += 1
    return f"{count} datagrams"


def stream(s, to):
    """Sends the stream. Returns what comes back."""
    data = b""
    try:
        s.connect(to)
        threading.Thread(target=s.sendall, args=[STREAM], daemon=True).start()
        while len(data) < len(STREAM) and (part := s.recv(65536)):
            data += part
        # Nothing is left of it when the tunnel goes.
        s.shutdown(socket.SHUT_WR)
        s.recv(1)
    except OSError as e:
        return f"{len(data)} bytes of a stream, then {e}"
    return "a stream" if data == STREAM else "another stream"


class Probing:
    """A server of the remote gateway, and what comes back from it."""

    def __init__(self, net):
        self.net = net
        self.after = {}
        for version in (4, 6):
            servers = [self.socket("r", version, kind, "remote.1", PORT) for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM)]
            for s in servers:
                s.settimeout(None)
            servers[1].listen()
            threading.Thread(target=serve, args=servers, daemon=True).start()
            self.after[version] = self.socket("r", version, socket.SOCK_DGRAM, "wire.2", AFTER)

    def socket(self, place, version, kind, host, port=0):
        s = self.net.socket(place, FAMILY[version], kind)
        s.settimeout(PATIENCE_S)
        s.bind((address(version, host), port))
        return s

    def probe(self, place, source, version, inside, blocked):
        """What comes back to a sender."""
        to = (address(inside, "remote.1"), PORT)
        with self.socket(place, inside, socket.SOCK_DGRAM, source) as s:
            ask(s, to)
            if blocked:
                # It comes by the same way, and is not blocked.
                self.socket("g", version, socket.SOCK_DGRAM, "wire.1").sendto(b"", (address(version, "wire.2"), AFTER))
                self.after[version].recv(1)
                s.setblocking(False)
                return answers(s)
            found = answers(s)
        with self.socket(place, inside, socket.SOCK_STREAM, source) as s:
            return f"{found} and {stream(s, to)}"


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    probing, wire = Probing(net), Wire(net)
    with key_manager(net) as run:
        for kind, version, inside, device, selects in KINDS:
            for situation in SITUATIONS:
                make(net, version, inside, device)
                for end, place in enumerate("gr"):
                    run(place, protection(situation, version, inside, selects, end))
                wire.take()
                for who, place, source in [("forwarded", "c", "lan.2"), ("own", "g", "lan.1")]:
                    found = probing.probe(place, source, version, inside, situation == BLOCKED)
                    print(f"{kind}, {situation}, {who}: {found} back, {wire.take()} between the gateways", flush=True)
                for place in "gr":
                    net.ip(place, "link", "del", "tunnel")


main()
