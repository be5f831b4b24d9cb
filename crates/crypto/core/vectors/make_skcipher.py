#!/usr/bin/env python3
"""Writes skcipher.txt: the inputs of published vectors, with outputs computed by OpenSSL (through Python's cryptography)
and libgcrypt, and compared below with the published ones. Usage: make_skcipher.py > skcipher.txt"""

import ctypes
import struct
import subprocess
import warnings

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

warnings.simplefilter("ignore")
try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import Camellia, TripleDES
except ImportError:
    Camellia, TripleDES = algorithms.Camellia, algorithms.TripleDES

gcrypt = ctypes.CDLL("libgcrypt.so.20")
gcrypt.gcry_check_version(None)
GCRYPT_ALG = {"serpent": {16: 304, 24: 305, 32: 306}, "twofish": {32: 10, 16: 303}, "des": {8: 302},
              "camellia": {16: 310, 24: 311, 32: 312}, "sm4": {16: 318}}
GCRYPT_MODE = {"ecb": 1, "cbc": 3, "ctr": 6, "xts": 13}
SIZE = ctypes.c_size_t


def by_gcrypt(alg, mode, key, iv, text):
    handle = ctypes.c_void_p()
    key_len = len(key) // 2 if mode == "xts" else len(key)
    assert gcrypt.gcry_cipher_open(ctypes.byref(handle), GCRYPT_ALG[alg][key_len], GCRYPT_MODE[mode], 0) == 0
    weak = 43
    assert gcrypt.gcry_cipher_setkey(handle, key, SIZE(len(key))) & 0xFFFF in (0, weak)
    set_iv = gcrypt.gcry_cipher_setctr if mode == "ctr" else gcrypt.gcry_cipher_setiv
    assert not iv or set_iv(handle, iv, SIZE(len(iv))) == 0
    out = ctypes.create_string_buffer(len(text))
    assert gcrypt.gcry_cipher_encrypt(handle, out, SIZE(len(text)), text, SIZE(len(text))) == 0
    gcrypt.gcry_cipher_close(handle)
    return out.raw


OPENSSL_ALG = {"aes": algorithms.AES, "camellia": Camellia, "des3_ede": TripleDES, "sm4": algorithms.SM4,
               "des": lambda key: TripleDES(3 * key)}


def by_openssl(alg, mode, key, iv, text):
    mode = {"ecb": lambda: modes.ECB(), "cbc": lambda: modes.CBC(iv), "ctr": lambda: modes.CTR(iv),
            "xts": lambda: modes.XTS(iv)}[mode]()
    enc = Cipher(OPENSSL_ALG[alg](key), mode).encryptor()
    return enc.update(text) + enc.finalize()


