#!/usr/bin/env bash
# GoBGP's own tests of the socket options of TCP-AO. Its sessions, with keys from a daemon, are in speakers.sh.
#
#   gobgp.sh [KERNEL]     KERNEL: linux-7.3 (default), the reference of GoBGP's tests; or `none`
#
# GOBGP: a folder with `netutils.test` (in a copy of github.com/osrg/gobgp/v4 v4.8.0: `go test -c
# ./internal/pkg/netutils`). As root: it makes a network namespace. GoBGP 4.8 has code and tests for the socket options
# but no configuration for them. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
gobgp=${GOBGP:-.}
[[ -x $gobgp/netutils.test ]] || { echo "GOBGP=$gobgp: no netutils.test" >&2; exit 2; }
suite=gobgp
. "$(dirname "$0")/two_ends.sh"

# results COMMAND...: prints the results of GoBGP's TCP-AO tests under that command.
results() {
  "$@" sh -c 'ip link set lo up; exec "$1" -test.v -test.run TCPAO' sh "$gobgp/netutils.test" 2>&1 |
    sed -nE 's/^--- ([A-Z]+: [A-Za-z]+) .*/\1/p'
}
all_pass() { [[ $(grep -c '^PASS: TestTCPAO' "$1") -ge 3 ]] && ! grep -qv '^PASS' "$1"; }
wire
results ip netns exec "$name-a" "$sealane" run --tcp-ao -- >"$dir/ours" || true
check "GoBGP's tests of TCP-AO pass" all_pass "$dir/ours"
cat "$dir/ours"
if [[ $kernel != none && -x $kernels/$kernel ]]; then
  results "$boot" "$kernel" -- >"$dir/theirs" || true
  check "so they do in $kernel" diff "$dir/theirs" "$dir/ours"
elif [[ $kernel != none ]]; then
  echo "SKIP GoBGP's tests in $kernel: no $kernels/$kernel"
fi
exit "$failed"
