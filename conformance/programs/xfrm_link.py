"""Asks for devices of kind xfrm by NETLINK_ROUTE, and prints what the kernel says. Usage: xfrm_link.py DEVICE."""

import ctypes
import errno
import os
import select
import signal
import socket
import struct
import sys
import time

NEWLINK, DELLINK, GETLINK, SETLINK = 16, 17, 18, 19
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


def message(type_, flags, index, body):
    global sequence
    sequence += 1
    fixed = struct.pack("BBHiII", 0, 0, 0, index, 0, 0)
    length = 16 + len(fixed) + len(body)
    return struct.pack("IHHII", length, type_, flags, sequence, 0) + fixed + body


def ask(type_, flags, index, body):
    """Returns the answer: its type, and its payload."""
    route.send(message(type_, flags | 1, index, body))
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
    route.send(message(GETLINK, DUMP | 1, 0, attr(LINKINFO, attr(KIND, kind))))
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


# Several requests in one datagram, and several datagrams in one call. All answers are there when the call returns.
def answers():
    """Returns what has come: kinds, the requests that they are about, and outcomes."""
    said = []
    while select.select([route], [], [], 0)[0]:
        data = route.recv(1 << 16)
        while len(data) >= 16:
            length, kind, _, of, _ = struct.unpack_from("IHHII", data)
            payload = data[16:length]
            if kind == 2:
                told = outcome((kind, payload))
            elif kind == NEWLINK:
                told = dict(attrs(payload[16:]))[IFNAME].decode()
            else:
                told = ""
            said.append(f"{of - sequence} {kind} {told}")
            data = data[(length + 3) & ~3 :]
    return said


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_char_p), ("len", ctypes.c_size_t)]


class Mmsghdr(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_void_p),
        ("namelen", ctypes.c_uint),
        ("iov", ctypes.POINTER(Iovec)),
        ("iovlen", ctypes.c_size_t),
        ("control", ctypes.c_void_p),
        ("controllen", ctypes.c_size_t),
        ("flags", ctypes.c_int),
        ("pad", ctypes.c_int),
        ("sent", ctypes.c_uint),
    ]


def sendmmsg(datagrams):
    """Returns the result of the call, and those of the datagrams that were sent."""
    vectors = [Iovec(d, len(d)) for d in datagrams]
    list_ = (Mmsghdr * len(datagrams))(*[Mmsghdr(iov=ctypes.pointer(v), iovlen=1) for v in vectors])
    done = ctypes.CDLL(None).sendmmsg(route.fileno(), list_, len(datagrams), 0)
    return done, [m.sent - len(d) for m, d in zip(list_[: max(done, 0)], datagrams)]


def new(name, if_id, flags=NEW | 1):
    return message(NEWLINK, flags, 0, device(name, data(if_id, below)))


def other(name, flags=NEW | 1):
    return message(NEWLINK, flags, 0, device(name, None, b"bridge\0"))


def named(type_, name, flags=ACK | 1, more=b""):
    return message(type_, flags, 0, attr(IFNAME, name + b"\0") + more)


def sent(parts):
    """Sends parts of a datagram by one vector each. Returns what is missing."""
    return route.sendmsg(parts) - sum(map(len, parts))


def cut(datagram, *at):
    return [datagram[a:b] for a, b in zip((0, *at), (*at, len(datagram)))]


control = struct.pack("IHHII", 16, 3, ACK | 1, 0, 0)
for title, call in [
    ("two new ones", lambda: sent([new(b"b0", 80) + new(b"b1", 81)])),
    ("the second exists", lambda: sent([new(b"b2", 82) + new(b"b2", 83) + new(b"b3", 84)])),
    ("without acknowledgement", lambda: sent([new(b"b4", 85, CREATE | EXCL | 1) + new(b"b4", 86, CREATE | EXCL | 1)])),
    ("the kernel's before and behind", lambda: sent([other(b"d0") + new(b"b5", 87) + named(GETLINK, b"b5", 1)])),
    ("the end of a dump beside", lambda: sent([control + new(b"b7", 89) + control])),
    ("no request", lambda: sent([new(b"b8", 90, NEW) + new(b"b8", 90, CREATE | EXCL) + named(GETLINK, b"b8", 1)])),
    ("up, and then deleted", lambda: sent([new(b"b9", 91) + named(SETLINK, b"b9", more=attr(MTU, word(1300))) + named(DELLINK, b"b9")])),
    ("a datagram that is cut", lambda: sent([new(b"c0", 92) + new(b"c1", 93)[:-4]])),
    ("by several vectors", lambda: sent(cut(new(b"c2", 94) + new(b"c3", 95), 3, 16, 40, 90))),
    ("by write", lambda: os.write(route.fileno(), new(b"c4", 96))),
    ("by writev", lambda: os.writev(route.fileno(), cut(new(b"c5", 97), 20))),
    ("by sendmmsg", lambda: sendmmsg([new(b"c6", 98), other(b"d1"), new(b"c7", 99) + named(GETLINK, b"c7", 1)])),
    ("by sendmmsg, some of them wrong", lambda: sendmmsg([new(b"c6", 100), new(b"c8", 0), named(GETLINK, b"none", 1)])),
]:
    result = call()
    print(f"{title}: {result} {answers()}")
