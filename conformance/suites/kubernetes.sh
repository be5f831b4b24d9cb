#!/usr/bin/env bash
# The files of etc/kubernetes: good by the schemas of several releases of Kubernetes, which the Python package
# kubernetes-validate has in it. They are not tried in a cluster.
#
# With Python's venv and PyPI; what is installed is in target/kubernetes. Each check writes PASS or FAIL. Exit status: 0 all
# passed, 1 not, 77 could not try.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
place=$root/target/kubernetes
if [[ ! -x $place/bin/kubernetes-validate ]]; then
  { rm -rf "$place" && python3 -m venv "$place" && "$place/bin/pip" -q install kubernetes-validate==1.37.0; } >/dev/null 2>&1 ||
    { echo "SKIPPED kubernetes: no kubernetes-validate here, and PyPI does not give it"; rm -rf "$place"; exit 77; }
fi
failed=0
check() { # WHAT COMMAND...
  local out
  if out=$("${@:2}" 2>&1); then echo "PASS $1"; else echo "FAIL $1"; echo "$out"; failed=1; fi
}
good() { "$place/bin/kubernetes-validate" --strict --no-warn -k "$1" "$2"; }
refused() { ! good "$1" "$2"; }
mistaken=$(mktemp)
trap 'rm "$mistaken"' EXIT
for release in 1.28 1.32 1.37; do
  for file in "$root"/etc/kubernetes/*.yaml; do
    check "${file##*/} is good for Kubernetes $release" good $release "$file"
    sed 's/readOnlyRootFilesystem/readOnlyRoot/' "$file" >"$mistaken"
    check "and not with a mistake in it" refused $release "$mistaken"
  done
done
exit "$failed"
