#!/usr/bin/env bash
# strongSwan's charon, unmodified, with the daemon's IPsec: two of them in two namespaces, and one against a charon with the
# kernel's own ESP.
#
#   charon.sh [KERNEL]     KERNEL: linux-7.3 (default); or `none`
#
# Needs Debian's charon-systemd, strongswan-swanctl, iputils-ping and nftables. As root: it makes network namespaces.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
for program in charon-systemd swanctl ping nft; do
  command -v "$program" >/dev/null || { echo "no $program" >&2; exit 2; }
done
suite=charon
. "$(dirname "$0")/two_ends.sh"
net_a=10.82.1.0/24 net_b=10.82.2.0/24

# config END LOCAL REMOTE LOCAL-NET REMOTE-NET [CONNECTION-LINE [CHILD-LINES]]: strongswan.conf and swanctl.conf of an end.
config() {
  local end=$1 local=$2 remote=$3 local_net=$4 remote_net=$5
  cat >"$dir/$end.strongswan" <<CONF
charon-systemd {
  load_modular = no
  load = random nonce aes sha1 sha2 hmac kdf gmp drbg kernel-netlink socket-default vici updown
  filelog { log { path = $dir/$end.log
      flush_line = yes
      default = 1 } }
  syslog { daemon { default = -1 }
    auth { default = -1 } }
  plugins { vici { socket = unix://$dir/$end.vici } }
  retransmit_timeout = 1.0
  retransmit_tries = 3
}
CONF
  # Proposals of what the plugins above have; ESP's are the kernel's affair.
  cat >"$dir/$end.swanctl" <<CONF
connections { net {
    version = 2
    local_addrs = $local
    remote_addrs = $remote
    proposals = aes128-sha256-modp2048
    ${6:-encap = yes}
    dpd_delay = 1s
    local { auth = psk
      id = $end.example }
    remote { auth = psk }
    children { net {
        local_ts = $local_net
        remote_ts = $remote_net
        esp_proposals = aes128gcm128
        dpd_action = clear
        ${7:-start_action = none}
      } } } }
secrets { ike { secret = "what both know" } }
CONF
}

daemon() { # END
  printf '[ipsec]\n' >"$dir/$1.toml"
  chmod 600 "$dir/$1.toml"
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" daemon --config "$dir/$1.toml" >"$dir/daemon-$1.log" 2>&1 &
  pids+=($!)
  declare -g "daemon_$1=$!"
  within 10 grep -q IPsec "$dir/daemon-$1.log"
}
start() { # END
  rm -f "$dir/$1.vici"
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir SEALANE_RUNTIME_DIR=$dir/run-$1 \
    ip netns exec "$name-$1" "$sealane" run -- charon-systemd >"$dir/$1.out" 2>&1 &
  pids+=($!)
  declare -g "charon_$1=$!"
  within 10 test -S "$dir/$1.vici" && load "$1"
}
load() { swan "$1" --load-all --clear --file "$dir/$1.swanctl" >"$dir/load-$1" 2>&1; }
end() { # END [SIGNAL]
  local pid=charon_$1
  # The launcher hands signals on, but this one.
  if [[ ${2:-} == KILL ]]; then pkill -KILL -P "${!pid}" -x charon-systemd; else kill "${!pid}"; fi
  { wait "${!pid}" || true; } 2>/dev/null
}
swan() { # END ARGUMENTS...
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir timeout 20 swanctl "${@:2}" --uri "unix://$dir/$1.vici" \
    2> >(grep -v 'failed to load' >&2)
}
initiate() { swan "$1" --initiate --child net >"$dir/initiate" 2>&1 || { cat "$dir/initiate"; return 1; }; }
sas() { swan "$1" --list-sas 2>/dev/null; }
installed() { sas "$1" | grep -q INSTALLED; }
gone() { ! sas "$1" | grep -q INSTALLED; }
says() { sas "$1" | grep -Eq "$2"; }
xfrm() { SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" run -- ip xfrm "${@:2}"; }
empty() { [[ -z $(xfrm "$1" state) ]]; }

# ping_a COUNT [MORE...]: all are answered.
ping_a() {
  ip netns exec "$name-a" ping -q -n -c "$1" -W 1 "${@:2}" >"$dir/ping" 2>&1
  grep -q "$1 packets transmitted, $1 received" "$dir/ping" || { cat "$dir/ping"; return 1; }
}
no_answer() { ip netns exec "$name-a" ping -q -n -c 3 -i 0.2 -W 1 "$@" >"$dir/ping" 2>&1; grep -q ' 0 received' "$dir/ping"; }

# in_clear [DEVICE [EXPRESSION]]: how many packets left either end that should have been protected. watch_clear counts from
# now on.
watch_clear() {
  for end in a b; do
    ip netns exec "$name-$end" nft "add table netdev clear
      add chain netdev clear out { type filter hook egress device \"veth\" priority 0; }
      add rule netdev clear out ip saddr 10.82.0.0/16 counter
      add rule netdev clear out icmp type { echo-request, echo-reply } counter
      add rule netdev clear out ip protocol esp counter comment \"esp\"
      add rule netdev clear out udp sport 4500 counter comment \"esp\""
  done
}
counted() { # esp or clear
  local word=-v; [[ $1 != esp ]] || word=
  for end in a b; do ip netns exec "$name-$end" nft list table netdev clear; done | grep counter | grep $word 'comment "esp"' |
    sed -nE 's/.*packets ([0-9]+) .*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}
none_in_clear() { [[ $(counted clear) == 0 && $(counted esp) -gt 0 ]] || { echo "in clear: $(counted clear), ESP: $(counted esp)"; return 1; }; }

dpkg-query -W charon-systemd 2>/dev/null || true
wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
done
watch_clear
config a 10.80.0.1 10.80.0.2 $net_a $net_b
config b 10.80.0.2 10.80.0.1 $net_b $net_a
for end in a b; do
  check "daemon $end" daemon $end
  check "charon $end" start $end
done
inner=(-I 10.82.1.1 10.82.2.1)

check "a CHILD SA in tunnel mode, ESP in UDP" initiate a
check "packets pass" ping_a 5 -i 0.1 "${inner[@]}"
check "none in clear" none_in_clear

# Make before break: no packet is lost in a rekey.
ping_a 400 -i 0.02 "${inner[@]}" & traffic=$!
for _ in 1 2 3 4; do sleep 0.8; swan a --rekey --child net >"$dir/rekey" 2>&1; done
sleep 0.8
swan b --rekey --child net >"$dir/rekey" 2>&1
check "no packet is lost while the CHILD SA is rekeyed five times" wait $traffic
cat "$dir/ping"
check "it was rekeyed" says a 'net: #([6-9]|[1-9][0-9])'
ping_a 200 -i 0.02 "${inner[@]}" & traffic=$!
sleep 1
swan a --rekey --ike net >"$dir/rekey" 2>&1
sleep 1
swan b --rekey --ike net >"$dir/rekey" 2>&1
check "nor while the IKE SA is" wait $traffic
cat "$dir/ping"

check "terminated" swan a --terminate --ike net >"$dir/out"
check "no states are left" within 5 empty a
check "nor at the other end" within 5 empty b

# Limits of bytes: the soft one has the key manager rekey.
config a 10.80.0.1 10.80.0.2 $net_a $net_b 'encap = yes' 'rekey_bytes = 200000
        life_bytes = 400000
        rand_bytes = 0'
load a
check "a CHILD SA with limits of bytes" initiate a
check "no packet is lost at the soft limit" ping_a 600 -i 0.01 -s 1000 "${inner[@]}"
cat "$dir/ping"
check "it was rekeyed" grep -q 'establishing CHILD_SA net{[0-9]*} reqid' "$dir/a.log"
swan a --terminate --ike net >"$dir/out"

# A trap: the first packet brings the SA about.
config a 10.80.0.1 10.80.0.2 $net_a $net_b 'encap = yes' 'start_action = trap'
load a
check "a trap policy is there" within 5 bash -c "SEALANE_RUNTIME_DIR=$dir/run-a ip netns exec $name-a '$sealane' run -- ip xfrm policy | grep -q 'dst 10.82.2.0/24'"
ip netns exec "$name-a" ping -q -n -c 1 -W 1 "${inner[@]}" >"$dir/ping" || true
check "a packet has the SA made" within 10 installed a
check "packets pass" ping_a 3 -i 0.1 "${inner[@]}"

# A dead peer.
end b KILL
check "a dead peer is noticed" within 30 gone a
check "and nothing passes" no_answer "${inner[@]}"
check "charon comes back beside its daemon" start b
check "and is reached again" within 30 ping_a 1 "${inner[@]}"
check "none in clear" none_in_clear
config a 10.80.0.1 10.80.0.2 $net_a $net_b
load a
swan a --terminate --ike net >"$dir/out" 2>&1 || true

# Transport mode, plain ESP.
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  config $end "10.80.0.$i" "10.80.0.$((3 - i))" "10.80.0.$i/32[icmp]" "10.80.0.$((3 - i))/32[icmp]" 'encap = no' 'mode = transport'
  load $end
done
check "a CHILD SA in transport mode, plain ESP" initiate a
check "packets pass" ping_a 5 -i 0.1 10.80.0.2
check "so it was" says a 'TRANSPORT, ESP:AES_GCM_16-128'
check "none in clear" none_in_clear

# The daemon dies: nothing passes, and nothing in clear.
kill -KILL "$daemon_a"
{ wait "$daemon_a" || true; } 2>/dev/null
check "without the daemon nothing passes" no_answer 10.80.0.2
check "none in clear" none_in_clear
end a; end b

if [[ $kernel != none && -x $kernels/$kernel ]]; then
  daemon a
  ip -n "$name-a" tuntap add tap mode tap
  ip -n "$name-a" addr add 10.81.0.1/24 dev tap
  ip -n "$name-a" link set tap up
  for encap in yes no; do
    config a 10.81.0.1 10.81.0.2 $net_a $net_b "encap = $encap"
    config b 10.81.0.2 10.81.0.1 $net_b $net_a "encap = $encap"
    start a
    ip netns exec "$name-a" "$kernels/boot" "$kernel" --tap tap -- bash -c "
      ip addr add 10.81.0.2/24 dev vec0; ip link set vec0 up; ip link set lo up; ip addr add 10.82.2.1/24 dev lo
      sed -i 's,$dir/b.vici,/run/b.vici,; s,$dir/b.log,/run/b.log,' '$dir/b.strongswan'
      STRONGSWAN_CONF='$dir/b.strongswan' SWANCTL_DIR='$dir' charon-systemd >/run/b.out 2>&1 &
      for i in {1..100}; do [ -S /run/b.vici ] && break; sleep 0.1; done
      swanctl --load-all --file '$dir/b.swanctl' --uri unix:///run/b.vici >/run/load 2>&1 && touch '$dir/guest-$encap'
      for i in {1..300}; do [ -e '$dir/over-$encap' ] && break; sleep 0.1; done
      swanctl --list-sas --uri unix:///run/b.vici 2>/run/list; ip xfrm state count; awk '\$2' /proc/net/xfrm_stat" >"$dir/kernel.log" 2>&1 &
    guest=$!
    check "a charon inside $kernel (encap = $encap)" within 20 test -e "$dir/guest-$encap"
    check "a CHILD SA with it" initiate a
    check "packets pass" ping_a 5 -i 0.1 "${inner[@]}"
    ping_a 200 -i 0.02 "${inner[@]}" & traffic=$!
    for _ in 1 2 3; do sleep 0.8; swan a --rekey --child net >"$dir/rekey" 2>&1; done
    check "no packet is lost while it is rekeyed" wait $traffic
    cat "$dir/ping"
    touch "$dir/over-$encap"
    wait "$guest" || true
    check "it has it in its kernel" grep -q 'INSTALLED, TUNNEL' "$dir/kernel.log"
    cat "$dir/kernel.log"
    end a
  done
elif [[ $kernel != none ]]; then
  echo "SKIP a charon inside $kernel: no $kernels/$kernel"
fi
exit "$failed"
