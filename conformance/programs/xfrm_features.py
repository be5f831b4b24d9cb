#!/usr/bin/env python3
"""Lists the interfaces that can offload ESP, as strongSwan's charon asks: by SIOCETHTOOL on a socket of NETLINK_XFRM.

    xfrm_features.py INTERFACE...
"""

import array
import fcntl
import socket
import struct
import sys

SIOCETHTOOL = 0x8946
GSTRINGS, GSSET_INFO, GFEATURES = 0x1B, 0x37, 0x3A
FEATURES = 4


def ask(sock, name, command):
    data = array.array("B", command)
    at, _ = data.buffer_info()
    fcntl.ioctl(sock, SIOCETHTOOL, struct.pack("16sQ16x", name.encode(), at))
    return data.tobytes()


def main():
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 6)
    count = struct.unpack_from("I", ask(sock, "lo", struct.pack("IIQI", GSSET_INFO, 0, 1 << FEATURES, 0)), 16)[0]
    strings = ask(sock, "lo", struct.pack("III", GSTRINGS, FEATURES, count) + bytes(count * 32))[12:]
    names = [strings[i * 32:][:32].split(b"\0")[0] for i in range(count)]
    bit = names.index(b"esp-hw-offload")
    blocks = (count + 31) // 32
    for name in sys.argv[1:]:
        try:
            answer = ask(sock, name, struct.pack("II", GFEATURES, blocks) + bytes(blocks * 16))
        except OSError as e:
            print(name, e.strerror)
            continue
        active = struct.unpack_from("I", answer, 8 + bit // 32 * 16 + 8)[0]
        print(name, "yes" if active >> (bit % 32) & 1 else "no")


main()
