#!/usr/bin/env python3
"""Writes aead.txt: the inputs of published vectors, with outputs computed by OpenSSL (through Python's cryptography) and
libgcrypt, and compared below with the published ones; compositions are also compared with what Linux 7.3 answered
through AF_ALG. Usage: make_aead.py > aead.txt"""

import ctypes
import hashlib
import hmac
import struct

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305
from cryptography.hazmat.primitives.cmac import CMAC

try:
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES
except ImportError:
    TripleDES = algorithms.TripleDES

gcrypt = ctypes.CDLL("libgcrypt.so.20")
gcrypt.gcry_check_version(None)
SIZE = ctypes.c_size_t


def unhex(x):
    return bytes.fromhex(x) if isinstance(x, str) else x


def gcm(key, nonce, aad, text, tag_len=16):
    sealed = AESGCM(key).encrypt(nonce, text, aad)
    return sealed[:len(text)], sealed[len(text):][:tag_len]


def ccm(key, nonce, aad, text, tag_len=16):
    sealed = AESCCM(key, tag_length=tag_len).encrypt(nonce, text, aad)
    return sealed[:len(text)], sealed[len(text):]


def chachapoly(key, nonce, aad, text, tag_len=16):
    sealed = ChaCha20Poly1305(key).encrypt(nonce, text, aad)
    return sealed[:len(text)], sealed[len(text):]


def sm4(mode):
    def seal(key, nonce, aad, text, tag_len=16):
        handle = ctypes.c_void_p()
        assert gcrypt.gcry_cipher_open(ctypes.byref(handle), 318, {"ccm": 8, "gcm": 9}[mode], 0) == 0
        assert gcrypt.gcry_cipher_setkey(handle, key, SIZE(len(key))) == 0
        assert gcrypt.gcry_cipher_setiv(handle, nonce, SIZE(len(nonce))) == 0
        if mode == "ccm":
            lens = (ctypes.c_uint64 * 3)(len(text), len(aad), tag_len)
            assert gcrypt.gcry_cipher_ctl(handle, 69, lens, SIZE(24)) == 0
        assert gcrypt.gcry_cipher_authenticate(handle, aad, SIZE(len(aad))) == 0
        out, tag = ctypes.create_string_buffer(len(text)), ctypes.create_string_buffer(16)
        assert gcrypt.gcry_cipher_encrypt(handle, out, SIZE(len(text)), text, SIZE(len(text))) == 0
        assert gcrypt.gcry_cipher_gettag(handle, tag, SIZE(tag_len)) == 0
        gcrypt.gcry_cipher_close(handle)
        return out.raw, tag.raw[:tag_len]
    return seal


def emit(source, alg, key, iv, aad, text, out, tag, fail=False):
    print(f"# source: {source}\nalg = {alg}\nkey = {key.hex()}\niv = {iv.hex()}\naad = {aad.hex()}\nin = {text.hex()}\n"
          f"out = {out.hex()}\ntag = {tag.hex()}" + ("\nfail = auth" if fail else "") + "\n")


def vector(source, alg, seal, key, nonce, aad, text, published="", tag_len=16, iv=None):
    key, nonce, aad, text = map(unhex, (key, nonce, aad, text))
    out, tag = seal(key, nonce, aad, text, tag_len)
    assert (out + tag).hex().endswith(published), (source, (out + tag).hex())
    emit(source, alg, key, nonce if iv is None else iv, aad, text, out, tag)
    return out, tag


def ccm_iv(nonce):
    return bytes([14 - len(nonce)]) + nonce + bytes(15 - len(nonce))


def ccm_vector(source, key, nonce, aad, text, published="", tag_len=16, alg="ccm(aes)", seal=ccm):
    return vector(source, alg, seal, key, nonce, aad, text, published, tag_len, ccm_iv(unhex(nonce)))


def cbc(cipher):
    def encrypt(key, iv, text):
        enc = Cipher(cipher(key), modes.CBC(iv)).encryptor()
        return enc.update(text) + enc.finalize()
    return encrypt


