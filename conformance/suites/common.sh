# Sourced by the suites: where they work, and how a command is run in a target.
# A target is `kernel:NAME` (a user-mode kernel of SEALANE_KERNELS), `sealane:PROFILE`, or `plain` (this machine).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
kernels=${SEALANE_KERNELS:-$root/../shared/kernel}
sealane=${SEALANE:-$root/target/release/sealane}
work=${SEALANE_SUITES:-/tmp/sealane-suites}
mkdir -p "$work"

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
    sealane:*) "$sealane" run --profile "${target#sealane:}" -- "$@" ;;
    plain) "$@" ;;
    *) echo "target $target: expected kernel:NAME, sealane:PROFILE or plain" >&2; return 2 ;;
  esac
}

# debian_source PACKAGE: the upstream tarball of Debian's source package, downloaded into $work. Prints its path.
debian_source() {
  local package=$1 found
  found=$(find "$work" -maxdepth 1 -name "${package}_*.orig.tar.*" ! -name '*.asc' | head -1)
  if [[ -z $found ]]; then
    # Debian 12's own sources, asked for as this machine asks for packages, without changing its configuration.
    local list=$work/apt/sources.list
    mkdir -p "$work/apt/lists/partial"
    if [[ ! -s $list ]]; then
      { cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null || true; } |
        sed -n 's/^deb \(\[[^]]*\] *\)\{0,1\}\(.*\)/deb-src \2/p' >"$list"
      [[ -s $list ]] || awk '/^URIs:/{u=$2} /^Suites:/{$1="";s=$0} /^Components:/{$1="";n=split(s,a," ");for(i=1;i<=n;i++)print "deb-src",u,a[i],$0}' \
        /etc/apt/sources.list.d/*.sources >"$list"
    fi
    local opts=(-o "Dir::Etc::sourcelist=$list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$work/apt/lists"
      -o APT::Sandbox::User=root)
    apt-get -qq "${opts[@]}" update >&2
    # The packaging may be missing on a mirror; upstream's tarball is what the suite is in.
    (cd "$work" && apt-get "${opts[@]}" source --download-only "$package") >&2 || true
    found=$(find "$work" -maxdepth 1 -name "${package}_*.orig.tar.*" ! -name '*.asc' | head -1)
  fi
  [[ -n $found ]] || { echo "no source package of $package could be downloaded" >&2; return 1; }
  echo "$found"
}
