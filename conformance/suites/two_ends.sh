# Sourced by the suites of two ends, after common.sh: two namespaces with a wire, programs in them that end with the
# script, checks. `suite` is the name of the script.
[[ $EUID -eq 0 ]] || { echo "$suite: only root may make network namespaces" >&2; exit 2; }
dir=$(mktemp -d "$work/$suite.XXXXXX")
name=$suite$$
failed=0 pids=()

cleanup() {
  exec 8>&- 9>&-
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
