#!/usr/bin/env bash
# Builds the programs into a folder: afalg, afalg_fork, afalg_keys, provider, provider_guarded, provider_keys and
# provider_tls (dynamic),
# afalg-static, afalg_keys-static, xfrm-static, afalg-go and ao-go (static, without libc).
#   build.sh FOLDER
# OPENSSL_FLAGS are more arguments of the compiler, for provider, provider_guarded, provider_keys and provider_tls with another OpenSSL than the installed one.
# Programs that cannot be built here are named and left out. Those that are newer than their source stay; of several runs
# at once one builds.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
out=${1:?usage: build.sh FOLDER}
mkdir -p "$out"
out=$(cd "$out" && pwd)
exec 9>"$out/lock"
flock 9
cc=${CC:-cc}
libraries=
build() { # PROGRAM SOURCE COMMAND...: builds it, of the source and `libraries`, if it is older than its source or this script
  local program=$out/$1 source=$here/$2
  shift 2
  [[ $program -nt $source && $program -nt ${BASH_SOURCE[0]} ]] || { "$@" -o "$program.new" "$source" $libraries && mv "$program.new" "$program"; }
}
build afalg afalg.c "$cc" -O2 -Wall -pthread
build afalg_fork afalg_fork.c "$cc" -O2 -Wall -pthread
build afalg_keys afalg_keys.c "$cc" -O2 -Wall
build afalg-static afalg.c "$cc" -O2 -Wall -pthread -static
build afalg_keys-static afalg_keys.c "$cc" -O2 -Wall -static
build xfrm-static xfrm.c "$cc" -O2 -Wall -static
read -ra openssl <<<"${OPENSSL_FLAGS:-}"
if printf '#include <openssl/ssl.h>\n' | "$cc" "${openssl[@]}" -E - >/dev/null 2>&1; then
  libraries=-lcrypto build provider provider.c "$cc" -O1 -g -Wall -pthread "${openssl[@]}"
  libraries=-lcrypto build provider_guarded provider_guarded.c "$cc" -O1 -g -Wall "${openssl[@]}"
  libraries=-lcrypto build provider_keys provider_keys.c "$cc" -O1 -g -Wall -pthread "${openssl[@]}"
  libraries='-lssl -lcrypto' build provider_tls provider_tls.c "$cc" -O1 -g -Wall "${openssl[@]}"
else
  rm -f "$out/provider" "$out/provider_guarded" "$out/provider_keys" "$out/provider_tls"
  echo "build.sh: no OpenSSL headers here: provider, provider_guarded, provider_keys and provider_tls left out" >&2
fi
if command -v go >/dev/null; then
  export CGO_ENABLED=0 GOFLAGS=-mod=mod
  build afalg-go afalg.go go build
  build ao-go ao.go go build
else
  rm -f "$out/afalg-go" "$out/ao-go"
  echo "build.sh: no go here: afalg-go and ao-go left out" >&2
fi
