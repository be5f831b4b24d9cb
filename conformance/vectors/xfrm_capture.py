#!/usr/bin/env python3
"""Records the messages of NETLINK_XFRM that iproute2 and a real kernel exchange: xfrm-linux-7.3.txt.

    shared/kernel/boot linux-7.3 -- python3 conformance/vectors/xfrm_capture.py /tmp/xfrm.txt
    unshare -n python3 conformance/vectors/xfrm_capture.py /tmp/xfrm-migrate.txt migrate    # a kernel with CONFIG_XFRM_MIGRATE
    shared/kernel/boot linux-7.3-net -- python3 conformance/vectors/xfrm_capture.py /tmp/xfrm-iptfs.txt iptfs    # a kernel with CONFIG_XFRM_IPTFS
    shared/kernel/boot linux-7.3 -- python3 conformance/vectors/xfrm_capture.py /tmp/xfrm-commands.txt commands conformance/vectors/xfrm-commands.txt

`ip` runs under strace, which dumps what it sends and receives. What this iproute2 cannot say (newer attributes, AE, migration,
malformed requests) is sent from here. A socket in all groups sees the events. What no kernel here could be made to
send has no record: REPORT (Mobile IPv6) and the event of MIGRATE_STATE. Lines: `# command`, `> sent`, `< received`, `* event`.
Needs root, iproute2, strace. The keys are for tests. Time stamps and port ids differ from run to run.
"""
import os
import re
import shlex
import socket
import struct
import subprocess
import sys
import time

out = []
SOL_NETLINK, CAP_ACK, EXT_ACK = 270, 10, 11
AF = {4: socket.AF_INET, 6: socket.AF_INET6}


def netlink(*options, groups=0):
    s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
    for o in options:
        s.setsockopt(SOL_NETLINK, o, 1)
    s.bind((0, groups))
    return s


monitor = netlink(groups=0xffffffff)


def events(wait=0.0):
    time.sleep(wait)
    while True:
        try:
            out.append("* " + monitor.recv(65536, socket.MSG_DONTWAIT).hex())
        except BlockingIOError:
            return


def ip(line, wait=0.02):
    """Runs `ip LINE` under strace."""
    log = "/tmp/xfrm_capture.strace"
    argv = ["strace", "-f", "-o", log, "-e", "trace=socket,sendmsg,recvmsg,sendto,recvfrom", "-e", "write=all", "-e", "read=all", "ip", *shlex.split(line)]
    done = subprocess.run(argv, capture_output=True, text=True)
    out.append(f"# ip {line}" + (f"  # {done.stderr.strip()}" if done.returncode else ""))
    mark, data, xfrm = None, b"", "none"
    for text in open(log).read().splitlines() + ["end"]:
        text = re.sub(r"^\d+\s+(?=[a-z+])|^(?=end)", "", text)
        if m := re.match(r" \| [0-9a-f]{5}  ((?:[0-9a-f]{2} {1,2}){1,16})", text):
            data += bytes.fromhex(m[1])
        elif m := re.match(r"socket\(.*NETLINK_XFRM\) = (\d+)", text):
            xfrm = f"({m[1]},"
        elif not text.startswith(" * "):
            if mark and data:
                out.append(f"{mark} {data.hex()}")
            ours = xfrm in text and "MSG_PEEK" not in text
            mark, data = (">" if text.startswith("send") else "<") if ours else None, b""
    events(wait)


def raw(what, kind, body=b"", *attrs, flags=5, options=(EXT_ACK,), tail=b"", wait=0.02):
    """Sends one message of our own and records the answers."""
    s = netlink(*options)
    more = b"".join(attrs) + tail
    payload = body + (bytes(-len(body) % 4) + more if more else b"")
    message = struct.pack("=IHHII", 16 + len(payload), kind, flags, 7, 0) + payload
    asked = "".join({EXT_ACK: " ext", CAP_ACK: " cap"}[o] for o in options)
    out.append(f"# raw{asked}: {what}")
    out.append("> " + message.hex())
    s.send(message)
    time.sleep(0.01)
    while True:
        try:
            out.append("< " + s.recv(65536, socket.MSG_DONTWAIT).hex())
        except BlockingIOError:
            break
    s.close()
    events(wait)


def attr(kind, data, length=None):
    return struct.pack("=HH", (len(data) if length is None else length) + 4, kind) + data + bytes(-len(data) % 4)


def u32(kind, value):
    return attr(kind, struct.pack("=I", value))


def address(text):
    return socket.inet_pton(AF[6 if ":" in text else 4], text).ljust(16, b"\0")


def family(text):
    return AF[6 if ":" in text else 4]


def selector(src="0.0.0.0", dst="0.0.0.0", ps=0, pd=0, proto=0):
    return address(dst) + address(src) + struct.pack("=HHHHHBBB3xiI", 0, 0, 0, 0, family(src), pd, ps, proto, 0, 0)


INF = b"\xff" * 32 + bytes(32)


def usersa(src, dst, spi, proto=50, mode=1, reqid=0, window=0, flags=0):
    return (bytes(56) + address(dst) + struct.pack("!IB3x", spi, proto) + address(src) + INF + bytes(32 + 12)
            + struct.pack("=IIHBBB7x", 0, reqid, family(src), mode, window, flags))


def sa_id(dst, spi, proto=50):
    return address(dst) + struct.pack("!I", spi) + struct.pack("=HBx", family(dst), proto)


def ae(src, dst, spi, flags):
    return sa_id(dst, spi) + address(src) + struct.pack("=II", flags, 0)


def policy_id(src, dst, ps, pd, direction=1, index=0):
    return selector(src, dst, ps, pd) + struct.pack("=IB3x", index, direction)


