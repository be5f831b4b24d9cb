#!/usr/bin/env bash
# The kernel's own selftests of IPsec, run in a target and compared, check by check, with a reference.
#
#   xfrm_selftests.sh FOLDER TARGET [REFERENCE] [SCRIPT...]   TARGET, REFERENCE: sealane:linux-7.3, kernel:linux-7.3-net
#
# FOLDER is tools/testing/selftests/net of the kernel's source (Debian: linux-source-7.3), outside of the repository;
# SCRIPT by default xfrm_policy.sh and xfrm_state.sh, as they are. As root, with iptables, and with iproute2 6.10 or
# later first in PATH (states with a direction: Debian 12 has it in bookworm-backports). The scripts make namespaces,
# each of which gets a daemon here, and their commands about IPsec run under `sealane run`. Beside that two commands
# are changed:
#
# - iptables: `-m policy --dir out --pol ipsec` never matches here (docs/firewall.md), so that it is `-o sealane-ipsec`,
#   as `sealane check --firewall` says.
# - nft: without `log`, which linux-7.3-net has no logger for.
#
# Results: $SEALANE_SUITES/xfrm_selftests.TARGET/SCRIPT.txt. With REFERENCE it fails when a check fails that passes
# there and is not in `differs` below.
. "$(dirname "$0")/common.sh"
usage='usage: xfrm_selftests.sh FOLDER TARGET [REFERENCE] [SCRIPT...]'
folder=$(realpath "${1:?$usage}")
target=${2:?$usage}
reference=${3:-}
shift $(($# > 2 ? 3 : 2))
scripts=("$@")
(($#)) || scripts=(xfrm_policy.sh xfrm_state.sh)
limit=${XFRM_LIMIT:-3600}

# Checks that a target may fail. Errors about packets that are too long have their destination as their source, and
# IPv6's never say less than 1,280 bytes (IPSEC-26, IPSEC-82).
differs='IPv[46] MTU exceeded from ESP router r2'

fail() { echo "xfrm_selftests.sh: $*" >&2; exit 2; }
[[ $EUID -eq 0 ]] || fail "only root may make network namespaces"
for script in "${scripts[@]}"; do
  [[ -e $folder/$script ]] || fail "$folder: no $script (tools/testing/selftests/net; Debian: linux-source-7.3)"
done
for program in ip nft ping iptables; do command -v $program >/dev/null || fail "no $program"; done
{ ip xfrm state help 2>&1 || :; } | has 'dir DIR' || fail "$(ip -V): older than 6.10"

# The programs that stand in front of the real ones: for every target, and those that are for Sealane alone.
fronts=$work/xfrm_selftests.programs
rm -rf "$fronts"
mkdir -p "$fronts/all" "$fronts/sealane"
front() { # WHERE NAME: a script on its standard input, with the real program as $real
  { printf '#!/usr/bin/env bash\nreal=%q\n' "$(command -v "$2")"; cat; } >"$fronts/$1/$2"
  chmod +x "$fronts/$1/$2"
}
front all nft <<'FRONT'
words=()
for word; do [[ $word == log ]] || words+=("$word"); done
exec "$real" "${words[@]}"
FRONT
front sealane iptables <<'FRONT'
words=" $* "
words=${words/ -m policy --dir out --pol ipsec / -o sealane-ipsec }
exec "$real" $words
FRONT
# The script looks for its rule by the match's name.
front sealane iptables-save <<'FRONT'
"$real" "$@" | sed 's/-o sealane-ipsec/& -m policy/'
FRONT
front sealane ip <<'FRONT'
# The folder of a namespace's daemon.
folder() { export SEALANE_RUNTIME_DIR=$SPACES/$1; }
case "$1 $2" in
  'netns add')
    "$real" "$@" || exit
    folder "$3"
    mkdir -m 700 "$SPACES/$3"
    (umask 077; echo '[ipsec]' >"$SPACES/$3/sealane.toml")
    # The script ends what runs in a namespace before it deletes it.
    "$real" netns exec "$3" "$SEALANE" daemon --config "$SPACES/$3/sealane.toml" >"$SPACES/$3/log" 2>&1 </dev/null &
    until grep -q 'IPsec in 1 network namespaces' "$SPACES/$3/log"; do
      kill -0 $! || { cat "$SPACES/$3/log" >&2; exit 1; }
      sleep 0.05
    done
    exit ;;
  'netns exec') folder "$3" ;;
  netns*) ;;
  *)
    if [[ " $* " == *' xfrm '* ]]; then
      [[ $1 != -n* ]] || folder "$2"
      exec "$SEALANE" run -- "$real" "$@"
    fi ;;
