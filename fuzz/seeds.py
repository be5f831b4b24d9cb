#!/usr/bin/env python3
"""Writes the seeds of the corpora (corpus/TARGET/seed-*). What fuzzing adds to them is kept only when it found something."""
import os
import struct


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
