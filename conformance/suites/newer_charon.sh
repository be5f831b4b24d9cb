#!/usr/bin/env bash
# Unpacks strongSwan's charon of Debian 13, with the libraries that it needs, into a folder: CHARON_ROOT of charon_offload.sh.
#
#   newer_charon.sh FOLDER
#
# Nothing is installed. Needs apt and the archive's keyring, and deb.debian.org or what apt is told to ask instead.
set -euo pipefail
folder=$(realpath -m "${1:?FOLDER is missing}")
apt=$folder/apt
mkdir -p "$apt"/{lists/partial,archives/partial}
echo 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian trixie main' >"$apt/sources.list"
options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State=$apt"
  -o Dir::State::status=/dev/null -o "Dir::Cache=$apt" -o APT::Sandbox::User=root -qq)
apt-get "${options[@]}" update
# None of what is there counts, so that all that it needs comes along.
apt-get "${options[@]}" --download-only --no-install-recommends -y install charon-systemd libstrongswan-standard-plugins
for package in "$apt"/archives/*.deb; do dpkg-deb -x "$package" "$folder"; done
rm -r "$apt"
test -x "$folder/usr/sbin/charon-systemd"
