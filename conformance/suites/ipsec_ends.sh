# Sourced by the suites of IPsec, after two_ends.sh: daemons, packets from network to network, and a watch on the wire.

daemon() { # END WORDS CONFIG-LINES: starts it, and waits until it prints the words
  printf '[ipsec]\n%s\n' "${3:-}" >"$dir/$1.toml"
  chmod 600 "$dir/$1.toml"
  serve "$1" "$2"
}
# quietly COMMAND...: shows its output only when it fails.
quietly() { local out; out=$("$@" 2>&1) || { echo "$out"; return 1; }; }
xfrm() { SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" run -- ip xfrm "${@:2}"; }

xfrm_counters() { # END: prints counters other than 0, and the packets of each state
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" run -- awk '$2' /proc/net/xfrm_stat
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" xfrm show interval 0
}

# ping_a HOW-MANY [INTERVAL [SIZE [SOURCE DESTINATION [PATIENCE]]]]: succeeds when all pings are answered, from network
# to network unless other addresses are given. HOW-MANY may be a file, whose existence ends it.
inner=(10.82.1.1 10.82.2.1)
ping_a() {
  ip netns exec "$name-a" python3 "$root/conformance/programs/pings.py" "${4:-${inner[0]}}" "${5:-${inner[1]}}" "$1" "${2:-0.1}" "${3:-56}" \
    "${6:-20}"
}
reached() { ping_a 1 1 56 "${inner[@]}" 1 >/dev/null; }
no_answer() { # [DESTINATION]
  local out target=(-I "${inner[@]}")
  (($# == 0)) || target=("$1")
  out=$(ip netns exec "$name-a" ping -q -n -c 3 -i 0.2 -W 1 "${target[@]}" 2>&1)
  grep -q ' 0 received' <<<"$out" || { echo "$out"; return 1; }
}
# under_traffic COMMAND...: succeeds when it does, and all pings from before its start to after its end are answered.
under_traffic() {
  local pings status=0
  rm -f "$dir/over"
  ping_a "$dir/over" 0.01 & pings=$!
  pids+=($!)
  "$@" || status=1
  touch "$dir/over"
  wait "$pings" || status=1
  # Counters show where a packet was dropped.
  ((!status)) || xfrm_counters a
  return "$status"
}

# watch_clear [DEVICE]: counts outbound packets of both ends, those of veth unless another device is named. none_in_clear:
# succeeds when none was sent that should have been protected.
watch_clear() {
  local device=${1:-veth}
  for end in a b; do
    ip netns exec "$name-$end" nft "add table netdev clear
      add chain netdev clear $device { type filter hook egress device \"$device\" priority 0; }
      add rule netdev clear $device ip saddr 10.82.0.0/16 counter
      add rule netdev clear $device icmp type { echo-request, echo-reply } counter
      add rule netdev clear $device ip6 saddr fd82::/16 counter
      add rule netdev clear $device icmpv6 type { echo-request, echo-reply } counter
      add rule netdev clear $device meta l4proto esp counter comment \"esp\"
      add rule netdev clear $device udp sport 4500 counter comment \"esp\""
  done
}
counted() { # esp or clear
  local word=-v; [[ $1 != esp ]] || word=
  for end in a b; do ip netns exec "$name-$end" nft list table netdev clear; done | grep counter | grep $word 'comment "esp"' |
    sed -nE 's/.*packets ([0-9]+) .*/\1/p' | awk '{ n += $1 } END { print n + 0 }'
}
none_in_clear() { [[ $(counted clear) == 0 && $(counted esp) -gt 0 ]] || { echo "in clear: $(counted clear), ESP: $(counted esp)"; return 1; }; }
