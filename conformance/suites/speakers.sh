#!/usr/bin/env bash
# BGP speakers of Debian 12 that know nothing of TCP-AO, each in a session with BIRD: FRR, ExaBGP, OpenBGPD, GoBGP, BIRD,
# and BIRD's RTR session with StayRTR. A daemon at each end has a key chain that rolls over amid the sessions, and is
# killed and started again.
#
#   [SPEAKERS_ROOT=FOLDER] speakers.sh
#
# SPEAKERS_ROOT: a folder of speakers_root.sh, target/speakers without it. As root: it makes network namespaces. Each
# check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
. "$(dirname "$0")/common.sh"
speakers=${SPEAKERS_ROOT:-$root/target/speakers}
[[ $EUID -eq 0 ]] || { echo "SKIP speakers: only root may make network namespaces"; exit 77; }
"$root/conformance/suites/speakers_root.sh" "$speakers" || { echo "SKIP speakers: they cannot be had from Debian 12"; exit 77; }
suite=speakers
. "$root/conformance/suites/two_ends.sh"
cat "$speakers/version"

# The end of a name is the last number of its address, of its AS and of its route.
declare -A number=([frr]=11 [exabgp]=12 [openbgpd]=13 [gobgp]=14 [bird]=15)
rtr_number=16

# in_root END COMMAND...: runs it in the namespace of that end, with the speakers' folder as its root and `dir` as /run.
in_root() {
  SPEAKERS=$speakers RUN=$dir/root-$1 ip netns exec "$name-$1" unshare -m --propagation private bash -ec '
    mount --bind "$RUN" "$SPEAKERS/run"
    mount -t proc proc "$SPEAKERS/proc"
    mount --rbind /dev "$SPEAKERS/dev"
    exec chroot "$SPEAKERS" "$@"' in_root "${@:2}"
}
# begin WHAT END COMMAND...: starts it there, and ends it with the script.
begin() {
  in_root "${@:2}" >"$dir/$1.log" 2>&1 </dev/null &
}
# Whatever runs in the namespaces of the ends belongs to this script.
ends_speakers() {
  local end
  for end in a b; do ip netns pids "$name-$end" | xargs -r kill 2>/dev/null || true; done
  cleanup
}
trap ends_speakers EXIT

