#!/usr/bin/env python3
"""Watches a device until its standard input ends, while ESP there authenticates and does not encrypt (GMAC with an ICV of 16
bytes). Prints how many ESP packets carry IP-TFS and how many something else, how many other packets there are (but for those of
the neighbours themselves); and of IP-TFS, how many go on with a packet that began before, how many have several packets, how
many have a header that is not as RFC 9347 says, and the length of the longest outer packet. A superframe, which a card would
cut, counts as the packets that it has."""
import struct
import sys

from frames import frames, ip, packet_socket

UDP, ESP, ICMPV6, AGGFRAG = 17, 50, 58, 144
UDP_LEN, HEADER, ICV = 8, 8 + 8, 16
# linux/if_packet.h, linux/virtio_net.h: the header before each frame says whether it is a superframe, and of what lengths.
SOL_PACKET, PACKET_VNET_HDR, VNET_LEN = 263, 15, 10
GSO_NONE, GSO_UDP_L4 = 0, 5
s = packet_socket()
s.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
tfs = other = clear = pieces = several = wrong = longest = 0


def starts(blocks):
    """The number of packets that begin in these blocks."""
    count = 0
    while blocks and blocks[0] >> 4:
        count += 1
        if blocks[0] >> 4 == 4:
            length = struct.unpack_from("!H", blocks, 2)[0]
        else:
            length = 40 + struct.unpack_from("!H", blocks, 4)[0]
        blocks = blocks[length:]
    return count


def outer_packets(gso, length, payload):
    """ESP of each packet in a frame of this kind of superframe, whose last packet may be shorter than the others."""
    if gso == GSO_NONE:
        return [payload]
    assert gso == GSO_UDP_L4, gso
    return [payload[at:at + length] for at in range(0, len(payload), length)]


for frame, _ in frames(s, sys.argv[1], 32 << 20, VNET_LEN + (1 << 17), before=VNET_LEN):
    _, gso, _, gso_len = struct.unpack_from("=BBHH", frame)
    found = ip(frame[VNET_LEN:])
    if not found:
        continue
    packet, proto, at, end = found
    if proto == UDP and struct.unpack_from("!HH", packet, at) == (4500, 4500):
        proto, at = ESP, at + UDP_LEN
    if proto != ESP:
        # Multicast listeners announce themselves behind a hop-by-hop header.
        neighbours = proto == 0 or proto == ICMPV6 and packet[at] >= 130
        clear += not neighbours
        continue
    for esp in outer_packets(gso, gso_len, packet[at:end]):
        longest = max(longest, at + len(esp))
        trailer = len(esp) - ICV - 2
        padding, inside = esp[trailer], esp[trailer + 1]
        if inside != AGGFRAG:
            other += 1
            continue
        tfs += 1
        payload = esp[HEADER:trailer - padding]
        kind, flags, offset = struct.unpack_from("!BBH", payload)
        blocks = payload[4:]
        wrong += (kind, flags) != (0, 0) or not blocks
        pieces += offset > 0
        several += starts(blocks[offset:]) + (offset > 0) > 1
print(f"tfs {tfs} other {other} clear {clear} pieces {pieces} several {several} wrong {wrong} longest {longest}.")