def by_openssl_enc(alg, mode, key, iv, text):
    """The command line has ARIA; XTS is made from its ECB."""
    if mode == "xts":
        half = len(key) // 2
        tweak, tweaks = int.from_bytes(by_openssl_enc(alg, "ecb", key[half:], b"", iv), "little"), b""
        for _ in range(len(text) // 16):
            tweaks += tweak.to_bytes(16, "little")
            tweak = (tweak << 1) % (1 << 128) ^ (0x87 if tweak >> 127 else 0)
        mixed = bytes(a ^ b for a, b in zip(text, tweaks))
        return bytes(a ^ b for a, b in zip(by_openssl_enc(alg, "ecb", key[:half], b"", mixed), tweaks))
    command = ["openssl", "enc", f"-{alg}-{8 * len(key)}-{mode}", "-nopad", "-K", key.hex()]
    return subprocess.run(command + (["-iv", iv.hex()] if iv else []), input=text, capture_output=True, check=True).stdout


def ivout(mode, block, iv, out):
    if mode == "cbc":
        return out[-block:]
    if mode == "ctr":
        n = int.from_bytes(iv, "big") + -(-len(out) // block)
        return (n % (1 << 8 * block)).to_bytes(block, "big")
    return None


def emit(source, alg, key, iv, text, out, ivout=None):
    print(f"# source: {source}\nalg = {alg}\nkey = {key.hex()}\niv = {iv.hex()}\nin = {text.hex()}\nout = {out.hex()}")
    if ivout is not None:
        print(f"ivout = {ivout.hex()}")
    print()


def vector(source, mode, alg, key, iv, text, published="", how=None):
    key, iv, text = (bytes.fromhex(x) if isinstance(x, str) else x for x in (key, iv, text))
    by = how or (by_openssl if alg in OPENSSL_ALG else by_gcrypt)
    out = by(alg, mode, key, iv, text)
    assert out.hex().startswith(published), (source, out.hex())
    block = 8 if alg.startswith("des") else 16
    emit(source, f"{mode}({alg})", key, iv, text, out, ivout(mode, block, iv, out))


def cts(source, key, iv, text, published):
    """CBC-CS3 of SP 800-38A-addendum, the variant of RFC 3962 and Linux: the last two blocks are always swapped."""
    key, iv = bytes.fromhex(key), bytes.fromhex(iv)
    padded = text + bytes(-len(text) % 16)
    full = by_openssl("aes", "cbc", key, iv, padded)
    if len(text) > 16:
        tail = len(text) - (len(padded) - 16)
        out = full[:-32] + full[-16:] + full[-32:-16][:tail]
    else:
        out = full
    assert out.hex() == published, out.hex()
    # Linux's template leaves the block that its last CBC step wrote, which is the last but one of the text.
    emit(source, "cts(cbc(aes))", key, iv, text, out, out[len(padded) - 32:len(padded) - 16] if len(text) > 16 else out)


def quarter(x, a, b, c, d):
    for i, j, k, rot in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
        x[i] = (x[i] + x[j]) & 0xFFFFFFFF
        x[k] ^= x[i]
        x[k] = (x[k] << rot | x[k] >> (32 - rot)) & 0xFFFFFFFF


def rounds(state, n):
    x = list(state)
    for _ in range(n // 2):
        for q in ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
                  (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)):
            quarter(x, *q)
    return x


SIGMA = struct.unpack("<4I", b"expand 32-byte k")


def chacha(key, iv, text, n):
    """The kernel's layout: the 16 bytes of iv are state words 12 to 15, and word 12 alone counts."""
    words, out = list(struct.unpack("<4I", iv)), b""
    while len(out) < len(text):
        state = SIGMA + struct.unpack("<8I", key) + tuple(words)
        out += struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(rounds(state, n), state)))
        words[0] = (words[0] + 1) & 0xFFFFFFFF
    return bytes(a ^ b for a, b in zip(text, out))


def xchacha(key, iv, text, n):
    x = rounds(SIGMA + struct.unpack("<8I", key) + struct.unpack("<4I", iv[:16]), n)
    return chacha(struct.pack("<8I", *(x[:4] + x[12:])), iv[24:] + iv[16:24], text, n)


def stream(source, alg, how, key, iv, text, published=""):
    key, iv = bytes.fromhex(key), bytes.fromhex(iv)
    n = 12 if alg.endswith("12") else 20
    out = how(key, iv, text, n)
    assert out.hex().startswith(published), (source, out.hex())
    if alg == "chacha20":
        enc = Cipher(algorithms.ChaCha20(key, iv), None).encryptor()
        assert iv[:4] == b"\xff" * 4 or enc.update(text) == out
    emit(source, alg, key, iv, text, out, iv)


