#!/usr/bin/env python3
"""OpenSSL's own tests of its algorithms (test/evp_test), with the provider in the place of the default one.

usage: openssl_evp_test.py SOURCE [DATA...]

SOURCE is a built source folder of OpenSSL 3 or 4 (Debian: the source package openssl; `./Configure linux-x86_64 no-shared`, `make
build_generated test/evp_test`), outside of the repository. DATA are names in its test/recipes/30-test_evp_data without
".txt", by default those with tests of algorithms that the provider has. The configuration has the provider and OpenSSL's `base`, which has no ciphers,
MACs or digests, and asks for `provider=sealane`: whatever passes has been computed here.

PROVIDER is sealane.so (target/release/libsealane_provider.so), OPENSSL the command that lists what it offers (openssl). A test may fail because OpenSSL knows no provider that has its
algorithm, and the provider does not say that it has it; these algorithms are told. Every other failure is one. The number of
tests that passed is told for each file. Exit status: 0 no failure, 1 some, 2 could not try."""
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
OPENSSL = os.environ.get("OPENSSL", "openssl")
PROVIDER = pathlib.Path(os.environ.get("PROVIDER", ROOT / "target/release/libsealane_provider.so")).resolve()
DATA = """evpciph_aes_ccm_cavs evpciph_aes_common evpciph_aes_cts evpciph_chacha evpciph_des3_common evpmac_common
evpmac_cmac_des evpmac_sm3 evpmd_md evpmd_sha"""
# Kinds of keys for MACs (KEYMGMT) have the names of the MACs, and are not offered.
BY_KEYS = "MAC_KEY_CREATE_ERROR"
LIMIT_S = 600
CONFIGURATION = f"""openssl_conf = openssl_init
[openssl_init]
providers = providers
alg_section = algorithms
[providers]
sealane = sealane_section
base = base_section
[sealane_section]
module = {PROVIDER}
activate = 1
sealane-digests = ALL
[base_section]
activate = 1
[algorithms]
default_properties = provider=sealane
"""


def offered(configuration):
    """The names of the provider's algorithms, in capitals."""
    names = set()
    for kind in ("cipher", "mac", "digest"):
        # `openssl list` takes the providers of its configuration.
        text = subprocess.run([OPENSSL, "list", f"-{kind}-algorithms"], capture_output=True, text=True,
                              env={**os.environ, "OPENSSL_CONF": configuration}, timeout=LIMIT_S, check=True).stdout
        for line in text.splitlines():
            if line.endswith("@ sealane"):
                names |= {name.strip(" {}").upper() for name in line.rsplit("@", 1)[0].split(",")}
    return names


def tried(source, configuration, data):
    """The numbers of tests that passed and that were skipped, the algorithms that are not there, and what failed."""
    run = subprocess.run([source / "test/evp_test", "-config", configuration, data], capture_output=True, text=True,
                         errors="replace", timeout=LIMIT_S)
    text = run.stdout + run.stderr
    done = re.search(r"Completed (\d+) tests with (\d+) errors and (\d+) skipped", text)
    if not done:
        return 0, 0, collections.Counter(), [f"it did not end (status {run.returncode}): {text[-500:]}"]
    tests, errors, skipped = map(int, done.groups())
    missing, failed = collections.Counter(), []
    blocks = re.split(r"^ *# *(?=\S+\.txt:\d+: Source of above error)", text, flags=re.MULTILINE)[1:]
    for block in blocks:
        place, *rest = block.splitlines()
        algorithm = next((found[1] for line in rest if (found := re.search(r":unsupported:.*Algorithm \((\S+) ", line))), None)
        if algorithm:
            missing[algorithm.upper(), BY_KEYS in place] += 1
        else:
            failed.append(place.strip())
    if len(blocks) != errors:
        failed.append(f"{errors} errors, of which {len(blocks)} are told")
    return tests - errors, skipped, missing, failed


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    source = pathlib.Path(sys.argv[1]).resolve()
    folder = source / "test/recipes/30-test_evp_data"
    for needed in (source / "test/evp_test", folder, PROVIDER):
        if not needed.exists():
            print(f"openssl_evp_test.py: no {needed}", file=sys.stderr)
            sys.exit(2)
    names = sys.argv[2:] or DATA.split()
    all_passed, all_failed, all_missing = 0, 0, collections.Counter()
    with tempfile.NamedTemporaryFile("w", suffix=".cnf") as file:
        file.write(CONFIGURATION)
        file.flush()
        ours = offered(file.name)
        if not ours:
            print("openssl_evp_test.py: the provider offers nothing", file=sys.stderr)
            sys.exit(2)
        for name in names:
            passed, skipped, missing, failed = tried(source, file.name, folder / f"{name}.txt")
            failed += [f"{algorithm} is offered and not found" for algorithm, by_key in missing if algorithm in ours and not by_key]
            all_passed, all_failed = all_passed + passed, all_failed + len(failed)
            all_missing.update(missing)
            print(f"{'FAIL' if failed else 'PASS'} {name}: {passed} passed, {skipped} skipped, {sum(missing.values())} of others' "
                  f"algorithms, {len(failed)} failed")
            for what in failed:
                print(f"  {what}")
    others = sorted(algorithm + (" (a key)" if by_key else "") for algorithm, by_key in all_missing)
    print(f"not offered: {', '.join(others)}")
    print(f"{all_passed} passed, {all_failed} failed, {sum(all_missing.values())} of algorithms that are not offered")
    sys.exit(1 if all_failed or not all_passed else 0)


if __name__ == "__main__":
    main()
