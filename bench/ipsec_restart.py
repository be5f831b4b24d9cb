#!/usr/bin/env python3
"""Restarts of a daemon under traffic: for how long no packet passes, and what is lost.

    a ── veth ── b        two network namespaces, an ESP tunnel AES-128-GCM between them, and as many states beside it as --states says

UDP datagrams go from a to b every millisecond, and a program in b notes when they arrive. In each round the daemon in a, then that in
b, is ended by SIGTERM and started again, then killed and started again. For each end by each signal the longest pause between two
datagrams is told (median of the rounds, and the longest of all), the time until the new daemon says that it serves, and how many
datagrams were lost. Nothing is negotiated: afterwards both have the same states as at the beginning.

With --faults the daemon is not ended from outside. The thread that carries the packets panics, stops while it works, or stops while
it waits (conformance/programs/inject.py), and the daemon starts again by itself.

usage: ipsec_restart.py [--rounds N] [--states N] [--faults] [--csv FILE] [--sealane FILE]
"""
import pathlib, signal, statistics, subprocess, sys, tempfile, threading, time
from ipsec_netns import KEY, Daemon, delete, inside, make, parser, veth, write_csv

A, B = SPACES = ["ipsecrs-a", "ipsecrs-b"]
OUTER, INNER = ["10.94.0.1", "10.94.0.2"], ["10.95.1.1", "10.95.2.1"]
PORT = 4444
SIGNALS = [("stop and start", signal.SIGTERM), ("kill and start", signal.SIGKILL)]
FAULTS = [("a panic", "long"), ("a hang at work", "stop"), ("a hang in a wait", "freeze")]
INJECT = pathlib.Path(__file__).resolve().parent.parent / "conformance/programs/inject.py"
# A call of the thread at either end while it carries packets. No call of the receiver's makes it panic.
CALLS = ["read", "recvmsg"]

SEND = f"""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("{INNER[0]}", 0))
n, at = 0, time.monotonic()
while True:
    try:
        s.sendto(n.to_bytes(4, "big"), ("{INNER[1]}", {PORT}))
    except OSError:
        pass
    n, at = n + 1, at + 0.001
    time.sleep(max(0, at - time.monotonic()))
"""
RECEIVE = f"""
import socket, sys, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("{INNER[1]}", {PORT}))
out = sys.stdout.buffer
while True:
    n = int.from_bytes(s.recv(64), "big")
    out.write(b"%d %d\\n" % (n, time.monotonic_ns()))
    out.flush()
"""