def algo(name, key, *more):
    return struct.pack("=64sI", name.encode(), 8 * len(key)) + b"".join(struct.pack("=I", m) for m in more) + key


def aead(key=bytes(range(20)), icv=128, name="rfc4106(gcm(aes))"):
    return attr(18, algo(name, key, icv))


def tmpl(src, dst):
    return (address(dst) + struct.pack("!IB3x", 0, 50) + struct.pack("=H2x", 2) + address(src)
            + struct.pack("=IBBBxIII", 5, 1, 0, 0, 0xffffffff, 0xffffffff, 0xffffffff))


sel = selector("10.1.0.0", "10.2.0.0", 24, 24)
pol = sel + INF + bytes(32) + struct.pack("=IIBBBB4x", 0, 0, 1, 0, 0, 0)
NEWSA, DELSA, GETSA, NEWPOL, DELPOL, GETPOL, ALLOCSPI, ACQUIRE, EXPIRE, UPDPOL, UPDSA, POLEXPIRE, FLUSHSA, FLUSHPOL, NEWAE, GETAE = range(16, 32)
REPORT, MIGRATE, NEWSADINFO, GETSADINFO, NEWSPDINFO, GETSPDINFO, MAPPING, SETDEFAULT, GETDEFAULT, MIGRATE_STATE = range(32, 42)
A, B, A6, B6 = "10.0.0.1", "10.0.0.2", "2001:db8::1", "2001:db8::2"
GCM = "aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213"
HASH = "auth-trunc 'hmac(sha256)' 0x000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f 128"
CBC = "enc 'cbc(aes)' 0x000102030405060708090a0b0c0d0e0f"
T = f"src {A} dst {B} proto esp"


def states():
    for line in [
            f"{T} spi 0x1000 mode tunnel {GCM} 128", f"{T} spi 0x1000 mode tunnel {GCM} 128",
            f"{T} spi 0x1001 reqid 7 mode transport {HASH} {CBC} sel src 10.0.0.0/24 dst 10.1.0.0/16 proto tcp sport 5 dport 6",
            f"{T} spi 0x1002 reqid 16385 mode tunnel replay-window 32 flag noecn flag decap-dscp flag nopmtudisc flag icmp flag af-unspec flag align4 auth 'hmac(sha1)' 0x0011223344556677889900112233445566778899 {CBC}",
            f"{T} spi 0x1003 mode tunnel replay-window 128 flag esn {GCM} 96", f"{T} spi 0x1004 mode beet {GCM} 64 sel src 10.3.0.1/32 dst 10.3.0.2/32",
            f"{T} spi 0x1005 mode tunnel {GCM} 128 encap espinudp 4500 4501 0.0.0.0",
            f"{T} spi 0x1006 mode tunnel {GCM} 128 mark 0x10 mask 0xff output-mark 0x20 mask 0xf0 if_id 0x9",
            f"{T} spi 0x1007 mode tunnel {GCM} 128 limit byte-soft 1000 limit byte-hard 2000 limit packet-soft 10 limit packet-hard 20 limit time-soft 100 limit time-hard 200 limit time-use-soft 300 limit time-use-hard 400",
            f"{T} spi 0x1008 mode tunnel {GCM} 128 extra-flag dont-encap-dscp extra-flag oseq-may-wrap", f"{T} spi 0x1009 mode tunnel {GCM} 128 tfcpad 64",
            f"{T} spi 0x100a mode tunnel {GCM} 128 replay-seq 5 replay-oseq 6", f"{T} spi 0x100b mode tunnel enc 'rfc3686(ctr(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 {HASH}",
            f"{T} spi 0x100c mode tunnel enc ecb(cipher_null) '' {HASH}", f"{T} spi 0x100d mode tunnel aead 'rfc7539esp(chacha20,poly1305)' 0x{bytes(range(36)).hex()} 128",
            f"src {A} dst {B} proto ah spi 0x1010 mode transport auth 'hmac(sha1)' 0x0011223344556677889900112233445566778899",
            f"src {A} dst {B} proto comp spi 0x1011 mode transport comp deflate",
            f"src {A6} dst {B6} proto esp spi 0x2000 mode tunnel {GCM} 128", f"src {A6} dst {B6} proto hao mode ro coa 2001:db8::3", f"src {A6} dst {B6} proto esp spi 0x2001 mode transport {HASH} {CBC} sel src {A6} dst {B6} proto ipv6-icmp type 128 code 0",
            # Refused requests.
            f"{T} spi 0x3000 mode tunnel aead nosuch 0x00 128", f"{T} spi 0x3001 mode tunnel", f"{T} spi 0x3002 mode tunnel {GCM} 100", f"{T} spi 0x3003 mode tunnel {GCM} 128 flag esn",
            f"{T} spi 0x3004 mode tunnel {GCM} 128 offload packet dev lo dir in", f"{T} spi 0x3005 mode tunnel {GCM} 128 offload dev lo dir out"]:
        ip(f"xfrm state add {line}")
    ip(f"xfrm state update {T} spi 0x1001 reqid 7 mode transport {HASH} {CBC} sel src 10.0.0.0/24 dst 10.1.0.0/16 proto tcp sport 5 dport 6 limit byte-soft 5")
    ip(f"xfrm state update {T} spi 0x5555 mode tunnel {GCM} 128")
    ip(f"xfrm state get {T} spi 0x1000")
    ip(f"xfrm state get {T} spi 0x9999")
    ip(f"xfrm state allocspi {T} mode tunnel reqid 4 seq 0x11 min 0x100 max 0x100")
    ip(f"xfrm state allocspi {T} mode tunnel reqid 4 seq 0x12 min 0x100 max 0x100")
    ip(f"xfrm state allocspi {T} mode tunnel min 0x200 max 0x1ff")
    ip(f"xfrm state allocspi {T} mode tunnel")
    for line in ["list", "list proto ah", "list src 10.0.0.0/8", "list dst 2001:db8::/32", "list reqid 7", "-s list nokeys", "count", f"delete {T} spi 0x1000", f"delete {T} spi 0x1000"]:
        if line.startswith("-s "):
            ip(f"-s xfrm state {line[3:]}")
        else:
            ip(f"xfrm state {line}")
    ip(f"xfrm state deleteall src {A} mode transport")
    ip("xfrm state flush proto ah")
    ip("xfrm state flush")
    ip("xfrm state flush")
    ip("xfrm state list")


