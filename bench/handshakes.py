#!/usr/bin/env python3
"""TLS handshakes of nginx whose private key is in a file, and in `sealane keeper`, by turns.

One worker of nginx serves full handshakes (X25519, neither tickets nor a cache of sessions), which processes of `openssl s_time` ask for
without a pause. Both keys are of one configuration, with the provider loaded; ciphers and the key exchange are OpenSSL's own for both.
The keeper signs by AWS-LC, and OpenSSL by the key of a file, so a row tells the cost of the way to the keeper together with the
difference of these two implementations. A cell measures one key, protocol and place, and the other place's cell follows it, in an
order that changes every round. A row tells medians: handshakes a second, the ratio of neighbours with its quartiles, and the CPU
time for a handshake of the worker and of the keeper. `load` is the CPU time of the processes of s_time, in percent of all CPUs.

usage: handshakes.py [--rounds N] [--seconds S] [--clients N] [--workers N] [--nginx PROGRAM] [--module FILE] [--csv FILE] SEALANE

SEALANE is the program, beside which libsealane_provider.so is, if --module does not name another file. nginx has to be 1.29 or later:
Debian 13 has none, its coming release has. `conformance/suites/openssl_programs.sh handshakes` runs this there, as root.
"""
import argparse, contextlib, csv, os, pathlib, platform, re, resource, signal, socket, statistics, subprocess, sys, tempfile, time

from process_cpu import cell, cpu_of, median, microseconds

KEYS = {"rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ec": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]}
NAMES = {"rsa": "RSA-2048", "ec": "P-256"}
VERSIONS = {"tls1_2": "TLS 1.2", "tls1_3": "TLS 1.3"}
PLACES = ["file", "keeper"]
NGINX_NEEDED = (1, 29)

OPENSSL = """openssl_conf = init
[init]
providers = providers
alg_section = algorithms
[algorithms]
default_properties = ?provider=default
[providers]
default = default_section
sealane = sealane_section
[default_section]
activate = 1
[sealane_section]
activate = 1
module = {module}
sealane-keeper = {folder}/socket
"""

NGINX = """daemon off;
worker_processes {workers};
pid {folder}/pid;
error_log {folder}/error;
lock_file {folder}/lock;
env OPENSSL_CONF;
{user}events {{ worker_connections 1000; }}
http {{
  access_log off;
{temporary}  ssl_session_cache off;
  ssl_session_tickets off;
  ssl_ecdh_curve X25519;
  ssl_protocols TLSv1.2 TLSv1.3;
{servers}}}
"""


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_for(what, condition, process, log):
    end = time.monotonic() + 60
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{what} does not start: {log.read_text(errors='replace')}")
        time.sleep(0.1)


def free_ports(count):
    """Ports of loopback that nobody has now."""
    with contextlib.ExitStack() as held:
        ports = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [port.getsockname()[1] for port in ports]


def end(process):
    process.terminate()
    try:
        process.wait(60)
    finally:
        process.kill()


