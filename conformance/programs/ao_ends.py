#!/usr/bin/env python3
"""What follows the end of protected connections on loopback, and a connection that begins without connect().

usage: ao_ends.py again|half-closed|cookie|fastopen COMMAND...

again: a client connects once more from its port while the server's end is in TIME_WAIT.
half-closed: the server closes, and the client a little later, again and again; then it runs the command, which shows the state of
sockets as JSON, until none is established.
cookie: when a connection has ended, an unsigned answer to the SYN cookie of its handshake comes to the listener.
fastopen: data goes with MSG_FASTOPEN.

Prints what it has seen."""
import errno
import json
import select
import socket
import struct
import subprocess
import sys
import time
from ao_key import add_key

CLIENT, SERVER = ("127.0.0.1", 40000), ("127.0.0.2", 1790)
ACK, PSH, SYN = 16, 8, 2
MSG_FASTOPEN = 0x20000000


def listener():
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    add_key(sock, CLIENT[0], 1, 2)
    sock.bind(SERVER)
    sock.listen()
    return sock


def client(port=CLIENT[1]):
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((CLIENT[0], port))
    add_key(sock, SERVER[0], 2, 1)
    # A lost segment is repeated after a second.
    sock.settimeout(20)
    return sock


def connected(server, port=CLIENT[1]):
    one = client(port)
    one.connect(SERVER)
    return one, server.accept()[0]


def again(_):
    server = listener()
    one, other = connected(server)
    other.close()
    assert one.recv(1) == b""
    one.close()
    while True:
        begun = time.monotonic()
        try:
            one, other = connected(server)
            break
        except OSError as e:
            # The client's end has not heard yet that its FIN has come.
            if e.errno != errno.EADDRNOTAVAIL:
                raise
    one.sendall(b"question")
    assert other.recv(100) == b"question"
    # The kernel repeats a SYN after one second, and after three: then it was not taken at once.
    print("connected at once" if time.monotonic() - begun < 0.9 else "connected later")


def half_closed(command):
    server = listener()
    for port in range(40000, 40020):
        one, other = connected(server, port)
        other.close()
        assert one.recv(1) == b""
        # By now the server's end is an entry of the kernel that waits for the client.
        time.sleep(0.05)
        one.close()
    end = time.monotonic() + 30
    while time.monotonic() < end:
        told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        states = [one["state"] for one in told[0]["namespaces"][0]["sockets"]]
        if "established" not in states:
            print("none is left")
            return
        time.sleep(0.1)
    print(f"{states.count('established')} are left")


def checksum(data):
    total = sum(struct.unpack(f">{len(data) // 2}H", data.ljust(len(data) + len(data) % 2, b"\0")))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(seq, ack, payload=b""):
    """An unsigned segment of the client, as loopback carries it."""
    source, to = socket.inet_aton(CLIENT[0]), socket.inet_aton(SERVER[0])
    tcp = struct.pack(">HHIIBBHHH", CLIENT[1], SERVER[1], seq, ack, 5 << 4, ACK | PSH, 65000, 0, 0) + payload
    total = checksum(source + to + struct.pack(">BBH", 0, 6, len(tcp)) + tcp)
    tcp = tcp[:16] + struct.pack(">H", total) + tcp[18:]
    head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + source + to
    return bytes(12) + b"\x08\0" + head[:10] + struct.pack(">H", checksum(head)) + head[12:] + tcp


def cookie(_):
    # A frame that comes from outside may have addresses of loopback.
    for name, value in ("tcp_syncookies", 2), ("conf/lo/route_localnet", 1), ("conf/lo/accept_local", 1):
        with open(f"/proc/sys/net/ipv4/{name}", "w") as setting:
            setting.write(str(value))
    wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x0800))
    wire.bind(("lo", 0))
    server = listener()
    one, other = connected(server)
    numbers = None
    while numbers is None:
        seen = wire.recv(65536)
        if seen[47] & (SYN | ACK) == SYN | ACK and seen[23] == socket.IPPROTO_TCP:
            isn, ack = struct.unpack_from(">II", seen, 38)
            numbers = ack, isn + 1 & 0xFFFFFFFF
    one.close()
    assert other.recv(1) == b""
    other.close()
    # The server's end is in LAST_ACK until its FIN is acknowledged.
    time.sleep(0.3)
    for _ in range(20):
        wire.send(frame(*numbers))
        wire.send(frame(*numbers, b"unsigned"))
        if select.select([server], [], [], 0.05)[0]:
            print("accepted", server.accept()[0].recv(100))
            return
    print("nothing came")


def fastopen(_):
    server = listener()
    one = client()
    one.settimeout(None)
    one.sendto(b"question", MSG_FASTOPEN, SERVER)
    server.settimeout(20)
    print("came", server.accept()[0].recv(100))


{"again": again, "half-closed": half_closed, "cookie": cookie, "fastopen": fastopen}[sys.argv[1]](sys.argv[2:])
