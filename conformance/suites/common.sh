# Sourced by the suites: their folder, and a function that runs a command in a target.
# A target is `kernel:NAME` (a user-mode kernel of SEALANE_KERNELS), `sealane:PROFILE`, or `plain` (this machine).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kernels=${SEALANE_KERNELS:-$root/../shared/kernel}
boot=$root/conformance/boot
sealane=${SEALANE:-$root/target/release/sealane}
work=${SEALANE_SUITES:-/tmp/sealane-suites}
mkdir -p "$work"
# More options of `sealane run` that a suite needs.
run_flags=()

# has PATTERN: whether its input has a matching line. It reads everything, so that the writer does not fail on a closed
# pipe.
has() { local text; text=$(cat); grep -Eq -- "$1" <<<"$text"; }

# Prepares a guest: lifts the allowlist, and makes the device files that udev would have made.
guest='f=/proc/sys/crypto/af_alg_restrict; [ ! -e $f ] || echo 0 >$f
[ -e /dev/fd ] || ! grep -q "^devtmpfs /dev " /proc/mounts || ln -s /proc/self/fd /dev/fd; exec "$@"'

# in_target TARGET COMMAND...: runs it in the target.
in_target() {
  local target=$1; shift
  case $target in
    kernel:*)
      "$boot" "${target#kernel:}" --mem 1024M -- \
        sh -c "$guest" sh "$@" ;;
    sealane:*) "$sealane" run --profile "${target#sealane:}" "${run_flags[@]}" -- "$@" ;;
    plain) "$@" ;;
    *) echo "target $target: expected kernel:NAME, sealane:PROFILE or plain" >&2; return 2 ;;
  esac
}
