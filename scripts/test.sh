#!/usr/bin/env bash
# Builds everything once with assertions and checks of overflow (profile `checked`), runs every test that does not belong to
# `make accept`, and one demonstration of each interface, and ends with a summary: passed, failed, skipped, with reasons.
#
#   test.sh [--accept] [NAME...]    NAME: only tests whose full name contains it, such as xfrm_path or sealane-net-ao
#   test.sh --build                 builds, and runs nothing
#
# --accept runs the tests that `make test` leaves to `make accept`, and nothing else.
# SEALANE_KERNELS is the folder of the kernels to compare with (default ../shared/kernel), SEALANE_JOBS the number of tests
# that run side by side.
set -uo pipefail
cd "$(dirname "$0")/.."

export SEALANE_KERNELS=${SEALANE_KERNELS:-$(realpath -m ../shared/kernel)}
built=target/checked
export SEALANE=$PWD/$built/sealane SEALANE_BUILT=1
mkdir -p $built
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
steps=()

step() { # NAME COMMAND...: shows and keeps its output
  local name=$1 status began=$SECONDS
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" 2>&1 | tee "$logs/$name"
  status=${PIPESTATUS[0]}
  printf '== %s: %s s\n' "$name" $((SECONDS - began))
  steps+=("$name=$status=$logs/$name")
}

# Both commands build with the same features, so that the second one has nothing left to do.
build=(--workspace --exclude sealane-bench --profile checked --locked)
began=$SECONDS
cargo build "${build[@]}" --all-targets || exit
cargo test "${build[@]}" --no-run --message-format json-render-diagnostics >$built/tests.json || exit
printf '== build: %s s\n' $((SECONDS - began))
[[ ${1:-} == --build ]] && exit

run_tests() { scripts/run_tests.py --jobs "${SEALANE_JOBS:-6}" "$@" <$built/tests.json; }
# Tests of IPsec that several workers for a stack change.
workers=(xfrm_path::replays xfrm_path::nothing xfrm_path::crypto_cores xfrm_packet::replays xfrm_packet::nothing
  xfrm_packet::beside_software xfrm_devices::a_device_that_goes_down)

step tests run_tests "$@"
if (($# == 0)); then
  step documentation bash -c 'cargo test "$@" && echo "PASS examples in the documentation"' cargo "${build[@]}" --doc
  SEALANE_TEST_WORKERS=2 step workers run_tests "${workers[@]}"
  step matrix python3 scripts/matrix.py --check
  step demo bash -c 'python3 scripts/demo.py && echo "PASS the demo: every result equal"'
  # 77: it has reported what is missing.
  step demo-tcp-ao bash -c 'python3 scripts/demo_tcp_ao.py && echo "PASS the demo of TCP-AO: all as it should be" || (($? == 77))'
  step demo-ipsec bash -c 'DEMO_SECONDS=1 python3 scripts/demo_ipsec.py && echo "PASS the demo of IPsec: all as it should be" || (($? == 77))'
  step demo-keys bash -c 'python3 scripts/demo_keys.py && echo "PASS the demo of private keys: all as it should be"'
fi

echo
$built/summary "${steps[@]}"