def policies():
    sel = "src 10.1.0.0/24 dst 10.2.0.0/24"
    tmpl = f"tmpl src {A} dst {B} proto esp reqid 1 mode tunnel"
    for line in [f"dir out {sel} {tmpl}", f"dir out {sel} {tmpl}", f"dir in {sel} priority 5 index 0x100 {tmpl} level use", f"dir fwd {sel} action block",
                 f"dir out src 10.1.0.0/24 dst 10.3.0.0/24 proto udp sport 10 dport 20 ptype main flag localok flag icmp mark 1 mask 3 if_id 4 {tmpl} tmpl src {A} dst {B} proto ah mode transport",
                 f"dir out src {A6} dst {B6} limit byte-hard 10000 limit time-hard 100 tmpl src {A6} dst {B6} proto esp spi 0x77 mode transport",
                 f"dir in {sel} ptype sub", f"dir out {sel} dev lo priority 9", f"dir out {sel} offload packet dev lo priority 10 {tmpl}", "dir out src 0.0.0.0/0 dst 0.0.0.0/0 tmpl proto esp mode beet"]:
        ip(f"xfrm policy add {line}")
    for line in [f"update dir out {sel} priority 3 {tmpl}", f"get dir out {sel}", "get dir in index 0x100", "get dir in index 0x108", "list", "list dir out", "-s count", "count", "deleteall dir fwd", f"delete dir out {sel}",
                 f"delete dir out {sel}", "delete dir in index 0x100", "set hthresh4 24 32 hthresh6 64 128", "set hthresh4 33 32", "count", "setdefault in block", "setdefault out block fwd accept", "getdefault", "setdefault in accept out accept fwd accept", "flush ptype main", "flush", "list"]:
        ip(f"{'-s ' if line.startswith('-s') else ''}xfrm policy {line.removeprefix('-s ')}")


