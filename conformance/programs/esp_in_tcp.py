"""A key manager whose IKE goes by TCP (RFC 9329), as pluto's does: sockets that do not wait, and epoll.

    esp_in_tcp.py listen ADDRESS PORT     takes connections; each message is answered
    esp_in_tcp.py connect ADDRESS PORT    makes one, and says hello

It writes a line for each connection, with the port of whoever made it, for each message, and for the end of a connection. By
lines of its standard input it says something (`say TEXT`), says it very often without waiting (`flood COUNT TEXT`), and stops
or goes on reading (`deaf`, `hear`). When the input ends it goes on.
"""
import os
import select
import socket
import sys

TCP_ULP = 31
PREFIX = b"IKETCP"
how, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
family = socket.AF_INET6 if ":" in address else socket.AF_INET
poller = select.epoll()
fresh, streams = {}, {}


def say(*words):
    print(*words, flush=True)


def take(sock, peer_port):
    sock.setsockopt(socket.IPPROTO_TCP, TCP_ULP, b"espintcp\0")
    streams[sock.fileno()] = sock
    say("connection from", peer_port)


def send(sock, text):
    os.write(sock.fileno(), bytes(4) + text.encode())


def read(sock):
    """Reads a message; returns whether there was one."""
    try:
        message = os.read(sock.fileno(), 65536)
    except BlockingIOError:
        return False
    except ConnectionError:
        message = b""
    if not message:
        say("end")
        poller.unregister(sock.fileno())
        del streams[sock.fileno()]
        sock.close()
        return False
    text = message[4:].decode()
    say("IKE" if message[:4] == bytes(4) else "not IKE", text)
    if how == "listen" and not text.startswith("flood"):
        send(sock, f"answer to {text}")
    return True


def obey(line):
    word, _, rest = line.partition(" ")
    for sock in list(streams.values()):
        if word == "say":
            send(sock, rest)
        elif word == "flood":
            count, _, text = rest.partition(" ")
            sock.setblocking(True)
            for n in range(int(count)):
                send(sock, f"flood {text} {n}")
            sock.setblocking(False)
            say("flooded")
        elif word == "deaf":
            poller.modify(sock.fileno(), 0)
            say("is deaf")
        elif word == "hear":
            while read(sock):
                pass
            poller.modify(sock.fileno(), select.EPOLLIN)
            say("hears")


if how == "listen":
    listener = socket.create_server((address, port), family=family, reuse_port=True)
    listener.setblocking(False)
    poller.register(listener.fileno(), select.EPOLLIN)
    say("listening")
else:
    listener = None
    made = socket.create_connection((address, port))
    made.sendall(PREFIX)
    made.setblocking(False)
    here = made.getsockname()[1]
    take(made, here)
    poller.register(made.fileno(), select.EPOLLIN)
    send(made, "hello")
try:
    poller.register(0, select.EPOLLIN)
except PermissionError:
    # It is a file.
    pass
lines = b""
while True:
    for fd, _ in poller.poll():
        if listener and fd == listener.fileno():
            sock, peer = listener.accept()
            sock.setblocking(False)
            poller.register(sock.fileno(), select.EPOLLIN)
            fresh[sock.fileno()] = sock, peer[1]
        elif fd == 0:
            more = os.read(0, 4096)
            if not more:
                poller.unregister(0)
            *whole, lines = (lines + more).split(b"\n")
            for line in whole:
                obey(line.decode())
        elif fd in fresh:
            sock, peer_port = fresh.pop(fd)
            assert sock.recv(len(PREFIX)) == PREFIX
            take(sock, peer_port)
        elif fd in streams:
            read(streams[fd])
