"""Keys of TCP-AO by the kernel's socket option."""
import socket
import struct

TCP_AO_ADD_KEY = 38
SECRET = b"a secret of both"


def add_key(sock, peer, send_id, recv_id, secret=SECRET, mac_len=16, flags=0, alg=b"hmac(sha256)", chosen=False):
    """Adds a key for an IPv4 address (struct tcp_ao_add of linux/tcp.h); `chosen`: it is the one in use from now on."""
    addr = struct.pack("=HH4s", socket.AF_INET, 0, socket.inet_aton(peer)).ljust(128, b"\0")
    sock.setsockopt(socket.IPPROTO_TCP, TCP_AO_ADD_KEY, addr + struct.pack(
        "=64siIHBBBBBB80s", alg, 0, 3 if chosen else 0, 0, 32, send_id, recv_id, mac_len, flags, len(secret), secret))