def newer():
    """Messages that this iproute2 does not know, or would not send."""
    none = bytes(36)
    raw("SA_DIR in, NAT_KEEPALIVE_INTERVAL refused", NEWSA, usersa(A, B, 0x4000), aead(), attr(33, b"\1"), u32(34, 20))
    raw("SA_DIR in", NEWSA, usersa(A, B, 0x4001), aead(), attr(33, b"\1"))
    encap = attr(4, struct.pack("=H", 2) + struct.pack("!HH2x", 4500, 4500) + bytes(16))
    raw("SA_DIR out, encapsulation, NAT_KEEPALIVE_INTERVAL, SA_PCPU", NEWSA, usersa(A, B, 0x4002), aead(), encap, attr(33, b"\2"), u32(34, 20), u32(35, 0))
    raw("MTIMER_THRESH", NEWSA, usersa(A, B, 0x4003), aead(), encap, u32(32, 300))
    raw("IPTFS", NEWSA, usersa(A, B, 0x4004, mode=5), aead(), attr(33, b"\2"), attr(38, b""), u32(39, 10), u32(40, 20000), u32(41, 1400))
    raw("IPTFS in", NEWSA, usersa(A, B, 0x4005, mode=5), aead(), attr(33, b"\1"), u32(36, 1000), attr(37, struct.pack("=H", 3)))
    raw("ESN with a bitmap", NEWSA, usersa(A, B, 0x4006, flags=128), aead(), attr(23, struct.pack("=6I4I", 4, 0, 0, 0, 0, 128, 0, 0, 0, 0)))
    raw("security context", NEWSA, usersa(A, B, 0x4007), aead(), attr(8, struct.pack("=HHBBH", 12, 8, 1, 1, 4) + b"abc\0"))
    raw("the last of two marks counts, unknown attributes do not", NEWSA, usersa(A, B, 0x4008), aead(), attr(21, struct.pack("=II", 1, 1)), attr(99, b"xyz"), attr(21, struct.pack("=II", 2, 3)))
    raw("COADDR and LASTUSED are no input", NEWSA, usersa(A, B, 0x4009), aead(), attr(14, address("10.9.9.9")), attr(15, struct.pack("=Q", 9)))
    for spi, flag in [(0x4001, 0), (0x4003, 1), (0x4006, 3)]:
        raw("GETAE", GETAE, ae(A, B, spi, flag))
    raw("NEWAE: replay value", NEWAE, ae(A, B, 0x4001, 0), attr(10, struct.pack("=III", 0, 3, 7)), flags=0x105)
    raw("NEWAE: lifetime, thresholds", NEWAE, ae(A, B, 0x4001, 0), attr(9, struct.pack("=QQQQ", 5, 6, 7, 8)), u32(11, 4), u32(12, 5), flags=0x105)
    raw("NEWAE without NLM_F_REPLACE", NEWAE, ae(A, B, 0x4001, 0), attr(10, struct.pack("=III", 0, 3, 7)))
    raw("NEWAE with nothing", NEWAE, ae(A, B, 0x4001, 0), flags=0x105)
    raw("EXPIRE soft", EXPIRE, usersa(A, B, 0x4008) + bytes(8), attr(21, struct.pack("=II", 2, 3)))
    raw("EXPIRE hard", EXPIRE, usersa(A, B, 0x4007) + b"\1" + bytes(7))
    raw("EXPIRE hard", EXPIRE, usersa(A, B, 0x4003) + b"\1" + bytes(7))
    raw("GETSA dump, as charon asks", GETSA, b"", flags=0x301)
    raw("GETSA dump, PROTO", GETSA, b"", attr(25, b"\x32"), flags=0x301)
    raw("GETSA dump, ADDRESS_FILTER too long", GETSA, b"", attr(26, bytes(34) + b"\x81\0"), flags=0x301)
    raw("GETSA dump, ADDRESS_FILTER", GETSA, b"", attr(26, address("10.0.0.0") + none[:16] + struct.pack("=HBB", 2, 8, 0)), flags=0x301)
    raw("GETSA dump, short PROTO, extended ack", GETSA, b"", attr(25, b""), flags=0x301)
    raw("GETSA dump, short PROTO", GETSA, b"", attr(25, b""), flags=0x301, options=())
    raw("GETPOLICY dump, attributes are not read", GETPOL, b"", attr(25, b""), flags=0x301)
    raw("policy for acquire", NEWPOL, pol, attr(5, tmpl(A, B)))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.bind(("10.1.0.1", 0))
        try:
            s.sendto(b"x", ("10.2.0.1", 9))
        except OSError:
            pass
    out.append("# a datagram that the policy is for: ACQUIRE")
    events(0.1)
    raw("GETSA dump with the larval state", GETSA, b"", flags=0x301)
    raw("POLEXPIRE", POLEXPIRE, pol + b"\1" + bytes(7))
    migrate()
    raw("state for MIGRATE_STATE", NEWSA, usersa(A, B, 0x5001, reqid=6), aead())
    moved = sa_id(B, 0x5001) + address("10.0.0.6") + address("10.0.0.5") + bytes(8) + selector() + struct.pack("=IIHH", 6, 0, 2, 0)
    raw("MIGRATE_STATE", MIGRATE_STATE, moved, wait=0.1)
    raw("MIGRATE_STATE with an attribute that is not for it", MIGRATE_STATE, moved, aead())
    raw("ACQUIRE from user space", ACQUIRE, bytes(24) + address(A) + sel + pol + struct.pack("=4I", 1, 2, 3, 4), attr(5, tmpl(A, B)))
    raw("REPORT is no request", REPORT, struct.pack("=B3x", 50) + sel)
    raw("MAPPING is no request", MAPPING, sa_id(B, 1) + bytes(40))
    raw("NEWSADINFO is no request", NEWSADINFO, bytes(4))
    raw("GETSADINFO", GETSADINFO, struct.pack("=I", 0xffffffff), flags=1)
    raw("GETSPDINFO", GETSPDINFO, struct.pack("=I", 5), flags=1)
    raw("GETDEFAULT", GETDEFAULT, bytes(3), flags=1)
    raw("SETDEFAULT with nonsense", SETDEFAULT, b"\7\7\7")
    raw("ALLOCSPI with SA_PCPU", ALLOCSPI, usersa(A, B, 0, reqid=3) + struct.pack("=II", 0x700, 0x700), u32(35, 0), attr(33, b"\1"))


def migrate():
    raw("policy to migrate", NEWPOL, pol, attr(5, tmpl(A, B)))
    raw("state to migrate", NEWSA, usersa(A, B, 0x5000, reqid=5), aead())
    move = address(B) + address(A) + address("10.0.0.4") + address("10.0.0.3") + struct.pack("=BBHIHH", 50, 1, 0, 5, 2, 2)
    # Kernels without CONFIG_XFRM_MIGRATE answer ENOPROTOOPT.
    raw("MIGRATE", MIGRATE, policy_id("10.1.0.0", "10.2.0.0", 24, 24), attr(17, move), attr(19, address(A) + address(B) + struct.pack("=IH2x", 0, 2)), wait=0.1)
    raw("MIGRATE of nothing", MIGRATE, policy_id("10.7.0.0", "10.2.0.0", 24, 24), attr(17, move))
    raw("MIGRATE without XFRMA_MIGRATE", MIGRATE, policy_id("10.1.0.0", "10.2.0.0", 24, 24))


