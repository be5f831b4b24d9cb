#!/usr/bin/env python3
"""Signatures a second by keys that OpenSSL loads, by turns: of files, by OpenSSL's default provider, and of `sealane keeper`, by AWS-LC.

One process and one thread sign a text of 64 bytes again and again, as TLS does: RSA by PSS and ECDSA over SHA-256, Ed25519. libcrypto
is called through Python's ctypes, which adds some microseconds to each signature of either kind. With --keeper its CPU time
is counted beside that of this process; without it, and where the kernel does not tell, there is none.

usage: OPENSSL_CONF=FILE signatures.py [--seconds S] [--rounds N] [--keeper PID] [--json] KEY...

A KEY is the path of a file or `sealane://NAME`; the configuration has the provider. A row tells medians of the rounds.
"""
import argparse, ctypes, itertools, json, sys, time

from process_cpu import cell, cpu_of, median, microseconds

PKEY = 4  # OSSL_STORE_INFO_PKEY
PSS = 6  # RSA_PKCS1_PSS_PADDING
SALT_AS_DIGEST = -1  # RSA_PSS_SALTLEN_DIGEST
TEXT = bytes(64)

crypto = ctypes.CDLL("libcrypto.so.3")
for name, result, arguments in [
        ("OSSL_STORE_open", "p", "spppp"), ("OSSL_STORE_load", "p", "p"), ("OSSL_STORE_eof", "i", "p"), ("OSSL_STORE_close", "i", "p"),
        ("OSSL_STORE_INFO_get_type", "i", "p"), ("OSSL_STORE_INFO_get1_PKEY", "p", "p"), ("OSSL_STORE_INFO_free", "i", "p"),
        ("EVP_PKEY_is_a", "i", "ps"), ("EVP_PKEY_get_bits", "i", "p"), ("EVP_MD_CTX_new", "p", ""), ("EVP_MD_CTX_free", "i", "p"),
        ("EVP_DigestSignInit_ex", "i", "ppspppp"), ("EVP_DigestSign", "i", "pppsz"), ("EVP_PKEY_CTX_set_rsa_padding", "i", "pi"),
        ("EVP_PKEY_CTX_set_rsa_pss_saltlen", "i", "pi"), ("ERR_peek_last_error", "z", ""), ("ERR_error_string_n", "i", "zsz")]:
    kinds = {"p": ctypes.c_void_p, "s": ctypes.c_char_p, "i": ctypes.c_int, "z": ctypes.c_size_t}
    function = getattr(crypto, name)
    function.restype, function.argtypes = kinds[result], [kinds[kind] for kind in arguments]


def need(value, what):
    if not value or (isinstance(value, int) and value < 0):
        text = ctypes.create_string_buffer(512)
        crypto.ERR_error_string_n(crypto.ERR_peek_last_error(), text, len(text))
        raise SystemExit(f"{what}: {text.value.decode(errors='replace')}")
    return value


class Key:
    """A private key, by its path or URI."""

    def __init__(self, uri):
        self.uri = uri
        store = need(crypto.OSSL_STORE_open(uri.encode(), None, None, None, None), uri)
        self.key = None
        while self.key is None and not crypto.OSSL_STORE_eof(store):
            info = need(crypto.OSSL_STORE_load(store), uri)
            if crypto.OSSL_STORE_INFO_get_type(info) == PKEY:
                self.key = crypto.OSSL_STORE_INFO_get1_PKEY(info)
            crypto.OSSL_STORE_INFO_free(info)
        crypto.OSSL_STORE_close(store)
        if self.key is None:
            raise SystemExit(f"{uri}: no private key in it")
        self.kind = next((kind for kind in ("RSA", "EC", "ED25519") if crypto.EVP_PKEY_is_a(self.key, kind.encode())), None)
        if self.kind is None:
            raise SystemExit(f"{uri}: a key of another kind than RSA, EC and Ed25519")
        self.out = ctypes.create_string_buffer(1024)

    def name(self):
        return self.kind if self.kind == "ED25519" else f"{self.kind}-{crypto.EVP_PKEY_get_bits(self.key)}"

    def sign(self):
        context = crypto.EVP_MD_CTX_new()
        inner = ctypes.c_void_p()
        digest = None if self.kind == "ED25519" else b"SHA256"
        done = crypto.EVP_DigestSignInit_ex(context, ctypes.byref(inner), digest, None, None, self.key, None)
        if done == 1 and self.kind == "RSA":
            done = crypto.EVP_PKEY_CTX_set_rsa_padding(inner, PSS)
            done = done and crypto.EVP_PKEY_CTX_set_rsa_pss_saltlen(inner, SALT_AS_DIGEST)
        size = ctypes.c_size_t(len(self.out))
        done = done == 1 and crypto.EVP_DigestSign(context, self.out, ctypes.byref(size), TEXT, len(TEXT)) == 1
        crypto.EVP_MD_CTX_free(context)
        need(done, self.uri)


def measure(key, seconds, keeper):
    """Signatures a second, and microseconds of CPU time for each: of this process, and of the keeper."""
    key.sign()
    keepers = [keeper] if keeper else []
    before, began, used = cpu_of(keepers), time.perf_counter(), time.process_time()
    for count in itertools.count(1):
        key.sign()
        if (took := time.perf_counter() - began) >= seconds:
            break
    used = time.process_time() - used
    return {"rate": count / took, "cpu_us": used / count * 1e6, "keeper_cpu_us": microseconds(before, cpu_of(keepers), count)}


def main():
    of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--seconds", type=float, default=1)
    of.add_argument("--rounds", type=int, default=5)
    of.add_argument("--keeper", type=int, help="the keeper's process")
    of.add_argument("--json", action="store_true")
    of.add_argument("key", nargs="+")
    args = of.parse_args()
    keys = [Key(uri) for uri in args.key]
    rows = {key.uri: [] for key in keys}
    for turn in range(args.rounds):
        for key in keys[::-1] if turn % 2 else keys:
            rows[key.uri].append(measure(key, args.seconds, args.keeper))
    table = [{"key": key.uri, "kind": key.name(),
              **{what: median([row[what] for row in rows[key.uri]]) for what in ("rate", "cpu_us", "keeper_cpu_us")}}
             for key in keys]
    if args.json:
        return print(json.dumps(table))
    print(f"{'kind':<9} {'key':<40} {'signatures/s':>12} {'CPU us':>8} {'keeper CPU us':>14}")
    for row in table:
        print(f"{row['kind']:<9} {row['key']:<40} {row['rate']:12.0f} {row['cpu_us']:8.1f} {cell(row['keeper_cpu_us'], 14)}")


if __name__ == "__main__":
    sys.exit(main())
