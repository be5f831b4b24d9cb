#!/usr/bin/env bash
# Two ends of strongSwan's unmodified charon with the daemon's IPsec that have had CHILD SAs of all kinds, and charons that
# were killed: then a plain tunnel loses nothing, nothing is in clear, and no counter of /proc/net/xfrm_stat moves.
#
#   [CHARON_ROOT=FOLDER] charon_history.sh [SEED [HISTORIES]]     SEED: 1, or the one that a failed check has printed
#
# charon_ends.sh says where charon comes from. Needs iputils-ping and nftables. As root: it makes network namespaces.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=charon-history
. "$(dirname "$0")/charon_ends.sh"
first=${1:-1} histories=${2:-3}
net_a=10.82.1.0/24 net_b=10.82.2.0/24
proposals=(aes128gcm128 aes256gcm64 aes128gcm96-esn aes256-sha256 aes128-sha1 aes192-sha512-esn aes128ctr-sha384
  chacha20poly1305 aes256ccm128 aes128gmac null-sha256 aes128gcm128-noesn-esn)
kinds=('' '' 'ipcomp = yes' 'mark_in = 5
  mark_out = 5' 'mark_in = 5/0xff
  mark_out = 6/0xff
  mark_in_sa = yes' 'set_mark_out = 0x8' 'if_id_in = 42
  if_id_out = 42' 'mode = transport' 'replay_window = 128' 'priority = 7' 'start_action = trap' 'tfc_padding = mtu'
  'hw_offload = no' 'copy_df = no' 'mode = beet')
uniques=(no replace keep never)
any() { local -n list=$1; picked=${list[RANDOM % ${#list[@]}]}; }

# ends CONNECTION-LINES CHILD-LINES
ends() {
  config a 10.80.0.1 10.80.0.2 $net_a $net_b "$1" "$2"
  config b 10.80.0.2 10.80.0.1 $net_b $net_a "$1" "$2"
}
plain() { ends 'encap = yes' ''; }
# again END SIGNAL: another charon, which knows what the configuration says now.
again() { end charon "$1" "$2"; charon "$1"; }

# marks add|delete: a firewall of both ends that marks what policies and states with a mark are for.
marks() {
  for e in a b; do
    if [[ $1 == delete ]]; then ip netns exec "$name-$e" nft delete table ip marks 2>/dev/null || true; continue; fi
    ip netns exec "$name-$e" nft "table ip marks {
      chain out { type route hook output priority mangle; ip daddr 10.82.0.0/16 meta mark set 5; }
      chain pre { type filter hook prerouting priority mangle; ip protocol esp meta mark set 5; udp dport 4500 meta mark set 5; }
    }"
  done
}

history() {
  local encap unique kind step ends_here
  for ((step = 0; step < 8; step++)); do
    encap=$((RANDOM % 2))
    any uniques; unique=$picked
    any kinds; kind=$picked
    marks delete
    [[ $kind != mark_in* ]] || ((RANDOM % 3 == 0)) || marks add
    ends "encap = $( ((encap)) && echo yes || echo no)
      unique = $unique" "$kind"
    any proposals
    sed -i "s/esp_proposals = .*/esp_proposals = $picked/" "$dir"/{a,b}.swanctl
    echo "  encap $encap, unique $unique, $picked, ${kind//$'\n'/,}" >>"$dir/history"
    load a >>"$dir/history" && load b >>"$dir/history" || return 1
    # Not every proposal of every kind is supported.
    swan a --initiate --child net --timeout 5 >>"$dir/said" 2>&1 || true
    ip netns exec "$name-a" ping -q -n -c 3 -i 0.2 -W 1 -I "${inner[0]}" "${inner[1]}" >>"$dir/said" 2>&1 || true
    ends_here=(a b); any ends_here
    case $((RANDOM % 6)) in
      0) swan "$picked" --rekey --child net >>"$dir/said" 2>&1 || true ;;
      1) swan "$picked" --terminate --child net >>"$dir/said" 2>&1 || true ;;
      2) swan "$picked" --terminate --ike net >>"$dir/said" 2>&1 || true ;;
      3) echo "  charon $picked killed" >>"$dir/history"; again "$picked" KILL || return 1 ;;
      4) echo "  charon $picked ended" >>"$dir/history"; again "$picked" TERM || return 1 ;;
    esac
  done
}
counters() { for e in a b; do SEALANE_RUNTIME_DIR=$dir/run-$e ip netns exec "$name-$e" "$sealane" run -- cat /proc/net/xfrm_stat; done; }

wire_networks
plain
for end in a b; do
  check "daemon $end" daemon $end IPsec $'[[ipsec.interface]]\nname = "ipsec0"\nif_id = 42'
  check "charon $end" charon $end
done
for ((seed = first; seed < first + histories; seed++)); do
  RANDOM=$seed
  : >"$dir/history"
  check "history $seed" history
  marks delete
  for end in a b; do end charon $end KILL; done
  plain
  for end in a b; do xfrm $end state flush; xfrm $end policy flush; done
  for end in a b; do check "charon $end again" charon $end; done
  watch_clear
  before=$(counters)
  check "a plain CHILD SA after it" initiate a
  check "four packets of four pass" ping_a 4
  check "none in clear" none_in_clear
  check "nothing was counted" test "$before" = "$(counters)"
  if ((failed)); then
    echo "seed $seed:"
    cat "$dir/history"
    diff <(echo "$before") <(counters) || true
    exit 1
  fi
  quietly swan a --terminate --ike net || true
  for end in a b; do ip netns exec "$name-$end" nft delete table netdev clear; done
done
exit "$failed"
