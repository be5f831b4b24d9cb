#!/usr/bin/env python3
"""An ESP tunnel by sealane against other tunnels, over veth between two network namespaces: iperf3, TCP.

Needs root, iperf3 and ping. Rounds are interleaved and medians are told: throughput, CPU seconds per GB of the whole machine (busy
ticks of /proc/stat, so a quiet machine is needed for that one), the bytes that the sender's device has sent per byte received, and
before all that the mean round trip of pings, one after another.

usage: ipsec_tunnel.py [--rounds N] [--seconds S] [--csv FILE] [--sealane FILE] [--before FILE] [--datagrams BYTES] [--pings N] [KIND...]

With --datagrams, iperf3 sends UDP datagrams of this length, as many as go through, instead of TCP.

KIND: plain (no tunnel), sealane (ESP in UDP, AES-128-GCM), sealane-esp (the same without UDP), sealane-4 and sealane-esp-4 (the same
with a state for each of four connections, iperf3 -P 4), sealane-4-workers and sealane-esp-4-workers (the same with two workers
at each end), sealane-interface (as sealane, by an xfrm interface), sealane-iptfs (as sealane, by IP-TFS), sealane-iptfs-delay (packets
wait 200 us for others), sealane-early (as sealane, with `late = false`), sealane-late (`late = true`), sealane-device (`incoming = "device"`),
sealane-both (both), sealane-bound (both, and the client is bound to its device, so that its packets are sealed as they leave); these kinds
are not among those that run without a KIND; wireguard-go
(needs `wireguard-go` or `wireguard`, and `wg`; --wireguard-go FILE), boringtun (needs `boringtun-cli`, and `wg`; --boringtun FILE),
kernel-libipsec (strongSwan's ESP of user space, AES-128-GCM: needs `charon-systemd`, `swanctl` and its plugins kernel-libipsec,
openssl and gcm; --plugins FOLDER).
A kind whose programs are not there is left out, and said so.
"""
import json, os, pathlib, shutil, statistics, subprocess, sys, tempfile, time
from ipsec_netns import ENCAP, KEY, Daemon, build_of, busy_s, config_of, delete, end, inside, kinds, make, parser, veth, write_csv

KINDS = ["plain", "sealane", "sealane-esp", "wireguard-go", "boringtun", "kernel-libipsec"]
SPACES = ("ipsectun-a", "ipsectun-b")
IPTFS = pathlib.Path(__file__).resolve().parent.parent / "conformance/programs/iptfs.py"
OUTER = ("10.83.0.1", "10.83.0.2")
INNER = ("10.84.1.1", "10.84.2.1")


def run(i, *words, **more):
    return inside(SPACES[i], *words, **more)


def up():
    make(SPACES)
    veth(*SPACES, "veth")
    for i in range(2):
        run(i, "ip", "addr", "add", f"{OUTER[i]}/24", "dev", "veth")
        run(i, "ip", "link", "set", "veth", "up")
        run(i, "ip", "addr", "add", f"{INNER[i]}/32", "dev", "lo")


def inner_route(i, device):
    run(i, "ip", "route", "add", f"{INNER[1 - i]}/32", "dev", device, "src", INNER[i])


class Plain:
    def __init__(self, args, kind, folder):
        for i in range(2):
            inner_route(i, "veth")

    def end(self):
        pass


# Ports of connections, each with its own state.
PORT = 6001


def flows(kind):
    return 4 if "-4" in kind else 1


class Sealane:
    def __init__(self, args, row, folder):
        self.daemons = []
        kind, sealane = build_of(args, row)
        encap = "" if "-esp" in kind else ENCAP
        interface = kind.endswith("-interface")
        id_ = "if_id 42" if interface else ""
        for i in range(2):
            config = config_of(kind)
            if interface:
                config += '[[ipsec.interface]]\nname = "ipsec0"\nif_id = 42\n'
            self.daemons.append(Daemon(sealane, SPACES[i], folder, i, config))
            inner_route(i, "ipsec0" if interface else "veth")
            if "-iptfs" in kind:
                delay = "init-delay=200" if kind.endswith("-delay") else ""
                self.daemons[-1].script(f"{sys.executable} {IPTFS} {i} {' '.join(OUTER + INNER)} encap encrypt {delay}")
                continue
            script = ""
            for a in range(2):
                b = 1 - a
                for n in range(flows(kind)):
                    # Each connection has its own client port; everything else is the same.
                    port = f"proto tcp {'sport' if a == 0 else 'dport'} {PORT + n} " if n else ""
                    script += f"ip xfrm state add src {OUTER[a]} dst {OUTER[b]} proto esp spi {0x1000 * (a + 1) + n} reqid {1 + n} "
                    script += f"mode tunnel replay-window 128 aead 'rfc4106(gcm(aes))' {KEY} 128 {encap} {id_}\n"
                    script += f"ip xfrm policy add dir {'out' if a == i else 'in'} src {INNER[a]} dst {INNER[b]} {port}{id_} "
                    script += f"priority {100 if n else 200} tmpl src {OUTER[a]} dst {OUTER[b]} proto esp reqid {1 + n} mode tunnel\n"
            self.daemons[-1].script(script)

    def end(self):
        for daemon in self.daemons:
            daemon.end()


