#!/usr/bin/env bash
# strongSwan's charon, unmodified, with hw_offload on devices of the daemon: crypto, then packet offload.
#
#   charon_offload.sh
#
# Needs Debian's charon-systemd, strongswan-swanctl, iputils-ping and nftables. As root: it makes network namespaces. charon asks
# the interface that its local address is on, so that the tunnel's addresses are on the devices. hw_offload = packet came with
# charon 5.9.11: where the one of this system is older, CHARON_ROOT names a folder into which newer packages were unpacked
# (newer_charon.sh makes one of Debian 13's), or that part is skipped.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
for program in charon-systemd swanctl ping nft; do
  command -v "$program" >/dev/null || { echo "no $program" >&2; exit 2; }
done
suite=charonoff
. "$(dirname "$0")/two_ends.sh"

version=$(dpkg-query -W -f '${Version}' charon-systemd 2>/dev/null || echo 0)
charon=(charon-systemd) plugins='random nonce aes sha1 sha2 hmac kdf gmp drbg'
# What is crypto offload now was all there was before.
crypto=yes packet=
if dpkg --compare-versions "$version" ge 5.9.11; then
  crypto=crypto packet=packet
elif [[ -n ${CHARON_ROOT:-} ]]; then
  crypto=crypto packet=packet plugins='random nonce openssl drbg'
  lib=$CHARON_ROOT/usr/lib
  # Its plugins are where those of the system are, for it alone.
  charon=(unshare -m sh -c "mount --bind '$lib/ipsec' /usr/lib/ipsec && exec '$CHARON_ROOT/usr/lib64/ld-linux-x86-64.so.2' \
    --library-path '$lib/x86_64-linux-gnu:$lib/ipsec' '$CHARON_ROOT/usr/sbin/charon-systemd'")
fi

