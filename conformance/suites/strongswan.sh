#!/usr/bin/env bash
# strongSwan to strongSwan, both unmodified and under `sealane run`: tunnel and transport, plain and in UDP, trap policies,
# rekeying under traffic, termination; between two network namespaces whose kernel's own IPsec has nothing to do with it.
#
#   strongswan.sh
#
# CHARON (/usr/sbin/charon-systemd) and swanctl of Debian's charon-systemd and strongswan-swanctl, as root.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
charon=${CHARON:-/usr/sbin/charon-systemd}
[[ $EUID -eq 0 ]] || { echo "strongswan: only root may make network namespaces" >&2; exit 2; }
[[ -x $charon ]] && command -v swanctl >/dev/null || { echo "strongswan: needs charon-systemd and strongswan-swanctl" >&2; exit 2; }
dir=$(mktemp -d "$work/strongswan.XXXXXX")
name=swan$$
failed=0 pids=()
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  ip netns del "$name-a" 2>/dev/null || true
  ip netns del "$name-b" 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
check() { # WHAT COMMAND...
  if "${@:2}"; then echo "PASS $1"; else
    echo "FAIL $1"; failed=1
    for end in a b; do tail -n 5 "$dir/$end/log" 2>/dev/null || true; done
  fi
}
within() { # SECONDS COMMAND...: until it succeeds
  local end=$((SECONDS + $1)); shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.2; done
}

# The ends, each with an address of its own behind it, which the other reaches by the wire alone.
ip netns add "$name-a"; ip netns add "$name-b"
for end in a b; do ip -n "$name-$end" link set lo up; done
ip -n "$name-a" link add veth type veth peer name veth netns "$name-b"
ip -n "$name-a" addr add 10.5.0.1/24 dev veth; ip -n "$name-b" addr add 10.5.0.2/24 dev veth
ip -n "$name-a" addr add 10.6.0.1/32 dev lo; ip -n "$name-b" addr add 10.7.0.1/32 dev lo
for end in a b; do ip -n "$name-$end" link set veth up; done
ip -n "$name-a" route add 10.7.0.1 via 10.5.0.2 src 10.6.0.1
ip -n "$name-b" route add 10.6.0.1 via 10.5.0.1 src 10.7.0.1

