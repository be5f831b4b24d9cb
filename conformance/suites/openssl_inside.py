"""Checks of programs that use OpenSSL, on a machine that openssl_programs.sh has made: what its suites share."""
import contextlib
import os
import pathlib
import subprocess
import sys
import time
import traceback

# The shipped example, and the configuration that programs have without it.
OURS, THEIRS = "/etc/sealane/openssl-sealane.cnf", "/etc/ssl/openssl.cnf"
MODULE = "/usr/local/lib/sealane/sealane.so"
PLACE = pathlib.Path("/srv/test")
# More than any step takes on a machine that does not hang: a copy with a hundred changes of keys needs minutes where other programs
# have the CPUs.
LIMIT = 600

failed = 0


def check(what, test):
    """Runs a test; one with checks in it passes if they do."""
    global failed
    before, failed = failed, 0
    try:
        test()
        need(not failed, "one of its checks has failed")
        failed = before
        print(f"PASS {what}")
    except Exception:
        failed = 1
        print(f"FAIL {what}")
        traceback.print_exc(limit=3, file=sys.stdout)


def environment(ours):
    return {**os.environ, "OPENSSL_CONF": OURS if ours else THEIRS}


def need(is_so, what):
    if not is_so:
        raise AssertionError(what)


def run(argv, ours=False, **more):
    """Runs a program to its end and returns what it wrote; it has to succeed."""
    done = subprocess.run(argv, env=environment(ours), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, **more)
    need(done.returncode == 0, f"{argv}: status {done.returncode}: {done.stderr[-2000:].decode(errors='replace')}")
    return done.stdout


def within(what, condition):
    end = time.monotonic() + LIMIT
    while not condition():
        need(time.monotonic() < end, f"not in time: {what}")
        time.sleep(0.05)


def listens(port):
    lines = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return any(words[1].endswith(f":{port:04X}") and words[3] == "0A" for words in lines)


def has_module(pid):
    return MODULE in pathlib.Path(f"/proc/{pid}/maps").read_text()


@contextlib.contextmanager
def serving(argv, ours, port, **more):
    """A server, from the time at which it listens; it has the provider where it should, and ends by itself on no account."""
    log = open(PLACE / f"{pathlib.Path(argv[0]).name}.log", "wb")
    server = subprocess.Popen(argv, env=environment(ours), stdin=subprocess.DEVNULL, stdout=log, stderr=log, **more)

    def need_it():
        need(server.poll() is None, f"{argv[0]} has ended: {pathlib.Path(log.name).read_text(errors='replace')[-2000:]}")

    try:
        within(f"{argv[0]} listens", lambda: listens(port) or server.poll() is not None)
        need_it()
        need(has_module(server.pid) == ours, f"{argv[0]} {'lacks' if ours else 'has'} the provider")
        yield server
        need_it()
    finally:
        if server.poll() is None:
            server.terminate()
        try:
            server.wait(LIMIT)
        finally:
            server.kill()
            log.close()
    within(f"port {port} is free", lambda: not listens(port))
