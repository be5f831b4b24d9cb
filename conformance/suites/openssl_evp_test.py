#!/usr/bin/env python3
"""OpenSSL's own tests of its algorithms (test/evp_test), with the provider in the place of the default one.

usage: openssl_evp_test.py PROGRAM FOLDER COUNTED [HOME...]

PROGRAM is evp_test of OpenSSL 3 or 4, FOLDER its data (test/recipes/30-test_evp_data), COUNTED openssl_counted.c as a library, and HOME
where the provider has keys: process, guarded or keeper, all of them by default. `openssl_versions.sh` builds and calls all this. PROVIDER is
sealane.so (target/checked/libsealane_provider.so), SEALANE the command sealane (beside it), OPENSSL the command that lists what the
provider offers (openssl).

The configuration has the provider and OpenSSL's `base`, which has no ciphers, MACs or digests, and `provider=sealane` is asked for:
whatever passes has been computed here. A library between OpenSSL and the provider counts the calls with a text, to prove it: of each
algorithm there are at least as many as tests of it that passed. Files with a test of an algorithm that the provider offers are tried, and the others named; of those tests of other algorithms are left out, and these
named, as are MACs as keys (EVP_PKEY), which the provider does not offer. Tests that OpenSSL has for its default provider only are tried,
too. The keeper refuses what the row PROV-28 of LIMITATIONS.md says. Every other test that does not pass is a failure, as is one that is skipped,
and a number of tests below the one that is known of this version of OpenSSL.
Each home writes a line with PASS or FAIL. Exit status: 0 no failure, 1 some, 2 could not try."""
import bisect
import collections
import contextlib
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPENSSL = os.environ.get("OPENSSL", "openssl")
PROVIDER = pathlib.Path(os.environ.get("PROVIDER", ROOT / "target/checked/libsealane_provider.so")).resolve()
SEALANE = pathlib.Path(os.environ.get("SEALANE", PROVIDER.parent / "sealane")).resolve()
HOMES = ("process", "guarded", "keeper")
# `ALL` leaves out AES-ECB and AES-256-CTR in some homes.
CIPHERS = " ".join([f"AES-{bits}-{mode}" for mode in ("ECB", "CBC", "CTR", "GCM", "CCM", "CBC-CTS") for bits in (128, 192, 256)]
                   + ["AES-128-XTS", "AES-256-XTS", "DES-EDE3-CBC", "ChaCha20-Poly1305"])
# Kinds of keys for MACs (KEYMGMT) have the names of the MACs, and are not offered.
BY_KEYS = "MAC_KEY_CREATE_ERROR"
# What the provider says of MACs that the keeper does not compute (PROV-28).
NOT_KEPT = re.compile(r"the keeper does not compute (KMAC|HMAC over SHA-256/192, SHA-512/224 and SHA-512/256)")
# By the version of OpenSSL: the tests that pass at least, or that the keeper refuses, and those that it refuses at most.
KNOWN = {"3.0": (3180, 20), "3.5": (3320, 25), "4.0": (3320, 25)}
# The kinds of algorithms, by their names in a file of tests: those of `openssl list`, and OpenSSL's numbers (OSSL_OP_).
KINDS = {"DIGEST": ("digest", 1), "CIPHER": ("cipher", 2), "MAC": ("mac", 3)}
# A test that is for another provider alone. No other is skipped, since all of the others have been left out.
SKIPPED = re.compile(r"^ *# skipping, (?!'fips' provider not available: )(.*)", re.M)
LIMIT_S = 600
CONFIGURATION = """openssl_conf = openssl_init
[openssl_init]
providers = providers
{strictly}
[providers]
sealane = sealane_section
base = base_section
[sealane_section]
module = {module}
activate = 1
sealane-digests = ALL
sealane-ciphers = {ciphers}
sealane-keys = {home}
sealane-keeper = {socket}
[base_section]
activate = 1
[algorithms]
default_properties = provider=sealane
"""


