#!/usr/bin/env bash
# GoBGP with TCP-AO: its own tests of the socket options, and a session with BIRD with keys from a daemon that is
# killed.
#
#   gobgp.sh [KERNEL]     KERNEL: linux-7.3 (default), the reference of GoBGP's tests; or `none`
#
# GOBGP: a folder with `gobgpd`, `gobgp` (`go install github.com/osrg/gobgp/v4/cmd/...@v4.8.0`) and `netutils.test` (in
# a copy of that module: `go test -c ./internal/pkg/netutils`). BIRD, BIRDC: as for bird.sh. As root: it makes network
# namespaces. GoBGP 4.8 has code and tests for the socket options but no configuration for them, so a daemon has the
# keys. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
gobgp=${GOBGP:-.}
for program in gobgpd gobgp netutils.test; do
  [[ -x $gobgp/$program ]] || { echo "GOBGP=$gobgp: no $program" >&2; exit 2; }
done
bird=$(command -v "${BIRD:-bird}") && birdc=$(command -v "${BIRDC:-birdc}") ||
  { echo "no bird and birdc (set BIRD and BIRDC)" >&2; exit 2; }
suite=gobgp
. "$(dirname "$0")/bgp.sh"

# results COMMAND...: prints the results of GoBGP's TCP-AO tests under that command.
results() {
  "$@" sh -c 'ip link set lo up; exec "$1" -test.v -test.run TCPAO' sh "$gobgp/netutils.test" 2>&1 |
    sed -nE 's/^--- ([A-Z]+: [A-Za-z]+) .*/\1/p'
}
all_pass() { [[ $(grep -c '^PASS: TestTCPAO' "$1") -ge 3 ]] && ! grep -qv '^PASS' "$1"; }
"$gobgp/gobgpd" --version
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

cat >"$dir/gobgp.toml" <<TOML
[global.config]
as = 65001
router-id = "192.0.2.1"
[[neighbors]]
[neighbors.config]
neighbor-address = "10.80.0.2"
peer-as = 65002
[neighbors.timers.config]
connect-retry = 2
idle-hold-time-after-reset = 1
hold-time = 15
keepalive-interval = 1
[neighbors.transport.config]
local-address = "10.80.0.1"
TOML
go_bgp() { ip netns exec "$name-a" "$gobgp/gobgp" "$@" 2>&1; }
knows() { go_bgp global rib | has "$1"; }
keys_of_a
check "wire-watch" watch
check "sealane daemon" daemon
config b 2 1 10.80.0.2 10.80.0.1 203.0.113.0/24 "$one"
ip netns exec "$name-a" "$gobgp/gobgpd" -f "$dir/gobgp.toml" >"$dir/a.log" 2>&1 8>&- 9>&- &
gobgpd=$!
pids+=("$gobgpd")
start b
check "a session with GoBGP" within 60 established b
check "routes arrive" within 10 knows 203.0.113.0/24
before=$(since b)
for round in 1 2 3; do
  killed
  config b 2 1 10.80.0.2 10.80.0.1 203.0.$((113 + round)).0/24 "$one"
  ask b configure >"$dir/out"
  go_bgp global rib add 198.51.$((100 + round)).0/24 >"$dir/out"
  check "nothing passes without the daemon ($round)" not_for 4 knows "203.0.$((113 + round)).0/24"
  check "the daemon comes back" daemon
  check "what was said meanwhile arrives" within 20 knows "203.0.$((113 + round)).0/24"
  check "the same at the other end" within 20 route b "198.51.$((100 + round)).0/24"
  check "the session is the same" same_session b "$before"
done
cat "$dir/daemon.log"
show a
kill "$gobgpd"; wait "$gobgpd" || true
stop b
kill "$daemon"; wait "$daemon" || true
check "every segment was signed" watched
exit "$failed"
