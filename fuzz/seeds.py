#!/usr/bin/env python3
"""Writes the seeds of the corpora (corpus/TARGET/seed-*). Inputs that fuzzing adds are kept only when they found a bug."""
import base64
import json
import os
import pathlib
import struct
import zlib


def seed(target, name, data):
    os.makedirs(f"corpus/{target}", exist_ok=True)
    with open(f"corpus/{target}/seed-{name}", "wb") as f:
        f.write(data if isinstance(data, bytes) else data.encode())


for i, name in enumerate([
        "sha256", "hmac(sha256)", "gcm(aes)", "rfc4106(gcm(aes))", "authenc(hmac(sha256),cbc(aes))",
        "authencesn(hmac(sha1),rfc3686(ctr(aes)))", "rfc7539(chacha20,poly1305)", "cts(cbc(aes))", "seqiv(rfc4106(gcm(aes)))",
        "adiantum(xchacha12,aes)", "a(b(c(d(e(f(g(h(i))))))))", "gcm(aes", "a(b,,c)", "", "a" * 128, "cbc(aes-generic)"]):
    seed("template_name", f"{i:02}", name)

cells = " ".join(["1.5", "-", "2e3"] * 40)
for i, text in enumerate(["sealane-calibration 1\n", "sealane-calibration 1\ncpu Some CPU @ 2.00GHz\n\n# note\n",
                          f"sealane-calibration 1\nctr(aes) forward ctr-aes-portable {cells}\n",
                          "sealane-calibration 1\nctr(aes) backward x -1 nan inf\n", "something else\n"]):
    seed("calibration_table", f"{i:02}", text)


def address(kind, name, feat=0, mask=0):
    return struct.pack("=H14sII", 38, kind, feat, mask) + name + b"\0"


def cmsg(kind, data, level=279, length=None):
    body = struct.pack("=Qii", 16 + len(data) if length is None else length, level, kind) + data
    return body + bytes(-len(body) % 8)


op, iv, assoc = cmsg(3, struct.pack("=I", 1)), cmsg(2, struct.pack("=I", 16) + bytes(16)), cmsg(4, struct.pack("=I", 8))


def netlink(kind, flags, payload, length=None):
    body = struct.pack("=IHHII", 16 + len(payload) if length is None else length, kind, flags, 7, 0) + payload
    return body + bytes(-len(body) % 4)


def alg(name=b"", driver=b""):
    return struct.pack("=64s64s64sIIII", name, driver, b"", 0, 0, 0, 0)


attr = struct.pack("=HHI", 8, 1, 100)
get = netlink(0x13, 1, alg(b"sha256"))
dump = netlink(0x13, 0x301, alg())
for i, data in enumerate([address(b"hash", b"sha256"), address(b"aead", b"gcm(aes)", 0, 0x1000), address(b"hash", b"")[:24],
                          op + iv + assoc, op, cmsg(2, struct.pack("=I", 99)), cmsg(3, b"", length=3), op[:-3],
                          cmsg(1, b"abcd", level=1) + op, get, dump + get, netlink(0x10, 5, alg(b"x") + attr)]):
    seed("abi_decode", f"{i:02}", data)
for i, data in enumerate([get, dump, netlink(0x10, 5, alg(b"cbc(aes)") + attr), netlink(0x11, 5, alg(driver=b"x")),
                          netlink(0x12, 1, alg(b"sha256") + attr), netlink(0x14, 5, b""), netlink(0x15, 1, alg(b"sha256")),
                          netlink(0x13, 1, b"short"), netlink(3, 1, b""), get[:10]]):
    # Profile, how to receive, length, datagram.
    length = bytes([len(data)]) if len(data) < 200 else bytes([251]) + struct.pack("<H", len(data))
    seed("netlink_crypto", f"{i:02}", bytes([0, 2]) + length + data)

# alg_calls: profile; then call, slot, arguments. An empty slot is bound to the named algorithm.
KEYS = {5: 32, 6: 16, 7: 16, 8: 16, 9: 16, 10: 16, 11: 32, 12: 16, 13: 20, 14: 24, 15: 32, 16: 32, 17: 16, 18: 16, 19: 16,
        20: 20, 21: 19, 22: 20, 23: 32, 24: 56, 25: 44}
for choice in range(29):
    tfm, op_slot = 0, 1
    calls = bytes([0, tfm, choice])
    if choice in KEYS:
        calls += bytes([1, tfm, KEYS[choice], 0])
    if 18 <= choice <= 25:
        calls += bytes([1, tfm, 16, 3])
    calls += bytes([(op_slot << 4) | 3, tfm])
    # Encrypt 48 bytes with operation, IV and associated length; receive; then plain sends with and without MORE.
    iv_len = {18: 12, 20: 8, 21: 8, 22: 8, 23: 12, 13: 8, 14: 8, 8: 0}.get(choice, 16)
    calls += bytes([4, op_slot, 4 | 2, 7, 1, iv_len, 16, 0, 48]) if choice >= 8 else bytes([4, op_slot, 1, 48])
    calls += bytes([7, op_slot, 1, 64, 4, op_slot, 3, 20, 7, op_slot, 1, 16, 4, op_slot, 2, 0, 7, op_slot, 1, 199])
    calls += bytes([(2 << 4) | 3, op_slot, (3 << 4) | 10, op_slot, 11, op_slot, 4, 7, 0x8b, tfm, 7, 3, 0, 70])
    for profile in [0, 3]:
        seed("alg_calls", f"{choice:02}-{profile}", bytes([profile]) + calls)

# alg_image: algorithm, whether it has a key, sends, length of the transform's image; that image, that of the operation.
def number(*numbers):
    return b"".join(struct.pack("=Q", n) for n in numbers)


def some(data):
    return number(len(data)) + data


