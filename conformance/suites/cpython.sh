#!/usr/bin/env bash
# CPython's own AF_ALG tests (test.test_socket, LinuxKernelCryptoAPI) in a target.
#
#   cpython.sh TARGET [PYTHON]     TARGET: kernel:linux-7.3, sealane:open, ...; PYTHON: an interpreter with its tests
#
# Debian keeps the tests in libpython3.11-testsuite (bookworm). Exit status: 0 all passed or skipped for CPython's
# reasons.
. "$(dirname "$0")/common.sh"
target=${1:?usage: cpython.sh TARGET [PYTHON]}
python=${2:-python3}
"$python" -c 'import test.test_socket' 2>/dev/null ||
  { echo "$python has no test.test_socket (Debian: libpython3.11-testsuite)" >&2; exit 2; }
log=$work/cpython.${target/:/.}.log
status=0
in_target "$target" timeout 300 "$python" -m unittest -v test.test_socket.LinuxKernelCryptoAPI >"$log" 2>&1 || status=$?
grep -E '^test_|^Ran |^OK|^FAILED' "$log" | sed -E 's/ \(test[^)]*\)//'
exit "$status"
