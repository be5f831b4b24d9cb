#!/usr/bin/env python3
"""Writes rng.txt: two vectors for each generator out of NIST's CAVP drbgtestvectors, in the form in which OpenSSL ships
them (test/recipes/30-test_evp_data/evprand.txt). Usage: make_rng.py evprand.txt > rng.txt"""

import re
import sys


def driver(fields):
    """The kernel's name for a group, or None when Linux does not have it."""
    kind = fields["RAND"]
    if kind == "CTR-DRBG" and fields.get("DerivationFunction") == "1":
        name = re.sub(r"AES-(\d+)-CTR", r"ctr_aes\1", fields["Cipher"])
    elif kind in ("HASH-DRBG", "HMAC-DRBG"):
        name = ("hmac_" if kind == "HMAC-DRBG" else "") + re.sub(r"^SHA2?-?", "sha", fields["Digest"])
    else:
        return None
    if not re.fullmatch(r"ctr_aes(128|192|256)|(hmac_)?sha(256|384|512)", name):
        return None
    return ("drbg_pr_" if fields.get("PredictionResistance") == "1" else "drbg_nopr_") + name


seen = set()
print("# SP 800-90A generators. `entropy` is the entropy input with the nonce at its end.")
for group in re.split(r"\n\s*\n", open(sys.argv[1]).read()):
    pairs = (line.split(" =", 1) for line in group.splitlines() if not line.startswith("#") and " =" in line)
    fields = {name.strip(): value.strip() for name, value in pairs}
    if "RAND" not in fields or any(name.startswith("Reseed") for name in fields):
        continue
    name = driver(fields)
    pers, additional = "PersonalisationString.0" in fields, "AdditionalInputA.0" in fields
    # One vector without any other input, and one with all of it.
    if name is None or pers != additional or (name, pers) in seen:
        continue
    seen.add((name, pers))
    print(f"\n# source: NIST CAVP drbgtestvectors\nalg = {name}")
    print("entropy = " + (fields["Entropy.0"] + fields["Nonce.0"]).lower())
    if pers:
        print("pers = " + fields["PersonalisationString.0"].lower())
    if "_pr_" in name:
        print("entropy2 = " + fields["EntropyPredictionResistanceA.0"].lower())
        print("entropy3 = " + fields["EntropyPredictionResistanceB.0"].lower())
    if additional:
        print("addtl = " + fields["AdditionalInputA.0"].lower())
        print("addtl2 = " + fields["AdditionalInputB.0"].lower())
    print("out = " + fields["Output.0"].lower())