OPTIONS = number(212992, 212992, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)
IMAGES = [
    ("hash", "sha256", b"\0" + b"\1\0" + number(1, 3) + b"\0" + some(b"abc")),
    ("hash", "hmac(sha256)", b"\0" + b"\0\1" + some(bytes(32)) + number(2, 0) + b"\0" + some(b"")),
    ("hash", "blake2b-256", b"\0" + b"\1\0" + number(0, 1 << 21) + b"\1" + some(b"")),
    ("skcipher", "cbc(aes)", b"\0" + some(bytes(16)) + number(0) + b"\1\1\1\0" + some(bytes(32)) + number(32)),
    ("skcipher", "ctr(aes)", b"\1" + some(bytes(16)) + number(0) + b"\0\0\0\1" + some(b"") + number(0)),
    ("aead", "gcm(aes)", b"\0" + some(bytes(12)) + number(0xffffffff) + b"\1\0\1\0" + some(bytes(5000)) + number(904)),
    ("rng", "stdrng", b"\0"),
]
for i, (kind, name, op) in enumerate(IMAGES):
    for keys, key in [(0, b"\0"), (1, b"\1" + some(bytes(16))), (2, b"\0")]:
        family = b"\1" + number(1) + some(kind.encode()) + some(name.encode()) + number(keys) + key
        family += bytes([keys != 1]) + number(16 if kind == "aead" else 0)
        for sends in range(3):
            seed("alg_image", f"{i}-{keys}-{sends}", bytes([i, keys == 0, sends, len(family)]) + family + OPTIONS + op)
seed("alg_image", "netlink", bytes([7, 0, 0, 0]) + OPTIONS + number(4711) + b"\1\0\1" + number(1) + some(bytes(36)) + number(0))

# config: the example, and mistakes of every kind; a document a seed.
with open("../etc/sealane.toml") as f:
    example = f.read()
# Comments only slow the fuzzer down.
example = "\n".join(line for line in example.split("\n") if line and not line.startswith("#"))
KEY = 'send-id = 1\nrecv-id = 2\nalgorithm = "hmac(sha1)"\nsecret = "s"\n'
windows = ['lifetime = { start = 2026-01-01T00:00:00Z, duration = "30d" }', "send-lifetime = { end = 2026-01-01T00:00:00+02:00 }",
           "accept-lifetime = { start = 1970-01-01T00:00:00Z }\nsend-lifetime = { start = 1971-01-01T00:00:00Z }", "lifetime = {}"]
for i, text in enumerate(
        [example, "", "[[key]]\n" + KEY, "[daemon]\nmetrics = \"[::1]:9187\"\n", "[[peer]\n", "x = 1\n", '[[peer]]\nprefix = "::1"\n',
         '[[peer]]\nprefix = ["::/0", "10.0.0.0/8"]\nport = [1, "5-9"]\nnetns = "n"\nvrf = "v"\n[[peer.key]]\n' + KEY,
         f'[[key]]\n{KEY}prefix = "::1"\n[[connection]]\nclient = "1.2.3.4:5"\nserver = "[::1]:6"\nclient-isn = 0xff\nserver-isn = 7\n',
         f'[[key-chain]]\nname = "a"\naccept-tolerance = "1d2h"\nwhen-expired = "keep-last"\n[[key-chain.key]]\n{KEY}mac-len = 16\n']
        + [f'[[peer]]\nprefix = "::1"\n[[peer.key]]\n{KEY}{w}\n[[peer.key]]\n{KEY.replace("1", "3").replace("2", "4")}{w}\n'
           for w in windows]
        + [f'[[key]]\n{KEY.replace(chr(34) + "s" + chr(34), secret)}' for secret in
           ['{ hex = "00ff" }', '{ base64 = "AAEC" }', '{ file = "k", encoding = "raw" }', '{ file = "/k" }', '{ text = "", hex = "" }', "5"]]):
    seed("config", f"{i:02}", text)
gateway = '[[ipsec.gateway]]\ninterfaces = ["lan", "wan"]\n'
for name, text in [("gateways", f'[ipsec]\nnetns = ["left", ""]\nworkers = 2\n{gateway}netns = "left"\n{gateway}'),
                   ("gateway-mistakes", f'[ipsec]\nworkers = 17\n{gateway}{gateway}[[ipsec.gateway]]\ninterfaces = ["lan", "lan", "", 5]\n'
                    '[[ipsec.gateway]]\ninterfaces = []\nnetns = "b"\nx = 1\n'),
                   ("packet", '[[ipsec.device]]\nname = "sealane0"\nkind = "packet"\ncpu = 1\n' + gateway)]:
    seed("config", f"ipsec-{name}", text)

# firewall: both languages, firewalld's direct rules, and what is none.
base = "table inet filter {\n  chain c {\n    type filter hook {}; policy drop;\n    {}\n  }\n}\n"
for i, text in enumerate([
        base.replace("{}", "input priority 0", 1).replace("{}", 'iifname "eth0" meta ipsec exists accept comment "a } b" # handle 7'),
        base.replace("{}", "output priority mangle + 51", 1).replace("{}", 'oifname { "eth0", "ipsec*" } rt ipsec missing drop'),
        base.replace("{}", "prerouting priority raw", 1).replace("{}", "fib saddr . mark . iif oif missing drop"),
        "define n = {\n 10.2.0.0/24,\n}\ninclude \"x\"\nadd rule ip t c position 3 ipsec in spnum 0 ip saddr { 192.0.2.2 } vmap { 1 : drop }\n",
        "add table t; add chain t c { type nat hook postrouting priority srcnat - 5; }\nadd rule t c meta ipsec . iif { exists . lo } \\\n drop",
        "table t {\n chain c {\n tcp dport 22 jump {\n meta ipsec != missing accept\n }\n }\n}\n", "{ {", "table t {\n}\n}\n",
        '*nat\n[1:2] -A POSTROUTING ! -o lo -m policy --dir out --pol none -j MASQUERADE\nCOMMIT\n*filter\n-A OUTPUT -mpolicy --pol ipsec '
        '--dir out ! --tunnel-dst 192.0.2.2 -m comment --comment "a \\" b" -j ACCEPT\n',
        "ip6tables -t raw -I PREROUTING 1 \\\n  -m rpfilter --validmark -j RETURN\niptables -A INPUT -m policy --dir in\n",
        '<direct>\n<!-- <rule> -->\n<rule ipv="ipv4" table="filter" chain="INPUT">-m policy --dir in --pol ipsec &quot;a&quot;</rule>\n'
        "<passthrough>-t nat -A x -m policy --dir out --pol none</passthrough>\n</direct>", "<zone", ""]):
    seed("firewall", f"{i:02}", text)