def rfc3686(key, iv, text):
    enc = Cipher(algorithms.AES(key[:-4]), modes.CTR(key[-4:] + iv + struct.pack(">I", 1))).encryptor()
    return enc.update(text) + enc.finalize()


def ctr(key, iv, text):
    enc = Cipher(algorithms.AES(key), modes.CTR(iv)).encryptor()
    return enc.update(text) + enc.finalize()


def by_hmac(hash):
    return lambda key, data: hmac.new(key, data, hash).digest()


def by_cmac(key, data):
    mac = CMAC(algorithms.AES(key))
    mac.update(data)
    return mac.finalize()


def counting(n, start=0):
    return bytes((start + i) % 256 for i in range(n))


def authenc(alg, mac, encrypt, mac_len, key_len, iv_len, tag_len, aad_len, text_len, published=""):
    """Encrypt, then the MAC over associated data and ciphertext. The key is a Linux rtattr, then both keys. With
    extended sequence numbers the associated data is SPI, high half, low half, and the high half goes to the end."""
    keys, iv, aad, text = counting(mac_len + key_len), counting(iv_len, 50), counting(aad_len, 80), counting(text_len, 120)
    out = encrypt(keys[mac_len:], iv, text)
    covered = aad[:4] + aad[8:] + out + aad[4:8] if alg.startswith("authencesn") else aad + out
    tag = mac(keys[:mac_len], covered)[:tag_len]
    assert (out + tag).hex().startswith(published), (alg, (out + tag).hex())
    source = "computed with OpenSSL's parts" + (", equal to Linux 7.3's answer" if published else "")
    emit(source, alg, b"\x08\x00\x01\x00" + struct.pack(">I", key_len) + keys, iv, aad, text, out, tag)


