#!/usr/bin/env bash
# Makes the shipped tables that are measured on such a CPU: run it on an idle machine with AVX-512, VAES and SHA-NI. See README.md.
#
#   make.sh [SEALANE] [MILLISECONDS_A_CELL]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
sealane=${1:-$here/../../../../target/release/sealane}
ms=${2:-5}
grep -qw vaes /proc/cpuinfo && grep -qw avx512vl /proc/cpuinfo && grep -qw sha_ni /proc/cpuinfo ||
  { echo "make.sh: this CPU lacks AVX-512, VAES or SHA-NI" >&2; exit 1; }

out=$here/avx512-vaes-sha.txt
grep -qw GenuineIntel /proc/cpuinfo && out=$here/avx512-vaes-sha-intel.txt
"$sealane" crypto calibrate --cell-ms "$ms" --output - >"$out.new"
mv "$out.new" "$out"
# Those without these features are taken from AMD's.
[[ $out == *-intel.txt ]] && exit
row='^[^ ]+ (forward|backward) [^ ]+'
grep -Ev -- "$row-portable |$row-vaes(-avx2)? |^[^ ]*aes[^ ]* (forward|backward) [^ ]+-ipsecmb " "$out" >"$here/avx512.txt"
grep -Ev -- "$row-(portable|vaes|vaes-avx2|avx512|ipsecmb) " "$out" >"$here/avx2.txt"
