#!/usr/bin/env python3
"""What happens to protected sessions while somebody floods.

    a ── m ── b      hosts a and b, and a bridge m between them, which is watched
         │
         s           a stranger on the same bridge

a and b each run `sealane daemon`, with each other as peers of TCP-AO and with an ESP tunnel between them (AES-128-GCM, plain ESP). These go on
all the time:

    BGP       a session of two BIRDs that know nothing of TCP-AO, a keepalive a second, hold time 9 s
    echo      a TCP connection with TCP-AO, a message of 64 bytes there and back 100 times a second; 16 may be on their way, and are not enough
              for the fast path: it takes the kernel's queues, as BGP does
    busy      the same 800 times a second, which takes the fast path; 64 may be on their way
    bulk      a TCP connection with TCP-AO by which b sends a a megabyte after each flood, as a router does with its table
    beside    as echo, but without TCP-AO between other addresses of both hosts, which no rule names: what the flood does to the machine itself
    datagrams numbered ones from a to b through the tunnel, 200 a second
    stream    a TCP connection from a to b through the tunnel, 50 Mb/s

The stranger then sends packets to b for --seconds, one kind after the other, as fast as one thread sends prepared frames (sendmmsg on a
packet socket), or --pace packets a second:

    nothing                              at the beginning and at the end of each round
    segments, unknown addresses          TCP segments with option 29 and a random MAC to the port of BGP, from 16,384 addresses
    segments, the peer's address         the same with the address of a, and the addresses and ports of the sessions of BGP, echo and busy
    segments, the peer's other ports     the same with the address of a, and random ports of a
    SYNs, the peer's address             SYNs with option 29 to the port of BGP, with the address of a
    ESP, unknown SPIs                    from the stranger's address
    ESP, the tunnel's SPI                with the address of a, sequence numbers ahead of the window, and random contents
    ICMP errors                          from the stranger's address: codes 1, 3 and 4 of type 3 about the tunnel's ESP and the sessions' segments
    UDP                                  to a port that nobody has, from the stranger's address: a flood that is none of Sealane's concern

Three seconds are left after each flood; after one of ICMP errors and the megabyte, the paths' MTUs that b has learnt are forgotten. Told for each are

    flood     packets a second that the stranger sent and that b's interface received (with those of the sessions)
    echo      round trips of messages sent in the flood: median, 99th percentile, longest; and "held", those that were not sent in time because as
              many as may be were on their way, and those that came back later than 3 s after the flood
    full      segments of a's known connections that did not fit into their queue at b
    lost      datagrams of the tunnel sent in the flood
    gap       time between two datagrams that arrive in the flood: 99th percentile, longest
    stream    bytes that arrived in the flood
    CPU       of the daemon at b, in percent of one CPU; and its memory (RSS) before and after
    bulk      how long the megabyte takes afterwards
    sessions  those that did not live through it: BGP (state and TCP connection), stream (the TCP connection), echo, busy, beside (the TCP connection, and
              that messages come back within 30 s after the flood), bulk (that the megabyte comes within 5 s), SAs (the list of states)

and what the bridge has seen from a and b: packets of the tunnel in clear, and segments of TCP-AO's sessions without the option. Beside these the record
has counters of the daemon at b that changed in each flood, and packets that the kernel dropped because a CPU had too many.

BIRD and BIRDC are executables of BIRD 2. Needs root. Exit status: 0 all sessions lived and nothing was in clear, 1 not.

usage: floods.py [--rounds N] [--seconds S] [--pace N] [--only WORD...] [--json FILE] [--keep FOLDER] [--sealane FILE]
"""
import argparse, ctypes, json, os, pathlib, random, re, select, shutil, socket, statistics, struct, subprocess, sys, tempfile, threading, time
from restarts import Wire, machine, quantile

ROOT = pathlib.Path(__file__).resolve().parent.parent
ENDS = ["a", "b"]
PLACES = ["a", "b", "m", "s"]
OUTER = {"a": "10.80.0.1", "b": "10.80.0.2", "s": "10.80.0.3"}
BESIDE = {"a": "10.81.0.1", "b": "10.81.0.2"}
# Of the protected networks of restarts.Wire.
INNER = {"a": "10.82.1.1", "b": "10.82.2.1"}
KEY = "0x000102030405060708090a0b0c0d0e0f10111213"
SPI = {"a": 0x1001, "b": 0x1002}
BGP, ECHO, BUSY, BULK, STREAM, DATAGRAMS, NOBODY = 179, 7777, 7779, 7780, 7778, 4444, 9999
SIGNED = {BGP, ECHO, BUSY, BULK}
MEGABYTE = 1_000_000
# Messages a second, and those that may be on their way.
PACES = {"echo": (100, 16), "busy": (800, 64), "beside": (100, 16)}
RATE = 50_000_000 // 8
PAUSE_S = 3
# The queue of packets that come in from peers, and the words for what did not fit into it.
PEERS, FULL = "queue 24226", "queue 24226 dropped, full"
# Frames that a flood repeats, and those of one call.
FRAMES, BURST = 16384, 256
SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_QDISC_BYPASS, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 6, 15, 20, 23, 33
FLOODS = {
    "nothing": "nothing",
    "segments, unknown addresses": "unknown",
    "segments, the peer's address": "session",
    "segments, the peer's other ports": "ports",
    "SYNs, the peer's address": "syn",
    "ESP, unknown SPIs": "spi",
    "ESP, the tunnel's SPI": "esp",
    "ICMP errors": "icmp",
    "UDP": "udp",
    "nothing, afterwards": "nothing",
}


