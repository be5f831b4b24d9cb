#!/usr/bin/env bash
# Boots the kernels of all recorded answers (recorded/KERNEL/) and asks them again: fails where one answers otherwise.
#   recorded.sh [NAME...]     only tests whose names contain one of these
# With SEALANE_RECORD=1 it records the new answers instead. An answer that nobody has recorded yet is recorded by
# `SEALANE_RECORD=1 scripts/test.sh NAME`.
set -euo pipefail
cd "$(dirname "$0")/../.."
if (($# == 0)); then
  mapfile -t tests < <(sed -sn '1s/^# \([^;]*\);.*/\1/p' conformance/recorded/*/*.txt | sort -u)
  set -- "${tests[@]}"
fi
SEALANE_BOOT_AGAIN=1 exec scripts/test.sh "$@"
