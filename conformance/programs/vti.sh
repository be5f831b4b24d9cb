#!/bin/sh
# Policies of VTI devices, which Sealane's daemon refuses with a sentence. SEALANE is the executable. Needs a kernel with VTI.
set -e
folder=$(mktemp -d)
export SEALANE_RUNTIME_DIR="$folder/run"
mkdir -m 700 "$SEALANE_RUNTIME_DIR"
echo '[ipsec]' >"$folder/sealane.toml"
chmod 600 "$folder/sealane.toml"
"$SEALANE" daemon --config "$folder/sealane.toml" >"$folder/log" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon || true; rm -r "$folder"' EXIT
until grep -q IPsec "$folder/log" 2>/dev/null; do
  kill -0 $daemon || { cat "$folder/log"; exit 1; }
  sleep 0.05
done

# Adds a policy: NAME DIRECTION MARK FAMILY.
policy() {
  if [ "$4" = 4 ]; then any=0.0.0.0/0 ends='src 192.0.2.1 dst 192.0.2.2'; else any=::/0 ends='src 2001:db8::1 dst 2001:db8::2'; fi
  echo "$1: $("$SEALANE" run -- ip xfrm policy add src $any dst $any dir "$2" mark "$3" \
    tmpl $ends proto esp reqid 1 mode tunnel 2>&1 && echo added)"
}

ip link add vti4 type vti local 192.0.2.1 remote 192.0.2.2 ikey 17 okey 18
ip link add vti6 type vti6 local 2001:db8::1 remote 2001:db8::2 key 19
policy 'out by the key of what comes in' out 17 4
policy 'out' out 18 4
policy 'in' in 17 4
policy 'IPv6, out' out 19 6
policy 'IPv6, fwd' fwd 19 6
policy 'before its device' out 20 4
grep -o 'a policy for the packets of [^:]*' "$folder/log" || echo 'the log says nothing'
ip link add late type vti local 192.0.2.1 remote 192.0.2.3 key 20
n=0
until grep -o 'policies for the packets of the VTI device [^:]*' "$folder/log" || [ $n -gt 600 ]; do
  n=$((n + 1))
  sleep 0.1
done
