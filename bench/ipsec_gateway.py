#!/usr/bin/env python3
"""A gateway between interfaces, by sealane's data paths and by the kernel's plain forwarding: UDP, host - gateway - gateway - host.

    a ── lan ── g ── wan ── p ── lan ── b        veth, four network namespaces, ESP tunnel AES-128-GCM between g and p

Frames reach the gateways one by one, as cards deliver them: the sender's stack cuts its superframes before its device, which computes
no checksums. Needs root, ethtool, target/release/udp-load. Rounds are interleaved and medians are told: packets a second that arrive
when as many are sent as the sender can, and at a fixed rate what arrives of it, and CPU microseconds a packet of both gateways'
daemons and of the whole machine (busy ticks of /proc/stat, so a quiet machine is needed for that one; it has the sender too).

usage: ipsec_gateway.py [--rounds N] [--seconds S] [--rate PPS] [--sizes N,N] [--flows N] [--policies N] [--csv FILE]
           [--sealane FILE] [--before FILE] [KIND...]

KIND: plain (the kernel forwards, no IPsec), tun (sealane, through its TUN device), xdp (sealane, [[ipsec.gateway]], plain ESP),
xdp-2 (by two threads, on interfaces of two queues), tun-udp and xdp-udp (as tun and xdp, with ESP in UDP), kernel (`ip xfrm` without
sealane: the kernel's own ESP); beside (sealane has policies that do not cover these packets), and tun and beside with -early (`late = false`),
-late (`late = true`), -device (`incoming = "device"`) or -both, which are not among those that run without a KIND. With --policies there are
as many more that cover nothing. Sizes are those of the IP packet inside, flows are programs that send. A kind that is not there is left out,
and said so.
"""
import json, os, statistics, subprocess, sys, tempfile, time
from ipsec_netns import ENCAP, KEY, TARGET, Daemon, build_of, busy_s, config_of, delete, inside, kinds, make, parser, used_s, veth, write_csv

KINDS = ["plain", "kernel", "tun", "xdp", "xdp-2", "tun-udp", "xdp-udp"]
A, G, P, B = SPACES = ["ipsecgw-a", "ipsecgw-g", "ipsecgw-p", "ipsecgw-b"]
HEADERS = 28


def sh(space, line, **more):
    return inside(space, "sh", "-ec", line, **more)


def up(queues=1):
    make(SPACES)
    for a, b, name in [(A, G, "lan"), (G, P, "wan"), (P, B, "lan")]:
        veth(a, b, name, queues)
    for n, host, gateway in [(1, A, G), (2, B, P)]:
        sh(host, f"ip addr add 10.95.{n}.2/24 dev lan; ip link set lan up; ip route add default via 10.95.{n}.1")
        sh(gateway, f"ip addr add 10.95.{n}.1/24 dev lan; ip addr add 10.94.0.{n}/24 dev wan; ip link set lan up; ip link set wan up;"
           f"ip route add 10.95.{3 - n}.0/24 via 10.94.0.{3 - n}; echo 1 > /proc/sys/net/ipv4/ip_forward")
        for device in ["lan"]:
            sh(host, f"ethtool -K {device} tx off gso off tso off gro off", stdout=subprocess.DEVNULL)
        for device in ["lan", "wan"]:
            sh(gateway, f"ethtool -K {device} tx off gso off tso off gro off", stdout=subprocess.DEVNULL)
    # Nothing listens at the other end: packets are counted at its device, and not answered.
    sh(B, "nft add table inet t; nft add chain inet t i '{ type filter hook input priority 0; }'; nft add rule inet t i udp dport 9 drop")


def script(side, encap, beside=False, policies=0):
    text, outer, nets = "", ["10.94.0.1", "10.94.0.2"], ["10.95.1.0/24", "10.95.2.0/24"]
    for n in range(policies):
        text += f"ip xfrm policy add dir out src 10.97.{n // 256}.{n % 256} dst 10.98.0.1 tmpl src {outer[side]} dst {outer[1 - side]} "
        text += "proto esp reqid 1 mode tunnel\n"
    if beside:
        nets = ["10.97.128.0/24", "10.98.128.0/24"]
    for a in range(2):
        b = 1 - a
        text += f"ip xfrm state add src {outer[a]} dst {outer[b]} proto esp spi {0x1000 + a} reqid 1 mode tunnel "
        text += f"replay-window 2048 flag esn aead 'rfc4106(gcm(aes))' {KEY} 128 {encap}\n"
        for direction in ["out"] if a == side else ["in", "fwd"]:
            text += f"ip xfrm policy add dir {direction} src {nets[a]} dst {nets[b]} "
            text += f"tmpl src {outer[a]} dst {outer[b]} proto esp reqid 1 mode tunnel\n"
    return text


def queues(kind):
    """Queues of each interface, and threads."""
    return 2 if kind.startswith("xdp-2") else 1


class Nothing:
    def __init__(self, args, row, folder):
        self.daemons = []
        if row == "kernel":
            for side, space in enumerate([G, P]):
                sh(space, script(side, ""))

    def used_s(self):
        return sum(used_s(daemon.process) for daemon in self.daemons)

    def end(self):
        for daemon in self.daemons:
            daemon.end()