def script(side, others):
    """The tunnel, and states and policies that carry nothing, in the syntax of `ip -batch`."""
    text = ""
    for a in range(2):
        b, out = 1 - a, a == side
        direction = "out" if out else "in"
        text += f"xfrm state add src {OUTER[a]} dst {OUTER[b]} proto esp spi {0x1000 + a} reqid 1 mode tunnel "
        text += f"replay-window 2048 flag esn aead rfc4106(gcm(aes)) {KEY} 128\n"
        text += f"xfrm policy add dir {direction} src {INNER[a]} dst {INNER[b]} "
        text += f"tmpl src {OUTER[a]} dst {OUTER[b]} proto esp reqid 1 mode tunnel\n"
        for n in range(others // 2):
            peer = f"10.200.{n >> 8}.{n & 255}"
            src, dst = (OUTER[a], peer) if out else (peer, OUTER[b])
            text += f"xfrm state add src {src} dst {dst} proto esp spi {0x10000 + 2 * n + a} reqid 2 mode tunnel "
            text += f"replay-window 64 aead rfc4106(gcm(aes)) 0x{n:032x}{a:08x} 128\n"
            text += f"xfrm policy add dir {direction} src 10.201.{n >> 8}.{n & 255} dst 10.202.{a}.1 "
            text += f"tmpl src {src} dst {dst} proto esp reqid 2 mode tunnel\n"
    return text


class Arrivals:
    """When datagrams have come, by number, as the program in b tells it."""

    def __init__(self, process):
        self.at, self.lock = [], threading.Lock()
        threading.Thread(target=self.read, args=(process,), daemon=True).start()

    def read(self, process):
        for line in process.stdout:
            number, at_ns = map(int, line.split())
            with self.lock:
                self.at.append((number, at_ns))

    def since(self, begin_ns):
        """Those since a moment, and the last one before it."""
        with self.lock:
            before = [one for one in self.at if one[1] < begin_ns][-1:]
            return before + [one for one in self.at if one[1] >= begin_ns]


def fail(pid, how, call):
    """Injects a fault into the daemon's thread for packets. Returns when the thread has ended."""
    argv = [sys.executable, INJECT, str(pid), "sealane-ipsec", how, *([] if how == "freeze" else [call])]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        told = [line.strip() for line in process.stdout]
    if told != ["injects", "done 1"]:
        raise SystemExit(f"inject.py: {told}")


def states(daemon):
    told = subprocess.run([*daemon.argv, "run", "--", "ip", "xfrm", "state"], check=True, capture_output=True, text=True).stdout
    return sorted(line.split()[3] for line in told.splitlines() if "proto esp spi" in line)


def main():
    of = parser(__doc__.split("usage:")[1].strip(), 10, 0)
    of.add_argument("--states", type=int, default=1000)
    of.add_argument("--faults", action="store_true")
    args = of.parse_args()
    make(SPACES)
    veth(A, B, "wire")
    for n, space in enumerate(SPACES):
        inside(space, "sh", "-ec", f"ip addr add {OUTER[n]}/24 dev wire; ip link set wire up; ip addr add {INNER[n]}/32 dev lo;"
               f"ip route add {INNER[1 - n]} via {OUTER[1 - n]} src {INNER[n]}; ip route add default via {OUTER[1 - n]}")
    lines, rows, running, daemons = [], {}, [], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            daemons = [Daemon(args.sealane, space, folder, space, "[ipsec]\n") for space in SPACES]
            for n, daemon in enumerate(daemons):
                batch = pathlib.Path(folder) / f"batch-{n}"
                batch.write_text(script(n, args.states))
                daemon.script(f"ip -batch {batch}")
            before = [states(daemon) for daemon in daemons]
            receiver = subprocess.Popen(["ip", "netns", "exec", B, sys.executable, "-c", RECEIVE], stdout=subprocess.PIPE)
            running.append(receiver)
            arrivals = Arrivals(receiver)
            running.append(subprocess.Popen(["ip", "netns", "exec", A, sys.executable, "-c", SEND]))
            time.sleep(1)
            if not arrivals.since(0):
                raise SystemExit("nothing arrives")
            for number in range(args.rounds):
                for way, how in FAULTS if args.faults else SIGNALS:
                    for n, (space, end) in enumerate(zip(SPACES, ["sender", "receiver"])):
                        if how == "long" and end == "receiver":
                            continue
                        begin_ns = time.monotonic_ns()
                        start = time.monotonic()
                        if args.faults:
                            fail(daemons[n].process.pid, how, CALLS[n])
                        else:
                            daemons[n].process.send_signal(how)
                            daemons[n].process.wait(20)
                            start = time.monotonic()
                            daemons[n] = Daemon(args.sealane, space, folder, space, "[ipsec]\n")
                        ready_ms = (time.monotonic() - start) * 1000
                        time.sleep(1)
                        came = arrivals.since(begin_ns)
                        pause_ms = max(b[1] - a[1] for a, b in zip(came, came[1:])) / 1e6
                        lost = came[-1][0] - came[0][0] + 1 - len(came)
                        rows.setdefault((way, end), []).append((pause_ms, ready_ms, lost))
                        lines.append(f"{way},{end},{number},{pause_ms:.1f},{ready_ms:.1f},{lost}")
                        print(f"  round {number + 1} of {args.rounds}: {lines[-1]}", file=sys.stderr)
            same = [states(daemon) for daemon in daemons] == before
        finally:
            for process in running:
                process.kill()
                process.wait()
            for daemon in daemons:
                daemon.end()
            delete(SPACES)
    print(f"{len(before[0])} states at each end; afterwards {'the same' if same else 'OTHERS'}")
    print(f"{'':30} {'pause, ms: median':>18} {'longest':>8} {'ready, ms':>10} {'lost':>6}")
    for (way, end), all_of in rows.items():
        pauses, ready, lost = zip(*all_of)
        told = f"{statistics.median(pauses):18.0f} {max(pauses):8.0f} {statistics.median(ready):10.0f} {statistics.median(lost):6.0f}"
        print(f"{way + ', ' + end:30} {told}")
    write_csv(args.csv, "way,end,round,pause_ms,ready_ms,lost", lines)


main()
