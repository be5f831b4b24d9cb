#!/usr/bin/env python3
"""A gateway between interfaces, by sealane's ways and the kernel's plain forwarding: datagrams of UDP, host - gateway - gateway - host.

    a ── lan ── g ── wan ── p ── lan ── b        veth, four network namespaces, ESP tunnel AES-128-GCM between g and p

Frames reach the gateways one by one, as cards deliver them: the sender's stack cuts its superframes before its device, which computes
no checksums. Needs root, ethtool, target/release/udp-load. Rounds are interleaved and medians are told: packets a second that arrive
when as many are sent as the sender can, and at a fixed rate what arrives of it, and CPU microseconds a packet of both gateways'
daemons and of the whole machine (busy ticks of /proc/stat, so a quiet machine is needed for that one; it has the sender too).

usage: ipsec_gateway.py [--rounds N] [--seconds S] [--rate PPS] [--sizes N,N] [--csv FILE] [--sealane FILE] [KIND...]

KIND: plain (the kernel forwards, no IPsec), tun (sealane, through its TUN device), xdp (sealane, [[ipsec.gateway]], plain ESP),
tun-udp and xdp-udp (the same with ESP in UDP), kernel (`ip xfrm` without sealane: the kernel's own ESP). Sizes are those of the IP
packet inside. A kind that is not there is left out, and said so.
"""
import argparse, json, os, pathlib, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["plain", "kernel", "tun", "xdp", "tun-udp", "xdp-udp"]
A, G, P, B = SPACES = ["ipsecgw-a", "ipsecgw-g", "ipsecgw-p", "ipsecgw-b"]
KEY = "0x000102030405060708090a0b0c0d0e0f10111213"
HEADERS = 28


def run(space, *words, **more):
    return subprocess.run(["ip", "netns", "exec", space, *words], check=True, **more)


def sh(space, line, **more):
    return run(space, "sh", "-ec", line, **more)


def up():
    down()
    for space in SPACES:
        subprocess.run(["ip", "netns", "add", space], check=True)
        subprocess.run(["ip", "-n", space, "link", "set", "lo", "up"], check=True)
    for a, b, name in [(A, G, "lan"), (G, P, "wan"), (P, B, "lan")]:
        subprocess.run(["ip", "-n", a, "link", "add", name, "type", "veth", "peer", "name", name, "netns", b], check=True)
    for n, host, gateway in [(1, A, G), (2, B, P)]:
        sh(host, f"ip addr add 10.95.{n}.2/24 dev lan; ip link set lan up; ip route add default via 10.95.{n}.1")
        sh(gateway, f"ip addr add 10.95.{n}.1/24 dev lan; ip addr add 10.94.0.{n}/24 dev wan; ip link set lan up; ip link set wan up;"
           f"ip route add 10.95.{3 - n}.0/24 via 10.94.0.{3 - n}; echo 1 > /proc/sys/net/ipv4/ip_forward")
        for device in ["lan"]:
            sh(host, f"ethtool -K {device} tx off gso off tso off gro off", stdout=subprocess.DEVNULL)
        for device in ["lan", "wan"]:
            sh(gateway, f"ethtool -K {device} tx off gso off tso off gro off", stdout=subprocess.DEVNULL)
    # Nobody listens at the other end: it is counted at its device, and nothing is answered.
    sh(B, "nft add table inet t; nft add chain inet t i '{ type filter hook input priority 0; }'; nft add rule inet t i udp dport 9 drop")


def down():
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


def script(side, encap):
    text, outer, nets = "", ["10.94.0.1", "10.94.0.2"], ["10.95.1.0/24", "10.95.2.0/24"]
    for a in range(2):
        b = 1 - a
        text += f"ip xfrm state add src {outer[a]} dst {outer[b]} proto esp spi {0x1000 + a} reqid 1 mode tunnel "
        text += f"replay-window 2048 flag esn aead 'rfc4106(gcm(aes))' {KEY} 128 {encap}\n"
        for direction in ["out"] if a == side else ["in", "fwd"]:
            text += f"ip xfrm policy add dir {direction} src {nets[a]} dst {nets[b]} "
            text += f"tmpl src {outer[a]} dst {outer[b]} proto esp reqid 1 mode tunnel\n"
    return text


class Nothing:
    def __init__(self, args, kind, folder):
        self.daemons = []
        if kind == "kernel":
            for side, space in enumerate([G, P]):
                sh(space, script(side, ""))

    def end(self):
        for daemon in self.daemons:
            daemon.terminate()
            daemon.wait(20)


