#!/usr/bin/env python3
"""Attacks on ESP by somebody on the wire, and by a peer that misbehaves.

    record PORT SPI COUNT FILE        keeps the next COUNT frames of this SPI that come in by PORT
    play PORT FILE TOP ESN MODE KEY   sends the frames of each attack named on standard input by PORT, and reports it. TOP
                                      is the number of the last recorded packet, ESN whether numbers are extended ("esn"),
                                      KEY the first byte of the cipher's key
    reach PORT ADDRESS                waits until ADDRESS behind PORT has received everything that was sent by PORT
    names                             the attacks

The algorithms are rfc3686(ctr(aes)) and hmac(sha256) of 128 bits, because Python has what they need."""
import hashlib
import hmac
import pickle
import select
import socket
import struct
import sys
import time

NONCE = bytes(range(16, 20))
AUTH_KEY = bytes(range(32))
ICV_LEN = 16


def times_two(x):
    return (x << 1) ^ (0x11B if x & 0x80 else 0)


def make_sbox():
    sbox, p, q = [0x63] * 256, 1, 1
    while True:
        p ^= times_two(p)
        q ^= q << 1
        q ^= q << 2
        q ^= q << 4
        q &= 0xFF
        q ^= 0x09 if q & 0x80 else 0
        twice = q << 8 | q
        sbox[p] = (q ^ twice >> 7 ^ twice >> 6 ^ twice >> 5 ^ twice >> 4) & 0xFF ^ 0x63
        if p == 1:
            return sbox


SBOX = make_sbox()


def round_keys(key):
    words, rcon = [list(key[i : i + 4]) for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = words[i - 1]
        if i % 4 == 0:
            word = [SBOX[b] for b in word[1:] + word[:1]]
            word[0] ^= rcon
            rcon = times_two(rcon)
        words.append([a ^ b for a, b in zip(word, words[i - 4])])
    return [sum(words[i : i + 4], []) for i in range(0, 44, 4)]


def aes(block, keys):
    state = [a ^ b for a, b in zip(block, keys[0])]
    for number in range(1, 11):
        state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
        if number < 10:
            mixed = []
            for c in range(0, 16, 4):
                column = state[c : c + 4]
                total = column[0] ^ column[1] ^ column[2] ^ column[3]
                mixed += [b ^ total ^ times_two(b ^ column[(i + 1) % 4]) for i, b in enumerate(column)]
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[number])]
    return bytes(state)


assert aes(bytes(range(16)), round_keys(bytes(range(16)))).hex() == "0a940bb5416ef045f1c39458c653ea5a", "AES"


