#!/usr/bin/env python3
"""Restarts, crashes and upgrades of daemons under load: charon with five CHILD_SAs, iperf3 and numbered datagrams through them, and BIRD.

    left ── a ── m ── b ── right      gateways a and b, a host behind each, and a bridge m between them, which is watched

Each gateway has a `sealane daemon` for charon (strongSwan, under `sealane run`) and for BIRD, which knows nothing of TCP-AO. iperf3 sends
through the first CHILD_SA. Numbered datagrams go through all of them, 200 a second through the second one, 20 a second through each of the rest;
the last two are between the gateways themselves. BIRD at a announces or withdraws routes before each event. Beside these each daemon has
as many states as --states says.

The daemons are ended by turns, by SIGTERM (as by systemctl restart) and by SIGKILL, at a and at b, and started again at once. Then all CHILD_SAs
have to carry traffic and BIRD at b has to have the routes of a, before the next event follows after a random pause. Told are for each kind of event

    gap      the longest time between two datagrams of the second CHILD_SA that arrive; 5 ms is no gap
    first    from the start of the new daemon to the first datagram of any CHILD_SA that arrives
    ready    from the start of the new daemon to the line in which it says that it serves
    routes   from the signal until BIRD at b has the routes
    lost     datagrams of the second CHILD_SA

and at the end whether the SAs are those of the beginning, whether the sessions of BIRD and iperf3 are, what charon and the daemons complained of, and
what the watch on the bridge has seen: packets in clear, TCP segments of BGP without TCP-AO, ESP sequence numbers that occurred twice. After
that a CHILD_SA is rekeyed, and another one reaches its limit of bytes: charon's sockets have to work after all that.

With --other BINARY upgrades are measured: both daemons are of the other build at first. Each event ends one by SIGTERM and starts this build, or the other
build again, by turns, and tells whether a program under the launcher of charon is served. charon runs under the build that --launcher names
(this, or other). If traffic does not go on within 10 s the event is told as closed, and charon is started again, under the build that
serves it. If a daemon refuses to start, this build is started again. Then SAs may be others at the end, and only that nothing was in clear or sent twice counts.

CHARON_ROOT is a folder for conformance/suites/newer_charon.sh (default target/charon). BIRD and BIRDC are executables of BIRD 2. Needs root, iperf3.
Exit status: 0 all as it should be, 1 not.
"""
import argparse, json, os, pathlib, platform, random, re, select, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SUITES = ROOT / "conformance/suites"
CHILDREN = range(1, 6)
FAST, PORT = 2, 4444
ENDS = ["a", "b"]
OUTER = {"a": "10.80.0.1", "b": "10.80.0.2"}
KINDS = [("restart", signal.SIGTERM), ("kill -9", signal.SIGKILL)]
ROUTES = 200
# The time until an event counts as closed, in seconds.
PATIENCE = 10


def net(end, child):
    """The network of a CHILD_SA at an end, without its last number."""
    return f"10.82.{10 * (1 + ENDS.index(end)) + child}."


def talker(end, child):
    """The address that talks through a CHILD_SA: of the host behind the gateway, or of the gateway itself."""
    return net(end, child) + ("1" if child > 3 else "2")


# Parts of the bench that run in a namespace of their own: `restarts.py part NAME ARGUMENTS...`.

def part_send(end, *children):
    """Sends numbered datagrams through CHILD_SAs until its standard input ends."""
    socks = {}
    for child in map(int, children):
        socks[child] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        socks[child].bind((talker(end, child), 0))
    other = ENDS[1 - ENDS.index(end)]
    tick, at, numbers = 0, time.monotonic(), dict.fromkeys(socks, 0)
    while not select.select([sys.stdin], [], [], max(0, at - time.monotonic()))[0]:
        for child, sock in socks.items():
            if child == FAST or tick % 10 == 0:
                head = bytes([child]) + numbers[child].to_bytes(4, "big") + time.monotonic_ns().to_bytes(8, "big")
                try:
                    sock.sendto(head.ljust(100, b"."), (talker(other, child), PORT))
                except OSError:
                    pass
                numbers[child] += 1
        tick, at = tick + 1, at + 0.005
    print(json.dumps(numbers))


def part_flood(source, to, count):
    """Sends large datagrams."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((source, 0))
    for _ in range(int(count)):
        sock.sendto(bytes(1000), (to, 9))
        time.sleep(0.005)


def part_receive():
    """Tells when datagrams arrive: child, number, when it was sent, when it arrived."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("", PORT))
    while True:
        data = sock.recv(2048)
        sent = int.from_bytes(data[5:13], "big")
        print(data[0], int.from_bytes(data[1:5], "big"), sent, time.monotonic_ns(), flush=True)


