# Sourced by the suites of BGP speakers, after common.sh: two namespaces with a wire, configurations of BIRD, a daemon
# that can be killed, a watch of the wire. `bird` and `birdc` are its executables, `suite` is the name of the script.
. "$(dirname "$0")/two_ends.sh"

# config END LOCAL-AS PEER-AS LOCAL PEER ROUTE KEYS: writes a configuration, without TCP-AO when there are no keys.
config() {
  local auth=
  [[ -z $7 ]] || auth="authentication ao; keys { $7 };"
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
  $auth
  ipv4 { import all; export where source = RTS_STATIC; next hop self; };
}
CONF
}
one='key { id 1; secret "the first key"; algorithm hmac sha256; };'

# start END [COMMAND...]: starts BIRD of that end in its namespace, under that command (sealane run).
start() {
  local end=$1 under=("$sealane" run --tcp-ao --)
  (($# == 1)) || under=("${@:2}")
  rm -f "$dir/$end.ctl"
  SEALANE_RUNTIME_DIR=$dir/run-$end ip netns exec "$name-$end" "${under[@]}" \
    "$bird" -f -c "$dir/$end.conf" -s "$dir/$end.ctl" >"$dir/$end.log" 2>&1 8>&- 9>&- &
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

# keys_of_a [TIME]: the configuration of the daemon of end a; with a time, the first key ends then and another one
# follows.
keys_of_a() {
  cat >"$dir/keys.toml" <<TOML
[[peer]]
name = "b"
prefix = "10.80.0.2"
port = 179
[[peer.key]]
send-id = 1
recv-id = 1
algorithm = "hmac(sha256)"
secret = "the first key"
lifetime = { start = 2020-01-01T00:00:00Z${1:+, end = $1} }
TOML
  if [[ -n ${1:-} ]]; then
    cat >>"$dir/keys.toml" <<TOML
[[peer.key]]
send-id = 2
recv-id = 3
algorithm = "cmac(aes128)"
secret = "the second key"
lifetime = { start = 2020-01-02T00:00:00Z }
TOML
  fi
  chmod 600 "$dir/keys.toml"
}
daemon() {
  SEALANE_RUNTIME_DIR=$dir/run-a ip netns exec "$name-a" "$sealane" daemon --config "$dir/keys.toml" >"$dir/daemon.log" 2>&1 8>&- 9>&- &
  daemon=$!
  pids+=("$daemon")
  within 10 grep -q 'peers protected' "$dir/daemon.log"
}
killed() {
  kill -KILL "$daemon"
  { wait "$daemon" || true; } 2>/dev/null
}

# watch: counts outbound segments of each end, signed and not. watched: ends it, and succeeds when all were signed.
watch() {
  for end in a b; do
    mkfifo "$dir/end-$end"
    ip netns exec "$name-$end" "$root/target/release/wire-watch" veth 179 <"$dir/end-$end" >"$dir/wire-$end" 2>&1 8>&- 9>&- &
    declare -g "watch_$end=$!"
    if [[ $end == a ]]; then exec 8>"$dir/end-a"; else exec 9>"$dir/end-b"; fi
    within 10 grep -q watching "$dir/wire-$end" || return 1
  done
}
watched() { # No other process may hold descriptors 8 and 9.
  exec 8>&- 9>&-
  local status=0
  wait "$watch_a" || status=1
  wait "$watch_b" || status=1
  grep -h signed "$dir/wire-a" "$dir/wire-b"
  return "$status"
}
