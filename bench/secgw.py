#!/usr/bin/env python3
"""DPDK's gateway (examples/ipsec-secgw), memory to memory on one core and outbound, to compare with `ipsec --only gateway`.

secgw.py BINARY [SECONDS]. The binary is built from DPDK's own source with

    meson setup build -Dexamples=ipsec-secgw -Dplatform=native -Denable_apps=none -Dtests=false \\
        -Denable_drivers=bus/vdev,bus/pci,mempool/ring,net/null,net/ring,net/pcap,crypto/ipsec_mb,crypto/null

after `.offloads = RTE_ETH_RX_OFFLOAD_CHECKSUM` has become `.offloads = 0` in ipsec-secgw.c: the devices here have none. Packets
come from a file that net_pcap has read into memory and hands out over and over, and what is sent is thrown away. A figure is
the best second; the row `bypass` is what all but IPsec takes.
"""
import os
import re
import struct
import subprocess
import sys
import tempfile

KEY = lambda n: ":".join("%02x" % (i * 7 & 255) for i in range(n))
GCM = f"aead_algo aes-128-gcm aead_key {KEY(20)}"
CBC = f"cipher_algo aes-128-cbc cipher_key {KEY(16)} auth_algo sha1-hmac auth_key {KEY(20)}"
INBOUND = f"""sp ipv4 in esp protect 4 pri 1 dst 10.1.0.0/16 sport 0:65535 dport 0:65535
sa in 4 {GCM} mode ipv4-tunnel src 198.51.100.9 dst 192.0.2.9
rt ipv4 dst 10.1.0.0/16 port 1
rt ipv4 dst 198.18.0.0/15 port 0
rt ipv4 dst 10.64.0.0/10 port 0
neigh port 0 02:00:00:00:00:03
neigh port 1 02:00:00:00:00:04
"""
WAY = "sp ipv4 out esp {} pri 1 dst 10.64.0.0/10 sport 0:65535 dport 0:65535\n"
PROTECT = WAY.format("protect 5") + "sa out 5 {} mode ipv4-tunnel src 192.0.2.1 dst 198.18.0.1\n"
ROWS = [("bypass", WAY.format("bypass"), "crypto_aesni_gcm0", 64)]
ROWS += [("gcm-128", PROTECT.format(GCM), "crypto_aesni_gcm0", n) for n in (64, 512, 1420)]
ROWS += [("cbc-128 sha1", PROTECT.format(CBC), "crypto_aesni_mb0", 1420)]


def checksum(header):
    total = sum(struct.unpack("!10H", header))
    total = (total & 0xffff) + (total >> 16)
    return ~((total & 0xffff) + (total >> 16)) & 0xffff


def packet(size):
    ends = bytes([10, 1, 0, 2, 10, 64, 0, 0])
    ip = struct.pack("!BBHHHBBH", 0x45, 0, size, 0, 0x4000, 64, 17, 0) + ends
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", 1000, 2000, size - 20, 0) + b"\x5a" * (size - 28)
    return bytes.fromhex("020000000001020000000002") + b"\x08\x00" + ip + udp


def pcap(path, frames):
    with open(path, "wb") as f:
        f.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1))
        for frame in frames:
            f.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def tsc_hz():
    for line in open("/proc/cpuinfo"):
        if line.startswith("cpu MHz"):
            return float(line.split(":")[1]) * 1e6
    return 0.0


binary, seconds = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "6"
hz = tsc_hz()
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    pcap("none.pcap", [])
    for name, config, device, size in ROWS:
        pcap("in.pcap", [packet(size)] * 256)
        with open("gateway.cfg", "w") as f:
            f.write(config + INBOUND)
        for mode in ([], ["-l"]):
            done = subprocess.run(
                ["timeout", "-s", "INT", seconds, binary, "--no-huge", "-m", "1024", "-l", "1", "--no-pci", "--file-prefix", "secgw",
                 "--vdev", device, "--vdev", "net_pcap0,rx_pcap=none.pcap", "--vdev", "net_pcap1,rx_pcap=in.pcap,infinite_rx=1",
                 "--", "-p", "0x3", "-P", "-u", "0x1", "--config=(0,0,1),(1,0,1)", "-f", "gateway.cfg", "-t", "1",
                 "--rxoffload=0x0", "--txoffload=0x0"] + mode, capture_output=True, text=True, check=False)
            sent = [int(n) for n in re.findall(r"Total packets sent:\s+(\d+)", done.stdout)]
            rates = sorted(b - a for a, b in zip(sent, sent[1:]) if b > a)
            if not rates:
                sys.exit(done.stdout[-2000:] + done.stderr[-2000:])
            best, median = rates[-1], rates[len(rates) // 2]
            print(f"  {name:<14} {size:>5} B {'librte_ipsec' if mode else 'legacy':<12}  {best / 1e6:>6.2f} Mpps  "
                  f"{hz / best:>5.0f} ticks (median {hz / median:.0f})", flush=True)
