#!/usr/bin/env bash
# IPsec by etc/sealane.service under systemd, unchanged with its sandbox, with strongSwan's unmodified charon as another
# unit as docs/ipsec.md describes it: states and policies stay while the service is restarted, killed and reloaded.
#
#   [CHARON_ROOT=FOLDER] systemd_ipsec.sh
#
# charon_ends.sh says where charon comes from, container.sh how systemd runs. As root, on a machine with systemd installed
# (it need not run), overlayfs and the unified cgroup hierarchy. Each check writes PASS or FAIL. Exit status: 0 all passed,
# 1 not, 77 could not try.
suite=systemd-ipsec
. "$(dirname "$0")/charon_ends.sh"
. "$(dirname "$0")/container.sh"

wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
  # Packets are refused that come from where the stack has no route to, unless the daemon says otherwise of its device.
  ip netns exec "$name-$end" sysctl -qw net.ipv4.conf.all.rp_filter=1
done
watch_clear
config a 10.80.0.1 10.80.0.2 10.82.1.0/24 10.82.2.0/24 'encap = yes' ''
config b 10.80.0.2 10.80.0.1 10.82.2.0/24 10.82.1.0/24 'encap = yes' ''
printf '[ipsec]\n' >"$dir/a.toml"
mkdir -p "$dir/units/strongswan.service.d"
cat >"$dir/units/strongswan.service" <<UNIT
[Service]
Type=notify
ExecStart=${charon[*]}
UNIT
# The first drop-in of docs/ipsec.md, with charon's path and this suite's configuration.
sed -n '/^\[Unit\]$/,/^```$/p' "$root/docs/ipsec.md" | sed '/^```$/Q' |
  sed "s,/usr/sbin/charon-systemd,${charon[*]}," >"$dir/units/strongswan.service.d/sealane.conf"
cat >>"$dir/units/strongswan.service.d/sealane.conf" <<UNIT
Environment=STRONGSWAN_CONF=$dir/a.strongswan SWANCTL_DIR=$dir
UNIT
check "the drop-in is there" grep -q '^ExecStart=.*sealane run -- ' "$dir/units/strongswan.service.d/sealane.conf"
container

check "the unit starts" inside systemctl start sealane
sandboxed
check "charon starts by its unit" inside systemctl start strongswan
within 20 test -S "$dir/a.vici" || inside systemctl status --no-pager strongswan || true
check "daemon b" daemon b IPsec
check "charon b" charon b
# Of this daemon, which has more rights than that of the unit.
locked() { grep -Eq '^VmLck:\s+[1-9][0-9]{3,} kB' "/proc/$daemon_b/status"; }
check "root's daemon has locked its memory" locked
check "requests are accepted" load a
check "a CHILD SA" initiate a
check "packets pass" ping_a 5
loose() { [[ $(ip netns exec "$name-a" cat /proc/sys/net/ipv4/conf/sealane-ipsec/rp_filter) == 2 ]]; }
check "rp_filter of the device is loose" loose

# spis: what both ends have negotiated. kept: the number of descriptors that systemd keeps.
spis() { inside sealane run -- ip xfrm state | awk '$1 == "proto" { print $4 }' | sort | tr '\n' ' '; }
kept() { inside systemctl show -p NFileDescriptorStore --value sealane; }
keys() { echo "$(spis)$(newest a child) $(newest a ike) $(newest b child) $(newest b ike)"; }
stored() { [[ $(kept) -ge 1 ]] || { echo "systemd keeps $(kept) descriptors"; return 1; }; }
check "systemd keeps the states" stored
before=$(keys)
echo "SPIs, SAs: $before"
charon_main=$(inside systemctl show -p MainPID --value strongswan)
same_keys() { local now; now=$(keys); [[ $now == "$before" ]] || { echo "now $now"; return 1; }; }
same_charon() { [[ $(inside systemctl show -p MainPID --value strongswan) == "$charon_main" ]]; }
other_main() { local now; now=$(main); [[ $now != 0 && $now != "$1" ]] && inside systemctl is-active --quiet sealane; }
unchanged() {
  check "packets pass again" within 20 reached
  check "all of them" ping_a 20 0.02
  check "with the same keys" same_keys
  check "charon has not noticed" same_charon
  check "systemd keeps the states of this daemon" stored
  check "none in clear" none_in_clear
}

# Pings go on all the time. Some are lost while no daemon runs.
ip netns exec "$name-a" ping -q -n -i 0.01 -I "${inner[@]}" >"$dir/pings" 2>&1 &
pinging=$!
pids+=("$pinging")
check "systemctl restart" inside systemctl restart sealane
unchanged
for round in 1 2; do
  was=$(main)
  check "systemctl kill ($round)" inside systemctl kill -s KILL sealane
  check "it comes back" within 20 other_main "$was"
  unchanged
done
was=$(main)
reloaded() { reload a.toml && within 10 said 'read again' 1 && sleep 1; }
check "no packet is lost in systemctl reload" under_traffic reloaded
same_main() { [[ $(main) == "$was" ]]; }
check "by the same process" same_main
unchanged
check "the keys are negotiated again" rekey a child a b
kill -INT "$pinging"; wait "$pinging" || true
grep transmitted "$dir/pings"

# The manager releases the states at the end, and the policies stay.
check "systemctl stop" inside systemctl stop sealane
check "nothing passes" no_answer
check "none in clear" none_in_clear
check "systemd keeps nothing" test "$(kept)" == 0

# The drop-in of docs/ipsec.md for other network namespaces. The second one is made while the daemon runs.
inside mkdir -p /etc/systemd/system/sealane.service.d
sed -n '/^CapabilityBoundingSet=/,/^```$/p' "$root/docs/ipsec.md" | sed '1i[Service]
/^```$/d' >"$dir/others.conf"
inside install -m 644 "$dir/others.conf" /etc/systemd/system/sealane.service.d/
inside systemctl daemon-reload
inside ip netns add one
printf '[ipsec]\nnetns = ["one"]\n' >"$dir/a.toml"
inside install -m 600 "$dir/a.toml" /etc/sealane/sealane.toml
check "it serves another namespace" inside systemctl start sealane
inside ip netns add two
printf '[ipsec]\nnetns = ["one", "two"]\n' >"$dir/a.toml"
read_again=$(log | grep -c 'read again')
check "systemctl reload" reload a.toml
check "it serves one that was made later" within 10 said 'read again' "$((read_again + 1))"
serves_two() { inside env SEALANE_RUNTIME_DIR=/run/sealane sealane xfrm -n two state count; }
check "requests are accepted there" serves_two
inside systemctl stop sealane
log | grep -v '^$' | tail -n 40
exit "$failed"
