#!/usr/bin/env python3
"""Writes the transcript of a kernel's algorithm names; run it as root inside the kernel to be imitated.

Lines of a transcript:
  row NAME DRIVER FIELD=VALUE...   one paragraph of /proc/crypto (underscores for blanks), and cru_flags of NETLINK_CRYPTO
  made NAME DRIVER ...             the same, for an instance that exists only because one of the binds below made it
  bind TYPE NAME                   the name binds
  bind TYPE NAME ERRNO             it does not, and the number is not ENOENT
Names that were tried and gave ENOENT are left out.
"""
import errno, itertools, os, socket, struct, sys

HASHES = """md4 md5 sha1 sha224 sha256 sha384 sha512 sha3-224 sha3-256 sha3-384 sha3-512 rmd160 sm3 wp256 wp384 wp512
 blake2b-160 blake2b-256 blake2b-384 blake2b-512 blake2s-128 blake2s-160 blake2s-224 blake2s-256 streebog256 streebog512
 crc32 crc32c crct10dif crc64-rocksoft xxhash64 ghash polyval poly1305 nhpoly1305 michael_mic digest_null""".split()
CIPHERS = """aes aria camellia cast5 cast6 blowfish des des3_ede serpent sm4 tea xtea xeta twofish anubis khazad seed fcrypt
 arc4 cipher_null""".split()
STREAMS = "chacha20 xchacha20 xchacha12 salsa20 arc4".split()
AEADS = """rfc4106(gcm(aes)) rfc4309(ccm(aes)) rfc4543(gcm(aes)) rfc7539(chacha20,poly1305) rfc7539esp(chacha20,poly1305)
 aegis128 aegis128l aegis256 seqiv(rfc4106(gcm(aes))) seqiv(gcm(aes)) seqiv(rfc7539esp(chacha20,poly1305)) eax(aes) ocb(aes)
 rfc4106(gcm(sm4)) rfc4106(gcm(aria)) rfc4309(ccm(sm4)) essiv(authenc(hmac(sha256),cbc(aes)),sha256)
 echainiv(authenc(hmac(sha256),cbc(aes))) krb5enc(hmac(sha1),cts(cbc(aes))) krb5enc(cmac(camellia),cts(cbc(camellia)))
 authenc(cmac(aes),cbc(aes)) authenc(xcbc(aes),cbc(aes)) authenc(digest_null,cbc(aes)) authenc(hmac(sha256),ecb(aes))
 gcm_base(ctr(aes),ghash) gcm_base(ctr(aes-generic),ghash-generic) ccm_base(ctr(aes),cbcmac(aes))""".split()
RNGS = ["stdrng", "jitterentropy_rng", "ansi_cprng", "fips(ansi_cprng)"] + [
    f"drbg_{p}_{x}" for p in ("pr", "nopr")
    for x in "ctr_aes128 ctr_aes192 ctr_aes256 sha1 sha256 sha384 sha512 hmac_sha1 hmac_sha256 hmac_sha384 hmac_sha512".split()]
ODD = """aes nonexist(aes) cbc(nonexist) cbc() cbc cbc( cbc(aes cbc(aes)) cbc(aes)x cbc(aes,aes) cbc(,aes) hmac(cbc(aes)) hmac(nonexist)
 hmac() hmac(hmac(sha1)) hmac(sha1,sha1) hmac(crc32c) hmac(aes) cmac(sha1) cmac(des) cmac(cbc(aes)) gcm(cbc(aes)) gcm(aes gcm() gcm gcm(sha1)
 cbc(cbc(aes)) ecb(ecb(aes)) xts(cbc(aes)) xts(ecb(aes)) ctr(ctr(aes)) cts(aes) cts(ctr(aes)) cts(ecb(aes)) ccm(cbc(aes)) gcm(des) xts(des)
 rfc3686(cbc(aes)) rfc3686(aes) authenc(sha1,cbc(aes)) authenc(hmac(sha1),aes) authenc(hmac(sha1)) authenc() authenc(hmac(nope),cbc(aes))
 authenc(hmac(sha1),cbc(nope)) authenc(hmac(sha1),cbc(aes) rfc4106(ccm(aes)) rfc4106(aes) rfc4106() rfc4543(ccm(aes)) rfc4309(gcm(aes))
 rfc4309(aes) rfc7539(chacha20) rfc7539(chacha20,sha1) adiantum(aes) adiantum(xchacha12) adiantum(xchacha12,aes) essiv(cbc(aes))
 essiv(cbc(aes),crc32c) cryptd(sha1) cryptd(cbc(aes)) cryptd(gcm(aes)) pcrypt(gcm(aes)) deflate compress_null simd-test cbc(paes)""".split()


