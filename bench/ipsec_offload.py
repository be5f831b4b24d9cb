#!/usr/bin/env python3
"""The cost of IPsec for the stack's core and the device's: no IPsec, software, crypto offload, packet offload, at one and two CPUs.

The table of Linux's packet offload series, with devices of software. A sender on CPU 0 of one network namespace sends
datagrams at a rate through an ESP tunnel (ESP in UDP, AES-128-GCM) onto a veth device, whose other end counts and drops what
arrives, so that all CPU time but the sender's is the sender's host's. The rate is searched at which not more than 2 % are
lost (RFC 2544 section 26.1, with a loss that scheduling makes here in any case). At one CPU everything is on CPU 0; at two
the device's thread has CPU 1; without a device the stack's thread has it, and in software it has both. With two workers there
are four flows and a state for each, because a state belongs to one worker; "software-4" is one worker with the same.

CPU time is that of the threads: the stack's are the sender, the thread of the namespace's data path and ksoftirqd/0; the
device's its own and ksoftirqd/1. It is told in TSC ticks a datagram, beside the payload's Gb/s.

Needs root, two CPUs, a release build of sealane and of sealane-bench.

The model behind the table says what that would be on 1 to 32 CPUs, beside what the series published in 2022 (ConnectX-6 Dx,
100 Gb/s, Xeon 8380 at 2.3 GHz, iperf TCP). It assumes that each CPU of the stack brings what the one here does, that nothing
is shared but the wire, which ends at the 92 Gb/s of payload that the series reached, and either that devices are cards (only
the stack's ticks count) or that they are cores of the same machine (stack's and device's ticks both count, in whatever
shares).

What a datagram costs depends on how many come at a time: with --rate all rows run at one rate, and their ticks compare.

At two CPUs it depends on how far these are from each other too, which a virtual machine cannot choose: its host moves virtual
CPUs between cores that share a last level cache and cores that do not, several times a minute, and what one CPU writes that
the other one has read or written lately costs twice as much then. So the distance is measured before and after each trial, as
the time in which a cache line goes to the other CPU and back (`cpu-distance`), and trials compare where it is the same: in the
second table "near" is less than --far nanoseconds both times, "far" is not less both times, and trials that changed between the
two are in neither. "No IPsec, through the device" is measured in the same way, with the other CPU as busy: the device's thread
spins there, whatever it has to do. Rows take turns, so that what else the host does, and where the kernel's allocator takes
pages from (which it gives back on the other CPU: out of the caches, or out of memory), is shared by all of them.

All numbers of a table are medians, with the least and the most of all rounds behind them. A trial is made again (three times at
most, and marked if that was in vain) where others used more than 5 % of the two CPUs meanwhile.

usage: ipsec_offload.py [--rounds N] [--seconds S] [--rate MBIT_S] [--size BYTES] [--superframe N] [--csv FILE] [--sealane FILE]
                        [--tsc-ghz F] [--cpus 1|2] [--far NS] [ROW...]

ROW: none (no IPsec, straight to the wire), through (no IPsec, through the packet device), software, software-4 (four flows and
states), workers (the same with two workers; at two CPUs only), crypto, packet
"""
import argparse, collections, contextlib, os, pathlib, re, statistics, subprocess, sys, tempfile, time

HERE = pathlib.Path(__file__).resolve().parent
ROWS = ["none", "through", "software", "software-4", "workers", "crypto", "packet"]
# Flows, each with its own state.
FLOWS = {"software-4": 4, "workers": 4}
PORT = 9
SPACES = ("ipsecoff-a", "ipsecoff-b")
OUTER = ("10.87.0.1", "10.87.0.2")
INNER = ("10.88.1.1", "10.88.2.1")
KEY = "0x000102030405060708090a0b0c0d0e0f10111213"
DEVICE = {"crypto": "crypto", "packet": "packet", "through": "packet"}
NAME = "sealane0"
LOSS = 0.02
LINE_GBIT_S = 92
CPUS = (1, 2, 4, 8, 16, 32)
PUBLISHED = {
    "none": (27.9, None, None, None, None, None),
    "software": (6, 11.9, 23.3, 45.9, 83.8, 91.8),
    "crypto": (15, 29.7, 58.5, 89.6, 90.4, 90.8),
    "packet": (28, 57, 90.7, 91, 91.3, 91.9),
}
CEILING = 90_000
STEPS = 9

