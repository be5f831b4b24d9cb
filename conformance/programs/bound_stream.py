#!/usr/bin/env python3
"""Connections of sockets that are bound to a device, covered by IPsec policies.

usage: bound_stream.py CLIENT GATEWAY REMOTE      see three_spaces.py

A socket of the gateway that is bound to the wire connects to the remote one, and sends segments that are too long for a packet once
they are sealed: it has to hear of the length that fits. Prints for each family what it says, and how much arrives.
"""
import contextlib, errno, socket, sys, threading
from three_spaces import FAMILY, Net, address, key_manager

PORT = 7000
MUCH = 1_000_000
PATIENCE_S = 30
KEY = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128"


def policies(place):
    """The commands of the key manager of a place."""
    text = ""
    for version in (4, 6):
        both, long = [address(version, f"wire.{n}") for n in (1, 2)], 32 if version == 4 else 128
        for n, (source, destination) in enumerate([both, both[::-1]]):
            ends, spi = f"src {source} dst {destination}", 0x1000 * version + n
            text += f"ip xfrm state add {ends} proto esp spi {spi} reqid {spi} mode transport {KEY}\n"
            text += (
                f"ip xfrm policy add src {source}/{long} dst {destination}/{long} proto tcp {['dport', 'sport'][n]} {PORT} "
                f"dir {'out' if (place == 'g') == (n == 0) else 'in'} tmpl {ends} proto esp reqid {spi} mode transport\n"
            )
    return text


def stream(net, version):
    """Sends much. Returns what the socket says, and how much arrives."""
    arrived = 0

    def read():
        nonlocal arrived
        with contextlib.suppress(OSError), server.accept()[0] as s:
            s.settimeout(PATIENCE_S)
            while data := s.recv(1 << 16):
                arrived += len(data)

    to = (address(version, "wire.2"), PORT)
    with net.socket("r", FAMILY[version], socket.SOCK_STREAM) as server:
        server.settimeout(PATIENCE_S)
        server.bind(to)
        server.listen()
        reader = threading.Thread(target=read)
        reader.start()
        said = "sent"
        with net.socket("g", FAMILY[version], socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"wire")
            s.settimeout(PATIENCE_S)
            try:
                s.connect(to)
                s.sendall(bytes(MUCH))
            except OSError as e:
                said = errno.errorcode.get(e.errno, "nothing")
        reader.join()
    return said, arrived


def main():
    net = Net(dict(zip("cgr", sys.argv[1:4])))
    with key_manager(net) as run:
        for place in "gr":
            run(place, policies(place))
        for version in (4, 6):
            said, arrived = stream(net, version)
            print(f"IPv{version}: {said}, {arrived} bytes arrive", flush=True)


main()