# Parts of the bench that run in a namespace of their own: `floods.py part NAME ARGUMENTS...`.

def say(*words):
    print(*words, flush=True)


def connections(address, port, source):
    """Connects, again and again. The caller closes each one after it has ended."""
    while True:
        sock = socket.socket()
        sock.bind((source, 0))
        try:
            sock.connect((address, int(port)))
        except OSError:
            sock.close()
            time.sleep(0.2)
            continue
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        say("connected", time.monotonic_ns(), sock.getsockname()[1])
        yield sock


def listen(address, port):
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((address, int(port)))
    listener.listen(8)
    return listener


def serve(address, port, each):
    """Serves each connection by a thread, so that a new one does not wait for one that is dead."""
    listener = listen(address, port)
    while True:
        sock, _ = listener.accept()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=each, args=(sock,), daemon=True).start()


def part_answer(address, port):
    """Sends back what comes."""
    def each(sock):
        try:
            while data := sock.recv(65536):
                sock.sendall(data)
        except OSError:
            pass
    serve(address, port, each)


def part_give(address, port):
    """Sends a megabyte for each byte that comes."""
    def each(sock):
        try:
            while sock.recv(1):
                sock.sendall(bytes(MEGABYTE))
        except OSError:
            pass
    serve(address, port, each)


