#!/usr/bin/env python3
"""Writes partial.txt: partial MACs by docs/partial-mac.md, computed with nothing but AES in ECB mode (OpenSSL, through
Python's cryptography) and Python's HMAC and hashes: GHASH, CMAC, the derivation of keys and the selection are written
out below, and GMAC and CMAC are first compared with published values. Usage: make_partial.py > partial.txt"""

import hashlib
import hmac

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

MACS = {"gmac(aes)": (1, 16, 16), "cmac(aes)": (2, 16, 12), "hmac(sha1)": (3, 20, 12), "hmac(sha256)": (4, 32, 16)}
HALVINGS = {"1": 0, "1/2": 1, "1/4": 2, "1/8": 3}


def aes(key, block):
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return cipher.update(block) + cipher.finalize()


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b))


def blocks_of(text):
    return [text[at:at + 16] for at in range(0, len(text), 16)]


def ghash(h, text):
    """SP 800-38D, algorithms 1 and 2."""
    h, y = int.from_bytes(h, "big"), 0
    for block in blocks_of(text):
        y ^= int.from_bytes(block, "big")
        z, v = 0, h
        for i in range(128):
            if y >> (127 - i) & 1:
                z ^= v
            v = v >> 1 ^ (0xe1 << 120 if v & 1 else 0)
        y = z
    return y.to_bytes(16, "big")


def gmac(key, nonce, text):
    padded = text + bytes(-len(text) % 16) + (8 * len(text)).to_bytes(8, "big") + bytes(8)
    return xor(ghash(aes(key, bytes(16)), padded), aes(key, nonce + b"\0\0\0\1"))


def cmac(key, text):
    """SP 800-38B."""
    def double(x):
        x = int.from_bytes(x, "big") << 1
        return (x & (1 << 128) - 1 ^ (0x87 if x >> 128 else 0)).to_bytes(16, "big")

    k1 = double(aes(key, bytes(16)))
    blocks = blocks_of(text) or [b""]
    last = blocks.pop()
    last = xor(last, k1) if len(last) == 16 else xor((last + b"\x80").ljust(16, b"\0"), double(k1))
    state = bytes(16)
    for block in blocks + [last]:
        state = aes(key, xor(state, block))
    return state


# McGrew and Viega, test case 7; SP 800-38B, D.1 (AES-128) examples 1 and 3.
assert gmac(bytes(24), bytes(12), b"").hex() == "cd33b28ac773f74ba00ed1f312572435"
assert gmac(bytes.fromhex("77be63708971c4e240d1cb79e8d77feb"), bytes.fromhex("e0e00f19fed7ba0136a797f3"),
            bytes.fromhex("7a43ec1d9c0a5a78a0b16533a6213cab")).hex() == "209fcc8d3675ed938e9c7166709dd946"
KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
assert cmac(KEY, b"").hex() == "bb1d6929e95937287fa37d129b756746"
assert cmac(KEY, bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e5130c81c46a35ce411")).hex() == \
    "dfa66747de9ae63030ca32611497c827"


def kdf(key, label, context, size):
    """SP 800-108, counter mode over HMAC-SHA-256."""
    out = b""
    for i in range(1, -(-size // 32) + 1):
        out += hmac.digest(key, i.to_bytes(4, "big") + label + b"\0" + context + (8 * size).to_bytes(4, "big"), hashlib.sha256)
    return out[:size]


def selected(key, number, size, halvings):
    """The indices of the covered blocks of a body of so many bytes."""
    count = -(-size // 16)
    bits = []
    for group in range(-(-count // 128)):
        word = (1 << 128) - 1
        for k in range(halvings):
            index = group * halvings + k
            word &= int.from_bytes(aes(key, number.to_bytes(8, "big") + size.to_bytes(4, "big") + index.to_bytes(4, "big")), "big")
        bits += [word >> (127 - i) & 1 for i in range(128)]
    return [i for i in range(count) if bits[i]]


def partial(mac, fraction, key, context, number, always, body, tail, tag_len):
    ident, key_len, _ = MACS[mac]
    name = f"partial({mac},{fraction})"
    subkeys = kdf(key, b"sealane partial MAC", name.encode() + b"\0" + bytes([len(key)]) + context, 16 + key_len + 4)
    k_select, k_mac, salt = subkeys[:16], subkeys[16:16 + key_len], subkeys[16 + key_len:]
    header = number.to_bytes(8, "big")
    header += b"".join(len(part).to_bytes(4, "big") for part in (always, body, tail))
    header += bytes([HALVINGS[fraction], ident, tag_len, 0]) + b"partial1"
    blocks = blocks_of(body)
    covered = b"".join(blocks[i] for i in selected(k_select, number, len(body), HALVINGS[fraction]))
    text = header + always + tail + covered
    if mac == "gmac(aes)":
        tag = gmac(k_mac, salt + number.to_bytes(8, "big"), text)
    elif mac == "cmac(aes)":
        tag = cmac(k_mac, text)
    else:
        tag = hmac.digest(k_mac, text, {"hmac(sha1)": "sha1", "hmac(sha256)": "sha256"}[mac])
    return tag[:tag_len]


def pattern(seed, size):
    return hashlib.shake_128(seed.encode()).digest(size)


def main():
    print("# Partial MACs (docs/partial-mac.md), by make_partial.py.")
    for mac, (_, _, tag_len) in MACS.items():
        full = {"hmac(sha1)": 20, "hmac(sha256)": 32}.get(mac, 16)
        for fraction in HALVINGS:
            # Nothing but what is always covered; a body with a short last block; one of two words of the selection.
            cases = [(16, 0, 0, 1, tag_len), (150, 250, 48, (5 << 32) + 7, full), (24, 2100, 48, (1 << 64) - 2, tag_len)]
            for i, (always_len, body_len, tail_len, number, size) in enumerate(cases):
                name = f"partial({mac},{fraction})"
                key = pattern(f"key {name} {i}", [16, 20, 64][i])
                context = pattern("context", [0, 4, 4][i])
                always, body, tail = (pattern(f"{word} {name} {i}", n) for word, n in
                                      (("always", always_len), ("body", body_len), ("tail", tail_len)))
                out = partial(mac, fraction, key, context, number, always, body, tail, size)
                print(f"\nalg = {name}\nkey = {key.hex()}\ncontext = {context.hex()}\nnumber = {number:016x}")
                print(f"always = {always.hex()}\nbody = {body.hex()}\ntail = {tail.hex()}\nout = {out.hex()}")


main()
