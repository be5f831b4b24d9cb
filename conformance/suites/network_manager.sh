#!/usr/bin/env bash
# VPNs by Debian's packages, as a new user sets them up on a machine that blocks `esp4` and `esp6`: NetworkManager with
# strongSwan's plugin, then strongSwan and libreswan by their own units. `sealane doctor` is asked, and its commands are run. The
# tunnels are rekeyed, the client's address changes, the daemon is restarted and killed, networking is turned off and on; nothing
# is sent in clear.
#
#   [CHARON_ROOT=FOLDER] network_manager.sh RELEASE      bookworm, trixie
#
# The machine is a minimal Debian that debootstrap makes in target/packages/network-manager-RELEASE (1 GB), with systemd as
# container.sh says. Sealane comes from target/packages/first if that is newer than the executable, else a package is made.
# The other end is strongSwan under a daemon of this build; charon_ends.sh says where it comes from. As root, with apt and
# openssl. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=network-manager
. "$(dirname "$0")/charon_ends.sh"
release=${1:-}
[[ $release == @(bookworm|trixie) ]] || { sed -n 's/^#   .*\(network_manager.sh .*\)/usage: \1/p' "$0" >&2; exit 2; }
command -v openssl >/dev/null || lacks "no openssl here"
place=$root/target/packages base=$root/target/packages/network-manager-$release
package=$(ls -t "$place"/first/sealane_*.deb 2>/dev/null | head -n 1) || true
if [[ -z $package || $sealane -nt $package ]]; then
  "$root/scripts/package.sh" >"$dir/package.log" 2>&1 || { tail -n 5 "$dir/package.log"; echo "FAIL the package is made"; exit 1; }
  package=$(ls "$root"/target/package/sealane_*.deb)
fi
. "$(dirname "$0")/machine.sh"
"$(dirname "$0")/debian.sh" "$release" "$base" >"$dir/debian.log" 2>&1 || { tail -n 5 "$dir/debian.log"; lacks "no $release"; }
cp "$package" "$base/root/sealane.deb"
get='apt-get -qq -y install --no-install-recommends'
# The container reaches no archive, and libreswan and strongSwan do not go together: both are installed later, from apt's cache.
strongswan='charon-systemd strongswan-swanctl libstrongswan-standard-plugins'
in_machine "$base" "export DEBIAN_FRONTEND=noninteractive
  apt-get -qq update
  $get systemd iproute2 procps iputils-ping network-manager network-manager-strongswan
  $get --download-only $strongswan
  $get --download-only libreswan" >"$dir/debian.log" 2>&1 || { tail -n 5 "$dir/debian.log"; lacks "no NetworkManager for $release"; }
echo "on $release: $(in_machine "$base" "dpkg-query -W network-manager network-manager-strongswan strongswan-nm" | tr '\t\n' ' ;')"
mkdir -p "$base/etc/modprobe.d"
printf 'install %s /bin/false\n' esp4 esp6 >"$base/etc/modprobe.d/no-esp.conf"
. "$(dirname "$0")/container.sh"
check "apt installs Sealane" quietly in_machine "$base" "$get /root/sealane.deb"

# The gateway has an address for each user, and a network behind it.
wire
ip -n "$name-a" addr flush dev veth
ip -n "$name-b" addr add 10.82.2.1/24 dev lo
watch_clear
mkdir "$dir/pki" "$dir/private"
(cd "$dir/pki"
  openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=authority -days 2
  for who in gateway user; do
    openssl req -newkey rsa:2048 -nodes -keyout $who.plain -out $who.request -subj "/CN=$who.example"
    openssl x509 -req -in $who.request -CA ca.pem -CAkey ca.key -CAcreateserial -out $who.pem -days 2 \
      -extfile <(echo "subjectAltName=DNS:$who.example")
  done
  openssl rsa -in user.plain -traditional -aes128 -passout pass:opensesame -out user.key
  mv gateway.plain "$dir/private/gateway.key") >"$dir/pki.log" 2>&1