def candidates():
    for h in HASHES:
        yield from (("hash", h), ("hash", f"hmac({h})"))
    for c in CIPHERS:
        for t in ("cmac", "xcbc", "cbcmac", "vmac64", "vmac"):
            yield "hash", f"{t}({c})"
        for t in "ecb cbc ctr xts lrw pcbc cfb ofb hctr2 xctr kw keywrap".split():
            yield "skcipher", f"{t}({c})"
        yield "skcipher", f"cts(cbc({c}))"
        yield "skcipher", f"rfc3686(ctr({c}))"
        for x in ("xchacha12", "xchacha20", "chacha20"):
            yield "skcipher", f"adiantum({x},{c})"
        for h in ("sha1", "sha256", "sha512", "md5"):
            yield "skcipher", f"essiv(cbc({c}),{h})"
        for t in ("gcm", "ccm"):
            yield "aead", f"{t}({c})"
        for t in ("cbc({})", "ctr({})", "rfc3686(ctr({}))", "cts(cbc({}))"):
            for h in "md5 sha1 sha224 sha256 sha384 sha512 rmd160 sm3".split():
                yield "aead", f"authenc(hmac({h}),{t.format(c)})"
                yield "aead", f"authencesn(hmac({h}),{t.format(c)})"
    for h in "md5 sha1 sha224 sha256 sha384 sha512 rmd160 sm3".split():
        yield "aead", f"authenc(hmac({h}),ecb(cipher_null))"
        yield "aead", f"authencesn(hmac({h}),ecb(cipher_null))"
    for s in STREAMS:
        yield "skcipher", s
    for a in AEADS:
        yield "aead", a
    for r in RNGS:
        yield "rng", r
    for t, n in itertools.product(("hash", "skcipher", "aead", "rng"), ODD + ["sha256", "ecb(aes)", "gcm(aes)", "stdrng"]):
        yield t, n


def bind(kind, name):
    s = socket.socket(38, socket.SOCK_SEQPACKET, 0)
    try:
        s.bind((kind, name))
        return None
    except OSError as e:
        return errno.errorcode[e.errno]
    finally:
        s.close()


def flags():
    """cru_flags by driver name."""
    s = socket.socket(16, socket.SOCK_RAW, 21)
    s.bind((0, 0))
    s.settimeout(5)
    s.send(struct.pack("IHHII", 16 + 208, 0x13, 0x301, 1, 0) + bytes(208))
    found = {}
    while True:
        data, at = s.recv(1 << 20), 0
        while at < len(data):
            length, kind = struct.unpack_from("IH", data, at)
            if kind in (2, 3):
                return found
            driver = data[at + 16 + 64:at + 16 + 128].split(b"\0")[0].decode()
            found[driver] = struct.unpack_from("I", data, at + 16 + 204)[0]
            at += (length + 3) & ~3


def rows():
    found = []
    for block in open("/proc/crypto").read().strip().split("\n\n"):
        found.append([tuple(x.strip() for x in line.split(":", 1)) for line in block.split("\n")])
    return found


def sysctl(name):
    try:
        return open("/proc/sys/" + name).read().strip()
    except OSError:
        return "absent"


def show(word, row, known):
    values = dict(row)
    rest = [f"{k.replace(' ', '_')}={v.replace(' ', '_')}" for k, v in row[2:]]
    flag = known.get(values["driver"])
    print(word, values["name"], values["driver"], *rest, *([] if flag is None else [f"flags={flag:#x}"]))


def main():
    boot = rows()
    boot_flags = flags()
    try:
        open("/proc/sys/crypto/af_alg_restrict", "w").write("0")
    except OSError:
        pass
    done = {}
    for kind, name in candidates():
        done.setdefault((kind, name), bind(kind, name))
    # Driver names bind too; those of instances are known only now, and binding them may make more.
    kinds = {"shash": "hash", "ahash": "hash", "skcipher": "skcipher", "lskcipher": "skcipher", "aead": "aead", "rng": "rng"}
    for _ in range(2):
        for row in rows():
            values = dict(row)
            if values["type"] in kinds:
                key = kinds[values["type"]], values["driver"]
                if key not in done:
                    done[key] = bind(*key)
    u = os.uname()
    print("# source = recorded by record.py in a user-mode kernel; see its head for the lines")
    print(f"# uname = {u.sysname} {u.release} {u.version} {u.machine}")
    for name in "net/core/optmem_max net/core/wmem_default net/core/wmem_max net/core/rmem_default net/core/rmem_max".split():
        print(f"# {name} = {sysctl(name)}")
    for row in boot:
        show("row", row, boot_flags)
    known = flags()
    for row in rows():
        if row[1] not in [b[1] for b in boot]:
            show("made", row, known)
    for (kind, name), error in done.items():
        if error != "ENOENT":
            print(*["bind", kind, name] + ([error] if error else []))


main()
