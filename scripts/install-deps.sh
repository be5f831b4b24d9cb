#!/usr/bin/env bash
# Installs missing packages on Debian: compilers, intel-ipsec-mb, and the unmodified programs that the demo and the
# tests run; with the word `lints`, rustfmt and clippy, too; with `package` or `rpm`, what makes packages. It does not use
# the network when everything is there.
#   install-deps.sh [lints | package | rpm]
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "install-deps: $*" >&2; }

packages=(
  ca-certificates                            # cargo fetches crates by HTTPS, and minimal images have none
  build-essential cmake pkg-config           # aws-lc is C and assembly
  libipsec-mb-dev                            # intel-ipsec-mb, multi-buffer
  libc6-dev libaio-dev                       # static programs; a client that uses libaio
  musl-tools                                 # programs of another C library
  kcapi-tools openssl cryptsetup-bin         # programs that use AF_ALG
  libssl-dev                                 # programs that compare the OpenSSL provider with OpenSSL's own
  python3 golang-go                          # sockets of two languages
  iproute2 nftables iptables ethtool         # network namespaces and rules, for TCP-AO and IPsec
  netbase                                    # names of protocols for `ip xfrm`, which minimal images lack
  iputils-ping iperf3                        # traffic for the tunnels of the demo
)
[[ ${1:-} != package ]] || packages+=(debhelper lintian)
[[ ${1:-} != rpm ]] || packages+=(rpm rpmlint)

# Any installed Rust that is new enough is used; with rustup, the version in rust-toolchain.toml. Otherwise it is
# Debian's newer Rust, from Debian 12's security suite.
needed=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
rust() { command -v cargo >/dev/null && rustc --version | cut -d' ' -f2; }
new_enough() {
  have=$(rust) && [[ -n $have ]] && printf '%s\n' "$needed" "$have" | sort -VC
}
need_rust() {
  new_enough && return
  say "Rust $needed or newer is needed; found ${have:-none that works}. With rustup: 'rustup toolchain install $needed.0'." \
    "Debian 12's security suite has it too, as rustc-web and cargo-web."
  exit 2
}
cargo=$(command -v cargo) || cargo=
rust_packages=()
if [[ -z $cargo ]] || dpkg-query -S "$cargo" &>/dev/null; then
  new_enough || rust_packages+=(rustc-web cargo-web)
  if [[ ${1:-} == lints ]]; then
    cargo fmt --version &>/dev/null || rust_packages+=(rustfmt-web)
    cargo clippy --version &>/dev/null || rust_packages+=(rust-web-clippy)
  fi
else
  need_rust
  if [[ ${1:-} == lints ]] && ! { cargo fmt --version && cargo clippy --version; } >/dev/null; then
    say "the lints need rustfmt and clippy. With rustup: 'rustup component add rustfmt clippy'."
    exit 2
  fi
fi

missing=("${rust_packages[@]}")
for package in "${packages[@]}"; do
  # A command from outside the package manager, such as a Go toolchain, is used, too.
  case $package in
    golang-go) command -v go >/dev/null && continue ;;
    python3) command -v python3 >/dev/null && continue ;;
    cmake) command -v cmake >/dev/null && continue ;;
  esac
  dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done

if ((${#missing[@]})); then
  sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { say "need root or sudo to install: ${missing[*]}"; exit 2; }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}" >&2
  "${sudo[@]}" apt-get -qq update
  "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
  hash -r
  need_rust
fi
