#!/usr/bin/env bash
# Runs every test and ends with a summary: tests that passed, failed and were skipped, with reasons.
# SEALANE_KERNELS is the folder of the kernels to compare with (default ../shared/kernel).
set -uo pipefail
cd "$(dirname "$0")/.."

export SEALANE_KERNELS=${SEALANE_KERNELS:-$(realpath -m ../shared/kernel)}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
steps=()

step() { # NAME COMMAND...: shows and keeps its output
  local name=$1 status
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$logs/$name"
  status=${PIPESTATUS[0]}
  steps+=("$name=$status=$logs/$name")
}

step tests cargo test --workspace --locked --no-fail-fast
# Some tests of IPsec once more, with several workers for a stack.
step workers env SEALANE_TEST_WORKERS=2 cargo test -p sealane-conformance --locked --no-fail-fast \
  --test xfrm_path --test xfrm_packet --test xfrm_devices -- replays nothing crypto_cores beside_software goes_down
step matrix python3 scripts/matrix.py --check
step demo bash -c 'python3 scripts/demo.py && echo "PASS the demo: every result equal"'
# 77: it has reported what is missing.
step demo-tcp-ao bash -c 'python3 scripts/demo_tcp_ao.py && echo "PASS the demo of TCP-AO: all as it should be" || (($? == 77))'
step demo-ipsec bash -c 'DEMO_SECONDS=1 python3 scripts/demo_ipsec.py && echo "PASS the demo of IPsec: all as it should be" || (($? == 77))'
# strongSwan of Debian 13, unpacked under target/ and not installed. Status 77 as above.
step charon bash -c 'timeout -k 30 600 conformance/suites/charon.sh || (($? == 77))'
step charon-offload bash -c 'timeout -k 30 600 conformance/suites/charon_offload.sh || (($? == 77))'
# The shipped unit, under systemd in a container.
step systemd bash -c 'timeout -k 30 300 conformance/suites/systemd.sh || (($? == 77))'
step systemd-ipsec bash -c 'timeout -k 30 300 conformance/suites/systemd_ipsec.sh || (($? == 77))'

echo
target/release/summary "${steps[@]}"
