#!/usr/bin/env bash
# Unpacks strongSwan's charon and swanctl of Debian 13, with the libraries that they need, into a folder: CHARON_ROOT of
# charon.sh and charon_offload.sh. It does nothing if they are there already.
#
#   newer_charon.sh FOLDER
#
# unpack.sh says what it needs.
set -euo pipefail
folder=$(realpath -m "${1:?FOLDER is missing}")
. "$(dirname "$0")/unpack.sh"
download trixie charon-systemd strongswan-swanctl libstrongswan-standard-plugins
for package in "$packages"/*.deb; do dpkg-deb -x "$package" "$folder"; done
test -x "$folder/usr/sbin/charon-systemd" -a -x "$folder/usr/sbin/swanctl"
version=$(version_of charon-systemd)
finish "$version"
