#!/usr/bin/env python3
"""Exercises a socket of NETLINK_XFRM apart from its messages: the output is the same on a kernel and under `sealane run`."""
import errno
import os
import select
import signal
import socket
import struct
import time

XFRM = 6
SOL_NETLINK, ADD, DROP, PKTINFO, LIST, CAP_ACK, EXT_ACK, NO_ENOBUFS = 270, 1, 2, 3, 9, 10, 11, 5
GETSADINFO, NEWSADINFO, FLUSHSA, DELSA, GETSA, NEWSA = 0x23, 0x22, 0x1C, 0x11, 0x12, 0x10


def show(name, what):
    try:
        print(name, what())
    except OSError as e:
        print(name, errno.errorcode.get(e.errno, e))


def new(*options, groups=None, type_=socket.SOCK_RAW):
    s = socket.socket(socket.AF_NETLINK, type_, XFRM)
    for o in options:
        s.setsockopt(SOL_NETLINK, o, 1)
    if groups is not None:
        s.bind((0, groups))
    s.settimeout(None)
    return s


def message(type_, flags, body, seq=1):
    return struct.pack("=IHHII", 16 + len(body), type_, flags, seq, 0) + body


def same(frame):
    """A frame without port numbers."""
    out, at = b"", 0
    while at + 16 <= len(frame):
        n, t, flags, seq, _port = struct.unpack_from("=IHHII", frame, at)
        out += struct.pack("=IHHII", n, t, flags, seq, 0) + frame[at + 16 : at + n]
        at += (n + 3) & ~3
    return out.hex()


question = message(GETSADINFO, 1, struct.pack("=I", 0))
wrong = message(DELSA, 5, bytes(24) + struct.pack("=HH4x", 8, 1))
noop = message(1, 5, b"")
add = message(
    NEWSA,
    0x405,
    bytes(56) + socket.inet_aton("10.0.0.2") + bytes(12) + struct.pack(">IB3x", 0x77, 51) + socket.inet_aton("10.0.0.1") + bytes(12)
    + struct.pack("=8Q", *[2**64 - 1] * 4, 0, 0, 0, 0) + bytes(32) + bytes(12) + struct.pack("=IIHBBB7x", 0, 0, socket.AF_INET, 1, 0, 0)
    + struct.pack("=HH", 4 + 68 + 20, 1) + b"hmac(sha1)".ljust(64, b"\0") + struct.pack("=I", 160) + bytes(20),
)

# Names and options.
s = new()
show("domain", lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN))
show("type", lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
show("protocol", lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_PROTOCOL))
show("passcred", lambda: s.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED))
show("name", s.getsockname)
show("peer", s.getpeername)
show("nothing", lambda: s.recv(10, socket.MSG_DONTWAIT))
show("poll", lambda: len(select.select([s], [s], [], 0)[0]))
show("writable", lambda: len(select.select([], [s], [], 0)[1]))
show("listen", lambda: s.listen(1))
show("accept", lambda: s.accept())
show("shutdown", lambda: s.shutdown(socket.SHUT_RD))
show("oob", lambda: s.recv(10, socket.MSG_OOB))
show("send nothing", lambda: s.send(b""))
show("send oob", lambda: s.send(question, socket.MSG_OOB))
show("still no name", s.getsockname)

# A request and its answer.
show("send", lambda: s.send(question))
show("named", lambda: s.getsockname()[0] == os.getpid())
show("ready", lambda: len(select.select([s], [], [], 5)[0]))
show("peek", lambda: same(s.recv(4096, socket.MSG_PEEK)))
show("short peek", lambda: len(s.recv(10, socket.MSG_PEEK)))
buf = bytearray(8)
show("trunc peek", lambda: s.recv_into(buf, 8, socket.MSG_PEEK | socket.MSG_TRUNC))
show("recvmsg peek", lambda: s.recvmsg(8, 64, socket.MSG_PEEK)[1:])
show("from", lambda: s.recvfrom(4096)[1])
show("empty again", lambda: s.recv(10, socket.MSG_DONTWAIT))
s.send(question)
show("cut", lambda: [len(x) if isinstance(x, bytes) else x for x in s.recvmsg(8)])
show("cut is gone", lambda: s.recv(10, socket.MSG_DONTWAIT))
os.write(s.fileno(), question)
show("read", lambda: len(os.read(s.fileno(), 4096)))
os.writev(s.fileno(), [question[:7], question[7:]])
show("readv", lambda: os.readv(s.fileno(), [bytearray(5), bytearray(4096)]))
s.sendmsg([question[:16], question[16:]])
show("recvmsg into", lambda: s.recvmsg_into([bytearray(5), bytearray(4096)])[0])

# Destinations.
show("to the kernel", lambda: s.sendto(question, (0, 0)))
show("its answer", lambda: len(s.recv(4096)))
show("connect", lambda: s.connect((0, 0)))
show("connected", s.getpeername)
show("send connected", lambda: s.send(question))
show("its answer", lambda: len(s.recv(4096)))
show("bind again", lambda: s.bind((0, 0)))
show("bind elsewhere", lambda: s.bind((12345678, 0)))
t = new(groups=0)
show("second name", lambda: t.getsockname()[0] not in (0, os.getpid()))
show("taken", lambda: new().bind((t.getsockname()[0], 0)))
u = new()
show("chosen", lambda: u.bind((12345678, 0)))
show("chosen name", u.getsockname)