class Setup:
    """A keeper with two keys that are in files, too, and an nginx with a server for each of the four; from `with` to its end."""

    def __init__(self, args, folder):
        self.folder, self.args = folder, args
        module = args.module or args.sealane.parent / "libsealane_provider.so"
        (folder / "openssl.cnf").write_text(OPENSSL.format(module=module.resolve(), folder=folder))
        (folder / "keeper.toml").write_text(f"socket = '{folder}/socket'\nadmin-users = [{os.geteuid()}]\n")
        self.environment = {**os.environ, "OPENSSL_CONF": str(folder / "openssl.cnf"), "SEALANE_KEEPER": str(folder / "socket")}

    def __enter__(self):
        with contextlib.ExitStack() as started:
            self.begin(started)
            self.started = started.pop_all()
        return self

    def __exit__(self, *_):
        self.started.close()

    def begin(self, started):
        args, folder = self.args, self.folder
        found = re.search(r"nginx/(\d+)\.(\d+)", version := self.run(args.nginx, "-v").stderr)
        if not found or (int(found[1]), int(found[2])) < NGINX_NEEDED:
            raise SystemExit(f"nginx has to be {'.'.join(map(str, NGINX_NEEDED))} or later, to take the name of a key: {version.strip()}")
        self.keeper = self.start(started, "keeper", [args.sealane, "keeper", "--config", folder / "keeper.toml"])
        # 1: there are no keys yet.
        wait_for("the keeper", lambda: self.run(args.sealane, "key", "list", statuses=None).returncode in (0, 1), self.keeper,
                 folder / "keeper.log")
        places = [(name, place) for name in KEYS for place in PLACES]
        self.ports, servers = dict(zip(places, free_ports(len(places)))), ""
        for name, options in KEYS.items():
            file, certificate = folder / f"{name}.pem", folder / f"{name}.crt"
            self.run("openssl", "genpkey", "-algorithm", *options, "-out", file)
            self.run("openssl", "req", "-x509", "-key", file, "-subj", "/CN=localhost", "-days", "2", "-out", certificate)
            self.run(args.sealane, "key", "import", name, "--file", file)
            for place, key in (("file", file), ("keeper", f"store:sealane://{name}")):
                servers += (f"  server {{ listen 127.0.0.1:{self.ports[name, place]} ssl backlog=4096; ssl_certificate {certificate}; "
                            f"ssl_certificate_key {key}; }}\n")
        # Otherwise they are the machine's, whose owner a master that is root changes.
        temporary = "".join(f"  {what}_temp_path {folder}/{what};\n" for what in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, servers=servers, workers=args.workers, temporary=temporary,
                                                        user="user root;\n" if os.geteuid() == 0 else ""))
        nginx = self.start(started, "nginx", [args.nginx, "-e", folder / "error", "-c", folder / "nginx.conf", "-p", folder])
        children = pathlib.Path(f"/proc/{nginx.pid}/task/{nginx.pid}/children")
        wait_for("nginx", lambda: len(children.read_text().split()) == args.workers, nginx, folder / "error")
        self.workers = children.read_text().split()

    def run(self, *argv, statuses=(0,)):
        done = subprocess.run(argv, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if statuses and done.returncode not in statuses:
            raise SystemExit(f"{argv[0]} {argv[1]}: {done.stderr}")
        return done

    def start(self, started, name, argv):
        with open(self.folder / f"{name}.log", "wb") as log:
            process = subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started.callback(end, process)
        return process

    def measure(self, name, version, place):
        """Handshakes a second, microseconds of the workers and of the keeper for each, and the load's share of the machine."""
        argv = ["openssl", "s_time", "-connect", f"127.0.0.1:{self.ports[name, place]}", "-new", "-time", str(self.args.seconds),
                f"-{version}"]
        # The clients have OpenSSL without the provider.
        plain = {**os.environ, "OPENSSL_CONF": "/dev/null"}
        with contextlib.ExitStack() as files:
            # Not pipes, which a client would wait for once they are full.
            outs = [files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(self.args.clients)]
            before = cpu_of(self.workers), cpu_of([self.keeper.pid]), children_cpu()
            began = time.perf_counter()
            clients = []
            try:
                for out in outs:
                    clients.append(subprocess.Popen(argv, env=plain, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT))
                for client in clients:
                    client.wait()
            finally:
                for client in clients:
                    end(client)
            took = time.perf_counter() - began
            after = cpu_of(self.workers), cpu_of([self.keeper.pid]), children_cpu()
            for out in outs:
                out.seek(0)
            said = [out.read() for out in outs]
        counts = [re.search(r"^(\d+) connections in \d+ real seconds", text, re.M) for text in said]
        if not all(counts):
            raise SystemExit(f"{' '.join(argv)}: {said[0]}{(self.folder / 'error').read_text()}")
        count = sum(int(found[1]) for found in counts)
        if not count:
            raise SystemExit(f"no handshake: {said[0]}{(self.folder / 'error').read_text()}")
        worker_us, keeper_us = (microseconds(before[i], after[i], count) for i in (0, 1))
        return {"rate": count / took, "worker_us": worker_us, "keeper_us": keeper_us,
                "load": 100 * (after[2] - before[2]) / took / os.cpu_count()}


def main():
    of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--rounds", type=int, default=7)
    of.add_argument("--seconds", type=int, default=3)
    of.add_argument("--clients", type=int, default=2)
    of.add_argument("--workers", type=int, default=1)
    of.add_argument("--nginx", default="nginx")
    of.add_argument("--module", type=pathlib.Path)
    of.add_argument("--csv", type=pathlib.Path)
    of.add_argument("sealane", type=pathlib.Path)
    args = of.parse_args()
    # The processes that it has started end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    args.sealane = args.sealane.resolve()
    cells = {}
    with tempfile.TemporaryDirectory() as folder, Setup(args, pathlib.Path(folder)) as setup:
        for turn in range(args.rounds):
            for name in KEYS:
                for version in VERSIONS:
                    for place in sorted(PLACES, reverse=turn % 2 == 1):
                        cells[name, version, turn, place] = setup.measure(name, version, place)
            print(f"  round {turn + 1} of {args.rounds}", file=sys.stderr)
    version = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}; {os.cpu_count()} CPUs; Linux {platform.release()}; {args.workers} workers, {args.clients} clients")
    print("signatures by a file's key: OpenSSL; by the keeper: AWS-LC; all else: OpenSSL")
    print(f"{'':<17} {'file 1/s':>9} {'keeper 1/s':>11} {'ratio':>6}  {'middle half':<14} {'CPU us: worker, file':>20} {'worker':>7} {'keeper':>7} "
          f"{'load %: file':>12} {'keeper':>7}")
    lines = [["key", "version", "round", "place", "rate", "worker_us", "keeper_us", "load"]]
    lines += [[name, version, turn, place, *("-" if figure is None else f"{figure:.3f}" for figure in row.values())]
              for (name, version, turn, place), row in cells.items()]
    for name in KEYS:
        for version, title in VERSIONS.items():
            pairs = [[cells[name, version, turn, place] for place in PLACES] for turn in range(args.rounds)]
            ratios = [kept["rate"] / file["rate"] for file, kept in pairs]
            low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            file, kept = ({what: median([pair[i][what] for pair in pairs]) for what in pairs[0][i]} for i in (0, 1))
            print(f"{NAMES[name]:<9}{title:<8} {file['rate']:9.0f} {kept['rate']:11.0f} {statistics.median(ratios):6.3f}  {low:.3f} to {high:.3f} "
                  f"{cell(file['worker_us'], 20)} {cell(kept['worker_us'], 7)} {cell(kept['keeper_us'], 7)} {file['load']:12.0f} {kept['load']:7.0f}")
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    try:
        main()
    except FileNotFoundError as error:
        raise SystemExit(f"handshakes.py: no {error.filename}") from None
