"""Frames that pass a device, for programs that watch it."""
import select
import socket
import struct
import sys

SO_RCVBUFFORCE = 33


def packet_socket():
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))


def from_daemon(device):
    """Returns a function that tells whether a frame of a packet socket, with its address, was never on the wire: a daemon has opened its
    packet, and has returned it to the device that it came by sealed. Its source says so (sealane_packets::incoming)."""
    source = struct.pack("=IH", 0, socket.if_nametoindex(device))
    return lambda frame, address: address[2] != socket.PACKET_OUTGOING and frame[6:12] == source


def frames(s, device, room, longest, before=0):
    """Watches the wire of a device by a packet socket with `room` bytes for frames that wait: prints `watching`, and yields each frame
    with its address until standard input ends. Each begins with `before` bytes that are not of the frame."""
    s.bind((device, 0))
    s.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, room)
    returned = from_daemon(device)
    print("watching", flush=True)
    while True:
        ready, _, _ = select.select([s, sys.stdin], [], [])
        if s in ready:
            data, address = s.recvfrom(longest)
            if not returned(data[before:], address):
                yield data, address
        elif sys.stdin in ready:
            return


def ip(frame):
    """Returns the IP packet in a frame, its protocol, the length of its header without options, and its own length; None if
    there is none."""
    packet = frame[14:]
    if frame[12:14] == b"\x08\x00":
        return packet, packet[9], 20, struct.unpack_from("!H", packet, 2)[0]
    if frame[12:14] == b"\x86\xdd":
        return packet, packet[6], 40, 40 + struct.unpack_from("!H", packet, 4)[0]
    return None