class Sealane(Nothing):
    def __init__(self, args, row, folder):
        self.daemons = []
        kind, sealane = build_of(args, row)
        config = config_of(kind) + f"workers = {queues(kind)}\n"
        if kind.startswith("xdp"):
            config += '[[ipsec.gateway]]\ninterfaces = ["lan", "wan"]\n'
        for side, space in enumerate([G, P]):
            self.daemons.append(Daemon(sealane, space, folder, side, config))
            more = (kind.startswith("beside"), args.policies)
            self.daemons[-1].script(script(side, ENCAP if kind.endswith("udp") else "", *more))

    def show(self):
        for daemon in self.daemons:
            subprocess.run([*daemon.argv, "xfrm", "show"], check=False, stdout=sys.stderr)


def received():
    text = inside(B, "ip", "-s", "-j", "link", "show", "lan", capture_output=True).stdout
    return json.loads(text)[0]["stats64"]["rx"]["packets"]


def load(args, size, rate, seconds):
    payload = size - HEADERS
    burst = max(1, min(32, 60000 // payload))
    mbit = rate * payload * 8 / 1e6 / args.flows
    line = ["ip", "netns", "exec", A, args.load, "10.95.2.2:9", str(payload), str(burst), str(mbit), str(seconds)]
    flows = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(args.flows)]
    outs = [flow.communicate()[0].split() for flow in flows]
    return sum(int(out[0]) for out in outs) / payload, max(float(out[1]) for out in outs)


def is_ours(kind):
    return kind not in ("plain", "kernel")


def measure(args, row, size):
    """Packets/s under overload; then, at the rate, the part that arrived, and us a packet of the daemons and of the machine."""
    up(queues(row))
    with tempfile.TemporaryDirectory() as folder:
        ways = (Sealane if is_ours(row) else Nothing)(args, row, folder)
        try:
            sh(A, "for i in 1 2 3 4 5 6 7 8 9; do ping -q -c 1 -W 1 10.95.2.2 && exit; done; exit 1", stdout=subprocess.DEVNULL)
            load(args, size, args.rate, 0.3)
            before = received()
            _, took = load(args, size, 3e6, args.seconds)
            most = (received() - before) / took
            time.sleep(0.2)
            before, machine, own = received(), busy_s(), ways.used_s()
            sent, took = load(args, size, args.rate, args.seconds)
            machine, own = busy_s() - machine, ways.used_s() - own
            time.sleep(0.1)
            arrived = received() - before
            if args.show and ways.daemons:
                ways.show()
            return most / 1e3, arrived / sent, own * 1e6 / max(arrived, 1), machine * 1e6 / max(arrived, 1)
        finally:
            ways.end()
            delete(SPACES)


def available(args, kind):
    if kind == "kernel":
        up()
        try:
            return subprocess.run(["ip", "netns", "exec", G, "sh", "-ec", script(0, "")], capture_output=True).returncode == 0
        finally:
            delete(SPACES)
    return os.access(args.load, os.X_OK) and (kind == "plain" or os.access(args.sealane, os.X_OK))


def main():
    of = parser(__doc__, rounds=5, seconds=2.0, before=True)
    of.add_argument("--rate", type=float, default=100e3)
    of.add_argument("--sizes", default="64,512,1420")
    of.add_argument("--flows", type=int, default=1)
    of.add_argument("--policies", type=int, default=0)
    of.add_argument("--show", action="store_true", help="what the daemons counted")
    of.add_argument("--load", default=str(TARGET / "udp-load"))
    args = of.parse_args()
    here = kinds(args, KINDS, available, is_ours)
    rows = []
    for round_ in range(args.rounds):
        for size in map(int, args.sizes.split(",")):
            for kind in here:
                row = measure(args, kind, size)
                rows.append((round_, size, kind, *row))
                print(f"{round_} {size:5} {kind:19} {row[0]:8.0f} kpps; of {args.rate / 1e3:.0f} kpps {row[1] * 100:6.2f} % arrive, "
                      f"{row[2]:6.2f} us of the daemons, {row[3]:6.2f} us of the machine", file=sys.stderr, flush=True)
    write_csv(args.csv, "round,size,kind,kpps_overloaded,arrived_at_rate,daemons_us_per_packet,machine_us_per_packet",
              [f"{r},{size},{kind},{k:.1f},{part:.5f},{own:.3f},{all_:.3f}" for r, size, kind, k, part, own, all_ in rows])
    print(f"{'bytes':>5} {'':19} {'kpps':>7} {'arrived':>8} {'daemons us':>11} {'machine us':>11}")
    for size in map(int, args.sizes.split(",")):
        for kind in here:
            columns = zip(*[row[3:] for row in rows if row[1:3] == (size, kind)])
            most, part, own, machine = (statistics.median(column) for column in columns)
            print(f"{size:5} {kind:19} {most:7.0f} {part * 100:7.2f}% {own:11.2f} {machine:11.2f}")


if __name__ == "__main__":
    main()
