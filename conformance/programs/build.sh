#!/usr/bin/env bash
# Builds the programs into a folder: afalg and afalg_fork (dynamic), afalg-static, xfrm-static, afalg-go and ao-go
# (static, without libc).
#   build.sh FOLDER
# Programs that cannot be built here are named and left out.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
cc=${CC:-cc}
"$cc" -O2 -Wall -pthread -o "$out/afalg" "$here/afalg.c"
"$cc" -O2 -Wall -pthread -o "$out/afalg_fork" "$here/afalg_fork.c"
"$cc" -O2 -Wall -pthread -static -o "$out/afalg-static" "$here/afalg.c"
"$cc" -O2 -Wall -static -o "$out/xfrm-static" "$here/xfrm.c"
if command -v go >/dev/null; then
  CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$out/afalg-go" "$here/afalg.go"
  CGO_ENABLED=0 GOFLAGS=-mod=mod go build -o "$out/ao-go" "$here/ao.go"
else
  rm -f "$out/afalg-go" "$out/ao-go"
  echo "build.sh: no go here: afalg-go and ao-go left out" >&2
fi
