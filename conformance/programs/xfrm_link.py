"""Asks for devices of kind xfrm by NETLINK_ROUTE, and prints what the kernel says. Usage: xfrm_link.py DEVICE."""

import errno
import select
import socket
import struct
import sys

NEWLINK, DELLINK, GETLINK = 16, 17, 18
ACK, EXCL, REPLACE, CREATE, DUMP = 4, 0x200, 0x100, 0x400, 0x300
DONE = 3
IFNAME, MTU, LINK, LINKINFO, IFALIAS = 3, 4, 5, 18, 20
KIND, DATA = 1, 2
NESTED = 0x8000

below = socket.if_nametoindex(sys.argv[1])
route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
route.bind((0, 0))
route.setsockopt(270, 11, 1)
sequence = 0


def attr(type_, payload):
    return struct.pack("HH", 4 + len(payload), type_) + payload + bytes(-len(payload) % 4)


def attrs(data):
    while len(data) >= 4:
        length, type_ = struct.unpack_from("HH", data)
        yield type_ & 0x3FFF, data[4:length]
        data = data[(length + 3) & ~3 :]


def marked(data):
    """Returns the types of attributes that are marked as lists, which some programs do not expect."""
    types = set()
    while len(data) >= 4:
        length, type_ = struct.unpack_from("HH", data)
        if type_ & NESTED:
            types.add(type_ & 0x3FFF)
        data = data[(length + 3) & ~3 :]
    return types


def word(n):
    return struct.pack("I", n)


def ask(type_, flags, index, body):
    """Returns the answer: its type, and its payload."""
    global sequence
    sequence += 1
    fixed = struct.pack("BBHiII", 0, 0, 0, index, 0, 0)
    length = 16 + len(fixed) + len(body)
    route.send(struct.pack("IHHII", length, type_, flags | 1, sequence, 0) + fixed + body)
    # Whoever polls finds the answer.
    assert select.select([route], [], [], 60)[0], "no answer"
    data, sender = route.recvfrom(1 << 16)
    length, kind, _, of, port = struct.unpack_from("IHHII", data)
    assert (of, port, sender) == (sequence, route.getsockname()[0], (0, 0)), (of, port, sender)
    return kind, data[16:length]


def outcome(answer):
    """Returns an acknowledgement in words."""
    kind, payload = answer
    assert kind == 2, kind
    number = -struct.unpack_from("i", payload)[0]
    request = struct.unpack_from("I", payload, 4)[0]
    texts = [text for type_, text in attrs(payload[4 + (request if number else 16) :]) if type_ == 1]
    return " ".join([errno.errorcode.get(number, "done")] + [t.rstrip(b"\0").decode() for t in texts])


def show(name):
    """Returns what the kernel tells of a device."""
    kind, payload = ask(GETLINK, 0, 0, attr(IFNAME, name + b"\0"))
    if kind == 2:
        return outcome((kind, payload))
    flags = struct.unpack_from("I", payload, 8)[0]
    of = dict(attrs(payload[16:]))
    info = dict(attrs(of[LINKINFO]))
    assert not marked(payload[16:]) & {LINKINFO} and not marked(of[LINKINFO]), "a list is marked as one"
    words = lambda p: "link" if p == word(below) else p.hex()
    data = {type_: words(p) for type_, p in attrs(info[DATA])}
    on = words(of[LINK]) if LINK in of else None
    up = flags & 1
    return f"{of[IFNAME]} {info[KIND]} {data} on {on} mtu {struct.unpack('I', of[MTU])[0]} up {up} alias {of.get(IFALIAS)}"


def dump(kind):
    """Returns the devices of a kind, as a program finds them that asks for this kind alone: by name, with kind and data."""
    global sequence
    sequence += 1
    body = struct.pack("BBHiII", 0, 0, 0, 0, 0, 0) + attr(LINKINFO, attr(KIND, kind))
    route.send(struct.pack("IHHII", 16 + len(body), GETLINK, DUMP | 1, sequence, 0) + body)
    found = []
    while True:
        assert select.select([route], [], [], 60)[0], "no answer"
        data = route.recv(1 << 16)
        while data:
            length, type_ = struct.unpack_from("IH", data)
            if type_ == DONE:
                return sorted(found)
            assert type_ == NEWLINK, type_
            of = dict(attrs(data[32:length]))
            info = dict(attrs(of.get(LINKINFO, b"")))
            # A kernel that does not know a kind gives all devices.
            if info.get(KIND) == kind:
                found.append((of[IFNAME], sorted(dict(attrs(info[DATA])))))
            data = data[(length + 3) & ~3 :]