# Acknowledgements.
for options in [(), (EXT_ACK,), (CAP_ACK,), (EXT_ACK, CAP_ACK)]:
    a = new(*options, groups=0)
    for request in (noop, wrong, add, add, message(FLUSHSA, 5, struct.pack("=B3x", 51)), question[:-1], b"abc", bytes(16)):
        a.send(request)
        time.sleep(0.02)
        show(f"ack {options}", lambda: same(a.recv(4096, socket.MSG_DONTWAIT)))
    a.send(noop + question + noop)
    for _ in range(3):
        show("many", lambda: same(a.recv(4096)))

# Control messages.
c = new(PKTINFO, groups=0)
c.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
show("passcred", lambda: c.getsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED))
c.send(question)
show("control", lambda: c.recvmsg(4096, 256)[1:])
c.send(question)
show("little room", lambda: c.recvmsg(4096, 20)[1:])
c.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 0)
c.send(question)
show("less control", lambda: c.recvmsg(4096, 256)[1:])

# Groups.
g = new(PKTINFO, groups=1 << 2)
show("groups", lambda: g.getsockname()[1])
g.setsockopt(SOL_NETLINK, ADD, 4)
show("more groups", lambda: g.getsockname()[1])
show("list", lambda: g.getsockopt(SOL_NETLINK, LIST, 4))
show("no group", lambda: g.setsockopt(SOL_NETLINK, ADD, 33))
for request in (add, message(FLUSHSA, 5, struct.pack("=B3x", 51))):
    t.send(request)
    t.recv(4096)
    show("event", lambda: g.recvmsg(4096, 256)[1:])
g.setsockopt(SOL_NETLINK, DROP, 3)
t.send(add)
t.recv(4096)
show("no event", lambda: g.recv(4096, socket.MSG_DONTWAIT))
show("asker and listener", lambda: t.setsockopt(SOL_NETLINK, ADD, 3))
t.send(message(FLUSHSA, 5, struct.pack("=B3x", 51)))
show("event first", lambda: [struct.unpack_from("=H", t.recv(4096), 4)[0] for _ in range(2)])

# Too many bytes.
o = new(groups=1 << 2)
o.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
t.setsockopt(SOL_NETLINK, DROP, 3)
for _ in range(64):
    t.send(add)
    t.recv(4096)
    t.send(message(FLUSHSA, 5, struct.pack("=B3x", 51)))
    t.recv(4096)
show("overrun", lambda: o.recv(4096))
show("then events", lambda: len(o.recv(4096)) > 100)

# Waiting.
w = new(groups=0)
w.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("=qq", 0, 100000))
start = time.time()
show("timeout", lambda: w.recv(10))
print("it waited", 0.08 < time.time() - start)
os.set_blocking(w.fileno(), False)
show("nonblocking", lambda: w.recv(10))
os.set_blocking(w.fileno(), True)


class Alarm(Exception):
    pass


def alarm(*_):
    raise Alarm


signal.signal(signal.SIGALRM, alarm)
w = new(groups=0)
signal.setitimer(signal.ITIMER_REAL, 0.1)
try:
    w.recv(10)
except Alarm:
    print("interrupted")
signal.setitimer(signal.ITIMER_REAL, 0)

# Copies, children, ends.
d = socket.socket(fileno=os.dup(w.fileno()))
d.send(question)
show("by the other", lambda: len(w.recv(4096)))
d.send(question)
if (child := os.fork()) == 0:
    os._exit(0 if len(w.recv(4096)) > 20 else 1)
show("by a child", lambda: os.waitpid(child, 0)[1])
show("gone", lambda: w.recv(10, socket.MSG_DONTWAIT))
port = w.getsockname()[0]
w.close()
show("still there", lambda: new().bind((port, 0)))
d.close()
show("free", lambda: new().bind((port, 0)))
x = new(type_=socket.SOCK_DGRAM)
show("datagram", lambda: x.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE))
x.send(question)
show("its answer", lambda: len(x.recv(4096)))
show("stream", lambda: new(type_=socket.SOCK_STREAM))
for _ in range(300):
    y = new(groups=0)
    y.send(question)
    y.recv(4096)
    y.close()
print("many came and went")

# Requests without acknowledgement, with a socket or program that is closed at once.
SETDEFAULT, GETDEFAULT = 0x27, 0x28
done = 0
for i in range(40):
    wanted = bytes([2, 1 + i % 2, 2])
    if (child := os.fork()) == 0:
        y = new()
        y.send(message(SETDEFAULT, 1, wanted + b"\0"))
        os._exit(0)
    os.waitpid(child, 0)
    x.send(message(GETDEFAULT, 1, bytes(4)))
    done += x.recv(4096)[16:19] == wanted
print("done without a word", done)