class CouldNotTry(Exception):
    """Something is not there that the tests need."""


class Wrong(Exception):
    """Something is not as it has to be before there are tests."""


@dataclasses.dataclass
class Outcome:
    """The numbers of tests that passed, that were skipped, and that the keeper refused; the calls of the provider, by the kind and the names
    of an algorithm; the algorithms that are not there; what failed; and the lines of all tests that did not pass."""
    passed: int = 0
    skipped: int = 0
    refused: int = 0
    calls: dict = dataclasses.field(default_factory=dict)
    missing: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    failed: list = dataclasses.field(default_factory=list)
    lines: list = dataclasses.field(default_factory=list)


class Tests:
    """A program with its data, and the configuration for a home of keys."""

    def __init__(self, program, counted, home, work):
        self.program, self.home, self.counts = program, home, work / "counts"
        # OpenSSL 3.0's takes no properties. Those of a configuration keep the program of 4.0 from its own random numbers.
        text = subprocess.run([program, "-help"], capture_output=True, text=True, timeout=LIMIT_S).stderr
        self.strictly = ["-propquery", "provider=sealane"] if "-propquery" in text else []
        words = {"ciphers": CIPHERS, "home": home, "socket": work / "socket",
                 "strictly": "" if self.strictly else "alg_section = algorithms"}
        self.configuration, self.plain = work / f"{home}.cnf", work / f"{home}-plain.cnf"
        self.configuration.write_text(CONFIGURATION.format(module=counted, **words))
        self.plain.write_text(CONFIGURATION.format(module=PROVIDER, **words))
        self.environment = {**os.environ, "COUNTED": str(PROVIDER), "COUNTS": str(self.counts)}

    def offered(self):
        """The names of the provider's algorithms of each kind, in capitals."""
        offered = {}
        for kind, (word, _) in KINDS.items():
            # `openssl list` takes the providers of its configuration.
            done = subprocess.run([OPENSSL, "list", f"-{word}-algorithms"], capture_output=True, text=True, timeout=LIMIT_S,
                                  env={**os.environ, "OPENSSL_CONF": str(self.plain)})
            offered[kind] = {name.strip(" {}").upper() for line in done.stdout.splitlines() if line.endswith("@ sealane")
                             for name in line.rsplit("@", 1)[0].split(",")}
            if done.returncode or not offered[kind]:
                raise Wrong(f"the provider offers no {word}s (status {done.returncode}): {done.stderr}")
        return offered

    def tried(self, data):
        """What came of a file."""
        self.counts.unlink(missing_ok=True)
        run = subprocess.run([self.program, "-config", self.configuration, *self.strictly, data], capture_output=True, text=True,
                             errors="replace", timeout=LIMIT_S, env=self.environment)
        text = run.stdout + run.stderr
        done = re.search(r"Completed (\d+) tests with (\d+) errors and (\d+) skipped", text)
        if not done:
            return Outcome(failed=[f"it did not end (status {run.returncode}): {text[:500]}"])
        tests, errors, skipped = map(int, done.groups())
        of = Outcome(tests - errors, skipped)
        # It may still crash where it unloads the provider.
        if run.returncode != (1 if errors else 0):
            of.failed.append(f"it ended with status {run.returncode}: {text[-500:]}")
        of.failed += [f"skipped: {why}" for why in SKIPPED.findall(text)]
        of.lines += [int(line) for line in re.findall(r"skipping, .*\.txt:(\d+)$", text, re.M)]
        blocks = re.split(r"^ *# *(?=\S+\.txt:\d+: Source of above error)", text, flags=re.MULTILINE)[1:]
        for block in blocks:
            place, *rest = block.splitlines()
            of.lines.append(int(re.search(r"\.txt:(\d+): ", place)[1]))
            algorithm = next((found[1] for line in rest if (found := re.search(r":unsupported:.*Algorithm \((\S+) ", line))), None)
            if algorithm:
                of.missing[algorithm.upper(), BY_KEYS in place] += 1
            elif self.home == "keeper" and NOT_KEPT.search(block):
                of.refused += 1
            else:
                of.failed.append(place.strip())
        if len(blocks) != errors:
            of.failed.append(f"{errors} errors, of which {len(blocks)} are told")
        for line in self.counts.read_text().splitlines() if self.counts.exists() else ():
            kind, names, calls = line.split("\t")
            of.calls[int(kind), names.upper()] = of.calls.get((int(kind), names.upper()), 0) + int(calls)
        return of


