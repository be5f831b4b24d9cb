#!/usr/bin/env bash
# AF_ALG with threads, forks, closed descriptors and exec, thousands of times on busy CPUs: nothing crashes and nothing hangs.
#
#   alg_threads.sh [RUNS [PART...]]     RUNS of each part: 10000 unless given. Parts (crates/host/launch/tests/programs/alg.c):
#                                       threads crowd partings closings execs
#
# TARGET is sealane:open unless it says otherwise (common.sh). Three programs run for each CPU, and for each CPU a loop that does
# nothing else. SECONDS_EACH (60): a run that takes longer hangs. FOR: begin no run later than so many seconds after the first.
# Output and cores of failed runs stay in $SEALANE_SUITES/alg_threads; a core that the system does not leave in the current
# folder (kernel.core_pattern) has to be found there. Exit status: 0 all runs as they should be, 1 not.
. "$(dirname "$0")/common.sh"
runs=${1:-10000}
parts=("${@:2}")
((${#parts[@]})) || parts=(threads crowd partings closings execs)
target=${TARGET:-sealane:open}
folder=$work/alg_threads
program=$folder/alg
cpus=$(nproc)
rm -rf "$folder"
mkdir -p "$folder"
cc -O1 -g -Wall -o "$program" "$root/crates/host/launch/tests/programs/alg.c" -pthread
ulimit -c unlimited
read -r pattern </proc/sys/kernel/core_pattern
[[ $pattern == [/\|]* ]] && echo "cores go to: $pattern"

# one PART N: one run; a line for the summary.
one() {
  local at=$folder/$1.$2 status=0
  mkdir "$at"
  cd "$at"
  # SIGABRT, so that what hangs leaves a core as well.
  in_target "$target" timeout -s ABRT -k 5 "${SECONDS_EACH:-60}" "$program" "$1" >output 2>&1 || status=$?
  echo "$1 $status" >>"$folder/results"
  cd "$folder"
  if ((status == 0)) && ! compgen -G "$at/core*" >/dev/null; then
    rm -r "$at"
    return 0
  fi
  echo "FAIL $1: exit status $status, $at: $(tail -n 1 "$at/output")"
  if command -v gdb >/dev/null; then
    local core
    for core in "$at"/core*; do
      [[ -e $core ]] || continue
      gdb -batch -ex 'thread apply all bt 12' "$program" "$core" >"$core.threads" 2>/dev/null || true
      grep -m 1 'terminated with signal' "$core.threads" || true
    done
  fi
}

busy=()
trap '((${#busy[@]} == 0)) || kill "${busy[@]}"' EXIT
for ((n = 0; n < cpus; n++)); do
  while :; do :; done &
  busy+=($!)
done

begun=$SECONDS running=0
: >"$folder/results"
for ((n = 1; n <= runs; n++)); do
  for part in "${parts[@]}"; do
    ((SECONDS - begun < ${FOR:-1000000000})) || break 2
    if ((running == 3 * cpus)); then
      wait -n || true
      running=$((running - 1))
    fi
    one "$part" "$n" &
    running=$((running + 1))
  done
done
for ((; running > 0; running--)); do wait -n || true; done

echo
awk '{ runs[$1]++; if ($2) { failed[$1]++; how[$1] = how[$1] " " $2 } }
  END { for (part in runs) printf "%-9s %6d runs, %d failed%s\n", part, runs[part], failed[part],
    failed[part] ? " (exit status" how[part] ")" : ""; }' "$folder/results" | sort
total=$(wc -l <"$folder/results")
left=$(find "$folder" -mindepth 1 -maxdepth 1 -type d | wc -l)
if ((left > 0)); then
  echo "FAIL alg_threads: $left of $total runs; what is left of them is in $folder"
  exit 1
fi
echo "PASS alg_threads: $total runs, none crashed or hung"
