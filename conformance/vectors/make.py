#!/usr/bin/env python3
"""Makes nist-*.txt from the CAVP files of NIST as the Python package cryptography_vectors carries them.

    pip download --no-deps cryptography_vectors==50.0.2
    ./make.py cryptography_vectors-50.0.2-py3-none-any.whl

Takes a selection: every kind of length and key, few of the many alike. Long messages are cut off at MAX_TEXT bytes a vector.
"""
import re
import sys
import zipfile

MAX_TEXT = 8192
wheel = zipfile.ZipFile(sys.argv[1])
base = "cryptography_vectors/"


def text(path):
    return wheel.read(base + path).decode("latin-1").replace("\r", "")


def records(path, counted=False):
    """Records of a .rsp file: dictionaries of fields; a line in brackets sets fields for all that follow.

    In a file whose records are counted, fields outside of a record are for all that follow, too."""
    group, record, out = {}, {}, []
    for line in text(path).split("\n") + [""]:
        line = line.strip()
        if line.startswith("#") or line == "":
            if counted and "Count" not in record:
                group.update(record)
            elif record:
                out.append({**group, **record})
            record = {}
        elif line.startswith("["):
            for part in line.strip("[]").split(","):
                name, _, value = part.partition("=")
                group[name.strip()] = value.strip()
            group["section"] = line
        else:
            name, _, value = line.partition("=")
            record[name.strip()] = value.strip()
    return out


class Writer:
    def __init__(self, name):
        self.file = open(f"nist-{name}.txt", "w")
        self.count = 0

    def source(self, path):
        print(f"# source: NIST CAVP, {path}", file=self.file)

    def vector(self, alg, **fields):
        print(f"alg = {alg}", file=self.file)
        for name, value in fields.items():
            if value is not None:
                print(f"{name.rstrip('_')} = {value}".rstrip(), file=self.file)
        print(file=self.file)
        self.count += 1


def thin(items, limit):
    """At most `limit` of them, evenly spread."""
    if len(items) <= limit:
        return items
    return [items[i * len(items) // limit] for i in range(limit)]


def hashes():
    w = Writer("hash")
    for folder, names in [("SHA1", ["sha1"]), ("SHA2", ["sha224", "sha256", "sha384", "sha512"]),
                          ("SHA3", ["sha3-224", "sha3-256", "sha3-384", "sha3-512"])]:
        for name in names:
            stem = name.upper().replace("-", "_")
            for kind, limit in [("Short", 40), ("Long", 8)]:
                path = f"hashes/{folder}/{stem}{kind}Msg.rsp"
                w.source(path)
                list_ = [r for r in records(path) if "MD" in r and int(r["Len"]) % 8 == 0 and int(r["Len"]) // 8 <= MAX_TEXT]
                for r in thin(list_, limit):
                    message = r["Msg"] if int(r["Len"]) else ""
                    w.vector(name, in_=message, out=r["MD"])
    return w


def ciphers():
    w = Writer("skcipher")
    for mode in ["ECB", "CBC"]:
        for kind, limit in [("MMT", 99), ("GFSbox", 8), ("KeySbox", 8), ("VarKey", 16), ("VarTxt", 16)]:
            for bits in [128, 192, 256]:
                path = f"ciphers/AES/{mode}/{mode}{kind}{bits}.rsp"
                w.source(path)
                for way in ["[ENCRYPT]", "[DECRYPT]"]:
                    for r in thin([r for r in records(path) if r.get("section") == way and "KEY" in r], limit):
                        w.vector(f"{mode.lower()}(aes)", key=r["KEY"], iv=r.get("IV"), in_=r["PLAINTEXT"], out=r["CIPHERTEXT"])
    for mode, prefix in [("ECB", "TECB"), ("CBC", "TCBC")]:
        for n in [2, 3]:
            path = f"ciphers/3DES/{mode}/{prefix}MMT{n}.rsp"
            w.source(path)
            for r in records(path):
                if "KEY1" in r:
                    w.vector(f"{mode.lower()}(des3_ede)", key=r["KEY1"] + r["KEY2"] + r["KEY3"], iv=r.get("IV"),
                             in_=r["PLAINTEXT"], out=r["CIPHERTEXT"])
    for bits in [128, 256]:
        path = f"ciphers/AES/XTS/tweak-128hexstr/XTSGenAES{bits}.rsp"
        w.source(path)
        list_ = [r for r in records(path) if "Key" in r and int(r["DataUnitLen"]) % 8 == 0]
        for r in thin(list_, 120):
            w.vector("xts(aes)", key=r["Key"], iv=r["i"], in_=r["PT"], out=r["CT"])
    return w


def aeads():
    w = Writer("aead")
    for bits in [128, 192, 256]:
        for kind in ["EncryptExtIV", "Decrypt"]:
            path = f"ciphers/AES/GCM/gcm{kind}{bits}.rsp"
            w.source(path)
            groups = {}
            for r in records(path):
                if "Key" in r and r["IVlen"] == "96" and int(r["Taglen"]) >= 32:
                    failed = "FAIL" in r
                    groups.setdefault((r["PTlen"], r["AADlen"], r["Taglen"], failed), []).append(r)
            for (*_, failed), list_ in groups.items():
                r = list_[0]
                w.vector("gcm(aes)", key=r["Key"], iv=r["IV"], aad=r["AAD"], in_=None if failed else r["PT"], out=r["CT"],
                         tag=r["Tag"], fail="auth" if failed else None)
    for bits in [128, 192, 256]:
        for kind, limit in [("VADT", 2), ("VNT", 2), ("VPT", 2), ("VTT", 2), ("DVPT", 3)]:
            path = f"ciphers/AES/CCM/{kind}{bits}.rsp"
            w.source(path)
            groups = {}
            for r in records(path, counted=True):
                # Alen, Plen, Nlen, Tlen are in bytes.
                if "CT" in r:
                    groups.setdefault((r["Alen"], r["Plen"], r["Nlen"], r["Tlen"], r.get("Result", "Pass")[:4]), []).append(r)
            for (alen, plen, nlen, tlen, result), list_ in groups.items():
                for r in list_[:limit]:
                    n, t = int(nlen), int(tlen)
                    # The kernel's IV: the width of the length field less one, the nonce, zeros for the counter.
                    iv = f"{14 - n:02x}" + r["Nonce"] + "00" * (15 - n)
                    aad = r["Adata"] if int(alen) else ""
                    cut = len(r["CT"]) - 2 * t
                    plain = (r["Payload"] if int(plen) else "") if result == "Pass" else None
                    w.vector("ccm(aes)", key=r["Key"], iv=iv, aad=aad, in_=plain, out=r["CT"][:cut], tag=r["CT"][cut:],
                             fail=None if result == "Pass" else "auth")
    return w


def macs():
    w = Writer("mac")
    for bits in [128, 192, 256]:
        path = f"CMAC/nist-800-38b-aes{bits}.txt"
        w.source(path)
        fields = {}
        for line in text(path).split("\n"):
            m = re.match(r"(\w+)\s*=\s*([0-9a-fA-F]*)", line.strip())
            if not m:
                continue
            fields[m[1].upper()] = m[2]
            if m[1].upper() == "OUTPUT":
                w.vector("cmac(aes)", key=fields["KEY"], in_=fields.get("MESSAGE", ""), out=m[2])
    return w


for writer in [hashes(), ciphers(), aeads(), macs()]:
    writer.file.close()
    print(writer.file.name, writer.count)
