#!/usr/bin/env bash
# The README's two commands on a fresh machine: a minimal Debian, as container images have it, in a folder of its own.
#
#   fresh.sh bookworm|trixie root|user [demo] [test]      default: demo test
#
# `user` has sudo. The folder is target/fresh/RELEASE-WHO, and is made anew each time; it shares this machine's network
# and its extra certificates. Needs root, apt, and 6 GB. Writes PASS or FAIL for each command. Exit status: 0 all passed, 1 not,
# 77 could not try.
set -uo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
usage() { sed -n 's/^#   \(fresh.sh .*\)/usage: \1/p' "$0" >&2; exit 2; }
release=${1:-} who=${2:-}
[[ $release == @(bookworm|trixie) && $who == @(root|user) ]] || usage
shift 2
(($#)) || set -- demo test
missing() { echo "SKIP fresh-$release-$who: $*"; exit 77; }
((EUID == 0)) || missing "needs root"
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || missing "no apt here"

place=$root/target/fresh machine=$root/target/fresh/$release-$who
mkdir -p "$place"
"$root/conformance/suites/debian.sh" "$release" "$machine" >"$place/$release-$who.log" 2>&1 ||
  { tail -n 5 "$place/$release-$who.log"; missing "Debian cannot be had"; }

. "$root/conformance/suites/machine.sh"
inside() { in_machine "$machine" "$1"; }
home=/root as='bash -c'
setup='apt-get -qq update && apt-get -qq -y install --no-install-recommends make >/dev/null'
if [[ $who == user ]]; then
  home=/home/somebody as='runuser -u somebody -- env HOME=/home/somebody bash -c'
  setup='apt-get -qq update && apt-get -qq -y install --no-install-recommends make sudo >/dev/null &&
    useradd -m -s /bin/bash somebody && echo "somebody ALL=(ALL) NOPASSWD: ALL" >/etc/sudoers.d/somebody'
fi
inside "$setup" >>"$place/$release-$who.log" 2>&1 || { tail -n 5 "$place/$release-$who.log"; missing "make cannot be installed"; }
# What is committed, as a clone has it.
mkdir -p "$machine$home/sealane"
git -C "$root" archive HEAD | tar -x -C "$machine$home/sealane"
[[ $who == root ]] || inside "chown -R somebody: $home"

result=0
for what; do
  began=$SECONDS
  if inside "$as 'cd $home/sealane && make $what'" >"$place/$release-$who-$what.log" 2>&1 </dev/null; then
    echo "PASS make $what on a fresh $release as $who, $((SECONDS - began)) s"
  else
    tail -n 15 "$place/$release-$who-$what.log"
    echo "FAIL make $what on a fresh $release as $who: $place/$release-$who-$what.log"
    result=1
  fi
done
exit $result
