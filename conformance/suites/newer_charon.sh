#!/usr/bin/env bash
# Unpacks strongSwan's charon and swanctl of Debian 13, with the libraries that they need, into a folder: CHARON_ROOT of
# charon.sh and charon_offload.sh. It does nothing if they are there already.
#
#   newer_charon.sh FOLDER
#
# Nothing is installed. Needs root, apt with the archive's keyring, and Debian's archive or a mirror that apt is
# configured for.
set -euo pipefail
folder=$(realpath -m "${1:?FOLDER is missing}")
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
# This file is written last.
[[ ! -e $folder/version ]] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no apt here" >&2; exit 2; }
apt=$folder/apt
mkdir -p "$apt"/{lists/partial,archives/partial}
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' >"$apt/sources.list"
options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State=$apt"
  -o Dir::State::status=/dev/null -o "Dir::Cache=$apt" -o APT::Sandbox::User=root -o Acquire::Retries=1
  -o Acquire::http::Timeout=20 -o APT::Update::Error-Mode=any -qq)
apt-get "${options[@]}" update
# Installed packages are ignored, so that all dependencies are unpacked.
apt-get "${options[@]}" --download-only --no-install-recommends -y install charon-systemd strongswan-swanctl \
  libstrongswan-standard-plugins
for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
version=$(dpkg-deb -f "$apt"/archives/charon-systemd_*.deb Version)
rm -r "$apt"
test -x "$folder/usr/sbin/charon-systemd" -a -x "$folder/usr/sbin/swanctl"
echo "$version" >"$folder/version"
