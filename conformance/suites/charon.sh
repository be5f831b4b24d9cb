#!/usr/bin/env bash
# strongSwan's unmodified charon with the daemon's IPsec: two of them in two namespaces, and one against a charon with
# the kernel's own ESP.
#
#   [CHARON_ROOT=FOLDER] charon.sh [KERNEL]     KERNEL: linux-7.3 (default); or `none`
#
# charon_ends.sh says where charon comes from. Needs iputils-ping and nftables. As root: it makes network namespaces.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=charon
. "$(dirname "$0")/charon_ends.sh"
kernel=${1:-linux-7.3}
net_a=10.82.1.0/24 net_b=10.82.2.0/24

# ends A B LINES [CHILD-LINES]: writes the configurations of both ends.
ends() {
  config a "$1" "$2" $net_a $net_b "$3
    dpd_delay = 1s" "dpd_action = clear
        ${4:-}"
  config b "$2" "$1" $net_b $net_a "$3
    dpd_delay = 1s" "dpd_action = clear"
}
loaded() { load a && load b; }
# rekeyed TIMES child|ike ENDS...: a rekeys it this many times, then b once if both are among ENDS, which get the new
# one.
rekeyed() {
  for ((i = 0; i < $1; i++)); do rekey a "$2" "${@:3}" || return 1; done
  [[ ${*:3} != *b* ]] || rekey b "$2" "${@:3}"
}

wire_networks
watch_clear
ends 10.80.0.1 10.80.0.2 'encap = yes'
for end in a b; do
  check "daemon $end" daemon $end IPsec $'[[ipsec.interface]]\nname = "ipsec0"\nif_id = 42'
  check "charon $end" charon $end
done

check "a CHILD SA in tunnel mode, ESP in UDP" initiate a
check "packets pass" ping_a 5
check "none in clear" none_in_clear

# Make before break: no packet is lost in a rekey.
check "no packet is lost while the CHILD SA is rekeyed five times" under_traffic rekeyed 4 child a b
check "it was rekeyed" says a 'net: #([6-9]|[1-9][0-9])'
check "nor while the IKE SA is" under_traffic rekeyed 1 ike a b

check "terminated" terminate a
check "no states are left" within 20 empty a
check "nor at the other end" within 20 empty b

# Limits of bytes: at the soft one the key manager rekeys.
ends 10.80.0.1 10.80.0.2 'encap = yes' 'rekey_bytes = 200000
        life_bytes = 400000
        rand_bytes = 0'
load a
check "a CHILD SA with limits of bytes" initiate a
before=$(newest a child)
check "no packet is lost at the soft limit" under_traffic ping_a 600 0.01 1000
check "it was rekeyed" newer a child "$before"
check "terminated" terminate a

# IPComp: ESP in transport mode around it, and inbound whatever did not shrink.
config a 10.80.0.1 10.80.0.2 $net_a $net_b 'encap = yes' 'ipcomp = yes'
config b 10.80.0.2 10.80.0.1 $net_b $net_a 'encap = yes' 'ipcomp = yes'
loaded
check "a CHILD SA whose ends ask for IPComp" initiate a
compressed() { xfrm "$1" state >"$dir/states" && has 'proto comp' <"$dir/states" && has 'comp deflate' <"$dir/states"; }
check "it has states of IPComp" compressed a
check "and so has the other end" compressed b
check "short packets pass" ping_a 5
check "and long ones" ping_a 5 0.1 1200
check "no packet is lost while it is rekeyed" under_traffic rekeyed 2 child a b
check "none in clear" none_in_clear
check "terminated" terminate a
check "no states are left" within 20 empty a
check "nor at the other end" within 20 empty b

# A trap policy: the first packet triggers the SA.
ends 10.80.0.1 10.80.0.2 'encap = yes' 'start_action = trap'
load a
trapped() { xfrm a policy | has 'dst 10.82.2.0/24'; }
check "a trap policy is there" within 20 trapped
ip netns exec "$name-a" ping -q -n -c 1 -W 1 -I "${inner[@]}" >"$dir/ping" || true
check "a packet has the SA made" within 30 installed a
check "packets pass" ping_a 3

# A dead peer.
end charon b KILL
check "a dead peer is noticed" within 60 gone a
check "and nothing passes" no_answer
check "charon comes back beside its daemon" charon b
check "and is reached again" within 60 reached
check "none in clear" none_in_clear
ends 10.80.0.1 10.80.0.2 'encap = yes'
load a
terminate a || true

# Route-based: selectors match everything, and routes lead into the tunnel.
config a 10.80.0.1 10.80.0.2 0.0.0.0/0 0.0.0.0/0 'encap = yes' 'if_id_in = 42
        if_id_out = 42'
config b 10.80.0.2 10.80.0.1 0.0.0.0/0 0.0.0.0/0 'encap = yes' 'if_id_in = 42
        if_id_out = 42'
