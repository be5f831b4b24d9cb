#!/usr/bin/env bash
# Everything that is tested and that `make test` does not wait for: suites of other programs, other kernels, long runs. An
# issue is resolved only after all of it has passed on the same commit.
#
#   accept.sh [SUITE...]       all of them, or those named; accept.sh --list names them
#
# Writes a line for each suite, with its time; what it printed is in target/accept/SUITE. Ends with a summary: passed, failed,
# skipped, with reasons. Needs `make build`, and root for most. As root, suites make network namespaces.
set -uo pipefail
cd "$(dirname "$0")/.."

export SEALANE_KERNELS=${SEALANE_KERNELS:-$(realpath -m ../shared/kernel)}
logs=target/accept
mkdir -p $logs

declare -A command
names=()
suite() { # NAME SECONDS COMMAND...: at most so many seconds
  names+=("$1")
  command[$1]=$(printf '%q ' timeout -k 30 "${@:2}")
}
# Tests that boot another kernel, or print figures of a thousand sessions.
suite tests 2400 scripts/test.sh --accept
# Answers of kernels that `make test` compares with: the kernels still give them. SEALANE_RECORD=1 records them anew.
suite recorded 2400 conformance/suites/recorded.sh
suite demo 300 bash -c 'python3 scripts/demo.py && echo "PASS the demo: every result equal"'
suite demo-tcp-ao 300 bash -c 'python3 scripts/demo_tcp_ao.py && echo "PASS the demo of TCP-AO: all as it should be"'
suite demo-ipsec 300 bash -c 'python3 scripts/demo_ipsec.py && echo "PASS the demo of IPsec: all as it should be"'
suite demo-keys 300 bash -c 'python3 scripts/demo_keys.py && echo "PASS the demo of private keys: all as it should be"'
# strongSwan of Debian 13, unpacked under target/ and not installed.
suite charon 900 conformance/suites/charon.sh
suite charon-history 900 conformance/suites/charon_history.sh
suite charon-offload 900 conformance/suites/charon_offload.sh
# libreswan of Debian 13 and 12, unpacked likewise.
suite pluto 900 conformance/suites/pluto.sh trixie
suite pluto-bookworm 900 conformance/suites/pluto.sh bookworm
# Debian's programs, unpacked under target/ and not installed, with and without Sealane.
suite programs 2400 python3 conformance/suites/programs.py
# BGP speakers and RTR of the same Debian, with daemons at both ends.
suite speakers 1800 conformance/suites/speakers.sh
# The OpenSSL provider with Debian 13's OpenSSL, unpacked likewise, and with OpenSSL 4.0, which is built the first time; OpenSSL's own
# tests of algorithms with all three.
suite openssl-3.0 1800 conformance/suites/openssl_versions.sh 3.0
suite openssl-3.5 1800 conformance/suites/openssl_versions.sh 3.5
suite openssl-4.0 3600 conformance/suites/openssl_versions.sh 4.0
# Debian's programs that use OpenSSL, with the provider at one end.
suite openssl-programs 1800 conformance/suites/openssl_programs.sh
# Programs of the coming Debian whose private keys are the keeper's.
suite openssl-keys 1800 conformance/suites/openssl_programs.sh keys
# The shipped unit, under systemd in a container.
suite systemd 600 conformance/suites/systemd.sh
suite systemd-ipsec 600 conformance/suites/systemd_ipsec.sh
# The keeper's unit, with a credential that systemd decrypts, and a daemon that has a key of it.
suite systemd-keeper 600 conformance/suites/systemd_keeper.sh
# Debian packages, made and used on minimal machines that debootstrap makes.
suite packages 2400 conformance/suites/packages.sh
# VPNs of NetworkManager, strongSwan and libreswan by their units, on minimal machines with that package.
suite network-manager 1500 conformance/suites/network_manager.sh trixie
suite network-manager-bookworm 1500 conformance/suites/network_manager.sh bookworm
# The rpm package, by Debian's rpm.
suite rpm 1200 conformance/suites/rpm.sh
# The OCI image, by Debian's crun, which is unpacked under target/ and not installed.
suite image 900 conformance/suites/image.sh
# The fuzz targets, which are a workspace of their own, are as the crates are.
suite fuzz-targets 1800 bash -c 'cargo check --manifest-path fuzz/Cargo.toml --target-dir target/fuzz --locked && echo "PASS the fuzz targets compile"'
# The example for Kubernetes, by its schemas.
suite kubernetes 300 conformance/suites/kubernetes.sh
# The report of measurements, in headless Chromium, which is unpacked under target/ and not installed.
suite report 900 conformance/suites/report.sh
# The AppArmor profile, by its parser.
suite apparmor 60 conformance/suites/apparmor.sh
# Guarded memory behind protection keys, in emulated machines with Debian's kernels, unpacked and not installed.
suite protection-keys 1800 conformance/suites/protection_keys.sh
# Nothing in clear, inside the kernels of Debian 12 and of tomorrow.
suite never-linux-6.1 5400 conformance/suites/never.sh linux-6.1
suite never-linux-7.3-net 5400 conformance/suites/never.sh linux-7.3-net
# Random sequences of calls, ten times as many as in `make test`, with another seed each day.
suite differential 3600 env SEALANE_SEED="$(date +%Y%m%d)" SEALANE_SEQUENCES=3000 scripts/test.sh differential tcp_ao::linux
# Random orders of what happens to IPsec's daemon, beside a model.
suite simulation 1800 env SIMULATION_ORDERS=1000000 scripts/test.sh nothing_that_must_not_happen_happens
# AF_ALG with threads, forks and exec on busy CPUs.
suite threads 900 env FOR=600 conformance/suites/alg_threads.sh
suite soak 900 python3 conformance/suites/ipsec_soak.py 5
# The README's two commands on minimal machines.
suite fresh-bookworm 5400 conformance/suites/fresh.sh bookworm root
suite fresh-trixie 5400 conformance/suites/fresh.sh trixie user

case ${1:-} in
  --list) printf '%s\n' "${names[@]}"; exit ;;
  '') ;;
  *)
    for name; do
      [[ -v command[$name] ]] || { echo "accept: there is no suite $name; there are ${names[*]}" >&2; exit 2; }
    done
    names=("$@")
    ;;
esac

steps=()
for name in "${names[@]}"; do
  began=$SECONDS
  bash -c "${command[$name]}" >"$logs/$name" 2>&1 </dev/null
  status=$?
  # 77: the suite has reported what is missing.
  case $status in
    0) word=passed ;;
    77) word='could not try' status=0 ;;
    124 | 137) word='not done in time' ;;
    *) word="failed with status $status" ;;
  esac
  printf '%-20s %5s s  %s\n' "$name" $((SECONDS - began)) "$word"
  steps+=("$name=$status=$logs/$name")
done
echo
target/release/summary "${steps[@]}"
