#!/usr/bin/env python3
"""Records how a Linux kernel seals and opens packets under IPsec: the source of ipsec_linux.json.

Run it as root on the kernel to record (user-mode Linux will do). The first argument is the file to write; further ones
select parts (packets, mtu, attacks, replay, errors, levels), by default all. Two network namespaces, A and B, have two
TUN devices each, `wire` and `plain`. A packet written to A's `plain` is forwarded, sealed by the policy, and read from
A's `wire`. From there it is written to B's `wire`, and B's result is read from its `plain`, or from a raw socket in
transport mode. Keys are fixed; IVs are the kernel's own.
"""
import ctypes, fcntl, ipaddress, json, os, random, select, shlex, socket, struct, subprocess, sys, time

libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNET = 0x40000000


def key(n, first):
    return "0x" + bytes((first + 7 * i) & 255 for i in range(n)).hex()


class Namespace:
    def __init__(self, name):
        self.name = name
        assert libc.unshare(CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        self.fd = os.open("/proc/self/ns/net", os.O_RDONLY)
        self.tun = {}
        sh("ip link set lo up")
        for knob in ("ipv4/ip_forward=1", "ipv6/conf/all/forwarding=1", "ipv4/conf/all/rp_filter=0",
                     "ipv4/conf/default/rp_filter=0", "ipv6/conf/default/router_solicitations=0",
                     "ipv6/conf/default/accept_dad=0", "ipv6/conf/default/addr_gen_mode=1"):
            path, value = knob.split("=")
            with open("/proc/sys/net/" + path, "w") as f:
                f.write(value)
        # ICMP errors are recorded, so their rate limit is switched off.
        for path in ("/proc/sys/net/ipv4/icmp_ratelimit", "/proc/sys/net/ipv6/icmp/ratelimit"):
            with open(path, "w") as f:
                f.write("0")
        for dev in ("wire", "plain"):
            fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(fd, 0x400454CA, struct.pack("16sH22x", dev.encode(), 0x1001))
            self.tun[dev] = fd
            sh(f"ip link set {dev} up")

    def enter(self):
        assert libc.setns(self.fd, CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())

    def sh(self, *commands):
        self.enter()
        for command in commands:
            sh(command)

    def write(self, dev, packet):
        os.write(self.tun[dev], packet)

    def read(self, dev, timeout=0.05):
        packets = []
        while select.select([self.tun[dev]], [], [], timeout)[0]:
            packet = os.read(self.tun[dev], 70000)
            # The kernel's own multicast traffic (MLD) is ignored.
            if not (packet[0] >> 4 == 6 and packet[24] == 0xff):
                packets.append(packet)
            timeout = 0.005
        return packets

    def stat(self):
        self.enter()
        with open("/proc/self/net/xfrm_stat") as f:
            return {line.split()[0]: int(line.split()[1]) for line in f}


def sh(command):
    done = subprocess.run(shlex.split(command), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command}: {done.stderr.strip()}")


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def v4(src, dst, payload, tos=0, df=True, ttl=64, options=b"", proto=17, ident=0x1234, frag=0):
    ihl = 5 + len(options) // 4
    head = struct.pack("!BBHHHBBH4s4s", 0x40 | ihl, tos, ihl * 4 + len(payload), ident, (0x4000 if df else 0) | frag, ttl,
                       proto, 0, ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + payload


def v6(src, dst, payload, tos=0, flow=0, hops=64, proto=17, extension=b""):
    return struct.pack("!IHBB", 6 << 28 | tos << 20 | flow, len(extension) + len(payload), proto, hops) + \
        ipaddress.ip_address(src).packed + ipaddress.ip_address(dst).packed + extension + payload


def udp(src, dst, data, sport=4000, dport=5000):
    src, dst = ipaddress.ip_address(src).packed, ipaddress.ip_address(dst).packed
    body = struct.pack("!HHHH", sport, dport, 8 + len(data), 0) + data
    pseudo = src + dst + struct.pack("!HH", 17, len(body)) if len(src) == 4 else src + dst + struct.pack("!II", len(body), 17)
    total = checksum(pseudo + body) or 0xffff
    return body[:6] + struct.pack("!H", total) + body[8:]


def data(n):
    return bytes((i * 37 + n) & 255 for i in range(n))


ADDRESSES = {"A": ("192.0.2.1", "2001:db8::1", "10.1.0.254", "fd01::254"),
             "B": ("192.0.2.2", "2001:db8::2", "10.2.0.254", "fd02::254")}
INNER = {4: ("10.1.0.5", "10.2.0.5"), 6: ("fd01::5", "fd02::5")}
# In transport mode the destination is B itself.
LOCAL = {4: ("10.1.0.5", "10.2.0.254"), 6: ("fd01::5", "fd02::254")}
OUTER = {4: ("192.0.2.1", "192.0.2.2"), 6: ("2001:db8::1", "2001:db8::2")}

AEADS = [("rfc4106(gcm(aes))", n + 4, icv) for n in (16, 24, 32) for icv in (64, 96, 128)]
AEADS += [("rfc4543(gcm(aes))", 20, 128), ("rfc4309(ccm(aes))", 19, 64), ("rfc4309(ccm(aes))", 19, 96),
          ("rfc4309(ccm(aes))", 35, 128), ("rfc7539esp(chacha20,poly1305)", 36, 128)]
AUTHS = [("hmac(md5)", 16, 96), ("hmac(md5)", 16, 128), ("hmac(sha1)", 20, 96), ("hmac(sha1)", 20, 160),
         ("hmac(sha256)", 32, 96), ("hmac(sha256)", 32, 128), ("hmac(sha384)", 48, 192), ("hmac(sha512)", 64, 256),
         ("xcbc(aes)", 16, 96), ("cmac(aes)", 16, 96)]
ENCS = [("cbc(aes)", 16), ("cbc(aes)", 32), ("rfc3686(ctr(aes))", 20), ("ecb(cipher_null)", 0), ("cbc(des3_ede)", 24)]
GCM = {"aead": ("rfc4106(gcm(aes))", 20, 128)}
CBC = {"auth": ("hmac(sha256)", 32, 128), "enc": ("cbc(aes)", 16)}


def transforms():
    for aead in AEADS:
        yield {"aead": aead}
    for auth in AUTHS:
        yield {"auth": auth, "enc": ENCS[0]}
    for enc in ENCS[1:]:
        yield {"auth": ("hmac(sha1)", 20, 96), "enc": enc}


def algorithm(t):
    words = ""
    if "aead" in t:
        words += f"aead {t['aead'][0]} {key(t['aead'][1], 3)} {t['aead'][2]} "
    if "auth" in t:
        words += f"auth-trunc {t['auth'][0]} {key(t['auth'][1], 5)} {t['auth'][2]} "
    if "enc" in t:
        words += f"enc {t['enc'][0]} " + (key(t["enc"][1], 9) if t["enc"][1] else '""') + " "
    return words


class Lab:
    def __init__(self):
        self.ends = {name: Namespace(name) for name in "AB"}
        for name, (wire4, wire6, plain4, plain6) in ADDRESSES.items():
            other = "B" if name == "A" else "A"
            n = {"A": (2, "fd02::"), "B": (1, "fd01::")}[name]
            self.ends[name].sh(
                f"ip addr add {wire4}/24 dev wire", f"ip addr add {wire6}/64 dev wire nodad",
                f"ip addr add {plain4}/16 dev plain", f"ip addr add {plain6}/64 dev plain nodad",
                f"ip route add 10.{n[0]}.0.0/16 dev wire", f"ip -6 route add {n[1]}/64 dev wire")
        self.raw = {}
        self.ends["B"].enter()
        self.encap = []
        for family, any_address in ((socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
            for port in (4500, 4501):
                s = socket.socket(family, socket.SOCK_DGRAM)
                if family == socket.AF_INET6:
                    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                s.bind((any_address, port))
                # UDP_ENCAP, UDP_ENCAP_ESPINUDP
                s.setsockopt(17, 100, 2)
                self.encap.append(s)
        for proto in (17,):
            self.raw[4] = socket.socket(socket.AF_INET, socket.SOCK_RAW, proto)
            self.raw[6] = socket.socket(socket.AF_INET6, socket.SOCK_RAW, proto)
        for s in self.raw.values():
            s.setblocking(False)
        time.sleep(0.2)
        for end in self.ends.values():
            end.read("wire"), end.read("plain")
        self.spi = 0x1000

    def configure(self, case):
        inner, mode, proto = case["inner"], case["mode"], case.get("proto", "esp")
        outer = inner if mode == "transport" else case["outer"]
        src, dst = LOCAL[inner] if mode == "transport" else OUTER[outer]
        isrc, idst = LOCAL[inner] if mode == "transport" else INNER[inner]
        self.spi += 1
        case.update(spi=self.spi, src=src, dst=dst, sel_src=isrc, sel_dst=idst)
        words = algorithm(case["transform"])
        extra = ""
        if case.get("esn"):
            extra += f" flag esn replay-window {case.get('window', 128)}"
        elif case.get("window"):
            extra += f" replay-window {case['window']}"
        if case.get("flags"):
            extra += f" flag {case['flags']}" if not case.get("esn") else f" {case['flags']}"
        if case.get("extra_flags"):
            extra += f" extra-flag {case['extra_flags']}"
        out_extra = extra
        if case.get("oseq"):
            hi, lo = case["oseq"] >> 32, case["oseq"] & 0xffffffff
            out_extra += f" replay-oseq {lo:#x} replay-oseq-hi {hi:#x}"
            extra += f" replay-seq {lo:#x} replay-seq-hi {hi:#x}"
        if case.get("encap"):
            tail = f" encap espinudp {case['encap'][0]} {case['encap'][1]} 0.0.0.0"
            extra, out_extra = extra + tail, out_extra + tail
        # A state without a selector accepts only packets of its own family.
        sel = f" sel src {isrc} dst {idst}" if mode == "beet" or inner != outer else ""
        # The policy must not apply to ESP in UDP itself.
        only = "proto udp dport 5000 " if mode == "transport" else ""
        self.sender = (words, out_extra, sel)
        base = f"ip xfrm state add src {src} dst {dst} proto {proto} spi {self.spi:#x} mode {mode} reqid 1 "
        case["words"] = words.strip()
        self.ends["A"].sh(base + words + out_extra.strip() + sel,
                          f"ip xfrm policy add src {isrc} dst {idst} {only}dir out tmpl src {src} dst {dst} proto {proto} mode {mode} reqid 1")
        directions = ("in",) if mode == "transport" else ("fwd", "in")
        self.ends["B"].sh(base + words + extra.strip() + sel, *[
            f"ip xfrm policy add src {isrc} dst {idst} {only}dir {d} tmpl src {src} dst {dst} proto {proto} mode {mode} reqid 1"
            for d in directions])

    def clear(self):
        for end in self.ends.values():
            end.sh("ip xfrm state flush", "ip xfrm policy flush")
            end.read("wire", 0.0), end.read("plain", 0.0)

    def arrived(self, case):
        """The packet that B delivers, from its plain side or its socket."""
        if case["mode"] != "transport":
            return self.ends["B"].read("plain", 0.1)
        s, found = self.raw[case["inner"]], []
        while select.select([s], [], [], 0.1 if not found else 0.002)[0]:
            packet = s.recv(70000)
            # The socket sees ESP in UDP as well.
            at = (packet[0] & 15) * 4 if case["inner"] == 4 else 0
            if packet[at + 2:at + 4] == struct.pack("!H", 5000):
                found.append(packet)
        return found

    def run(self, case):
        self.configure(case)
        packets = []
        isrc, idst = case["sel_src"], case["sel_dst"]
        for p in case.pop("packets"):
            p = dict(p)
            body = udp(isrc, idst, data(p.pop("bytes")))
            if case["inner"] == 4:
                plain = v4(isrc, idst, body, **p)
            else:
                plain = v6(isrc, idst, body, **p)
            self.ends["A"].write("plain", plain)
            for wire in self.ends["A"].read("wire", 0.1):
                self.ends["B"].write("wire", wire)
                packets.append({"plain": plain.hex(), "wire": wire.hex(), "opened": [x.hex() for x in self.arrived(case)]})
            for answer in self.ends["A"].read("plain", 0.0):
                packets.append({"plain": plain.hex(), "answer": answer.hex()})
        case["packets"] = packets
        self.clear()
        return case

    def replay(self, case):
        """Packets in an arbitrary order with numbers far apart, and whether B accepted each."""
        self.configure(case)
        isrc, idst = case["sel_src"], case["sel_dst"]
        words, extra, sel = self.sender
        a, b = self.ends["A"], self.ends["B"]
        first = case.get("oseq", 0)
        wires = []
        for jump in case.pop("jumps"):
            hi, lo = (first + jump) >> 32, (first + jump) & 0xffffffff
            # As if A had sent that many packets.
            extra_now = extra.split(" replay-oseq ")[0] + f" replay-oseq {lo:#x}" + (f" replay-oseq-hi {hi:#x}" if hi else "")
            a.sh("ip xfrm state flush", f"ip xfrm state add src {case['src']} dst {case['dst']} proto esp spi {case['spi']:#x} "
                 f"mode tunnel reqid 1 {words}{extra_now.strip()}{sel}")
            for _ in range(6):
                a.write("plain", v4(isrc, idst, b"", proto=253))
                wires += a.read("wire", 0.5)[:1]
        case["wires"] = [w.hex() for w in wires]
        random_order = random.Random(case["spi"])
        case["order"], case["taken"] = [], []
        front = 0
        b.enter()
        for _ in range(140):
            front = min(front + random_order.choice((0, 0, 0, 1, 1, 2)), len(wires) - 1)
            index = max(0, min(len(wires) - 1, front + random_order.randint(-12, 2)))
            before = b.stat()
            b.write("wire", wires[index])
            for _ in range(400):
                if b.read("plain", 0.002):
                    taken = 1
                    break
                if b.stat() != before:
                    taken = 0
                    break
            else:
                raise RuntimeError("neither taken nor refused")
            case["order"].append(index)
            case["taken"].append(taken)
        self.clear()
        return case

    def mtu(self, case):
        """The MTU that A reports about a packet that is too big, for each MTU of the wire."""
        self.configure(case)
        isrc, idst = case["sel_src"], case["sel_dst"]
        found = {}
        for mtu in case.pop("mtus"):
            self.ends["A"].sh(f"ip link set wire mtu {mtu}")
            self.ends["A"].read("plain", 0.0)
            body = udp(isrc, idst, data(mtu - (28 if case["inner"] == 4 else 48)))
            packet = v4(isrc, idst, body) if case["inner"] == 4 else v6(isrc, idst, body)
            self.ends["A"].write("plain", packet)
            answers = self.ends["A"].read("plain", 0.05)
            if answers:
                answer = answers[0]
                found[mtu] = struct.unpack("!H", answer[26:28])[0] if case["inner"] == 4 else \
                    struct.unpack("!I", answer[44:48])[0]
        self.ends["A"].sh("ip link set wire mtu 1500")
        case["inner_mtu"] = found
        self.clear()
        return case

    def level(self, case):
        """The packets that A sends, for each set of states; the packets that B accepts, for each set of states used."""
        (src, dst), (isrc, idst) = OUTER[4], INNER[4]
        case.update(src=src, dst=dst, sel_src=isrc, sel_dst=idst)
        a, b = self.ends["A"], self.ends["B"]
        spis = (self.spi + 1, self.spi + 2)
        self.spi += 2
        case["spis"] = spis
        states = [f"ip xfrm state add src {src} dst {dst} proto esp spi {spis[0]:#x} mode tunnel reqid 1 {algorithm(case['transform'])}",
                  f"ip xfrm state add src {src} dst {dst} proto ah spi {spis[1]:#x} mode transport reqid 2 {algorithm(case['ah_transform'])}"]

        def templates(esp, ah):
            ends = f"src {src} dst {dst}"
            text = f" tmpl {ends} proto esp mode tunnel reqid 1 level {esp}" if esp else ""
            return text + (f" tmpl {ends} proto ah mode transport reqid 2 level {ah}" if ah else "")

        sel = f"ip xfrm policy add src {isrc} dst {idst} dir "
        packet = v4(isrc, idst, udp(isrc, idst, data(64)))
        steps, wires = [], []
        # Outbound policies may not leave out tunnels.
        for there in ((), (0,), (1,), (0, 1)) if case["esp"] != "use" else ():
            a.sh("ip xfrm state flush", "ip xfrm policy flush", *[states[i] for i in there], f"{sel}out{templates(case['esp'], case['ah'])}")
            before = a.stat()
            a.write("plain", packet)
            found = a.read("wire", 0.15)
            moved = {k: v - before[k] for k, v in a.stat().items() if v != before[k]}
            steps.append({"way": "out", "plain": packet.hex(), "states": there, "protos": [w[9] for w in found], "stat": moved})
        b.sh(*states, *[f"{sel}{d}{templates(case['esp'], case['ah'])}" for d in ("fwd", "in")])
        for esp, ah in (("", ""), ("required", ""), ("required", "required")):
            a.sh("ip xfrm state flush", "ip xfrm policy flush", *states, f"{sel}out{templates(esp, ah)}")
            a.write("plain", packet)
            for wire in a.read("wire", 0.15):
                before = b.stat()
                b.write("wire", wire)
                opened = [p.hex() for p in b.read("plain", 0.1)]
                moved = {k: v - before[k] for k, v in b.stat().items() if v != before[k]}
                steps.append({"way": "in", "wire": wire.hex(), "opened": opened, "stat": moved})
        case["steps"] = steps
        self.clear()
        return case

    def error(self, case):
        """ICMP errors that B receives, with ESP and without, and that A forwards."""
        self.spi += 1
        inner, flags = case["inner"], case["flags"]
        (src, dst), (isrc, idst) = OUTER[inner], INNER[inner]
        words = algorithm(case["transform"])
        case.update(spi=self.spi, src=src, dst=dst, sel_src=isrc, sel_dst=idst)
        state = f"ip xfrm state add src {src} dst {dst} proto esp spi {self.spi:#x} mode tunnel reqid 1 {words}"
        tmpl = f"tmpl src {src} dst {dst} proto esp mode tunnel reqid 1"
        flag, any_ = f" flag {flags}" if flags else "", {4: "0.0.0.0/0", 6: "::/0"}[inner]
        make, proto = (v4, 1) if inner == 4 else (v6, 58)
        router = {4: "10.1.9.9", 6: "fd01::9"}[inner]
        kinds = ((3, 1), (11, 0), (3, 4), (5, 0), (8, 0)) if inner == 4 else ((1, 0), (2, 0), (3, 0), (4, 0), (128, 0))

        def packets():
            for kind, code in kinds:
                for about in ((idst, isrc), (isrc, idst)):
                    quoted = make(*about, udp(*about, data(64)))
                    body = bytes([kind, code, 0, 0, 0, 0, 0, 0]) + quoted[:60 if kind == 3 else 200]
                    pseudo = b""
                    if inner == 6:
                        ends = [ipaddress.ip_address(a).packed for a in (router, idst)]
                        pseudo = ends[0] + ends[1] + struct.pack("!II", len(body), proto)
                    body = body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:]
                    yield make(router, idst, body, proto=proto)

        a, b = self.ends["A"], self.ends["B"]
        steps = []
        # B has one flow. A sends it everything through the tunnel, or unprotected.
        b.sh(f"{state.strip()}{flag} sel src {isrc} dst {idst} proto udp", *[
            f"ip xfrm policy add src {isrc} dst {idst} proto udp dir {d} {tmpl}" for d in ("fwd", "in")])
        for sealed in (True, False):
            a.sh("ip xfrm state flush", "ip xfrm policy flush", state)
            if sealed:
                a.sh(f"ip xfrm policy add src {any_} dst {any_} dir out {tmpl}")
            for packet in packets():
                a.write("plain", packet)
                for wire in a.read("wire", 0.1):
                    before = b.stat()
                    b.write("wire", wire)
                    opened = [p.hex() for p in b.read("plain", 0.1)]
                    moved = {k: v - before[k] for k, v in b.stat().items() if v != before[k]}
                    steps.append({"way": "in", "wire": wire.hex(), "opened": opened, "stat": moved})
        # A has one flow, and forwards errors.
        a.sh("ip xfrm policy flush", f"ip xfrm policy add src {isrc} dst {idst} proto udp dir out{flag} {tmpl}")
        for packet in packets():
            a.write("plain", packet)
            wires = a.read("wire", 0.1)
            next_at = 9 if inner == 4 else 6
            steps.append({"way": "out", "plain": packet.hex(), "sealed": [wire[next_at] == 50 for wire in wires]})
        case["steps"] = steps
        self.clear()
        return case

    def attack(self, case):
        """Packets that B must refuse, and the counters of /proc/net/xfrm_stat that each of them increments."""
        self.configure(case)
        isrc, idst = case["sel_src"], case["sel_dst"]
        wires = []
        for i in range(40):
            self.ends["A"].write("plain", v4(isrc, idst, udp(isrc, idst, data(40 + i))))
            wires += self.ends["A"].read("wire", 0.1)
        assert len(wires) == 40
        steps = []

        def send(what, packet):
            before = self.ends["B"].stat()
            self.ends["B"].write("wire", packet)
            opened = self.arrived(case)
            after = self.ends["B"].stat()
            moved = {k: after[k] - before[k] for k in after if after[k] != before[k]}
            steps.append({"what": what, "wire": packet.hex(), "opened": [x.hex() for x in opened], "counters": moved})

        def fixed(packet):
            """Updates lengths and checksum of the outer header."""
            packet = packet[:2] + struct.pack("!H", len(packet)) + packet[4:10] + b"\0\0" + packet[12:]
            return packet[:10] + struct.pack("!H", checksum(packet[:20])) + packet[12:]

        def flip(packet, at):
            packet = bytearray(packet)
            packet[at] ^= 1
            return bytes(packet)

        esp_at = 28 if case.get("encap") else 20
        send("first", wires[0])
        send("replayed", wires[0])
        send("third before second", wires[2])
        send("second late", wires[1])
        send("second again", wires[1])
        send("payload changed", flip(wires[3], -30))
        send("ICV changed", flip(wires[3], -1))
        send("sequence number changed", flip(wires[3], esp_at + 6))
        send("the same unchanged", wires[3])
        send("SPI unknown", flip(wires[4], esp_at + 3))
        send("cut to the ESP header", fixed(wires[4][:esp_at + 8]))
        send("cut to four bytes", fixed(wires[4][:esp_at + 4]))
        send("cut short", fixed(wires[4][:-5]))
        send("far ahead", wires[39])
        send("window's left end", wires[39 - (case.get("window", 0) or 1) + 1 if case.get("window") and case["window"] < 35 else 8])
        send("behind the window", wires[4])
        case["steps"] = steps
        self.clear()
        return case


def cases():
    for t in transforms():
        lengths = [0, 1, 2, 3, 13, 14, 15, 16, 17, 100] if t in ({"aead": AEADS[2]}, {"auth": AUTHS[5], "enc": ENCS[0]}) else [33]
        yield {"transform": t, "mode": "tunnel", "inner": 4, "outer": 4, "packets": [{"bytes": n} for n in lengths]}
        yield {"transform": t, "mode": "tunnel", "inner": 4, "outer": 4, "esn": True, "oseq": 0x1_FFFF_FFFD,
               "packets": [{"bytes": n} for n in (40, 41, 42, 43)]}
    for t in (GCM, CBC):
        for inner in (4, 6):
            for outer in (4, 6):
                if inner != outer:
                    yield {"transform": t, "mode": "tunnel", "inner": inner, "outer": outer, "packets": [{"bytes": 50}, {"bytes": 51, "tos": 0xb9}]}
                yield {"transform": t, "mode": "beet", "inner": inner, "outer": outer, "packets": [{"bytes": 50}, {"bytes": 51, "tos": 0xb9}]}
            yield {"transform": t, "mode": "tunnel", "inner": inner, "outer": inner, "packets": [{"bytes": 60, "tos": 0x12}]}
            yield {"transform": t, "mode": "transport", "inner": inner, "packets": [{"bytes": 50}, {"bytes": 51, "tos": 0xb9}]}
            yield {"transform": t, "mode": "tunnel", "inner": inner, "outer": 4, "encap": (4500, 4501), "packets": [{"bytes": 50}]}
            yield {"transform": t, "mode": "tunnel", "inner": inner, "outer": 6, "encap": (4500, 4501), "packets": [{"bytes": 50}]}
        yield {"transform": t, "mode": "transport", "inner": 4, "encap": (4500, 4500), "packets": [{"bytes": 50}]}
        yield {"transform": t, "mode": "transport", "inner": 4, "packets": [{"bytes": 20, "options": b"\x01\x01\x01\x00"}]}
        yield {"transform": t, "mode": "beet", "inner": 4, "outer": 4, "packets": [{"bytes": 20, "options": b"\x01\x01\x01\x00"}, {"bytes": 20, "options": b"\x01" * 7 + b"\0"}]}
        yield {"transform": t, "mode": "beet", "inner": 4, "outer": 6, "packets": [{"bytes": 20, "options": b"\x01\x01\x01\x00"}, {"bytes": 20, "options": b"\x01" * 7 + b"\0"}]}
    dscp = [{"bytes": 20, "tos": tos, "df": df} for tos in (0, 1, 2, 3, 0xb8, 0xba, 0xff) for df in (True, False)]
    for flags, extra in (("", ""), ("noecn", ""), ("nopmtudisc", ""), ("decap-dscp", ""), ("", "dont-encap-dscp"), ("noecn", "dont-encap-dscp")):
        yield {"transform": GCM, "mode": "tunnel", "inner": 4, "outer": 4, "flags": flags, "extra_flags": extra, "packets": dscp}
    six = [{"bytes": 20, "tos": tos, "flow": 0x12345} for tos in (0, 1, 2, 3, 0xb8, 0xff)]
    for flags, extra in (("", ""), ("noecn", ""), ("decap-dscp", ""), ("", "dont-encap-dscp")):
        for inner in (4, 6):
            packets = six if inner == 6 else [{k: v for k, v in p.items() if k != "flow"} for p in six]
            yield {"transform": GCM, "mode": "tunnel", "inner": inner, "outer": 6, "flags": flags, "extra_flags": extra, "packets": packets}
    # At the end of the low half of the sequence number nothing more is sent.
    yield {"transform": GCM, "mode": "tunnel", "inner": 4, "outer": 4, "oseq": 0xFFFF_FFFD, "packets": [{"bytes": 9}] * 4}
    yield {"transform": GCM, "mode": "tunnel", "inner": 4, "outer": 4, "oseq": 0xFFFF_FFFD, "extra_flags": "oseq-may-wrap", "packets": [{"bytes": 9}] * 4}
    # AH.
    for auth in AUTHS:
        for esn in (False, True):
            yield {"transform": {"auth": auth}, "proto": "ah", "mode": "tunnel", "inner": 4, "outer": 4, "esn": esn, "packets": [{"bytes": 30}]}
            yield {"transform": {"auth": auth}, "proto": "ah", "mode": "transport", "inner": 4, "esn": esn, "packets": [{"bytes": 30}]}
    sha = {"auth": AUTHS[5]}
    # IPv4 outside only, as the recorded kernel has no INET6_AH.
    for inner in (4, 6):
        yield {"transform": sha, "proto": "ah", "mode": "tunnel", "inner": inner, "outer": 4, "packets": [{"bytes": 30, "tos": 0xb9}]}
    yield {"transform": sha, "proto": "ah", "mode": "transport", "inner": 4, "packets": [{"bytes": 31, "tos": 0xb9}]}
    yield {"transform": sha, "proto": "ah", "mode": "transport", "inner": 4, "flags": "align4", "packets": [{"bytes": 31}]}
    yield {"transform": sha, "proto": "ah", "mode": "transport", "inner": 4, "packets": [
        {"bytes": 31, "options": o} for o in (b"\x01\x01\x01\x00", b"\x94\x04\x00\x00")]}


def mtus():
    for t in transforms():
        yield {"transform": t, "mode": "tunnel", "inner": 4, "outer": 4, "mtus": list(range(1280, 1297)) + [1500, 1501, 9000]}
    for t in (GCM, CBC):
        for inner in (4, 6):
            for outer in (4, 6):
                yield {"transform": t, "mode": "tunnel", "inner": inner, "outer": outer, "mtus": [1400, 1401, 1405, 1500, 9000]}
                yield {"transform": t, "mode": "beet", "inner": inner, "outer": outer, "mtus": [1400, 1401, 1405, 1500, 9000]}
        # In transport mode a forwarded IPv6 packet is checked against the MTU of the route, which says nothing about
        # the state.
        yield {"transform": t, "mode": "transport", "inner": 4, "mtus": [1400, 1401, 1402, 1403, 1500, 9000]}
        yield {"transform": t, "mode": "tunnel", "inner": 4, "outer": 4, "encap": (4500, 4500), "mtus": [1400, 1500]}
    for auth in AUTHS[4:7]:
        for inner in (4, 6):
            yield {"transform": {"auth": auth}, "proto": "ah", "mode": "tunnel", "inner": inner, "outer": 4, "mtus": [1400, 1500]}


def attacks():
    for t in (GCM, CBC, {"auth": AUTHS[2], "enc": ENCS[3]}):
        for extra in ({"window": 0}, {"window": 4}, {"window": 32}, {"window": 64}, {"window": 4, "esn": True}, {"window": 33, "esn": True}, {"encap": (4500, 4500), "window": 32}):
            yield {"transform": t, "mode": "tunnel", "inner": 4, "outer": 4, **extra}


def replays():
    jumps = [0, 6, 20, 29, 30, 61, 64, 66, 100, 127, 128, 130, 1000, 4000, 4095, 4100, 4101, 9000]
    # Sizes that divide 2^32. With others Linux 7.3 mixes up where numbers start or extended ones carry.
    for window in (1, 32, 64, 128, 4096):
        yield {"transform": GCM, "mode": "tunnel", "inner": 4, "outer": 4, "window": window, "jumps": jumps}
        for start in (0, 0x1_FFFF_FFB0):
            more = {"oseq": start} if start else {}
            yield {"transform": GCM, "mode": "tunnel", "inner": 4, "outer": 4, "window": window, "esn": True, "jumps": jumps, **more}


def errors():
    """Errors from a router outside all selectors, about a flow that has states and policies."""
    for inner in (4, 6):
        for flags in ("", "icmp"):
            yield {"inner": inner, "outer": inner, "mode": "tunnel", "transform": {"aead": AEADS[2]}, "flags": flags}


def levels():
    """An ESP tunnel and AH between its ends, each required, optional (level use) or absent."""
    for esp in ("required", "use", ""):
        for ah in ("required", "use", ""):
            yield {"inner": 4, "mode": "tunnel", "esp": esp, "ah": ah, "transform": {"aead": AEADS[2]}, "ah_transform": {"auth": AUTHS[2]}}


def plain(value):
    return value.hex() if isinstance(value, bytes) else value


if __name__ == "__main__":
    lab = Lab()
    parts = {"packets": (cases, lab.run), "mtu": (mtus, lab.mtu), "attacks": (attacks, lab.attack),
             "replay": (replays, lab.replay), "errors": (errors, lab.error), "levels": (levels, lab.level)}
    result = {"kernel": os.uname().release}
    for name, (make, do) in parts.items():
        result[name] = []
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        for case in make():
            label = json.dumps(case, default=plain)
            try:
                result[name].append(do(case))
            except Exception as e:
                print(f"{e}\n   {label[:300]}", file=sys.stderr)
                lab.clear()
    with open(sys.argv[1], "w") as f:
        rows = lambda name: ",\n".join(json.dumps(row, default=plain) for row in result[name])
        print('{"kernel": "%s"' % result["kernel"], *(f'"{name}": [\n{rows(name)}]' for name in parts), sep=",\n", end="}\n", file=f)
