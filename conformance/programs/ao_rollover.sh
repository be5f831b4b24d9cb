#!/bin/sh
# A session of an unmodified program goes on while `sealane daemon` changes its keys.
#
#     ao_rollover.sh SEALANE FOLDER
#
# To be run as root in a network namespace of its own. Leaves FOLDER/session.pcap and FOLDER/session.toml. The second
# key's time begins four seconds after the start, the first one's ends two seconds later.
set -eu
sealane=$1 folder=$2 here=$(dirname "$0")
ip link set lo up
now=$(date +%s)
at() { date -u -d "@$((now + $1))" +%Y-%m-%dT%H:%M:%SZ; }
umask 077
cat >"$folder/session.toml" <<EOF
[[peer]]
name = "loopback"
prefix = "127.0.0.0/8"
port = 1790
accept-tolerance = "1s"
[[peer.key]]
send-id = 1
recv-id = 1
algorithm = "hmac(sha1)"
secret = "first"
lifetime = { start = $(at -100), end = $(at 6) }
[[peer.key]]
send-id = 2
recv-id = 2
algorithm = "cmac(aes128)"
secret = "second"
lifetime = { start = $(at 4) }
EOF
"$sealane" daemon --config "$folder/session.toml" 2>"$folder/daemon.log" &
daemon=$!
for _ in $(seq 100); do
  grep -q protected "$folder/daemon.log" && break
  sleep 0.1
done
python3 "$here/plain_session.py" "$folder/session.pcap" 7
kill $daemon
wait $daemon
"$sealane" tcp-ao clear
