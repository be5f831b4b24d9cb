#!/usr/bin/env python3
"""Latency of calls with TCP-AO while another connection of the network namespace moves bulk data.

Two network namespaces over veth, sealane in both. In one of them a program makes a socket, adds a key
(setsockopt TCP_AO_ADD_KEY) and connects, again and again; the times of both calls are told, first while nothing else
happens, then while a connection of another process sends as much as goes through. connect() has the whole handshake in
it; "call" is a connect() that does not wait for it. Needs root.

usage: ao_control.py [--rounds N] [--seconds S] [--csv FILE] [--kind ALGORITHM] [--quiet-machine] [SEALANE...]

SEALANE: files of sealane, which take turns; target/release/sealane without any. Each line of the result is the median of
the rounds. All of it runs under the real-time scheduler, so that other load of the machine takes nothing away;
--quiet-machine leaves it at that of everybody.
"""
import argparse, os, pathlib, socket, statistics, struct, subprocess, sys, time

HERE = pathlib.Path(__file__).resolve().parent
SPACES = ("aoctl-a", "aoctl-b")
ADDRESSES = ("10.78.0.1", "10.78.0.2")
BULK, CONNECT = 6001, 6002
TCP_AO_ADD_KEY = 38
KEY = b"a key for a bench"
# A call every so many seconds.
PACE = 0.001
CALLS = ("add-key", "connect", "call")


def add_key(sock, peer, kind):
    """The time that TCP_AO_ADD_KEY takes, in microseconds."""
    value = struct.pack("=H2x4s120x64siIHBBBBBB80s", socket.AF_INET, socket.inet_aton(peer), kind.encode(), 0, 0, 0, 32,
                        1, 1, 0, 0, len(KEY), KEY)
    before = time.perf_counter_ns()
    sock.setsockopt(socket.IPPROTO_TCP, TCP_AO_ADD_KEY, value)
    return (time.perf_counter_ns() - before) / 1e3


def fresh(kind, peer):
    sock = socket.socket()
    # Closed without TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sock, add_key(sock, peer, kind)


def measure(kind, seconds):
    """Times of all calls in microseconds."""
    times = {call: [] for call in CALLS}
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for call in ("connect", "call"):
            sock, added = fresh(kind, ADDRESSES[1])
            times["add-key"].append(added)
            sock.setblocking(call == "connect")
            before = time.perf_counter_ns()
            try:
                sock.connect((ADDRESSES[1], CONNECT))
            except BlockingIOError:
                pass
            times[call].append((time.perf_counter_ns() - before) / 1e3)
            sock.close()
            time.sleep(PACE)
    return times


def inside_client(bin, kind, seconds):
    """Prints a line for each state and call: calls, p50, p99, longest."""
    def tell(state):
        for call, times in measure(kind, seconds).items():
            times.sort()
            at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
            print(state, call, len(times), f"{at(.5):.1f} {at(.99):.1f} {times[-1]:.1f}", flush=True)
    measure(kind, .2)
    tell("idle")
    bulk = subprocess.Popen([bin / "ao-bulk", "send", f"{ADDRESSES[1]}:{BULK}", kind, str(seconds + 1.5)],
                            stdout=subprocess.PIPE, text=True)
    time.sleep(1)
    tell("bulk")
    out, _ = bulk.communicate(timeout=60)
    sent, took = (float(n) for n in out.split())
    print("bulk", "gbit/s", 1, sent * 8 / took / 1e9, 0, 0, flush=True)


def inside_server(bin, kind):
    bulk = subprocess.Popen([bin / "ao-bulk", "serve", f"{ADDRESSES[1]}:{BULK}", ADDRESSES[0], kind])
    listener = socket.socket()
    add_key(listener, ADDRESSES[0], kind)
    listener.bind((ADDRESSES[1], CONNECT))
    listener.listen(256)
    listener.settimeout(.2)
    while bulk.poll() is None:
        try:
            listener.accept()[0].close()
        except OSError:
            pass


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


def turn(args, sealane):
    """(state, call) -> (p50, p99, longest)."""
    up()
    def command(space, role):
        scheduler = [] if args.quiet_machine else ["chrt", "-r", "5"]
        return [*scheduler, "ip", "netns", "exec", SPACES[space], sealane, "run", "--tcp-ao", "--", sys.executable, __file__,
                "--inside", role, "--kind", args.kind, "--seconds", str(args.seconds), "--bin", str(args.bin)]
    server = subprocess.Popen(command(1, "server"))
    time.sleep(1)
    client = subprocess.run(command(0, "client"), stdout=subprocess.PIPE, text=True, timeout=3 * args.seconds + 60)
    try:
        server.wait(20)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    if client.returncode:
        raise SystemExit(f"{sealane}: {client.returncode}")
    rows = {}
    for line in client.stdout.splitlines():
        state, call, _, *figures = line.split()
        rows[state, call] = tuple(float(f) for f in figures)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--kind", default="cmac(aes128)")
    parser.add_argument("--bin", type=pathlib.Path, default=HERE.parent / "target/release")
    parser.add_argument("--quiet-machine", action="store_true")
    parser.add_argument("--inside", choices=["client", "server"], help=argparse.SUPPRESS)
    parser.add_argument("sealane", nargs="*")
    args = parser.parse_args()
    args.bin = args.bin.resolve()
    if args.inside == "client":
        return inside_client(args.bin, args.kind, args.seconds)
    if args.inside == "server":
        return inside_server(args.bin, args.kind)
    if os.geteuid():
        return print("SKIP ao_control: making network namespaces needs root")
    files = args.sealane or [str(args.bin / "sealane")]
    rounds = {file: [] for file in files}
    csv = ["round,sealane,state,call,p50_us,p99_us,max_us"]
    try:
        for n in range(args.rounds):
            for file in files:
                rows = turn(args, file)
                rounds[file].append(rows)
                for (state, call), figures in rows.items():
                    csv.append(",".join([str(n), file, state, call, *map(str, figures)]))
                    print(f"  {csv[-1]}", file=sys.stderr)
    finally:
        down()
    if args.csv:
        args.csv.write_text("\n".join(csv) + "\n")
    for file, turns in rounds.items():
        rates = statistics.median(rows["bulk", "gbit/s"][0] for rows in turns)
        print(f"{file}: bulk {rates:.2f} Gbit/s\n{'':<16} {'p50 us':>9} {'p99 us':>9} {'max us':>9}")
        for state in ("idle", "bulk"):
            for call in CALLS:
                columns = [statistics.median(column) for column in zip(*(rows[state, call] for rows in turns))]
                print(f"{state + ' ' + call:<16} " + " ".join(f"{c:9.1f}" for c in columns))


if __name__ == "__main__":
    main()
