#!/usr/bin/env python3
"""Makes tcp-ao-linux.pcap and tcp-ao-linux.toml: TCP-AO as a real kernel signs it, captured on its loopback device.

    SEALANE_KERNELS/boot linux-7.3 -- conformance/vectors/tcp_ao_capture.py /tmp/tcp-ao-linux

Each scenario has a server port of its own. Nothing of Sealane takes part.
"""
import os
import socket
import struct
import sys
import threading
import time

ADD_KEY, INFO = 38, 40


def storage(addr):
    if ":" in addr:
        return struct.pack("=HHI16sI", socket.AF_INET6, 0, 0, socket.inet_pton(socket.AF_INET6, addr), 0).ljust(128, b"\0")
    return struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(addr)).ljust(128, b"\0")


def add_key(sock, peer, alg, key, sndid, rcvid, maclen=0, keyflags=0, current=0, rnext=0):
    prefix = 128 if ":" in peer else 32
    fields = struct.pack("=64siIHBBBBBB80s", alg.encode(), 0, current | rnext << 1, 0, prefix, sndid, rcvid, maclen, keyflags,
                         len(key), key)
    sock.setsockopt(socket.IPPROTO_TCP, ADD_KEY, storage(peer) + fields)


def set_rnext(sock, recv_id):
    sock.setsockopt(socket.IPPROTO_TCP, INFO, struct.pack("=IHBB40x", 2, 0, 0, recv_id))


class Capture(threading.Thread):
    """Outgoing packets of lo, as Ethernet frames; what is received there is the same once more."""

    def __init__(self, path):
        super().__init__(daemon=True)
        self.sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        self.sock.bind(("lo", 3))
        self.sock.settimeout(0.1)
        self.frames, self.done, self.path = [], False, path

    def run(self):
        while not self.done:
            try:
                frame, where = self.sock.recvfrom(65535)
            except TimeoutError:
                continue
            if where[2] == socket.PACKET_OUTGOING:
                self.frames.append((time.time_ns(), frame))

    def finish(self):
        time.sleep(0.3)
        self.done = True
        self.join()
        with open(self.path, "wb") as f:
            f.write(struct.pack("=IHHIIII", 0xa1b23c4d, 2, 4, 0, 0, 262144, 1))
            for ns, frame in self.frames:
                f.write(struct.pack("=IIII", ns // 10**9, ns % 10**9, len(frame), len(frame)) + frame)


def session(port, server, client, keys, client_keys=None, talk=None, reset=False):
    """`keys`: (algorithm, secret, server's SendID, server's RecvID, MAC length, flags). The client mirrors them."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    for alg, key, sndid, rcvid, maclen, flags in keys:
        add_key(listener, client, alg, key, sndid, rcvid, maclen, flags)
    listener.bind((server, port))
    listener.listen()
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.bind((client, 0))
    for alg, key, sndid, rcvid, maclen, flags in keys if client_keys is None else client_keys:
        add_key(sock, server, alg, key, rcvid, sndid, maclen, flags)
    sock.settimeout(0.5)
    try:
        sock.connect((server, port))
    except TimeoutError:
        sock.close()
        listener.close()
        return
    peer, _ = listener.accept()
    sock.sendall(b"from the client")
    peer.recv(100)
    peer.sendall(b"from the server, a little longer")
    sock.recv(100)
    if talk:
        talk(peer, sock)
    if reset:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("=ii", 1, 0))
    sock.close()
    time.sleep(0.05)
    peer.close()
    listener.close()
    time.sleep(0.05)


def rotate(peer, sock):
    """A connection starts with the key that was added last. The client asks for the first, the server follows, and asks in turn."""
    set_rnext(sock, 1)
    for _ in range(3):
        sock.sendall(b"with which key?")
        peer.recv(100)
        peer.sendall(b"with this")
        sock.recv(100)
    set_rnext(peer, 2)
    for _ in range(2):
        peer.sendall(b"and now?")
        sock.recv(100)
        sock.sendall(b"with the first")
        peer.recv(100)


V4, V6 = ("127.0.0.2", "127.0.0.1"), ("::1", "::1")


def main(path):
    # The algorithms that every kernel with TCP-AO has.
    sha1, sha256, cmac = "hmac(sha1)", "hmac(sha256)", "cmac(aes128)"
    plan = [
        (1701, V4, [(sha1, b"secret one", 1, 2, 12, 0)], {}),
        (1702, V6, [(sha256, b"secret two", 10, 20, 16, 2)], {"reset": True}),
        (1703, V4, [(cmac, b"sixteen bytes ok", 0, 255, 12, 0)], {}),
        (1704, V6, [(cmac, b"not sixteen bytes", 7, 7, 8, 0)], {}),
        (1705, V4, [(sha1, b"first", 1, 2, 12, 0), (sha256, b"second", 3, 4, 16, 0)], {"talk": rotate}),
        # Of these no connection comes.
        (1706, V4, [(sha1, b"the right one", 1, 1, 12, 0)], {"client_keys": [(sha1, b"the wrong one", 1, 1, 12, 0)]}),
        (1707, V4, [(sha256, b"options", 1, 1, 12, 0)], {"client_keys": [(sha256, b"options", 1, 1, 12, 2)]}),
        (1708, V4, [(sha1, b"ids", 1, 2, 12, 0)], {"client_keys": [(sha1, b"ids", 2, 1, 12, 0)]}),
        (1709, V4, [(sha1, b"unsigned", 1, 2, 12, 0)], {"client_keys": []}),
    ]
    capture = Capture(path + ".pcap")
    capture.start()
    config = [f"# The keys of tcp-ao-linux.pcap, which tcp_ao_capture.py made on {' '.join(os.uname()[i] for i in (0, 2))}."]
    for port, (server, client), keys, more in plan:
        session(port, server, client, keys, **more)
        config.append(f'\n[[peer]]\nprefix = "{client}"\nlocal-port = {port}')
        for alg, key, sndid, rcvid, maclen, flags in keys:
            config.append(f'[[peer.key]]\nsend-id = {sndid}\nrecv-id = {rcvid}\nalgorithm = "{alg}"\nmac-len = {maclen}\n'
                          f'include-tcp-options = {"false" if flags & 2 else "true"}\nsecret = "{key.decode()}"')
    capture.finish()
    with open(path + ".toml", "w") as f:
        f.write("\n".join(config) + "\n")
    print(len(capture.frames), "frames")


main(sys.argv[1])
