#!/usr/bin/env bash
# All events of `xfrm_never`, `tcp_ao_daemon`, `tcp_ao_programs`, `tcp_ao_fast` (with VLAN devices) and `tcp_ao_vrf` inside a real
# kernel (user-mode Linux): is anything sent or taken in clear?
#
#   never.sh KERNEL [FILTER...]     for example linux-6.1, linux-7.3-net
#
# With SEALANE_TEST_IPSEC daemons of IPsec have its lines in their configuration: $'incoming = "device"\nlate = true'.
#
# Builds what `make test` builds. Prints a line for each test; takes 35 minutes on an idle machine. Exit status: 0 all passed, 1 not,
# 2 could not try.
set -uo pipefail
cd "$(dirname "$0")/../.."
kernel=${1:?usage: never.sh KERNEL [FILTER...]}; shift
kernels=${SEALANE_KERNELS:-$PWD/../shared/kernel}
[[ -x $kernels/boot ]] || { echo "no $kernels/boot" >&2; exit 2; }
scripts/test.sh --build >&2 || exit 2
result=0
said=$(mktemp /tmp/never.XXXXXX)
trap 'rm -f "$said"' EXIT
# A kernel has a session of its own, so that a signal to ours does not reach it: it is known by its environment.
export SEALANE_NEVER=$$
end() {
  local process
  for process in /proc/[0-9]*; do
    [[ ${process#/proc/} == "$$" ]] || ! grep -qsxz "SEALANE_NEVER=$$" "$process/environ" || kill -9 "${process#/proc/}" 2>/dev/null
  done
  exit 143
}
trap end TERM INT
for suite in ipsec::xfrm_never ao::tcp_ao_daemon ao::tcp_ao_programs ao::tcp_ao_fast ao::tcp_ao_vrf; do
  executable=${suite%::*} module=${suite#*::}
  test=$(grep "conformance/tests/$executable/main.rs" target/checked/tests.json | grep -o '"executable":"[^"]*"' | cut -d'"' -f4)
  [[ -x $test ]] || { echo "$executable is not built" >&2; exit 2; }
  mapfile -t tests < <("$test" --list --format terse | sed -n "s/^\($module::.*\): test$/\1/p")
  ((${#tests[@]})) || { echo "$executable has no tests of $module" >&2; exit 2; }
  # Those that contain one of the filters, as for `cargo test`.
  (($# == 0)) || mapfile -t tests < <(printf '%s\n' "${tests[@]}" | grep -F "${@/#/-e}")
  ((${#tests[@]})) || continue
  # In the background, because a shell that waits in the foreground hears of no signal.
  conformance/boot "$kernel" -- env SEALANE="$PWD/target/checked/sealane" "$test" --test-threads 1 --exact "${tests[@]}" >"$said" 2>&1 &
  wait $! || result=1
  sed -n 's/^test \([a-z_:0-9]*\) .*ok$/PASS \1/p; s/^test \([a-z_:0-9]*\) .*FAILED$/FAIL \1/p' "$said"
  grep -A6 'panicked\|SKIPPED' "$said" && result=1
done
exit $result
