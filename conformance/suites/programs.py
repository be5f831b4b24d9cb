#!/usr/bin/env python3
"""Programs as Debian 12 ships them, under `sealane run` and without it: what they do must be the same.

usage: programs.py [PROGRAM...]
       programs.py --enter FOLDER COMMAND [ARGUMENT...]

programs_inside.py has the programs and what each goes through: start, use, reload, SIGSTOP and SIGCONT, stop, the end
of its terminal, background. The first run makes target/programs/bookworm, a minimal Debian with the programs, by
debootstrap and apt-get inside of it; nothing is installed on this machine. Each run has a machine of its own:
namespaces, and that folder under an overlay in memory. --enter runs a command in such a machine, in the network
namespace of its caller (speakers.sh); the empty folder is for the overlay.

Needs root, apt, overlayfs, the unified cgroup hierarchy and 3 GB. SEALANE is the executable (target/release/sealane).
Writes PASS, FAIL or SKIP for each program and step; what failed is in target/programs/failed. Exit status: 0 all as
without Sealane, 1 not, 77 could not try."""
import concurrent.futures
import json
import os
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SEALANE = pathlib.Path(os.environ.get("SEALANE", ROOT / "target/release/sealane"))
PLACE = ROOT / "target/programs"
MACHINE = PLACE / "bookworm"
INSIDE = pathlib.Path(__file__).with_name("programs_inside.py")
DEBIAN = pathlib.Path(__file__).with_name("debian.sh").resolve()
MACHINE_SH = pathlib.Path(__file__).with_name("machine.sh").resolve()
FILES = [INSIDE, ROOT / "conformance/programs/digestd.c"]
PACKAGES = """iproute2 nftables procps python3 dnsmasq-base nginx-light openssh-server openssh-client bird2 frr
frr-rpki-rtrlib openbgpd exabgp gobgpd stayrtr charon-systemd strongswan-swanctl iwd dbus cryptsetup-bin qemu-utils
openjdk-17-jdk-headless nodejs caddy busybox gcc libc6-dev gcc-multilib musl-tools linux-libc-dev podman crun
systemd libnss3-tools libldns3 libunbound8 libcurl3-nss libevent-core-2.1-7 libevent-pthreads-2.1-7 libaudit1
libcap-ng0 dns-root-data"""
# libreswan is not for machines with strongSwan, which has the same ports.
MAKE = f"""
export DEBIAN_FRONTEND=noninteractive
printf '#!/bin/sh\\nexit 101\\n' >/usr/sbin/policy-rc.d
chmod 755 /usr/sbin/policy-rc.d
apt-get -qq update
apt-get -qq -y install --no-install-recommends {' '.join(PACKAGES.split())}
cd /tmp
apt-get -qq -o APT::Sandbox::User=root download libreswan
dpkg-deb --fsys-tarfile libreswan_*.deb | tar -x --keep-directory-symlink -C /
apt-get clean
"""
# Arguments: the folder that becomes /, the command, and its arguments.
ENTER = f"""
. "{MACHINE_SH}"
machine=$1
shift
mount -t proc proc "$machine/proc"
mount --rbind /sys "$machine/sys"
mount -t cgroup2 cgroup2 "$machine/sys/fs/cgroup"
devices "$machine/dev"
mkdir "$machine/dev/net"
cp -a /dev/net/tun "$machine/dev/net/"
mount -t tmpfs run "$machine/run"
mount -t tmpfs tmp "$machine/tmp"
become "$machine" "$@"
"""
# Arguments: the machine's folder, a folder to mount at, the executable, files.
FRESH = """
mount --make-rprivate /
machine=$1 at=$2 sealane=$3
shift 3
mount -t tmpfs -o mode=755 fresh "$at"
mkdir "$at"/upper "$at"/work "$at"/root
mount -t overlay overlay -o "lowerdir=$machine,upperdir=$at/upper,workdir=$at/work" "$at/root"
install -D "$sealane" "$at/root/usr/local/bin/sealane"
install -D "$(dirname "$sealane")/libsealane_shim.so" "$at/root/usr/local/lib/sealane/libsealane_shim.so"
while [ "$1" != -- ]; do install -D "$1" "$at/root/srv/suite/${1##*/}"; shift; done
shift
set -- "$at/root" "$@"
"""
UNDER = ["sealane", "run", "--"]


def missing(why):
    print(f"SKIP programs: {why}")
    sys.exit(77)


