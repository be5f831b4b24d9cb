#!/usr/bin/env bash
# Makes a minimal Debian in a folder, as container images have it, with Debian's mirrors and this machine's own certificates.
#
#   debian.sh RELEASE FOLDER      for example bookworm; the folder is made anew
#
# Needs root and apt. debootstrap is unpacked in target/debootstrap, not installed.
set -euo pipefail
release=${1:?usage: debian.sh RELEASE FOLDER} machine=${2:?usage: debian.sh RELEASE FOLDER}
tool=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/target/debootstrap
mkdir -p "$tool"
if [[ ! -x $tool/usr/sbin/debootstrap ]]; then
  (cd "$tool" && apt-get -qq update && apt-get -qq -o APT::Sandbox::User=root download debootstrap && dpkg-deb -x debootstrap_*.deb .)
fi
rm -rf --one-file-system "$machine"
mkdir -p "${machine%/*}"
# forky is newer than some debootstraps, which lack its script; that of sid is the same.
script=$tool/usr/share/debootstrap/scripts/forky
[[ -e $script ]] || ln -s sid "$script"
DEBOOTSTRAP_DIR=$tool/usr/share/debootstrap "$tool/usr/sbin/debootstrap" --variant=minbase "$release" "$machine"
for suite in "debian $release" "debian $release-updates" "debian-security $release-security"; do
  echo "deb http://deb.debian.org/$suite main"
done >"$machine/etc/apt/sources.list"
cp -L /etc/resolv.conf "$machine/etc/resolv.conf"
# A site's own certificates, where this machine has some.
mkdir -p "$machine/usr/local/share/ca-certificates"
cp -r /usr/local/share/ca-certificates/. "$machine/usr/local/share/ca-certificates/"
