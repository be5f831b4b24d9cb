#!/usr/bin/env bash
# Reads /proc/PID/net/netstat under `sealane run --tcp-ao`: of a process in another network namespace, of its own, and of
# process 1 in a PID namespace and network namespace of its own. Tells whose text it is, and whether rules are there then.
set -euo pipefail

look() {
  python3 -c '
import os, sys
text = os.readlink("/proc/self/fd/%d" % os.open(sys.argv[1], os.O_RDONLY))
print("Sealane" if "memfd:sealane" in text else "the kernel")' "/proc/$1/net/netstat"
}
rules() {
  local text
  text=$(nsenter --net="/proc/$1/ns/net" nft list ruleset)
  if [ -n "$text" ]; then echo rules; else echo no rules; fi
}
tell() { echo "$1: $(look "$2"), $(rules "$2")"; }
export -f look rules tell

unshare --net sleep 600 &
other=$!
trap 'kill $other' EXIT
until [ "$(readlink "/proc/$other/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
tell another "$other"
tell own self
unshare --net --pid --fork --mount-proc bash -ec 'tell inside 1'