# config END HW_OFFLOAD
config() {
  local i=1 j=2
  [[ $1 == a ]] || i=2 j=1
  cat >"$dir/$1.strongswan" <<CONF
charon-systemd {
  load_modular = no
  load = $plugins kernel-netlink socket-default vici updown
  filelog { log { path = $dir/$1.log
      flush_line = yes
      default = 1
      knl = 2 } }
  syslog { daemon { default = -1 }
    auth { default = -1 } }
  plugins { vici { socket = unix://$dir/$1.vici } }
  retransmit_timeout = 1.0
  retransmit_tries = 3
  delete_rekeyed_delay = 1
}
CONF
  cat >"$dir/$1.swanctl" <<CONF
connections { net {
    version = 2
    local_addrs = 10.83.0.$i
    remote_addrs = 10.83.0.$j
    proposals = aes128-sha256-modp2048
    local { auth = psk
      id = $1.example }
    remote { auth = psk }
    children { net {
        local_ts = 10.82.$i.0/24
        remote_ts = 10.82.$j.0/24
        esp_proposals = aes128gcm128
        hw_offload = $2
      } } } }
secrets { ike { secret = "what both know" } }
CONF
}
daemon() { # END KIND
  printf '[ipsec]\n[[ipsec.device]]\nname = "sealane0"\nkind = "%s"\n' "$2" >"$dir/$1.toml"
  chmod 600 "$dir/$1.toml"
  : >"$dir/daemon-$1.log"
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" daemon --config "$dir/$1.toml" >"$dir/daemon-$1.log" 2>&1 &
  pids+=($!)
  declare -g "daemon_$1=$!"
  within 10 grep -q 'with 1 offload devices' "$dir/daemon-$1.log" || { cat "$dir/daemon-$1.log"; return 1; }
  local i=1 j=2
  [[ $1 == a ]] || i=2 j=1
  # The tunnel's address is on the device, and known at the other end of the wire.
  ip -n "$name-$1" addr add "10.83.0.$i/32" dev sealane0
  ip -n "$name-$1" route replace "10.83.0.$j" via "10.80.0.$j" src "10.83.0.$i"
}
start() { # END
  rm -f "$dir/$1.vici"
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir SEALANE_RUNTIME_DIR=$dir/run-$1 \
    ip netns exec "$name-$1" "$sealane" run -- "${charon[@]}" >"$dir/$1.out" 2>&1 &
  pids+=($!)
  declare -g "charon_$1=$!"
  within 10 test -S "$dir/$1.vici" || { cat "$dir/$1.out"; return 1; }
  swan "$1" --load-all --clear --file "$dir/$1.swanctl" >"$dir/load-$1" 2>&1 || { cat "$dir/load-$1"; return 1; }
}
end() { # daemon or charon, END
  local pid=$1_$2
  # One whose daemon is gone has much to say to nobody: its launcher hands all signals on but this one.
  if [[ $1 == charon ]]; then pkill -KILL -P "${!pid}" || true; else kill "${!pid}"; fi
  { wait "${!pid}" || true; } 2>/dev/null
}
swan() { # END ARGUMENTS...
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir timeout 20 swanctl "${@:2}" --uri "unix://$dir/$1.vici" \
    2> >(grep -v 'failed to load' >&2)
}
initiate() { swan a --initiate --child net >"$dir/initiate" 2>&1 || { cat "$dir/initiate"; return 1; }; }
says() { swan "$1" --list-sas 2>/dev/null | grep -Eq "$2"; }
show() { SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" xfrm "${@:2}"; }
offloaded() { # MODE: two states of either end
  for e in a b; do
    [[ $(show $e show interval 0 | grep -c "$1 on sealane0") == 2 ]] || { show $e show interval 0; return 1; }
  done
}
policies() { # HOW MANY of either end's for the networks are offloaded; IKE's own are with the device as well
  for e in a b; do
    [[ $(show $e policy list | grep -A4 '^src 10.82' | grep -c 'dev sealane0') == "$1" ]] || { show $e policy list; return 1; }
  done
}
empty() { [[ -z $(show "$1" state list) ]]; }
ping_a() { # COUNT [MORE...]
  ip netns exec "$name-a" ping -q -n -c "$1" -W 1 "${@:2}" -I 10.82.1.1 10.82.2.1 >"$dir/ping" 2>&1
  grep -q "$1 packets transmitted, $1 received" "$dir/ping" || { cat "$dir/ping"; return 1; }
}
no_answer() {
  ip netns exec "$name-a" ping -q -n -c 3 -i 0.2 -W 1 -I 10.82.1.1 10.82.2.1 >"$dir/ping" 2>&1
  grep -q ' 0 received' "$dir/ping"
}
watch_clear() {
  for end in a b; do
    ip netns exec "$name-$end" nft "add table netdev clear
      add chain netdev clear out { type filter hook egress device \"veth\" priority 0; }
      add rule netdev clear out ip saddr 10.82.0.0/16 counter
      add rule netdev clear out icmp type { echo-request, echo-reply } counter"
  done
}
none_in_clear() {
  local count
  count=$(for end in a b; do ip netns exec "$name-$end" nft list table netdev clear; done |
    sed -nE 's/.*packets ([0-9]+) .*/\1/p' | awk '{ n += $1 } END { print n + 0 }')
  [[ $count == 0 ]] || { echo "in clear: $count"; return 1; }
}

# session KIND HW_OFFLOAD MODE POLICIES
session() {
  local traffic
  for end in a b; do
    config $end "$2"
    check "$1: daemon $end" daemon $end "$1"
    check "$1: charon $end" start $end
  done
  check "$1: a CHILD SA with hw_offload = $2" initiate
  check "$1: its states are offloaded" offloaded "$3"
  check "$1: so are $4 policies" policies "$4"
  check "$1: packets pass" ping_a 5 -i 0.1
  # In packet offload nothing is taken that does not fit the path, as on Linux.
  check "$1: long ones too" ping_a 3 -i 0.1 -s "$([[ $3 == packet ]] && echo 1300 || echo 3000)"
  ping_a 300 -i 0.02 & traffic=$!
  for _ in 1 2 3; do sleep 1; swan a --rekey --child net >"$dir/rekey" 2>&1; done
  sleep 1
  swan b --rekey --child net >"$dir/rekey" 2>&1
  check "$1: no packet is lost while it is rekeyed four times" wait $traffic
  check "$1: it was rekeyed" says a 'net: #([5-9]|[1-9][0-9])'
  check "$1: the new states are offloaded" within 10 offloaded "$3"
  check "$1: none in clear" none_in_clear
  check "$1: terminated" swan a --terminate --ike net >"$dir/out"
  check "$1: no states are left" within 5 empty a
  check "$1: nor at the other end" within 5 empty b
  check "$1: again" initiate
  kill -KILL "$daemon_a"
  { wait "$daemon_a" || true; } 2>/dev/null
  check "$1: without the daemon nothing passes" no_answer
  check "$1: none in clear" none_in_clear
  end charon a; end charon b; end daemon b
  for end in a b; do SEALANE_RUNTIME_DIR=$dir/run-$end ip netns exec "$name-$end" "$sealane" tcp-ao clear >/dev/null 2>&1 || true; done
}

echo "charon $version${CHARON_ROOT:+, newer: $CHARON_ROOT}"
wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
done
watch_clear
session inline $crypto crypto 0
session crypto $crypto crypto 0
if [[ -n $packet ]]; then
  session packet $packet packet 2
else
  echo "SKIPPED charon-offload-packet: charon $version does not know hw_offload = packet, and CHARON_ROOT is not set"
fi
exit $failed
