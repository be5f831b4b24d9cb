#!/usr/bin/env python3
"""TCP-AO by sealane against the kernel's TCP-MD5 and plain TCP, over veth between two network namespaces.

Needs root. Rounds are interleaved and medians are told: throughput, CPU seconds per GB (of both ends, of everything that
serves them, and of the kernel's softirq threads), and the latency of a 64-byte request and its answer.

usage: ao_bulk.py [--rounds N] [--seconds S] [--csv FILE] [--sealane FILE] [--quiet-machine] [KIND...]

KIND: plain, md5, a TCP-AO algorithm such as 'cmac(aes128)', or one with '@queue' behind it, which goes without the fast
path. Throughput runs under the real-time scheduler, so that other load of the machine takes nothing away;
--quiet-machine leaves it at that of everybody.
"""
import argparse, os, pathlib, resource, statistics, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["plain", "md5", "cmac(aes128)", "hmac(sha1)", "hmac(sha256)", "cmac(aes128)@queue"]
SPACES = ("aobulk-a", "aobulk-b")
ADDRESSES = ("10.79.0.1", "10.79.0.2")


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def down():
    for space in SPACES:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


def up():
    down()
    for space in SPACES:
        ip("netns", "add", space)
        ip("-n", space, "link", "set", "lo", "up")
    ip("link", "add", "veth", "netns", SPACES[0], "type", "veth", "peer", "name", "veth", "netns", SPACES[1])
    for space, address in zip(SPACES, ADDRESSES):
        ip("-n", space, "addr", "add", f"{address}/24", "dev", "veth")
        ip("-n", space, "link", "set", "veth", "up")


def softirq_s():
    """CPU seconds of the kernel's softirq threads."""
    ticks = 0
    for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if "(ksoftirqd/" in text:
            fields = text.rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def cpu_s():
    """CPU seconds of all children that have ended, and of the softirq threads."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime + softirq_s()


def command(args, space, kind, sealane, *words):
    """Runs ao-bulk in a namespace, under a sealane if there is one."""
    alg, _, way = kind.partition("@")
    out = ["ip", "netns", "exec", SPACES[space]]
    if sealane:
        out += ["env", f"SEALANE_TCP_AO_PATH={way}", sealane, "run", "--tcp-ao", "--"]
    return out + [str(args.bin / "ao-bulk"), *(alg if w == "KIND" else w for w in words)]


def exchange(args, kind, port, serve, call):
    """Runs a command that listens at a port, and one that calls it, with new namespaces; returns the output of that one, and the
    CPU seconds of both."""
    up()
    before = cpu_s()
    server = subprocess.Popen(serve)
    listens = ["ip", "netns", "exec", SPACES[1], "ss", "-Hltn", f"sport = {port}"]
    while server.poll() is None and not subprocess.run(listens, stdout=subprocess.PIPE, check=True).stdout:
        time.sleep(.05)
    client = subprocess.run(call, stdout=subprocess.PIPE, text=True, timeout=args.seconds + 60)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if client.returncode or server.returncode:
        raise SystemExit(f"{kind}: client {client.returncode}, server {server.returncode}")
    return client.stdout, cpu_s() - before


def connection(args, kind, what, port, scheduler):
    """Runs one connection; returns the output of the client, and the CPU seconds."""
    at, sealane = f"{ADDRESSES[1]}:{port}", "" if kind in ("plain", "md5") else args.sealane
    serve = scheduler + command(args, 1, kind, sealane, "serve", at, ADDRESSES[0], "KIND")
    call = scheduler + command(args, 0, kind, sealane, what, at, "KIND", str(args.seconds))
    text, cpu = exchange(args, kind, port, serve, call)
    return [float(n) for n in text.split()], cpu


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "target/release")
    parser.add_argument("--sealane")
    parser.add_argument("--quiet-machine", action="store_true")
    parser.add_argument("kinds", nargs="*", default=KINDS)
    args = parser.parse_args()
    args.sealane = args.sealane or str(args.bin / "sealane")
    if os.geteuid():
        print("SKIP ao_bulk: making network namespaces needs root")
        return
    bulk, latency = ([], []) if args.quiet_machine else (["chrt", "-r", "5"], ["nice", "-n", "-15"])
    rates, costs, asked = ({kind: [] for kind in args.kinds} for _ in range(3))
    rows = ["round,kind,gbit_per_s,cpu_s_per_gb,p50_us,p99_us"]
    port = 5000
    try:
        for turn in range(args.rounds):
            for kind in args.kinds:
                (sent, seconds), cpu = connection(args, kind, "send", port, bulk)
                (_, p50, p99), _ = connection(args, kind, "ask", port + 1, latency)
                port += 2
                rates[kind].append(sent * 8 / seconds / 1e9)
                costs[kind].append(cpu / (sent / 1e9))
                asked[kind].append((p50, p99))
                rows.append(f"{turn},{kind},{rates[kind][-1]:.3f},{costs[kind][-1]:.3f},{p50},{p99}")
                print(f"  {rows[-1]}", file=sys.stderr)
    finally:
        down()
    if args.csv:
        args.csv.write_text("\n".join(rows) + "\n")
    median = statistics.median
    md5 = rates.get("md5")
    print(f"{'':<20}  {'Gbit/s':>7}  {'x MD5':>6}  {'CPU s/GB':>8}  {'p50 us':>7}  {'p99 us':>8}")
    for kind in args.kinds:
        ratio = f"{median(rates[kind]) / median(md5):.1f}" if md5 else ""
        p50, p99 = (median(column) for column in zip(*asked[kind]))
        print(f"{kind:<20}  {median(rates[kind]):7.2f}  {ratio:>6}  {median(costs[kind]):8.3f}  {p50:7.1f}  {p99:8.1f}")


if __name__ == "__main__":
    main()