# conf END OWN PEER INNER OTHER-INNER OTHER-END ENCAP
conf() {
  local d=$dir/$1
  mkdir -p "$d"
  cat >"$d/strongswan.conf" <<CONF
charon-systemd {
  piddir = $d
  load = random nonce aes sha1 sha2 hmac kdf gmp drbg kernel-netlink socket-default vici
  plugins { vici { socket = unix://$d/vici } random { random = /dev/urandom } }
  filelog { log { path = $d/log
    default = 1
    flush_line = yes } }
  journal { default = -1 }
}
swanctl { load = random nonce }
CONF
  cat >"$d/swanctl.conf" <<CONF
connections { c {
  version = 2
  local_addrs = $2
  remote_addrs = $3
  proposals = aes128-sha256-modp2048
  encap = $7
  local { auth = psk
    id = $1 }
  remote { auth = psk
    id = $6 }
  children {
    tunnel { local_ts = $4/32
      remote_ts = $5/32
      esp_proposals = aes128gcm16-esn
      rekey_time = 0
      replay_window = 128 }
    transport { mode = transport
      local_ts = dynamic
      remote_ts = dynamic
      rekey_time = 0
      esp_proposals = aes128-sha256 }
  } } }
secrets { ike-x { secret = "test key" } }
CONF
  printf '[ipsec]\n' >"$d/sealane.toml"
}
# start END: its daemon, and charon under sealane run.
start() {
  local d=$dir/$1
  SEALANE_RUNTIME_DIR=$d/run ip netns exec "$name-$1" "$sealane" daemon --config "$d/sealane.toml" >"$d/daemon.log" 2>&1 &
  pids+=($!)
  declare -g "daemon_$1=$!"
  within 10 grep -q 'IPsec in 1' "$d/daemon.log" || return 1
  SEALANE_RUNTIME_DIR=$d/run STRONGSWAN_CONF=$d/strongswan.conf ip netns exec "$name-$1" \
    "$sealane" run -- "$charon" >"$d/out" 2>&1 &
  pids+=($!)
  declare -g "charon_$1=$!"
  within 10 test -S "$d/vici" && within 10 sw "$1" --load-all --file "$d/swanctl.conf"
}
stop() {
  local pid
  for pid in "charon_$1" "daemon_$1"; do
    kill "${!pid}" 2>/dev/null || true
    wait "${!pid}" 2>/dev/null || true
  done
}
sw() { STRONGSWAN_CONF=$dir/$1/strongswan.conf timeout 20 swanctl "${@:2}" --uri "unix://$dir/$1/vici" >"$dir/sw" 2>&1; }
xfrm() { ip netns exec "$name-$1" "$sealane" xfrm "${@:2}"; }
states() { [[ $(xfrm "$1" state count) == *" $2" ]]; }
pings() { ip netns exec "$name-a" ping -q -n -i 0.01 "$@" >"$dir/ping" 2>&1; }
# watch FILTER...: how many packets of the wire at end b are of that kind, until counted.
watch() {
  ip netns exec "$name-b" python3 "$dir/watch.py" >"$dir/wire" 2>&1 &
  watch=$!
  within 5 grep -q watching "$dir/wire"
}
counted() {
  kill "$watch"
  wait "$watch" || true
  read -r esp clear < <(tail -n 1 "$dir/wire")
  echo "on the wire: $esp of ESP, $clear in clear"
  ((esp > 0 && clear == 0))
}
cat >"$dir/watch.py" <<'PY'
import signal, socket
frames = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
frames.bind(("veth", 0x0800))
esp = clear = 0
def end(*_):
    raise KeyboardInterrupt
# Bash has its background ignore SIGINT.
signal.signal(signal.SIGTERM, end)
print("watching", flush=True)
try:
    while True:
        p = frames.recv(65536)
        body = p[(p[0] & 15) * 4:]
        if p[9] == 50 or p[9] == 17 and 4500 in (int.from_bytes(body[:2]), int.from_bytes(body[2:4])) and body[8:12] != bytes(4):
            esp += 1
        elif p[9] == 1:
            clear += 1
except KeyboardInterrupt:
    print(esp, clear)
PY

for encap in no yes; do
  how=$([[ $encap == no ]] && echo "ESP" || echo "ESP in UDP")
  rm -rf "$dir/a" "$dir/b"
  conf a 10.5.0.1 10.5.0.2 10.6.0.1 10.7.0.1 b "$encap"
  conf b 10.5.0.2 10.5.0.1 10.7.0.1 10.6.0.1 a "$encap"
  check "$how: both start" eval 'start b && start a'
  check "$how: a tunnel is established" sw a --initiate --child tunnel
  check "$how: two states at each end" eval 'states a 2 && states b 2'
  check "$how: the wire is watched" watch
  check "$how: packets go through the tunnel" pings -c 100 -I 10.6.0.1 10.7.0.1
  # Rekeyed under traffic: make before break, nothing is lost.
  pings -c 500 -I 10.6.0.1 10.7.0.1 &
  traffic=$!
  sleep 1
  check "$how: the tunnel is rekeyed" sw a --rekey --child tunnel
  sleep 1
  check "$how: the IKE association is rekeyed" sw a --rekey --ike c
  check "$how: no packet is lost meanwhile" eval 'wait $traffic && grep -q " 0% packet loss" "$dir/ping"'
  check "$how: a transport association" sw a --initiate --child transport
  check "$how: packets go by it" pings -c 100 10.5.0.2
  check "$how: all of it as ESP, nothing in clear" counted
  check "$how: IKE goes on beside the transport association" sw a --rekey --ike c
  xfrm a show interval 0 | sed -n '1,4p'
  check "$how: the association is terminated" sw a --terminate --ike c
  check "$how: no state is left" eval 'within 10 states a 0 && within 10 states b 0'
  # A trap policy: the first packet asks for the association.
  sed -i 's/replay_window = 128/start_action = trap\n      &/' "$dir/a/swanctl.conf"
  check "$how: a trap policy is loaded" sw a --load-all --file "$dir/a/swanctl.conf"
  pings -c 1 -W 1 -I 10.6.0.1 10.7.0.1 || true
  check "$how: a packet raises the tunnel" within 10 pings -c 1 -W 1 -I 10.6.0.1 10.7.0.1
  check "$how: it is terminated" sw a --terminate --ike c
  stop a; stop b
done
exit "$failed"
