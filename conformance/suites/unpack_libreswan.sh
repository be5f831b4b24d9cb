#!/usr/bin/env bash
# Unpacks libreswan of Debian 12 or 13 with the libraries that it needs into a folder: LIBRESWAN_ROOT/bookworm and
# LIBRESWAN_ROOT/trixie of libreswan.sh. It does nothing if they are there already.
#
#   unpack_libreswan.sh bookworm|trixie FOLDER
#
# unpack.sh says what it needs.
set -euo pipefail
release=${1:?the release is missing}
folder=$(realpath -m "${2:?FOLDER is missing}")
. "$(dirname "$0")/unpack.sh"
download "$release" libreswan libnss3-tools iproute2
for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$folder"; done
# /bin and the like are links to what is below /usr, as on an installed system.
for name in bin sbin lib lib64; do
  [[ ! -d $folder/$name ]] || { mkdir -p "$folder/usr/$name"; cp -a "$folder/$name/." "$folder/usr/$name"; rm -r "${folder:?}/$name"; }
done
test -x "$folder/usr/libexec/ipsec/pluto" -a -x "$folder/usr/libexec/ipsec/whack"
version=$(version_of libreswan)
finish "$version"
