#!/usr/bin/env bash
# The XFRM tests of Go's vishvananda/netlink, run in a target and compared, test by test, with a reference.
#
#   go_netlink.sh FOLDER TARGET [REFERENCE]   TARGET, REFERENCE: sealane:linux-7.3, kernel:linux-7.3-net
#
# FOLDER is the module's source, outside of the repository: what `go mod download -json` says of
# github.com/vishvananda/netlink@v1.3.1. As root, with go. The tests make network namespaces without a name, which no
# daemon can be told of. So netns.New(), in a copy of the package that they use, gives the new one a name in /run/netns,
# and waits until NETLINK_XFRM is served there; the tests are as they are. A daemon serves what has such a name.
#
# Results: $SEALANE_SUITES/go_netlink.TARGET.txt. With REFERENCE it fails when a test fails that passes there and is not
# in `differs` below.
. "$(dirname "$0")/common.sh"
usage='usage: go_netlink.sh FOLDER TARGET [REFERENCE]'
folder=$(realpath "${1:?$usage}")
target=${2:?$usage}
reference=${3:-}

# Tests that a target may fail: none.
differs='none'

fail() { echo "go_netlink.sh: $*" >&2; exit 2; }
[[ $EUID -eq 0 ]] || fail "only root may make network namespaces"
[[ -e $folder/xfrm_state_linux_test.go ]] || fail "$folder: not the source of vishvananda/netlink"
command -v go >/dev/null || fail "no go"

source=$work/go_netlink.source
rm -rf "$source"
mkdir -p "$source" /run/netns
cp -r "$folder" "$source/netlink"
cd "$source/netlink"
cp -r "$(go mod download -json github.com/vishvananda/netns | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')" "$source/netns"
chmod -R u+w "$source"
cat >"$source/netns/served_linux.go" <<'GO'
package netns

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

var count atomic.Int32

// served gives the thread's namespace a name, and waits until NETLINK_XFRM is served there.
func served() error {
	name := fmt.Sprintf("/run/netns/go-netlink-%d-%d", os.Getpid(), count.Add(1))
	if err := os.WriteFile(name, nil, 0o400); err != nil {
		return err
	}
	here := fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid())
	if err := unix.Mount(here, name, "bind", unix.MS_BIND, ""); err != nil {
		return err
	}
	for {
		s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_XFRM)
		if err == nil {
			return unix.Close(s)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
GO
python3 - "$source/netns/netns_linux.go" <<'PY'
import sys
text = open(sys.argv[1]).read()
begin = text.index("func New() (NsHandle, error) {")
end = text.index("\treturn Get()\n", begin)
more = "\tif err := served(); err != nil {\n\t\treturn -1, err\n\t}\n"
open(sys.argv[1], "w").write(text[:end] + more + text[end:])
PY
go mod edit -replace github.com/vishvananda/netns=../netns
CGO_ENABLED=0 go test -c -mod=mod -o "$source/tests" .

# Serves the namespaces with such names, which the tests make one after another, until it is ended.
daemon='
import os, signal, subprocess, sys, time
sealane, config = sys.argv[1:]
names = daemon = None
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
try:
    while daemon is None or daemon.poll() is None:
        now = sorted(name for name in os.listdir("/run/netns") if name.startswith("go-netlink-"))
        if now != names:
            names = now
            listed = ", ".join(f"\"{name}\"" for name in ["", *names])
            with open(config, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as f:
                f.write(f"[ipsec]\nnetns = [{listed}]\n")
            if daemon is None:
                daemon = subprocess.Popen([sealane, "daemon", "--config", config])
            else:
                daemon.send_signal(signal.SIGHUP)
        time.sleep(0.05)
finally:
    if daemon:
        daemon.terminate()
        daemon.wait()
'

run_suite() {
  local target=$1 out=$work/go_netlink.${1/:/.}.txt status=0 runtime
  # The tests read sources of theirs.
  local run='cd "$1/netlink"; mkdir -p /run/netns; exec ../tests -test.v -test.run Xfrm -test.timeout 5m'
  case $target in
    sealane:*)
      # A network namespace of its own, since the daemon serves the one that it is in, too.
      runtime=$(mktemp -d)
      SEALANE_RUNTIME_DIR=$runtime unshare --net sh -c '
        python3 -c "$1" "$2" "$SEALANE_RUNTIME_DIR/sealane.toml" >"$SEALANE_RUNTIME_DIR/log" 2>&1 & daemon=$!
        until grep -q "IPsec in" "$SEALANE_RUNTIME_DIR/log"; do kill -0 $daemon || exit 2; sleep 0.05; done
        status=0
        "$2" run -- sh -c "$3" sh "$4" || status=$?
        kill $daemon; wait $daemon
        exit $status' sh "$daemon" "$sealane" "$run" "$source" >"$out" 2>&1 || status=$?
      rm -rf "$runtime"
      find /run/netns -maxdepth 1 -name 'go-netlink-*' -printf '%f\n' | xargs -r -n 1 ip netns del ;;
    *) in_target "$target" sh -c "$run" sh "$source" >"$out" 2>&1 || status=$? ;;
  esac
  echo "EXIT $status" >>"$out"
}

run_suite "$target"
[[ -z $reference || -s $work/go_netlink.${reference/:/.}.txt ]] || run_suite "$reference"

python3 - "$differs" "$work/go_netlink.${target/:/.}.txt" ${reference:+"$work/go_netlink.${reference/:/.}.txt"} <<'PY'
import re, sys

differs, *files = sys.argv[1:]
verdicts = re.compile(r"^--- (PASS|FAIL|SKIP): (\w+)", re.M)
results = [{name: verdict for verdict, name in verdicts.findall(open(file).read())} for file in files]
worse = []
for file, result in zip(files, results):
    failed = [name for name in result if result[name] != "PASS"]
    print(f"{file}: {len(result) - len(failed)} of {len(result)} tests pass; {', '.join(failed) or 'none'} not")
here, there = results[0], results[-1]
for name in there:
    if there[name] == "PASS" and here.get(name) != "PASS":
        known = re.fullmatch(differs, name)
        print(f"{'differs' if known else 'WORSE'}: {name}: {here.get(name, 'missing')}")
        worse += [] if known else [name]
sys.exit(1 if worse or not here or not there else 0)
PY
