"""Shared parts of the IPsec benches between network namespaces: namespaces, daemons, CPU time, arguments, output."""
import argparse, os, pathlib, subprocess, sys, time

TARGET = pathlib.Path(__file__).resolve().parent.parent / "target/release"
# A key of rfc4106(gcm(aes)): 16 bytes and the salt.
KEY = "0x000102030405060708090a0b0c0d0e0f10111213"
ENCAP = "encap espinudp 4500 4500 0.0.0.0"
# What the end of a kind's name adds to the configuration.
BOTH = 'incoming = "device"\nlate = true\n'
SETTINGS = {
    "workers": "workers = 2\n",
    "device": 'incoming = "device"\n',
    "early": "late = false\n",
    "late": "late = true\n",
    "both": BOTH,
    # The sender's socket is bound to the device, too.
    "bound": BOTH,
}


def config_of(kind):
    """The section of IPsec for a kind."""
    return "[ipsec]\n" + SETTINGS.get(kind.rsplit("-", 1)[-1], "")


def inside(space, *words, **more):
    """Runs a command in a namespace; it has to succeed."""
    return subprocess.run(["ip", "netns", "exec", space, *words], check=True, **more)


def make(spaces):
    """Makes namespaces with only a loopback device, in place of earlier ones."""
    delete(spaces)
    for space in spaces:
        subprocess.run(["ip", "netns", "add", space], check=True)
        subprocess.run(["ip", "-n", space, "link", "set", "lo", "up"], check=True)


def delete(spaces):
    for space in spaces:
        subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL)


def veth(a, b, name, queues=1):
    """Makes a veth pair between two namespaces, with one name at both ends and this many queues."""
    of = ["numtxqueues", str(queues), "numrxqueues", str(queues)]
    subprocess.run(["ip", "link", "add", name, *of, "netns", a, "type", "veth", "peer", "name", name, *of, "netns", b], check=True)


class Daemon:
    """Starts `sealane daemon` in a namespace. Its files are in `folder`, with names that begin with `name`."""

    def __init__(self, sealane, space, folder, name, config):
        own = pathlib.Path(folder) / str(name)
        file, log = own.with_suffix(".toml"), own.with_suffix(".log")
        file.write_text(config)
        file.chmod(0o600)
        self.argv = ["ip", "netns", "exec", space, "env", f"SEALANE_RUNTIME_DIR={own}", sealane]
        with open(log, "w") as to:
            self.process = subprocess.Popen([*self.argv, "daemon", "--config", str(file)], stdout=to, stderr=to)
        while "IPsec in" not in log.read_text():
            time.sleep(0.05)
            if self.process.poll() is not None:
                raise SystemExit(log.read_text())

    def script(self, lines):
        """Runs commands in a shell under `sealane run`; each has to succeed."""
        subprocess.run([*self.argv, "run", "--", "sh", "-ec", lines], check=True)

    def end(self):
        self.process.terminate()
        self.process.wait(20)


def end(processes):
    for process in processes:
        process.terminate()
        process.wait(20)


def busy_s():
    """CPU seconds of the whole machine since its start."""
    fields = [int(f) for f in pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")


def used_s(process):
    """CPU seconds of a running process."""
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def parser(usage, rounds, seconds, before=False):
    """The arguments that all benches have, and those of benches that run another build beside."""
    of = argparse.ArgumentParser(usage=usage)
    of.add_argument("--rounds", type=int, default=rounds)
    of.add_argument("--seconds", type=type(seconds), default=seconds)
    of.add_argument("--csv")
    of.add_argument("--sealane", default=str(TARGET / "sealane"))
    if before:
        of.add_argument("--before", help="another build of sealane: its rows, by turns with this one's, are called KIND@before")
    of.add_argument("kinds", nargs="*")
    return of


BEFORE = "@before"


def kinds(args, usual, available, is_ours):
    """The rows that were asked for, or the usual ones, as far as their programs exist, each of ours with the one of `--before`."""
    here = []
    for kind in args.kinds or usual:
        if not available(args, kind):
            print(f"{kind}: what it needs is not here", file=sys.stderr)
            continue
        here.append(kind)
        if args.before and is_ours(kind):
            here.append(kind + BEFORE)
    return here


def build_of(args, row):
    """The kind of a row, and the program `sealane` that it is for."""
    kind = row.removesuffix(BEFORE)
    return kind, args.sealane if kind == row else args.before


def write_csv(path, head, lines):
    if path:
        pathlib.Path(path).write_text("".join(line + "\n" for line in [head, *lines]))
