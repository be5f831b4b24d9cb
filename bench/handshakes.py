#!/usr/bin/env python3
"""TLS handshakes of nginx whose private key is in a file, and in `sealane keeper`, by turns.

One worker of nginx serves full handshakes (X25519, neither tickets nor a cache of sessions), which processes of `openssl s_time` ask for
without a pause. Both keys are of one configuration, with the provider loaded, and ciphers are OpenSSL's own, so that the key's
place is all that differs. A cell measures one key, protocol and place, and the other place's cell follows it, in an order that
changes every round. A row tells medians: handshakes a second, the ratio of neighbours with its quartiles, and the CPU time for
a handshake of the worker and of the keeper. `load` is the CPU time of the processes of s_time, in percent of all CPUs.

usage: handshakes.py [--rounds N] [--seconds S] [--clients N] [--workers N] [--nginx COMMAND] [--csv FILE] SEALANE

SEALANE is the program, beside which libsealane_provider.so is. nginx has to be 1.29 or later: Debian 13 has none, its coming release has.
conformance/suites/openssl_programs.sh keys makes a machine with one, target/packages/openssl-keys.
"""
import argparse, csv, os, pathlib, platform, re, resource, statistics, subprocess, sys, tempfile, time

KEYS = {"rsa": ["RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "ec": ["EC", "-pkeyopt", "ec_paramgen_curve:P-256"]}
NAMES = {"rsa": "RSA-2048", "ec": "P-256"}
VERSIONS = {"tls1_2": "TLS 1.2", "tls1_3": "TLS 1.3"}
PLACES = ["file", "keeper"]
FIRST_PORT = 18440

OPENSSL = """openssl_conf = init
[init]
providers = providers
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
env OPENSSL_CONF;
{user}events {{ worker_connections 1000; }}
http {{
  access_log off;
  ssl_session_cache off;
  ssl_session_tickets off;
  ssl_ecdh_curve X25519;
  ssl_protocols TLSv1.2 TLSv1.3;
{servers}}}
"""


def cpu_of(processes):
    """Seconds of CPU time of processes."""
    files = [file for process in processes for file in pathlib.Path(f"/proc/{process}/task").glob("*/schedstat")]
    return sum(int(file.read_text().split()[0]) for file in files) / 1e9


def children_cpu():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def wait_for(what, condition, log):
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    raise SystemExit(f"{what} does not start: {log.read_text()}")


class Setup:
    """A keeper with two keys that are in files, too, and an nginx with a server for each of the four."""

    def __init__(self, args, folder):
        self.folder, self.args, self.started = folder, args, []
        module = args.sealane.resolve().parent / "libsealane_provider.so"
        (folder / "openssl.cnf").write_text(OPENSSL.format(module=module, folder=folder))
        (folder / "keeper.toml").write_text(f"socket = '{folder}/socket'\nadmin-users = [{os.geteuid()}]\n")
        self.environment = {**os.environ, "OPENSSL_CONF": str(folder / "openssl.cnf"), "SEALANE_KEEPER": str(folder / "socket")}
        self.keeper = self.start("keeper", [args.sealane, "keeper", "--config", folder / "keeper.toml"])
        self.ports, servers = {}, ""
        for name, options in KEYS.items():
            file, certificate = folder / f"{name}.pem", folder / f"{name}.crt"
            self.run("openssl", "genpkey", "-algorithm", *options, "-out", file)
            self.run("openssl", "req", "-x509", "-key", file, "-subj", "/CN=localhost", "-days", "2", "-out", certificate)
            wait_for("the keeper", (folder / "socket").exists, folder / "keeper.log")
            self.run(args.sealane, "key", "import", name, "--file", file)
            for place, key in (("file", file), ("keeper", f"store:sealane://{name}")):
                port = self.ports[name, place] = FIRST_PORT + len(self.ports)
                servers += (f"  server {{ listen 127.0.0.1:{port} ssl backlog=4096; ssl_certificate {certificate}; "
                            f"ssl_certificate_key {key}; }}\n")
        (folder / "nginx.conf").write_text(NGINX.format(folder=folder, servers=servers, workers=args.workers,
                                                        user="user root;\n" if os.geteuid() == 0 else ""))
        self.nginx = self.start("nginx", [args.nginx, "-c", folder / "nginx.conf", "-p", folder])
        children = pathlib.Path(f"/proc/{self.nginx.pid}/task/{self.nginx.pid}/children")
        wait_for("nginx", lambda: len(children.read_text().split()) == args.workers, folder / "nginx.log")
        self.workers = children.read_text().split()

    def run(self, *argv):
        done = subprocess.run(argv, env=self.environment, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{argv[0]} {argv[1]}: {done.stderr}")

    def start(self, name, argv):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.started.append(subprocess.Popen(argv, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))
        return self.started[-1]

    def end(self):
        for process in reversed(self.started):
            process.terminate()
            process.wait()

    def measure(self, name, version, place):
        """Handshakes a second, microseconds of the workers and of the keeper for each, and the load's share of the machine."""
        argv = ["openssl", "s_time", "-connect", f"127.0.0.1:{self.ports[name, place]}", "-new", "-time", str(self.args.seconds),
                f"-{version}"]
        # The clients have OpenSSL without the provider.
        plain = {**os.environ, "OPENSSL_CONF": "/dev/null"}
        before = cpu_of(self.workers), cpu_of([self.keeper.pid]), children_cpu()
        began = time.perf_counter()
        clients = [subprocess.Popen(argv, env=plain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
                   for _ in range(self.args.clients)]
        said = [client.communicate()[0] for client in clients]
        took = time.perf_counter() - began
        used = [after - b for after, b in zip((cpu_of(self.workers), cpu_of([self.keeper.pid]), children_cpu()), before)]
        counts = [re.search(r"^(\d+) connections in \d+ real seconds", text, re.M) for text in said]
        if not all(counts):
            raise SystemExit(f"{' '.join(argv)}: {said[0]}{(self.folder / 'error').read_text()}")
        count = sum(int(found[1]) for found in counts)
        if not count:
            raise SystemExit(f"no handshake: {said[0]}{(self.folder / 'error').read_text()}")
        return {"rate": count / took, "worker_us": used[0] / count * 1e6, "keeper_us": used[1] / count * 1e6,
                "load": 100 * used[2] / took / os.cpu_count()}


def main():
    of = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    of.add_argument("--rounds", type=int, default=7)
    of.add_argument("--seconds", type=int, default=3)
    of.add_argument("--clients", type=int, default=2)
    of.add_argument("--workers", type=int, default=1)
    of.add_argument("--nginx", default="nginx")
    of.add_argument("--csv", type=pathlib.Path)
    of.add_argument("sealane", type=pathlib.Path)
    args = of.parse_args()
    cells = {}
    with tempfile.TemporaryDirectory() as folder:
        setup = Setup(args, pathlib.Path(folder))
        try:
            for turn in range(args.rounds):
                for name in KEYS:
                    for version in VERSIONS:
                        for place in sorted(PLACES, reverse=turn % 2 == 1):
                            cells[name, version, turn, place] = setup.measure(name, version, place)
                print(f"  round {turn + 1} of {args.rounds}", file=sys.stderr)
        finally:
            setup.end()
    version = subprocess.run(["openssl", "version"], capture_output=True, text=True, check=True).stdout.strip()
    print(f"{version}; {os.cpu_count()} CPUs; Linux {platform.release()}; {args.workers} workers, {args.clients} clients")
    print(f"{'':<17} {'file 1/s':>9} {'keeper 1/s':>11} {'ratio':>6}  {'middle half':<14} {'CPU us: worker, file':>20} {'worker':>7} {'keeper':>7} "
          f"{'load %: file':>12} {'keeper':>7}")
    lines = [["key", "version", "round", "place", "rate", "worker_us", "keeper_us", "load"]]
    lines += [[name, version, turn, place, *(f"{figure:.3f}" for figure in cell.values())] for (name, version, turn, place), cell in cells.items()]
    for name in KEYS:
        for version, title in VERSIONS.items():
            pairs = [[cells[name, version, turn, place] for place in PLACES] for turn in range(args.rounds)]
            ratios = [kept["rate"] / file["rate"] for file, kept in pairs]
            low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
            file, kept = ({cell: statistics.median(pair[i][cell] for pair in pairs) for cell in pairs[0][i]} for i in (0, 1))
            print(f"{NAMES[name]:<9}{title:<8} {file['rate']:9.0f} {kept['rate']:11.0f} {statistics.median(ratios):6.3f}  {low:.3f} to {high:.3f} "
                  f"{file['worker_us']:20.0f} {kept['worker_us']:7.0f} {kept['keeper_us']:7.0f} {file['load']:12.0f} {kept['load']:7.0f}")
    if args.csv:
        with open(args.csv, "w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main()
