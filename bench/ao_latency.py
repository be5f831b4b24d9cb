#!/usr/bin/env python3
"""Latency of TCP-AO by sealane beside the kernel's TCP-MD5 and plain TCP, over veth between two network namespaces.

Needs root. Everything takes turns within each round, so that the machine's moods meet all of it: a request of 64 bytes and
its answer over an established connection, and connect() and other calls. Told are medians of the rounds' medians and 99th
percentiles, the difference to TCP-MD5 of the same round, and for requests CPU time: of both ends and everything that serves
them, and of the kernel's softirq threads, for one request and its answer.

usage: ao_latency.py [--rounds N] [--seconds S] [--csv FILE] [--kind KIND]... [--what ask|calls]... [--cpus LIST]
                     [--quiet-machine] [SEALANE...]

SEALANE: files of sealane, which take turns; target/release/sealane without any. KIND: a TCP-AO algorithm, or one with '@queue'
behind it, which goes without the fast path. All of it runs at nice -15, so that other load of the machine
takes nothing away; --quiet-machine leaves it at that of everybody.
"""
import argparse, os, pathlib, statistics, sys

import ao_bulk
from ao_bulk import ADDRESSES, HERE, down

median = statistics.median


def command(args, *words):
    """As ao_bulk's, on the CPUs and with the priority that are asked for."""
    out = ["taskset", "-c", args.cpus] if args.cpus else []
    out += [] if args.quiet_machine else ["nice", "-n", "-15"]
    return out + ao_bulk.command(args, *words)


def measure(args, what, kind, sealane, port):
    """Rows of a measurement: name, count, p50, p99, CPU time of one, all in microseconds."""
    at, role = f"{ADDRESSES[1]}:{port}", {"ask": "serve", "calls": "accept"}[what]
    serve = command(args, 1, kind, sealane, role, at, ADDRESSES[0], "KIND")
    call = command(args, 0, kind, sealane, what, at, "KIND", str(args.seconds))
    text, cpu = ao_bulk.exchange(args, kind, port, serve, call)
    lines = [line.split() for line in text.splitlines()]
    if what == "ask":
        lines = [["ask", *line] for line in lines]
    return [(name, int(count), float(p50), float(p99), cpu * 1e6 / int(count) if what == "ask" else 0)
            for name, count, p50, p99 in lines]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=1)
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "target/release")
    parser.add_argument("--kind", action="append")
    parser.add_argument("--what", action="append", choices=["ask", "calls"])
    parser.add_argument("--cpus", help="run on these CPUs only")
    parser.add_argument("--quiet-machine", action="store_true")
    parser.add_argument("sealane", nargs="*")
    args = parser.parse_args()
    if os.geteuid():
        print("SKIP ao_latency: making network namespaces needs root")
        return
    files = args.sealane or [str(args.bin / "sealane")]
    rivals = [("plain", ""), ("md5", "")]
    rivals += [(kind, file) for kind in args.kind or ["cmac(aes128)"] for file in files]
    found, csv = {}, ["round,kind,sealane,call,count,p50_us,p99_us,cpu_us"]
    port = 7000
    try:
        for turn in range(args.rounds):
            for what in args.what or ["ask", "calls"]:
                for rival in rivals:
                    port += 1
                    for name, count, p50, p99, cpu in measure(args, what, *rival, port):
                        found.setdefault((name, rival), []).append((p50, p99, cpu))
                        csv.append(f"{turn},{rival[0]},{rival[1]},{name},{count},{p50},{p99},{cpu:.2f}")
                        print(f"  {csv[-1]}", file=sys.stderr)
    finally:
        down()
    if args.csv:
        args.csv.write_text("\n".join(csv) + "\n")
    print(f"{'call':<8} {'p50 us':>8} {'over md5':>8} {'p99 us':>8} {'over md5':>8} {'CPU us':>7}  of")
    for (name, rival), rows in found.items():
        beside = found[name, rivals[1]]
        p50, p99, cpu = (median(column) for column in zip(*rows))
        over50, over99 = (median(row[i] - md5[i] for row, md5 in zip(rows, beside)) for i in (0, 1))
        print(f"{name:<8} {p50:8.1f} {over50:8.1f} {p99:8.1f} {over99:8.1f} {cpu:7.1f}  {' '.join(rival)}")


if __name__ == "__main__":
    main()
