# Run by package_vm.sh as root in a fresh Debian. The other end of the tunnel is a network namespace with a daemon and a charon
# of its own.
cd /root
echo "$(. /etc/os-release; echo "$PRETTY_NAME"), $(uname -r), AppArmor: $(cat /sys/module/apparmor/parameters/enabled)"
check() { # WHAT COMMAND...
  local out
  if out=$("${@:2}" 2>&1); then echo "PASS $1"; else echo "FAIL $1"; echo "$out" | tail -n 20; fi
}
not() { ! "$@"; }
within() { # SECONDS COMMAND...: repeats it until it succeeds
  local end=$((SECONDS + $1)); shift
  until "$@"; do ((SECONDS < end)) || return 1; sleep 1; done
}
is() { [[ $(systemctl "is-$1" sealane) == "$2" ]]; }
pings() { ping -q -c 5 -W 5 -I 10.82.1.1 10.82.2.1 | grep ' 5 received'; }
confined() { [[ $(cat "/proc/$(systemctl show -p MainPID --value sealane)/attr/current") == "sealane-daemon (enforce)" ]]; }
none_denied() { local denied; denied=$(journalctl -k | grep 'apparmor="DENIED".*sealane' || true); echo "$denied"; [[ -z $denied ]]; }

check "the kernel's ESP is blocked" not modprobe esp4
check "apt installs the package" apt-get install -y ./sealane.deb
check "its unit is not enabled" is enabled disabled
check "the unit starts" systemctl enable --now sealane
check "confined by AppArmor" confined
check "doctor finds a problem" not sealane doctor
check "charon's unit is adopted" sealane adopt strongswan

ip netns add peer
ip link add veth type veth peer name veth netns peer
ip addr add 10.80.0.1/24 dev veth; ip -n peer addr add 10.80.0.2/24 dev veth
ip link set veth up; ip -n peer link set veth up; ip -n peer link set lo up
ip addr add 10.82.1.1/24 dev lo; ip -n peer addr add 10.82.2.1/24 dev lo
config() { # NAME LOCAL REMOTE LOCAL-NET REMOTE-NET
  cat <<CONF
connections { net { version = 2
    local_addrs = $2
    remote_addrs = $3
    encap = yes
    local { auth = psk
      id = $1.example }
    remote { auth = psk }
    children { net { local_ts = $4
        remote_ts = $5
        esp_proposals = aes128gcm128
        start_action = trap } } } }
secrets { ike { secret = "what both know" } }
CONF
}
config a 10.80.0.1 10.80.0.2 10.82.1.0/24 10.82.2.0/24 >/etc/swanctl/conf.d/net.conf
mkdir -p /root/peer/run
config b 10.80.0.2 10.80.0.1 10.82.2.0/24 10.82.1.0/24 >/root/peer/swanctl.conf
cat >/root/peer/strongswan.conf <<'CONF'
charon-systemd { load_modular = yes
  plugins { include /etc/strongswan.d/charon/*.conf
    vici { socket = unix:///root/peer/vici } } }
CONF
printf '[ipsec]\n' >/root/peer/daemon.toml
chmod 600 /root/peer/daemon.toml
# Debian's profile confines swanctl to /etc/swanctl, where the other end's configuration is not.
apparmor_parser -R /etc/apparmor.d/usr.sbin.swanctl
peer=(env SEALANE_RUNTIME_DIR=/root/peer/run STRONGSWAN_CONF=/root/peer/strongswan.conf SWANCTL_DIR=/root/peer ip netns exec peer)
"${peer[@]}" sealane daemon --config /root/peer/daemon.toml >/root/peer/daemon.log 2>&1 &
daemon=$!
check "the other end's daemon" within 60 grep -q IPsec /root/peer/daemon.log
"${peer[@]}" sealane run -- /usr/sbin/charon-systemd >/root/peer/charon.log 2>&1 &
charon=$!
check "the other end's charon" within 60 test -S /root/peer/vici
check "the other end's configuration" "${peer[@]}" swanctl --load-all --uri unix:///root/peer/vici --file /root/peer/swanctl.conf

check "strongSwan starts by its unit" systemctl restart strongswan
check "its configuration" swanctl --load-all
check "a tunnel" within 120 pings
check "doctor finds no problem" sealane doctor
check "no module of the kernel's ESP is loaded" not grep -qE '^esp[46] ' /proc/modules
check "an upgrade" apt-get install -y --reinstall ./sealane.deb
check "the tunnel goes on" pings
check "the keys are negotiated again" swanctl --rekey --child net
check "the tunnel goes on" pings
check "the daemon is killed" systemctl kill -s KILL sealane
sleep 5
check "the tunnel goes on" pings
check "removal is refused" not apt-get remove -y sealane
check "AppArmor has denied nothing" none_denied
kill "$charon"; wait "$charon"
kill "$daemon"; wait "$daemon"
systemctl stop strongswan sealane
check "protection is given up" sealane xfrm clear
check "of the other end, too" "${peer[@]}" sealane xfrm clear
check "purge" apt-get purge -y sealane
check "no file is left" not ls -d /etc/sealane /run/sealane /var/lib/sealane
nothing() { local left; left=$(nft list tables; ip rule | grep -E '^9[67]:'); echo "$left"; [[ -z $left ]]; }
check "no rule is left" nothing
echo "the end"
sync
