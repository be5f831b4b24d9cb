#!/usr/bin/env bash
# Debian's programs that use OpenSSL, with the provider and the shipped example of its configuration.
#
#   openssl_programs.sh         it serves ciphers, at one end and OpenSSL's default provider at the other, and the other way round
#   openssl_programs.sh keys    private keys are the keeper's (openssl_keys_inside.py)
#   openssl_programs.sh handshakes [OPTION...]
#                               no test: bench/handshakes.py with these options, by nginx and OpenSSL of the machine for keys
#
# openssl_programs_inside.py and openssl_keys_inside.py have the programs. The machine is a minimal Debian, which debootstrap makes
# in target/packages (1 GB): of this machine's release, and for keys of the coming one, because nginx takes the name of such a key
# from 1.29 on, and Debian 13 has 1.26. Each run has it under an overlay in memory, with a network of its own. As root, after `make
# build`. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
what=${1:-programs}
shift $(($# > 0))
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/machine.sh"
lacks() { echo "SKIPPED $suite: $1"; exit 77; }
case $what in
  programs)
    release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    packages='openssl openssh-server openssh-client nginx-light haproxy curl python3 postgresql iproute2 procps' ;;
  keys | handshakes)
    release=forky
    packages='openssl openssh-server nginx-light haproxy apache2 stunnel4 openvpn curl python3 postgresql iproute2 procps' ;;
  *) echo "usage: openssl_programs.sh [keys | handshakes [OPTION...]]" >&2; exit 2 ;;
esac
suite=openssl-${what/handshakes/keys}
[[ $EUID -eq 0 ]] || lacks "only root may mount and make network namespaces"
provider=$(dirname "$sealane")/libsealane_provider.so
[[ -e $provider ]] || { echo "$suite: no $provider" >&2; exit 2; }
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || lacks "no apt here"
base=$root/target/packages/$suite
if [[ $(cat "$base/srv/made" 2>/dev/null) != "$release $packages" ]]; then
  log=$base.log
  mkdir -p "${log%/*}"
  is_reached() { /usr/lib/apt/apt-helper download-file http://deb.debian.org/debian/dists/sid/Release "$base.release" >>"$log" 2>&1; }
  # A site's copy of the mirror may stand still for longer than the lists of a coming release are valid.
  { "$(dirname "$0")/debian.sh" "$release" "$base" && in_machine "$base" "set -e
      export DEBIAN_FRONTEND=noninteractive
      printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
      chmod 755 /usr/sbin/policy-rc.d
      apt-get -qq -o Acquire::Check-Valid-Until=false update
      apt-get -qq -y install --no-install-recommends $packages
      apt-get clean"; } >"$log" 2>&1 || {
    is_reached || lacks "Debian's mirror cannot be reached: $log"
    echo "FAIL a $release with the programs: $log: $(grep -m 1 '^E: ' "$log" || tail -n 1 "$log")"
    exit 1
  }
  echo "$release $packages" >"$base/srv/made"
fi
echo "of $release: $(dpkg-query --admindir="$base/var/lib/dpkg" -W -f '${db:Status-Abbrev}${Package} ${Version}\n' $packages nginx 'libssl3*' |
  sed -n 's/^ii *//p' | paste -sd ,)"
folder=$(mktemp -d "$work/$suite.XXXXXX")
trap 'rmdir "$folder"' EXIT
status=0
unshare --mount --pid --net --ipc --uts --fork --kill-child bash -ec '
  . "$1/conformance/suites/machine.sh"
  mount --make-rprivate /
  mount -t tmpfs -o mode=755 tmpfs "$2"
  mkdir "$2"/{upper,work,new}
  mount -t overlay overlay -o "lowerdir=$5,upperdir=$2/upper,workdir=$2/work" "$2/new"
  install -D -m 755 "$3" "$2/new/usr/local/lib/sealane/sealane.so"
  install -D -m 644 "$1/etc/openssl-sealane.cnf" "$2/new/etc/sealane/openssl-sealane.cnf"
  install -D "$4" "$2/new/usr/local/bin/sealane"
  install -D -t "$2/new/srv/suite" "$1"/conformance/suites/openssl*_inside.py "$1"/bench/{handshakes,process_cpu}.py
  cd "$2/new"
  mount -t proc proc proc
  mount --rbind /sys sys
  devices dev
  mount -t tmpfs -o mode=1777 shm dev/shm
  mount -t tmpfs -o mode=755 run run
  mount -t tmpfs -o mode=1777 tmp tmp
  ip link set lo up
  machine=$2/new what=$6
  shift 6
  program=openssl_${what}_inside.py
  if [[ $what == handshakes ]]; then
    program=handshakes.py
    set -- --module /usr/local/lib/sealane/sealane.so "$@" /usr/local/bin/sealane
  fi
  become "$machine" python3 "/srv/suite/$program" "$@"
  ' sh "$root" "$folder" "$(realpath "$provider")" "$(realpath "$sealane")" "$base" "$what" "$@" || status=$?
exit "$status"