def descendants(pid):
    """The processes below one, the last one first."""
    try:
        children = [int(word) for word in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []
    return [below for child in children for below in [*descendants(child), child]]


class Numbers:
    """The sequence numbers of one SPI."""

    def __init__(self):
        self.bits, self.seen, self.twice, self.highest = {}, 0, 0, 0

    def note(self, number):
        chunk = self.bits.setdefault(number >> 13, bytearray(1024))
        byte, bit = (number >> 3) & 1023, 1 << (number & 7)
        self.twice += chunk[byte] & bit != 0
        chunk[byte] |= bit
        self.seen += 1
        self.highest = max(self.highest, number)


class Wire:
    """What has passed the bridge."""

    def __init__(self):
        self.spis, self.clear, self.signed, self.unsigned, self.others, self.examples = {}, 0, 0, 0, {}, []

    def example(self, what, packet):
        if len(self.examples) < 20:
            self.examples.append(f"{what}: {packet[:60].hex()}")

    def esp(self, spi, number):
        self.spis.setdefault(spi, Numbers()).note(number)

    def other(self, what):
        self.others[what] = self.others.get(what, 0) + 1

    def frame(self, header, frame):
        if frame[12:14] != b"\x08\x00":
            return self.other({b"\x08\x06": "arp", b"\x86\xdd": "ipv6"}.get(frame[12:14], frame[12:14].hex()))
        packet = frame[14:]
        if b"\x0a\x52" in (packet[12:14], packet[16:18]):
            self.clear += 1
            return self.example("in clear", packet)
        at, protocol = (packet[0] & 15) * 4, packet[9]
        body = packet[at:int.from_bytes(packet[2:4], "big") or None]
        ports = {int.from_bytes(body[0:2], "big"), int.from_bytes(body[2:4], "big")}
        if packet[6] & 0x3f or packet[7]:
            self.other("fragments")
        if protocol == 50:
            self.esp(body[:4], int.from_bytes(body[4:8], "big"))
        elif protocol == 17 and 4500 in ports:
            # A superframe has the length of its packets in its header (virtio_net_hdr).
            data, each = body[8:], int.from_bytes(header[4:6], sys.byteorder) or len(body)
            for one in (data[i:i + each] for i in range(0, len(data), each)):
                if one[:4] == bytes(4) or len(one) < 8:
                    self.other("ike")
                else:
                    self.esp(one[:4], int.from_bytes(one[4:8], "big"))
        elif protocol == 6 and 179 in ports:
            if self.is_signed(body):
                self.signed += 1
            else:
                self.unsigned += 1
                self.example("unsigned", packet)
        elif protocol == 1:
            self.other(f"icmp {body[0]}/{body[1]}")
        else:
            self.other("ike" if protocol == 17 and 500 in ports else f"protocol {protocol}")

    def is_signed(self, segment):
        options = segment[20:(segment[12] >> 4) * 4]
        while options and options[0]:
            if options[0] == 29:
                return True
            options = options[1:] if options[0] == 1 else options[max(2, options[1]):]
        return False

    def told(self, missed):
        numbers = [{"spi": spi.hex(), "packets": n.seen, "twice": n.twice, "highest": n.highest} for spi, n in self.spis.items()]
        twice = sum(n["twice"] for n in numbers)
        return {"clear": self.clear, "esp": sum(n["packets"] for n in numbers), "twice": twice, "signed": self.signed, "unsigned": self.unsigned,
                "missed": missed, "others": self.others, "examples": self.examples, "spis": numbers}


def part_watch(*devices):
    """Watches what arrives at devices. It tells what it has seen for each line on its standard input, and at the end."""
    SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, SO_RCVBUFFORCE = 263, 6, 15, 33
    wire, missed, taps = Wire(), 0, []
    for device in devices:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        tap.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
        tap.bind((device, 3))
        tap.setblocking(False)
        taps.append(tap)
    print("watching", flush=True)
    asked = True
    while asked:
        ready, _, _ = select.select([*taps, sys.stdin], [], [])
        for tap in taps:
            try:
                for _ in range(1000):
                    frame, address = tap.recvfrom(1 << 17)
                    if address[2] != socket.PACKET_OUTGOING:
                        wire.frame(frame[:10], frame[10:])
            except BlockingIOError:
                pass
        if sys.stdin in ready:
            asked = sys.stdin.readline()
            missed += sum(int.from_bytes(tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)[4:], sys.byteorder) for tap in taps)
            print(json.dumps(wire.told(missed)), flush=True)


