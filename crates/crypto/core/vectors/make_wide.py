#!/usr/bin/env python3
"""Writes wide.txt from the vectors that the authors of Adiantum and HCTR2 publish: the repositories google/adiantum and
google/hctr2. Usage: make_wide.py ADIANTUM_DIR HCTR2_DIR > wide.txt"""

import json
import sys

WANTED = (16, 17, 31, 48, 128, 255, 512, 1536)


def pick(root, path, alg, source):
    """One vector with Linux's tweak of 32 bytes for each length that is wanted and published."""
    vectors = json.load(open(f"{root}/{path}"))
    left = list(WANTED)
    for v in vectors:
        tweak, text = v["input"]["tweak_hex"], v["plaintext_hex"]
        if len(tweak) == 64 and len(text) // 2 in left:
            left.remove(len(text) // 2)
            print(f"# source: {source}, {path.split('/')[-1]}, {v['description']}\nalg = {alg}\nkey = {v['input']['key_hex']}\n"
                  f"iv = {tweak}\nin = {text}\nout = {v['ciphertext_hex']}\nivout = {tweak}\n")


def main():
    adiantum, hctr2 = sys.argv[1:]
    print("# Wide-block ciphers. Made by make_wide.py from the vectors that their authors publish.\n")
    for rounds in (12, 20):
        pick(adiantum, f"test_vectors/ours/Adiantum/Adiantum_XChaCha{rounds}_32_AES256.json",
             f"adiantum(xchacha{rounds},aes)", "google/adiantum")
    for bits in (128, 192, 256):
        pick(hctr2, f"test_vectors/ours/HCTR2/HCTR2_AES{bits}.json", "hctr2(aes)", "google/hctr2")


main()