# The share of the CPUs that other programs may use in a trial, and the number of repetitions when they use more.
OTHERS = 0.05
AGAIN = 3

Trial = collections.namedtuple("Trial", "gbit_s lost stack device near_ns far_ns others")


def ip(space, *words, check=True):
    return subprocess.run(["ip", "-n", SPACES[space], *words], check=check, capture_output=True, text=True)


def inside(space, *words, **more):
    return subprocess.run(["ip", "netns", "exec", SPACES[space], *words], check=True, **more)


def up():
    down()
    for space in SPACES:
        subprocess.run(["ip", "netns", "add", space], check=True)
    subprocess.run(["ip", "link", "add", "veth", "netns", SPACES[0], "type", "veth", "peer", "name", "veth", "netns", SPACES[1]],
                   check=True)
    for i in range(2):
        ip(i, "link", "set", "lo", "up")
        ip(i, "addr", "add", f"{OUTER[i]}/24", "dev", "veth")
        ip(i, "link", "set", "veth", "up")
    ip(0, "addr", "add", f"{INNER[0]}/32", "dev", "lo")
    # Nothing answers there: its address is set, and all packets are counted and dropped.
    mac = re.search(r"link/ether (\S+)", ip(1, "link", "show", "veth").stdout)[1]
    ip(0, "neigh", "replace", OUTER[1], "lladdr", mac, "dev", "veth", "nud", "permanent")
    inside(1, "nft", "add table netdev t; add chain netdev t c { type filter hook ingress device \"veth\" priority 0; }; "
           "add rule netdev t c counter drop")


def down():
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


def arrived_bytes():
    text = inside(1, "nft", "list", "table", "netdev", "t", capture_output=True, text=True).stdout
    return int(re.search(r"bytes (\d+)", text)[1])



def own_mark():
    """The mark of the daemon's own packets, with its mask, from the first rule about marks in its table."""
    argv = ["ip", "netns", "exec", SPACES[0], "nft", "list", "chain", "inet", "sealane-ipsec", "escaping"]
    text = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return re.search(r"meta mark (?:& 0xfffffffc == )?(0x[0-9a-f]+)", text)[1] + "/0xfffffffc"


class Tunnel:
    """The daemon in the sender's namespace that this row needs, or none."""

    def __init__(self, args, row, cpus, folder):
        self.daemon = None
        if row == "none":
            ip(0, "route", "add", f"{INNER[1]}/32", "via", OUTER[1], "src", INNER[0])
            return
        kind = DEVICE.get(row)
        config = pathlib.Path(folder) / "sealane.toml"
        text = "[ipsec]\n" + ("workers = 2\n" if row == "workers" else "")
        if kind:
            text += f'[[ipsec.device]]\nname = "{NAME}"\nkind = "{kind}"\ncpu = {cpus - 1}\n'
        config.write_text(text)
        config.chmod(0o600)
        log = pathlib.Path(folder) / "log"
        argv = ["ip", "netns", "exec", SPACES[0], "env", f"SEALANE_RUNTIME_DIR={folder}"]
        pin = ["taskset", "-c", "0" if cpus == 1 or kind else "0,1"]
        with log.open("w") as out:
            self.daemon = subprocess.Popen([*argv, *pin, args.sealane, "daemon", "--config", str(config)], stdout=out, stderr=out)
        while "IPsec in" not in log.read_text():
            time.sleep(0.05)
            if self.daemon.poll() is not None:
                raise SystemExit(f"{row}: {log.read_text()}")
        if row == "through":
            ip(0, "route", "add", f"{INNER[1]}/32", "dev", NAME, "src", INNER[0])
            ip(0, "rule", "add", "fwmark", own_mark(), "lookup", "100")
            ip(0, "route", "add", f"{INNER[1]}/32", "via", OUTER[1], "dev", "veth", "table", "100")
            return
        ip(0, "route", "add", f"{INNER[1]}/32", "via", OUTER[1], "src", INNER[0])
        offload = {"crypto": f"offload dev {NAME} dir out", "packet": f"offload packet dev {NAME} dir out"}.get(row, "")
        # Not every `ip` knows packet offload.
        xfrm = f"{args.sealane} xfrm" if row == "packet" else "ip xfrm"
        script, flows = "", FLOWS.get(row, 1)
        for n in range(flows):
            script += (f"{xfrm} state add src {OUTER[0]} dst {OUTER[1]} proto esp spi {0x1000 + n:#x} reqid {1 + n} mode tunnel aead "
                       f"'rfc4106(gcm(aes))' {KEY} 128 encap espinudp 4500 4500 0.0.0.0 {offload}\n"
                       f"{xfrm} policy add dir out src {INNER[0]} dst {INNER[1]} "
                       f"{f'proto udp dport {PORT + n} ' if flows > 1 else ''}"
                       f"{f'offload packet dev {NAME} ' if row == 'packet' else ''}"
                       f"tmpl src {OUTER[0]} dst {OUTER[1]} proto esp reqid {1 + n} mode tunnel\n")
        subprocess.run([*argv, args.sealane, "run", "--", "sh", "-ec", script], check=True)

    def threads(self):
        """The threads of the daemon: id, and whether it is the device's."""
        if not self.daemon:
            return {}
        # `ip netns exec`, env and taskset are replaced by the daemon, so the process id is its own.
        folder = pathlib.Path(f"/proc/{self.daemon.pid}/task")
        return {task.name: (task / "comm").read_text().strip() == NAME for task in folder.iterdir()}

    def end(self):
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait(20)


