# Sourced by the suites of two ends, after common.sh: two namespaces with a wire, programs in them that end with the
# script, a daemon at each end, a watch of the wire, checks. `suite` is the name of the script.
[[ $EUID -eq 0 ]] || { echo "$suite: only root may make network namespaces" >&2; exit 2; }
dir=$(mktemp -d "$work/$suite.XXXXXX")
name=$suite$$
failed=0 pids=()

cleanup() {
  exec 8>&- 9>&-
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  for end in a b router; do ip netns del "$name-$end" 2>/dev/null || true; done
  # What a script has mounted there is not ours to remove.
  rm -rf --one-file-system "$dir"
}
trap cleanup EXIT

check() { # WHAT COMMAND...
  if "${@:2}"; then echo "PASS $1"; else
    echo "FAIL $1"; failed=1
    for end in a b; do tail -n 5 "$dir/$end.log" 2>/dev/null || true; done
  fi
}
within() { # SECONDS COMMAND...: repeats it until it succeeds
  local end=$((SECONDS + $1)); shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 0.2; done
}
not_for() { # SECONDS COMMAND...: fails if it succeeds meanwhile
  ! within "$@"
}

# wire: makes the two namespaces a and b, joined by veth.
wire() {
  ip netns add "$name-a"; ip netns add "$name-b"
  for end in a b; do ip -n "$name-$end" link set lo up; done
  ip -n "$name-a" link add veth type veth peer name veth netns "$name-b"
  ip -n "$name-a" addr add 10.80.0.1/24 dev veth; ip -n "$name-b" addr add 10.80.0.2/24 dev veth
  for end in a b; do ip -n "$name-$end" link set veth up; done
}

serve() { # END WORDS: starts a daemon with END.toml, and waits until it prints the words
  : >"$dir/daemon-$1.log"
  SEALANE_RUNTIME_DIR=$dir/run-$1 ip netns exec "$name-$1" "$sealane" daemon --config "$dir/$1.toml" >"$dir/daemon-$1.log" 2>&1 8>&- 9>&- &
  pids+=($!)
  declare -g "daemon_$1=$!"
  within 30 grep -q "$2" "$dir/daemon-$1.log" || { cat "$dir/daemon-$1.log"; return 1; }
}

# watch PORT: counts outbound TCP segments of each end, signed and not. watched: ends it; succeeds when all were signed.
watch() {
  for end in a b; do
    mkfifo "$dir/end-$end"
    : >"$dir/wire-$end"
    ip netns exec "$name-$end" "$root/target/release/wire-watch" veth "$1" <"$dir/end-$end" >"$dir/wire-$end" 2>&1 8>&- 9>&- &
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