# capture: segments signed by a kernel and those of RFC 9235, in every file format and behind every link header.
with open("../conformance/vectors/tcp-ao-linux.pcap", "rb") as f:
    kernel = f.read()
frames, at = [], 24
while at < len(kernel):
    length = struct.unpack_from("<I", kernel, at + 8)[0]
    frames.append(kernel[at + 16:at + 16 + length])
    at += 16 + length
with open("../crates/protocol/net-ao/vectors/rfc9235.json") as f:
    packets = [bytes.fromhex(v["ip_packet"]) for v in json.load(f)["vectors"]]


def pcap(link, frames, order="<", magic=0xa1b2c3d4):
    out = struct.pack(order + "IHHIIII", magic, 2, 4, 0, 0, 65535, link)
    return out + b"".join(struct.pack(order + "IIII", i, 0, len(f), len(f)) + f for i, f in enumerate(frames))


def pcapng(link, frames, order="<"):
    def block(kind, body):
        body += bytes(-len(body) % 4)
        return struct.pack(order + "II", kind, len(body) + 12) + body + struct.pack(order + "I", len(body) + 12)

    out = block(0x0a0d0d0a, struct.pack(order + "IHHq", 0x1a2b3c4d, 1, 0, -1))
    out += block(1, struct.pack(order + "HHIHHB3xHH", link, 0, 0, 9, 1, 9, 0, 0))
    for i, f in enumerate(frames):
        out += block(6, struct.pack(order + "IIIII", 0, 0, i, len(f), len(f)) + f)
    return out + block(3, struct.pack(order + "I", len(frames[0])) + frames[0])


sll, sll2 = bytes(14), bytes(20)
for i, data in enumerate([
        pcap(1, frames[:5]), pcap(1, frames[11:16]), pcap(1, frames[-4:]), pcap(101, packets[:4]), pcap(101, packets[4:8]),
        pcap(101, packets[16:20], ">"), pcap(228, packets[:2], "<", 0xa1b23c4d), pcapng(101, packets[:4]), pcapng(1, frames[:3], ">"),
        pcap(113, [sll + b"\x08\x00" + p for p in packets[:2]]), pcap(276, [b"\x08\x00" + bytes(18) + p for p in packets[:2]]),
        pcap(0, [b"\x02\0\0\0" + p for p in packets[:2]]), pcap(1, [f[:12] + b"\x81\x00\x00\x05" + f[12:] for f in frames[:2]]),
        pcap(105, frames[:1]), pcap(1, frames[:2])[:-7], pcap(1, []), b""]):
    seed("capture", f"{i:02}", data)
# tcp_options: KeyID, RNextKeyID, MAC length, options.
ao = bytes([29, 16, 1, 2]) + bytes(12)
timestamps = bytes([1, 1, 8, 10]) + bytes(8)
sack = bytes([1, 1, 5, 26]) + bytes(range(24))
mss = bytes([2, 4, 5, 180])
for i, options in enumerate([b"", ao, mss + bytes([1, 3, 3, 7, 4, 2]) + timestamps[2:] + ao, timestamps + sack, timestamps + sack[:12], sack,
                             bytes([19, 18]) + bytes(16) + bytes(2), ao + ao, bytes([0]) + ao, bytes([29, 4, 0, 0, 0]), bytes([8, 50, 1, 1]),
                             bytes([1] * 40), mss + timestamps + bytes([34, 10]) + bytes(8) + bytes([1, 1])]):
    for mac_len in [12, 16]:
        seed("tcp_options", f"{i:02}-{mac_len}", bytes([1, 2, mac_len]) + options)