print(sorted(name for _, name in socket.if_nameindex() if name[0] in "bcd" and len(name) == 2))
for _, name in socket.if_nameindex():
    if name[0] in "bcd" and len(name) == 2:
        print(f"delete {name}: {outcome(ask(DELLINK, ACK, 0, attr(IFNAME, name.encode() + bytes(1))))}")


# In another network namespace: that of a process, or of a descriptor.
NET_NS_PID, NET_NS_FD, NEW_NET = 19, 28, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def child(job):
    """Starts a process, which does the job. Returns it, and what it writes once it has."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, job().encode())
        os.close(write)
        signal.pause()
    os.close(write)
    said = b"".join(iter(lambda: os.read(read, 4096), b""))
    os.close(read)
    return pid, said.decode()


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def unshare():
    return "" if libc.unshare(NEW_NET) == 0 else os.strerror(ctypes.get_errno())


def names():
    """Returns the names of devices in the other namespace."""
    listed = lambda: libc.setns(there, NEW_NET) or str(sorted(n for _, n in socket.if_nameindex() if n[0] in "nx"))
    pid, said = child(listed)
    end(pid)
    return said


other_process, why = child(unshare)
assert not why, why
there = os.open(f"/proc/{other_process}/ns/net", os.O_RDONLY)
null = os.open("/dev/null", os.O_RDONLY)
process, descriptor = attr(NET_NS_PID, word(other_process)), attr(NET_NS_FD, word(there))
for title, type_, flags, name, data_, more in [
    ("one that is there", NEWLINK, NEW, b"lo", data(112), descriptor),
    ("no process", NEWLINK, NEW, b"n2", data(112), attr(NET_NS_PID, word(0x3FFFFFFF))),
    ("no descriptor", NEWLINK, NEW, b"n2", data(112), attr(NET_NS_FD, word(9999))),
    ("the descriptor of another file", NEWLINK, NEW, b"n2", data(112), attr(NET_NS_FD, word(null))),
    ("no id", NEWLINK, NEW, b"n2", data(link=below), process),
    ("here", NEWLINK, NEW, b"n0", data(110, below), b""),
    ("one more", NEWLINK, NEW, b"n1", data(111, below), b""),
    ("moved to a process", SETLINK, ACK, b"n0", None, process),
    ("moved to a descriptor", SETLINK, ACK, b"n1", None, descriptor),
    ("moved once more", SETLINK, ACK, b"n0", None, process),
    ("change of one that is there", NEWLINK, ACK, b"n0", data(115, below), b""),
    ("the id of one that is there", NEWLINK, NEW, b"n2", data(110), b""),
    ("the name of one that is there", NEWLINK, NEW, b"n1", data(116), b""),
]:
    body = attr(IFNAME, name + bytes(1)) + more if type_ == SETLINK else device(name, data_, more=more)
    print(f"{title}: {outcome(ask(type_, flags, 0, body))}")
print(names(), [n for _, n in socket.if_nameindex() if n[0] == "n"])
end(other_process)
os.close(there)
deadline = time.monotonic() + 60
while (said := outcome(ask(NEWLINK, NEW, 0, device(b"n0", data(110))))) == "EEXIST" and time.monotonic() < deadline:
    time.sleep(0.05)
print(f"the id of one whose namespace has ended: {said}")
print(f"delete: {outcome(ask(DELLINK, ACK, 0, attr(IFNAME, b'n0' + bytes(1))))}")
