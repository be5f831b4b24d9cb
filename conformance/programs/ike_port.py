"""The sockets of a key manager at port 4500.

    ike_port.py ADDRESS...      binds a socket for each (0.0.0.0 or ::, as charon does, or one address, as libreswan),
                                takes ESP off them, and writes a line for each IKE message: the socket's address and it
    ike_port.py to ADDRESS TEXT sends an IKE message
    ike_port.py keepalive ADDRESS  sends a NAT keep-alive
    ike_port.py joined ADDRESS  sends a datagram that looks like ESP and one that looks like IKE, which travel as one
"""
import select
import socket
import sys

UDP_ENCAP, UDP_ENCAP_ESPINUDP = 100, 2


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


if sys.argv[1] == "to":
    with socket.socket(family(sys.argv[2]), socket.SOCK_DGRAM) as s:
        s.sendto(bytes(4) + sys.argv[3].encode(), (sys.argv[2], 4500))
    sys.exit()
if sys.argv[1] == "keepalive":
    with socket.socket(family(sys.argv[2]), socket.SOCK_DGRAM) as s:
        s.sendto(b"\xff", (sys.argv[2], 4500))
    sys.exit()
if sys.argv[1] == "joined":
    UDP_SEGMENT, LENGTH = 103, 64
    with socket.socket(family(sys.argv[2]), socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, LENGTH)
        s.sendto(bytes.fromhex("00001000").ljust(LENGTH, b"x") + bytes(LENGTH), (sys.argv[2], 4500))
    sys.exit()
sockets = []
for address in sys.argv[1:]:
    s = socket.socket(family(address), socket.SOCK_DGRAM)
    if s.family == socket.AF_INET6:
        s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind((address, 4500))
    s.setsockopt(socket.IPPROTO_UDP, UDP_ENCAP, UDP_ENCAP_ESPINUDP)
    sockets.append(s)
print("bound", flush=True)
while True:
    for s in select.select(sockets, [], [])[0]:
        message = s.recv(65536)
        kind = "IKE " + message[4:].decode("ascii", "replace") if message[:4] == bytes(4) else f"{len(message)} bytes"
        print(s.getsockname()[0], kind, flush=True)
