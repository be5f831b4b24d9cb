#!/usr/bin/env python3
"""Runs the workspace's tests, several at once, and prints what `summary` counts.

    cargo test --no-run --message-format json ... | scripts/run_tests.py [--accept] [--jobs JOBS] [--cpu CPU] [NAME...]

Tests of conformance mostly wait, for packets, timers and kernels that boot: each is a process of its own, and JOBS of them
run side by side, the longest of the last run first. All other executables keep the CPU busy: CPU of them run at once, each
with the harness's own threads. With NAMEs, only tests whose full name (such as ipsec::xfrm_path::replays, or
sealane-net-ao::it) contains one of them.

A test that is `#[ignore]`d belongs to `make accept`: with --accept these run, and no others.

Exit status: 0 all passed, 1 one failed, 2 nothing to run.
"""

import argparse
import json
import os
import pathlib
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Python programs of tests write what they print with one call, as on a fresh machine: a test may read it at any time.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
# What one process may take on a machine that does ten other things: then it hangs.
LIMIT_S = 900
# Tests that take long, in seconds, where no earlier run tells.
LONG = {"xfrm_never": 120, "tcp_ao_fast": 90, "launch::": 60, "simd::": 60, "tcp_ao_daemon": 40}


class Job:
    """A process: a whole executable, or one test of it."""

    def __init__(self, target, test=None):
        self.target, self.test = target, test
        self.name = f"{target.name}::{test}" if test else target.name
        self.wall_s = self.cpu_s = 0.0

    def argv(self, accept):
        return [self.target.executable, *(["--exact", self.test] if self.test else []), *(["--ignored"] if accept else [])]


class Target:
    """A test executable, as cargo names it."""

    def __init__(self, message):
        manifest = pathlib.Path(message["manifest_path"])
        self.folder, self.executable = manifest.parent, message["executable"]
        source = pathlib.Path(message["target"]["src_path"]).relative_to(self.folder)
        unit = message["target"]["kind"] != ["test"]
        # As `cargo test` says it.
        self.shown = f"{'unittests ' if unit else ''}{source} ({os.path.relpath(self.executable, ROOT)})"
        # Whether all of its tests run in one process.
        self.whole = self.folder.name != "conformance" or unit
        crate = pathlib.Path(self.executable).name.rsplit("-", 1)[0].replace("_", "-")
        self.name = message["target"]["name"] if not self.whole else crate if unit else f"{self.folder.name}::{crate}"

    def tests(self, ignored=False):
        """The names of the executable's tests."""
        argv = [self.executable, "--list", "--format", "terse"] + (["--ignored"] if ignored else [])
        done = subprocess.run(argv, cwd=self.folder, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{self.executable} --list: {done.stderr}")
        return [line.removesuffix(": test") for line in done.stdout.splitlines() if line.endswith(": test")]


def run(job, accept):
    """Runs a job; returns its exit status (negative: the signal) and its output."""
    began = time.monotonic()
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(job.argv(accept), cwd=job.target.folder, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                                   stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        timer = threading.Timer(LIMIT_S, lambda: os.killpg(process.pid, signal.SIGKILL))
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        timer.cancel()
        out.seek(0)
        text = out.read().decode(errors="replace")
    job.wall_s = time.monotonic() - began
    job.cpu_s = usage.ru_utime + usage.ru_stime
    return process.returncode, text


def report(job, status, text):
    """What `summary` reads, and all of it where something failed."""
    lines = [f"     Running {job.target.shown}"]
    if status:
        lines.append(text.rstrip())
        if status < 0 or not re.search(r"^test result: FAILED", text, re.M):
            how = f"ended by signal {-status}" if status < 0 else f"ended with status {status}"
            if job.wall_s >= LIMIT_S:
                how = f"not done in {LIMIT_S} s"
            lines.append(f"FAIL {job.name}: {how}")
    else:
        keep = re.compile(r"^(test .* \.\.\.(?! ignored)|SKIPPED |ok$)")
        lines += [line for line in text.splitlines() if keep.match(line)]
    lines.append(f"     {job.name}: {job.wall_s:.1f} s, CPU {job.cpu_s:.1f} s")
    return "\n".join(lines)


def longest_first(jobs, times):
    """The order, so that none is left over at the end."""
    def seconds(job):
        return times.get(job.name) or next((s for name, s in LONG.items() if name in job.name), 10)

    return sorted(jobs, key=seconds, reverse=True)


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--accept", action="store_true")
    words.add_argument("--jobs", type=int, default=6)
    words.add_argument("--cpu", type=int, default=1)
    words.add_argument("names", nargs="*")
    args = words.parse_args()

    targets = []
    for line in sys.stdin:
        message = json.loads(line) if line.startswith("{") else {}
        if message.get("reason") == "compiler-artifact" and message.get("executable") and message["profile"]["test"]:
            targets.append(Target(message))
    whole, single, left = [], [], 0
    for target in targets:
        ignored = set(target.tests(ignored=True))
        left += 0 if args.accept else len(ignored)
        tests = ignored if args.accept else [t for t in target.tests() if t not in ignored]
        if target.whole:
            whole += [Job(target)] if tests else []
        else:
            single += [Job(target, t) for t in tests]
    if args.names:
        for name in args.names:
            if not any(name in job.name for job in whole + single):
                print(f"run_tests: no test is called {name}", file=sys.stderr)
                return 2
        whole, single = ([j for j in jobs if any(n in j.name for n in args.names)] for jobs in (whole, single))
    if not whole and not single:
        print("run_tests: there is no test", file=sys.stderr)
        return 2

    times_file = pathlib.Path(targets[0].executable).parent.parent / "test-times.json"
    times = json.loads(times_file.read_text()) if times_file.exists() else {}
    printing, done, failed = threading.Lock(), [], []

    def worker(jobs):
        while True:
            try:
                job = jobs.get_nowait()
            except queue.Empty:
                return
            status, text = run(job, args.accept)
            with printing:
                print(report(job, status, text), flush=True)
                done.append(job)
                times[job.name] = round(job.wall_s, 1)
                if status:
                    failed.append(job.name)

    threads = []
    for jobs, count in ((single, args.jobs), (whole, args.cpu)):
        todo = queue.Queue()
        for job in longest_first(jobs, times):
            todo.put(job)
        threads += [threading.Thread(target=worker, args=(todo,)) for _ in range(count)]
    began = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # Another run may read it.
    new_file = times_file.with_suffix(f".{os.getpid()}")
    new_file.write_text(json.dumps(times, indent=1, sort_keys=True))
    new_file.replace(times_file)
    all_jobs = whole + single
    for job in all_jobs:
        if job not in done:
            print(f"FAIL {job.name}: it could not be run")
            failed.append(job.name)
    print(f"\n{len(all_jobs)} processes in {time.monotonic() - began:.0f} s; CPU {sum(j.cpu_s for j in all_jobs):.0f} s. The longest:")
    for job in sorted(all_jobs, key=lambda j: -j.wall_s)[:25]:
        print(f"  {job.wall_s:6.1f} s  CPU {job.cpu_s:6.1f} s  {job.name}")
    if left:
        print(f"{left} tests belong to `make accept`")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
