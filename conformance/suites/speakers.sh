#!/usr/bin/env bash
# BGP speakers and RTR (RPKI to router) as Debian 12 ships them, which know nothing of TCP-AO, with `sealane daemon` at
# both ends: wrong keys, key chains that roll over in a session, daemons that are stopped and killed.
#
#   speakers.sh [SPEAKER...]     bird, frr, openbgpd, exabgp, gobgp: a session with BIRD
#                                rtr-bird, rtr-frr: clients of stayrtr; all of them by default
#
# Each end is in a machine that programs.py makes. As root: it makes network namespaces. Each check writes PASS or FAIL.
# Exit status: 0 all passed, 1 not, 2 or 77 could not try.
. "$(dirname "$0")/common.sh"
if (($# != 1)); then
  (($#)) || set -- bird frr openbgpd exabgp gobgp rtr-bird rtr-frr
  failed=0
  for speaker; do
    status=0
    "$0" "$speaker" || status=$?
    ((status != 77)) || exit 77
    ((status == 0)) || failed=1
  done
  exit "$failed"
fi
suite=speakers
. "$(dirname "$0")/two_ends.sh"
programs=$(realpath "$(dirname "$0")/programs.py")
case $1 in
  rtr-bird | rtr-frr) declare -A speaker=([a]=${1/-/_} [b]=stayrtr); port=323; tell=(b) ;;
  bird | frr | openbgpd | exabgp | gobgp) declare -A speaker=([a]=$1 [b]=bird); port=179; tell=(a b) ;;
  *) echo "speakers.sh: no speaker $1" >&2; exit 2 ;;
esac
declare -A address=([a]=10.80.0.1 [b]=10.80.0.2) as=([a]=65001 [b]=65002) other=([a]=b [b]=a)

# machine END: makes that end's machine. inside END COMMAND...: runs a command in it. file END PATH: its path from here.
machine() {
  mkdir "$dir/machine-$1"
  ip netns exec "$name-$1" python3 "$programs" --enter "$dir/machine-$1" sh -c 'touch /run/ready; exec sleep infinity' \
    >"$dir/$1.log" 2>&1 8>&- 9>&- &
  declare -g "machine_$1=$!"
  within 60 ready "$1" || { cat "$dir/$1.log"; return 1; }
}
unplug() { # Ends both machines, with all that runs in them.
  local machine
  for machine in ${machine_a:-} ${machine_b:-}; do { kill -KILL "$machine"; wait "$machine"; } 2>/dev/null || true; done
  machine_a='' machine_b=''
}
trap 'unplug; cleanup' EXIT
ready() {
  local machine="machine_$1" first
  first=$(pgrep -P "${!machine}") && [[ -e /proc/$first/root/run/ready ]] && declare -g "first_$1=$first"
}
inside() {
  local first="first_$1"
  nsenter -t "${!first}" -m -p -n -r -w -- env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
    "${@:2}"
}
file() { local first="first_$1"; echo "/proc/${!first}/root$2"; }
start() { inside "$@" >>"$dir/$1.log" 2>&1 8>&- 9>&- & } # END COMMAND...
answers() { within 60 inside "$@" >"$dir/out" 2>&1 || tail -n 2 "$dir/out"; } # END COMMAND...

# Each speaker can start, tell a route (or a route's origin), and be asked whether it knows one: END PREFIX.
bird_start() {
  : >"$(file "$1" /run/routes)"
  cat >"$(file "$1" /etc/bird/bird.conf)" <<CONF
log stderr all;
router id ${address[$1]};
protocol device { }
protocol static {
  ipv4;
  include "/run/routes";
}
protocol bgp peer {
  local ${address[$1]} as ${as[$1]};
  neighbor ${address[${other[$1]}]} as ${as[${other[$1]}]};
  connect delay time 1;
  connect retry time 2;
  error wait time 1, 2;
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
CONF
  bird_runs "$1"
}
bird_runs() {
  inside "$1" install -d -o bird -g bird /run/bird
  start "$1" bird -f -u bird -g bird
  answers "$1" birdc show status
}
bird_tell() { echo "route $2 blackhole;" >>"$(file "$1" /run/routes)" && inside "$1" birdc configure; }
bird_knows() { inside "$1" birdc show route table all | has "^$2 "; }

rtr_bird_start() {
  cat >"$(file "$1" /etc/bird/bird.conf)" <<CONF
log stderr all;
router id ${address[$1]};
protocol device { }
roa4 table origins;
protocol rpki server {
  roa4 { table origins; };
  remote ${address[${other[$1]}]} port $port;
  retry keep 2;
}
CONF
  bird_runs "$1"
}
rtr_bird_knows() { bird_knows "$1" "$2-24 AS65001"; }

frr_start() {
  cat >"$(file "$1" /etc/frr/bgpd.conf)" <<CONF
router bgp ${as[$1]}
 bgp router-id ${address[$1]}
 no bgp ebgp-requires-policy
 no bgp network import-check
 neighbor ${address[${other[$1]}]} remote-as ${as[${other[$1]}]}
 neighbor ${address[${other[$1]}]} timers connect 2
CONF
  frr_runs "$1"
}
frr_runs() { # END [OPTION...] of bgpd
  : >"$(file "$1" /etc/frr/zebra.conf)"
  inside "$1" sh -c 'install -d -o frr -g frr /run/frr; chown -R frr:frr /etc/frr'
  start "$1" /usr/lib/frr/zebra -A 127.0.0.1 -f /etc/frr/zebra.conf --log stdout
  start "$1" /usr/lib/frr/bgpd -A 127.0.0.1 -f /etc/frr/bgpd.conf --log stdout "${@:2}"
  answers "$1" vtysh -d bgpd -c 'show version'
}
frr_tell() {
  inside "$1" vtysh -d bgpd -c 'configure terminal' -c "router bgp ${as[$1]}" -c 'address-family ipv4 unicast' -c "network $2"
}
frr_knows() { inside "$1" vtysh -d bgpd -c "show bgp ipv4 unicast $2" | has '^BGP routing table entry'; }

rtr_frr_start() {
  cat >"$(file "$1" /etc/frr/bgpd.conf)" <<CONF
router bgp ${as[$1]}
 bgp router-id ${address[$1]}
rpki
 rpki polling_period 5
 rpki retry_interval 2
 rpki cache ${address[${other[$1]}]} $port preference 1
 exit
CONF
  frr_runs "$1" -M rpki
}
rtr_frr_knows() { inside "$1" vtysh -d bgpd -c 'show rpki prefix-table' | has "^${2%/*} .* 65001"; }

openbgpd_start() {
  cat >"$(file "$1" /run/bgpd.conf)" <<CONF
AS ${as[$1]}
router-id ${address[$1]}
fib-update no
listen on ${address[$1]}
neighbor ${address[${other[$1]}]} {
  remote-as ${as[${other[$1]}]}
  local-address ${address[$1]}
}
allow from any
allow to any
CONF
  chmod 600 "$(file "$1" /run/bgpd.conf)"
  mkdir "$(file "$1" /run/openbgpd)"
  start "$1" bgpd -d -f /run/bgpd.conf
  answers "$1" bgpctl show
}
openbgpd_tell() { inside "$1" bgpctl network add "$2"; }
openbgpd_knows() { inside "$1" bgpctl show rib "$2" | has "$2"; }

# Its routes come from a program that writes them, and it writes to that program those of its peers.
exabgp_start() {
  : >"$(file "$1" /run/tell)"
  : >"$(file "$1" /run/heard)"
  cat >"$(file "$1" /run/routes)" <<'SH'
#!/bin/sh
exec 3<&0
cat <&3 >>/run/heard &
exec tail -n +1 -f /run/tell
SH
  cat >"$(file "$1" /run/exabgp.conf)" <<CONF
process routes {
  run /run/routes;
  encoder text;
}
neighbor ${address[${other[$1]}]} {
  router-id ${address[$1]};
  local-address ${address[$1]};
  local-as ${as[$1]};
  peer-as ${as[${other[$1]}]};
  family { ipv4 unicast; }
  api {
    processes [ routes ];
    receive { parsed; update; }
  }
}
CONF
  chmod 755 "$(file "$1" /run/routes)"
  start "$1" env exabgp.daemon.user=root exabgp.api.cli=false exabgp.log.destination=stderr exabgp /run/exabgp.conf
}
exabgp_tell() { echo "announce route $2 next-hop self" >>"$(file "$1" /run/tell)"; }
exabgp_knows() { has "announced $2 " <"$(file "$1" /run/heard)"; }

gobgp_start() {
  cat >"$(file "$1" /run/gobgpd.conf)" <<CONF
[global.config]
as = ${as[$1]}
router-id = "${address[$1]}"
[[neighbors]]
[neighbors.config]
neighbor-address = "${address[${other[$1]}]}"
peer-as = ${as[${other[$1]}]}
[neighbors.timers.config]
connect-retry = 2
idle-hold-time-after-reset = 1
[neighbors.transport.config]
local-address = "${address[$1]}"
CONF
  start "$1" gobgpd -f /run/gobgpd.conf
  answers "$1" gobgp global
}
gobgp_tell() { inside "$1" gobgp global rib add "$2"; }
gobgp_knows() { inside "$1" gobgp global rib | has " $2 "; }

stayrtr_start() {
  : >"$dir/origins"
  origins "$1"
  start "$1" stayrtr -bind "${address[$1]}:$port" -cache /run/origins.json -refresh 1 -checktime=false -slurm.refresh=false
}
origins() {
  printf '{"metadata":{"buildtime":"%s"},"roas":[%s]}\n' "$(date -u +%FT%TZ)" "$(paste -sd, "$dir/origins")" >"$(file "$1" /run/new)"
  mv "$(file "$1" /run/new)" "$(file "$1" /run/origins.json)"
}
stayrtr_tell() { echo "{\"prefix\":\"$2\",\"maxLength\":24,\"asn\":\"AS65001\",\"ta\":\"suite\"}" >>"$dir/origins"; origins "$1"; }

# keys END SECRET [FROM UNTIL]: writes a daemon's configuration; with times, its key ends, and another one has followed.
keys() {
  local ids=(2 3)
  [[ $1 == a ]] || ids=(3 2)
  cat >"$dir/$1.toml" <<TOML
[[peer]]
name = "other end"
prefix = "${address[${other[$1]}]}"
port = $port
key-chain = "chain"
[[key-chain]]
name = "chain"
[[key-chain.key]]
send-id = 1
recv-id = 1
algorithm = "hmac(sha256)"
secret = "$2"
lifetime = { start = 2020-01-01T00:00:00Z${4:+, end = $4} }
TOML
  [[ -z ${3:-} ]] || cat >>"$dir/$1.toml" <<TOML
[[key-chain.key]]
send-id = ${ids[0]}
recv-id = ${ids[1]}
algorithm = "cmac(aes128)"
secret = "the second key"
lifetime = { start = $3 }
TOML
  chmod 600 "$dir/$1.toml"
}
daemon() { serve "$1" 'peers protected'; }
ends() { # END SIGNAL
  local pid="daemon_$1"
  kill "-$2" "${!pid}"
  { wait "${!pid}" || true; } 2>/dev/null
}
reload() { # END
  local pid="daemon_$1"
  kill -HUP "${!pid}"
  within 10 grep -q 'read again' "$dir/daemon-$1.log"
}
metrics() { SEALANE_RUNTIME_DIR=$dir/run-$1 "$sealane" tcp-ao show --metrics; }

declare -A net=([a]=198.51 [b]=203.0)
say() { # NUMBER of the routes
  local end
  for end in "${tell[@]}"; do "${speaker[$end]}_tell" "$end" "${net[$end]}.$1.0/24" >>"$dir/$end.log" 2>&1 || return 1; done
}
knows() { "${speaker[${other[$1]}]}_knows" "${other[$1]}" "${net[$1]}.$2.0/24" 2>>"$dir/$1.log"; } # what END has said
all_known() { local end; for end in "${tell[@]}"; do knows "$end" "$1" || return 1; done; }
any_known() { local end; for end in "${tell[@]}"; do ! knows "$end" "$1" || return 0; done; return 1; }
# Both addresses of the one connection, as end a sees them: without a device that it is bound to, IPv4 as itself.
session() {
  ip netns exec "$name-a" ss -Htn state established "( sport = :$port or dport = :$port )" |
    awk '{ gsub(/%[a-z]*|\[::ffff:|\]/, ""); print $3, $4 }'
}
one_session() { [[ $(session | wc -l) == 1 ]]; }
same_session() { [[ -n $before && $(session) == "$before" ]]; }
uses() { # END SEND-ID
  metrics "$1" | grep -F "\"${before% *}\"" | grep -F "\"${before#* }\"" | has "current_send_id.* $2\$"
}
refused() { { metrics a; metrics b; } | has 'drops_total.*reason="mac".* [1-9]'; }
past() { (($(date +%s) > $1)); }
at() { date -u -d "@$1" +%FT%TZ; }

python3 "$programs" --enter "$(mktemp -d "$dir/XXXXXX")" true || exit
wire
check "$1: wire-watch" watch "$port"
keys a "the first key"
keys b "another key"
for end in a b; do check "$1: daemon $end" daemon "$end"; done
for end in b a; do
  check "$1: machine $end" machine "$end"
  "${speaker[$end]}_start" "$end"
done
check "$1: it takes a route" say 1
check "$1: with a wrong key segments are refused" within 60 refused
check "$1: and nothing is known" not_for 2 any_known 1
keys b "the first key"
check "$1: a reload mends that" reload b
check "$1: a session" within 120 all_known 1
check "$1: one connection" within 60 one_session
before=$(session)

number=1
for end in a:TERM b:KILL b:TERM a:KILL; do
  number=$((number + 1))
  ends "${end%:*}" "${end#*:}"
  say "$number"
  check "$1: nothing passes without the daemon ($end)" not_for 2 any_known "$number"
  check "$1: the daemon comes back ($end)" daemon "${end%:*}"
  check "$1: what was said meanwhile arrives ($end)" within 60 all_known "$number"
  check "$1: the session is the same ($end)" same_session
done

now=$(date +%s)
for end in a b; do
  keys "$end" "the first key" "$(at $((now + 5)))" "$(at $((now + 10)))"
  check "$1: daemon $end reads a chain of two keys" reload "$end"
done
check "$1: the key changes at end a" within 60 uses a 2
check "$1: the key changes at end b" within 60 uses b 3
within 60 past $((now + 10))
for end in a b; do ends "$end" KILL; done
for end in a b; do check "$1: daemon $end comes back after the first key's end" daemon "$end"; done
say 9
check "$1: routes arrive" within 60 all_known 9
check "$1: the session is the same" same_session

unplug
for end in a b; do ends "$end" TERM; done
check "$1: every segment was signed" watched
exit "$failed"