def main():
    print("# Ciphers. Made by make_skcipher.py: inputs of the documents named, outputs of OpenSSL and libgcrypt, which the\n"
          "# script compares with the published ones where the document has them. ivout is what Linux leaves.\n")
    text = ("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
            "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710")
    iv, counter = bytes(range(16)).hex(), bytes(range(0xF0, 0x100)).hex()
    aes = {"2b7e151628aed2a6abf7158809cf4f3c": ("3ad77bb4", "7649abac", "874d6191"),
           "8e73b0f7da0e6452c810f32b809079e562f8ead2522c6b7b": ("bd334f1d", "4f021db2", "1abc9324"),
           "603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4": ("f3eed1bd", "f58c4c04", "601ec313")}
    for at, (key, (ecb, cbc, ctr)) in enumerate(aes.items()):
        vector(f"SP 800-38A F.1.{2 * at + 1}", "ecb", "aes", key, "", text, ecb)
        vector(f"SP 800-38A F.2.{2 * at + 1}", "cbc", "aes", key, iv, text, cbc)
        vector(f"SP 800-38A F.5.{2 * at + 1}", "ctr", "aes", key, counter, text, ctr)
        vector(f"SP 800-38A F.5.{2 * at + 1}, last block cut", "ctr", "aes", key, counter, text[:-6], ctr)
    vector("computed: the counter wraps over all 16 bytes", "ctr", "aes", key, "ff" * 16, text[:80])

    # Not computed: OpenSSL refuses equal halves, which Linux takes.
    emit("IEEE 1619-2007 vector 1", "xts(aes)", bytes(32), bytes(16), bytes(32),
         bytes.fromhex("917cf69ebd68b2ec9b9fe9a3eadda692cd43d2f59598ed858c02c2652fbf922e"))
    vector("IEEE 1619-2007 vector 2", "xts", "aes", "11" * 16 + "22" * 16, "3333333333" + "00" * 11, "44" * 32,
           "c454185e6a16936e39334038acef838bfb186fff7480adc4289382ecd6d394f0")
    vector("IEEE 1619-2007 vector 4, first 64 bytes", "xts", "aes",
           "27182818284590452353602874713526" "31415926535897932384626433832795", "00" * 16, bytes(range(64)),
           "27a7479befa1d476489f308cd4cfa6e2")
    for n, published in ((17, "6c1625db4671522d3d7599601de7ca09ed"), (18, "d069444b7a7e0cab09e24447d24deb1fedbf"),
                         (19, "e5df1351c0544ba1350b3363cd8ef4beedbf9d"), (20, "9d84c813f719aa2c7be3f66171c7c5c2edbf9dac")):
        vector(f"IEEE 1619-2007 vector {n - 2}", "xts", "aes", bytes(range(0xFF, 0xEF, -1)) + bytes(range(0xBF, 0xAF, -1)),
               "9a78563412" + "00" * 11, bytes(range(n)), published)
    vector("computed: AES-256, 45 bytes", "xts", "aes", bytes(range(64)), iv, bytes(range(45)))

    chicken = b"I would like the General Gau's Chicken, please, and wonton soup."
    for n, published in (
            (17, "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (31, "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5"),
            (32, "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584"),
            (47, "97687268d6ecccc0c07b25e25ecfe584b3fffd940c16a18c1b5549d2f838029e39312523a78662d5be7fcbcc98ebf5"),
            (48, "97687268d6ecccc0c07b25e25ecfe5849dad8bbb96c4cdc03bc103e1a194bbd839312523a78662d5be7fcbcc98ebf5a8"),
            (64, "97687268d6ecccc0c07b25e25ecfe58439312523a78662d5be7fcbcc98ebf5a8"
                 "4807efe836ee89a526730dbc2f7bc8409dad8bbb96c4cdc03bc103e1a194bbd8")):
        cts(f"RFC 3962 appendix B, {n} bytes", "636869636b656e207465726979616b69", "00" * 16, chicken[:n], published)

    for source, key, nonce, iv8, text3686, published in (
            ("RFC 3686 vector 1", "ae6852f8121067cc4bf7a5765577f39e", "00000030", "00" * 8, b"Single block msg",
             "e4095d4fb7a7b3792d6175a3261311b8"),
            ("RFC 3686 vector 2", "7e24067817fae0d743d6ce1f32539163", "006cb6db", "c0543b59da48d90b", bytes(range(32)),
             "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28"),
            ("RFC 3686 vector 3", "7691be035e5020a8ac6e618529f9a0dc", "00e0017b", "27777f3f4a1786f0", bytes(range(36)),
             "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f"),
            ("RFC 3686 vector 9", "ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d", "001cc5b7",
             "51a51d70a1c11148", bytes(range(36)), "eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8")):
        out = by_openssl("aes", "ctr", bytes.fromhex(key), bytes.fromhex(nonce + iv8 + "00000001"), text3686)
        assert out.hex() == published, source
        emit(source, "rfc3686(ctr(aes))", bytes.fromhex(key + nonce), bytes.fromhex(iv8), text3686, out, bytes.fromhex(iv8))

    key = "0123456789abcdeffedcba9876543210"
    vector("RFC 3713 appendix A", "ecb", "camellia", key, "", key, "67673138549669730857065648eabe43")
    vector("RFC 3713 appendix A", "ecb", "camellia", key + "0011223344556677", "", key, "b4993401b3e996f84ee5cee7d79b09b9")
    vector("RFC 3713 appendix A", "ecb", "camellia", key + "00112233445566778899aabbccddeeff", "", key,
           "9acc237dff16d76c20ef7c919e3a7509")
    vector("GB/T 32907-2016 appendix A", "ecb", "sm4", key, "", key, "681edf34d206965e86b3e94f536e4246")
    nessie = "80" + "00" * 15
    vector("NESSIE serpent set 1", "ecb", "serpent", nessie, "", "00" * 16)
    vector("NESSIE serpent set 1", "ecb", "serpent", nessie + "00" * 16, "", "00" * 16)
    vector("Twofish paper, I=1", "ecb", "twofish", "00" * 16, "", "00" * 16, "9f589f5cf6122c32b6bfec2f2ae8c35a")
    vector("Twofish paper, 256 bits", "ecb", "twofish", "0123456789abcdeffedcba987654321000112233445566778899aabbccddeeff",
           "", "00" * 16, "37527be0052334b89f0cfccae87cfa20")
    for alg, lens in (("camellia", (16, 24, 32)), ("serpent", (16, 24, 32)), ("twofish", (16, 32)), ("sm4", (16,))):
        for n in lens:
            key = bytes(range(n))
            vector("computed with libgcrypt", "cbc", alg, key, iv, text, how=by_gcrypt)
            vector("computed with libgcrypt", "ctr", alg, key, counter, text[:-6], how=by_gcrypt)
            if n != 24:
                vector("computed with libgcrypt", "xts", alg, bytes(range(2 * n)), iv, text[:-6], how=by_gcrypt)
    emit("RFC 5794 appendix A", "ecb(aria)", bytes(range(16)), b"", bytes.fromhex("00112233445566778899aabbccddeeff"),
         bytes.fromhex("d718fbd6ab644c739da95f3be6451778"))
    emit("RFC 5794 appendix A", "ecb(aria)", bytes(range(24)), b"", bytes.fromhex("00112233445566778899aabbccddeeff"),
         bytes.fromhex("26449c1805dbe7aa25a468ce263a9e79"))
    emit("RFC 5794 appendix A", "ecb(aria)", bytes(range(32)), b"", bytes.fromhex("00112233445566778899aabbccddeeff"),
         bytes.fromhex("f92bd7c79fb72e2f2b8f80c1972d24fc"))

    for n in (16, 24, 32):
        vector("computed with OpenSSL", "cbc", "aria", bytes(range(n)), iv, text, how=by_openssl_enc)
        vector("computed with OpenSSL", "ctr", "aria", bytes(range(n)), counter, text[:-6], how=by_openssl_enc)
        vector("computed with OpenSSL", "xts", "aria", bytes(range(2 * n)), iv, text, how=by_openssl_enc)

    vector("SP 800-17 table A.1, first round", "ecb", "des", "01" * 8, "", "8000000000000000", "95f8a5e5dd31d900")
    vector("FIPS 81 appendix B", "ecb", "des", "0123456789abcdef", "", b"Now is the time for all ", "3fa40e8a984d4815")
    vector("FIPS 81 appendix C", "cbc", "des", "0123456789abcdef", "1234567890abcdef", b"Now is the time for all ",
           "e5c7cdde872bf27c43e934008c389c0f683788499a7c05f6")
    vector("computed with libgcrypt", "ctr", "des", "0123456789abcdef", "ffffffffffffffff", b"Now is the time",
           how=by_gcrypt)
    key = "0123456789abcdef23456789abcdef01456789abcdef0123"
    vector("SP 800-67 appendix B.1", "ecb", "des3_ede", key, "", b"The qufck brown fox jump",
           "a826fd8ce53b855fcce21c8112256fe668d5c05dd9b6b900")
    vector("computed with OpenSSL", "cbc", "des3_ede", key, "1234567890abcdef", b"The qufck brown fox jump")
    ctr_by_ecb = lambda alg, _, key, iv, text: bytes(a ^ b for a, b in zip(text, by_openssl(alg, "ecb", key, b"", b"".join(
        ((int.from_bytes(iv, "big") + i) % (1 << 64)).to_bytes(8, "big") for i in range(-(-len(text) // 8))))))
    vector("computed with OpenSSL's ECB", "ctr", "des3_ede", key, "fffffffffffffffe", b"The qufck brown fox", how=ctr_by_ecb)

    sunscreen = (b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
                 b"sunscreen would be it.")
    key = bytes(range(32)).hex()
    stream("RFC 8439 section 2.4.2", "chacha20", chacha, key, "01000000" "000000000000004a00000000", sunscreen,
           "6e2e359a2568f98041ba0728dd0d6981e97e7aec1d4360c20a27afccfd9fae0b")
    stream("computed: the counter wraps without a carry, as in Linux", "chacha20", chacha, key, "ffffffff" + "ff" * 12,
           bytes(range(130)))
    stream("draft-irtf-cfrg-xchacha-03 appendix A.3.1's key and nonce, computed in Python", "xchacha20", xchacha,
           bytes(range(0x80, 0xA0)).hex(), bytes(range(0x40, 0x57)).hex() + "58" + "01" + "00" * 7, sunscreen)
    stream("computed in Python", "xchacha12", xchacha, key, bytes(range(0x40, 0x58)).hex() + "00" * 8, sunscreen)


main()
