#!/usr/bin/env bash
# BIRD to BIRD with TCP-AO: both under sealane, then one inside a real kernel.
#
#   bird.sh [KERNEL]     KERNEL: linux-7.3 (default), or `none` to leave that part out
#
# BIRD, BIRDC: executables of BIRD 2.17 or newer, built with TCP-AO (default: of PATH). As root: it makes network namespaces.
# Each check writes PASS or FAIL; the counters that each end shows follow. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
bird=$(command -v "${BIRD:-bird}") && birdc=$(command -v "${BIRDC:-birdc}") ||
  { echo "no bird and birdc (set BIRD and BIRDC)" >&2; exit 2; }
[[ $EUID -eq 0 ]] || { echo "bird.sh: only root may make network namespaces" >&2; exit 2; }
dir=$(mktemp -d "$work/bird.XXXXXX")
name=bird$$
failed=0 pids=()

cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  ip netns del "$name-a" 2>/dev/null || true
  ip netns del "$name-b" 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT

# config END LOCAL-AS PEER-AS LOCAL PEER ROUTE KEYS: writes a configuration.
config() {
  cat >"$dir/$1.conf" <<CONF
log stderr all;
router id 192.0.2.$2;
protocol device { }
protocol static { ipv4; route $6 blackhole; }
protocol bgp peer {
  local $4 as 6500$2;
  neighbor $5 as 6500$3;
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 2;
  authentication ao;
  keys { $7 };
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
CONF
}
one='key { id 1; secret "the first key"; algorithm hmac sha256; };'
two='key { id 1; secret "the first key"; algorithm hmac sha256; deprecated; };
     key { send id 2; recv id 3; secret "the second key"; algorithm cmac aes128; preferred; };'
# Seen from the other end.
two_b=${two/send id 2; recv id 3/send id 3; recv id 2}
wrong='key { id 1; secret "another key"; algorithm hmac sha256; };'

# start END: BIRD of that end under sealane, in its namespace.
start() {
  rm -f "$dir/$1.ctl"
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" run --tcp-ao -- \
    "$bird" -f -c "$dir/$1.conf" -s "$dir/$1.ctl" >"$dir/$1.log" 2>&1 &
  pids+=($!)
  declare -g "pid_$1=$!"
}
stop() {
  local pid="pid_$1"
  kill "${!pid}" 2>/dev/null || true
  wait "${!pid}" 2>/dev/null || true
}
ask() { "$birdc" -s "$dir/$1.ctl" "${@:2}" 2>/dev/null; }
state() { ask "$1" show protocols all peer | sed -nE 's/^ +BGP state: +//p'; }
since() { ask "$1" show protocols peer | awk '$1 == "peer" { print $5, $6 }'; }
show() { SEALANE_RUNTIME_DIR=$dir/run-$1 "$sealane" tcp-ao show 2>/dev/null | sed -n '1,14p' || true; }
info() { ask "$1" show protocols all peer | grep -E "$2" || true; }

check() { # WHAT COMMAND...
  if "${@:2}"; then echo "PASS $1"; else
    echo "FAIL $1"; failed=1
    for end in a b; do tail -n 5 "$dir/$end.log" 2>/dev/null || true; done
  fi
}
within() { # SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1)); shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.2; done
}
established() { [[ $(state "$1") == Established ]]; }
not_for() { # SECONDS COMMAND...: never succeeds meanwhile
  ! within "$@"
}
route() { ask "$1" show route | grep -q "$2"; }
uses() { info "$1" 'Current key|RNext key' | awk '{ print $NF }' | tr '\n' ' ' | grep -qx "$2 $3 "; }
same_session() { [[ -n $2 && $(since "$1") == "$2" ]] && established "$1"; }

echo "$("$bird" --version 2>&1)"
ip netns add "$name-a"; ip netns add "$name-b"
for end in a b; do ip -n "$name-$end" link set lo up; done
ip -n "$name-a" link add veth type veth peer name veth netns "$name-b"
ip -n "$name-a" addr add 10.80.0.1/24 dev veth; ip -n "$name-b" addr add 10.80.0.2/24 dev veth
for end in a b; do ip -n "$name-$end" link set veth up; done

config a 1 2 10.80.0.1 10.80.0.2 198.51.100.0/24 "$one"
config b 2 1 10.80.0.2 10.80.0.1 203.0.113.0/24 "$one"
start a; start b
check "a session of two BIRDs under sealane" within 30 established a
check "the same at the other end" within 10 established b
check "routes arrive" within 10 route a 203.0.113.0/24
check "routes arrive at the other end" within 10 route b 198.51.100.0/24

before=$(since a)
config a 1 2 10.80.0.1 10.80.0.2 198.51.100.0/24 "$two"
config b 2 1 10.80.0.2 10.80.0.1 203.0.113.0/24 "$two_b"
ask a configure >"$dir/out" && ask b configure >"$dir/out"
check "birdc configure changes the key" within 100 uses a 2 3
check "the same at the other end" within 100 uses b 3 2
check "the session is the same" same_session a "$before"
info a 'Authentication|Current key|RNext key'
show a; show b

stop b
config b 2 1 10.80.0.2 10.80.0.1 203.0.113.0/24 "$wrong"
config a 1 2 10.80.0.1 10.80.0.2 198.51.100.0/24 "$one"
ask a configure >"$dir/out"
start b
check "a wrong key is refused" not_for 10 established a
show a
stop b
config b 2 1 10.80.0.2 10.80.0.1 203.0.113.0/24 "$one"
start b
check "the right one is not" within 30 established a
stop b; stop a

if [[ $kernel != none && -x $kernels/$kernel ]]; then
  ip -n "$name-a" tuntap add tap mode tap
  ip -n "$name-a" addr add 10.81.0.1/24 dev tap
  ip -n "$name-a" link set tap up
  config a 1 2 10.81.0.1 10.81.0.2 198.51.100.0/24 "$one"
  config b 2 1 10.81.0.2 10.81.0.1 203.0.113.0/24 "$one"
  start a
  ip netns exec "$name-a" "$kernels/boot" "$kernel" --tap tap -- bash -c "
    ip addr add 10.81.0.2/24 dev vec0; ip link set vec0 up
    '$bird' -f -c '$dir/b.conf' -s /run/bird.ctl 2>/run/bird.log &
    for i in {1..300}; do
      '$birdc' -s /run/bird.ctl show protocols all peer 2>/dev/null >/run/state
      grep -q 'BGP state: *Established' /run/state && break
      sleep 0.1
    done
    sleep 3
    '$birdc' -s /run/bird.ctl show protocols all peer
    '$birdc' -s /run/bird.ctl show route
    awk '/^TcpExt/ { for (i = 2; i <= NF; i++) if (!h) n[i] = \$i; else if (n[i] ~ /^TCPAO/) printf \"%s %s  \", n[i], \$i; h = 1 }' \\
      /proc/net/netstat; echo" >"$dir/kernel.log" 2>&1 &
  guest=$!
  check "a session with a BIRD inside $kernel" within 40 established a
  check "routes arrive" within 10 route a 203.0.113.0/24
  info a 'Authentication|Current key|RNext key'
  show a
  wait "$guest" || true
  check "the same at its end" grep -q 'BGP state: *Established' "$dir/kernel.log"
  check "routes at its end" grep -q '198.51.100.0/24' "$dir/kernel.log"
  grep -E 'Authentication|Current key|RNext key|TCPAO' "$dir/kernel.log" || cat "$dir/kernel.log"
  stop a
elif [[ $kernel != none ]]; then
  echo "SKIP a BIRD inside $kernel: no $kernels/$kernel"
fi
exit "$failed"
