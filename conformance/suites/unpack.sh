#!/usr/bin/env bash
# Unpacks packages of a Debian release, with all that they need, into a folder. It does nothing if they are there already.
# The version of the first package is then in FOLDER/version.
#
#   unpack.sh RELEASE FOLDER PACKAGE...      for example trixie, bookworm-backports
#
# Nothing is installed, and no script of a package runs. apt.sh says what it needs.
set -euo pipefail
. "$(dirname "$0")/apt.sh"
release=${1:?RELEASE is missing} folder=$(realpath -m "${2:?FOLDER is missing}")
shift 2
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
# This file is written last.
[[ ! -e $folder/version ]] || exit 0
apt=$folder/apt
archive deb "$apt" "$release"
# No package counts as installed, so that all dependencies are unpacked.
apt-get "${options[@]}" --download-only --no-install-recommends -y install "$@"
# Folders of /usr, as on installed systems: packages of Debian 12 have files in both.
for name in bin sbin lib lib64; do
  mkdir -p "$folder/usr/$name"
  ln -sfn "usr/$name" "$folder/$name"
done
for package in "$apt"/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$folder"
done
version=$(dpkg-deb -f "$apt/archives/$1"_*.deb Version)
rm -r "$apt"
echo "$version" >"$folder/version"
