#!/usr/bin/env bash
# Prints the folder of kernels to test with: the one given, or on CPUs with AMX a folder under target/ whose kernels before
# 6.13 are started with conformance/programs/um_ptrace.c preloaded. Without it they are killed there when they start.
set -euo pipefail
cd "$(dirname "$0")/.."
given=${1:?usage: kernels.sh FOLDER}
if [[ ! -x $given/boot ]] || ! grep -qm1 -w amx_tile /proc/cpuinfo; then
  echo "$given"
  exit
fi
given=$(realpath "$given")
ours=$PWD/target/kernels
mkdir -p "$ours"
cc -O2 -Wall -shared -fPIC -o "$ours/um_ptrace.so" conformance/programs/um_ptrace.c -ldl
for file in "$given"/*; do
  name=${file##*/}
  rm -f "$ours/$name"
  case $name in
    linux-6.1 | linux-6.12)
      printf '#!/bin/sh\nLD_PRELOAD=%q exec %q "$@"\n' "$ours/um_ptrace.so" "$file" >"$ours/$name"
      chmod +x "$ours/$name"
      ;;
    *) ln -s "$file" "$ours/$name" ;;
  esac
done
echo "$ours"
