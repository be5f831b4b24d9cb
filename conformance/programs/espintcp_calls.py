"""What a program sees of sockets with `espintcp` above TCP (RFC 9329): a line for each call, with its result.

The peer is a socket without it, so that the bytes of the stream are seen too. All is on `lo`.
"""
import errno
import os
import select
import socket
import struct

TCP_ULP = 31
NAME = b"espintcp"
LIMIT = 30
FAMILIES = [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")]


def told(call):
    try:
        value = call()
    except OSError as e:
        return errno.errorcode[e.errno]
    if isinstance(value, (bytes, bytearray)):
        return f"{len(value)} bytes {bytes(value[:12]).hex()}"
    return value


def tell(title, call):
    print(f"{title}: {told(call)}", flush=True)


def take(sock, name=NAME):
    sock.setsockopt(socket.IPPROTO_TCP, TCP_ULP, name)


def pair(family, address, prefix=b""):
    """A connection: the end that has espintcp, and the plain one."""
    with socket.create_server((address, 0), family=family) as listener:
        plain = socket.create_connection(listener.getsockname()[:2])
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours = listener.accept()[0]
    for s in (ours, plain):
        s.settimeout(LIMIT)
    if prefix:
        plain.sendall(prefix)
        assert ours.recv(len(prefix), socket.MSG_WAITALL) == prefix
    return ours, plain


def frame(message):
    return struct.pack("!H", len(message) + 2) + message


def ike(text):
    return bytes(4) + text


def exactly(sock, count):
    data = b""
    while len(data) < count:
        more = sock.recv(count - len(data))
        if not more:
            break
        data += more
    return data


def events(sock, wait):
    poller = select.poll()
    poller.register(sock, select.POLLIN | select.POLLOUT)
    names = {select.POLLIN: "in", select.POLLOUT: "out", select.POLLHUP: "hup", select.POLLERR: "err"}
    for _, found in poller.poll(wait):
        return " ".join(name for bit, name in names.items() if found & bit)
    return "nothing"


def readable(sock):
    return bool(select.select([sock], [], [], LIMIT)[0])


for family, address in FAMILIES:
    print(f"-- {address}")
    with socket.socket(family, socket.SOCK_STREAM) as s:
        tell("of a listener", lambda: (s.bind((address, 0)), s.listen(), take(s))[2])
    with socket.socket(family, socket.SOCK_STREAM) as s:
        tell("of one that is not connected", lambda: take(s))
    with socket.socket(family, socket.SOCK_DGRAM) as s:
        tell("of UDP", lambda: take(s))
    ours, plain = pair(family, address)
    for name in [b"", b"espintc", b"espintcp2", b"nosuchprotocolatall"]:
        tell(f"of the name {name.decode()!r}", lambda: take(ours, name))
    tell("before it has one", lambda: ours.getsockopt(socket.IPPROTO_TCP, TCP_ULP, 16))
    tell("with an end", lambda: take(ours, NAME + b"\0"))
    tell("again", lambda: take(ours))
    tell("of another name then", lambda: take(ours, b"nosuch"))
    for room in (16, 32, 4, 0):
        tell(f"its name, {room} bytes of it", lambda: ours.getsockopt(socket.IPPROTO_TCP, TCP_ULP, room))
    for s in (ours, plain):
        s.close()

    # The client's end, before anything has come; what has come before is in the stream, too.
    ours, plain = pair(family, address, b"IKETCP")
    plain.sendall(frame(ike(b"early")) + frame(ike(b"bird"))[:7])
    assert readable(ours)
    take(ours)
    tell("it is read after the call", lambda: ours.recv(65536))
    plain.sendall(frame(ike(b"bird"))[7:])
    tell("and the rest of the next", lambda: ours.recv(65536))
    plain.sendall(frame(ike(b"one")) + frame(ike(b"two")) + frame(b"\xff") + frame(ike(b"three")))
    tell("one message at a time", lambda: ours.recv(65536))
    tell("the second", lambda: os.read(ours.fileno(), 65536))
    tell("a keep-alive is none", lambda: ours.recv(65536))
    ours.setblocking(False)
    tell("nothing more, without waiting", lambda: ours.recv(65536))
    tell("nothing, by MSG_DONTWAIT", lambda: ours.recv(10, socket.MSG_DONTWAIT))
    ours.settimeout(LIMIT)
    plain.sendall(frame(ike(b"a longer one")) + frame(ike(b"next")))
    tell("cut off", lambda: ours.recv(6))
    tell("the rest is gone", lambda: ours.recv(65536))
    plain.sendall(frame(ike(b"a longer one")))
    tell("MSG_PEEK", lambda: ours.recv(65536, socket.MSG_PEEK))
    tell("and then", lambda: ours.recv(65536))
    plain.sendall(frame(ike(b"a longer one")))
    into = bytearray(6)
    tell("MSG_TRUNC tells the length", lambda: ours.recv_into(into, 6, socket.MSG_TRUNC))
    plain.sendall(frame(ike(b"a longer one")))
    tell("recvmsg tells that it is cut", lambda: ours.recvmsg(6)[2] & socket.MSG_TRUNC)
    for message in [b"", b"\x00", b"\xfe", bytes(4)]:
        plain.sendall(frame(message))
    plain.sendall(frame(ike(b"x")))
    tell("short ones are none", lambda: ours.recv(65536))
    longest = ike(bytes(range(1, 250)) * 300)[:65533]
    plain.sendall(frame(longest))
    tell("the longest", lambda: ours.recv(1 << 17))

    print("sending")
    for title, call, count in [
        ("send", lambda: ours.send(ike(b"text")), 10),
        ("write", lambda: os.write(ours.fileno(), ike(b"text")), 10),
        ("writev", lambda: os.writev(ours.fileno(), [bytes(4), b"te", b"xt"]), 10),
        ("of one byte", lambda: ours.send(b"\xff"), 3),
        ("MSG_DONTWAIT", lambda: ours.send(ike(b"text"), socket.MSG_DONTWAIT), 10),
        ("the longest", lambda: ours.send(longest), 65535),
    ]:
        tell(title, call)
        tell("in the stream", lambda: exactly(plain, count))
    tell("too long", lambda: ours.send(longest + b"xx"))
    tell("much too long", lambda: ours.send(bytes(1 << 20)))

    print("waiting")
    tell("with nothing there", lambda: events(ours, 0))
    plain.sendall(frame(ike(b"a")))
    assert readable(ours)
    tell("with a message there", lambda: events(ours, 0))
    ours.recv(9)
    # ESP that no state is for does not make it readable; the message behind it does.
    plain.sendall(frame(bytes.fromhex("deadbeef00000001") + bytes(40)) + frame(ike(b"behind")))
    tell("behind ESP", lambda: ours.recv(65536))

    print("copies")
    poller = select.epoll()
    other, plain2 = pair(family, address)
    poller.register(other.fileno(), select.EPOLLIN)
    copy = other.dup()
    take(other)
    plain2.sendall(frame(ike(b"watched")))
    tell("epoll", lambda: [(fd == other.fileno(), event) for fd, event in poller.poll(LIMIT)])
    tell("a copy from before", lambda: copy.recv(65536))
    tell("epoll then", lambda: poller.poll(0))
    tell("modified", lambda: poller.modify(other.fileno(), select.EPOLLOUT))
    tell("epoll, to write", lambda: [(fd == other.fileno(), event) for fd, event in poller.poll(LIMIT)])
    child = os.fork()
    if not child:
        copy.send(ike(b"child"))
        os._exit(0)
    os.waitpid(child, 0)
    tell("a child's", lambda: exactly(plain2, 11))
    other.close()
    tell("one of two is closed", lambda: copy.send(ike(b"still")))
    tell("in the stream", lambda: exactly(plain2, 11))
    tell("epoll does not watch it any more", lambda: [event for _, event in poller.poll(0)])
    copy.close()
    tell("both are", lambda: plain2.recv(9))
    plain2.close()

    print("ends")
    ours.send(ike(b"last"))
    ours.close()
    tell("what was written", lambda: exactly(plain, 99))
    plain.close()
    ours, plain = pair(family, address)
    take(ours)
    plain.sendall(frame(ike(b"last")))
    plain.close()
    tell("the peer's last", lambda: ours.recv(65536))
    assert readable(ours)
    tell("its end", lambda: ours.recv(65536, socket.MSG_DONTWAIT))
    ours.close()
    ours, plain = pair(family, address)
    take(ours)
    ours.shutdown(socket.SHUT_WR)
    tell("an end of sending, at the peer", lambda: plain.recv(9))
    plain.sendall(frame(ike(b"answer")))
    tell("and receiving goes on", lambda: ours.recv(65536))
    tell("sending does not", lambda: ours.send(ike(b"more")))
    ours.close()
    plain.close()
