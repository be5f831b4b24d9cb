#!/usr/bin/env bash
# Installs what is missing on Debian: compilers, intel-ipsec-mb, and the unmodified programs that the demo and the tests run.
# Nothing is asked of the network when everything is there.
set -euo pipefail

packages=(
  build-essential cmake pkg-config           # aws-lc is C and assembly
  libipsec-mb-dev                            # intel-ipsec-mb, multi-buffer
  libc6-dev libaio-dev                       # static programs; a client that uses libaio
  kcapi-tools openssl cryptsetup-bin         # programs that use AF_ALG
  python3 golang-go                          # and two languages' own sockets
  rustc-web cargo-web                        # Debian 12's newer Rust (1.96), where rustup is not in use
)

missing=()
for package in "${packages[@]}"; do
  # A command that is there by other means (a Go toolchain outside the package manager) counts.
  case $package in
    golang-go) command -v go >/dev/null && continue ;;
    python3) command -v python3 >/dev/null && continue ;;
    cmake) command -v cmake >/dev/null && continue ;;
    rustc-web | cargo-web) command -v cargo >/dev/null && continue ;;
  esac
  dpkg-query -W -f='${Status}\n' "$package" 2>/dev/null | grep -q '^install ok installed' || missing+=("$package")
done

if ((${#missing[@]})); then
  sudo=()
  if ((EUID != 0)); then
    command -v sudo >/dev/null || { echo "install-deps: need root or sudo to install: ${missing[*]}" >&2; exit 2; }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}" >&2
  "${sudo[@]}" apt-get -qq update
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -qq -y install --no-install-recommends "${missing[@]}" >/dev/null
fi