def make_machine():
    """Makes the folder, once. What its making said is in a file beside it."""
    done = MACHINE / "srv/made"
    if done.exists() and done.read_text() == MAKE:
        return
    for tool in ("apt-get", "dpkg-deb"):
        if not shutil.which(tool):
            missing(f"no {tool} here")
    PLACE.mkdir(parents=True, exist_ok=True)
    steps = f"""
'{DEBIAN}' bookworm '{MACHINE}'
unshare --mount --pid --fork --kill-child bash -ec 'mount --make-rprivate /; mount --bind "$1" "$1"; {ENTER}' \
  enter '{MACHINE}' bash -ec "$1"
"""
    with open(PLACE / "made.log", "w") as log:
        make = ["bash", "-ec", steps, "make", MAKE]
        made = subprocess.run(make, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    if made.returncode:
        last = (PLACE / "made.log").read_text().strip().splitlines()[-1:]
        missing(f"Debian 12 with the programs cannot be had: {last}")
    done.write_text(MAKE)


def cgroups():
    """The folder of the unified cgroup hierarchy."""
    for line in pathlib.Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return pathlib.Path(line.split()[1])
    missing("no unified cgroup hierarchy")


def enter(at, command):
    """The command, in a fresh machine that is mounted at that folder."""
    return ["bash", "-ec", FRESH + ENTER, "enter", MACHINE, at, SEALANE, *FILES, "--", *command]


def run(name, under):
    """Runs a program in a machine of its own; returns the lines of its steps, and all that it wrote."""
    machine = f"{name}-{'under' if under else 'without'}"
    at, group = PLACE / f"at-{machine}", cgroups() / f"programs-{os.getpid()}-{machine}"
    at.mkdir(exist_ok=True)
    group.mkdir()
    join = ["bash", "-ec", 'echo $$ >"$1"; shift; exec "$@"', "join", group / "cgroup.procs"]
    space = "timeout -k 5 300 unshare --mount --pid --net --ipc --uts --cgroup --fork --kill-child".split()
    inside = enter(at, ["python3", f"/srv/suite/{INSIDE.name}", name, *under])
    done = subprocess.run([*join, *space, *inside], capture_output=True, stdin=subprocess.DEVNULL)
    at.rmdir()
    for folder, _, _ in os.walk(group, topdown=False):
        os.rmdir(folder)
    text = done.stdout.decode(errors="replace")
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return lines, text + done.stderr.decode(errors="replace") + f"status {done.returncode}\n"


def short(seen):
    return repr(seen[:300])


def compare(name, without, under):
    """The verdicts on a program, a line for each step."""
    for why in {line["skip"] for line in without + under if "skip" in line}:
        yield f"SKIP {name}: {why}"
        return
    excused = any("lacks" in line for line in without)
    reference = {line["step"]: line for line in without if "step" in line}
    steps = [line for line in under if "step" in line]
    for line in steps:
        step, seen = line["step"], line["seen"]
        plain = reference.get(step)
        if line["known"] is not None:
            good = line["known"] in seen if line["known"] else not seen
            yield f"PASS {name}: {step}" if good else f"FAIL {name}, {step}: {short(seen)}, and not {line['known']!r}"
        elif excused and not line["failed"]:
            yield f"PASS {name}: {step} (this kernel lacks what it needs, so that there is nothing to compare with)"
        elif plain is None or plain["failed"] and not excused:
            yield f"FAIL {name}, {step}: without Sealane: {short(plain['seen']) if plain else 'it was not reached'}"
        elif seen != plain["seen"]:
            yield f"FAIL {name}, {step}: {short(seen)}, and without Sealane {short(plain['seen'])}"
        else:
            yield f"PASS {name}: {step}"
    for step in [step for step in reference if step not in {line["step"] for line in steps}]:
        yield f"FAIL {name}, {step}: not reached under Sealane"
    if not steps or not reference:
        yield f"FAIL {name}: it did not run"


def main():
    if os.geteuid():
        missing("needs root")
    if not SEALANE.exists():
        print(f"programs: no {SEALANE}", file=sys.stderr)
        sys.exit(2)
    make_machine()
    if sys.argv[1:2] == ["--enter"]:
        space = "unshare --mount --pid --fork --kill-child".split()
        os.execvp(space[0], [*space, *enter(sys.argv[2], sys.argv[3:])])
    listed = subprocess.run([sys.executable, INSIDE, "--list"], capture_output=True, text=True, check=True)
    names = sys.argv[1:] or listed.stdout.split()
    failed = PLACE / "failed"
    shutil.rmtree(failed, ignore_errors=True)
    good = True
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runs = [(name, pool.submit(run, name, []), pool.submit(run, name, UNDER)) for name in names]
        for name, without, under in runs:
            (plain, plain_text), (ours, our_text) = without.result(), under.result()
            verdicts = list(compare(name, plain, ours))
            print("\n".join(verdicts), flush=True)
            if any(verdict.startswith("FAIL") for verdict in verdicts):
                good = False
                failed.mkdir(exist_ok=True)
                (failed / f"{name}-without").write_text(plain_text)
                (failed / f"{name}-under").write_text(our_text)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
