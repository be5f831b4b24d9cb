#!/usr/bin/env python3
"""Compares two builds of sealane: both run the same benches by turns, and each row is the ratio of runs that lie side by side.

A machine's speed drifts by more than most changes move it, so one build's run is only compared with the other build's run
next to it. The order changes every round. A row tells the median of each build, the median of the ratios, and the quartiles
of the ratios; `slower` or `faster` stands where all of the middle half lies on one side and the median is more than 2 % off.

usage: turns.py [--rounds N] [--csv FILE] [--part PART]... BEFORE AFTER

BEFORE and AFTER are folders with built programs, such as target/release. PART: af-alg, gateway (no root), ao-bulk,
ao-control, tunnel, netns-gateway (root, iperf3, ethtool); all of them without any. Every build brings its own programs; the
scripts are the ones beside this file. Ended early (Ctrl-C, SIGTERM), it tells what it has.
"""
import argparse, csv, os, pathlib, signal, statistics, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).resolve().parent


def rows_of(file):
    with open(file) as f:
        return list(csv.reader(f))[1:]


def af_alg(folder, out):
    subprocess.run([folder / "sealane", "run", "--", folder / "af-alg", "--seconds", "0.02", "--csv", out], check=True,
                   stdout=subprocess.DEVNULL)
    # A way has a comma in it: bytes first, then figures counted from the end.
    for row in rows_of(out):
        yield f"{row[0]} B, {','.join(row[1:-6])}, ns", float(row[-6]), False


def gateway(folder, out):
    subprocess.run([folder / "ipsec", "--only", "gateway", "--states", "1000", "--csv", out], check=True, stdout=subprocess.DEVNULL)
    for row in rows_of(out):
        bare = len(row) - 8
        name = ",".join(row[:bare - 2])
        yield f"{name} {row[bare - 2]} {row[bare - 1]} B, ns", float(row[bare]), False


def ao_bulk(folder, out):
    subprocess.run([sys.executable, HERE / "ao_bulk.py", "--rounds", "1", "--seconds", "2", "--bin", folder, "--csv", out, "cmac(aes128)", "hmac(sha1)"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _, kind, rate, cost, p50, p99 in rows_of(out):
        yield f"{kind}, Gbit/s", float(rate), True
        yield f"{kind}, CPU s per GB", float(cost), False
        yield f"{kind}, p50 us", float(p50), False
        yield f"{kind}, p99 us", float(p99), False


def ao_control(folder, out):
    subprocess.run([sys.executable, HERE / "ao_control.py", "--rounds", "1", "--seconds", "2", "--bin", folder, "--csv", out], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for row in rows_of(out):
        state, call, p50, p99, longest = row[-5:]
        if call == "gbit/s":
            yield "bulk data meanwhile, Gbit/s", float(p50), True
        else:
            yield f"{state}: {call} p50 us", float(p50), False
            yield f"{state}: {call} p99 us", float(p99), False
            yield f"{state}: {call} max us", float(longest), False


def tunnel(folder, out):
    subprocess.run([sys.executable, HERE / "ipsec_tunnel.py", "--rounds", "1", "--seconds", "3", "--sealane", folder / "sealane", "--csv", out,
                    "sealane", "sealane-esp"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for row in rows_of(out):
        yield f"{row[1]}, Gbit/s", float(row[2]), True
        yield f"{row[1]}, CPU s per GB", float(row[3]), False


def netns_gateway(folder, out):
    subprocess.run([sys.executable, HERE / "ipsec_gateway.py", "--rounds", "1", "--seconds", "2", "--sealane", folder / "sealane", "--load",
                    folder / "udp-load", "--sizes", "64,1400", "--csv", out, "tun", "tun-udp", "xdp"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for row in rows_of(out):
        yield f"{row[2]} {row[1]} B, kpps", float(row[3]), True
        yield f"{row[2]} {row[1]} B, daemons' us a packet", float(row[5]), False


PARTS = {"af-alg": af_alg, "gateway": gateway, "ao-bulk": ao_bulk, "ao-control": ao_control,
         "tunnel": tunnel, "netns-gateway": netns_gateway}
NEED_ROOT = ["ao-bulk", "ao-control", "tunnel", "netns-gateway"]


def verdict(ratio, low, high):
    if low > 1 and ratio > 1.02:
        return "faster"
    if high < 1 and ratio < 0.98:
        return "slower"
    return ""


def measure(args, parts, builds, figures, more_is_better):
    """Fills `figures`: (part, row) -> round -> build -> figure."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "rows.csv"
        for turn in range(args.rounds):
            for part in parts:
                for build in sorted(builds, reverse=turn % 2 == 0):
                    try:
                        for row, figure, more in PARTS[part](builds[build], out):
                            figures.setdefault((part, row), {}).setdefault(turn, {})[build] = figure
                            more_is_better[part, row] = more
                    except subprocess.SubprocessError as error:
                        print(f"  {turn} {part} {build}: {error}", file=sys.stderr)
                print(f"  round {turn + 1} of {args.rounds}: {part}", file=sys.stderr)


def main():
    of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--rounds", type=int, default=10)
    of.add_argument("--csv", type=pathlib.Path)
    of.add_argument("--part", action="append", choices=PARTS)
    of.add_argument("before", type=pathlib.Path)
    of.add_argument("after", type=pathlib.Path)
    args = of.parse_args()
    parts = args.part or list(PARTS)
    if os.geteuid():
        for part in [p for p in parts if p in NEED_ROOT]:
            print(f"SKIP {part}: making network namespaces needs root", file=sys.stderr)
            parts.remove(part)
    builds = {"before": args.before.resolve(), "after": args.after.resolve()}
    figures, more_is_better = {}, {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        measure(args, parts, builds, figures, more_is_better)
    except KeyboardInterrupt:
        print("  ended early", file=sys.stderr)
    lines = ["part,row,round,before,after"]
    print(f"{'':<50} {'before':>11} {'after':>11}  {'ratio':>6}  {'middle half':<15}  (more than 1 is better)")
    for (part, row), turns in figures.items():
        pairs = [(t, p["before"], p["after"]) for t, p in turns.items() if len(p) == 2]
        lines += [f'{part},"{row}",{t},{b},{a}' for t, b, a in pairs]
        if len(pairs) < 2:
            continue
        ratios = [a / b if more_is_better[part, row] else b / a for _, b, a in pairs]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
        ratio = statistics.median(ratios)
        before, after = (statistics.median(p[n] for p in pairs) for n in (1, 2))
        print(f"{part + ': ' + row:<50} {before:11.2f} {after:11.2f}  {ratio:6.3f}  {low:.3f} to {high:.3f}  {verdict(ratio, low, high)}")
    if args.csv:
        args.csv.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