def iptfs():
    """States and policies of IP-TFS: defaults, each attribute, limits, what changes and what is refused."""
    IN, OUT = attr(33, b"\1"), attr(33, b"\2")
    drop, window, whole = lambda us: u32(36, us), lambda n: attr(37, struct.pack("=H", n)), attr(38, b"")
    delay, queue, size = lambda us: u32(39, us), lambda n: u32(40, n), lambda n: u32(41, n)
    encap = attr(4, struct.pack("=H", 2) + struct.pack("!HH2x", 4500, 4500) + bytes(16))
    cbc = attr(2, algo("cbc(aes)", bytes(16))) + attr(20, algo("hmac(sha256)", bytes(32), 128))

    def sa(what, spi, *attrs, ends=(A, B), kind=NEWSA, algs=aead(), **more):
        raw(f"IP-TFS: {what}", kind, usersa(*ends, spi, mode=5, **more), algs, *attrs, wait=0.0)

    sa("out, defaults", 0x100, OUT)
    sa("out, the same again", 0x100, OUT)
    sa("in, defaults", 0x101, IN)
    sa("out, all", 0x102, OUT, whole, delay(77), queue(20000), size(1400))
    sa("in, all", 0x103, IN, drop(12345), window(65535), window=32)
    sa("out, nothing", 0x104, OUT, delay(0), queue(0), size(0))
    sa("in, nothing", 0x105, IN, drop(0), window(0))
    sa("out, the most", 0x106, OUT, delay(0xffffffff), queue(0xffffffff), size(0xffffffff))
    sa("in, the most", 0x107, IN, drop(0xffffffff))
    sa("out, in UDP, cbc, and more", 0x108, OUT, encap, u32(31, 9), attr(21, struct.pack("=II", 1, 1)), u32(29, 5), u32(35, 0), u32(34, 20), size(1000), algs=cbc)
    sa("in, in UDP", 0x109, IN, encap, u32(32, 300), drop(5))
    sa("out, IPv6", 0x10a, OUT, size(1280), ends=(A6, B6))
    sa("in, extended numbers", 0x10b, IN, attr(23, struct.pack("=6I4I", 4, 0, 0, 0, 0, 128, 0, 0, 0, 0)), flags=128)
    sa("of any family", 0x10c, OUT, flags=32)
    sa("decap-dscp, noecn", 0x10d, IN, flags=3)
    for ends, least in [((A, B), 40), ((A6, B6), 60)]:
        for n in (1, least, least + 1):
            sa(f"out, size {n}", 0x200 + n, OUT, size(n), ends=ends)
    sa("out, size 48 in UDP", 0x300, OUT, size(48), encap)
    sa("out, size 49 in UDP", 0x301, OUT, size(49), encap)
    sa("out, size 48 with cbc", 0x302, OUT, size(48), algs=cbc)
    sa("out, size 49 with cbc", 0x303, OUT, size(49), algs=cbc)
    sa("without a direction", 0x400)
    sa("AH", 0x401, OUT, proto=51, algs=attr(1, algo("hmac(sha1)", bytes(20))))
    sa("padding", 0x402, OUT, u32(22, 1000))
    sa("out, drop time", 0x403, OUT, drop(1))
    sa("out, window", 0x404, OUT, window(1))
    for what in [whole, delay(1), queue(1), size(1000)]:
        sa("in, of out", 0x405, IN, what)
    raw("IP-TFS: options in tunnel mode", NEWSA, usersa(A, B, 0x406), aead(), OUT, delay(1), wait=0.0)
    sa("packet offload", 0x407, OUT, attr(28, struct.pack("=iB3x", 1, 4)))
    raw("IP-TFS: SPI", ALLOCSPI, usersa(A, B, 0, mode=5, reqid=3) + struct.pack("=II", 0x700, 0x700), attr(33, b"\1"), wait=0.0)
    sa("keys of the SPI", 0x700, IN, window(7), kind=UPDSA, reqid=3)
    sa("new limits, and another window", 0x700, IN, window(9), drop(4), kind=UPDSA, reqid=3)
    sa("another direction", 0x700, OUT, kind=UPDSA, reqid=3)
    raw("IP-TFS: GETSA", GETSA, sa_id(B, 0x700), wait=0.0)
    raw("IP-TFS: GETAE", GETAE, ae(A, B, 0x102, 3), wait=0.0)
    raw("IP-TFS: GETSA dump", GETSA, b"", flags=0x301, wait=0.0)
    raw("IP-TFS: EXPIRE hard", EXPIRE, usersa(A, B, 0x101, mode=5) + b"\1" + bytes(7), wait=0.0)
    tmpl5 = bytearray(tmpl(A, B))
    tmpl5[48] = 5
    raw("IP-TFS: policy", NEWPOL, pol, attr(5, bytes(tmpl5)), wait=0.0)
    tmpl5[50] = 1
    raw("IP-TFS: policy out, optional", UPDPOL, pol, attr(5, bytes(tmpl5)), wait=0.0)
    raw("IP-TFS: GETPOLICY dump", GETPOL, b"", flags=0x301, wait=0.0)
    raw("IP-TFS: DELSA", DELSA, sa_id(B, 0x100), wait=0.0)
    raw("IP-TFS: GETSADINFO", GETSADINFO, struct.pack("=I", 0xffffffff), flags=1, wait=0.0)