def part_ask(address, port, source):
    """Asks for a megabyte for each line on its standard input, and tells how many microseconds it took; 0 if it did not come."""
    for sock in connections(address, port, source):
        sock.settimeout(5)
        try:
            while sys.stdin.readline():
                begin, left = time.monotonic_ns(), MEGABYTE
                sock.sendall(b".")
                while left:
                    left -= len(sock.recv(left))
                    if time.monotonic_ns() - begin > 5_000_000_000:
                        raise TimeoutError
                say("bulk", begin, (time.monotonic_ns() - begin) // 1000)
        except OSError:
            say("bulk", begin, 0)
        sock.close()


def part_echo(address, port, source, a_second, most):
    """Sends messages at a fixed rate. Tells when each that came back was sent and came, and how many were sent and were not."""
    every, most = 1 / int(a_second), int(most)
    for sock in connections(address, port, source):
        sock.setblocking(False)
        at, came, out = time.monotonic(), b"", 0
        counted = [0, 0]
        try:
            while True:
                if select.select([sock], [], [], max(0, at - time.monotonic()))[0]:
                    data = sock.recv(65536)
                    if not data:
                        break
                    came += data
                    now = time.monotonic_ns()
                    for i in range(0, len(came) - 63, 64):
                        say("echo", int.from_bytes(came[i:i + 8], "big"), now)
                        out -= 1
                    came = came[len(came) // 64 * 64:]
                while time.monotonic() >= at:
                    at += every
                    counted[out >= most] += 1
                    if out < most:
                        # The buffer of a socket has room for as many as may be on their way.
                        sock.send(time.monotonic_ns().to_bytes(8, "big").ljust(64, b"."))
                        out += 1
                    if sum(counted) * every >= 0.1:
                        say("sent", time.monotonic_ns(), *counted)
                        counted = [0, 0]
        except OSError as e:
            say("ended", time.monotonic_ns(), e.errno)
        sock.close()


def part_stream(address, port, source):
    """Sends at a fixed rate."""
    chunk = bytes(RATE // 100)
    for sock in connections(address, port, source):
        at = time.monotonic()
        try:
            while True:
                sock.sendall(chunk)
                # What was not sent in time is not sent later.
                at = max(at + 0.01, time.monotonic() - 0.05)
                time.sleep(max(0, at - time.monotonic()))
        except OSError as e:
            say("ended", time.monotonic_ns(), e.errno)
        sock.close()


def part_take(address, port):
    """Tells how many bytes have come, about every 50 ms."""
    def each(sock):
        count, next_ns = 0, 0
        try:
            while data := sock.recv(1 << 18):
                count += len(data)
                if (now := time.monotonic_ns()) > next_ns:
                    say("bytes", now, count)
                    count, next_ns = 0, now + 50_000_000
        except OSError:
            pass
    serve(address, port, each)


def part_send(source, address):
    """Sends a numbered datagram every 5 ms."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((source, 0))
    number, at = 0, time.monotonic()
    while True:
        now = time.monotonic_ns()
        say("sent", now, number)
        try:
            sock.sendto((number.to_bytes(4, "big") + now.to_bytes(8, "big")).ljust(100, b"."), (address, DATAGRAMS))
        except OSError:
            pass
        number, at = number + 1, at + 0.005
        time.sleep(max(0, at - time.monotonic()))


def part_receive(address):
    """Tells when datagrams were sent and arrive."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, DATAGRAMS))
    while True:
        data = sock.recv(2048)
        say("came", int.from_bytes(data[4:12], "big"), time.monotonic_ns(), int.from_bytes(data[:4], "big"))


class Bridge(Wire):
    """What has passed the bridge from a and b."""

    def frame(self, header, frame):
        if frame[12:14] == b"\x08\x00" and frame[23] == 6 and b"\x0a\x52" not in (frame[26:28], frame[30:32]):
            body = frame[14 + (frame[14] & 15) * 4:]
            if SIGNED & {int.from_bytes(body[0:2], "big"), int.from_bytes(body[2:4], "big")} and frame[26:28] == b"\x0a\x50":
                if self.is_signed(body):
                    self.signed += 1
                else:
                    self.unsigned += 1
                    self.example("unsigned", frame[14:])
                return
        super().frame(header, frame)


def part_watch(*devices):
    """Watches what arrives at devices. It tells what it has seen for each line on its standard input."""
    wire, missed, taps = Bridge(), 0, []
    for device in devices:
        tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        tap.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        # The flood leaves by these devices.
        tap.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        tap.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 128 << 20)
        tap.bind((device, 3))
        tap.setblocking(False)
        taps.append(tap)
    say("watching")
    while True:
        ready, _, _ = select.select([*taps, sys.stdin], [], [])
        for tap in taps:
            try:
                for _ in range(1000):
                    frame = tap.recv(1 << 17)
                    wire.frame(frame[:10], frame[10:])
            except BlockingIOError:
                pass
        if sys.stdin in ready:
            if not sys.stdin.readline():
                return
            missed += sum(int.from_bytes(tap.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)[4:], sys.byteorder) for tap in taps)
            say(json.dumps(wire.told(missed)))


def ones(data):
    """The Internet checksum."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data[:len(data) // 2 * 2])) + (data[-1] << 8 if len(data) % 2 else 0)
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ip(source, to, protocol, body):
    """A packet of IPv4. Addresses are bytes."""
    head = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(body), random.getrandbits(16), 0x4000, 64, protocol, 0, source, to)
    return head[:10] + ones(head).to_bytes(2, "big") + head[12:] + body


def segment(source, to, ports, flags, payload=b""):
    """A TCP segment with option 29: key ids 1 and 1, a random MAC of 12 bytes."""
    head = struct.pack("!HHIIBBHHH", *ports, random.getrandbits(32), random.getrandbits(32), 9 << 4, flags, 500, 0, 0)
    body = head + bytes([29, 16, 1, 1]) + random.randbytes(12) + payload
    pseudo = source + to + struct.pack("!HH", 6, len(body))
    return ip(source, to, 6, body[:16] + ones(pseudo + body).to_bytes(2, "big") + body[18:])


def packet(kind, sessions):
    """A packet of a flood. `sessions`: the ports of a and b of each session of TCP-AO."""
    a, b, s = (socket.inet_aton(OUTER[end]) for end in "abs")
    any_port = random.randrange(1024, 65536)
    ACK, SYN = 0x10, 0x02
    if kind == "unknown":
        return segment(bytes([198, 18]) + random.randbytes(2), b, (any_port, BGP), ACK, bytes(19))
    if kind == "session":
        return segment(a, b, random.choice(sessions), ACK, bytes(19))
    if kind == "ports":
        return segment(a, b, (any_port, BGP), ACK, bytes(19))
    if kind == "syn":
        return segment(a, b, (any_port, BGP), SYN)
    if kind == "spi":
        return ip(s, b, 50, struct.pack("!II", random.randrange(0x10000, 1 << 32), random.getrandbits(31)) + random.randbytes(88))
    if kind == "esp":
        return ip(a, b, 50, struct.pack("!II", SPI["a"], random.randrange(1 << 30, 1 << 31)) + random.randbytes(88))
    if kind == "icmp":
        if random.random() < 0.5:
            quoted = ip(b, a, 50, struct.pack("!II", SPI["b"], random.getrandbits(20)) + random.randbytes(20))
        else:
            of_a, of_b = random.choice(sessions)
            quoted = segment(b, a, (of_b, of_a), ACK)[:60]
        code = random.choice([1, 3, 4])
        body = struct.pack("!BBHHH", 3, code, 0, 0, 1400 if code == 4 else 0) + quoted
        return ip(s, b, 1, body[:2] + ones(body).to_bytes(2, "big") + body[4:])
    if kind == "udp":
        return ip(s, b, 17, struct.pack("!HHHH", any_port, NOBODY, 72, 0) + bytes(64))
    raise ValueError(kind)


def part_flood(kind, seconds, pace, to, sessions):
    """Sends packets of a kind to an Ethernet address, and tells how many."""
    mine = pathlib.Path("/sys/class/net/wire/address").read_text().strip()
    sessions = json.loads(sessions)
    link = bytes.fromhex(to.replace(":", "")) + bytes.fromhex(mine.replace(":", "")) + b"\x08\x00"
    frames = [link + packet(kind, sessions) for _ in range(FRAMES)] if kind != "nothing" else []
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    sock.bind(("wire", 0))
    sock.setsockopt(SOL_PACKET, PACKET_QDISC_BYPASS, 1)
    sock.setsockopt(socket.SOL_SOCKET, 32, 16 << 20)
    kept = [ctypes.create_string_buffer(frame, len(frame)) for frame in frames]
    vectors = (ctypes.c_uint64 * (2 * len(frames)))()
    # struct mmsghdr: name, its length, iovec, their number, control data, its length, flags; bytes sent.
    heads = bytearray(64 * len(frames))
    for i, frame in enumerate(kept):
        vectors[2 * i], vectors[2 * i + 1] = ctypes.addressof(frame), len(frame)
        struct.pack_into("=QI4xQQQQi4xI4x", heads, 64 * i, 0, 0, ctypes.addressof(vectors) + 16 * i, 1, 0, 0, 0, 0)
    heads = (ctypes.c_char * len(heads)).from_buffer(heads) if frames else None
    sendmmsg = ctypes.CDLL(None, use_errno=True).sendmmsg
    say("ready")
    sys.stdin.readline()
    begin, sent, at, pace = time.monotonic(), 0, 0, float(pace)
    burst = min(BURST, max(1, int(pace / 1000))) if pace else BURST
    while (now := time.monotonic() - begin) < float(seconds):
        if not frames or (pace and sent > now * pace):
            time.sleep(0.0005 if frames else 0.1)
            continue
        done = sendmmsg(sock.fileno(), ctypes.c_void_p(ctypes.addressof(heads) + 64 * at), min(burst, len(frames) - at), 0)
        if done < 0:
            if ctypes.get_errno() != 105:
                raise OSError(ctypes.get_errno(), "sendmmsg")
            continue
        sent, at = sent + done, (at + done) % len(frames)
    say(sent, time.monotonic() - begin)


# The bench itself.

class Lines:
    """What a part tells: the numbers of each line, by its first word."""

    def __init__(self, process):
        self.of, self.lock, self.process = {}, threading.Lock(), process
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            word, *numbers = line.split()
            with self.lock:
                self.of.setdefault(word, []).append(tuple(map(int, numbers)))

    def between(self, word, begin_ns, end_ns, at=0):
        """Lines whose number `at` is in a span of time."""
        with self.lock:
            return [row for row in self.of.get(word, []) if begin_ns <= row[at] < end_ns]

    def last(self, word):
        with self.lock:
            return self.of.get(word, [None])[-1]


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.name = args, pathlib.Path(folder), f"fl{os.getpid()}"
        self.running, self.daemons = [], {}

    def space(self, place):
        return f"{self.name}-{place}"

    def start(self, place, *words, env=None, **more):
        process = subprocess.Popen(["ip", "netns", "exec", self.space(place), *map(str, words)], env={**os.environ, **(env or {})}, **more)
        self.running.append(process)
        return process

    def part(self, place, *words):
        return self.start(place, sys.executable, __file__, "part", *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def inside(self, place, lines, env=None):
        words = ["ip", "netns", "exec", self.space(place), "sh", "-ec", lines]
        return subprocess.run(words, check=True, capture_output=True, text=True, env={**os.environ, **(env or {})}).stdout

    def runtime(self, end):
        return {"SEALANE_RUNTIME_DIR": str(self.folder / f"run-{end}")}

    def until(self, what, done, patience):
        end = time.monotonic() + patience
        while not done():
            if time.monotonic() > end:
                raise RuntimeError(f"{what}: not within {patience} s")
            time.sleep(0.05)

    def make(self):
        for place in PLACES:
            subprocess.run(["ip", "netns", "add", self.space(place)], check=True)
            self.inside(place, "ip link set lo up")
        self.inside("m", "ip link add bridge0 type bridge; ip link set bridge0 up")
        for place in ["a", "b", "s"]:
            words = ["type", "veth", "peer", "name", place, "netns", self.space("m")]
            subprocess.run(["ip", "link", "add", "wire", "netns", self.space(place), *words], check=True)
            self.inside("m", f"ip link set dev {place} master bridge0; ip link set dev {place} up")
            more = f"ip addr add {BESIDE[place]}/24 dev wire; ip addr add {INNER[place]}/32 dev lo;" if place in ENDS else ""
            self.inside(place, f"ip addr add {OUTER[place]}/24 dev wire; {more} ip link set wire up")
        for end, other in zip(ENDS, reversed(ENDS)):
            # Without IPsec packets of the protected addresses would go to the other host.
            self.inside(end, f"ip route add {INNER[other]} via {OUTER[other]} src {INNER[end]}; ip route add default via {OUTER[other]}")

    def daemon(self, end):
        other = ENDS[1 - ENDS.index(end)]
        config = self.folder / f"{end}.toml"
        config.write_text(f'[ipsec]\n[[peer]]\nname = "{other}"\nprefix = "{OUTER[other]}"\nport = [{BGP}, {ECHO}, {BUSY}, {BULK}]\n[[peer.key]]\nsend-id = 1\n'
                          'recv-id = 1\nalgorithm = "hmac(sha256)"\nsecret = "what both know"\n')
        config.chmod(0o600)
        path = self.folder / f"daemon-{end}.log"
        # The process is the daemon's own: `ip netns exec` executes it.
        with open(path, "w") as log:
            self.daemons[end] = self.start(end, self.args.sealane, "daemon", "--config", config, env=self.runtime(end), stdout=log, stderr=log)
        def serves():
            if self.daemons[end].poll() is not None:
                raise RuntimeError(path.read_text())
            return all(words in path.read_text() for words in ["IPsec in", "peers protected"])
        self.until(f"the daemon of {end}", serves, 20)
        lines = ""
        for source, to in [("a", "b"), ("b", "a")]:
            ends = f"src {OUTER[source]} dst {OUTER[to]} proto esp"
            lines += f"ip xfrm state add {ends} spi {SPI[source]} reqid 1 mode tunnel replay-window 2048 flag esn aead 'rfc4106(gcm(aes))' {KEY} 128\n"
            lines += f"ip xfrm policy add dir {'out' if source == end else 'in'} src {INNER[source]} dst {INNER[to]} tmpl {ends} reqid 1 mode tunnel\n"
        script = self.folder / f"tunnel-{end}"
        script.write_text(lines)
        self.inside(end, f"{self.args.sealane} run -- sh -e {script}", self.runtime(end))

    def states(self, end):
        """The states of an end: addresses, SPIs, keys. No counters."""
        text = self.inside(end, f"{self.args.sealane} run -- ip xfrm state", self.runtime(end))
        return re.findall(r"^\s*(?:src|proto|aead) .*", text, re.M)

    def bird(self, end):
        other, mine, theirs = ENDS[1 - ENDS.index(end)], 1 + ENDS.index(end), 2 - ENDS.index(end)
        self.folder.joinpath(f"bird-{end}.conf").write_text(f"""log "{self.folder}/bird-{end}.log" all;
router id 192.0.2.{mine};
protocol device {{ }}
protocol static few {{ ipv4; route 203.0.{112 + mine}.0/24 blackhole; }}
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
        words = [self.args.bird, "-f", "-c", self.folder / f"bird-{end}.conf", "-s", self.folder / f"{end}.ctl"]
        self.start(end, *words, stderr=subprocess.DEVNULL)

    def session(self, end):
        """The state of a session of BGP, and since when it has it."""
        done = subprocess.run([self.args.birdc, "-s", self.folder / f"{end}.ctl", "show", "protocols", "all", "peer"], capture_output=True, text=True)
        state = re.search(r"BGP state:\s+(\w+)", done.stdout)
        since = re.search(r"^peer\s+BGP\s+\S+\s+\S+\s+(\S+)", done.stdout, re.M)
        return (state[1] if state else "none", since[1] if since else "")

    def sessions(self):
        """All sessions as they are: equal before and after if they live."""
        # Since when BIRD has a session differs by a millisecond between two answers.
        bgp = [[self.session(end)[0] for end in ENDS], [pair for pair in self.ports() if BGP in pair]]
        now = {"BGP": bgp, "SAs": [self.states(end) for end in ENDS]}
        return now | {name: len(self.parts[name].of.get("connected", [])) for name in [*PACES, "stream"]}

    def ports(self):
        """The ports of a and of b of the sessions of TCP-AO."""
        found = []
        for line in self.inside("b", "ss -Htn").splitlines():
            mine, theirs = (word.rsplit(":", 1) for word in line.split()[3:5])
            of_a, of_b = int(theirs[1]), int(mine[1])
            if line.startswith("ESTAB") and mine[0].split("%")[0] == OUTER["b"] and SIGNED & {of_a, of_b}:
                found.append((of_a, of_b))
        return found

    def used_s(self, end):
        fields = pathlib.Path(f"/proc/{self.daemons[end].pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory_kib(self, end):
        return int(re.search(r"VmRSS:\s+(\d+)", pathlib.Path(f"/proc/{self.daemons[end].pid}/status").read_text())[1])

    def received(self):
        return int(self.inside("b", "cat /sys/class/net/wire/statistics/rx_packets"))

    def counters(self, end):
        """Counters of a daemon's metrics, and those of its host's queues."""
        env = {**os.environ, **self.runtime(end)}
        found = {}
        for words in [["tcp-ao", "show", "--metrics"], ["xfrm", "show", "--metrics"]]:
            done = subprocess.run(["ip", "netns", "exec", self.space(end), self.args.sealane, *words], env=env, capture_output=True, text=True)
            for line in done.stdout.splitlines():
                if line[:1] != "#" and "_connection_" not in line and len(line.rsplit(" ", 1)) == 2:
                    name, value = line.rsplit(" ", 1)
                    found[name] = float(value)
        for line in self.inside(end, "cat /proc/net/netfilter/nfnetlink_queue").splitlines():
            queue = line.split()
            found |= {f"queue {queue[0]} dropped, full": float(queue[5]), f"queue {queue[0]} dropped, memory": float(queue[6]), f"queue {queue[0]}": float(queue[7])}
        return found

    def kernel_drops(self):
        """Packets that did not fit into a CPU's backlog, on all CPUs."""
        return sum(int(line.split()[1], 16) for line in pathlib.Path("/proc/net/softnet_stat").read_text().splitlines())

    def seen(self):
        self.watch.stdin.write("\n")
        self.watch.stdin.flush()
        return json.loads(self.watch.stdout.readline())

    def flows(self, what, since_ns):
        """Whether a message that was sent after a moment has come back."""
        last = self.parts[what].last("echo")
        return last and last[0] > since_ns

    def bulk(self):
        """Milliseconds for a megabyte, or None."""
        part = self.parts["bulk"]
        begin_ns = time.monotonic_ns()
        part.process.stdin.write("\n")
        part.process.stdin.flush()
        self.until("an answer", lambda: (part.last("bulk") or [0])[0] > begin_ns, 30)
        return part.last("bulk")[1] / 1e3 or None

    def flood(self, number, name, kind):
        self.until("sessions before a flood", lambda: len(self.ports()) >= 4 and self.session("a")[0] == "Established", 60)
        for what in PACES:
            now_ns = time.monotonic_ns()
            self.until(f"{what} before a flood", lambda: self.flows(what, now_ns), 120)
        link = self.inside("b", "cat /sys/class/net/wire/address").strip()
        flood = self.part("s", "flood", kind, self.args.seconds, self.args.pace, link, json.dumps(self.ports()))
        flood.stdout.readline()
        before, counters, rss = self.sessions(), self.counters("b"), {end: self.memory_kib(end) for end in ENDS}
        used, received, drops, wire = {end: self.used_s(end) for end in ENDS}, self.received(), self.kernel_drops(), self.seen()
        begin_ns = time.monotonic_ns()
        told, _ = flood.communicate("\n")
        end_ns = time.monotonic_ns()
        received = self.received() - received
        used = {end: self.used_s(end) - used[end] for end in ENDS}
        sent, seconds = map(float, told.split())
        self.running.remove(flood)
        after_ns = end_ns + PAUSE_S * 1_000_000_000
        time.sleep(PAUSE_S)
        time.sleep(0.3)
        end = time.monotonic() + 30
        while not all(flow := [self.flows(what, end_ns) for what in PACES]) and time.monotonic() < end:
            time.sleep(0.1)
        flow = dict(zip(PACES, flow))
        after, seen, bulk_ms = self.sessions(), self.seen(), self.bulk()
        if kind == "icmp":
            self.inside("b", "ip route flush cache")
        changed = {name: value - counters.get(name, 0) for name, value in self.counters("b").items() if value != counters.get(name, 0)}
        span = (end_ns - begin_ns) / 1e9
        row = {"round": number, "flood": name, "sent_pps": sent / seconds, "received_pps": received / span,
               "lived": {what: before[what] == after[what] and bool(flow.get(what, True)) for what in before} | {"bulk": bulk_ms is not None}, "bulk_ms": bulk_ms,
               "sealane_cpu": {end: used[end] / span for end in ENDS}, "rss_kib": {end: [rss[end], self.memory_kib(end)] for end in ENDS},
               "backlog_drops": self.kernel_drops() - drops, "counters": changed, "bgp": after["BGP"],
               **{word: seen[word] - wire[word] for word in ["clear", "unsigned", "twice", "missed"]}}
        for what in PACES:
            part = self.parts[what]
            counts = part.between("sent", begin_ns, end_ns)
            trips = sorted((r[1] - r[0]) / 1e6 for r in part.between("echo", begin_ns, end_ns) if r[1] < after_ns)
            asked, unsent = sum(r[1] for r in counts), sum(r[2] for r in counts)
            # Counts are told each tenth of a second: what is missing within one is no loss.
            missing = asked - len(trips) if asked - len(trips) > PACES[what][0] / 5 else 0
            row[what] = {"sent": asked, "unsent": unsent, "missing": missing, "p50_ms": quantile(trips, 0.5) if trips else None,
                         "p99_ms": quantile(trips, 0.99) if trips else None, "longest_ms": trips[-1] if trips else None}
        asked = len(self.parts["send"].between("sent", begin_ns, end_ns))
        came = len({r[2] for r in self.parts["receive"].between("came", begin_ns, end_ns)})
        times = [begin_ns, *(r[1] for r in self.parts["receive"].between("came", begin_ns, end_ns, 1)), end_ns]
        gaps = [(b - a) / 1e6 for a, b in zip(times, times[1:])]
        row["datagrams"] = {"sent": asked, "lost": asked - came, "gap_p99_ms": quantile(gaps, 0.99), "gap_ms": max(gaps)}
        row["stream_mbit_s"] = sum(r[1] for r in self.parts["take"].between("bytes", begin_ns, end_ns)) * 8 / 1e6 / span
        return row

    def run(self):
        args = self.args
        self.make()
        self.watch = self.part("m", "watch", *ENDS)
        assert self.watch.stdout.readline().strip() == "watching"
        for end in ENDS:
            self.daemon(end)
        for end in ENDS:
            self.bird(end)
        ways = {"echo": (OUTER, ECHO), "busy": (OUTER, BUSY), "beside": (BESIDE, ECHO)}
        for addresses, port in ways.values():
            self.part("b", "answer", addresses["b"], port)
        self.parts = {}
        for place, name, words in [("b", "take", ["take", INNER["b"], STREAM]), ("b", "receive", ["receive", INNER["b"]]),
                                   *(("a", what, ["echo", of["b"], port, of["a"], *PACES[what]]) for what, (of, port) in ways.items()),
                                   ("b", "give", ["give", OUTER["b"], BULK]), ("a", "bulk", ["ask", OUTER["b"], BULK, OUTER["a"]]),
                                   ("a", "stream", ["stream", INNER["b"], STREAM, INNER["a"]]), ("a", "send", ["send", INNER["a"], INNER["b"]])]:
            self.parts[name] = Lines(self.part(place, *words))
        self.until("BGP", lambda: all(self.session(end)[0] == "Established" for end in ENDS), 30)
        self.until("traffic", lambda: all(self.parts[p].last(w) for p, w in [("echo", "echo"), ("busy", "echo"), ("beside", "echo"), ("receive", "came"), ("take", "bytes")]), 20)
        time.sleep(2)
        rows, load = [], [os.getloadavg()]
        for number in range(args.rounds):
            for name, kind in FLOODS.items():
                if kind == "nothing" or not args.only or kind in args.only:
                    rows.append(self.flood(number, name, kind))
                    print(f"  {json.dumps(rows[-1])}", file=sys.stderr, flush=True)
        load.append(os.getloadavg())
        wire = self.seen()
        del wire["spis"]
        return {"machine": machine(), "seconds": args.seconds, "pace": args.pace, "load": load, "rows": rows, "wire": wire,
                "daemons": {end: (self.folder / f"daemon-{end}.log").read_text().splitlines() for end in ENDS},
                "bird": {end: (self.folder / f"bird-{end}.log").read_text().splitlines() for end in ENDS}}

    def end(self):
        for process in self.running:
            if process not in self.daemons.values() and process.poll() is None:
                process.kill()
                process.wait()
        for process in self.daemons.values():
            if process.poll() is None:
                process.terminate()
                process.wait(20)
        for end in ENDS:
            # A process that keeps states for the next daemon is ended, too.
            try:
                self.inside(end, f"{self.args.sealane} xfrm clear; {self.args.sealane} tcp-ao clear", self.runtime(end))
            except subprocess.CalledProcessError as e:
                print(f"{end}: {e.stderr.strip()}", file=sys.stderr)
        for place in PLACES:
            subprocess.run(["ip", "netns", "del", self.space(place)], stderr=subprocess.DEVNULL)


def report(record):
    print(f"{record['machine']}; load {record['load'][0][0]:.1f} at the beginning, {record['load'][1][0]:.1f} at the end")
    print(f"medians of {1 + max(r['round'] for r in record['rows'])} rounds; what was longest, lost or held, and the growth of memory, are of all rounds")
    trips = f"{'p50':>6} {'p99':>6} {'most':>6} {'held':>5}"
    print(f"{'':33} {'flood, 1000/s':>13} {'CPU b':>5} {'RSS b, MiB':>11} {'queue':>5}" + "".join(f" | {what + ', ms':26}" for what in PACES)
          + f" | {'datagrams':16} {'gap, ms':8} {'stream':>6} {'bulk':>5}")
    print(f"{'':33} {'sent':>6} {'at b':>6} {'%':>5} {'before':>6} {'+':>4} {'full':>5}" + f" | {trips}" * 3
          + f" | {'sent':>5} {'lost':>4} {'p99':>5} {'most':>8} {'Mb/s':>6} {'ms':>5}  did not live")
    for name in dict.fromkeys(r["flood"] for r in record["rows"]):
        rows = [r for r in record["rows"] if r["flood"] == name]
        def middle(of):
            values = [v for v in map(of, rows) if v is not None]
            return statistics.median(values) if values else float("nan")
        def full(row):
            missed = row["counters"].get(FULL, 0)
            return missed / (missed + row["counters"][PEERS])
        dead = {what: sum(not r["lived"][what] for r in rows) for what in rows[0]["lived"]}
        dead = ", ".join(f"{what} {count} of {len(rows)}" for what, count in dead.items() if count)
        line = f"{name:33} {middle(lambda r: r['sent_pps']) / 1e3:6.0f} {middle(lambda r: r['received_pps']) / 1e3:6.0f} "
        line += f"{100 * middle(lambda r: r['sealane_cpu']['b']):5.0f} {middle(lambda r: r['rss_kib']['b'][0]) / 1024:6.1f} "
        line += f"{max(r['rss_kib']['b'][1] - r['rss_kib']['b'][0] for r in rows) / 1024:4.1f} {100 * middle(full):4.0f}%"
        for what in PACES:
            held = sum(r[what]["unsent"] + r[what]["missing"] for r in rows) / sum(r[what]["unsent"] + r[what]["sent"] for r in rows)
            line += f" | {middle(lambda r: r[what]['p50_ms']):6.2f} {middle(lambda r: r[what]['p99_ms']):6.1f} "
            line += f"{max(r[what]['longest_ms'] or 0 for r in rows):6.0f} {100 * held:4.0f}%"
        line += f" | {sum(r['datagrams']['sent'] for r in rows):5} {sum(r['datagrams']['lost'] for r in rows):4} "
        line += f"{middle(lambda r: r['datagrams']['gap_p99_ms']):5.0f} {max(r['datagrams']['gap_ms'] for r in rows):8.0f} "
        print(line + f"{middle(lambda r: r['stream_mbit_s']):6.1f} {middle(lambda r: r['bulk_ms']):5.0f}  {dead or '-'}")
    wire = record["wire"]
    print(f"the bridge, from a and b: {wire['esp']:,} packets of ESP, {wire['signed']:,} signed segments; others {wire['others']}")
    checks = {
        "nothing in clear": wire["clear"] == 0 and wire["esp"] > 0,
        "no segment of BGP, echo, busy and bulk unsigned": wire["unsigned"] == 0 and wire["signed"] > 0,
        "no number twice": wire["twice"] == 0,
        "the watch missed nothing": wire["missed"] == 0,
    }
    for what in record["rows"][0]["lived"]:
        checks[f"{what} lived through all floods"] = all(r["lived"][what] for r in record["rows"])
    for what, good in checks.items():
        print("PASS" if good else "FAIL", what)
    for line in wire["examples"]:
        print(f"  wire: {line}")
    return all(checks.values())


def main():
    of = argparse.ArgumentParser(usage=__doc__.split("usage:")[1].strip(), add_help=False)
    of.add_argument("--help", action="help")
    of.add_argument("--rounds", type=int, default=3)
    of.add_argument("--seconds", type=float, default=10)
    of.add_argument("--pace", type=int, default=0, help="packets a second; 0: as many as can be")
    of.add_argument("--only", nargs="*", help="kinds of floods: " + ", ".join(dict.fromkeys(FLOODS.values())))
    of.add_argument("--json")
    of.add_argument("--keep", help="a folder for the logs")
    of.add_argument("--sealane", default=os.environ.get("SEALANE", str(ROOT / "target/release/sealane")))
    args = of.parse_args()
    args.bird, args.birdc = os.environ.get("BIRD", "bird"), os.environ.get("BIRDC", "birdc")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(args, folder)
        try:
            record = bench.run()
        finally:
            bench.end()
            if args.keep:
                shutil.copytree(folder, args.keep, dirs_exist_ok=True, ignore=lambda at, names: [n for n in names if (pathlib.Path(at) / n).is_socket()])
    good = report(record)
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(record, indent=1) + "\n")
    return 0 if good else 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["part"]:
        globals()[f"part_{sys.argv[2]}"](*sys.argv[3:])
    else:
        sys.exit(main())