esac
exec "$real" "$@"
FRONT

# inside SCRIPT: what a target runs.
inside='cd "$1"; [ -e /dev/stdin ] || ln -s /proc/self/fd/0 /dev/stdin; exec bash "./$2"'

run_suite() {
  local target=$1 out=$work/xfrm_selftests.${1/:/.} script status
  mkdir -p "$out"
  for script in "${scripts[@]}"; do
    status=0
    case $target in
      sealane:*)
        spaces=$(mktemp -d)
        SEALANE=$sealane SPACES=$spaces PATH=$fronts/sealane:$fronts/all:$PATH \
          timeout "$limit" sh -c "$inside" sh "$folder" "$script" >"$out/$script.txt" 2>&1 || status=$?
        rm -rf "$spaces" ;;
      *)
        in_target "$target" env PATH="$fronts/all:$PATH" ${LD_LIBRARY_PATH:+LD_LIBRARY_PATH="$LD_LIBRARY_PATH"} \
          ${XTABLES_LIBDIR:+XTABLES_LIBDIR="$XTABLES_LIBDIR"} \
          timeout "$limit" sh -c "$inside" sh "$folder" "$script" >"$out/$script.txt" 2>&1 || status=$? ;;
    esac
    echo "EXIT $status" >>"$out/$script.txt"
  done
}

run_suite "$target"
if [[ -n $reference ]]; then
  for script in "${scripts[@]}"; do
    [[ -s $work/xfrm_selftests.${reference/:/.}/$script.txt ]] || { run_suite "$reference"; break; }
  done
fi

python3 - "$differs" "$work/xfrm_selftests.${target/:/.}" "${reference:+$work/xfrm_selftests.${reference/:/.}}" \
  "${scripts[@]}" <<'PY'
import os, re, sys

differs, ours, theirs, *scripts = sys.argv[1:]

def read(folder, script):
    """Returns whether each check passes, and the exit status."""
    checks, status = {}, None
    for line in open(os.path.join(folder, script + ".txt"), errors="replace"):
        if match := re.match(r"(PASS|FAIL): (.*)", line):
            checks[match[2]] = match[1]
        elif match := re.match(r"TEST: (.*?) +\[ ?(PASS|FAIL|SKIP) ?\]", line):
            checks[match[1]] = match[2]
        elif line.startswith("EXIT "):
            status = int(line.split()[1])
    return checks, status

worse = []
for script in scripts:
    here, status = read(ours, script)
    passed = sum(result == "PASS" for result in here.values())
    line = f"{script}: {passed} of {len(here)} checks pass, exit status {status}"
    if theirs:
        there, other_status = read(theirs, script)
        line += f"; reference: {sum(r == 'PASS' for r in there.values())} of {len(there)}, exit status {other_status}"
        for check, result in there.items():
            if result == "PASS" and here.get(check) != "PASS":
                known = re.fullmatch(differs, check)
                print(f"{'differs' if known else 'WORSE'}: {script}: {check}: {here.get(check, 'missing')}")
                worse += [] if known else [check]
        if not there:
            worse.append(script)
    print(line)
sys.exit(1 if worse or not all(read(ours, script)[0] for script in scripts) else 0)
PY
