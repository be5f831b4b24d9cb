#!/usr/bin/env python3
"""Records what an unmodified charon says to NETLINK_XFRM of a real kernel: xfrm-strongswan-linux-7.3.txt.

    shared/kernel/boot linux-7.3 -- python3 conformance/vectors/xfrm_strongswan.py /tmp/strongswan.txt

Two network namespaces with a charon each, keys from IKE with a test PSK: a trap policy and its acquire, a tunnel with ESN and
limits, a transport SA, rekeying, termination; once plain, once with ESP in UDP. What the first of the two sends and receives is
recorded, each kind of exchange once, in the format of xfrm_capture.py. Needs root, strongSwan (charon-systemd, strongswan-swanctl)
and strace; everything lies in a folder under /tmp.
"""
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import time

FOLDER = "/tmp/xfrm_strongswan"
SIDES = {"a": ("10.5.0.1", "10.5.0.2", "10.6.0.1", "10.7.0.1", "b"), "b": ("10.5.0.2", "10.5.0.1", "10.7.0.1", "10.6.0.1", "a")}
STRONGSWAN = """
charon-systemd {{
  piddir = {d}
  load = random nonce aes sha1 sha2 hmac kdf gmp drbg kernel-netlink socket-default vici
  plugins {{ vici {{ socket = unix://{d}/vici }} random {{ random = /dev/urandom }} }}
}}
swanctl {{ load = random nonce }}
"""
SWANCTL = """
connections {{ c {{
  version = 2
  local_addrs = {me}
  remote_addrs = {peer}
  proposals = aes128-sha256-modp2048
  encap = {encap}
  local {{ auth = psk
    id = {name} }}
  remote {{ auth = psk
    id = {other} }}
  children {{
    tun {{ local_ts = {mine}/32
      remote_ts = {theirs}/32
      esp_proposals = aes128gcm16-esn
      start_action = {start}
      mark_out = 0
      life_bytes = 1000000
      rekey_bytes = 900000
      replay_window = 128 }}
    tra {{ mode = transport
      local_ts = dynamic[tcp]
      remote_ts = dynamic[tcp]
      esp_proposals = aes128-sha256 }}
  }} }} }}
secrets {{ ike-x {{ secret = "test key" }} }}
"""


def shell(text):
    subprocess.run(text, shell=True, check=True)


def swanctl(name, *args):
    env = dict(os.environ, STRONGSWAN_CONF=f"{FOLDER}/{name}/strongswan.conf")
    subprocess.run(["swanctl", *args, "--uri", f"unix://{FOLDER}/{name}/vici"], env=env, capture_output=True, timeout=20, check=True)


def run(encap):
    daemons = []
    for name, (me, peer, mine, theirs, other) in SIDES.items():
        d = f"{FOLDER}/{name}"
        shutil.rmtree(d, ignore_errors=True)
        os.makedirs(d)
        with open(f"{d}/strongswan.conf", "w") as f:
            f.write(STRONGSWAN.format(d=d))
        with open(f"{d}/swanctl.conf", "w") as f:
            f.write(SWANCTL.format(start="trap" if name == "a" else "none", **locals()))
        trace = ["strace", "-ff", "-ttt", "-o", f"{d}/strace", "-e", "trace=socket,sendto,recvfrom", "-e", "write=all", "-e", "read=all"]
        daemons.append(subprocess.Popen(["ip", "netns", "exec", name, *trace, "/usr/sbin/charon-systemd"],
                                        env=dict(os.environ, STRONGSWAN_CONF=f"{d}/strongswan.conf"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    time.sleep(2.5)
    for name in "ba":
        swanctl(name, "--load-all", "--file", f"{FOLDER}/{name}/swanctl.conf")
    send = "import socket; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind(('10.6.0.1', 0)); s.sendto(b'x', ('10.7.0.1', 9))"
    subprocess.run(["ip", "netns", "exec", "a", sys.executable, "-c", send])
    time.sleep(1.5)
    swanctl("a", "--initiate", "--child", "tra")
    swanctl("a", "--rekey", "--child", "tun")
    time.sleep(1)
    swanctl("a", "--list-sas")
    swanctl("a", "--terminate", "--child", "tun")
    swanctl("a", "--terminate", "--ike", "c")
    time.sleep(0.5)
    for daemon in daemons:
        subprocess.run(["pkill", "-TERM", "-P", str(daemon.pid)])
        daemon.wait(timeout=10)


def datagrams():
    """(time, mark, bytes) of what charon `a` sent to and received from its sockets of NETLINK_XFRM."""
    lines = [open(f, errors="replace").read().splitlines() for f in glob.glob(f"{FOLDER}/a/strace.*")]
    sockets = {m[1] for text in lines for line in text if (m := re.search(r"socket\(.*NETLINK_XFRM\) = (\d+)", line))}
    found = []
    for text in lines:
        data = None
        for line in text:
            if m := re.match(r" \| [0-9a-f]{5}  ((?:[0-9a-f]{2} {1,2}){1,16})", line):
                if data is not None:
                    data += bytes.fromhex(m[1])
            elif m := re.match(r"(\d+\.\d+) (\w+)\((\d+),", line):
                data = bytearray() if m[3] in sockets and "MSG_PEEK" not in line else None
                if data is not None:
                    found.append((float(m[1]), ">" if m[2] == "sendto" else "<", data))
    return sorted(f for f in found if f[2])


def shape(data):
    length, kind, flags = struct.unpack_from("=IHH", data)
    return length, kind, flags


shell("ip netns add a; ip netns add b; ip link add v0 netns a type veth peer name v1 netns b;"
      "ip -n a addr add 10.5.0.1/24 dev v0; ip -n b addr add 10.5.0.2/24 dev v1; ip -n a addr add 10.6.0.1/32 dev lo; ip -n b addr add 10.7.0.1/32 dev lo;"
      "for n in a b; do ip -n $n link set lo up; done; ip -n a link set v0 up; ip -n b link set v1 up;"
      "ip -n a route add 10.7.0.1 dev v0 via 10.5.0.2 src 10.6.0.1; ip -n b route add 10.6.0.1 dev v1 via 10.5.0.1 src 10.7.0.1")
told = subprocess.run(["swanctl", "--version"], capture_output=True, text=True, timeout=10)
version = re.search(r"strongSwan \d\S*", told.stdout + told.stderr)[0]
release = ".".join(os.uname().release.split(".")[:2])
out = [f"; Linux {release} ({os.uname().machine}), {version}. Made by xfrm_strongswan.py. > sent, < received, * event."]
seen = set()
for encap, how in [("no", "plain"), ("yes", "NAT")]:
    run(encap)
    sent = {}
    for _, mark, data in datagrams():
        seq = struct.unpack_from("=I", data, 8)[0]
        if mark == "<" and seq in sent:
            key = (shape(sent[seq]), shape(data))
            lines = [f"# raw (charon, {how}): type {shape(sent[seq])[1]:#x}", f"> {sent.pop(seq).hex()}", f"< {data.hex()}"]
        elif mark == "<":
            key, lines = shape(data), [f"# event (charon, {how})", f"* {data.hex()}"]
        else:
            sent[seq] = data
            continue
        if key not in seen:
            seen.add(key)
            out += lines
with open(sys.argv[1], "w") as f:
    f.write("\n".join(out) + "\n")
