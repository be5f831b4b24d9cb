#!/usr/bin/env bash
# The tests of the OpenSSL provider (`provider.rs`, `provider_guarded.rs`, `provider_keys.rs` and `provider_symmetric.rs` in `conformance/tests/alg`) with another OpenSSL than
# this machine's.
#
#   openssl_versions.sh 3.5|4.0
#
# 3.5 is Debian 13's, unpacked in target/openssl-3.5 and not installed: the programs that were built with 3.0 run on its
# libraries, as they do for somebody who upgrades Debian. 4.0 is built in target/openssl-4.0, of the source in the crate
# `openssl-src`, and the programs with its headers (cargo, perl, make; some minutes, once). Exit status: 0 all passed, 1 not,
# 77 could not try.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=${1:-} folder=$root/target/openssl-${1:-}
lacks() { echo "SKIPPED openssl-$version: $1"; exit 77; }
command -v "${CC:-cc}" >/dev/null || lacks "no ${CC:-cc} here"
mkdir -p "$folder"
case $version in
  3.5)
    [[ $EUID -eq 0 ]] || lacks "only root may unpack Debian's packages"
    "$root/conformance/suites/unpack.sh" trixie "$folder/debian" openssl libssl3t64 >"$folder/log" 2>&1 ||
      lacks "OpenSSL of Debian 13 could not be unpacked: $(tail -n 1 "$folder/log")"
    lib=$(echo "$folder"/debian/usr/lib/*-linux-gnu*)
    # The loader and the C library are newer than this system's, too.
    launch=("$(echo "$lib"/ld-linux*.so.*)" --library-path "$lib")
    command=$folder/debian/usr/bin/openssl
    ;;
  4.0)
    command -v perl >/dev/null && command -v make >/dev/null || lacks "no perl or no make here"
    source=$folder/vendor/openssl-src/openssl
    if [[ ! -e $folder/built ]]; then
      mkdir -p "$folder/src"
      : >"$folder/src/lib.rs"
      cat >"$folder/Cargo.toml" <<'TOML'
[package]
name = "openssl-4-0"
version = "0.0.0"
edition = "2024"
[dependencies]
openssl-src = "=400.0.2"
[workspace]
TOML
      cargo vendor --quiet --manifest-path "$folder/Cargo.toml" "$folder/vendor" >"$folder/log" 2>&1 ||
        lacks "the crate openssl-src 400.0.2 cannot be had: $(tail -n 1 "$folder/log")"
      # As the crate's own builder does it: the crate lacks what makes shared libraries. OpenSSL's tools of other steps are
      # missing too, so that only what the tests need is made.
      (cd "$source" && perl ./Configure "--prefix=$folder/root" --libdir=lib no-shared no-module no-tests no-docs no-comp no-zlib &&
        make -j "$(nproc)" build_generated && make -j "$(nproc)" libcrypto.a libssl.a apps/openssl) >"$folder/log" 2>&1 ||
        { tail -n 20 "$folder/log"; echo "FAIL OpenSSL 4.0 is built"; exit 1; }
      : >"$folder/built"
    fi
    # Both libraries are in the programs; the provider needs neither.
    launch=()
    command=$source/apps/openssl
    export OPENSSL_FLAGS="-I$source/include -L$source"
    ;;
  *) sed -n 's/^#   \(openssl_versions.sh .*\)/usage: \1/p' "$0" >&2; exit 2 ;;
esac

"$root/conformance/programs/build.sh" "$folder/programs" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
[[ -x $folder/programs/provider ]] || lacks "no OpenSSL headers here"
mkdir -p "$folder/bin"
wrap() { # NAME PROGRAM: a script in bin that runs it on the libraries of that version
  printf '#!/bin/sh\nexec %s"$@"\n' "$(printf '%q ' "${launch[@]}" "$2")" >"$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}
wrap openssl "$command"
for program in provider provider_guarded provider_keys provider_tls; do wrap $program "$folder/programs/$program"; done
said=$("$folder/bin/openssl" version)
echo "$said"
[[ $said == "OpenSSL $version."* ]] || { echo "FAIL it is OpenSSL $version"; exit 1; }
echo "PASS it is OpenSSL $version"
SEALANE_OPENSSL=$folder/bin exec "$root/scripts/test.sh" alg::provider