@contextlib.contextmanager
def keeper(work):
    """A keeper of keys that has none, from `with` to its end."""
    (work / "keeper.toml").write_text(f"socket = '{work}/socket'\nadmin-users = [{os.geteuid()}]\n")
    with open(work / "keeper.log", "wb") as log:
        process = subprocess.Popen([SEALANE, "keeper", "--config", work / "keeper.toml"], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        end = time.monotonic() + LIMIT_S
        while not (work / "socket").exists():
            if process.poll() is not None or time.monotonic() > end:
                raise CouldNotTry(f"the keeper does not serve: {(work / 'keeper.log').read_text()}")
            time.sleep(0.02)
        yield
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def operations(log):
    """The operations by keys of programs in the keeper's audit log."""
    lines = re.findall(r"audit: user \d+: (?!wrap\b)[\w-]+-wrapped(?:, (\d+) times more)?$", log, re.M)
    return sum(int(times or 1) for times in lines)


def stanzas(text):
    """The first line of each stanza of a file, which empty lines part, and the lines."""
    start, lines = 0, []
    for number, line in enumerate([*text.splitlines(), ""]):
        if line.strip():
            start = start if lines else number
            lines.append(line)
        elif lines:
            yield start, lines
            lines = []


def algorithm(lines):
    """The kind and the name of the algorithm that a stanza tests; `None` of a title or a comment."""
    for line in lines:
        found = re.match(r"\s*([^#\s=]+)\s*=\s*(.*?)\s*$", line)
        # What may stand before the kind.
        if found and found[1].lower() not in ("title", "availablein", "fipsversion", "extended-test"):
            return found[1].upper(), found[2].upper()
    return None


class Data:
    """A file of tests: those of algorithms that are offered, which have their lines. `tests` has their first lines in order, with the kinds
    and names, and whether all of their text is computed on: not where an error is expected."""

    def __init__(self, path, offered):
        text = path.read_text()
        self.lines, self.tests, self.others = text.splitlines(), [], collections.Counter()
        for start, lines in stanzas(text):
            kind, name = algorithm(lines) or (None, None)
            plain = name and name.removesuffix(" BY EVP_PKEY")
            if kind in KINDS and plain in offered[kind]:
                self.tests.append((start + 1, kind, plain, not any(re.match(r"\s*Result\s*=", line, re.I) for line in lines)))
            elif kind:
                self.others.update([name if kind in KINDS else kind])
                self.lines[start:start + len(lines)] = [""] * len(lines)
        # Whatever has a name of its own is asked for by it.
        self.lines = [re.sub(r"^Availablein\s*=.*\b(default|legacy)\b.*$", "#", line, flags=re.I) for line in self.lines]

    def lacks(self, outcome):
        """The algorithms of which more tests passed than there were calls of the provider's, in words."""
        not_passed = {bisect.bisect_right(self.tests, line, key=lambda test: test[0]) - 1 for line in outcome.lines}
        passed = collections.Counter()
        for at, (_, kind, name, computes) in enumerate(self.tests):
            if computes and at not in not_passed:
                number = KINDS[kind][1]
                passed[next((key for key in outcome.calls if key[0] == number and name in key[1].split(":")), (number, name))] += 1
        return [f"{names}: {count} tests passed, with {outcome.calls.get((kind, names), 0)} calls of the provider"
                for (kind, names), count in passed.items() if outcome.calls.get((kind, names), 0) < count]


def in_home(program, folder, counted, home, work):
    """Runs all files in a home, and tells of each; the sums."""
    tests = Tests(program, counted, home, work)
    offered = tests.offered()
    total, not_tried, all_others = collections.Counter(), [], collections.Counter()
    for path in sorted(folder.glob("*.txt")):
        data = Data(path, offered)
        if not data.tests:
            not_tried.append(path.stem)
            continue
        copy = work / path.name
        copy.write_text("\n".join(data.lines) + "\n")
        done = tests.tried(copy)
        done.failed += [f"{name} is not found" for name, by_key in done.missing if not by_key] + data.lacks(done)
        told = done.passed + done.skipped + len(done.failed) + done.refused + sum(done.missing.values())
        if told < len(data.tests):
            done.failed.append(f"{told} of {len(data.tests)} tests are told of")
        all_others.update(data.others)
        all_others.update({f"{name} as a key": count for (name, by_key), count in done.missing.items() if by_key})
        others = sum(data.others.values()) + sum(done.missing.values())
        calls = sum(done.calls.values())
        total.update(passed=done.passed, failed=len(done.failed), others=others, skipped=done.skipped, refused=done.refused,
                     calls=calls, files=1)
        print(f"  {path.stem}: {done.passed} passed, {len(done.failed)} failed, {done.skipped} skipped, {others} of others' algorithms, "
              f"{done.refused} refused by the keeper, {calls} calls")
        for what in done.failed:
            print(f"    {what}")
    print(f"  tests of others' algorithms in these files: {', '.join(sorted(all_others))}")
    print(f"  files without an algorithm of the provider: {', '.join(not_tried)}")
    return total


def known():
    """The numbers of tests of this version of OpenSSL."""
    text = subprocess.run([OPENSSL, "version"], capture_output=True, text=True, timeout=LIMIT_S).stdout
    found = re.match(r"OpenSSL (\d+\.\d+)\.", text)
    if not found or found[1] not in KNOWN:
        raise CouldNotTry(f"nobody has counted the tests that have to pass with {text.strip() or OPENSSL}")
    return KNOWN[found[1]]


def told(home, total, work):
    """Tells what came of a home; whether nothing failed."""
    tests, refused = known()
    good, noted = total["passed"] + total["refused"] >= tests and total["refused"] <= refused and not total["failed"], ""
    if home == "keeper":
        # It counts what comes again, and tells all of it when it ends.
        count = operations((work / "keeper.log").read_text())
        good, noted = good and count >= total["passed"], f", {count} operations noted by the keeper"
    print(f"{'PASS' if good else 'FAIL'} evp_test with keys in {home}: {total['passed']} passed, {total['failed']} failed, "
          f"{total['skipped']} skipped, {total['others']} of others' algorithms, {total['refused']} refused by the keeper, "
          f"in {total['files']} files; {total['calls']} calls of the provider{noted}; at least {tests} are to pass or be refused, at most "
          f"{refused} refused", flush=True)
    return good


def main():
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    program, folder, counted = (pathlib.Path(argument).resolve() for argument in sys.argv[1:4])
    for needed in (program, folder, counted, PROVIDER, SEALANE):
        if not needed.exists():
            print(f"openssl_evp_test.py: no {needed}", file=sys.stderr)
            sys.exit(2)
    good = []
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        try:
            for home in sys.argv[4:] or HOMES:
                with keeper(work) if home == "keeper" else contextlib.nullcontext():
                    total = in_home(program, folder, counted, home, work)
                good.append(told(home, total, work))
        except Wrong as why:
            print(f"FAIL evp_test: {why}")
            sys.exit(1)
        except CouldNotTry as why:
            print(f"openssl_evp_test.py: {why}", file=sys.stderr)
            sys.exit(2)
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
