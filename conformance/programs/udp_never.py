#!/usr/bin/env python3
"""Sends and counts UDP datagrams to port 4444, by which tests see what passes unprotected.

usage: udp_never.py wire DEVICE      counts those that arrive at a device, and packets of ESP; fragments count, too
       udp_never.py listen           counts those that reach a program
       udp_never.py send COUNT SIZE FROM TO...

The first two print `watching`, count until their standard input ends, and print `clear N esp M` or `got N`. Sending goes on
where the kernel refuses: only what leaves counts.
"""
import select, socket, sys

PORT = 4444
ETH_P_ALL, PACKET_OUTGOING = 3, 4
UDP, ESP, FRAGMENT = 17, 50, 44


def protocol(frame):
    """The protocol of an IP packet, and whether it is a datagram to the port, or a later fragment of one."""
    kind, packet = frame[12:14], frame[14:]
    if kind == b"\x08\x00":
        upper = (packet[0] & 15) * 4
        later, proto = (packet[6] & 0x1f) << 8 | packet[7], packet[9]
    elif kind == b"\x86\xdd":
        proto, upper, later = packet[6], 40, 0
        if proto == FRAGMENT:
            proto, later, upper = packet[40], (packet[42] << 8 | packet[43]) & 0xfff8, 48
    else:
        return None, False
    to = int.from_bytes(packet[upper + 2:upper + 4], "big")
    return proto, proto == UDP and (later > 0 or to == PORT)


def wire(device):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    sock.bind((device, 0))
    clear = esp = 0
    print("watching", flush=True)
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sock in ready:
            frame, address = sock.recvfrom(65536)
            if address[2] != PACKET_OUTGOING:
                proto, ours = protocol(frame)
                clear, esp = clear + ours, esp + (proto == ESP)
        elif not sys.stdin.read(1):
            return print(f"clear {clear} esp {esp}")


def listen():
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", PORT))
    got = 0
    print("watching", flush=True)
    while True:
        ready, _, _ = select.select([sock, sys.stdin], [], [])
        if sock in ready:
            sock.recv(65536)
            got += 1
        elif not sys.stdin.read(1):
            return print(f"got {got}")


def send(count, size, source, destinations):
    for to in destinations:
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_DGRAM)
        sock.bind((source if (":" in source) == (":" in to) else "", 0))
        for _ in range(count):
            try:
                sock.sendto(bytes(size), (to, PORT))
            except OSError:
                pass


what, *rest = sys.argv[1:]
if what == "send":
    send(int(rest[0]), int(rest[1]), rest[2], rest[3:])
elif what == "wire":
    wire(rest[0])
else:
    listen()