def malformed():
    """Requests that the parser or a look at one attribute refuses, with every way of acknowledging."""
    for options, name in [((), "plain"), ((EXT_ACK,), "extended"), ((CAP_ACK,), "capped"), ((EXT_ACK, CAP_ACK), "extended, capped")]:
        say = lambda what: f"malformed ({name}): {what}"
        raw(say("header too short"), NEWSA, bytes(8), options=options)
        raw(say("attribute too short"), DELSA, sa_id(B, 1), attr(21, b"\1\2\3"), options=options)
        raw(say("u32 too short"), NEWSA, usersa(A, B, 1), attr(22, b"\1"), options=options)
        raw(say("SA_DIR out of range"), NEWSA, usersa(A, B, 1), attr(33, b"\3"), options=options)
        raw(say("SA_DIR too long"), NEWSA, usersa(A, B, 1), attr(33, b"\1\0\0\0"), options=options)
        raw(say("bytes left over, and it succeeds"), GETSADINFO, bytes(4), tail=b"\1\2\3\4\5\6\7\0", options=options)
        raw(say("bytes left over, and it fails"), DELSA, sa_id(B, 1), tail=b"\1\2\3\4\5\6\7\0", options=options)
    raw("malformed: an attribute of two bytes", DELSA, sa_id(B, 1), tail=b"\2\0\1\0")
    raw("malformed: nested flag in a strict attribute", NEWSA, usersa(A, B, 1), attr(34 | 0x8000, bytes(4)))
    raw("malformed: nested flag in a liberal attribute", DELSA, sa_id(B, 1), attr(21 | 0x8000, bytes(8)))
    for kind, size in [(34, 3), (34, 8), (35, 3), (36, 5), (37, 1), (37, 4), (38, 1), (39, 1), (40, 8), (41, 0)]:
        raw(f"malformed: attribute {kind} of {size} bytes", NEWSA, usersa(A, B, 1), attr(kind, bytes(size)))
    for kind in range(1, 33):
        raw(f"malformed: attribute {kind}, empty", DELSA, sa_id(B, 1), attr(kind, b""))
    # One byte less than each attribute's least, and the least itself.
    for kind, size in [(1, 68), (2, 68), (3, 68), (4, 24), (5, 64), (6, 224), (7, 168), (8, 8), (9, 32), (10, 12), (11, 4), (12, 4), (13, 16), (14, 16), (15, 8), (16, 6), (17, 76),
                       (18, 72), (19, 40), (20, 72), (21, 8), (22, 4), (23, 24), (24, 4), (25, 1), (26, 36), (28, 8), (29, 4), (30, 4), (31, 4), (32, 4)]:
        raw(f"malformed: attribute {kind}, a byte short", DELSA, sa_id(B, 1), attr(kind, bytes(size - 1)), options=(EXT_ACK, CAP_ACK))
        raw(f"attribute {kind}, its least length", DELSA, sa_id(B, 1), attr(kind, bytes(size)), options=(EXT_ACK, CAP_ACK))
    for kind in [33, 35]:
        raw(f"attribute {kind} where it does not belong", DELSA, sa_id(B, 1), attr(kind, b"\1" + bytes(3) if kind == 35 else b"\1"))
    for kind in [1, 2, 3]:
        raw(f"malformed: key longer than attribute {kind}", NEWSA, usersa(A, B, 1, proto=108 if kind == 3 else 50), attr(kind, struct.pack("=64sI", b"cbc(aes)", 129) + bytes(16)))
    raw("malformed: key longer than AUTH_TRUNC", NEWSA, usersa(A, B, 1), attr(20, struct.pack("=64sII", b"hmac(sha1)", 0xfffffff8, 96) + bytes(16)))
    raw("malformed: key longer than AEAD", NEWSA, usersa(A, B, 1), attr(18, struct.pack("=64sII", b"rfc4106(gcm(aes))", 168, 128) + bytes(20)))
    raw("malformed: security context", NEWSA, usersa(A, B, 1), aead(), attr(8, struct.pack("=HHBBH", 12, 8, 1, 1, 5) + b"abc\0"))
    raw("malformed: ESN bitmap too large", NEWSA, usersa(A, B, 1, flags=128), aead(), attr(23, struct.pack("=6I", 129, 0, 0, 0, 0, 32)))
    raw("malformed: ESN bitmap does not fit", NEWSA, usersa(A, B, 1, flags=128), aead(), attr(23, struct.pack("=6I4x", 4, 0, 0, 0, 0, 32)))
    raw("malformed: too many templates", NEWPOL, selector() + INF + bytes(32) + struct.pack("=IIBBBB4x", 0, 0, 1, 0, 0, 0), attr(5, bytes(64 * 7)))
    raw("malformed: hash threshold, a byte short", NEWSPDINFO, bytes(4), attr(3, b"\1"))
    raw("malformed: type beyond the last", 43, bytes(4))
    raw("not a request", NEWSA, bytes(4), flags=4)
    raw("a control message", 1, bytes(4))


