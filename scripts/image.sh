#!/usr/bin/env bash
# Makes an OCI image of what `make build` has made: sealane, the library that it preloads, this machine's C library, and
# licences; no shell and no other program. Two images of the same commit and the same build are equal, byte by byte. It
# needs no daemon, no network and no rights.
#   image.sh [VERSION]     writes target/image/sealane.tar; without VERSION it is that of Cargo.toml
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(scripts/version.sh)}
out=$PWD/target/image root=$PWD/target/image/root
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)} REVISION=$(git rev-parse HEAD)
export SOURCE_DATE_EPOCH REVISION
umask 022
rm -rf "$out"
mkdir -p "$out"

make --no-print-directory install DESTDIR="$out/installed" PREFIX=/usr >"$out/log"
copy() { install -D -m "$1" "$2" "$root$3"; }
for file in /usr/bin/sealane /usr/lib/sealane/libsealane_shim.so; do
  copy 755 "$out/installed$file" "$file"
  strip --strip-unneeded --remove-section=.comment "$root$file"
done
copy 600 debian/sealane.toml /etc/sealane/sealane.toml
copy 644 etc/sealane.toml /usr/share/doc/sealane/sealane.toml
copy 644 debian/copyright /usr/share/doc/sealane/copyright
copy 644 LICENSE-APACHE /usr/share/common-licenses/Apache-2.0
# Where /run/sealane is no volume, and the file system is read-only, there is still a place for one.
mkdir -p "$root"/{dev,proc,sys,run/sealane,tmp,var/lib/sealane,usr/lib64}
chmod 1777 "$root/tmp"
chmod 700 "$root"/{run,var/lib}/sealane
ln -s usr/lib "$root/lib"
ln -s usr/lib64 "$root/lib64"

# The package that has a file. Before Debian 13 it is known there by the name without /usr.
package_of() { dpkg-query -S "$1" 2>/dev/null || dpkg-query -S "${1#/usr}"; }
# The libraries that both name, at their places, and their licences.
libraries=$(ldd "$root/usr/bin/sealane" "$root/usr/lib/sealane/libsealane_shim.so" | sed -nE 's/^\t(.* => )?(\/[^ ]*) \(.*/\2/p' | sort -u)
for library in $libraries; do
  copy 755 "$library" "$(realpath "${library%/*}")/${library##*/}"
  package=$(package_of "$(realpath "$library")")
  package=${package%%:*}
  copy 644 "$(realpath "/usr/share/doc/$package/copyright")" "/usr/share/doc/$package/copyright"
done
for licence in GPL-2 GPL-3 LGPL-2 LGPL-2.1 LGPL-3; do
  copy 644 "/usr/share/common-licenses/$licence" "/usr/share/common-licenses/$licence"
done

python3 scripts/image.py "$root" "$out/sealane.tar" "$version"
rm -r "$out/installed"
ls -l "$out/sealane.tar"