def ran_s(task):
    """CPU seconds of a thread."""
    try:
        return int(pathlib.Path(f"/proc/{task}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


def softirqd():
    """The softirq threads of the kernel, by CPU."""
    found = {}
    for comm in pathlib.Path("/proc").glob("[0-9]*/comm"):
        try:
            name = comm.read_text().strip()
        except OSError:
            continue
        if name.startswith("ksoftirqd/"):
            found[int(name.partition("/")[2])] = comm.parent.name
    return found


def busy_s():
    """Seconds in which the two CPUs were not idle."""
    with open("/proc/stat") as stat:
        fields = [line.split() for line in stat if line.startswith(("cpu0 ", "cpu1 "))]
    # The fields: user, nice, system, idle, iowait, irq, softirq, steal.
    return sum(int(n) for f in fields for n in (*f[1:4], *f[6:8])) / os.sysconf("SC_CLK_TCK")


def distance_ns(args):
    """The round trip of a cache line between the two CPUs."""
    return float(subprocess.run([args.distance, "0", "1"], check=True, capture_output=True, text=True).stdout)


def trial(args, tunnel, cpus, mbit_s, per_byte, flows=1):
    """One rate on an otherwise idle machine: packets that arrived, CPU time of both cores, and their distance."""
    for _ in range(AGAIN + 1):
        before = distance_ns(args)
        got = undisturbed(args, tunnel, cpus, mbit_s, per_byte, flows)
        after = distance_ns(args)
        got = got._replace(near_ns=min(before, after), far_ns=max(before, after))
        if got.others <= OTHERS:
            break
        time.sleep(1)
    return got


def undisturbed(args, tunnel, cpus, mbit_s, per_byte, flows):
    """The trial, and the share of the two CPUs that other programs used."""
    threads, kernel = tunnel.threads(), softirqd()
    device = [t for t, of in threads.items() if of]
    stack = [t for t, of in threads.items() if not of]
    if cpus == 1 or not device:
        stack += kernel.values()
    else:
        stack.append(kernel[0])
        device.append(kernel[1])
    before_bytes, before = arrived_bytes(), {t: ran_s(t) for t in stack + device}
    begun, busy = time.monotonic(), busy_s()
    loads = [subprocess.Popen(["ip", "netns", "exec", SPACES[0], "taskset", "-c", "0", args.load, f"{INNER[1]}:{PORT + n}",
                               str(args.size), str(args.superframe), str(mbit_s / flows), str(args.seconds)],
                              stdout=subprocess.PIPE, text=True) for n in range(flows)]
    out = [load.communicate()[0].split() for load in loads]
    if any(load.returncode for load in loads):
        raise SystemExit("the sender failed")
    busy, passed = busy_s() - busy, time.monotonic() - begun
    ours = sum(ran_s(t) - before[t] for t in before)
    time.sleep(0.1)
    sent, seconds, sender = sum(int(o[0]) for o in out), max(float(o[1]) for o in out), sum(float(o[2]) for o in out)
    came = (arrived_bytes() - before_bytes) / per_byte if per_byte else arrived_bytes() - before_bytes
    used = {t: ran_s(t) - before[t] for t in before}
    packets = max(came / args.size, 1)
    ticks = args.tsc_ghz * 1e9 / packets
    return Trial(came * 8 / seconds / 1e9, 1 - came / sent, (sender + sum(used[t] for t in stack)) * ticks,
                 sum(used[t] for t in device) * ticks, 0, 0, (busy - ours - sender) / (2 * passed))


def measure(args, row, cpus):
    """The trial at the highest rate without loss."""
    up()
    flows = FLOWS.get(row, 1)
    with tempfile.TemporaryDirectory() as folder:
        tunnel = Tunnel(args, row, cpus, folder)
        try:
            # The number of headers at a rate without loss.
            slow = trial(args, tunnel, cpus, 200, None, flows)
            if slow.gbit_s < 0.1:
                raise SystemExit(f"{row}: nothing arrives")
            per_byte = 1 - slow.lost
            if args.rate:
                return trial(args, tunnel, cpus, args.rate, per_byte, flows)
            low, high, best = 200, CEILING, None
            for _ in range(STEPS):
                rate = (low * high) ** 0.5
                at = trial(args, tunnel, cpus, rate, per_byte, flows)
                # If the sender does not reach the rate, it is the limit.
                if at.lost <= LOSS:
                    low = rate
                    if best is None or at.gbit_s > best.gbit_s:
                        best = at
                else:
                    high = rate
            if best is None:
                raise SystemExit(f"{row}: always more than {LOSS:.0%} lost")
            return best
        finally:
            tunnel.end()
            down()


def model(args, costs):
    """Rates of the measured ticks on more CPUs. `costs`: row to (stack, device), in ticks a datagram."""
    print(f"\nmodel, Gb/s{'':20}" + "".join(f"{n:>7}" for n in CPUS) + "  CPUs")

    def line(label, ticks):
        bits = args.size * 8 * args.tsc_ghz / ticks
        print(f"{label:31}" + "".join(f"{min(n * bits, LINE_GBIT_S):7.1f}" for n in CPUS))

    for row, (stack, device) in costs.items():
        line(f"{row}, devices are cards" if device else row, stack)
        if device:
            line(f"{row}, devices are cores", stack + device)
        if row in PUBLISHED:
            print(f"{'  published 2022':31}" + "".join(f"{v:7.1f}" if v else f"{'':7}" for v in PUBLISHED[row]))


def spread(values):
    """Median, minimum and maximum."""
    return f"{statistics.median(values):6.0f} [{min(values):.0f}, {max(values):.0f}]"


def table(got):
    """All rounds of each row."""
    print(f"{'':10} {'CPUs':>4} {'rounds':>6} {'Gb/s':>7} {'stack':>22} {'device':>22} {'disturbed':>9}")
    for (row, cpus), trials in got.items():
        print(f"{row:10} {cpus:4} {len(trials):6} {statistics.median(t.gbit_s for t in trials):7.2f} "
              f"{spread([t.stack for t in trials]):>22} {spread([t.device for t in trials]):>22} "
              f"{sum(t.others > OTHERS for t in trials):9}")


def by_distance(args, got):
    """The stack's ticks with two near and two far CPUs, and relative to no IPsec through the device."""
    kinds = {"near": lambda t: t.far_ns < args.far, "far": lambda t: t.near_ns >= args.far,
             "moved": lambda t: t.near_ns < args.far <= t.far_ns}
    print(f"\nthe stack's ticks at two CPUs, by the distance of the CPUs (near: less than {args.far:.0f} ns there and back)\n")
    print(f"{'':10}" + "".join(f" {f'{kind}: rounds':>14} {'ns':>5} {'stack':>22} {'of through':>10}" for kind in kinds))
    for (row, cpus), trials in got.items():
        if cpus < 2:
            continue
        line = f"{row:10}"
        for is_kind in kinds.values():
            of = [t for t in trials if is_kind(t)]
            base = [t.stack for t in got.get(("through", 2), []) if is_kind(t)]
            ns = f"{statistics.median(t.far_ns for t in of):.0f}" if of else "-"
            ratio = f"{statistics.median(t.stack for t in of) / statistics.median(base):.2f}" if of and base else "-"
            line += f" {len(of):14} {ns:>5} {spread([t.stack for t in of]) if of else '-':>22} {ratio:>10}"
        print(line)


def tsc_ghz():
    found = re.search(r"tsc: (?:Detected|Refined TSC clocksource calibration:) ([\d.]+) MHz",
                      subprocess.run(["dmesg"], capture_output=True, text=True).stdout)
    if found:
        return float(found[1]) / 1000
    mhz = re.search(r"cpu MHz\s*: ([\d.]+)", pathlib.Path("/proc/cpuinfo").read_text())
    return float(mhz[1]) / 1000


def main():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--size", type=int, default=1360)
    parser.add_argument("--superframe", type=int, default=47)
    parser.add_argument("--csv")
    parser.add_argument("--sealane", default=str(HERE.parent / "target/release/sealane"))
    parser.add_argument("--load", default=str(HERE.parent / "target/release/udp-load"))
    parser.add_argument("--tsc-ghz", type=float, default=0)
    parser.add_argument("--distance", default=str(HERE.parent / "target/release/cpu-distance"))
    parser.add_argument("--cpus", type=int, choices=(1, 2))
    parser.add_argument("--far", type=float, default=180)
    parser.add_argument("rows", nargs="*")
    args = parser.parse_args()
    args.tsc_ghz = args.tsc_ghz or tsc_ghz()
    if os.cpu_count() < 2:
        raise SystemExit("two CPUs are needed")
    rows = [(row, cpus) for row in args.rows or ROWS for cpus in (1, 2)
            if (cpus > 1 or row != "workers") and args.cpus in (None, cpus)]
    got = collections.defaultdict(list)
    # When interrupted, it reports the rounds so far.
    with contextlib.suppress(KeyboardInterrupt):
        for round_ in range(args.rounds):
            for row, cpus in rows:
                best = measure(args, row, cpus)
                got[row, cpus].append(best)
                print(f"{round_} {row:10} {cpus} CPU {best.gbit_s:6.2f} Gb/s, ticks a datagram: stack {best.stack:6.0f} device "
                      f"{best.device:6.0f}, lost {best.lost:.1%}, CPUs {best.near_ns:.0f} to {best.far_ns:.0f} ns apart"
                      f"{', disturbed' if best.others > OTHERS else ''}", file=sys.stderr, flush=True)
    if args.csv:
        lines = [f"{round_},{row},{cpus},{t.gbit_s:.3f},{t.stack:.0f},{t.device:.0f},{t.lost:.4f},"
                 f"{t.near_ns:.0f},{t.far_ns:.0f},{t.others:.3f}\n"
                 for (row, cpus), trials in got.items() for round_, t in enumerate(trials)]
        head = "round,row,cpus,gbit_s,stack_ticks,device_ticks,lost,least_distance_ns,most_distance_ns,others\n"
        pathlib.Path(args.csv).write_text(head + "".join(lines))
    print(f"{args.superframe} datagrams of {args.size} bytes in a call; ticks of {args.tsc_ghz:.2f} GHz a datagram\n")
    table(got)
    if args.cpus != 1:
        by_distance(args, got)
    # Only rows whose device has its own core; the others cost more with two cores that share the work.
    costs = {row: tuple(statistics.median(t[i] for t in trials) for i in (2, 3)) for (row, cpus), trials in got.items()
             if (cpus > 1) == (row in DEVICE) and row not in FLOWS}
    if not args.rate and args.cpus is None:
        model(args, costs)


if __name__ == "__main__":
    main()
