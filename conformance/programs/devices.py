#!/usr/bin/env python3
"""Flows that are bound to a device, by their sockets or by addresses that count on a link only, and covered by IPsec policies.

usage: devices.py CLIENT GATEWAY REMOTE      see three_spaces.py

The gateway sends the remote one datagrams: to its address, to that of the link, and to a group, as OSPF does; by a socket that is
bound to the wire and by one that is not, to such sockets. Policies protect all of it, then block it.

Prints for each what the call says, what leaves by the wire, and whether it arrives.
"""
import contextlib, errno, socket, struct, sys
from three_spaces import FAMILY, Net, address, key_manager, left

PORT, AFTER = 7000, 7001
TEXT = b"never in clear" * 10
PATIENCE_S = 30
KEY = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128"
LINK = ["fe80::1", "fe80::2"]
GROUP = {4: "224.0.0.5", 6: "ff02::5"}
# The destinations of each version.
ENDS = {4: ["an address", "a group"], 6: ["an address", "a group", "an address of the link"]}


def ends(version, what):
    """The source and the destination of a kind of flow."""
    here, there = [address(version, f"wire.{n}") for n in (1, 2)]
    if what == "an address":
        return here, there
    return LINK[0] if version == 6 else here, GROUP[version] if what == "a group" else LINK[1]


def policies(place, blocked):
    """The commands of the key manager of a place."""
    text = "ip xfrm policy flush; ip xfrm state flush\n"
    for version in (4, 6):
        for n, what in enumerate(ENDS[version]):
            source, destination = ends(version, what)
            spi, long = 0x1000 * version + n, 32 if version == 4 else 128
            text += f"ip xfrm state add src {source} dst {destination} proto esp spi {spi} reqid {spi} mode transport {KEY}\n"
            for port in (PORT, AFTER):
                template = f"tmpl src {source} dst {destination} proto esp reqid {spi} mode transport"
                text += (
                    f"ip xfrm policy add src {source}/{long} dst {destination}/{long} proto udp dport {port} "
                    f"dir {'out' if place == 'g' else 'in'} {'action block' if blocked and port == PORT else template}\n"
                )
    return text


class Wire:
    """The two places, and their ends of the wire."""

    def __init__(self, net):
        self.net = net
        for place, link in zip("gr", LINK):
            net.ip(place, "link", "set", "wire", "addrgenmode", "none")
            net.ip(place, "addr", "flush", "dev", "wire", "scope", "link")
            net.ip(place, "-6", "addr", "add", f"{link}/64", "dev", "wire", "nodad")
        self.watch = net.watch("g", "wire")
        self.index = {place: net.within(place, lambda: socket.if_nametoindex("wire")) for place in "gr"}

    def socket(self, place, version, bound):
        s = self.net.socket(place, FAMILY[version], socket.SOCK_DGRAM)
        if bound:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wire")
        return s

    def receiver(self, version, bound):
        """A socket of the remote host, in the group."""
        s, index = self.socket("r", version, bound), struct.pack("=I", self.index["r"])
        if version == 4:
            s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(GROUP[4]) + bytes(4) + index)
        else:
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, GROUP[6]) + index)
        s.bind(("0.0.0.0" if version == 4 else "::", PORT))
        s.setblocking(False)
        return s

    def send(self, version, what, bound):
        """Sends from the gateway. Returns what the call says."""
        source, destination = ends(version, what)
        index = self.index["g"]
        with self.socket("g", version, bound) as s:
            if version == 4:
                s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, bytes(8) + struct.pack("=I", index))
                here, to = (source, 0), (destination, PORT)
            else:
                s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
                here = (source, 0, 0, index if source == LINK[0] else 0)
                to = (destination, PORT, 0, index if destination == LINK[1] else 0)
            s.bind(here)
            try:
                s.sendto(TEXT, to)
            except OSError as e:
                return errno.errorcode[e.errno]
            return "sent"

    def left(self):
        """What has left the gateway since the last time, but for what comes after."""
        return left(self.watch, TEXT, len(TEXT))

    def passed(self, version):
        """Waits for what comes behind it, on the same way: that of a free socket, or that of a bound one."""
        to = (address(version, "wire.2"), AFTER)
        with self.socket("r", version, False) as s:
            s.settimeout(PATIENCE_S)
            s.bind(to)
            for bound in (False, True):
                # What may not leave at all needs nobody to wait for it.
                with contextlib.suppress(PermissionError):
                    self.socket("g", version, bound).sendto(b"", to)
                    s.recv(1)


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    wire = Wire(net)
    with key_manager(net) as run:
        for blocked in (False, True):
            for place in "gr":
                run(place, policies(place, blocked))
            for version, what in [(version, what) for version in (4, 6) for what in ENDS[version]]:
                for ours, theirs in [(ours, theirs) for ours in (False, True) for theirs in (False, True)]:
                    with wire.receiver(version, theirs) as there:
                        wire.left()
                        heard = wire.send(version, what, ours)
                        wire.passed(version)
                        arrives = "does not arrive"
                        with contextlib.suppress(BlockingIOError):
                            there.recv(1000)
                            arrives = "arrives"
                    names = ["free", "bound"]
                    print(
                        f"IPv{version}, {what}, from a {names[ours]} socket to a {names[theirs]} one, "
                        f"{'blocked' if blocked else 'protected'}: {heard}, leaves {wire.left()}, {arrives}", flush=True
                    )


main()