loaded
ip -n "$name-a" route add 10.82.2.1/32 dev ipsec0 src 10.82.1.1
ip -n "$name-b" route add 10.82.1.1/32 dev ipsec0 src 10.82.2.1
check "nothing enters an xfrm interface without an SA" no_answer
check "a CHILD SA with an interface id" initiate a
id() { xfrm a state | has 'if_id 0x2a'; }
check "so it is" id
check "packets pass" ping_a 5
check "no packet is lost while it is rekeyed" under_traffic rekeyed 2 child a b
check "terminated" terminate a
check "nothing passes any more" no_answer
check "none in clear" none_in_clear
ip -n "$name-a" route del 10.82.2.1/32 dev ipsec0
ip -n "$name-b" route del 10.82.1.1/32 dev ipsec0

# The same with an interface that an updown script makes and deletes. charon gives it no variables but its own.
cat >"$dir/updown" <<'SCRIPT'
#!/bin/sh -e
case $PLUTO_VERB in
up-client)
  ip link add ipsec1 type xfrm dev veth if_id "$PLUTO_IF_ID_OUT"
  ip link set ipsec1 up
  ip route add "$PLUTO_PEER_CLIENT" dev ipsec1
  ;;
down-client) ip link del ipsec1 ;;
esac
SCRIPT
chmod +x "$dir/updown"
ends 10.80.0.1 10.80.0.2 'encap = yes' "if_id_in = 43
        if_id_out = 43
        updown = $dir/updown"
sed -i "s,esp_proposals = .*,&\n        if_id_in = 43\n        if_id_out = 43\n        updown = $dir/updown," "$dir/b.swanctl"
loaded
shows() { SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" run -- ip -d link show ipsec1 2>&1; }
made() { shows "$1" | has 'ipsec1@veth.*' && shows "$1" | has 'xfrm if_id 0x2b'; }
deleted() { { shows "$1" || true; } | has 'does not exist'; }
check "a CHILD SA whose updown script makes an interface" initiate a
for end in a b; do check "$end has it" within 20 made $end; done
check "packets pass" ping_a 5
check "no packet is lost while it is rekeyed" under_traffic rekeyed 2 child a b
check "none in clear" none_in_clear
check "terminated" terminate a
for end in a b; do check "$end has no interface any more" within 20 deleted $end; done

# Transport mode, plain ESP.
config a 10.80.0.1 10.80.0.2 '10.80.0.1/32[icmp]' '10.80.0.2/32[icmp]' 'encap = no' 'mode = transport'
config b 10.80.0.2 10.80.0.1 '10.80.0.2/32[icmp]' '10.80.0.1/32[icmp]' 'encap = no' 'mode = transport'
loaded
check "a CHILD SA in transport mode, plain ESP" initiate a
check "packets pass" ping_a 5 0.1 56 10.80.0.1 10.80.0.2
check "so it was" says a 'TRANSPORT, ESP:AES_GCM_16-128'
check "none in clear" none_in_clear

# The daemon is killed: nothing passes, and nothing is sent unencrypted.
end daemon a KILL
check "without the daemon nothing passes" no_answer 10.80.0.2
check "none in clear" none_in_clear
end charon a; end charon b

if [[ $kernel != none && -x $kernels/$kernel ]]; then
  check "daemon a again" daemon a IPsec
  ip -n "$name-a" tuntap add tap mode tap
  ip -n "$name-a" addr add 10.81.0.1/24 dev tap
  ip -n "$name-a" link set tap up
  for encap in yes no; do
    ends 10.81.0.1 10.81.0.2 "encap = $encap"
    # The guest has its own sockets and log.
    sed -i "s,$dir/b.vici,/run/b.vici,; s,$dir/b.log,/run/b.log," "$dir/b.strongswan"
    check "charon a again" charon a
    # The guest ends with the script, or when it is told to.
    ip netns exec "$name-a" "$boot" "$kernel" --tap tap -- bash -c "
      ip addr add 10.81.0.2/24 dev vec0; ip link set vec0 up; ip link set lo up; ip addr add 10.82.2.1/24 dev lo
      export STRONGSWAN_CONF='$dir/b.strongswan' SWANCTL_DIR='$dir'
      ${charon[*]@Q} >/run/b.out 2>&1 &
      for i in {1..300}; do [ -S /run/b.vici ] && break; sleep 0.1; done
      ${swanctl[*]@Q} --load-all --file '$dir/b.swanctl' --uri unix:///run/b.vici >/run/load 2>&1 && touch '$dir/guest-$encap'
      while [ -e '$dir/a.toml' ] && ! [ -e '$dir/over-$encap' ]; do sleep 0.1; done
      ${swanctl[*]@Q} --list-sas --uri unix:///run/b.vici 2>/run/list; ip xfrm state count; awk '\$2' /proc/net/xfrm_stat
      tail -n 5 /run/load /run/b.out /run/b.log" >"$dir/kernel.log" 2>&1 &
    guest=$!
    pids+=($guest)
    check "a charon inside $kernel (encap = $encap)" within 60 test -e "$dir/guest-$encap"
    check "a CHILD SA with it" initiate a
    check "packets pass" ping_a 5
    check "no packet is lost while it is rekeyed" under_traffic rekeyed 3 child a
    touch "$dir/over-$encap"
    wait "$guest" || true
    check "it has it in its kernel" grep -q 'INSTALLED, TUNNEL' "$dir/kernel.log"
    ((!failed)) || cat "$dir/kernel.log"
    end charon a
  done
elif [[ $kernel != none ]]; then
  echo "SKIPPED a charon inside $kernel: no $kernels/$kernel"
fi
exit "$failed"
