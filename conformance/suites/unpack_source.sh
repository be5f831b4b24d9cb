#!/usr/bin/env bash
# Unpacks what a Debian package was made of, as its authors gave it out and without Debian's changes, into a folder. It does nothing if it
# is there already. Its version is then in FOLDER/version.
#
#   unpack_source.sh RELEASE FOLDER PACKAGE VERSION [PATH...]    for example trixie, 3.5: the newest version that begins with it
#
# Of the versions that begin so the newest that the archive still has. With PATHs only these of it. apt.sh says what it needs.
set -euo pipefail
. "$(dirname "$0")/apt.sh"
release=${1:?RELEASE is missing} folder=$(realpath -m "${2:?FOLDER is missing}") package=${3:?PACKAGE is missing} wanted=${4:?VERSION is missing}
shift 4
mkdir -p "$folder"
exec 9>"$folder/lock"
flock 9
# This file is written last.
[[ ! -e $folder/version ]] || exit 0
apt=$folder/apt
archive deb-src "$apt" "$release"
found=$(apt-cache "${options[@]}" showsrc --only-source "$package" | sed -n 's/^Version: //p' | sort -rV | uniq) || true
cd "$apt"
# A mirror may not have the newest one yet.
for version in $found; do
  [[ $version == "$wanted".* ]] || continue
  rm -f ./*.tar.*
  if ! apt-get "${options[@]}" --download-only --tar-only source "$package=$version" 9>&-; then continue; fi
  archives=("$apt/${package}_${version%-*}".orig.tar.*[!c])
  tar -xf "${archives[0]}" -C "$folder" --no-same-owner --no-same-permissions --strip-components=1 --wildcards --no-wildcards-match-slash "${@/#/*/}"
  cd "$folder"
  rm -r "$apt"
  echo "$version" >"$folder/version"
  exit
done
echo "no source of $package $wanted in $release" >&2
exit 1
