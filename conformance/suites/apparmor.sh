#!/usr/bin/env bash
# The AppArmor profile is good for the parser. It is not in force meanwhile: what it says is not compared with what a daemon does.
#
# With apparmor_parser and its abstractions. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
PATH=$PATH:/usr/sbin:/sbin
command -v apparmor_parser >/dev/null && [[ -d /etc/apparmor.d/abstractions ]] ||
  { echo "SKIPPED apparmor: no apparmor_parser with its abstractions (Debian's package apparmor)"; exit 77; }
mistaken=$(mktemp)
trap 'rm "$mistaken"' EXIT
failed=0
check() { # WHAT COMMAND...
  local out
  if out=$("${@:2}" 2>&1); then echo "PASS $1"; else echo "FAIL $1"; echo "$out"; failed=1; fi
}
# Neither loaded nor cached.
good() { apparmor_parser --skip-kernel-load --skip-cache --base /etc/apparmor.d "$1"; }
refused() { ! good "$mistaken"; }
check "the profile is good" good "$root/etc/apparmor/sealane-daemon"
sed 's/capability bpf/capability bfp/' "$root/etc/apparmor/sealane-daemon" >"$mistaken"
check "and not with a mistake in it" refused
exit "$failed"