class WireGuard:
    """A user-space WireGuard, under any name."""
    def __init__(self, args, kind, folder):
        program = args.wireguard_go if kind == "wireguard-go" else args.boringtun
        argv = [program, "-f", "wg0"] if kind == "wireguard-go" else [program, "-f", "--disable-drop-privileges", "wg0"]
        keys = [subprocess.run(["wg", "genkey"], capture_output=True, check=True).stdout for _ in range(2)]
        public = [subprocess.run(["wg", "pubkey"], input=k, capture_output=True, check=True).stdout.decode().strip() for k in keys]
        self.tunnels = []
        for i in range(2):
            # Each end has its own folder for control sockets.
            inside = ["unshare", "-m", "sh", "-c", f"mkdir -p {folder}/{i} /var/run/wireguard && "
                      f"mount --bind {folder}/{i} /var/run/wireguard && exec \"$@\"", "sh"]
            self.tunnels.append(subprocess.Popen(["ip", "netns", "exec", SPACES[i], *inside, *argv],
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for _ in range(100):
                if os.path.exists(f"{folder}/{i}/wg0.sock"):
                    break
                time.sleep(0.05)
            key = pathlib.Path(folder) / f"{i}.key"
            key.write_bytes(keys[i])
            run(i, *inside, "wg", "set", "wg0", "listen-port", "51820", "private-key", str(key), "peer", public[1 - i],
                "allowed-ips", f"{INNER[1 - i]}/32", "endpoint", f"{OUTER[1 - i]}:51820")
            run(i, "ip", "link", "set", "wg0", "up")
            inner_route(i, "wg0")

    def end(self):
        end(self.tunnels)


class Libipsec:
    """strongSwan's own ESP: two charons."""
    def __init__(self, args, kind, folder):
        self.charons = []
        for i in range(2):
            inner_route(i, "veth")
            own = f"{folder}/{i}"
            pathlib.Path(f"{own}.strongswan").write_text(
                "charon-systemd {\n load_modular = no\n load = random nonce openssl aes aesni gcm sha1 sha2 hmac kdf drbg "
                f"kernel-libipsec kernel-netlink socket-default vici\n plugins {{ vici {{ socket = unix://{own}.vici }} }}\n}}\n")
            pathlib.Path(f"{own}.swanctl").write_text(
                f"connections {{ net {{\n version = 2\n local_addrs = {OUTER[i]}\n remote_addrs = {OUTER[1 - i]}\n"
                f" proposals = aes128-sha256-ecp256\n local {{\n auth = psk\n id = {i}.example\n }}\n remote {{\n auth = psk\n }}\n"
                f" children {{ net {{\n local_ts = {INNER[i]}/32\n remote_ts = {INNER[1 - i]}/32\n esp_proposals = aes128gcm128\n"
                " } }\n} }\nsecrets { ike {\n secret = benchmark\n} }\n")
            environment = {**os.environ, "STRONGSWAN_CONF": f"{own}.strongswan", "SWANCTL_DIR": folder}
            self.charons.append(subprocess.Popen(["ip", "netns", "exec", SPACES[i], "charon-systemd"], env=environment,
                                                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            for _ in range(100):
                if os.path.exists(f"{own}.vici"):
                    break
                time.sleep(0.05)
            self.swanctl(own, "--load-all", "--file", f"{own}.swanctl")
        self.swanctl(f"{folder}/0", "--initiate", "--child", "net")

    def swanctl(self, own, *words):
        subprocess.run(["swanctl", *words, "--uri", f"unix://{own}.vici"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)

    def end(self):
        end(self.charons)


MAKERS = {"plain": Plain, "wireguard-go": WireGuard, "boringtun": WireGuard, "kernel-libipsec": Libipsec}


def is_ours(kind):
    return kind.startswith("sealane")


def sent():
    """The bytes that the first end's device has sent."""
    text = run(0, "cat", "/sys/class/net/veth/statistics/tx_bytes", capture_output=True).stdout
    return int(text)


def measure(args, row):
    """Gb/s, CPU seconds per GB, bytes on the wire per byte, and microseconds of a round trip."""
    up()
    kind, _ = build_of(args, row)
    bound = kind.endswith("-bound")
    with tempfile.TemporaryDirectory() as folder:
        tunnel = (Sealane if is_ours(kind) else MAKERS[kind])(args, row, folder)
        try:
            run(0, "ping", "-q", "-c", "2", "-i", "0.2", "-W", "5", INNER[1], stdout=subprocess.DEVNULL)
            source = ["-I", "veth"] if bound else []
            told = run(0, "ping", "-q", "-A", "-c", str(args.pings), *source, INNER[1], capture_output=True, text=True).stdout
            trip_us = float(told.rsplit("mdev = ", 1)[1].split("/")[1]) * 1000
            server = subprocess.Popen(["ip", "netns", "exec", SPACES[1], "iperf3", "-s", "-1", "-B", INNER[1]],
                                      stdout=subprocess.DEVNULL)
            time.sleep(0.5)
            before, before_sent = busy_s(), sent()
            # Streams use consecutive ports.
            more = ["-P", str(flows(kind)), "--cport", str(PORT)] if flows(kind) > 1 else []
            if args.datagrams:
                more += ["-u", "-b", "0", "-l", str(args.datagrams)]
            if bound:
                more += ["--bind-dev", "veth"]
            text = run(0, "iperf3", "-J", "-t", str(args.seconds), "-c", INNER[1], "-B", INNER[0], *more, capture_output=True,
                       timeout=args.seconds + 60).stdout
            used, wire = busy_s() - before, sent() - before_sent
            server.wait(20)
            got = json.loads(text)["end"]["sum_received"]
            # Nothing may have come.
            arrived = got["bytes"] or float("nan")
            return got["bits_per_second"] / 1e9, used / (arrived / 1e9), wire / arrived, trip_us
        finally:
            tunnel.end()
            delete(SPACES)


def available(args, kind):
    if is_ours(kind):
        return os.access(args.sealane, os.X_OK)
    if kind == "plain":
        return True
    if kind == "kernel-libipsec":
        plugins = [f"{args.plugins}/libstrongswan-{name}.so" for name in ("kernel-libipsec", "openssl", "gcm")]
        return all(map(os.path.exists, plugins)) and all(map(shutil.which, ("charon-systemd", "swanctl")))
    program = args.wireguard_go if kind == "wireguard-go" else args.boringtun
    return bool(program and shutil.which(program) and shutil.which("wg"))


def main():
    of = parser(__doc__, rounds=5, seconds=5, before=True)
    of.add_argument("--wireguard-go", default=shutil.which("wireguard-go") or shutil.which("wireguard"))
    of.add_argument("--boringtun", default=shutil.which("boringtun-cli"))
    of.add_argument("--plugins", default="/usr/lib/ipsec/plugins")
    of.add_argument("--datagrams", type=int)
    of.add_argument("--pings", type=int, default=2000)
    args = of.parse_args()
    here = kinds(args, KINDS, available, is_ours)
    rows = []
    for round_ in range(args.rounds):
        for kind in here:
            rate, cost, wire, trip_us = measure(args, kind)
            rows.append((round_, kind, rate, cost, wire, trip_us))
            print(f"{round_} {kind:24} {rate:7.2f} Gb/s {cost:6.2f} CPU s/GB {wire:6.2f} B/B {trip_us:6.1f} us", file=sys.stderr, flush=True)
    lines = [f"{r},{kind},{rate:.3f},{cost:.3f},{wire:.3f},{trip_us:.1f}" for r, kind, rate, cost, wire, trip_us in rows]
    write_csv(args.csv, "round,kind,gbit_s,cpu_s_per_gb,wire_bytes_per_byte,round_trip_us", lines)
    print(f"{'':24} {'Gb/s':>7} {'CPU s/GB':>9} {'B/B':>6} {'us':>6}")
    for kind in here:
        of = [row for _, k, *row in rows if k == kind]
        rate, cost, wire, trip_us = (statistics.median(column) for column in zip(*of))
        print(f"{kind:24} {rate:7.2f} {cost:9.2f} {wire:6.2f} {trip_us:6.1f}")


if __name__ == "__main__":
    main()
