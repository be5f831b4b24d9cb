#!/usr/bin/env bash
# `sealane tcp-ao verify` and `sign` on captures that tcpdump and tshark make of sessions with a real kernel.
#
#   captures.sh [KERNEL]     default: linux-7.3
#
# As root; needs tcpdump and tshark. Wireshark parses the option and verifies checksums; it computes no MAC, but the
# kernel at the other end does. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
kernel=${1:-linux-7.3}
for program in tcpdump tshark; do
  command -v "$program" >/dev/null || { echo "captures.sh: no $program" >&2; exit 2; }
done
[[ -x $kernels/$kernel ]] || { echo "captures.sh: no $kernels/$kernel" >&2; exit 2; }
[[ $EUID -eq 0 ]] || { echo "captures.sh: only root may make network namespaces" >&2; exit 2; }
peer=$root/target/release/ao-peer
name=captures$$ failed=0 pids=()
dir=$(mktemp -d "$work/captures.XXXXXX")
cleanup() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  ip netns del "$name" 2>/dev/null || true
  rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
# tcpdump drops root's privileges, and could not write into root's folder.
chmod 777 "$dir"
check() { if "${@:2}"; then echo "PASS $1"; else echo "FAIL $1"; failed=1; fi; }
inside() { ip netns exec "$name" "$@"; }
# begin COMMAND...: starts it in the namespace, as a process that can be ended.
begin() { ip netns exec "$name" "$@" & pids+=($!); }

ip netns add "$name"
ip -n "$name" link set lo up
ip -n "$name" tuntap add tap mode tap
ip -n "$name" addr add 10.93.0.1/24 dev tap
ip -n "$name" addr add fd93::1/64 dev tap nodad
ip -n "$name" link set tap up
echo 'hmac(sha256) 1 2 12 0 the-key' >ours
echo 'hmac(sha256) 2 1 12 0 the-key' >theirs
touch none listening
# With the fast path a capture of the device also shows segments that were verified and given back without their option.
export SEALANE_TCP_AO_PATH=queue
begin "$boot" "$kernel" --tap tap -- sh -c "
  ip addr add 10.93.0.2/24 dev vec0; ip addr add fd93::2/64 dev vec0 nodad; ip link set vec0 up; cd '$dir'; exec 2>listening
  '$peer' serve 10.93.0.2:179 --peer 10.93.0.1/32 --keys theirs --count 2 &
  '$peer' serve [fd93::2]:179 --peer fd93::1/128 --keys theirs & wait" >guest 2>&1
begin tcpdump -i tap -w ethernet.pcap 2>/dev/null
begin tcpdump -i any -y LINUX_SLL -w cooked.pcap 2>/dev/null
begin tcpdump -i any -y LINUX_SLL2 -w cooked2.pcap 2>/dev/null
begin tshark -q -i tap -F pcapng -w ng.pcapng 2>/dev/null
sleep 2
for ((tries = 600; tries && $(grep -c 'listening on' listening || true) < 2; tries--)); do sleep 0.1; done
connect() { inside "$sealane" run --tcp-ao -- "$peer" connect "$1" --keys ours "${@:2}" >>told; }
check "a session over IPv4" connect 10.93.0.2:179 --bytes 200000
check "a session over IPv6" connect '[fd93::2]:179' --bytes 200000
check "a long one" connect 10.93.0.2:179 --ping 1000
sleep 1
for pid in "${pids[@]:1}"; do kill "$pid"; wait "$pid" 2>/dev/null || true; done

cat >keys.toml <<TOML
[[peer]]
name = "kernel"
prefix = ["10.93.0.0/24", "fd93::/64"]
port = [179, 1179]
[[peer.key]]
send-id = 1
recv-id = 2
algorithm = "hmac(sha256)"
secret = "the-key"
TOML
chmod 600 keys.toml
# verified FILE OPTION...: succeeds when all segments of the sessions are good, and there are thousands.
verified() {
  "$sealane" tcp-ao verify "$1" --keys keys.toml --json "${@:2}" >said || true
  python3 - <<'PY'
import json
segments = [s for s in json.load(open("said"))["segments"] if ":179" in s["source"] + s["destination"] + " "]
segments = [s for s in segments if "127.0.0.1" not in s["source"]]
verdicts = {v: sum(s["verdict"] == v for s in segments) for v in {s["verdict"] for s in segments}}
print("  ", verdicts)
raise SystemExit(set(verdicts) != {"good"} or len(segments) < 1000)
PY
}
for file in ethernet.pcap cooked.pcap cooked2.pcap ng.pcapng; do check "$file" verified "$file"; done
python3 - <<'PY'
import struct
data = open("ethernet.pcap", "rb").read()
out, at = data[:24], 24
while at < len(data):
    seconds, micros, kept, length = struct.unpack("<IIII", data[at:at + 16])
    frame = data[at + 16:at + 16 + kept]
    at += 16 + kept
    out += struct.pack("<IIII", seconds, micros, kept + 4, length + 4) + frame[:12] + b"\x81\x00\x00\x05" + frame[12:]
open("vlan.pcap", "wb").write(out)
PY
check "the same in a VLAN" verified vlan.pcap

# The last connection without its beginning.
port=$(tshark -r ethernet.pcap -Y 'ip && tcp.flags.syn == 1 && tcp.flags.ack == 0' -T fields -e tcp.srcport 2>/dev/null | tail -n 1)
mapfile -t isns < <(tshark -r ethernet.pcap -Y "tcp.port == $port && tcp.flags.syn == 1" -T fields -e tcp.seq_raw 2>/dev/null)
first=$(tshark -r ethernet.pcap -Y "tcp.port == $port" -T fields -e frame.number 2>/dev/null | sed -n 100p)
for format in pcap pcapng; do
  tshark -r ethernet.pcap -Y "tcp.port == $port && frame.number >= $first" -F "$format" -w "middle.$format" 2>/dev/null
  check "without its handshake nothing can be said ($format)" bash -c "! '$sealane' tcp-ao verify middle.$format --keys keys.toml |
    grep -v ' 0 good, 0 bad, [0-9]* unchecked (isn-unknown' | grep -q 'TCP segments:'"
  check "with its ISNs" verified "middle.$format" --isn "10.93.0.1:$port,10.93.0.2:179=${isns[0]},${isns[1]}"
done

# An unsigned session, signed afterwards.
begin tcpdump -i lo -w plain.pcap 2>/dev/null; plain=${pids[-1]}
sleep 1
begin "$peer" serve 10.93.0.1:1179 --peer 10.93.0.1/32 --keys none >>told
sleep 0.3
inside "$peer" connect 10.93.0.1:1179 --keys none --ping 1000 >>told
sleep 1
kill "$plain"; wait "$plain" || true
"$sealane" tcp-ao sign plain.pcap -o signed.pcap --keys keys.toml
verified_ours() { "$sealane" tcp-ao verify signed.pcap --keys keys.toml | tail -n 1 | tee said | has ' 0 bad, 0 unchecked, 0 unprotected' && cat said; }
check "what sign has signed" verified_ours
agrees() { # Wireshark: an option with the key's ids in each segment, and right checksums.
  tshark -r signed.pcap -o tcp.check_checksum:TRUE -o ip.check_checksum:TRUE -T fields -e tcp.options.ao.keyid \
    -e tcp.options.ao.rnextkeyid -e tcp.checksum.status -e ip.checksum.status -Y tcp 2>/dev/null | sort | uniq -c | tee said
  [[ $(wc -l <said) -eq 1 ]] && grep -Eq '[12]	[12]	1	1$' said
}
check "Wireshark sees the same" agrees
exit "$failed"
