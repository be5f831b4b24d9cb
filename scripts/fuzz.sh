#!/usr/bin/env bash
# Runs each fuzz target for FUZZ_SECONDS (default 60) on one core, starting from the committed corpus.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

seconds=${FUZZ_SECONDS:-60}
command -v cargo-fuzz >/dev/null || cargo install --quiet cargo-fuzz
for target in ${FUZZ_TARGETS:-$(cargo +nightly fuzz list)}; do
  echo "== $target, $seconds s"
  # New inputs go to another folder, so that the committed corpus stays small.
  mkdir -p "target/corpus/$target"
  cargo +nightly fuzz run "$target" "target/corpus/$target" "corpus/$target" -- -max_total_time="$seconds" -print_final_stats=1
done