# tcp_segment: largest payload, IP packet. The keys of the target have other secrets than RFC 9235, so nothing verifies.
def ipv4(options, payload, flags=0x10, fragment=0x4000):
    tcp = struct.pack("!HHIIBBHHH", 4000, 179, 1, 2, (5 + len(options) // 4) << 4, flags, 100, 0, 0) + options + payload
    return struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(tcp), 1, fragment, 64, 6, 0, 0xC0000201, 0xC0000202) + tcp


def ipv6(options, payload, flags=0x10, chain=b"", first=6):
    tcp = struct.pack("!HHIIBBHHH", 4000, 179, 1, 2, (5 + len(options) // 4) << 4, flags, 100, 0, 0) + options + payload
    return struct.pack("!IHBB", 6 << 28, len(chain) + len(tcp), first, 64) + bytes(31) + b"\1" + bytes(31) + b"\2" + chain + tcp


packets = [ipv4(timestamps, bytes(3000), 0x18), ipv6(timestamps, bytes(3000), 0x19), ipv4(mss, b"", 2), ipv6(mss + ao, b"", 0x12),
           ipv4(timestamps + sack, b"x"), ipv4(b"", bytes(40), 0x10, 0x2000), ipv6(b"", b"", 0x10, bytes([60, 0]) + bytes(6) + bytes([6, 0]) + bytes(6), 0),
           ipv6(b"", b"y", 0x10, bytes([6, 0, 0, 1]) + bytes(4), 44), ipv4(ao, bytes(9), 0x10)[:50],
           ipv4(bytes([29, 17, 1, 61]) + bytes(13) + bytes([1, 1, 1]) + timestamps, b"odd"), ipv4(ao, b"", 4), ipv4(bytes([19, 18]) + bytes(18), b"")]
vectors = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../crates/protocol/net-ao/vectors/rfc9235.json")
packets += [bytes.fromhex(v["ip_packet"]) for v in json.load(open(vectors))["vectors"][::3]]
for i, packet in enumerate(packets):
    seed("tcp_segment", f"{i:02}", struct.pack("<H", [100, 1448, 65535][i % 3]) + packet)




# tcp_ao_sockopt: profile; then operation and socket, facts, option, length, bytes.
def sockaddr(ip, v6=False):
    return (struct.pack("<HHI16sI", 10, 0, 0, ip, 0) if v6 else struct.pack("<HH4s", 2, 0, ip)).ljust(128, b"\0")


V4, V6, MAPPED = bytes([10, 0, 1, 0]), bytes.fromhex("20010db8") + bytes(12), bytes(10) + b"\xff\xff\x0a\0\1\0"
FRESH, LISTEN, OPEN, REPAIR, SIX = 0, 8, 12, 0x40 | 12, 1


def ao_add(sndid, rcvid, addr=sockaddr(V4), prefix=32, name=b"hmac(sha1)", flags=0, maclen=0, keyflags=0, ifindex=0, key=b"k" * 16):
    return addr + struct.pack("<64siIHBBBBBB80s", name, ifindex, flags, 0, prefix, sndid, rcvid, maclen, keyflags, len(key), key)


def ao_del(sndid, rcvid, addr=sockaddr(V4), prefix=32, flags=0, current=0, rnext=0, keyflags=0, ifindex=0):
    return addr + struct.pack("<iIHBBBBBB", ifindex, flags, 0, prefix, sndid, rcvid, current, rnext, keyflags)


def ao_info(flags, current=0, rnext=0):
    return struct.pack("<IHBBQQQQQ", flags, 0, current, rnext, 1, 2, 3, 4, 5)


def ao_keys(flags=4, addr=bytes(128), sndid=0, rcvid=0, prefix=0, nkeys=8):
    return addr + bytes(144) + struct.pack("<IHBBBBBBiQQ", nkeys, flags, sndid, rcvid, prefix, 0, 0, 0, 0, 0, 0)


def call(op, option, data, facts=FRESH, peer=1, socket=0, length=None):
    return bytes([op | socket << 4, facts, peer, option - 38]) + struct.pack("<h", len(data) if length is None else length) + data


def put(option, data, **kw):
    return call(0, option, data, **kw)


def get(option, data, **kw):
    return call(7, option, data, **kw)


def other(op, data, facts=FRESH, peer=1, socket=0):
    return bytes([op | socket << 4, facts, peer, 0]) + bytes(data)


md5sig = sockaddr(V4) + struct.pack("<BBHi80s", 1, 24, 4, 0, b"md5k")
two = put(38, ao_add(1, 2)) + put(38, ao_add(3, 4, name=b"cmac(aes128)", key=b"long" * 9))
for i, data in enumerate([
        two + get(41, ao_keys()) + put(40, ao_info(3, 1, 4)) + get(40, bytes(48)),
        two + put(39, ao_del(1, 2, flags=3, current=3, rnext=4)) + put(39, ao_del(3, 4)) + get(41, ao_keys(1)),
        two + other(11, [1, 3], FRESH) + put(38, ao_add(5, 6, flags=3), facts=OPEN) + get(41, ao_keys(2), facts=OPEN),
        two + other(13, [1, 1, 2, 1], LISTEN) + get(41, ao_keys(), socket=1, facts=OPEN) + put(39, ao_del(1, 2, flags=4), facts=LISTEN),
        put(38, ao_add(1, 2, sockaddr(V6, True), 32), facts=SIX) + put(38, ao_add(1, 2, sockaddr(MAPPED, True), 24), facts=SIX)
        + get(41, ao_keys(0, sockaddr(MAPPED, True), 1, 2, 24), facts=SIX),
        put(38, ao_add(1, 2, keyflags=3, ifindex=7)) + put(39, ao_del(1, 2, keyflags=1, ifindex=7)),
        put(38, ao_add(1, 2), facts=REPAIR) + put(42, bytes(range(16)), facts=REPAIR) + get(42, bytes(16), facts=REPAIR),
        other(10, bytes([1, 1]) + md5sig) + two + put(40, ao_info(4)) + other(11, [1, 2]),
        two + other(10, bytes([1, 1]) + md5sig) + get(41, ao_keys() + bytes(8)) + get(41, ao_keys()[:279]) + put(38, ao_add(1, 2) + b"\1"),
        put(40, ao_info(0x1c)) + get(40, bytes(48), length=7) + other(15, []) + put(38, ao_add(1, 2)[:99], length=288)]):
    for profile in [0, 1, 2]:
        seed("tcp_ao_sockopt", f"{i:02}-{profile}", bytes([profile]) + data)


# ipsec_open: what to do (0 as it is, 1 with the ICV put right, 3 sealed and opened; 4 more: to a port of ESP in UDP),
# IP packet.
def outer(proto, payload, src=0xC0000201, dst=0xC0000202):
    return struct.pack("!BBHHHBBHII", 0x45, 3, 20 + len(payload), 1, 0x4000, 64, proto, 0, src, dst) + payload


def outer6(next_header, payload):
    gateways = bytes.fromhex("20010db8" + "00" * 11 + "01" + "20010db8" + "00" * 11 + "02")
    return struct.pack("!IHBB", 6 << 28, len(payload), next_header, 64) + gateways + payload


def esp(spi, inner, next_header, pad=0):
    return struct.pack("!II", spi, 1) + inner + bytes(range(1, pad + 1)) + bytes([pad, next_header]) + bytes(12)


udp = struct.pack("!HHHH", 4000, 5000, 12, 0) + b"data"
inner4, inner6 = outer(17, udp, 0x0A010005, 0x0A020005), outer6(17, udp)
beet = bytes([17, 0, 0, 0, 1, 1, 1, 0]) + udp
espinudp = lambda e: struct.pack("!HHHH", 4500, 4500, 8 + len(e), 0) + e
ah = lambda spi, inner, next_header: bytes([next_header, 4, 0, 0]) + struct.pack("!II", spi, 1) + bytes(12) + inner
for i, (how, packet) in enumerate([
        (1, outer(50, esp(0x100, inner4, 4))), (1, outer6(50, esp(0x100, inner6, 41, 2))), (1, outer(50, esp(0x101, udp, 17))),
        (1, outer6(50, esp(0x101, udp, 17))), (1, outer(50, esp(0x102, udp, 17))), (1, outer(50, esp(0x102, beet, 94))),
        (1, outer(50, esp(0x103, udp, 17))), (1, outer6(50, esp(0x102, beet, 94))), (5, outer(17, espinudp(esp(0x120, inner4, 4)))),
        (5, outer(17, espinudp(b"\0\0\0\0ike")[:])), (5, outer(17, espinudp(b"\xff"))), (1, outer(50, esp(0x101, esp(0x101, udp, 17), 50))),
        (0, outer(51, ah(0x104, inner4, 4))), (0, outer6(51, ah(0x105, udp, 17))), (0, outer(50, esp(0x110, bytes(40), 4))),
        (1, outer(50, esp(0x100, b"x", 59))), (3, inner4), (3, inner6), (3, outer(17, udp)), (3, outer6(60, bytes([17, 0, 0x3e, 4, 1, 2, 3, 4]) + udp))]):
    seed("ipsec_open", f"{i:02}", bytes([how]) + packet)
too_big = b"\3\4\0\0\0\0\5\x78" + outer(50, esp(0x100, inner4, 4))
total = sum(struct.unpack(f"!{(len(too_big) + 1) // 2}H", too_big + bytes(len(too_big) % 2)))
total = (total & 0xffff) + (total >> 16)
seed("ipsec_open", "icmp", b"\0" + outer(1, too_big[:2] + struct.pack("!H", ~((total & 0xffff) + (total >> 16)) & 0xffff) + too_big[4:]))

# ipsec_tcp: the number of pieces less 1, their lengths less 1, a stream of messages behind their lengths.
message = lambda m: struct.pack("!H", 2 + len(m)) + m
stream = b"".join(map(message, [b"\0\0\0\0ike", b"\xff", esp(0x100, inner4, 4), b"", b"\0\0\0\0", b"\0\0\0\0more"]))
for i, data in enumerate([stream, stream[:-3], stream + b"\0\1", message(bytes(700)), b"\0", b"\0\0\0\0"]):
    seed("ipsec_tcp", f"{i:02}", b"\2\0\7\60" + data)

# ipcomp: what to do (0 opens a packet, 1 compresses a payload, 2 decompresses), packet, payload or stream.
def deflated(data, level=6, bits=11):
    stream = zlib.compressobj(level, zlib.DEFLATED, -bits)
    return stream.compress(data) + stream.flush()


comp = lambda cpi, inner, next_header: struct.pack("!BBH", next_header, 0, cpi) + deflated(inner)
text = b"all work and no play " * 20
long4 = outer(17, udp[:4] + struct.pack("!HH", 8 + len(text), 0) + text, 0x0A010005, 0x0A020005)
for i, data in enumerate([
        b"\0" + outer(108, comp(0x1000, long4, 4)), b"\0" + outer6(108, comp(0x1000, long4, 4)),
        b"\0" + outer(108, comp(0x1001, long4[20:], 17)), b"\0" + outer6(108, comp(0x1001, long4[20:], 17)),
        b"\0" + outer(108, comp(0x1001, comp(0x1001, long4[20:], 17) + bytes(400), 108)), b"\0" + outer(108, b"\4\0\x10"),
        b"\1" + text, b"\1" + bytes(range(256)), b"\2" + deflated(text), b"\2" + deflated(text, 0), b"\2" + deflated(bytes(70_000), 9, 15)]):
    seed("ipcomp", f"{i:02}", data)

# iptfs: 0, the most bytes of a payload, lengths of packets; or 255, and steps, times and headers of a peer; or another byte, window,
# and payloads with their step and length.
def payloads(*steps):
    return b"".join(struct.pack("!bB", step, len(payload)) + payload for step, payload in steps)


def told(interval, rtt, echo_delay, delay):
    return struct.pack("!BBHIQII", 1, 0, 0, interval, rtt << 42 | echo_delay << 21 | delay, 7, 1_000_000)


short4 = b"\x45\0\0\x20" + bytes(range(28))
for i, data in enumerate([
        b"\0" + struct.pack("!7H", 1400, 20, 60, 1500, 3000, 40, 8000), b"\0" + struct.pack("!5H", 6, 20, 21, 100, 33),
        b"\1\3" + payloads((1, bytes(4) + short4 * 3), (3, bytes(4) + short4), (-2, bytes(4) + short4[:20]), (1, b"\0\0\0\x0c" + short4[20:] + short4)),
        b"\1\0" + payloads((1, bytes(4) + short4[:3]), (1, b"\0\0\0\x1d" + short4[3:]), (1, b"\1" + bytes(23) + short4)),
        b"\1\2" + payloads((1, bytes(4) + short4[:9]), (1, bytes(20)), (1, b"\0\0\0\x17" + short4[9:]), (16, b"\2\0\0\0")),
        b"\xff" + b"".join(bytes([step, 200]) + told(*of) for step, of in [(2, (0, 0, 1000, 1_000_000)), (4, (0, 20_000, 500, 9000)), (3, (40, 20_000, 0, 2000)), (254, (7, 1000, 0, 0)), (1, (400, 0x3fffff, 0x1fffff, 1))])]):
    seed("iptfs", f"{i:02}", data)

# ipsec_burst: window, 16 for extended numbers; high and low half of the window's top; hard limit of packets, 0 for
# none; then packets: what is wrong (1 forged, 2 the other association, 4 one subspace up, 8 one down), low half of the
# number.
def numbers(*packets):
    return b"".join(struct.pack("<BI", wrong, low & 0xffffffff) for wrong, low in packets)


for i, (how, high, low, limit, packets) in enumerate([
        (1, 0, 0, 0, numbers((0, 1), (0, 2), (0, 2), (1, 2), (0, 40), (0, 3), (1, 3))),
        (0x12, 0, 0xfffffff0, 0, numbers((0, -1), (4, 1), (4, 1), (1, -2), (0, -2), (0, 0x1000))),
        (0x15, 0, 0xffffffce, 0, numbers((4, 5), (1, 0xffffffd0), (0, 0xffffffd0), (4, 0x2000), (0, 0xffffffff))),
        (0x10, 5, 3, 0, numbers((8, 0xfffffff0), (0, 4), (8, 0xfffffff0), (0, 5000))),
        (2, 0, 7, 3, numbers((0, 8), (0, 9), (2, 1), (1, 10), (0, 10), (0, 11), (1, 12), (0, 9))),
        (6, 0, 0, 0, numbers((0, 1), (0, 1), (0, 0)))]):
    seed("ipsec_burst", f"{i:02}", bytes([how]) + struct.pack("<HIB", high, low, limit) + packets)

# ipsec_seal: whether lengths and addresses are put right (0), shape, flags, MTU, padding, inner packet.
options4 = struct.pack("!BBHHHBBHII", 0x47, 0xb8, 40, 1, 0x4000, 64, 17, 0, 0x0A010005, 0x0A020005) + bytes([148, 4, 0, 0, 7, 3, 4, 0]) + udp
extended6 = outer6(0, bytes([43, 0, 5, 2, 0, 0, 1, 0]) + bytes([60, 0, 0, 0, 0, 0, 0, 0]) + bytes([17, 0, 1, 4, 0, 0, 0, 0]) + udp)
fragment6 = outer6(44, bytes([17, 0, 0, 1, 0, 0, 0, 9]) + udp)
for i, (shape, flags, mtu, padding, packet) in enumerate([
        (0, 0, 0, 0, inner4), (0x20, 0x01, 0, 0, inner4), (0x24, 0x41, 0, 5, inner6), (0x08, 0x80, 1400, 0, inner6), (0x0c, 0x80, 60, 0, inner4),
        (0x80, 0x80, 1400, 900, inner4), (0xa4, 0x80, 1280, 2047, extended6), (0x40, 0, 0, 7, options4), (0x60, 0x04, 0, 7, options4),
        (0x01, 0, 0, 0, inner4), (0x05, 0x80, 1280, 0, extended6), (0x41, 0, 0, 0, inner6), (0x1d, 0, 0, 0, options4), (0x1d, 0x10, 0, 0, extended6),
        (0x1c, 0x41, 0, 9, inner4), (0x3c, 0, 0, 0, extended6), (0x02, 0, 0, 0, options4), (0x22, 0, 0, 0, inner4), (0x02, 0, 0, 0, extended6),
        (0x62, 0x01, 0, 0, inner6), (0x01, 0, 0, 0, fragment6), (0x00, 0x3e, 0, 0, fragment6), (0x00, 0, 0, 0, inner4[:21])]):
    seed("ipsec_seal", f"{i:02}", bytes([0, shape, flags]) + struct.pack("<HH", mtu, padding) + packet)


# gso: 1 with a checksum that is open, 2 with the packet's length put right; payload of a piece, where the checksum
# starts and lies; packet.
segment = struct.pack("!HHIIBBHHH", 80, 5000, 7, 8, 0x50, 0x99, 100, 0, 0) + bytes(range(100))
optioned = struct.pack("!HHIIBBHHH", 80, 5000, 0xffffffe0, 8, 0x80, 0x19, 100, 0, 0) + bytes([1, 1, 8, 10]) + bytes(8) + bytes(64)
datagram = struct.pack("!HHHH", 9, 9, 108, 0) + bytes(range(100))
for i, (how, size, start, offset, packet) in enumerate([
        (3, 0, 20, 16, outer(6, segment)), (3, 40, 20, 16, outer(6, segment)), (3, 33, 40, 16, outer6(6, optioned)), (2, 100, 0, 0, outer(6, segment)),
        (3, 30, 20, 6, outer(17, datagram)), (3, 1, 40, 6, outer6(17, datagram)), (3, 0, 40, 6, outer6(17, datagram)), (1, 0, 0xffff, 0xffff, inner4),
        (3, 7, 0, 0, outer6(60, bytes([17, 0, 1, 4, 0, 0, 0, 0]) + datagram)), (3, 8, 0, 0, fragment6), (2, 0, 0, 0, inner4 + bytes(6)),
        (2, 9, 0, 0, outer(1, datagram)), (2, 50, 0, 0, outer(6, segment[:20])), (0, 50, 0, 0, outer(17, datagram[:7]))]):
    seed("gso", f"{i:02}", struct.pack("<BHHH", how, size, start, offset) + packet)


# forward: packets as a gateway sees them, with the header's checksum put right, padded, cut.
def summed(packet):
    words = struct.unpack(f"!{(packet[0] & 15) * 2}H", packet[:(packet[0] & 15) * 4])
    total = sum(words) - words[5]
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return packet[:10] + struct.pack("!H", ~total & 0xffff) + packet[12:]


for i, packet in enumerate([summed(inner4), summed(inner4) + bytes(14), inner4, summed(options4), inner6, inner6 + bytes(2), extended6,
                            fragment6, inner6[:-1], summed(outer(50, esp(0x100, inner4, 4))), summed(inner4) * 2, inner6 * 2]):
    seed("forward", f"{i:02}", packet)


# xfrm_message: messages of iproute2 and a kernel, a datagram for each combination of type and attributes.
def shape(message):
    types, at = [], 16
    length, kind = struct.unpack_from("=IH", message)
    at += {0x10: 224, 0x11: 24, 0x13: 168, 0x14: 64, 0x16: 232, 0x17: 280, 0x18: 232, 0x1a: 224, 0x1e: 48}.get(kind, 0)
    while at + 4 <= length and (head := struct.unpack_from("=HH", message, at))[0] >= 4:
        types.append(head[1])
        at += head[0] + -head[0] % 4
    return kind, tuple(types)


shapes = {}
for line in open("../conformance/vectors/xfrm-linux-7.3.txt").read().splitlines() + open("../conformance/vectors/xfrm-linux-6.18-migrate.txt").read().splitlines():
    if line[:2] in ("> ", "* ") or line.startswith("< ") and line[10:12] not in ("02", "03"):
        data = bytes.fromhex(line[2:])
        if shape(data) not in shapes or len(data) < len(shapes[shape(data)]):
            shapes[shape(data)] = data
for i, data in enumerate(shapes.values()):
    seed("xfrm_message", f"{i:03}", data)
# xfrm_call: the same as an order of requests, each with its length and the seconds until the next.
requests = [data for data in shapes.values() if struct.unpack_from("=H", data, 6)[0] & 1]
for i in range(len(requests)):
    calls = b"".join(struct.pack("<HB", len(data), 7 * k) + data for k, data in enumerate(requests[i:i + 6]))
    seed("xfrm_call", f"{i:03}", calls)


def ao_remembered(ip, port=None):
    return struct.pack("<B16sI", 6, ip, 0xffffffff if port is None else port)


def ao_key(name, key, peer=bytes(10) + b"\xff\xff\xc0\0\2\0", length=24, v4=1):
    return struct.pack("<BBBBBB16si", 0, 1, 2, 12, length, v4, peer, 0) + bytes([len(name)]) + name + bytes([len(key)]) + key


def ao_socket(flags, middle, keys, current=0xffffffff):
    return struct.pack("<BQHII", flags, 77, 1460, current, current) + middle + struct.pack("<I", len(keys)) + b"".join(keys)


def ao_frame(kind, flags, words, body):
    return struct.pack("<BBBBIIII4x", 1, kind, flags, 0, *words, len(body)) + body


V6 = bytes.fromhex("20010db8000000000000000000000001")
CONN = (V6 + struct.pack("<H", 179)) * 2 + struct.pack("<IIIIIIQ", 1, 2, 0, 3, 0, 4, 1 << 33)
for name, data in {
    "listener": b"\0" + ao_socket(5, b"\0", [ao_key(b"hmac(sha1)", b"secret"), ao_key(b"cmac(aes128)", bytes(16), bytes(16), 0, 0)]),
    "connected": b"\0" + ao_socket(160, ao_remembered(V6, 9) + CONN, [ao_key(b"hmac(sha256)", b"secret")], 0),
    "connecting": b"\0" + ao_socket(64, b"\0" + struct.pack("<BBi", 1, 1, 0) + ao_remembered(V6) + ao_remembered(V6, 7),
                                     [ao_key(b"hmac(sha1)", b"secret")]),
    "serves": b"\1" + ao_frame(1, 0, (0, 0, 0), b""),
    "set": b"\1" + ao_frame(2, 1, (38, 288, 0), bytes(288)),
    "get": b"\1" + ao_frame(3, 0, (41, 152, 0), bytes(152)),
    "connect": b"\1" + ao_frame(4, 0, (0, 0, 179), bytes([192, 0, 2, 1])),
    "netstat": b"\1" + ao_frame(5, 0, (0, 0, 0), b"TcpExt: A\nTcpExt: 1\n"),
    "done": b"\2" + ao_frame(1, 3, (0, 152, 2), struct.pack("<II", 0, 3) + b"abc" + struct.pack("<II", 140, 4) + bytes(4)),
    "fail": b"\2" + ao_frame(2, 0, (17, 0, 0), b""),
}.items():
    seed("tcp_ao_handover", name, data)

for i, text in enumerate(["install esp4 /bin/false\nblacklist algif-aead\ninstall tun \\\n  /sbin/modprobe --ignore-install tun\n",
                          "quiet module_blacklist=esp4,esp6 modprobe.blacklist=af_alg",
                          "kernel/net/ipv4/esp4.ko.xz: kernel/net/xfrm/xfrm_algo.ko.xz\nkernel/crypto/algif_aead.ko:\n",
                          "esp4 20480 0 - Live 0x0000000000000000\n", "CONFIG_TUN=y\n# CONFIG_INET_ESP is not set\nCONFIG_XFRM_USER=m\n",
                          "[Unit]\nAfter=a.service \\\n# no\n b.service\n[Service]\nExecStart=\nExecStart=-/usr/sbin/x\n"
                          "RestrictAddressFamilies=~AF_ALG\n", "[Network]\nManageForeignRoutes=no\n",
                          "net.ipv4.conf.*.rp_filter = 1\n-net/ipv4/conf/eth0.5/rp_filter\n"]):
    seed("machine_texts", f"{i:02}", text)


def keeper_field(data):
    return struct.pack("<I", len(data)) + data


def keeper_spec(kind, algorithm, uses):
    return (bytes([kind]) + keeper_field(algorithm) + struct.pack("<HQQQI", uses, 0, 0, 0, 0) + struct.pack("<HIHHH", 1, 0, 0, 0, 0))


def keeper_request(operation, rest, name=b"k", key=b""):
    about = key if name is None else keeper_field(name)
    body = bytes([1, operation]) + struct.pack("<Q", 5) + about + rest
    return struct.pack("<H", len(body)) + body


made = keeper_request(1, keeper_spec(3, b"gcm(aes)", 7) + struct.pack("<I", 16))
none = keeper_field(b"")
for i, requests in enumerate([
        made, made + keeper_request(7, none + keeper_field(b"aad") + keeper_field(b"text")),
        made + keeper_request(8, struct.pack("<I", 1) + keeper_field(bytes(12)) + none + keeper_field(bytes(20))),
        made + keeper_request(6, none) + keeper_request(5, struct.pack("<I", 1)) + keeper_request(4, b"") + keeper_request(3, b"", b""),
        keeper_request(2, keeper_spec(1, b"hmac(sha256)", 24) + keeper_field(b"secret")) + keeper_request(9, keeper_field(b"text"))
        + keeper_request(10, struct.pack("<I", 0) + keeper_field(b"text") + keeper_field(bytes(32)))]):
    seed("keeper_message", f"{i:02}", b"\1" + requests)
private = [keeper_request(1, keeper_spec(4, algorithm, 0) + struct.pack("<I", 0)) for algorithm in (b"ed25519", b"ec-p256", b"rsa-2048")]
keys = pathlib.Path(__file__).resolve().parent.parent / "crates/crypto/awslc/tests/pkey"
rsa = keeper_request(2, keeper_spec(4, b"", 0) + keeper_field((keys / "rsa-2048.der").read_bytes()))
for i, requests in enumerate([
        private[0] + keeper_request(11, struct.pack("<I", 0)) + keeper_request(12, struct.pack("<IB", 0, 5) + keeper_field(b"text")),
        private[1] + keeper_request(6, none) + keeper_request(12, struct.pack("<IB", 1, 4) + keeper_field(bytes(32))),
        private[2] + rsa + keeper_request(12, struct.pack("<IBB", 0, 1, 3) + keeper_field(bytes(32)))
        + keeper_request(12, struct.pack("<IB", 0, 2) + keeper_field(bytes(36)))
        + keeper_request(12, struct.pack("<IBBBH", 0, 3, 3, 1, 32) + keeper_field(bytes(32))),
        rsa + keeper_request(13, struct.pack("<IB", 0, 1) + keeper_field(b"\1" * 256))
        + keeper_request(13, struct.pack("<IBBB", 0, 2, 1, 1) + keeper_field(b"label") + keeper_field(b"\1" * 256))
        + keeper_request(13, struct.pack("<IBHH", 0, 3, 0x303, 0) + keeper_field(b"\1" * 256))]):
    seed("keeper_message", f"private-{i}", b"\1" + requests)


def keeper_by(operation, rest, key=keeper_field(b"\2" + keeper_field(b"\0"))):
    return keeper_request(operation, rest, None, key)


wraps = [keeper_request(14, bytes([kind]) + keeper_field(algorithm) + keeper_field(bytes(16)), None)
         for kind, algorithm in ((1, b"hmac(sha256)"), (2, b"ctr(aes)"), (3, b"gcm(aes)"))]
named = keeper_field(b"\1" + keeper_field(b"k") + struct.pack("<I", 0) + keeper_field(b"gcm(aes)"))
piece = keeper_field(b"piece")
for i, requests in enumerate([
        wraps[0] + keeper_by(15, b"\1") + keeper_by(19, piece),
        wraps[1] + keeper_by(16, b"\0" + keeper_field(bytes(16)) + piece) + keeper_by(16, b"\1" + keeper_field(bytes(16)) + piece),
        wraps[2] + keeper_by(17, keeper_field(bytes(12)) + none + piece + struct.pack("<H", 16))
        + keeper_by(18, keeper_field(bytes(12)) + none + piece + keeper_field(bytes(16))),
        wraps[0] + keeper_by(20, struct.pack("<I", 1) + piece)
        + b"".join(keeper_request(number, rest, None) for number, rest in (
            (21, struct.pack("<I", 1) + piece), (23, struct.pack("<II", 1, 2)), (22, struct.pack("<I", 1) + piece), (24, struct.pack("<I", 2)))),
        made + keeper_by(15, b"\3", named) + keeper_by(17, keeper_field(bytes(12)) + none + piece + struct.pack("<H", 4), named)]):
    seed("keeper_message", f"by-reference-{i}", b"\1" + requests)
cipher = lambda length: b"\x10\0" + keeper_field(bytes(16)) + struct.pack("<I", length)
sealed = lambda length: b"\x11" + keeper_field(bytes(12)) + none + struct.pack("<IH", length, 16)
opened = lambda length: b"\x12" + keeper_field(bytes(12)) + none + struct.pack("<I", length) + keeper_field(bytes(16))
for i, requests in enumerate([
        wraps[1] + keeper_by(30, struct.pack("<H", 1) + cipher(9000)),
        wraps[1] + keeper_by(30, struct.pack("<H", 3) + cipher(16) + cipher(0) + cipher(100)),
        wraps[2] + keeper_by(30, struct.pack("<H", 3) + sealed(16) + opened(20) + sealed(0)),
        wraps[0] + keeper_by(30, struct.pack("<H", 2) + b"\x13" + struct.pack("<I", 40) + b"\x13" + struct.pack("<I", 0)),
        made + keeper_by(30, struct.pack("<H", 2) + sealed(16) + opened(16), named)]):
    seed("keeper_message", f"steps-{i}", b"\1" + requests)
seed("keeper_message", "reply-steps", b"\0" + bytes([1, 12]) + struct.pack("<QIH", 5, 0, 3) + b"\0" + keeper_field(bytes(16)) + none
     + b"\6" + b"\xff" + struct.pack("<H", 7))
seed("keeper_message", "reference-named", b"\2" + named[4:])
seed("keeper_message", "reference-wrapped", b"\2\2" + keeper_field(bytes(90)))
seed("keeper_message", "reply-computed", b"\0" + bytes([1, 9]) + struct.pack("<QI", 5, 0) + keeper_field(bytes(16)) + piece + none)
seed("keeper_message", "reply-failed", b"\0" + bytes([1, 10]) + struct.pack("<QB", 5, 6))
seed("keeper_message", "reply-public", b"\0" + bytes([1, 6]) + struct.pack("<QIB", 5, 1, 4) + keeper_field(bytes(91)))
seed("keeper_message", "reply-signature", b"\0" + bytes([1, 7]) + struct.pack("<QI", 5, 1) + keeper_field(bytes(64)))
for file in sorted(keys.iterdir()):
    if file.suffix in (".der", ".pkcs1", ".sec1", ".bad"):
        seed("private_key", file.name, file.read_bytes())
        label = {".pkcs1": b"RSA PRIVATE KEY", ".sec1": b"EC PRIVATE KEY"}.get(file.suffix, b"PRIVATE KEY")
        body = base64.encodebytes(file.read_bytes())
        seed("private_key", file.name + ".pem", b"-----BEGIN " + label + b"-----\n" + body + b"-----END " + label + b"-----\n")
for file in sorted(keys.glob("*.pub")):
    seed("public_key", file.stem, file.read_bytes())
point = (keys / "ec-p256.pub").read_bytes()
# The point compressed: SEQUENCE and BIT STRING are shorter by a coordinate.
seed("public_key", "compressed", bytes([0x30, point[1] - 32]) + point[2:24] + bytes([point[24] - 32, 0, 2 + point[-1] % 2]) + point[27:59])
seed("public_key", "cut", point[:-1])
for i, text in enumerate(["sealane://web", "sealane:web", "SEALANE://web.example.com?version=2", "sealane:a?version=4294967295",
                          "sealane://../web", "sealane://a?version=+1", "sealane://a?x=1", "file:web", "web", ""]):
    seed("key_uri", f"{i:02}", text)
seed("private_key", "encrypted.pem", b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n-----END RSA PRIVATE KEY-----\n")
seed("keeper_message", "reply", b"\0" + bytes([1, 3]) + struct.pack("<QI", 5, 1) + keeper_field(bytes(12)) + keeper_field(bytes(20)))
version = struct.pack("<IQQQQ", 1, 5, 0, 0, 0) + keeper_field(bytes(range(16)))
seed("keeper_file", "body", b"\2" + keeper_spec(3, b"gcm(aes)", 3) + struct.pack("<H", 1) + version)
seed("keeper_file", "store", b"\0SLKSTORE" + struct.pack("<HBIII", 1, 2, 0, 0, 0) + bytes(80))
seed("keeper_file", "counters", b"\3SLKCOUNT" + struct.pack("<H", 1) + bytes(80))
seed("keeper_file", "entries", b"\4" + struct.pack("<I", 1) + b"k" + struct.pack("<I4Q", 1, 2, 3, 4, 5))
seed("keeper_file", "key", b"\1SLKEYONE" + struct.pack("<H", 1) + bytes(80))
