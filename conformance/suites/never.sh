#!/usr/bin/env bash
# All events of `xfrm_never`, `tcp_ao_daemon` and `tcp_ao_programs` inside a real kernel (user-mode Linux): is anything sent or taken in clear?
#
#   never.sh KERNEL [FILTER...]     for example linux-6.1, linux-7.3-net
#
# Needs `make build` and the tests built (`cargo test -p sealane-conformance --no-run`). Prints a line for each test; takes
# about ten minutes. Exit status: 0 all passed, 1 not, 2 could not try.
set -uo pipefail
cd "$(dirname "$0")/../.."
kernel=${1:?usage: never.sh KERNEL [FILTER...]}; shift
boot=${SEALANE_KERNELS:-$PWD/../shared/kernel}/boot
[[ -x $boot ]] || { echo "no $boot" >&2; exit 2; }
result=0
for suite in xfrm_never tcp_ao_daemon tcp_ao_programs; do
  test=$(cargo test -p sealane-conformance --test $suite --no-run --message-format json 2>/dev/null \
    | grep "\"kind\":\[\"test\"\],[^}]*\"name\":\"$suite\"" | grep -o '"executable":"[^"]*"' | cut -d'"' -f4)
  [[ -x $test ]] || { echo "$suite is not built" >&2; exit 2; }
  said=$("$boot" "$kernel" -- env SEALANE="$PWD/target/release/sealane" "$test" --test-threads 1 --skip on_linux "$@" 2>&1) || result=1
  sed -n "s/^test \\([a-z_:0-9]*\\) .*\\(ok\\|FAILED\\)$/$suite \\1: \\2/p" <<<"$said"
  grep -A6 'panicked\|SKIPPED' <<<"$said" && result=1
done
exit $result