class Sealane(Nothing):
    def __init__(self, args, kind, folder):
        self.daemons, self.argv = [], []
        encap = "encap espinudp 4500 4500 0.0.0.0" if kind.endswith("udp") else ""
        for side, space in enumerate([G, P]):
            config, log = pathlib.Path(folder) / f"{side}.toml", pathlib.Path(folder) / f"{side}.log"
            config.write_text("[ipsec]\n" if kind.startswith("tun") else '[[ipsec.gateway]]\ninterfaces = ["lan", "wan"]\n')
            argv = ["ip", "netns", "exec", space, "env", f"SEALANE_RUNTIME_DIR={folder}/{side}", args.sealane]
            with open(log, "w") as to:
                self.daemons.append(subprocess.Popen([*argv, "daemon", "--config", str(config)], stdout=to, stderr=to))
            while "IPsec in" not in log.read_text():
                time.sleep(0.05)
                if self.daemons[-1].poll() is not None:
                    raise SystemExit(log.read_text())
            subprocess.run([*argv, "run", "--", "sh", "-ec", script(side, encap)], check=True)
            self.argv.append(argv)

    def show(self):
        for argv in self.argv:
            subprocess.run([*argv, "xfrm", "show"], check=False, stdout=sys.stderr)


def received():
    text = run(B, "ip", "-s", "-j", "link", "show", "lan", capture_output=True).stdout
    return json.loads(text)[0]["stats64"]["rx"]["packets"]


def busy_s():
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def used_s(daemons):
    total = 0
    for daemon in daemons:
        fields = pathlib.Path(f"/proc/{daemon.pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def load(args, size, rate, seconds):
    payload = size - HEADERS
    burst = max(1, min(32, 60000 // payload))
    mbit = rate * payload * 8 / 1e6
    out = run(A, args.load, "10.95.2.2:9", str(payload), str(burst), str(mbit), str(seconds), capture_output=True).stdout.split()
    return int(out[0]) / payload, float(out[1])


def measure(args, kind, size):
    """Packets/s when overloaded; then at the rate: the part that arrived, us a packet of the daemons, and of the machine."""
    up()
    with tempfile.TemporaryDirectory() as folder:
        ways = (Sealane if "-" in kind or kind in ("tun", "xdp") else Nothing)(args, kind, folder)
        try:
            sh(A, "for i in 1 2 3 4 5 6 7 8 9; do ping -q -c 1 -W 1 10.95.2.2 && exit; done; exit 1", stdout=subprocess.DEVNULL)
            load(args, size, args.rate, 0.3)
            before = received()
            _, took = load(args, size, 3e6, args.seconds)
            most = (received() - before) / took
            time.sleep(0.2)
            before, machine, own = received(), busy_s(), used_s(ways.daemons)
            sent, took = load(args, size, args.rate, args.seconds)
            machine, own = busy_s() - machine, used_s(ways.daemons) - own
            time.sleep(0.1)
            arrived = received() - before
            if args.show and ways.daemons:
                ways.show()
            return most / 1e3, arrived / sent, own * 1e6 / max(arrived, 1), machine * 1e6 / max(arrived, 1)
        finally:
            ways.end()
            down()


def available(args, kind):
    if kind == "kernel":
        up()
        try:
            return subprocess.run(["ip", "netns", "exec", G, "sh", "-ec", script(0, "")], capture_output=True).returncode == 0
        finally:
            down()
    return os.access(args.load, os.X_OK) and (kind == "plain" or os.access(args.sealane, os.X_OK))


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--rate", type=float, default=100e3)
    parser.add_argument("--sizes", default="64,512,1420")
    parser.add_argument("--csv")
    parser.add_argument("--show", action="store_true", help="what the daemons counted")
    parser.add_argument("--sealane", default=str(HERE.parent / "target/release/sealane"))
    parser.add_argument("--load", default=str(HERE.parent / "target/release/udp-load"))
    parser.add_argument("kinds", nargs="*")
    args = parser.parse_args()
    kinds = []
    for kind in args.kinds or KINDS:
        if available(args, kind):
            kinds.append(kind)
        else:
            print(f"{kind}: not here", file=sys.stderr)
    rows = []
    for round_ in range(args.rounds):
        for size in map(int, args.sizes.split(",")):
            for kind in kinds:
                row = measure(args, kind, size)
                rows.append((round_, size, kind, *row))
                print(f"{round_} {size:5} {kind:8} {row[0]:8.0f} kpps; of {args.rate / 1e3:.0f} kpps {row[1] * 100:6.2f} % arrive, "
                      f"{row[2]:6.2f} us of the daemons, {row[3]:6.2f} us of the machine", file=sys.stderr, flush=True)
    if args.csv:
        lines = [f"{r},{size},{kind},{k:.1f},{part:.5f},{own:.3f},{all_:.3f}\n" for r, size, kind, k, part, own, all_ in rows]
        head = "round,size,kind,kpps_overloaded,arrived_at_rate,daemons_us_per_packet,machine_us_per_packet\n"
        pathlib.Path(args.csv).write_text(head + "".join(lines))
    print(f"{'bytes':>5} {'':8} {'kpps':>7} {'arrived':>8} {'daemons us':>11} {'machine us':>11}")
    for size in map(int, args.sizes.split(",")):
        for kind in kinds:
            columns = zip(*[row[3:] for row in rows if row[1:3] == (size, kind)])
            most, part, own, machine = (statistics.median(column) for column in columns)
            print(f"{size:5} {kind:8} {most:7.0f} {part * 100:7.2f}% {own:11.2f} {machine:11.2f}")


if __name__ == "__main__":
    main()
