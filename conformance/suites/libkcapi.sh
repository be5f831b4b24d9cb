#!/usr/bin/env bash
# libkcapi's own suite, from Debian's source package, run in a target and compared with a reference.
#
#   libkcapi.sh TARGET [REFERENCE]     TARGET, REFERENCE: kernel:linux-7.3, sealane:linux-7.3, ...
#
# Needs a built tree of Debian's source package, outside of the repository: LIBKCAPI=DIR (configured with
# --enable-kcapi-test and its applications, as its own README says). Results: $SEALANE_SUITES/libkcapi.TARGET.txt, a
# line for each check. With REFERENCE it fails when a check fails that passes there. Scripts: KCAPI_SCRIPTS (default:
# all that ours can run).
. "$(dirname "$0")/common.sh"
target=${1:?usage: libkcapi.sh TARGET [REFERENCE]}
reference=${2:-}
scripts=${KCAPI_SCRIPTS:-test.sh kcapi-enc-test.sh kcapi-dgst-test.sh hasher-test.sh kcapi-enc-test-large.sh kcapi-convenience.sh}
build=${LIBKCAPI:-$work/libkcapi}

[[ -x $build/bin/kcapi-convenience ]] ||
  { echo "LIBKCAPI=$build: no built tree of libkcapi with its tests (Debian's source package, configured with --enable-kcapi-test)" >&2; exit 2; }

# Colours, the word size and the kernel's version are removed from the suite's lines, and the rest names the check.
plain() {
  sed -e 's/\x1b\[[0-9;]*m//g' | sed -nE 's/^\[(PASSED|FAILED|DEACTIVATED)[^]]*\] */\1 /p' | sed -E 's|/tmp/[^ ]*/||g'
}

run_suite() {
  local target=$1 out=$work/libkcapi.${1/:/.}.txt log=$work/libkcapi.${1/:/.}.log script status
  : >"$out"; : >"$log"
  for script in $scripts; do
    status=0
    # Each target writes to its own copy of the tree.
    local tree=$work/libkcapi.run.${target/:/.}
    rm -rf "$tree"
    cp -a "$build" "$tree"
    # 16 million rounds of PBKDF2 would take a user-mode kernel hours: with one round the check fails in the reference.
    [[ $target != kernel:* ]] || sed -i 's/^\(PBKDF_count_[0-9]*\)=16777216$/\1=1/' "$tree/test/test.sh"
    # This one takes a second, or never ends where the kernel waits for whole blocks (Linux 7.3; LIMITATIONS.md).
    local limit=${KCAPI_LIMIT:-900}
    [[ $script != kcapi-enc-test-large.sh ]] || limit=60
    in_target "$target" timeout "$limit" bash -c 'cd "$1/test" && KCAPI_TEST_LOCAL=1 bash "./$2"' sh \
      "$tree" "$script" >"$log.one" 2>&1 || status=$?
    cat "$log.one" >>"$log"
    plain <"$log.one" | sed "s|^\([A-Z]*\) |\1 $script: |" >>"$out"
    [[ $status != 124 ]] || echo "FAILED $script: not done in time" >>"$out"
    echo "EXIT $script: $status" >>"$out"
    rm -rf "$tree" "$log.one"
  done
  printf '%-24s %s passed, %s failed, %s deactivated\n' "$target" \
    "$(grep -c ^PASSED "$out")" "$(grep -c ^FAILED "$out")" "$(grep -c ^DEACTIVATED "$out")"
}

run_suite "$target"
[[ -n $reference ]] || exit 0
[[ -s $work/libkcapi.${reference/:/.}.txt ]] || run_suite "$reference"

# Checks are counted by name. A check is worse when it fails more often, or passes less often, than in the reference.
python3 - "$work/libkcapi.${reference/:/.}.txt" "$work/libkcapi.${target/:/.}.txt" <<'PY'
import collections, sys

def read(path):
    table = collections.defaultdict(collections.Counter)
    for line in open(path, errors="replace"):
        state, _, check = line.rstrip("\n").partition(" ")
        if state != "EXIT":
            table[check][state] += 1
    return table

reference, ours = map(read, sys.argv[1:])
worse = [c for c, r in reference.items() if ours[c]["PASSED"] < r["PASSED"] or ours[c]["FAILED"] > r["FAILED"]]
worse += [c for c in ours if c not in reference and ours[c]["FAILED"]]
for check in worse:
    print(f"WORSE {check}: reference {dict(reference.get(check, {}))}, here {dict(ours[check])}")
print(f"{len(reference)} different checks in the reference, {len(worse)} worse here")
sys.exit(1 if worse else 0)
PY
