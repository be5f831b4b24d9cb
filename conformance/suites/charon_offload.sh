#!/usr/bin/env bash
# strongSwan's unmodified charon with hw_offload on devices of the daemon: crypto offload, then packet offload.
#
#   [CHARON_ROOT=FOLDER] charon_offload.sh
#
# charon_ends.sh says where charon comes from. Needs iputils-ping and nftables. As root: it makes network namespaces.
# charon asks the interface that its local address is on, so that the tunnel's addresses are on the devices. hw_offload
# = packet came with charon 5.9.11: with an older one, that part is skipped. Each check writes PASS or FAIL. Exit
# status: 0 all passed, 1 not, 77 could not try.
suite=charon-offload
. "$(dirname "$0")/charon_ends.sh"

offload_daemon() { # END KIND
  daemon "$1" 'with 1 offload devices' "[[ipsec.device]]
name = \"sealane0\"
kind = \"$2\"" || return 1
  local i=1 j=2
  [[ $1 == a ]] || i=2 j=1
  # The tunnel's address is on the device, and the other end of the wire knows it.
  ip -n "$name-$1" addr add "10.83.0.$i/32" dev sealane0
  ip -n "$name-$1" route replace "10.83.0.$j" via "10.80.0.$j" src "10.83.0.$i"
}
show() { SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" xfrm "${@:2}"; }
offloaded() { # MODE: succeeds when two states of each end are offloaded
  for e in a b; do
    [[ $(show $e show interval 0 | grep -c "$1 on sealane0") == 2 ]] || { show $e show interval 0; return 1; }
  done
}
settled() { # MODE: succeeds when the states of rekeyed SAs are gone
  within 60 offloaded "$1" >"$dir/settled" || { tail -n 20 "$dir/settled"; return 1; }
}
policies() { # HOW MANY of either end's for the networks are offloaded; IKE's own are with the device as well
  for e in a b; do
    [[ $(show $e policy list | grep -A4 '^src 10.82' | grep -c 'dev sealane0') == "$1" ]] || { show $e policy list; return 1; }
  done
}
rekeyed() {
  for by in a a a b; do rekey $by child a b || return 1; done
}

# session KIND HW_OFFLOAD MODE POLICIES
session() {
  config a 10.83.0.1 10.83.0.2 10.82.1.0/24 10.82.2.0/24 '' "hw_offload = $2"
  config b 10.83.0.2 10.83.0.1 10.82.2.0/24 10.82.1.0/24 '' "hw_offload = $2"
  for end in a b; do
    check "$1: daemon $end" offload_daemon $end "$1"
    check "$1: charon $end" charon $end
  done
  check "$1: a CHILD SA with hw_offload = $2" initiate a
  check "$1: its states are offloaded" offloaded "$3"
  check "$1: so are $4 policies" policies "$4"
  check "$1: packets pass" ping_a 5
  # Packet offload takes no packet that is too long for the path, as on Linux.
  check "$1: long ones too" ping_a 3 0.1 "$([[ $3 == packet ]] && echo 1300 || echo 3000)"
  check "$1: no packet is lost while it is rekeyed four times" under_traffic rekeyed
  check "$1: it was rekeyed" says a 'net: #([5-9]|[1-9][0-9])'
  check "$1: the new states are offloaded" settled "$3"
  check "$1: none in clear" none_in_clear
  check "$1: terminated" terminate a
  check "$1: no states are left" within 20 empty a
  check "$1: nor at the other end" within 20 empty b
  check "$1: again" initiate a
  end daemon a KILL
  check "$1: without the daemon nothing passes" no_answer
  check "$1: none in clear" none_in_clear
  # Without its daemon it logs many errors.
  end charon a KILL; end charon b KILL; end daemon b
  for end in a b; do SEALANE_RUNTIME_DIR=$dir/run-$end ip netns exec "$name-$end" "$sealane" xfrm clear >/dev/null 2>&1 || true; done
}

# Before charon 5.9.11 the word for crypto offload is `yes`.
crypto=yes
! dpkg --compare-versions "$version" ge 5.9.11 || crypto=crypto
wire_networks
watch_clear
session inline $crypto crypto 0
session crypto $crypto crypto 0
if [[ $crypto == crypto ]]; then
  session packet packet packet 2
else
  echo "SKIPPED charon-offload-packet: charon $version does not know hw_offload = packet"
fi
exit "$failed"