def device(name, data, kind=b"xfrm\0", more=b""):
    info = attr(KIND, kind) + (b"" if data is None else attr(DATA | NESTED, data))
    return (attr(IFNAME, name + b"\0") if name else b"") + attr(LINKINFO | NESTED, info) + more


def data(if_id=None, link=None, all_ids=False, more=b""):
    one = b"" if link is None else attr(1, word(link))
    two = b"" if if_id is None else attr(2, word(if_id))
    return one + two + (attr(3, b"") if all_ids else b"") + more


NEW = ACK | CREATE | EXCL
for title, type_, flags, index, body in [
    ("no data", NEWLINK, NEW, 0, device(b"x0", None)),
    ("no id", NEWLINK, NEW, 0, device(b"x0", data(link=below))),
    ("id 0", NEWLINK, NEW, 0, device(b"x0", data(0, below))),
    ("all ids and one", NEWLINK, NEW, 0, device(b"x0", data(7, all_ids=True))),
    ("all ids and a link", NEWLINK, NEW, 0, device(b"x0", data(link=below, all_ids=True))),
    ("short id", NEWLINK, NEW, 0, device(b"x0", attr(2, b"\1"))),
    ("not to be made", NEWLINK, ACK, 0, device(b"x0", data(7, below))),
    ("bad name", NEWLINK, NEW, 0, device(b"a/b", data(7, below))),
    ("new", NEWLINK, NEW, 0, device(b"x0", data(7, below))),
    ("again", NEWLINK, NEW, 0, device(b"x0", data(7, below))),
    ("to replace", NEWLINK, ACK | CREATE | REPLACE, 0, device(b"x0", data(7, below))),
    ("the id of another", NEWLINK, NEW, 0, device(b"x1", data(7))),
    ("without a link", NEWLINK, NEW, 0, device(b"x1", data(8))),
    ("unknown attribute", NEWLINK, NEW, 0, device(b"x2", data(9, below, more=attr(99, b"what")))),
    ("a link that is not there", NEWLINK, NEW, 0, device(b"x3", data(10, 99999))),
    ("with an MTU", NEWLINK, NEW, 0, device(b"x4", data(11), more=attr(MTU, word(1400)))),
    ("with a bad MTU", NEWLINK, NEW, 0, device(b"x5", data(12), more=attr(MTU, word(1)))),
    ("change to the id of another", NEWLINK, ACK, 0, device(b"x0", data(8, below))),
    ("change of the id", NEWLINK, ACK, 0, device(b"x0", data(70, below))),
    ("change of the link", NEWLINK, ACK, 0, device(b"x0", data(70, 1))),
    ("change to no id", NEWLINK, ACK, 0, device(b"x0", data(link=below))),
    ("change to all ids", NEWLINK, ACK, 0, device(b"x0", data(70, below, all_ids=True))),
    ("change of another kind", NEWLINK, ACK, 0, device(b"lo", data(71, below))),
    ("id of before", NEWLINK, NEW, 0, device(b"x6", data(7))),
    ("another kind", NEWLINK, NEW, 0, device(b"x7", None, b"nonsense\0")),
    ("no name", NEWLINK, NEW, 0, device(None, data(72))),
]:
    said = outcome(ask(type_, flags, index, body))
    # The kernel's own explanations of what else is wrong are not passed on (IPSEC-195).
    print(f"{title}: {said.split()[0] if title == 'with a bad MTU' else said}")
for name in b"x0", b"x1", b"x2", b"x3", b"x4", b"x5", b"x6", b"xfrm0":
    print(show(name))
print(dump(b"xfrm\0"))
for name in b"x0", b"x0", b"x1":
    print(f"delete: {outcome(ask(DELLINK, ACK, 0, attr(IFNAME, name + bytes(1))))}")
print(f"id of a deleted one: {outcome(ask(NEWLINK, NEW, 0, device(b'x1', data(70))))}")
print(show(b"x0"), show(b"x1"))
for name in b"x1", b"x2", b"x3", b"x4", b"x6", b"xfrm0":
    print(f"delete: {outcome(ask(DELLINK, ACK, 0, attr(IFNAME, name + bytes(1))))}")