more_plugins='pem x509 pubkey pkcs1 pkcs8 constraints'
# site_of END ADDRESS NETWORK OTHER-END OTHER-NETWORK: the connection between two networks in swanctl.conf, as an end has it.
site_of() {
  cat <<CONF
site {
    version = 2
    $2
    local { auth = psk
      id = $1.example }
    remote { auth = psk
      id = $4.example }
    children { net {
        local_ts = $3
        remote_ts = $5
      } } }
CONF
}
config b 10.80.0.2 %any 10.82.2.0/24 dynamic '' ''
cat >"$dir/b.swanctl" <<CONF
connections {
  net {
    version = 2
    local_addrs = 10.80.0.2
    pools = users
    send_cert = always
    local { auth = pubkey
      certs = $dir/pki/gateway.pem
      id = gateway.example }
    remote { auth = pubkey
      cacerts = $dir/pki/ca.pem }
    children { net {
        local_ts = 10.82.2.0/24
        rekey_time = 15s
        life_time = 300s
        rand_time = 1s
      } } }
  psk {
    version = 2
    local_addrs = 10.80.0.2
    pools = users
    local { auth = psk
      id = gateway.example }
    remote { auth = psk
      id = somebody }
    children { net { local_ts = 10.82.2.0/24 } } }
  $(site_of b 'local_addrs = 10.80.0.2' 10.82.2.0/24 a 10.82.1.0/24) }
pools { users { addrs = 10.82.1.1 } }
secrets { ike { secret = "what both know and nobody guesses" } }
CONF
check "daemon b" daemon b IPsec
check "the gateway" charon b

# NetworkManager waits for udev, which would see the events of this machine, unless it may not write to /sys.
mkdir -p "$dir/units/NetworkManager.service.d"
printf '[Service]\nReadOnlyPaths=/sys\n' >"$dir/units/NetworkManager.service.d/no-udev.conf"
for unit in systemd-udevd.service systemd-udev-trigger.service systemd-udevd-kernel.socket systemd-udevd-control.socket; do
  ln -s /dev/null "$dir/units/$unit"
done
CHARON_ROOT= container
xfrm_counters() { inside sealane xfrm show; }
shows() { has "$1" < <(inside "${@:2}" 2>&1); } # PATTERN COMMAND...
connected() { shows '^100' nmcli -g GENERAL.STATE device show veth; }
vpn() { quietly inside nmcli "connection" "$@"; } # up|down NAME
check "NetworkManager starts" inside systemctl start NetworkManager
check "a connection by wire" quietly inside nmcli connection add type ethernet con-name wire ifname veth ipv6.method disabled \
  ipv4.method manual ipv4.addresses 10.80.0.1/24 ipv4.gateway 10.80.0.2
check "is up" vpn up wire
data="address=10.80.0.2, remote-identity=gateway.example, virtual=yes, proposal=no"
check "a VPN with a certificate" quietly inside nmcli connection add type vpn con-name office vpn-type strongswan \
  vpn.data "$data, certificate=$dir/pki/ca.pem, method=key, usercert=$dir/pki/user.pem, userkey=$dir/pki/user.key, encap=no" \
  vpn.secrets password=opensesame
check "a VPN with a secret" quietly inside nmcli connection add type vpn con-name secret vpn-type strongswan \
  vpn.data "$data, method=psk, user=somebody, encap=no" vpn.secrets 'password=what both know and nobody guesses'

# As a new user: it does not work, Sealane is asked why, and what it says is done.
if vpn up office >"$dir/without"; then
  echo "SKIPPED that it fails without Sealane: the kernel of this machine has ESP"
  check "down" vpn down office
else
  echo "PASS without Sealane it fails"
fi
# doctor LEVEL: prints the commands of its findings.
doctor() {
  inside sealane doctor --json | python3 -c 'import json, sys
for finding in json.load(sys.stdin)["findings"]:
    if finding["level"] == sys.argv[1]:
        print(*finding["commands"], sep="\n")' "$1"
}
all_is_well() { local left; left=$(doctor needs-doing); [[ -z $left ]] || { echo "$left"; return 1; }; }
# obey: does what the doctor says.
obey() {
  local command
  while read -r command; do check "$command" quietly inside sh -c "$command" </dev/null; done < <(doctor needs-doing)
  check "and then nothing to do" all_is_well
}
check "sealane doctor finds it" has '^/usr/bin/sealane adopt NetworkManager.service$' < <(doctor needs-doing)
obey
under() { shows "^ExecStart=.*argv..=/usr/bin/sealane run -- /usr/sbin/NetworkManager" systemctl show -p ExecStart NetworkManager; }
check "NetworkManager is under Sealane" under
check "its connection stays" within 30 connected
unmanaged() { shows '^10 ' nmcli -g GENERAL.STATE device show sealane-ipsec; }
check "it leaves Sealane's device alone" unmanaged

