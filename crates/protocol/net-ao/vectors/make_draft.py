#!/usr/bin/env python3
"""Writes draft_algs.json: traffic keys and MACs of draft-ietf-tcpm-tcp-ao-algs-07 for the segments of RFC 9235, whose own
appendix has no values yet. HMAC by Python, KMAC by OpenSSL. The MACs are the whole 16 bytes, over the segments as they
are (with an option that holds 12)."""
import hashlib
import hmac
import json
import subprocess

MASTER = bytes.fromhex("0123456789abcdef" * 4)


def kmac256(key, data, size, custom):
    opts = ["-macopt", f"hexkey:{key.hex()}", "-macopt", f"size:{size}"]
    opts += ["-macopt", f"custom:{custom}"] if custom else []
    run = subprocess.run(["openssl", "mac", *opts, "-in", "/dev/stdin", "KMAC256"], input=data, capture_output=True, check=True)
    return bytes.fromhex(run.stdout.decode().strip())


def sha256(key, data):
    return hmac.digest(key, data, hashlib.sha256)


ALGORITHMS = {
    "hmac-sha256-128": (
        lambda context: sha256(sha256(bytes(32), MASTER), context + b"\x01"),
        lambda key, data: sha256(key, data)[:16],
    ),
    "kmac256-128": (
        lambda context: kmac256(bytes(132), b"\0\0\0\x01" + MASTER + context, 32, "KDF"),
        lambda key, data: kmac256(key, data, 16, ""),
    ),
}

rows = []
for v in json.load(open("rfc9235.json"))["vectors"]:
    packet = bytes.fromhex(v["ip_packet"])
    at = 20 if v["ip_version"] == 4 else 40
    ends, tcp = (packet[12:20] if at == 20 else packet[8:40]), bytearray(packet[at:])
    context = ends + tcp[:4] + bytes.fromhex(v["src_isn"] + v["dst_isn"])
    mac_at, header_len = v["ao_mac_offset_in_tcp"], (tcp[12] >> 4) * 4
    tcp[16:18] = bytes(2)
    tcp[mac_at : mac_at + 12] = bytes(12)
    length = len(tcp)
    pseudo = ends + (bytes([0, 6]) + length.to_bytes(2, "big") if at == 20 else length.to_bytes(4, "big") + bytes([0, 0, 0, 6]))
    header = tcp[:header_len] if v["tcp_options_covered"] else tcp[:20] + tcp[mac_at - 4 : mac_at + 12]
    data = bytes(4) + pseudo + header + tcp[header_len:]
    for name, (kdf, mac) in ALGORITHMS.items():
        key = kdf(context)
        rows.append({"section": v["section"], "algorithm": name, "traffic_key": key.hex(), "mac": mac(key, data).hex()})

with open("draft_algs.json", "w") as f:
    json.dump({"master_key": MASTER.hex(), "rows": rows}, f, indent=1)
    f.write("\n")