# keys END PREFIX SECOND: the configuration of the daemon of an end. The second key is used from that time on.
keys() {
  local -a first=(1 2) second=(3 4)
  [[ $1 == a ]] || { first=(2 1); second=(4 3); }
  cat >"$dir/keys-$1.toml" <<TOML
[[key-chain]]
name = "chain"
accept-tolerance = "1m"
[[key-chain.key]]
send-id = ${first[0]}
recv-id = ${first[1]}
algorithm = "hmac(sha256)"
secret = "the first key"
lifetime = { start = 2020-01-01T00:00:00Z, end = $3 }
[[key-chain.key]]
send-id = ${second[0]}
recv-id = ${second[1]}
algorithm = "cmac(aes128)"
secret = "the second key"
send-lifetime = { start = $3 }
accept-lifetime = { start = 2020-01-01T00:00:00Z }
[[peer]]
name = "the other end"
prefix = "$2"
port = [179, 8282]
key-chain = "chain"
TOML
  chmod 600 "$dir/keys-$1.toml"
}
# daemon END: starts it.
daemon() {
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" daemon --config "$dir/keys-$1.toml" >"$dir/daemon-$1.log" 2>&1 &
  declare -g "daemon_$1=$!"
  pids+=($!)
  within 10 grep -qs 'peers protected' "$dir/daemon-$1.log"
}
killed() { # END
  local pid="daemon_$1"
  kill -KILL "${!pid}"
  { wait "${!pid}" || true; } 2>/dev/null
}
# uses END KEY: whether all connections of that end are signed with this key.
uses() {
  local used
  used=$(SEALANE_RUNTIME_DIR=$dir/run-$1 "$sealane" tcp-ao show --json 2>/dev/null | python3 -c '
import json, sys
print(*sorted({s["current"] for i in json.load(sys.stdin) for n in i["namespaces"] for s in n["sockets"] if s["state"] == "established"}))') || return 1
  [[ $used == "$2" ]]
}

bird() { in_root b /usr/sbin/birdc -s /run/bird.ctl "$@" 2>/dev/null; }
session() { bird show protocols "peer_$1" | awk -v name="peer_$1" '$1 == name { print $4, $5, $6 }'; }
established() { session "$1" | has 'Established$'; }
same_session() { [[ $2 == *Established && $(session "$1") == "$2" ]]; }
route() { bird show route "$1" protocol "peer_$2" | has "^$1"; }
bird_has_roa() { bird show route table roas | has '^198.51.11.0/24-24'; }

wire
for end in a b; do mkdir -p "$dir/root-$end"/{frr,openbgpd}; done
for n in "${number[@]}" $rtr_number; do ip -n "$name-a" addr add "10.80.0.$n/24" dev veth; done

cat >"$dir/root-a/frr.conf" <<CONF
router bgp 65011
 bgp router-id 192.0.2.11
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor 10.80.0.2 remote-as 65002
 neighbor 10.80.0.2 update-source 10.80.0.11
 neighbor 10.80.0.2 timers 1 20
 neighbor 10.80.0.2 timers connect 2
 address-family ipv4 unicast
  network 198.51.11.0/24
 exit-address-family
CONF
cat >"$dir/root-a/exabgp.conf" <<CONF
neighbor 10.80.0.2 {
  router-id 192.0.2.12;
  local-address 10.80.0.12;
  local-as 65012;
  peer-as 65002;
  hold-time 20;
  static { route 198.51.12.0/24 next-hop self; }
}
CONF
cat >"$dir/root-a/openbgpd.conf" <<CONF
AS 65013
router-id 192.0.2.13
fib-update no
connect-retry 2
listen on 10.80.0.13
network 198.51.13.0/24
neighbor 10.80.0.2 {
  remote-as 65002
  local-address 10.80.0.13
  holdtime 20
}
allow from any
allow to any
CONF
chmod 600 "$dir/root-a/openbgpd.conf"
cat >"$dir/root-a/gobgp.toml" <<TOML
[global.config]
as = 65014
router-id = "192.0.2.14"
local-address-list = ["10.80.0.14"]
[[neighbors]]
[neighbors.config]
neighbor-address = "10.80.0.2"
peer-as = 65002
[neighbors.timers.config]
connect-retry = 2
idle-hold-time-after-reset = 1
hold-time = 20
keepalive-interval = 1
[neighbors.transport.config]
local-address = "10.80.0.14"
TOML
# bird_session NAME LOCAL LOCAL-AS PEER PEER-AS ROUTES STRICT: a session in BIRD's words; STRICT: yes binds LOCAL only.
bird_session() {
  cat <<CONF
protocol bgp peer_$1 {
  local $2 as $3;
  neighbor $4 as $5;
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 2;
  hold time 20;
  keepalive time 1;
  strict bind $7;
  ipv4 { import all; export $6; };
}
CONF
}
{
  echo 'log stderr all; router id 192.0.2.15; protocol device { }'
  echo 'protocol static { ipv4; route 198.51.15.0/24 blackhole; }'
  bird_session b 10.80.0.15 65015 10.80.0.2 65002 all yes
} >"$dir/root-a/bird.conf"
cat >"$dir/root-a/roas.json" <<JSON
{"roas": [{"prefix": "198.51.11.0/24", "maxLength": 24, "asn": "AS65011", "ta": "test"}]}
JSON
{
  echo 'log stderr all; debug protocols { states, events }; router id 192.0.2.2; protocol device { }'
  echo 'protocol static { ipv4; route 203.0.113.0/24 blackhole; }'
  echo 'roa4 table roas;'
  echo "protocol rpki peer_rtr { roa4 { table roas; }; remote 10.80.0.$rtr_number port 8282; retry keep 60; refresh keep 8; expire keep 600; }"
  for speaker in "${!number[@]}"; do
    bird_session "$speaker" 10.80.0.2 65002 "10.80.0.${number[$speaker]}" "650${number[$speaker]}" 'where source = RTS_STATIC' no
  done
} >"$dir/root-b/bird.conf"

# Segments that leave, by end and port: each has to be signed. A watch ends when nobody holds its standard input any more.
watches=() holders=()
for end in a b; do
  for port in 179 8282; do
    mkfifo "$dir/end-$end-$port"
    ip netns exec "$name-$end" "$root/target/release/wire-watch" veth $port <"$dir/end-$end-$port" >"$dir/wire-$end-$port" 2>&1 &
    watches+=($!)
    sleep 600 >"$dir/end-$end-$port" &
    holders+=($!)
    check "a watch of port $port at $end" within 10 grep -qs watching "$dir/wire-$end-$port"
  done
done
pids+=("${holders[@]}" "${watches[@]}")
all_signed() {
  local status=0 watch
  kill "${holders[@]}"
  for watch in "${watches[@]}"; do wait "$watch" || status=1; done
  grep -H signed "$dir"/wire-* | sed 's/.*wire-//'
  return "$status"
}

soon=40
roll=$(date -u -d "+$soon seconds" +%Y-%m-%dT%H:%M:%SZ)
until_roll=$((SECONDS + soon))
keys a 10.80.0.2 "$roll"
keys b 10.80.0.0/24 "$roll"
check "the daemon of a" daemon a
check "the daemon of b" daemon b

begin stayrtr a /usr/bin/stayrtr -bind 10.80.0.$rtr_number:8282 -checktime=false -cache /run/roas.json -metrics.addr ''
begin frr a /usr/lib/frr/bgpd -S -n -Z -l 10.80.0.11 -f /run/frr.conf -i /run/frr/bgpd.pid --vty_socket /run/frr --log stdout
exabgp_daemon_drop=false exabgp_daemon_user=root exabgp_log_destination=stdout exabgp_api_cli=false \
  begin exabgp a /usr/bin/python3 -m exabgp /run/exabgp.conf
begin openbgpd a /usr/sbin/bgpd -d -f /run/openbgpd.conf
begin gobgp a /usr/bin/gobgpd -f /run/gobgp.toml
begin bird a /usr/sbin/bird -f -c /run/bird.conf -s /run/bird.ctl
begin b b /usr/sbin/bird -f -c /run/bird.conf -s /run/bird.ctl
sessions=("${!number[@]}" rtr)
for speaker in "${sessions[@]}"; do check "a session with $speaker" within 20 established "$speaker"; done
check "GoBGP takes a route" in_root a /usr/bin/gobgp global rib add 198.51.14.0/24
for speaker in "${!number[@]}"; do
  check "the route of $speaker arrives" within 10 route "198.51.${number[$speaker]}.0/24" "$speaker"
done
check "so does what StayRTR says" within 10 bird_has_roa
declare -A before
for speaker in "${sessions[@]}"; do before[$speaker]=$(session "$speaker" || true); done

all_same() { # WHEN
  for speaker in "${sessions[@]}"; do check "the session with $speaker is the same $1" same_session "$speaker" "${before[$speaker]}"; done
}
for end in a b; do
  killed $end
  sleep 1
  check "the daemon of $end is back" daemon $end
  sleep 4
done
check "all segments are still signed with the first key" uses a 1
all_same "after both daemons were killed"
while ((SECONDS < until_roll)); do sleep 0.5; done
check "all sessions of a change to the second key" within 20 uses a 3
check "those of b, too" within 10 uses b 4
# Longer than the hold time: what is said in either direction has to arrive.
sleep 20
all_same "after the key has changed"
killed a
sleep 1
check "the daemon of a is back after that" daemon a
sleep 3
all_same "after that"
check "GoBGP takes another route" in_root a /usr/bin/gobgp global rib add 198.51.114.0/24
check "it arrives" within 10 route 198.51.114.0/24 gobgp
for end in a b; do
  pid="daemon_$end"
  kill "${!pid}" && wait "${!pid}" || true
done
check "every segment was signed" all_signed
for end in a b; do SEALANE_RUNTIME_DIR=$dir/run-$end ip netns exec "$name-$end" "$sealane" tcp-ao clear; done
exit "$failed"
