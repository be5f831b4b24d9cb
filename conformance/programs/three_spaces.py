"""Three network namespaces: a client behind a gateway, and a remote gateway. Their names are those of places: c, g, r.

With SEALANE, an executable, its daemon serves both gateways, with the lines of IPSEC in the section of its configuration; without it
the kernel's own IPsec does.
"""
import contextlib, ctypes, os, signal, socket, struct, subprocess, sys, tempfile, time

SEALANE = os.environ.get("SEALANE")
FAMILY = {4: socket.AF_INET, 6: socket.AF_INET6}
libc = ctypes.CDLL(None, use_errno=True)

# The third part of addresses of each net: behind the gateway, covered and not; behind the remote one, covered, not, and covered
# against everything; the wire; addresses that only rules know.
NETS = {"lan": 1, "outside": 2, "remote": 3, "world": 4, "any": 5, "wire": 6, "virtual": 7}


def address(version, name):
    net, host = name.split(".")
    return f"10.82.{NETS[net]}.{host}" if version == 4 else f"fd82:0:0:{NETS[net]}::{int(host):x}"


def prefix(version, net, host=0, longer=0):
    return f"{address(version, f'{net}.{host}')}/{(24 if version == 4 else 120) + longer}"


def name(text):
    """The name of an address, if it has one."""
    net, host = text.replace("::", ".").replace(":", ".").split(".")[-2:]
    names = [f"{which}.{int(host, 16 if ':' in text else 10)}" for which, number in NETS.items() if str(number) == net]
    return names[0] if names and text.startswith(("10.82.", "fd82:")) else text


