#!/usr/bin/env bash
# Makes the report, runs every bench of what it does not have, rivals side by side, and keeps the run in
# bench/runs/<date>-<host>/: the output, the raw CSV, and a README with command, commit, CPU and versions. BENCH_HOST names the
# machine; BENCH_SECONDS and BENCH_CELL (1 and 0.02) are the seconds for each row; BENCH_QUICK=1 shortens everything to a smoke run.
set -euo pipefail
cd "$(dirname "$0")/.."

bin=target/release
cpu=$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -1)
host=${BENCH_HOST:-$(tr -cs 'a-zA-Z0-9' '-' <<<"$cpu" | tr 'A-Z' 'a-z' | sed 's/-*$//')}
run=bench/runs/$(date +%F)-$host
seconds=${BENCH_SECONDS:-1} cell=${BENCH_CELL:-0.02}
if [[ -n ${BENCH_QUICK:-} ]]; then seconds=0.05 cell=0.005 run=$(mktemp -d)/quick; fi
mkdir -p "$run"

bench() { # NAME COMMAND...: shows and keeps what it prints
  local name=$1
  shift
  printf '\n== %s: %s\n' "$name" "$*"
  "$@" | tee "$run/$name.txt"
}

# The report is kept with the run; the page too, unless it is large.
bench report "$bin/sealane" bench ${BENCH_QUICK:+--quick} --out "$run/report"
mv "$run/report/data.json" "$run/data.json"
if [[ $(stat -c %s "$run/report/index.html") -lt 1000000 ]]; then mv "$run/report/index.html" "$run/index.html"; fi
rm -rf "$run/report"

bench af-alg "$bin/sealane" run -- "$bin/af-alg" --seconds "$seconds" --csv "$run/af-alg.csv"
bench many "$bin/sealane" run -- "$bin/af-alg" --many 10000
bench bursts "$bin/bursts" --seconds "$seconds" --csv "$run/bursts.csv"
bench ipsec "$bin/ipsec" --seconds "$seconds" ${BENCH_QUICK:+--states 10000} --csv "$run/ipsec.csv"
bench cells "$bin/cells" --seconds "$cell" --csv "$run/cells.csv"
bench speed-gcm "$bin/sealane" speed -c 'gcm(aes)' -t "$seconds" --against openssl,aws-lc,ipsec-mb,rustcrypto
bench speed-xts "$bin/sealane" speed -c 'xts(aes)' -t "$seconds" --against openssl,rustcrypto

rounds=5 bulk=2
if [[ -n ${BENCH_QUICK:-} ]]; then rounds=1 bulk=0.5; fi
bench ao-bulk python3 bench/ao_bulk.py --bin "$bin" --rounds "$rounds" --seconds "$bulk" --csv "$run/ao-bulk.csv"
# Rivals are found on PATH, or where WIREGUARD_GO and BORINGTUN say; rows without their program are left out.
bench ipsec-tunnel python3 bench/ipsec_tunnel.py --rounds "$rounds" --seconds "$((rounds > 1 ? 3 : 1))" \
  ${WIREGUARD_GO:+--wireguard-go "$WIREGUARD_GO"} ${BORINGTUN:+--boringtun "$BORINGTUN"} --csv "$run/ipsec-tunnel.csv"
bench ipsec-offload python3 bench/ipsec_offload.py --rounds "$rounds" --rate 10000 --csv "$run/ipsec-offload.csv"
bench ipsec-gateway python3 bench/ipsec_gateway.py --rounds "$rounds" --seconds "$bulk" --csv "$run/ipsec-gateway.csv"

cat >"$run/README.md" <<EOF2
# $(basename "$run")

- command: \`make bench\` with BENCH_SECONDS=$seconds BENCH_CELL=$cell
- commit: $(git rev-parse HEAD)$(git diff --quiet HEAD -- . ':!bench/runs' || echo ' with uncommitted changes')
- CPU: $cpu, $(nproc) cores; kernel $(uname -r)
- CPU flags that drivers use: $(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(aes|vaes|pclmulqdq|vpclmulqdq|sha_ni|avx2|avx512f|avx512bw|avx512vl|gfni)$' | sort | tr '\n' ' ')
- versions: $(rustc --version); $(openssl version | cut -d' ' -f1,2); intel-ipsec-mb $(dpkg-query -W -f='${Version}' libipsec-mb-dev 2>/dev/null || echo none); aws-lc-sys $(sed -n '/^name = "aws-lc-sys"/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)

Machines with few, noisy cores: compare the rows of one run with each other, not with other runs.
EOF2
echo
echo "kept in $run"