def refusals():
    """Well-formed requests that are refused for what they ask, with as many of the kernel's reasons as can be had."""
    IN, OUT = attr(33, b"\1"), attr(33, b"\2")
    auth, crypt = attr(1, algo("hmac(sha1)", bytes(20))), attr(2, algo("cbc(aes)", bytes(16)))
    trunc = lambda bits=96, name="hmac(sha1)": attr(20, algo(name, bytes(20), bits))
    comp = attr(3, algo("deflate", b""))
    esn = lambda bmp=1, oseq=0, seq=0, oseq_hi=0, seq_hi=0, window=32: attr(23, struct.pack("=6I", bmp, oseq, seq, oseq_hi, seq_hi, window) + bytes(4 * bmp))
    encap = lambda kind=2: attr(4, struct.pack("=H", kind) + struct.pack("!HH2x", 4500, 4500) + bytes(16))
    M = 0xffffffff

    def sa(*attrs, proto=50, mode=1, window=0, flags=0, spi=0x7000, patch=()):
        info = bytearray(usersa(A, B, spi, proto, mode, 0, window, flags))
        for at, value in patch:
            info[at:at + len(value)] = value
        raw(f"refused: state, protocol {proto}, mode {mode}", NEWSA, bytes(info), *attrs, wait=0.0)

    def sel(family, d, s, proto=0):
        return [(40, struct.pack("=HBB", family, d, s))]

    # States: the family and the selector, what each protocol needs and does not take.
    sa(aead(), patch=[(212, struct.pack("=H", 7))])
    sa(aead(), patch=sel(2, 33, 0))
    sa(aead(), patch=sel(10, 0, 129))
    sa(aead(), patch=sel(7, 0, 0))
    sa(proto=51)
    sa(auth, crypt, proto=51)
    sa(aead(), comp)
    sa()
    sa(aead(), auth)
    sa(aead(), u32(22, 64), mode=0)
    sa(aead(), u32(39, 1))
    sa(proto=108)
    sa(comp, auth, proto=108)
    sa(comp, proto=108, spi=0x10000)
    sa(aead(), proto=60)
    sa(proto=60)
    sa(proto=17)
    sa(auth, proto=51, mode=5)
    sa(aead(), mode=5)
    sa(aead(), mode=9)
    # Directions.
    for flag in [2, 16, 8]:
        sa(aead(), OUT, flags=flag)
    sa(aead(), OUT, window=32)
    sa(aead(), OUT, u32(36, 1), mode=5)
    sa(aead(), OUT, attr(37, b"\1\0"), mode=5)
    sa(aead(), OUT, attr(10, struct.pack("=III", 0, 1, 1)))
    sa(aead(), IN, flags=4)
    sa(aead(), IN, u32(24, 1))
    sa(aead(), IN, u32(24, 2))
    sa(aead(), IN, attr(38, b""), mode=5)
    for kind in [39, 40, 41]:
        sa(aead(), IN, u32(kind, 1), mode=5)
    sa(aead(), u32(35, 0))
    sa(aead(), IN, u32(35, 99999))
    sa(aead(), IN, u32(32, 10))
    sa(aead(), OUT, encap(), u32(32, 10))
    sa(aead(), OUT, u32(34, 10))
    sa(aead(), IN, encap(), u32(34, 10))
    # ESN and replay windows.
    sa(aead(), flags=128)
    sa(comp, esn(), proto=108)
    sa(aead(), esn(), window=8)
    for more in [dict(), dict(window=0, seq=1), dict(window=0, oseq_hi=1), dict(window=0, oseq=M), dict(window=0)]:
        sa(aead(), OUT, esn(**more))
    sa(aead(), OUT, esn(window=0, oseq=M, oseq_hi=M, bmp=0), flags=128)
    for more in [dict(oseq=1), dict(seq_hi=1), dict(seq=M)]:
        sa(aead(), IN, esn(**more))
    sa(aead(), IN, esn(seq=M, seq_hi=M), flags=128)
    sa(aead(), esn(window=33), flags=128)
    sa(aead(), esn(window=0), flags=128)
    # Algorithms, padding, encapsulation, offload.
    sa(attr(2, algo("nosuch", b"")))
    sa(attr(1, algo("nosuch", b"")), proto=51)
    sa(trunc(name="nosuch"), proto=51)
    sa(trunc(bits=500), proto=51)
    sa(attr(3, algo("nosuch", b"")), proto=108)
    sa(aead(), u32(22, 100000))
    sa(aead(bytes(19)))
    sa(auth)
    sa(aead(), encap(9))
    sa(auth, encap(), proto=51)
    sa(comp, encap(), proto=108)
    sa(comp, proto=108, mode=4)
    sa(proto=4, mode=0)
    sa(encap(), proto=4)
    sa(attr(14, address(A6)), proto=60, mode=2, spi=1)
    sa(aead(), mode=2)
    sa(aead(), mode=0, patch=sel(10, 0, 0))
    lo = lambda flags: attr(28, struct.pack("=iB3x", 1, flags))
    sa(aead(), lo(0x40))
    sa(aead(), lo(4))
    sa(aead(), IN, lo(4))
    sa(aead(), OUT, lo(6))
    sa(aead(), IN, lo(6), u32(31, 1))
    sa(aead(), OUT, lo(4), u32(22, 64))
    sa(aead(), OUT, attr(28, struct.pack("=iB3x", 9999, 4)))
    sa(aead(), u32(41, 1), OUT, mode=5)
    # SPIs.
    spi = lambda proto, low, high, *attrs: raw(f"refused: ALLOCSPI, protocol {proto}", ALLOCSPI, usersa(A, B, 0, proto) + struct.pack("=II", low, high), *attrs, wait=0.0)
    spi(108, 1, 0x10000)
    spi(17, 1, 2)
    spi(50, 2, 1)
    spi(50, 1, 2, u32(35, 99999))
    raw("refused: ALLOCSPI for an acquire that is not there", ALLOCSPI, usersa(A, B, 0)[:204] + struct.pack("=I", 77) + usersa(A, B, 0)[208:] + struct.pack("=II", 1, 2), wait=0.0)
    raw("refused: ALLOCSPI of another family", ALLOCSPI, usersa(A, B, 0)[:212] + b"\7\0" + usersa(A, B, 0)[214:] + struct.pack("=II", 1, 2), wait=0.0)
    # Policies.
    def policy(*attrs, patch=(), kind=NEWPOL):
        info = bytearray(pol)
        for at, value in patch:
            info[at:at + len(value)] = value
        raw("refused: policy", kind, bytes(info), *attrs, wait=0.0)

    def template(*patch):
        data = bytearray(tmpl(A, B))
        for at, value in patch:
            data[at:at + len(value)] = value
        return attr(5, bytes(data))

    policy(patch=[(160, b"\3")])
    policy(attr(16, b"\7" + bytes(5)))
    policy(patch=[(163, b"\7")])
    policy(patch=[(161, b"\7")])
    policy(patch=sel(2, 33, 0))
    policy(patch=sel(10, 129, 0))
    policy(patch=sel(7, 0, 0))
    policy(patch=[(156, struct.pack("=I", 8))])
    policy(template((48, b"\x07")))
    policy(template((50, b"\x01")))
    policy(template((24, b"\x07\x00")))
    policy(template((20, b"\x11")))
    policy(template((24, b"\x0a\x00"), (48, b"\x00")))
    policy(attr(28, struct.pack("=iB3x", 1, 4)))
    policy(attr(28, struct.pack("=iB3x", 1, 1)))
    policy(attr(8, struct.pack("=HHBBH", 12, 8, 1, 1, 4) + b"abc\0"))
    raw("refused: DELPOLICY with a bad direction", DELPOL, policy_id("10.1.0.0", "10.2.0.0", 24, 24, 5), wait=0.0)
    raw("refused: GETPOLICY with a bad type", GETPOL, policy_id("10.1.0.0", "10.2.0.0", 24, 24), attr(16, b"\7" + bytes(5)), wait=0.0)
    raw("refused: POLEXPIRE of no policy", POLEXPIRE, pol + bytes(8), wait=0.0)
    raw("refused: hash thresholds", NEWSPDINFO, bytes(4), attr(3, b"\x21\0"), wait=0.0)
    raw("refused: hash thresholds", NEWSPDINFO, bytes(4), attr(4, b"\0\x81"), wait=0.0)
    raw("refused: NEWAE of no state", NEWAE, ae(A, B, 0x7777, 0), attr(10, struct.pack("=III", 0, 3, 7)), flags=0x105, wait=0.0)
    raw("refused: GETAE of no state", GETAE, ae(A, B, 0x7777, 0), wait=0.0)
    raw("refused: EXPIRE of no state", EXPIRE, usersa(A, B, 0x7777) + bytes(8), wait=0.0)
    raw("refused: ACQUIRE with too large a CPU", ACQUIRE, bytes(280), u32(35, 99999), wait=0.0)
    raw("refused: FLUSHPOLICY of a bad type", FLUSHPOL, b"", attr(16, b"\7" + bytes(5)), wait=0.0)
    raw("ESN with a window", NEWSA, usersa(A, B, 0x7001, flags=128), aead(), esn(), wait=0.0)
    for more in [dict(bmp=2), dict(window=33)]:
        raw("refused: NEWAE changes the window", NEWAE, ae(A, B, 0x7001, 0), esn(**more), flags=0x105, wait=0.0)
    raw("refused: NEWAE with too short a bitmap", NEWAE, ae(A, B, 0x7001, 0), attr(23, struct.pack("=6I", 1, 0, 0, 0, 0, 32)), flags=0x105, wait=0.0)
    raw("SPI that is to be in use", ALLOCSPI, usersa(A, B, 0) + struct.pack("=II", 0x7100, 0x7100), wait=0.0)
    raw("refused: NEWAE of a larval state", NEWAE, ae(A, B, 0x7100, 0), attr(10, struct.pack("=III", 0, 3, 7)), flags=0x105, wait=0.0)
    raw("refused: EXPIRE of a larval state", EXPIRE, usersa(A, B, 0x7100) + bytes(8), wait=0.0)
    ip("xfrm state flush")
    ip("xfrm policy flush")