def ctr(keys, iv, text):
    out = bytearray()
    for i in range(0, len(text), 16):
        stream = aes(NONCE + iv + struct.pack("!I", i // 16 + 1), keys)
        out += bytes(a ^ b for a, b in zip(text[i : i + 16], stream))
    return bytes(out)


def checksum(data):
    data += bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def ipv4(source, destination, proto, payload, length=None, version=0x45, fragment=0):
    def header(check):
        length_ = 20 + len(payload) if length is None else length
        return struct.pack("!BBHHHBBH4s4s", version, 0, length_, 0x1234, fragment, 64, proto, check, source, destination)

    return header(checksum(header(0))) + payload


def echo(number):
    head = lambda check: struct.pack("!BBHHH", 8, 0, check, 0x5EA1, number) + b"sixteen bytes of"
    return head(checksum(head(0)))


def udp(port):
    return struct.pack("!HHHH", 999, port, 16, 0) + b"8 bytes."


def esp(proto, start):
    """The offset of ESP at `start`, which may be in UDP; none without ESP."""
    return start + 8 if proto == 17 else start if proto == 50 else None


class Wire:
    """Recorded frames of ESP, from which others are made."""

    def __init__(self, frames, top, esn, mode, key):
        self.keys = round_keys(bytes([key]) + bytes(range(1, 16)))
        self.frames, self.top, self.esn, self.mode = frames, top, esn, mode
        last = frames[-1]
        self.link = last[:14]
        self.v6 = last[12:14] == b"\x86\xdd"
        self.ip_len = 40 if self.v6 else 20
        self.proto = last[14 + (6 if self.v6 else 9)]
        self.at = esp(self.proto, 14 + self.ip_len)
        self.spi = last[self.at : self.at + 4]
        peer, victim = (b"\x0a\x52\x01\x01", b"\x0a\x52\x02\x01")
        outer_peer = last[22:38] if self.v6 else last[26:30]
        if outer_peer[-1] == 2:
            peer, victim = victim, peer
        if mode == "transport":
            peer, victim = last[26:30], last[30:34]
        self.peer, self.victim = peer, victim

    def frame(self, data, proto=None, length=None, udp=None):
        """A frame with `data` in place of its ESP."""
        udp = self.proto == 17 if udp is None else udp
        proto = proto if proto is not None else 17 if udp else 50
        if udp:
            ports = b"\x11\x94\x11\x94"
            data = ports + struct.pack("!HH", 8 + len(data), 0) + data
        ip = bytearray(self.frames[-1][14 : 14 + self.ip_len])
        length = len(data) if length is None else length
        if self.v6:
            ip[4:6], ip[6] = struct.pack("!H", length), proto
        else:
            ip[2:4], ip[9], ip[10:12] = struct.pack("!H", 20 + length), proto, b"\0\0"
            ip[10:12] = struct.pack("!H", checksum(bytes(ip)))
        return self.link + bytes(ip) + data

    def data(self, index):
        """The ESP packet of a recorded frame."""
        return self.frames[index][self.at :]

    def seal(self, number, inner, next_header=4, pad_len=None, spi=None, high=None):
        """An authentic packet."""
        pad = -(len(inner) + 2) % 4
        text = inner + bytes(range(1, pad + 1)) + bytes([pad if pad_len is None else pad_len, next_header])
        return self.authentic(number, text, spi, high)

    def authentic(self, number, text, spi=None, high=None):
        """A packet with a right ICV, for any text."""
        iv = struct.pack("!Q", (0xFEDC000000000000 + number) & (1 << 64) - 1)
        covered = (spi or self.spi) + struct.pack("!I", number & 0xFFFFFFFF) + iv + ctr(self.keys, iv, text)
        high = struct.pack("!I", (number >> 32 if high is None else high) & 0xFFFFFFFF) if self.esn else b""
        return covered + hmac.new(AUTH_KEY, covered + high, hashlib.sha256).digest()[:ICV_LEN]

    def inside(self, number, proto, payload, **rest):
        """An authentic packet of this mode."""
        if self.mode == "transport":
            return self.seal(number, payload, next_header=proto, **rest)
        return self.seal(number, ipv4(self.peer, self.victim, proto, payload), **rest)

    def ping(self, number, **rest):
        return self.inside(number, 1, echo(number & 0xFFFF), **rest)

    def udp(self, number, port):
        return self.inside(number, 17, udp(port))

    def tunnel(self, *frames):
        """An attack that tests tunnels only."""
        return list(frames) if self.mode == "tunnel" else []

    def renumbered(self, index, number):
        """A recorded packet with another number, which its ICV does not cover."""
        data = self.data(index)
        return data[:4] + struct.pack("!I", number & 0xFFFFFFFF) + data[8:]


def flipped(data, at):
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


# Each attack moves the highest number by at most one, or says so. Numbers count from the highest recorded one.
ATTACKS = {
    "the last once more": lambda w: [w.frame(w.data(-1))],
    "all once more": lambda w: [w.frame(w.data(i)) for i in range(len(w.frames))],
    "the oldest, ten times": lambda w: [w.frame(w.data(0))] * 10,
    "a flipped ICV": lambda w: [w.frame(flipped(w.ping(w.top + 1), -1))],
    "a flipped text": lambda w: [w.frame(flipped(w.ping(w.top + 1), 20))],
    "a flipped IV": lambda w: [w.frame(flipped(w.ping(w.top + 1), 8))],
    "an old one with a flipped ICV": lambda w: [w.frame(flipped(w.data(-1), -1))],
    "forged higher numbers": lambda w: [w.frame(w.renumbered(-1, w.top + n)) for n in (1, 2, 63, 1000, 1 << 30)],
    "number 0, forged": lambda w: [w.frame(w.renumbered(-1, 0))],
    "the half space away": lambda w: [w.frame(w.renumbered(-1, w.top + n)) for n in (1 << 31, (1 << 31) + 1, -(1 << 31))],
    "cut inside of its header": lambda w: [w.frame(w.ping(w.top + 1)[:n]) for n in (0, 1, 4, 7)],
    "cut behind its header": lambda w: [w.frame(w.ping(w.top + 1)[:n]) for n in (8, 9, 12, 15)],
    "cut behind its IV": lambda w: [w.frame(w.ping(w.top + 1)[:n]) for n in (16, 17, 31, 32, 33, 34, 35, 36)],
    "cut by a byte": lambda w: [w.frame(w.ping(w.top + 1)[:-n]) for n in (1, 2, 3, 4, 16)],
    "longer than it was": lambda w: [w.frame(w.ping(w.top + 1) + bytes(n)) for n in (1, 4, 100)],
    "another SPI": lambda w: [w.frame(b"\0\0\x99\x99" + w.ping(w.top + 1)[4:]), w.frame(b"\xff" * 4 + w.data(-1)[4:])],
    "SPI 0": lambda w: [w.frame(bytes(4) + w.ping(w.top + 1)[4:], udp=False)],
    "the SPI of the other direction": lambda w: [
        w.frame((b"\0\0\x20\x01" if w.spi == b"\0\0\x10\x01" else b"\0\0\x10\x01") + w.data(-1)[4:])
    ],
    "ESP's SPI in AH": lambda w: [w.frame(b"\x04\x04\0\0" + w.ping(w.top + 1), proto=51, udp=False)],
    "in UDP or not, against what was agreed": lambda w: [w.frame(w.ping(w.top + 1), udp=w.proto == 50)],
    # Authentic packets from here on.
    "a pad length of more than there is": lambda w: [
        w.frame(w.ping(w.top + 1, pad_len=255))
    ],
    "a dummy": lambda w: [w.frame(w.seal(w.top + 1, bytes(30), next_header=59))],
    "nothing inside": lambda w: [w.frame(w.authentic(w.top + 1, b"\0\4")), w.frame(w.authentic(w.top + 1, b"\1\2\2\4"))],
    "no text at all": lambda w: [w.frame(w.authentic(w.top + 1, b""))],
    "a text of a byte": lambda w: [w.frame(w.authentic(w.top + 1, b"\4"))],
    "number 0, authentic": lambda w: [w.frame(w.ping(0))],
    "a good one, twice": lambda w: [w.frame(w.ping(w.top + 1))] * 2,
    "TCP inside of a tunnel": lambda w: w.tunnel(w.frame(w.seal(w.top + 2, bytes(40), next_header=6))),
    "IPv6 announced, IPv4 inside": lambda w: w.tunnel(
        w.frame(w.seal(w.top + 3, ipv4(w.peer, w.victim, 1, echo(1)), next_header=41))
    ),
    "a cut inner header": lambda w: w.tunnel(w.frame(w.seal(w.top + 4, ipv4(w.peer, w.victim, 1, echo(1))[:19]))),
    "a port that is blocked": lambda w: [w.frame(w.udp(w.top + 5, 1001))],
    "a port that wants another reqid": lambda w: [w.frame(w.udp(w.top + 6, 1002))],
    "a port that wants two layers": lambda w: [w.frame(w.udp(w.top + 7, 1003))],
    "a port that no policy is for": lambda w: [w.frame(w.udp(w.top + 8, 1004))],
    "a port that is to come in clear": lambda w: [w.frame(w.udp(w.top + 9, 1005))],
    "an address that no policy is for": lambda w: w.tunnel(
        w.frame(w.seal(w.top + 10, ipv4(b"\x0a\x63\0\1", w.victim, 1, echo(1))))
    ),
    "for somebody else": lambda w: w.tunnel(
        w.frame(w.seal(w.top + 11, ipv4(w.peer, b"\x0a\x51\0\x4d", 1, echo(1))))
    ),
    "the end of the window": lambda w: [
        w.frame(w.ping(w.top + n)) for n in (1000, 1000 - 31, 1000 - 32, 1000 - 63, 1000 - 64, 1000 - 127, 1000 - 128)
    ],
    "a jump, and what came before it": lambda w: [w.frame(w.ping(w.top + 5000)), w.frame(w.data(-1)), w.frame(w.ping(w.top + 12))],
    "twice in another order": lambda w: [w.frame(w.ping(w.top + 5000 + n)) for n in (3, 1, 2, 1, 3, 2)],
    # Of extended numbers only the low half is sent.
    "the wrong high half": lambda w: [
        w.frame(w.ping(w.top + 5004, high=(w.top >> 32) + n)) for n in (-1, 1)
    ],
    "over to the next high half": lambda w: [w.frame(w.ping(((w.top >> 32) + 1 << 32) + n)) for n in (5, 0, 3, 5, -2, -2)],
    "from the high half before": lambda w: [w.frame(w.ping(((w.top >> 32) + 1 << 32) + n)) for n in (-3, -500)],
}


def record(port, spi, count, path):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # A recorder that is not scheduled for a while loses nothing.
    s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20)  # SO_RCVBUFFORCE
    s.bind((port, 0))
    spi, frames = struct.pack("!I", int(spi, 0)), []
    print("recording", flush=True)
    while len(frames) < int(count):
        if not select.select([s], [], [], 30)[0]:
            sys.exit(f"{len(frames)} frames")
        frame, address = s.recvfrom(65536)
        kind = frame[12:14]
        if address[2] == socket.PACKET_OUTGOING or kind not in (b"\x08\x00", b"\x86\xdd"):
            continue
        v6 = kind == b"\x86\xdd"
        at = esp(frame[20 if v6 else 23], 54 if v6 else 34)
        if at is not None and frame[at : at + 4] == spi:
            frames.append(frame)
    with open(path, "wb") as f:
        pickle.dump(frames, f)


def reach(port, address):
    """Frames are processed in order: the answer to an ARP request follows everything that was sent before."""
    # All protocols: a port of a bridge gives nothing to sockets of one protocol.
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    s.bind((port, 0))
    own, target = bytes.fromhex("020000000099"), socket.inet_aton(address)
    head = b"\0\1\x08\0\6\4"
    s.send(b"\xff" * 6 + own + b"\x08\x06" + head + b"\0\1" + own + socket.inet_aton("10.81.0.99") + bytes(6) + target)
    s.settimeout(60)
    while True:
        frame = s.recv(2048)
        if frame[:6] == own and frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\2" and frame[28:32] == target:
            break


def play(port, path, top, esn, mode, key):
    with open(path, "rb") as f:
        wire = Wire(pickle.load(f), int(top, 0), esn == "esn", mode, int(key))
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    s.bind((port, 0))
    for line in sys.stdin:
        for frame in ATTACKS[line.rstrip()](wire):
            s.send(frame)
            # One after another, because packets of a burst are checked before any of them moves the window.
            time.sleep(0.002)
        reach(port, "10.81.0.2" if port == "kernel" else "10.81.0.1")
        print("played", flush=True)


if sys.argv[1] == "record":
    record(*sys.argv[2:])
elif sys.argv[1] == "play":
    play(*sys.argv[2:])
elif sys.argv[1] == "reach":
    reach(*sys.argv[2:])
else:
    print("\n".join(ATTACKS))