cat >"$dir/transfer.py" <<'PY'
import random, socket, sys
expected = random.Random(1).randbytes(8 << 20)
if sys.argv[1] == "serve":
    listener = socket.create_server(("10.82.2.1", 5001))
    open(sys.argv[2], "w").close()
    listener.accept()[0].sendall(expected)
    sys.exit()
source = (sys.argv[2], 0) if len(sys.argv) > 2 else None
sock = socket.create_connection(("10.82.2.1", 5001), timeout=60, source_address=source)
assert sock.getsockname()[0] == "10.82.1.1", sock.getsockname()
got = b""
while more := sock.recv(1 << 20):
    got += more
assert got == expected, len(got)
PY
transfer() { # [SOURCE]
  rm -f "$dir/listening"
  ip netns exec "$name-b" python3 "$dir/transfer.py" serve "$dir/listening" &
  pids+=($!)
  within 120 test -e "$dir/listening" && ip netns exec "$name-a" python3 "$dir/transfer.py" fetch "$@"
}
# roam ADDRESS: the wire has another address from now on. at ADDRESS: so the gateway knows.
roam() { quietly inside nmcli connection modify wire ipv4.addresses "$1/24" && quietly inside nmcli device reapply veth && within 60 at "$1"; }
at() { says b "remote .* @ $1\\["; }
other_main() { local now; now=$(main); [[ $now != 0 && $now != "$1" ]] && inside systemctl is-active --quiet sealane; }
# rekeyed: the gateway has a later CHILD SA by its own clock.
rekeyed() { local before; before=$(newest b child); within 60 newer b child "$before"; }
# What there still is of a VPN that is down: policies of the tunnel, states, routes, its device.
left() {
  inside sealane run -- ip xfrm policy 2>&1 | grep '10\.82\.' || :
  inside sealane run -- ip xfrm state 2>&1 || :
  ip -n "$name-a" route show table all | grep '10\.82\.2\.' || :
  ip netns exec "$name-a" grep nm-xfrm /proc/net/dev || :
}
gone() { [[ -z $(left) ]]; }

for encap in no yes; do
  kind=$([[ $encap == yes ]] && echo 'ESP in UDP' || echo 'plain ESP')
  check "$kind" quietly inside nmcli connection modify office +vpn.data "encap=$encap"
  check "up" vpn up office
  check "packets pass" ping_a 5
  check "so it is" says b "TUNNEL$([[ $encap == no ]] || echo -in-UDP), ESP"
  check "data by TCP" transfer
  check "no packet is lost while the gateway rekeys" under_traffic rekeyed
  check "nor while the IKE SA is rekeyed" under_traffic rekey b ike b
  check "another address" roam "10.80.0.$([[ $encap == no ]] && echo 7 || echo 8)"
  check "packets pass" ping_a 20 0.02
  check "data by TCP" transfer
  check "none in clear" none_in_clear
  check "systemctl restart sealane" inside systemctl restart sealane
  check "packets pass again" within 30 reached
  check "all of them" ping_a 20 0.02
  was=$(main)
  check "the daemon is killed" inside systemctl kill -s KILL sealane
  check "it comes back" within 30 other_main "$was"
  check "packets pass again" within 30 reached
  check "all of them" ping_a 20 0.02
  check "the gateway rekeys" rekeyed
  check "packets pass" ping_a 5
  check "none in clear" none_in_clear
  check "down" vpn down office
  check "nothing is left of it" within 30 gone
  left
done

check "up" vpn up secret
check "packets pass" ping_a 5
check "none in clear" none_in_clear
# As for suspend.
check "networking off" quietly inside nmcli networking off
check "none in clear" none_in_clear
check "and on" quietly inside nmcli networking on
check "connected" within 60 connected
check "up again" vpn up secret
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "systemctl stop sealane" inside systemctl stop sealane
check "nothing passes" no_answer
check "none in clear" none_in_clear
check "systemctl start sealane" inside systemctl start sealane
check "still nothing passes" no_answer
inside nmcli connection down secret >"$dir/out" 2>&1 || true
check "until it is up again" vpn up secret
check "packets pass" ping_a 5
check "down" vpn down secret
check "nothing is left of it" within 30 gone
left
check "none in clear" none_in_clear

