#!/usr/bin/env python3
"""Calls of TCP-AO about VRFs, and what each is answered: keys that are bound to a VRF, to a device of one, to none; sockets that
are bound to them before and after; lists and deletions by VRF. Needs VRFs `red` and `blue` with the devices `to-red` and `to-blue`, and a
route to 10.85.0.9 outside of them. Prints a line for each call."""
import errno
import itertools
import socket
import struct
import sys

ADD, DEL, INFO, GET, MD5_EXT = 38, 39, 40, 41, 32
IFINDEX = 1
DEVICES = ["red", "blue", "to-red", "lo"]


def index(device):
    return 0 if device is None else 9999 if device == "none" else socket.if_nametoindex(device)


def address(text="10.85.0.9"):
    return struct.pack("=HH4s120x", socket.AF_INET, 0, socket.inet_aton(text))


def key(device, flags, send=1, recv=1, to="10.85.0.9"):
    secret = b"secret"
    return struct.pack("=128s64siIH6B80s", address(to), b"hmac(sha1)", index(device), 0, 0, 32, send, recv, 0, flags,
                       len(secret), secret)


def deletion(device, flags, send=1, recv=1):
    return struct.pack("=128siIH6B4x", address(), index(device), 0, 0, 32, send, recv, 0, 0, flags)


def md5(device, flags):
    return struct.pack("=128sBBHi80s", address(), flags | 1, 32, 6, index(device), b"secret")


def made(device=None):
    sock = socket.socket()
    if device:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    return sock


def answer(call):
    try:
        return call() or "done"
    except OSError as e:
        return errno.errorcode.get(e.errno, str(e.errno))


def put(sock, option, value):
    return answer(lambda: sock.setsockopt(socket.IPPROTO_TCP, option, value))


def listed(sock, device, flags, get_all):
    """The keys of a socket: VRF, flags and ids."""
    size = 304
    # tcp_ao_getsockopt: the address or none, counts at 272, flags and ids behind the name.
    asked = bytearray(size * 4)
    if not get_all:
        asked[:128] = address()
    struct.pack_into("=I", asked, 272, 4)
    struct.pack_into("=H", asked, 276, 4 if get_all else 0)
    asked[278:282] = bytes([1, 1, 0 if get_all else 32, 0]) if not get_all else bytes(4)
    asked[282] = flags
    struct.pack_into("=i", asked, 284, index(device))
    return answer(lambda: get(sock, asked, size))


def get(sock, asked, size):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * len(asked)).from_buffer(asked)
    length = ctypes.c_int(size)
    if libc.getsockopt(sock.fileno(), socket.IPPROTO_TCP, GET, buffer, ctypes.byref(length)):
        raise OSError(ctypes.get_errno(), "getsockopt")
    count = struct.unpack_from("=I", asked, 272)[0]
    names = {index(device): device for device in DEVICES} | {0: "-"}
    rows = []
    for at in range(0, min(count, 4) * size, size):
        rows.append(f"{names.get(struct.unpack_from('=i', asked, at + 284)[0])}/{asked[at + 282]}")
    return f"{count}: {' '.join(rows)}"


def say(*words):
    print(*words, flush=True)


probe = put(made(), ADD, key(None, 0))
if probe == "ENOPROTOOPT":
    say("no TCP-AO")
    sys.exit(0)
for device, flags in itertools.product([None, "red", "blue", "to-red", "lo", "none"], [0, IFINDEX]):
    for bound in [None, "red", "to-red"]:
        say("key of", device, flags, "on a socket of", bound, put(made(bound), ADD, key(device, flags)))
# Keys of several VRFs beside each other.
orders = itertools.permutations([(None, 0), (None, IFINDEX), ("red", IFINDEX), ("blue", IFINDEX)], 2)
for (first, first_flags), (second, second_flags) in orders:
    sock = made()
    said = [put(sock, ADD, key(first, first_flags)), put(sock, ADD, key(second, second_flags))]
    said += [listed(sock, None, 0, True), listed(sock, None, 0, False), listed(sock, "red", IFINDEX, False),
             listed(sock, None, IFINDEX, False), listed(sock, "red", 0, False)]
    said += [put(sock, DEL, deletion(first, first_flags)), put(sock, DEL, deletion(first, first_flags))]
    say("keys of", first, first_flags, second, second_flags, *said)
# Other kinds of keys.
for (ao, ao_flags), (other, other_flags) in itertools.product([(None, 0), ("red", IFINDEX)],
                                                              [(None, 0), ("red", 2), ("blue", 2)]):
    sock = made()
    say("MD5 after", ao, ao_flags, other, other_flags, put(sock, ADD, key(ao, ao_flags)),
        put(sock, MD5_EXT, md5(other, other_flags)))
    sock = made()
    say("MD5 before", ao, ao_flags, other, other_flags, put(sock, MD5_EXT, md5(other, other_flags)),
        put(sock, ADD, key(ao, ao_flags)))
# What a connect() takes: only keys of the VRF.
for bound, (device, flags) in itertools.product([None, "red", "to-red"],
                                                [(None, 0), (None, IFINDEX), ("red", IFINDEX), ("blue", IFINDEX)]):
    sock = made(bound)
    sock.setblocking(False)
    said = [put(sock, ADD, key(device, flags)), put(sock, ADD, key("blue", IFINDEX, 7, 7))]
    said.append(answer(lambda: sock.connect(("10.85.0.9", 9))))
    said += [listed(sock, None, 0, True), put(sock, ADD, key("blue", IFINDEX, 8, 8)),
             put(sock, ADD, key("red", IFINDEX, 9, 9)), put(sock, ADD, key(None, 0, 10, 10))]
    say("connect of", bound, "with", device, flags, *said)
