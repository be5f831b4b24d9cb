#!/usr/bin/env bash
# OpenSSL's own tests of algorithms with the provider (evp_test; openssl_evp_test.py says how), and the tests of the provider
# (`provider.rs`, `provider_guarded.rs`, `provider_keys.rs` and `provider_symmetric.rs` in `conformance/tests/alg`) with another OpenSSL
# than this machine's.
#
#   openssl_versions.sh 3.0|3.5|4.0
#
# evp_test is compiled of Debian's source of that version, for the libcrypto that is tested, and neither is in the repository. If the
# archive lacks the newest source, the one before it is taken. 3.0 is this machine's, of Debian 12, for which `make test` has the rest.
# 3.5 is Debian 13's, unpacked in target/openssl-3.5 and not installed: the programs that were built with 3.0 run on its
# libraries, as they do for somebody who upgrades Debian. 4.0 is built in target/openssl-4.0, of the source in the crate
# `openssl-src`, and the programs with its headers (cargo, perl, make; some minutes, once). Exit status: 0 all passed, 1 not,
# 77 could not try.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
version=${1:-} folder=$root/target/openssl-${1:-} headers=() libcrypto=() more=()
lacks() { echo "SKIPPED openssl-$version: $1"; exit 77; }
command -v "${CC:-cc}" >/dev/null || lacks "no ${CC:-cc} here"
mkdir -p "$folder"
launch=() source_release=experimental
case $version in
  3.0)
    [[ $EUID -eq 0 ]] || lacks "only root may unpack Debian's sources"
    command=$(command -v openssl) || lacks "no openssl here"
    source_release=bookworm libcrypto=(-lcrypto) more=(e_os.h)
    ;;
  3.5)
    [[ $EUID -eq 0 ]] || lacks "only root may unpack Debian's packages"
    "$root/conformance/suites/unpack.sh" trixie "$folder/debian" openssl libssl3t64 >"$folder/log" 2>&1 ||
      lacks "OpenSSL of Debian 13 could not be unpacked: $(tail -n 1 "$folder/log")"
    lib=$(echo "$folder"/debian/usr/lib/*-linux-gnu*)
    # The loader and the C library are newer than this system's, too.
    launch=("$(echo "$lib"/ld-linux*.so.*)" --library-path "$lib")
    command=$folder/debian/usr/bin/openssl
    source_release=trixie libcrypto=("$lib/libcrypto.so.3" -Wl,--allow-shlib-undefined)
    # Headers for evp_test. The other programs are built with those of 3.0.
    "$root/conformance/suites/unpack.sh" trixie "$folder/headers" libssl-dev >"$folder/log" 2>&1 ||
      lacks "the headers of Debian 13's OpenSSL could not be unpacked: $(tail -n 1 "$folder/log")"
    headers=(-I"$folder/headers/usr/include" -I"$(echo "$folder"/headers/usr/include/*-linux-gnu*)")
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
    command=$source/apps/openssl
    export OPENSSL_FLAGS="-I$source/include -L$source"
    headers=(-I"$source/include") libcrypto=("$source/libcrypto.a" -pthread -ldl)
    ;;
  *) sed -n 's/^#   \(openssl_versions.sh .*\)/usage: \1/p' "$0" >&2; exit 2 ;;
esac

mkdir -p "$folder/bin"
wrap() { # NAME PROGRAM: a script in bin that runs it on the libraries of that version
  printf '#!/bin/sh\nexec %s"$@"\n' "$(printf '%q ' "${launch[@]}" "$2")" >"$folder/bin/$1"
  chmod 755 "$folder/bin/$1"
}
wrap openssl "$command"
said=$("$folder/bin/openssl" version)
echo "$said"
[[ $said == "OpenSSL $version."* ]] || { [[ $version != 3.0 ]] || lacks "this machine has $said"; echo "FAIL it is OpenSSL $version"; exit 1; }
echo "PASS it is OpenSSL $version"

evp_test() { # builds it, in a few seconds, and runs it in every home of keys
  [[ $(uname -m) == x86_64 ]] || { echo "SKIPPED evp_test with OpenSSL $version: its counter is for x86-64"; return 77; }
  local source=$folder/source build=$folder/evp_test file
  "$root/conformance/suites/unpack_source.sh" "$source_release" "$source" openssl "$version" test apps include crypto "${more[@]}" >"$folder/log" 2>&1 ||
    { echo "SKIPPED evp_test with OpenSSL $version: its source cannot be had: $(tail -n 1 "$folder/log")"; return 77; }
  echo "evp_test of Debian's source $(<"$source/version")"
  rm -rf "$build"
  mkdir "$build"
  # Those of the library first: the source may be of another patch, and has no headers that are made when it is configured.
  local flags=(-O1 -w -DNO_LEGACY_MODULE -DOPENSSL_SUPPRESS_DEPRECATED "${headers[@]}" -I"$source/include" -I"$source/apps/include" -I"$source")
  build() {
    cd "$build" || return
    # A library, because its functions that a test may have itself are overridden.
    for file in "$source"/test/testutil/*.c "$source/apps/lib/opt.c"; do
      "${CC:-cc}" "${flags[@]}" -c "$file" || return
    done
    ar rcs libtestutil.a ./*.o && "${CC:-cc}" "${flags[@]}" "$source/test/evp_test.c" libtestutil.a "${libcrypto[@]}" -o evp_test &&
      "${CC:-cc}" -O1 -Wall -shared -fPIC "${headers[@]}" "$root/conformance/suites/openssl_counted.c" -o counted.so
  }
  (build) >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; echo "FAIL evp_test is built"; return 1; }
  wrap evp_test "$build/evp_test"
  OPENSSL=$folder/bin/openssl python3 "$root/conformance/suites/openssl_evp_test.py" "$folder/bin/evp_test" \
    "$source/test/recipes/30-test_evp_data" "$build/counted.so"
}
[[ -n ${SEALANE_BUILT:-} ]] || "$root/scripts/test.sh" --build >"$folder/log" 2>&1 || { tail -n 20 "$folder/log"; echo "FAIL the provider is built"; exit 1; }
failed=0 status=0
evp_test || status=$?
# With 3.0 there is nothing else to try.
[[ $version != 3.0 ]] || { ((status == 0 || status == 77)) || status=1; exit "$status"; }
# 77: it has told why it could not be tried.
((status == 0 || status == 77)) || failed=1

"$root/conformance/programs/build.sh" "$folder/programs" >"$folder/log" 2>&1 || { cat "$folder/log"; exit 1; }
[[ -x $folder/programs/provider ]] || lacks "no OpenSSL headers here"
for program in provider provider_guarded provider_keys provider_tls; do wrap $program "$folder/programs/$program"; done
SEALANE_OPENSSL=$folder/bin "$root/scripts/test.sh" alg::provider || failed=1
exit "$failed"
