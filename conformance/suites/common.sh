# Sourced by the suites: where they work, and how a command is run in a target.
# A target is `kernel:NAME` (a user-mode kernel of SEALANE_KERNELS), `sealane:PROFILE`, or `plain` (this machine).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kernels=${SEALANE_KERNELS:-$root/../shared/kernel}
sealane=${SEALANE:-$root/target/release/sealane}
work=${SEALANE_SUITES:-/tmp/sealane-suites}
mkdir -p "$work"
# More options of `sealane run` that a suite needs.
run_flags=()

# has PATTERN: whether its input has a line like that. It reads all of it: who writes must not fail because nobody listens any more.
has() { local text; text=$(cat); grep -Eq -- "$1" <<<"$text"; }

# What a guest needs first: the allowlist lifted, and what udev would have made in its bare /dev.
guest='f=/proc/sys/crypto/af_alg_restrict; [ ! -e $f ] || echo 0 >$f
[ -e /dev/fd ] || ! grep -q "^devtmpfs /dev " /proc/mounts || ln -s /proc/self/fd /dev/fd; exec "$@"'

# in_target TARGET COMMAND...: runs it there.
in_target() {
  local target=$1; shift
  case $target in
    kernel:*)
      "$kernels/boot" "${target#kernel:}" --mem 1024M -- \
        sh -c "$guest" sh "$@" ;;
    sealane:*) "$sealane" run --profile "${target#sealane:}" "${run_flags[@]}" -- "$@" ;;
    plain) "$@" ;;
    *) echo "target $target: expected kernel:NAME, sealane:PROFILE or plain" >&2; return 2 ;;
  esac
}