def run(*words, text=None):
    """Runs a command that has to succeed. Returns its output."""
    done = subprocess.run(words, input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{text or ''}{done.stdout}")
    return done.stdout


class Net:
    """The namespaces, by the names of their places: c, g, r."""

    def __init__(self, names):
        self.names = names
        for place in names:
            self.ip(place, "link", "set", "lo", "up")
            self.inside(
                place, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
                "net.ipv6.conf.default.accept_dad=0", "net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
                "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
                # Hosts behind a router do not answer for themselves on its links.
                "net.ipv4.conf.all.arp_ignore=1",
                # An ICMP error quotes what it is about.
                "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0",
            )
        self.link("c", "lan", ["lan.2", "outside.2"], "g", "lan", ["lan.1", "outside.1"])
        self.link("g", "wire", ["wire.1"], "r", "wire", ["wire.2"])
        for host in ["remote.1", "world.1", "world.3", "any.1"]:
            for version in (4, 6):
                self.ip("r", "addr", "add", f"{address(version, host)}/{32 if version == 4 else 128}", "dev", "lo")
        for version in (4, 6):
            for place, via in [("c", "lan.1"), ("g", "wire.2"), ("r", "wire.1")]:
                self.ip(place, f"-{version}", "route", "add", "default", "via", address(version, via))

    def inside(self, place, *words, text=None):
        return run("ip", "netns", "exec", self.names[place], *words, text=text)

    def ip(self, place, *words):
        run("ip", "-n", self.names[place], *words)

    def link(self, one, device, hosts, other, there, hosts_there):
        run("ip", "link", "add", device, "netns", self.names[one], "type", "veth", "peer", "name", there, "netns", self.names[other])
        for place, device, hosts in [(one, device, hosts), (other, there, hosts_there)]:
            for version in (4, 6):
                for host in hosts:
                    self.ip(place, "addr", "add", prefix(version, *host.split(".")), "dev", device)
            self.ip(place, "link", "set", device, "up")

    def within(self, place, do):
        """Does something in another namespace."""
        with open("/proc/self/ns/net") as here, open(f"/run/netns/{self.names[place]}") as there:
            assert libc.setns(there.fileno(), 0) == 0, os.strerror(ctypes.get_errno())
            try:
                return do()
            finally:
                libc.setns(here.fileno(), 0)

    def socket(self, place, *kind):
        return self.within(place, lambda: socket.socket(*kind))

    def watch(self, place, device):
        """A packet socket of a device. It sees what is opened as incoming, so that only what is sent tells of the wire."""
        def watching():
            s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
            s.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
            s.bind((device, 3))
            return s
        return self.within(place, watching)


def seen(s):
    """The frames that a packet socket has seen since the last time. More may come as fast as these are read."""
    # PACKET_STATISTICS: those that came, and those of them that were dropped.
    came, dropped = struct.unpack("II", s.getsockopt(263, 6, 8))
    with contextlib.suppress(BlockingIOError):
        for _ in range(came - dropped):
            yield s.recvfrom(65536, socket.MSG_DONTWAIT)


def leaving(s):
    """The packets that a packet socket has seen leave since the last time: frames, and the protocols in their IP headers."""
    for frame, about in seen(s):
        if about[2] == socket.PACKET_OUTGOING and about[1] in (0x0800, 0x86DD):
            yield frame, frame[23 if about[1] == 0x0800 else 20]


def left(s, text, longer=0):
    """What a packet socket has seen leave since the last time in frames of more bytes than that: ESP, and a text in clear."""
    found = set()
    for frame, protocol in leaving(s):
        if len(frame) > longer:
            found |= {"ESP"} if protocol == socket.IPPROTO_ESP else {"in clear"} if text in frame else set()
    return ", ".join(sorted(found)) or "nothing"


def outer(version, way):
    """The addresses of a way: 0 from the gateway to the remote one, 1 back."""
    ends = [address(version, "wire.1"), address(version, "wire.2")]
    return f"src {ends[way]} dst {ends[1 - way]}"


def state(version, way):
    """The command for the state of a way. Its reqid is the version."""
    spi = 0x1000 * version + way
    return (
        f"ip xfrm state add {outer(version, way)} proto esp spi {spi} reqid {version} mode tunnel "
        f"replay-window 128 flag esn aead 'rfc4106(gcm(aes))' 0x{spi:08x}02030405060708090a0b0c0d0e0f1011 128\n"
    )


def policy(version, way, direction, selector):
    """The command for a policy of the state of a way."""
    return f"ip xfrm policy add {selector} dir {direction} tmpl {outer(version, way)} proto esp reqid {version} mode tunnel\n"


def policies(version, way, end, near, far, more=""):
    """The commands for all policies of a way between two nets, at an end: 0 the gateway, 1 the remote one."""
    source, destination = (near, far) if way == 0 else (far, near)
    directions = ["out"] if way == end else ["in", "fwd"]
    return "".join(policy(version, way, direction, f"src {source} dst {destination}{more}") for direction in directions)


@contextlib.contextmanager
def key_manager(net):
    """Runs scripts in a place as a key manager would."""
    if not SEALANE:
        yield lambda place, script: net.inside(place, "sh", "-e", text=script)
        return
    with tempfile.TemporaryDirectory() as folder:
        os.environ["SEALANE_RUNTIME_DIR"] = f"{folder}/run"
        os.mkdir(f"{folder}/run", 0o700)
        with open(f"{folder}/sealane.toml", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
            f.write(f'[ipsec]\nnetns = ["{net.names["g"]}", "{net.names["r"]}"]\n{os.environ.get("IPSEC", "")}\n')
        with open(f"{folder}/log", "w") as log:
            daemon = subprocess.Popen([SEALANE, "daemon", "--config", f"{folder}/sealane.toml"], stdout=log, stderr=log)
        try:
            while "IPsec" not in open(f"{folder}/log").read():
                if daemon.poll() is not None:
                    sys.exit(open(f"{folder}/log").read())
                time.sleep(0.05)
            yield lambda place, script: net.inside(place, SEALANE, "run", "--", "sh", "-e", text=script)
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait()