def mapping_peer():
    """In a network namespace of its own: a state behind a NAT whose peer sends from another port than expected."""
    encap = attr(4, struct.pack("=H", 2) + struct.pack("!HH2x", 4500, 4500) + bytes(16))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.setsockopt(socket.IPPROTO_UDP, 100, 2)
        s.bind(("10.4.0.2", 4500))
        raw("state behind a NAT", NEWSA, usersa("10.4.0.1", "10.4.0.2", 0x6000), aead(), encap)
        print("ready", flush=True)
        input()
        out.append("# a packet from another port: MAPPING")
        events(0.2)
    print("\n".join(out))


def mapping():
    subprocess.run("ip netns add peer; ip link add v0 type veth peer name v1 netns peer; ip addr add 10.4.0.1/24 dev v0; ip link set v0 up; "
                   "ip -n peer addr add 10.4.0.2/24 dev v1; ip -n peer link set v1 up; sleep 0.2", shell=True, check=True)
    peer = subprocess.Popen(["ip", "netns", "exec", "peer", sys.executable, __file__, "mapping-peer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert peer.stdout.readline() == "ready\n"
    ip("xfrm state add src 10.4.0.1 dst 10.4.0.2 proto esp spi 0x6000 mode tunnel aead 'rfc4106(gcm(aes))' 0x000102030405060708090a0b0c0d0e0f10111213 128 encap espinudp 4600 4500 0.0.0.0")
    ip("xfrm policy add dir out src 10.4.0.1/32 dst 10.4.0.2/32 proto udp dport 7 tmpl src 10.4.0.1 dst 10.4.0.2 proto esp mode tunnel")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        s.sendto(b"x", ("10.4.0.2", 7))
    time.sleep(0.2)
    out.extend(peer.communicate("go\n")[0].splitlines())


def commands(path):
    """Runs a file of commands, without its monitors and what needs another user; its pauses become steps with events."""
    for line in open(path).read().splitlines():
        if line.startswith(". "):
            time.sleep(float(line[2:]))
            out.append(f"# wait {line[2:]}")
            events()
        elif line.startswith("= "):
            time.sleep(2.5)
            out.append("# wait 2.5")
            events()
        elif line and line != "-" and line[0] not in "#+!":
            ip(line)


if sys.argv[1] == "mapping-peer":
    mapping_peer()
    sys.exit()
version = subprocess.run(["ip", "-V"], capture_output=True, text=True).stdout.strip()
release = ".".join(os.uname().release.split(".")[:2])
out.append(f"; Linux {release} ({os.uname().machine}), {version}. Made by xfrm_capture.py. > sent, < received, * event.")
if sys.argv[2:] == ["migrate"]:
    migrate()
elif sys.argv[2:] == ["iptfs"]:
    iptfs()
elif sys.argv[2:3] == ["commands"]:
    commands(sys.argv[3])
else:
    subprocess.run("ip link add d0 type dummy; ip addr add 10.1.0.1/24 dev d0; ip link set d0 up; ip route add 10.2.0.0/24 dev d0", shell=True, check=True)
    states()
    policies()
    newer()
    ip("xfrm state flush")
    ip("xfrm policy flush")
    malformed()
    refusals()
    mapping()
with open(sys.argv[1], "w") as f:
    f.write("\n".join(out) + "\n")