# The bench itself.

class Arrivals:
    """The datagrams that have arrived: for each child when they were sent, and when they arrived, by number."""

    def __init__(self):
        self.of = {child: [] for child in CHILDREN}
        self.changed = threading.Condition()

    def read(self, stream):
        for line in stream:
            child, number, sent, at = map(int, line.split())
            with self.changed:
                self.of.setdefault(child, []).append((number, sent, at))
                self.changed.notify_all()

    def flows(self, since_ns, patience):
        """Whether each child carries datagrams that were sent after a moment. Waits for it."""
        def each():
            return all(self.of[child] and self.of[child][-1][1] > since_ns for child in CHILDREN)
        with self.changed:
            return self.changed.wait_for(each, patience)

    def since(self, child, begin_ns):
        """Those of a child since a moment, and the last one before it."""
        with self.changed:
            rows = self.of[child]
            first = len(rows)
            while first and rows[first - 1][2] >= begin_ns:
                first -= 1
            return rows[max(0, first - 1):]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.name = args, pathlib.Path(folder), f"rs{os.getpid()}"
        self.running, self.arrivals, self.daemons, self.charons = [], Arrivals(), {}, {}
        self.seen = {end: 0 for end in ENDS}

    def space(self, place):
        return f"{self.name}-{place}"

    def start(self, place, *words, env=None, **more):
        process = subprocess.Popen(["ip", "netns", "exec", self.space(place), *map(str, words)], env={**os.environ, **(env or {})}, **more)
        self.running.append(process)
        return process

    def part(self, place, *words):
        return self.start(place, sys.executable, __file__, "part", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def inside(self, place, lines):
        subprocess.run(["ip", "netns", "exec", self.space(place), "sh", "-ec", lines], check=True)

    def runtime(self, end):
        return {"SEALANE_RUNTIME_DIR": str(self.folder / f"run-{end}")}

    def log(self, name):
        return (self.folder / name).read_text(errors="replace") if (self.folder / name).exists() else ""

    # Namespaces

    def make(self):
        for place in ["left", "a", "m", "b", "right"]:
            subprocess.run(["ip", "netns", "add", self.space(place)], check=True)
            self.inside(place, "ip link set lo up; echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter")
        self.inside("m", "ip link add bridge0 type bridge; ip link set bridge0 up")
        for end, host in zip(ENDS, ["left", "right"]):
            other = ENDS[1 - ENDS.index(end)]
            for name, a, b, there in [("wire", end, "m", end), ("lan", end, host, "lan")]:
                words = ["type", "veth", "peer", "name", there, "netns", self.space(b)]
                subprocess.run(["ip", "link", "add", name, "netns", self.space(a), *words], check=True)
            self.inside("m", f"ip link set dev {end} master bridge0; ip link set dev {end} up")
            addresses = "".join(f"ip addr add {net(end, c)}1/24 dev {'lan' if c < 4 else 'lo'};" for c in [*CHILDREN, 6])
            # Without IPsec packets of the protected networks would go to the other gateway.
            self.inside(end, f"{addresses} ip addr add {OUTER[end]}/24 dev wire; ip link set wire up; ip link set lan up;"
                        f"ip route add default via {OUTER[other]}; echo 1 >/proc/sys/net/ipv4/ip_forward")
            addresses = "".join(f"ip addr add {net(end, c)}2/24 dev lan;" for c in CHILDREN if c < 4)
            self.inside(host, f"{addresses} ip link set lan up; ip route add default via {net(end, 1)}1")

    # Daemons

    def daemon(self, end, binary):
        """Starts a daemon. Returns when it was started and when it served."""
        other = ENDS[1 - ENDS.index(end)]
        config = self.folder / f"{end}.toml"
        config.write_text(f'[ipsec]\n[[peer]]\nname = "{other}"\nprefix = "{OUTER[other]}"\nport = 179\n[[peer.key]]\nsend-id = 1\nrecv-id = 1\n'
                          'algorithm = "hmac(sha256)"\nsecret = "what both know"\n')
        config.chmod(0o600)
        path = self.folder / f"daemon-{end}.log"
        before = path.stat().st_size if path.exists() else 0
        start_ns = time.monotonic_ns()
        with open(path, "a") as log:
            process = self.start(end, binary, "daemon", "--config", config, env=self.runtime(end), stdout=log, stderr=log)
        self.running.remove(process)
        self.daemons[end] = (process, binary)
        wanted = {"IPsec in", "peers protected"}
        while wanted:
            told = path.read_text()[before:]
            wanted = {words for words in wanted if words not in told}
            if process.poll() is not None:
                raise RuntimeError(f"the daemon of {end} has ended: {told.strip()}")
            time.sleep(0.002)
        return start_ns, time.monotonic_ns()

    def complaints(self, end):
        """The lines of a daemon's log that are new, but for those that each start has."""
        text = self.log(f"daemon-{end}.log")
        new, self.seen[end] = text[self.seen[end]:], len(text)
        return [line for line in new.splitlines() if line and not re.search(r"IPsec in|peers? protected|connections go on", line)]

    def others(self, end):
        """Adds states and policies that carry nothing."""
        text = ""
        for n in range(self.args.states // 2):
            peer = f"10.200.{n >> 8}.{n & 255}"
            for a, direction in enumerate(["out", "in"]):
                src, dst = (OUTER[end], peer) if a == 0 else (peer, OUTER[end])
                text += f"xfrm state add src {src} dst {dst} proto esp spi {0x10000 + 2 * n + a} reqid 90000 mode tunnel "
                text += f"replay-window 64 aead rfc4106(gcm(aes)) 0x{n:032x}{a:08x} 128\n"
                text += f"xfrm policy add dir {direction} src 10.201.{n >> 8}.{n & 255} dst 10.202.{a}.1 "
                text += f"tmpl src {src} dst {dst} proto esp reqid 90000 mode tunnel\n"
        batch = self.folder / f"batch-{end}"
        batch.write_text(text)
        self.sealane(end, "run", "--", "ip", "-batch", batch)

    def sealane(self, end, *words, binary=None):
        words = ["ip", "netns", "exec", self.space(end), binary or self.daemons[end][1], *map(str, words)]
        return subprocess.run(words, env={**os.environ, **self.runtime(end)}, capture_output=True, text=True, check=True).stdout

    # charon

    def charon_config(self, end):
        other = ENDS[1 - ENDS.index(end)]
        self.folder.joinpath(f"{end}.strongswan").write_text(f"""charon-systemd {{
  load_modular = no
  load = random nonce openssl aes sha1 sha2 hmac kdf gmp drbg kernel-netlink socket-default vici updown
  filelog {{ log {{ path = {self.folder}/{end}.log
      flush_line = yes
      append = yes
      default = 1 }} }}
  syslog {{ daemon {{ default = -1 }}
    auth {{ default = -1 }} }}
  plugins {{ vici {{ socket = unix://{self.folder}/{end}.vici }}
    openssl {{ load_legacy = no }} }}
}}
""")
        limits = "rekey_bytes = 100000\n life_bytes = 400000\n rand_bytes = 0"
        children = "".join(f"c{c} {{ local_ts = {net(end, c)}0/24\n remote_ts = {net(other, c)}0/24\n esp_proposals = aes128gcm128\n"
                           f" {limits if c == 6 else ''} }}\n" for c in [*CHILDREN, 6])
        self.folder.joinpath(f"{end}.swanctl").write_text(f"""connections {{ net {{
    version = 2
    local_addrs = {OUTER[end]}
    remote_addrs = {OUTER[other]}
    proposals = aes128-sha256-modp2048
    encap = {"yes" if self.args.encap else "no"}
    dpd_delay = 2s
    local {{ auth = psk
      id = {end}.example }}
    remote {{ auth = psk }}
    children {{ {children} }} }} }}
secrets {{ ike {{ secret = "what both know" }} }}
""")

    def charon_env(self, end):
        return {"STRONGSWAN_CONF": str(self.folder / f"{end}.strongswan"), "SWANCTL_DIR": str(self.folder), **self.runtime(end)}

    def charon(self, end, binary):
        self.charon_config(end)
        vici = self.folder / f"{end}.vici"
        vici.unlink(missing_ok=True)
        with open(self.folder / f"{end}.out", "a") as out:
            process = self.start(end, binary, "run", "--", *self.args.charon, env=self.charon_env(end), stdout=out, stderr=out)
        self.charons[end] = process
        self.until(f"charon {end}", vici.exists, 20)
        self.swan(end, "--load-all", "--clear", "--file", self.folder / f"{end}.swanctl")

    def swan(self, end, *words):
        words = [*self.args.swanctl, *map(str, words), "--uri", f"unix://{self.folder}/{end}.vici"]
        done = subprocess.run(words, env={**os.environ, **self.charon_env(end)}, capture_output=True, text=True, timeout=60)
        if done.returncode:
            raise RuntimeError(f"swanctl {end}: {done.stdout} {done.stderr}")
        return done.stdout

    def sas(self, end):
        """The SAs that charon has: name, number and SPIs of each."""
        found = {}
        for line in self.swan(end, "--list-sas").splitlines():
            if sa := re.match(r"\s*(\w+): #(\d+),.* (ESTABLISHED|INSTALLED),", line):
                name = f"{sa[1]} #{sa[2]}"
                found[name] = re.findall(r"[0-9a-f]{16}_[ir]", line)
            elif spi := re.match(r"\s+(in|out)\s+([0-9a-f]{8})", line):
                found[name].append(f"{spi[1]} {spi[2]}")
        return found

    def newest(self, end, child):
        return max((int(name.split("#")[1]) for name in self.sas(end) if name.startswith(child + " ")), default=0)

    def initiate(self):
        for child in CHILDREN:
            self.swan("a", "--initiate", "--child", f"c{child}")

    # BIRD

    def bird(self, end):
        other, mine, theirs = ENDS[1 - ENDS.index(end)], 1 + ENDS.index(end), 2 - ENDS.index(end)
        many = "".join(f"route 198.18.{n}.0/24 blackhole;" for n in range(ROUTES)) if end == "a" else ""
        self.folder.joinpath(f"{end}.conf").write_text(f"""log "{self.folder}/bird-{end}.log" all;
router id 192.0.2.{mine};
protocol device {{ }}
protocol static few {{ ipv4; route 203.0.{112 + mine}.0/24 blackhole; }}
protocol static many {{ ipv4; {many} }}
protocol bgp peer {{
  local {OUTER[end]} as 6500{mine};
  neighbor {OUTER[other]} as 6500{theirs};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 2;
  hold time 9;
  keepalive time 1;
  ipv4 {{ import all; export where source = RTS_STATIC; next hop self; }};
}}
""")
        self.start(end, self.args.bird, "-f", "-c", self.folder / f"{end}.conf", "-s", self.folder / f"{end}.ctl", stderr=subprocess.DEVNULL)

    def birdc(self, end, *words):
        done = subprocess.run([self.args.birdc, "-s", self.folder / f"{end}.ctl", *words], capture_output=True, text=True)
        return done.stdout

    def session(self, end):
        """The state of a session, and since when it has it."""
        text = self.birdc(end, "show", "protocols", "all", "peer")
        state = re.search(r"BGP state:\s+(\w+)", text)
        since = re.search(r"^peer\s+BGP\s+\S+\s+\S+\s+(\S+)", text, re.M)
        return (state[1] if state else "none", since[1] if since else "")

    def routes(self, end):
        found = re.search(r"(\d+) of \d+ routes", self.birdc(end, "show", "route", "count", "protocol", "peer"))
        return int(found[1]) if found else -1

    def until(self, what, done, patience):
        end = time.monotonic() + patience
        while not done():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {patience} s")
            time.sleep(0.02)

    # Events

    def recover(self):
        """Starts both charons again, each under the build that serves it."""
        # Killed: in an orderly end it would remove its policies, and their traffic would leave in clear.
        for end in ENDS:
            outermost = self.charons[end]
            # The guard of the launcher, the launcher, and charon.
            for pid in [*descendants(outermost.pid), outermost.pid]:
                os.kill(pid, signal.SIGKILL)
            outermost.wait()
        for end in ENDS:
            self.charon(end, self.daemons[end][1])
        begin = time.monotonic_ns()
        for _ in range(3):
            try:
                self.initiate()
            except RuntimeError as e:
                print(f"    {e}", file=sys.stderr)
            if self.arrivals.flows(begin, 10):
                return True
        return False

    def event(self, number, kind, how, end, binary):
        self.announced = not self.announced
        self.birdc("a", "enable" if self.announced else "disable", "many")
        begin_ns = time.monotonic_ns()
        process = self.daemons[end][0]
        if process.poll() is None:
            process.send_signal(how)
            process.wait(20)
        ended_ns = time.monotonic_ns()
        try:
            start_ns, ready_ns = self.daemon(end, binary)
        except RuntimeError as e:
            if not self.args.other:
                raise
            time.sleep(PATIENCE)
            closed = not self.arrivals.flows(ended_ns, 0)
            _, ready_ns = self.daemon(end, self.args.sealane)
            again = self.arrivals.flows(ready_ns, PATIENCE)
            return {"number": number, "kind": kind, "end": end, "closed": closed, "refused": str(e), "goes on": again, "complaints": self.complaints(end)}
        flows = self.arrivals.flows(ready_ns, PATIENCE)
        flows_ns = time.monotonic_ns()
        wanted = 1 + (ROUTES if self.announced else 0)
        try:
            self.until("routes", lambda: self.routes("b") == wanted, 30)
        except RuntimeError as e:
            print(f"    {e}: {self.routes('b')} of {wanted}", file=sys.stderr)
        routes_ns = time.monotonic_ns()
        row = {"number": number, "kind": kind, "end": end, "closed": not flows, "stop_ms": (ended_ns - begin_ns) / 1e6, "ready_ms": (ready_ns - start_ns) / 1e6,
               "routes_ms": (routes_ns - begin_ns) / 1e6}
        if flows:
            # What was sent before all CHILD_SAs carried traffic has arrived by then, or is lost.
            time.sleep(self.args.random.uniform(*self.args.pause))
            came = [one for one in self.arrivals.since(FAST, begin_ns) if one[1] <= flows_ns]
            first = min((one[2] for child in CHILDREN for one in self.arrivals.since(child, start_ns)[1:]), default=flows_ns)
            row |= {"gap_ms": max((b[2] - a[2] for a, b in zip(came, came[1:])), default=0) / 1e6, "first_ms": (first - start_ns) / 1e6,
                    "lost": came[-1][0] - came[0][0] + 1 - len({one[0] for one in came})}
        else:
            row |= {"states": self.count(end), "recovered": self.recover()}
        if self.args.other:
            row["served"] = self.count(end, self.args.launcher)
        row["complaints"] = self.complaints(end)
        return row

    def count(self, end, binary=None):
        """What a program under `sealane run` of a build is told: the numbers of states and policies, or an error."""
        try:
            return " ".join(self.sealane(end, "run", "--", "sh", "-ec", "ip xfrm state count; ip xfrm policy count", binary=binary).split())
        except subprocess.CalledProcessError as e:
            return e.stderr.strip()

    def run(self):
        args = self.args
        self.make()
        watch = self.part("m", "watch", *ENDS)
        assert watch.stdout.readline().strip() == "watching"
        for end in ENDS:
            self.daemon(end, args.other or args.sealane)
        for end in ENDS:
            self.charon(end, args.launcher)
            self.others(end)
        for end in ENDS:
            self.bird(end)
        self.initiate()
        for place in ["right", "b"]:
            receiver = self.part(place, "receive")
            threading.Thread(target=self.arrivals.read, args=(receiver.stdout,), daemon=True).start()
        time.sleep(0.5)
        senders = [self.part("left", "send", "a", "1", "2", "3"), self.part("a", "send", "a", "4", "5")]
        if not self.arrivals.flows(0, 10):
            raise RuntimeError(f"nothing arrives: { {c: len(rows) for c, rows in self.arrivals.of.items()} }")
        self.start("right", "iperf3", "-s", "-B", talker("b", 1), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        with open(self.folder / "iperf3", "w") as out:
            iperf = self.start("left", "iperf3", "-c", talker("b", 1), "-B", talker("a", 1), "-t", 86400, "-b", args.rate, "-i", 1, "--forceflush", stdout=out, stderr=out)
        self.announced = True
        self.until("BGP", lambda: all(self.session(end)[0] == "Established" for end in ENDS), 30)
        self.until("routes", lambda: self.routes("b") == 1 + ROUTES, 30)
        time.sleep(2)
        sas, sessions = [self.sas(end) for end in ENDS], [self.session(end) for end in ENDS]
        for end in ENDS:
            self.complaints(end)
        charon_lines = [len(self.log(f"{end}.log")) for end in ENDS]
        bird_lines = [len(self.log(f"bird-{end}.log")) for end in ENDS]
        load, start = [os.getloadavg()], time.monotonic()
        events = []
        kinds = [("upgrade", signal.SIGTERM), ("back", signal.SIGTERM)] if args.other else KINDS
        for number in range(args.rounds * len(kinds)):
            kind, how = kinds[number % 2]
            end = ENDS[number // 2 % 2]
            binary = args.other if kind == "back" else args.sealane
            events.append(self.event(number, kind, how, end, binary))
            watch.stdin.write("\n")
            watch.stdin.flush()
            seen = json.loads(watch.stdout.readline())
            events[-1] |= {word: seen[word] for word in ["clear", "unsigned", "twice"]}
            print(f"  {number + 1} of {args.rounds * len(kinds)}: {json.dumps(events[-1])}", file=sys.stderr, flush=True)
        seconds = time.monotonic() - start
        load.append(os.getloadavg())
        record = {"events": events, "seconds": seconds, "load": load, "states": self.count("a")}
        record["same_sas"] = [self.sas(end) for end in ENDS] == sas
        record["children"] = [len(sa) - 1 for sa in sas]
        record["same_sessions"] = [self.session(end) for end in ENDS] == sessions
        record["charon"] = [line for end, n in zip(ENDS, charon_lines) for line in self.log(f"{end}.log")[n:].splitlines()
                            if not re.search(r"INFORMATIONAL|sending packet|received packet|sending DPD|\[CFG\]", line)]
        record["bird"] = [line for end, n in zip(ENDS, bird_lines) for line in self.log(f"bird-{end}.log")[n:].splitlines()
                          if re.search("error|closed|reset|down|Received|Sending|lost", line, re.I) and "many" not in line]
        record["after"] = self.after() if not args.other else []
        intervals = [float(rate) for rate in re.findall(r"sec +\S+ \S+ +([\d.]+) .bits/sec", self.log("iperf3"))]
        record["iperf3"] = {"runs": iperf.poll() is None, "seconds": len(intervals), "without a byte": sum(rate == 0 for rate in intervals)}
        sent = {}
        for sender in senders:
            sent |= json.loads(sender.communicate(input="", timeout=20)[0])
        time.sleep(0.5)
        iperf.terminate()
        # The orderly end is watched, too: the networks' traffic meets no daemon.
        probes = [self.part("left", "send", "a", "1", "2", "3"), self.part("a", "send", "a", "4", "5")]
        for end in ENDS:
            self.daemons[end][0].terminate()
            self.daemons[end][0].wait(20)
        time.sleep(1)
        for probe in probes:
            probe.communicate(input="", timeout=20)
        record["sent"] = sent
        counts = {child: len([one for one in rows]) for child, rows in self.arrivals.of.items()}
        unique = {child: len({(one[0], one[1]) for one in rows}) for child, rows in self.arrivals.of.items()}
        record["arrived"], record["delivered_twice"] = unique, sum(counts.values()) - sum(unique.values())
        told = watch.communicate(input="", timeout=60)[0].strip().splitlines()
        record["wire"] = json.loads(told[-1])
        return record

    def after(self):
        """What does not work after all events: a rekey that charon is asked for, and one that the daemon asks for."""
        wrong = []
        try:
            before = {end: self.newest(end, "c5") for end in ENDS}
            self.swan("a", "--rekey", "--child", "c5")
            self.until("a rekey", lambda: all(self.newest(end, "c5") > before[end] for end in ENDS), 10)
            if not self.arrivals.flows(time.monotonic_ns(), 5):
                wrong.append("nothing arrives after a rekey")
            self.swan("a", "--initiate", "--child", "c6")
            before = self.newest("a", "c6")
            flood = self.part("a", "flood", net("a", 6) + "1", net("b", 6) + "1", "200")
            self.until("a rekey at the limit of bytes", lambda: self.newest("a", "c6") > before, 10)
            flood.wait(20)
        except RuntimeError as e:
            wrong.append(str(e))
        return wrong

    def end(self):
        for process in [*self.running, *(process for process, _ in self.daemons.values())]:
            if process.poll() is None:
                process.kill()
            process.wait()
        for place in ["left", "a", "m", "b", "right"]:
            subprocess.run(["ip", "netns", "del", self.space(place)], stderr=subprocess.DEVNULL)


def quantile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(record, args):
    print(f"{record['machine']}; load {record['load'][0][0]:.1f} at the beginning, {record['load'][1][0]:.1f} at the end; {record['seconds']:.0f} s")
    print(f"CHILD_SAs: {record['children'][0]}; at the end of a: {record['states']}")
    print(f"{'':24} {'events':>6} {'closed':>6} {'gap, ms: median':>16} {'p99':>6} {'longest':>8} {'first':>6} {'ready':>6} {'routes':>7} {'lost: median':>13} {'most':>5} {'all':>6}")
    for kind, end in sorted({(e["kind"], e["end"]) for e in record["events"]}):
        rows = [e for e in record["events"] if (e["kind"], e["end"]) == (kind, end)]
        open_ = [e for e in rows if not e["closed"]]
        line = f"{kind + ', ' + {'a': 'sender', 'b': 'receiver'}[end]:24} {len(rows):6} {len(rows) - len(open_):6}"
        if open_:
            gap, lost = [e["gap_ms"] for e in open_], [e["lost"] for e in open_]
            middle = {word: statistics.median(e[word] for e in open_) for word in ["first_ms", "ready_ms", "routes_ms"]}
            line += f" {statistics.median(gap):16.0f} {quantile(gap, 0.99):6.0f} {max(gap):8.0f} {middle['first_ms']:6.0f} {middle['ready_ms']:6.0f} {middle['routes_ms']:7.0f}"
            line += f" {statistics.median(lost):13.0f} {max(lost):5} {sum(lost):6}"
        print(line)
    wire, sent, arrived = record["wire"], record["sent"], record["arrived"]
    lost = sum(e.get("lost", 0) for e in record["events"])
    all_lost = sent[str(FAST)] - min(arrived[FAST], sent[str(FAST)])
    print(f"datagrams of the second CHILD_SA: {sent[str(FAST)]:,} sent, {all_lost:,} lost, {lost:,} of them around events")
    print(f"the wire: {wire['esp']:,} packets of ESP, {wire['signed']:,} signed segments; others {wire['others']}")
    print(f"highest sequence number {max(n['highest'] for n in wire['spis']):,}; iperf3: {record['iperf3']}")
    complaints = [line for e in record["events"] for line in e["complaints"]]
    checks = {
        "nothing in clear": wire["clear"] == 0 and wire["esp"] > 0,
        "no segment of BGP unsigned": wire["unsigned"] == 0 and wire["signed"] > 0,
        "no number twice": wire["twice"] == 0,
        "the watch missed nothing": wire["missed"] == 0,
        "nothing delivered twice": record["delivered_twice"] == 0,
        "all go on or recover": all(e.get("recovered", e.get("goes on", True)) for e in record["events"]),
    }
    if not args.other:
        checks |= {
            "the SAs are those of the beginning": record["same_sas"],
            "charon says nothing": not record["charon"],
            "the daemons complain of nothing": not complaints,
            "charon's sockets work afterwards": not record["after"],
            "no event was closed": not any(e["closed"] for e in record["events"]),
            "iperf3 ran through": record["iperf3"]["runs"],
        }
    checks |= {"the sessions of BIRD are those of the beginning": record["same_sessions"], "BIRD says nothing": not record["bird"]}
    for what, good in checks.items():
        print("PASS" if good else "FAIL", what)
    for name, lines in [("charon", record["charon"]), ("BIRD", record["bird"]), ("daemons", complaints), ("after", record["after"]), ("wire", wire["examples"])]:
        for line in lines[:20]:
            print(f"  {name}: {line}")
    return all(checks.values())


def machine():
    model = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return f"{os.cpu_count()} CPUs of {model[1] if model else platform.machine()}, Linux {platform.release()}"


def main():
    of = argparse.ArgumentParser(usage=__doc__, add_help=False)
    of.add_argument("--help", action="help")
    of.add_argument("--rounds", type=int, default=10, help="events of each kind")
    of.add_argument("--states", type=int, default=1000)
    of.add_argument("--rate", default="50M")
    of.add_argument("--pause", type=float, nargs=2, default=[0.5, 2.5])
    of.add_argument("--seed", type=int, default=1)
    of.add_argument("--encap", action="store_true")
    of.add_argument("--sealane", default=str(ROOT / "target/release/sealane"))
    of.add_argument("--other")
    of.add_argument("--launcher", choices=["this", "other"], default="this")
    of.add_argument("--json")
    of.add_argument("--keep", help="a folder for the logs")
    args = of.parse_args()
    root = pathlib.Path(os.environ.get("CHARON_ROOT", ROOT / "target/charon"))
    if not os.environ.get("CHARON_MOUNTS"):
        subprocess.run([SUITES / "newer_charon.sh", root], check=True)
        os.execv(SUITES / "charon_mounts.sh", ["charon_mounts.sh", str(root), sys.executable, *sys.argv])
    root = root.resolve()
    lib = next(root.glob("usr/lib/*-linux-gnu*"))
    launch = [str(next(lib.glob("ld-linux*.so.*"))), "--library-path", f"{lib}:/usr/lib/ipsec"]
    args.charon, args.swanctl = [*launch, str(root / "usr/sbin/charon-systemd")], [*launch, str(root / "usr/sbin/swanctl")]
    args.bird, args.birdc = os.environ.get("BIRD", "bird"), os.environ.get("BIRDC", "birdc")
    args.random = random.Random(args.seed)
    args.launcher = args.other if args.launcher == "other" else args.sealane
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        try:
            record = bench.run()
        finally:
            bench.end()
            if args.keep:
                shutil.copytree(folder, args.keep, dirs_exist_ok=True, ignore=lambda at, names: [n for n in names if (pathlib.Path(at) / n).is_socket()])
    record["machine"] = machine()
    good = report(record, args)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["part"]:
        globals()[f"part_{sys.argv[2]}"](*sys.argv[3:])
    else:
        sys.exit(main())
