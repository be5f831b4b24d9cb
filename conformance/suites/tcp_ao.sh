#!/usr/bin/env bash
# The kernel's own selftests of TCP-AO, run in a target and compared, check by check, with a reference.
#
#   tcp_ao.sh TARGET [REFERENCE] [PROGRAM...]     TARGET, REFERENCE: sealane:linux-7.3, kernel:linux-7.3, ...
#
# Needs the built programs of tools/testing/selftests/net/tcp_ao (Debian: linux-source-7.3), outside of the repository:
# TCP_AO_SELFTESTS=DIR, by default $SEALANE_SUITES/tcp_ao (`make` there: connect_ipv4, connect_ipv6, ...). They wait for a
# connection for 150 us, then look at counters, and take a risen counter for a timeout ("connect() returned -110"): in a kernel
# a handshake between two namespaces is over when connect() returns. Under seccomp alone it is not (LIMITATIONS.md, TEST-11);
# for that make them with
#   sed -i 's/\(define POLL_USEC\).*/\1 15000/' lib/sock.c
# As root: each program makes network namespaces of its own.
# Results: $SEALANE_SUITES/tcp_ao.TARGET/PROGRAM.txt. With REFERENCE it fails when a check fails that passes there, when a
# program dies that does not die there, or when a check is skipped that is not in `allowed` below.
. "$(dirname "$0")/common.sh"
target=${1:?usage: tcp_ao.sh TARGET [REFERENCE] [PROGRAM...]}
reference=${2:-}
shift $(($# > 1 ? 2 : 1))
build=${TCP_AO_SELFTESTS:-$work/tcp_ao}
limit=${TCP_AO_LIMIT:-300}
run_flags=(--tcp-ao)

# Checks that a target may skip: features that the kernel below was built without, and that no program can add.
allowed='VRFs are not supported|kernel config doesn.t have ftrace'

[[ $EUID -eq 0 ]] || { echo "tcp_ao.sh: only root may make network namespaces" >&2; exit 2; }
[[ -x $build/connect_ipv4 ]] ||
  { echo "TCP_AO_SELFTESTS=$build: no built tools/testing/selftests/net/tcp_ao (Debian: linux-source-7.3)" >&2; exit 2; }
if (($# == 0)); then
  mapfile -t programs < <(cd "$build" && ls -- *_ipv4 *_ipv6)
else
  programs=("$@")
fi

run_suite() {
  local target=$1 out=$work/tcp_ao.${1/:/.} program status
  mkdir -p "$out"
  for program in "${programs[@]}"; do
    status=0
    in_target "$target" timeout "$limit" sh -c 'cd "$1" && exec "./$2"' sh "$build" "$program" >"$out/$program.txt" 2>&1 ||
      status=$?
    echo "EXIT $status" >>"$out/$program.txt"
  done
}

run_suite "$target"
if [[ -n $reference ]]; then
  for program in "${programs[@]}"; do
    [[ -s $work/tcp_ao.${reference/:/.}/$program.txt ]] || { run_suite "$reference"; break; }
  done
fi

python3 - "$allowed" "$work/tcp_ao.${target/:/.}" "${reference:+$work/tcp_ao.${reference/:/.}}" "${programs[@]}" <<'PY'
import collections, os, re, sys

allowed, ours, theirs, *programs = sys.argv[1:]
CHECK = re.compile(r"(ok|not ok) \d+ (.*)")

def read(folder, program):
    """Returns counts of ok, not ok and skipped by name, and the exit status."""
    table, status, skips = collections.defaultdict(collections.Counter), None, set()
    for line in open(os.path.join(folder, program + ".txt"), errors="replace"):
        if line.startswith("EXIT "):
            status = int(line.split()[1])
        if not (match := CHECK.match(line.strip())):
            continue
        state, name = match.groups()
        name, _, directive = name.partition(" # ") if not name.startswith("# ") else ("", "", name[2:])
        if re.match(r"SKIP|skip", directive):
            state = "skip"
            skips.add(f"{name} {directive}".strip())
        # Counts, descriptors and times differ from run to run; the rest names the check.
        name = name or re.sub(r"^SKIP |: VRFs are not supported.*", "", directive)
        # The ICMP error that ends a connection differs, too.
        name = re.sub(r"(failed with [-0-9]+): .*", r"\1", name)
        name = re.sub(r"(?<![A-Za-z0-9])(0x[0-9a-f]+|-?[0-9][0-9.]*)", "N", name)
        table[name][state] += 1
    return table, status, skips

total, worse = collections.Counter(), []
print(f"{'program':<26}{'ok':>6}{'not ok':>8}{'skipped':>9}{'exit':>6}" + ("  reference: ok, not ok, skipped, exit" if theirs else ""))
for program in programs:
    table, status, skips = read(ours, program)
    here = sum(table.values(), collections.Counter())
    total += here
    line = f"{program:<26}{here['ok']:>6}{here['not ok']:>8}{here['skip']:>9}{status:>6}"
    if theirs:
        other, other_status, _ = read(theirs, program)
        there = sum(other.values(), collections.Counter())
        line += f"  {there['ok']:>4} {there['not ok']:>4} {there['skip']:>4} {other_status:>4}"
        for check, r in other.items():
            t = table[check]
            if t["not ok"] > r["not ok"] or t["ok"] + t["skip"] < r["ok"]:
                worse.append(f"{program}: {check}: there {dict(r)}, here {dict(t)}")
        worse += [f"{program}: {check}: only here, {dict(t)}" for check, t in table.items() if check not in other and t["not ok"]]
        worse += [f"{program}: skipped: {s}" for s in sorted(skips) if not re.search(allowed, s)]
        if status != 0 and other_status == 0:
            worse.append(f"{program}: exit status {status}")
    print(line)
print(f"{len(programs)} programs: {total['ok']} ok, {total['not ok']} not ok, {total['skip']} skipped")
for line in worse:
    print("WORSE", line)
if theirs:
    print(f"{len(worse)} worse here")
sys.exit(1 if worse else 0)
PY