# install PACKAGE...: from apt's cache. served UNIT: does what the doctor says, by which the unit comes under Sealane.
install() { quietly inside env DEBIAN_FRONTEND=noninteractive $get --no-download "$@"; }
served() {
  check "sealane doctor knows $1" has "^/usr/bin/sealane adopt $1\$" < <(doctor needs-doing)
  obey
}
runs() { inside systemctl is-active --quiet "$1"; }
pid() { inside systemctl show -p MainPID --value "$1"; }
by_gateway() { quietly swan b --rekey --child net --ike site && quietly ping_a 20 0.01; }
# site UNIT UP...: a tunnel between two networks by a key manager that runs as a unit, and by which a command makes it.
site() {
  local unit=$1 was up=("${@:2}")
  check "its unit runs" runs "$unit"
  check "up" "${up[@]}"
  check "packets pass" ping_a 5
  check "data by TCP" transfer 10.82.1.1
  check "no packet is lost while the gateway rekeys" under_traffic by_gateway
  check "none in clear" none_in_clear
  was=$(main)
  check "the daemon is killed" inside systemctl kill -s KILL sealane
  check "it comes back" within 30 other_main "$was"
  check "packets pass again" within 30 reached
  check "the key manager has not noticed" runs "$unit"
  check "systemctl restart $unit" inside systemctl restart "$unit"
  check "up again" "${up[@]}"
  check "packets pass" ping_a 5
  was=$(pid "$unit")
  check "its unit is killed" inside systemctl kill -s KILL "$unit"
  check "it comes back" within 60 started "$unit" "$was"
  check "up again" "${up[@]}"
  check "packets pass" ping_a 5
  check "systemctl stop $unit" inside systemctl stop "$unit"
  check "none in clear" none_in_clear
}
started() { [[ $(pid "$1") != @(0|"$2") ]] && runs "$1"; }
ip -n "$name-a" addr add 10.82.1.1/24 dev lo

check "strongSwan is installed" install $strongswan
cat >"$dir/site.conf" <<CONF
connections {
  $(site_of a 'remote_addrs = 10.80.0.2' 10.82.1.0/24 b 10.82.2.0/24) }
secrets { ike { secret = "what both know and nobody guesses" } }
CONF
check "its connection" inside install -m 600 "$dir/site.conf" /etc/swanctl/conf.d/
served strongswan.service
by_swanctl() { quietly inside swanctl --load-all && quietly inside swanctl --initiate --child net; }
site strongswan by_swanctl

# libreswan, in its place.
while read -r command; do check "$command" quietly inside sh -c "$command"; done < <(inside sealane adopt --undo NetworkManager strongswan)
straight() { shows "^ExecStart=.*argv..=/usr/sbin/NetworkManager" systemctl show -p ExecStart NetworkManager; }
check "NetworkManager is as it was" straight
check "its connection stays" within 30 connected
check "libreswan is installed" install libreswan
echo "$(inside dpkg-query -W libreswan)"
cat >"$dir/net.conf" <<'CONF'
conn net
    left=%defaultroute
    leftid=@a.example
    leftsubnet=10.82.1.0/24
    right=10.80.0.2
    rightid=@b.example
    rightsubnet=10.82.2.0/24
    authby=secret
    esp=aes_gcm128
    pfs=no
    auto=add
CONF
echo '@a.example @b.example : PSK "what both know and nobody guesses"' >"$dir/net.secrets"
check "its connection" inside install -m 600 "$dir/net.conf" "$dir/net.secrets" /etc/ipsec.d/
served ipsec.service
# Its unit has started before it listens and has read its connections.
loaded() { inside ipsec status | grep -q '"net"'; }
by_whack() { within 30 loaded && quietly inside ipsec whack --initiate --name net; }
site ipsec by_whack
((!failed)) || inside journalctl -o cat --no-pager -n 200 | grep -v 'failed to load'
exit "$failed"
