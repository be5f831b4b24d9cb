#!/usr/bin/env bash
# Unpacks packages of a Debian release, with all that they need, into a folder. It does nothing if they are there already.
# The version of the first package is then in FOLDER/version.
#
#   unpack.sh RELEASE FOLDER PACKAGE...      for example trixie, bookworm-backports
#
# Nothing is installed, and no script of a package runs. Needs root, apt with the archive's keyring, and Debian's archive
# or a mirror that apt is configured for.
set -euo pipefail
release=${1:?RELEASE is missing} folder=$(realpath -m "${2:?FOLDER is missing}")
shift 2
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
# This file is written last.
[[ ! -e $folder/version ]] || exit 0
command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || { echo "no apt here" >&2; exit 2; }
apt=$folder/apt
mkdir -p "$apt"/{lists/partial,archives/partial}
: >"$apt/status"
# Backports need packages of the release that they are for.
printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' \
  $(printf '%s\n' "$release" "${release%-backports}" | uniq) >"$apt/sources.list"
options=(-o "Dir::Etc::sourcelist=$apt/sources.list" -o Dir::Etc::sourceparts=/nonexistent -o "Dir::State=$apt"
  -o "Dir::State::status=$apt/status" -o "Dir::Cache=$apt" -o APT::Sandbox::User=root -o Acquire::Retries=1
  -o Acquire::http::Timeout=20 -o "APT::Default-Release=$release" -o APT::Update::Error-Mode=any -qq)
apt-get "${options[@]}" update
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
