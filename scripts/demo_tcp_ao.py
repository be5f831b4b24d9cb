#!/usr/bin/env python3
"""An unmodified program that uses TCP-AO runs in two network namespaces on a kernel without TCP-AO. The demo shows its socket
options, the segments on the wire, a tampered segment, and the cost."""

import json
import os
import subprocess
import sys
import time

from demo_spaces import A, ADDR, B, MEGABYTE, SEALANE, Wire, cpu_seconds, inside, run, sh

PEER = os.environ.get("AO_PEER", os.path.join(os.path.dirname(SEALANE), "ao-peer"))
PORT = 1790
OPTION_AO = 29
PROTO_TCP = 6


def options(tcp):
    """Kind and bytes of each option of a TCP header."""
    at, end = 20, (tcp[12] >> 4) * 4
    while at < end and tcp[at] != 0:
        size = 1 if tcp[at] == 1 else tcp[at + 1]
        yield tcp[at], tcp[at:at + size]
        at += max(size, 1)


class Segments:
    """Inspects every TCP segment; on demand it repeats one with one bit of the payload flipped."""

    def __init__(self):
        self.segments = self.unsigned = 0
        self.first = None
        self.tamper = self.tampered = False

    def look(self, tap, frame):
        if frame[12:14] != b"\x08\x00" or frame[23] != PROTO_TCP:
            return
        tcp = frame[14 + (frame[14] & 15) * 4:]
        signed = [o for kind, o in options(tcp) if kind == OPTION_AO]
        self.segments += 1
        self.unsigned += not signed
        if signed and self.first is None:
            self.first = signed[0]
        if self.tamper and signed and len(tcp) > 200:
            self.tamper, self.tampered = False, True
            tap.send(frame[:-1] + bytes([frame[-1] ^ 1]))


def keys(work, name, text):
    path = work / name
    path.write_text(text)
    return str(path)


def transfer(work, name, size, tcp_ao, client_keys, server_keys, during=None):
    """Transfers `size` bytes from A to B; each end checks every byte. Returns the client's and the server's reports."""
    launcher = [SEALANE, "run", "--tcp-ao", "--"] if tcp_ao else []
    serve = [PEER, "serve", f"{ADDR[B]}:{PORT}", "--peer", ADDR[A] + "/32", "--keys", keys(work, name + ".b", server_keys)]
    connect = [PEER, "connect", f"{ADDR[B]}:{PORT}", "--keys", keys(work, name + ".a", client_keys), "--bytes", str(size),
               "--seconds", "20"]
    server = inside(B, launcher + serve)
    for _ in range(200):
        if f":{PORT} " in sh("ip", "netns", "exec", B, "ss", "-ltn", check=False).stdout:
            break
        time.sleep(0.02)
    before = cpu_seconds()
    client = inside(A, launcher + connect)
    if during:
        during()
    out, _ = client.communicate(timeout=90)
    try:
        told, _ = server.communicate(timeout=10)
    except subprocess.TimeoutExpired:
        server.terminate()
        told, _ = server.communicate()
    used = cpu_seconds() - before
    report = lambda text: json.loads((text.strip().splitlines() or ["{}"])[-1])
    return report(out), report(told), used


def demo(work):
    print("\nTCP-AO (RFC 5925) for unmodified programs, on a kernel that has none\n")
    secret = "a-shared-secret"
    key = f"hmac(sha256) 1 1 16 0 {secret}\n"
    failed = 0

    plain, _, _ = transfer(work, "without", MEGABYTE, False, key, key)
    print(f"   without Sealane   the program's setsockopt(TCP_AO_ADD_KEY): {plain.get('error', 'works: this kernel has it')}")

    wire, back = Segments(), Segments()
    wires = Wire(A, wire.look), Wire(B, back.look)
    shown = []

    def during():
        for _ in range(100):
            time.sleep(0.02)
            if wire.segments > 50:
                break
        wire.tamper = True
        for _ in range(100):
            time.sleep(0.02)
            if wire.tampered:
                break
        time.sleep(0.2)
        shown.append(json.loads(sh(SEALANE, "tcp-ao", "show", "--json", check=False).stdout or "[]"))

    client, server, _ = transfer(work, "signed", 400 * MEGABYTE, True, key, key, during)
    ok = client.get("ok") and server.get("ok") and wire.unsigned + back.unsigned == 0 and back.segments and wire.first is not None
    failed += not ok
    print(f"   with Sealane      connected, {client.get('bytes', 0) // MEGABYTE} MB moved, every byte equal: "
          f"{'yes' if client.get('ok') and server.get('ok') else 'NO'}")
    if wire.first:
        print(f"   on the wire       {wire.segments + back.segments:,} segments seen, {wire.unsigned + back.unsigned} unsigned; the first one's option: "
              f"kind {wire.first[0]}, length {wire.first[1]}, KeyID {wire.first[2]}, RNextKeyID {wire.first[3]}, "
              f"MAC {wire.first[4:].hex()}")
    drops = [d for snapshots in shown for s in snapshots for n in s["namespaces"] for k in n["sockets"]
             for d in [k.get("last_drop")] if d]
    if drops:
        d = drops[0]
        print(f"   tampered segment  dropped: {d['reason']} ({d['help']})")
    else:
        failed += 1
        print("   tampered segment  NOT reported as dropped")

    for one in wires:
        one.overlook((PROTO_TCP, None))
    size = 400 * MEGABYTE
    rows = [("plain TCP", False, "", size), ("TCP-MD5 (the kernel's)", False, f"md5 {secret}\n", size // 4)]
    rows += [(f"TCP-AO {alg} (Sealane)", True, f"{alg} 1 1 12 0 {secret}\n", size)
             for alg in ("hmac(sha1)", "hmac(sha256)", "cmac(aes128)")]
    print(f"\n   {'':34}  {'Gbit/s':>7}  {'CPU-s per GB':>12}")
    for label, tcp_ao, text, count in rows:
        client, server, used = transfer(work, "speed", count, tcp_ao, text, text)
        if not (client.get("ok") and server.get("ok")):
            failed += 1
            print(f"   {label:34}  failed: {client.get('error') or server.get('error')}")
            continue
        print(f"   {label:34}  {count * 8 / client['seconds'] / 1e9:7.2f}  {used / count * 1e9:12.2f}")
    print("\n   One run each, over a veth pair; the programs make and check every byte, which costs as much in each row.\n   CPU seconds are the whole machine's.")
    print(f"   {'all as it should be' if not failed else f'{failed} NOT as it should be'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run("demo-tcp-ao", demo))
