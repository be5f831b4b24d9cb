#!/usr/bin/env bash
# BIRD to BIRD with TCP-AO keys of their own: both under sealane, then one inside a real kernel. One that knows nothing
# of TCP-AO is in speakers.sh.
#
#   bird.sh [KERNEL]     KERNEL: linux-7.3 (default), or `none` to leave that part out
#
# BIRD, BIRDC: executables of BIRD 2.17 or newer, built with TCP-AO (default: of PATH). As root: it makes network
# namespaces. Each check writes PASS or FAIL; the counters that each end shows follow. Exit status: 0 all passed, 1 not,
# 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
bird=$(command -v "${BIRD:-bird}") && birdc=$(command -v "${BIRDC:-birdc}") ||
  { echo "no bird and birdc (set BIRD and BIRDC)" >&2; exit 2; }
suite=bird
. "$(dirname "$0")/two_ends.sh"

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
  hold time 15;
  keepalive time 1;
  authentication ao;
  keys { $7 };
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
CONF
}
one='key { id 1; secret "the first key"; algorithm hmac sha256; };'

start() { # END
  local end=$1
  rm -f "$dir/$end.ctl"
  SEALANE_RUNTIME_DIR=$dir/run-$end ip netns exec "$name-$end" "$sealane" run --tcp-ao -- \
    "$bird" -f -c "$dir/$end.conf" -s "$dir/$end.ctl" >"$dir/$end.log" 2>&1 &
  pids+=($!)
  declare -g "pid_$end=$!"
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
established() { [[ $(state "$1") == Established ]]; }
route() { ask "$1" show route | has "$2"; }
same_session() { [[ -n $2 && $(since "$1") == "$2" ]] && established "$1"; }

two='key { id 1; secret "the first key"; algorithm hmac sha256; deprecated; };
     key { send id 2; recv id 3; secret "the second key"; algorithm cmac aes128; preferred; };'
# The keys as the other end has them.
two_b=${two/send id 2; recv id 3/send id 3; recv id 2}
wrong='key { id 1; secret "another key"; algorithm hmac sha256; };'

info() { ask "$1" show protocols all peer | grep -E "$2" || true; }

uses() { info "$1" 'Current key|RNext key' | awk '{ print $NF }' | tr '\n' ' ' | has "^$2 $3 \$"; }

"$bird" --version 2>&1
wire
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
  ip netns exec "$name-a" "$boot" "$kernel" --tap tap -- bash -c "
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
