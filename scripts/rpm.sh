#!/usr/bin/env bash
# Makes an rpm package of what `make build` has made, and lets rpmlint judge it. Two packages of the same commit and the
# same build are equal, byte by byte.
#   rpm.sh [VERSION]     writes it to target/rpm; without VERSION it is that of Cargo.toml
# A package needs a C library as new as that of the machine that it was made on.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-$(scripts/version.sh)}
scripts/install-deps.sh rpm

out=$PWD/target/rpm
rm -rf "$out"
mkdir -p "$out/build"
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# zstd, as Fedora has it: xz takes minutes. rpm of 2019 and later reads it.
rpmbuild -bb rpm/sealane.spec --define "tree $PWD" --define "version $version" --define "_topdir $out/build" --define "_rpmdir $out" \
  --define '_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' --define '_binary_payload w19.zstdio' >"$out/log" 2>&1 ||
  { tail -n 20 "$out/log" >&2; exit 1; }
rm -r "$out/build"
rpmlint --strict --config rpm/rpmlint.toml "$out"/*.rpm
ls -l "$out"/*.rpm
