#!/usr/bin/env python3
"""Compares the OpenSSL provider with OpenSSL's default provider: `openssl speed` of both by turns, and the ratio of each cell.

One process measures one algorithm at one size with one provider, and the other provider's process follows it, in an order
that changes every round. Both providers are loaded in each process, and the query `provider=...` picks one, so that nothing
is silently measured with the other. A row tells the median rates in MB/s, the median of the ratios of neighbours, and their
quartiles; `slower` stands where the median is below 0.95, `faster` where all of the middle half is above 1.

usage: openssl_speed.py [--rounds N] [--seconds S] [--cpu-time] [--openssl COMMAND] [--csv FILE] [--row NAME]... SEALANE_SO

COMMAND is OpenSSL's command line (default `openssl`), of version 3.0 or later. `openssl speed` sets key and IV of AES-GCM anew
for each text, so that its short texts measure that. --cpu-time counts the process's CPU time in place of elapsed time, for a
machine on which others work.
"""
import argparse, csv, os, pathlib, platform, re, shlex, statistics, subprocess, sys, tempfile

ROWS = {"aes-128-cbc": ["-evp", "aes-128-cbc"], "aes-128-ctr": ["-evp", "aes-128-ctr"], "aes-128-gcm": ["-evp", "aes-128-gcm"],
        "sha256": ["-evp", "sha256"], "hmac(sha256)": ["-hmac", "sha256"]}
SIZES = [16, 64, 256, 1024, 8192, 16384]
PROVIDERS = ["default", "sealane"]
ENOUGH = 0.95

CONFIGURATION = """openssl_conf = init
[init]
providers = providers
[providers]
sealane = sealane_section
default = default_section
[default_section]
activate = 1
[sealane_section]
activate = 1
module = {module}
sealane-digests = ALL
"""


def rate(args, environment, row, size, provider):
    """MB/s."""
    command = [*shlex.split(args.openssl), "speed", *([] if args.cpu_time else ["-elapsed"]), "-seconds", str(args.seconds), "-bytes", str(size), "-mr", "-propquery",
               f"provider={provider}", *ROWS[row]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    found = re.search(r"^\+F:\d+:[^:]*:([0-9.]+)$", done.stdout, re.M)
    if done.returncode or not found:
        raise SystemExit(f"{' '.join(command)}: {done.stdout}{done.stderr}")
    return float(found[1]) / 1e6


def cpu():
    with open("/proc/cpuinfo") as f:
        fields = dict(re.findall(r"^(model name|cpu family|model|stepping)\s*: (.*)$", f.read(), re.M))
    return ", ".join(f"{key} {value}" for key, value in fields.items())


def verdict(ratio, low):
    if ratio < ENOUGH:
        return "slower"
    return "faster" if low > 1 else ""


def main():
    of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--rounds", type=int, default=7)
    of.add_argument("--seconds", type=int, default=1)
    of.add_argument("--cpu-time", action="store_true")
    of.add_argument("--openssl", default="openssl")
    of.add_argument("--csv", type=pathlib.Path)
    of.add_argument("--row", action="append", choices=ROWS)
    of.add_argument("module", type=pathlib.Path)
    args = of.parse_args()
    cells = [(row, size) for row in args.row or ROWS for size in SIZES]
    rates = {}
    with tempfile.TemporaryDirectory() as folder:
        configuration = pathlib.Path(folder) / "openssl.cnf"
        configuration.write_text(CONFIGURATION.format(module=args.module.resolve()))
        environment = {**os.environ, "OPENSSL_CONF": str(configuration)}
        version = subprocess.run([*shlex.split(args.openssl), "version"], env=environment, capture_output=True, text=True, check=True).stdout
        print(f"{version.strip()}; {cpu()}; Linux {platform.release()}")
        for turn in range(args.rounds):
            for row, size in cells:
                for provider in sorted(PROVIDERS, reverse=turn % 2 == 1):
                    rates[row, size, turn, provider] = rate(args, environment, row, size, provider)
            print(f"  round {turn + 1} of {args.rounds}", file=sys.stderr)
    lines = [["row", "bytes", "round", *(f"{p}_mb_s" for p in PROVIDERS)]]
    print(f"{'':<14} {'bytes':>6} {'default MB/s':>13} {'sealane MB/s':>13}  {'ratio':>6}  middle half")
    few = 0
    for row, size in cells:
        pairs = [[rates[row, size, turn, p] for p in PROVIDERS] for turn in range(args.rounds)]
        lines += [[row, size, turn, *(f"{r:.3f}" for r in pair)] for turn, pair in enumerate(pairs)]
        ratios = [sealane / default for default, sealane in pairs]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
        ratio = statistics.median(ratios)
        default, sealane = (statistics.median(column) for column in zip(*pairs))
        few += ratio < ENOUGH
        print(f"{row:<14} {size:>6} {default:13.1f} {sealane:13.1f}  {ratio:6.3f}  {low:.3f} to {high:.3f}  {verdict(ratio, low)}".rstrip())
    print(f"{len(cells) - few} of {len(cells)} cells have at least {ENOUGH}")
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