def main():
    print("# AEADs. Made by make_aead.py: inputs of the documents named, outputs of OpenSSL and libgcrypt, which the script\n"
          "# compares with the published ones where the document has them.\n")
    text = ("d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72"
            "1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b391aafd255")
    aad, nonce = "feedfacedeadbeeffeedfacedeadbeefabaddad2", "cafebabefacedbaddecaf888"
    key = "feffe9928665731c6d6a8f9467308308"
    paper = "McGrew and Viega, The Galois/Counter Mode of Operation, test case"
    vector(f"{paper} 1", "gcm(aes)", gcm, "00" * 16, "00" * 12, "", "", "58e2fccefa7e3061367f1d57a4e7455a")
    vector(f"{paper} 2", "gcm(aes)", gcm, "00" * 16, "00" * 12, "", "00" * 16,
           "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf")
    vector(f"{paper} 3", "gcm(aes)", gcm, key, nonce, "", text, "4d5c2af327cd64a62cf35abd2ba6fab4")
    out, tag = vector(f"{paper} 4", "gcm(aes)", gcm, key, nonce, aad, text[:-8], "5bc94fbc3221a5db94fae95ae7121a47")
    for n in (12, 8, 4):
        vector(f"{paper} 4, tag cut", "gcm(aes)", gcm, key, nonce, aad, text[:-8], tag_len=n)
    bad = bytes([tag[0] ^ 1]) + tag[1:]
    emit(f"{paper} 4, one bit of the tag changed", "gcm(aes)", unhex(key), unhex(nonce), unhex(aad), unhex(text[:-8]), out,
         bad, fail=True)
    key24 = key + key[:16]
    vector(f"{paper} 9", "gcm(aes)", gcm, key24, nonce, "", text, "9924a7c8587336bfb118024db8674a14")
    vector(f"{paper} 10", "gcm(aes)", gcm, key24, nonce, aad, text[:-8], "2519498e80f1478f37ba55bd6d27618c")
    vector(f"{paper} 15", "gcm(aes)", gcm, key + key, nonce, "", text, "b094dac5d93471bdec1a502270e3cc6c")
    vector(f"{paper} 16", "gcm(aes)", gcm, key + key, nonce, aad, text[:-8], "76fc6ece0f4e1768cddf8853bb2d551b")

    key = bytes(range(0xC0, 0xD0))
    for n, nonce, a, p, published, tag_len in (
            (1, "00000003020100a0a1a2a3a4a5", 8, 23, "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0", 8),
            (2, "00000004030201a0a1a2a3a4a5", 8, 24, "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916", 8),
            (4, "00000006050403a0a1a2a3a4a5", 12, 19, "a28c6865939a9a79faaa5c4c2a9d4a91cdac8c96c861b9c9e61ef1", 8),
            (7, "00000009080706a0a1a2a3a4a5", 8, 23, "0135d1b2c95f41d5d1d4fec185d166b8094e999dfed96c048c56602c97acbb7490", 10)):
        ccm_vector(f"RFC 3610 packet vector {n}", key, nonce, counting(a), counting(p, a), published, tag_len)
    key = bytes(range(0x40, 0x50))
    ccm_vector("SP 800-38C example 1", key, counting(7, 0x10), counting(8), counting(4, 0x20), "7162015b4dac255d", 4)
    ccm_vector("SP 800-38C example 2", key, counting(8, 0x10), counting(16), counting(16, 0x20),
               "d2a1f0e051ea5f62081a7792073d593d1fc64fbfaccd", 6)
    ccm_vector("SP 800-38C example 3", key, counting(12, 0x10), counting(20), counting(24, 0x20),
               "e3b201a9f5b71a7a9b1ceaeccd97e70b6176aad9a4428aa5484392fbc1b09951", 8)
    out, tag = ccm_vector("computed with OpenSSL: AES-256, 12-byte nonce", bytes(range(32)), counting(12, 9), counting(33),
                          counting(70, 5))
    emit("the same, one bit of the ciphertext changed", "ccm(aes)", bytes(range(32)), ccm_iv(counting(12, 9)), counting(33),
         counting(70, 5), bytes([out[0] ^ 0x40]) + out[1:], tag, fail=True)
    ccm_vector("computed with OpenSSL: AES-192, no text", bytes(range(24)), counting(11, 9), counting(5), b"")

    sunscreen = (b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
                 b"sunscreen would be it.")
    key, nonce, aad = counting(32, 0x80), "070000004041424344454647", "50515253c0c1c2c3c4c5c6c7"
    out, tag = vector("RFC 8439 section 2.8.2", "rfc7539(chacha20,poly1305)", chachapoly, key, nonce, aad, sunscreen,
                      "1ae10b594f09e26a7e902ecbd0600691")
    emit("RFC 8439 section 2.8.2, one bit of the associated data changed", "rfc7539(chacha20,poly1305)", key, unhex(nonce),
         unhex(aad)[:-1] + b"\x00", sunscreen, out, tag, fail=True)
    vector("computed with OpenSSL: no text, no associated data", "rfc7539(chacha20,poly1305)", chachapoly, key, nonce, "", "")

    key, nonce, aad = "0123456789abcdeffedcba9876543210", "00001234567800000000abcd", "feedfacedeadbeeffeedfacedeadbeefabaddad2"
    text = "aa" * 8 + "bb" * 8 + "cc" * 8 + "dd" * 8 + "ee" * 8 + "ff" * 8 + "ee" * 8 + "aa" * 8
    vector("RFC 8998 appendix A.1", "gcm(sm4)", sm4("gcm"), key, nonce, aad, text, "83de3541e4c2b58177e065a9bf7b62ec")
    ccm_vector("RFC 8998 appendix A.2", key, nonce, aad, text, "16842d4fa186f56ab33256971fa110f4", 16, "ccm(sm4)", sm4("ccm"))

    # Compositions for IPsec: salt at the end of the key, explicit IV at the end of the associated data.
    source = "computed with OpenSSL, equal to Linux 7.3's answer"
    iv, aad, text = counting(8, 50), counting(20, 80), counting(32, 120)

    def ipsec(alg, seal, key, nonce, covered, salt_len, published, hidden=True):
        out, tag = seal(key[:-salt_len], nonce, covered, text if hidden else b"")
        out = out if hidden else text
        assert (out + tag).hex() == published, (alg, (out + tag).hex())
        emit(source, alg, key, iv, aad, text, out, tag)

    ipsec("rfc4106(gcm(aes))", gcm, counting(20), counting(20)[-4:] + iv, aad[:-8], 4,
          "9eb113883bd23a00915364f759770c977099151b90715674dffe9c1947c4a2f51e8d81e75825ab421111ca70b928dbdd")
    ipsec("rfc4309(ccm(aes))", ccm, counting(19), counting(19)[-3:] + iv, aad[:-8], 3,
          "fbfc2166b79a3814a51172e4575b8025ec74f644487b918cc82ccf0e95ec202c9ba16f0a5a8bfd35de61527308e312f7")
    ipsec("rfc4543(gcm(aes))", gcm, counting(20), counting(20)[-4:] + iv, aad + text, 4,
          text.hex() + "5b068ec72574450b00a63b85f39de3a3", hidden=False)
    ipsec("rfc7539esp(chacha20,poly1305)", chachapoly, counting(36), counting(36)[-4:] + iv, aad[:-8], 4,
          "62e3641551c23c56acc7fd1ac85fa13b3cb1fb188cc7c7af885af0576a48a71b7f3dc255132ebc22c70cee412e88483c")

    aes_cbc, des3 = cbc(algorithms.AES), cbc(TripleDES)
    sha1, sha256 = by_hmac(hashlib.sha1), by_hmac(hashlib.sha256)
    authenc("authenc(hmac(sha1),cbc(aes))", sha1, aes_cbc, 20, 16, 16, 16, 20, 32,
            "a0ad34d4a87a3f98a8387c12a793f246ec8bdaaa7121825b6555477cd93de3078d443c33356d90030d347e2ffa0b4a20")
    authenc("authencesn(hmac(sha1),cbc(aes))", sha1, aes_cbc, 20, 16, 16, 16, 20, 32,
            "a0ad34d4a87a3f98a8387c12a793f246ec8bdaaa7121825b6555477cd93de30776cbcf747b7286b8193cd9ae31650a56")
    authenc("authenc(hmac(sha1),rfc3686(ctr(aes)))", sha1, rfc3686, 20, 20, 8, 16, 20, 32,
            "6ab39f0cb8e5f2e2e2c52a1f9758bd3e8e79591cb56201b0cbdb305f0ea7e44acffb8c7d94864b5f0c8a87feb524f87d")
    authenc("authenc(hmac(sha256),cbc(aes))", sha256, aes_cbc, 32, 16, 16, 16, 8, 64)
    authenc("authenc(hmac(sha256),cbc(aes))", sha256, aes_cbc, 32, 32, 16, 32, 12, 1424)
    authenc("authenc(hmac(sha512),cbc(aes))", by_hmac(hashlib.sha512), aes_cbc, 64, 32, 16, 32, 8, 64)
    authenc("authenc(hmac(sha384),cbc(aes))", by_hmac(hashlib.sha384), aes_cbc, 48, 24, 16, 24, 8, 64)
    authenc("authenc(hmac(md5),cbc(aes))", by_hmac(hashlib.md5), aes_cbc, 16, 16, 16, 12, 8, 64)
    authenc("authenc(hmac(sha1),cbc(des3_ede))", sha1, des3, 20, 24, 8, 12, 8, 64)
    authenc("authenc(hmac(sha256),ctr(aes))", sha256, ctr, 32, 16, 16, 16, 8, 61)
    authenc("authenc(hmac(sha256),rfc3686(ctr(aes)))", sha256, rfc3686, 32, 36, 8, 16, 8, 61)
    authenc("authenc(cmac(aes),cbc(aes))", by_cmac, aes_cbc, 16, 16, 16, 12, 8, 64)
    authenc("authencesn(hmac(sha256),cbc(aes))", sha256, aes_cbc, 32, 16, 16, 16, 12, 64)
    authenc("authencesn(hmac(sha384),cbc(aes))", by_hmac(hashlib.sha384), aes_cbc, 48, 16, 16, 24, 12, 64)
    authenc("authencesn(hmac(sha512),cbc(aes))", by_hmac(hashlib.sha512), aes_cbc, 64, 32, 16, 32, 12, 64)
    authenc("authencesn(hmac(sha256),rfc3686(ctr(aes)))", sha256, rfc3686, 32, 20, 8, 16, 12, 61)


main()
