#!/usr/bin/env bash
# Makes Debian packages of what `make build` has made, and lets lintian judge them: sealane, and sealane-dbgsym with its
# debug information. Two packages of the same commit and the same build are equal, byte by byte.
#   package.sh [VERSION]     writes them to target/package; without VERSION it is that of Cargo.toml
# A package runs on the release of Debian that it was made on, and on later ones.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(scripts/version.sh)}
scripts/install-deps.sh package

out=$PWD/target/package
rm -rf "$out"
mkdir -p "$out/build"
cp -r debian "$out/build/"
export SEALANE_TREE=$PWD SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# With more threads it would depend on their number.
export DPKG_DEB_THREADS_MAX=1
maintainer=$(sed -n 's/^Maintainer: //p' debian/control)
cat >"$out/build/debian/changelog" <<CHANGELOG
sealane ($version) unstable; urgency=medium

  * CHANGELOG.md of this package says what has changed.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
CHANGELOG
(cd "$out/build" && dpkg-buildpackage --build=binary --no-sign --no-check-builddeps) >"$out/log" 2>&1 ||
  { tail -n 20 "$out/log" >&2; exit 1; }
rm -r "$out/build"
lintian --allow-root --fail-on error,warning "$out"/*.deb
ls -l "$out"/*.deb
