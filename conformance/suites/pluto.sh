#!/usr/bin/env bash
# libreswan's unmodified pluto with the daemon's IPsec: two of them in two namespaces, one against strongSwan's charon, and
# one against a pluto with the kernel's own ESP.
#
#   [PLUTO_ROOT=FOLDER] pluto.sh [RELEASE [KERNEL]]
#
# RELEASE is the one of Debian that libreswan is taken from: trixie (default; 5.2) or bookworm (4.10); KERNEL:
# linux-7.3-net (default), or `none`. unpack.sh puts libreswan into PLUTO_ROOT (default target/pluto/RELEASE) when it is
# not there yet, and each end runs it in a root of its own that has these files. charon_ends.sh says where charon comes
# from. Needs iputils-ping and nftables. As root: it makes network namespaces.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=pluto
# In a mount namespace of its own.
[[ $EUID -ne 0 || ${PLUTO_MOUNTS:-} ]] || PLUTO_MOUNTS=1 exec unshare -m --propagation private "$0" "$@"
. "$(dirname "$0")/charon_ends.sh"
release=${1:-trixie} kernel=${2:-linux-7.3-net}
PLUTO_ROOT=${PLUTO_ROOT:-$root/target/pluto/$release}
why=$("$(dirname "$0")/unpack.sh" "$release" "$PLUTO_ROOT" libreswan libnss3-tools iproute2 bash dash coreutils grep sed mawk 2>&1) ||
  lacks "libreswan of Debian's $release could not be unpacked: ${why%%$'\n'*}"
echo "libreswan $(<"$PLUTO_ROOT/version")"

# The machines have folders of this system in them: they are below another file system, into which removing `dir` never goes.
machines=$dir/machines
mkdir "$machines"
mount -t tmpfs machines "$machines"
trap 'umount -Rl "$machines"; cleanup' EXIT
# machine END: a root with Debian's files for it, in which Sealane and this script's folder are where they are here.
machine() {
  local to=$machines/$1 upper=$machines/upper-$1 path
  mkdir -p "$to" "$upper/files" "$upper/work"
  mount -t overlay overlay -o "lowerdir=$(realpath "$PLUTO_ROOT"),upperdir=$upper/files,workdir=$upper/work" "$to"
  for path in /proc /dev "$dir" "$(realpath "${sealane%/*}")"; do
    mkdir -p "$to$path"
    mount --bind "$path" "$to$path"
  done
  mkdir -p "$to/run/pluto" "$to/tmp"
  ln -sf mawk "$to/usr/bin/awk"
  inside "$1" certutil -N -d sql:/var/lib/ipsec/nss --empty-password
}
# at END: `into` is how a command gets there.
at() { into=(ip netns exec "$name-$1" chroot "$machines/$1" env -i PATH=/usr/sbin:/usr/bin "SEALANE_RUNTIME_DIR=$dir/run-$1"); }
inside() { at "$1"; "${into[@]}" "${@:2}"; } # END COMMAND...
whack() { at "$1"; timeout 60 "${into[@]}" /usr/libexec/ipsec/whack "${@:2}"; } # END ARGUMENTS...

pluto() { # END
  at "$1"
  "${into[@]}" "$(realpath "$sealane")" run -- /usr/libexec/ipsec/pluto --nofork --stderrlog --listen-tcp >>"$dir/$1.log" 2>&1 &
  pids+=($!)
  declare -g "pluto_$1=$!"
  within 30 listens "$1"
}
# It says so when it has its sockets, and has read its secrets.
listens() { whack "$1" --status 2>/dev/null | has 'interface veth'; }
shut() { # END
  local pid=pluto_$1
  whack "$1" --shutdown >/dev/null
  { wait "${!pid}" || true; } 2>/dev/null
}
killed() { # END
  local pid=pluto_$1
  kill -KILL "$(<"$machines/$1/run/pluto/pluto.pid")"
  { wait "${!pid}" || true; } 2>/dev/null
}

# conn END LINES: writes its configuration, and loads it.
conn() {
  cat >"$machines/$1/etc/ipsec.d/net.conf" <<CONF
conn net
    leftid=@a.example
    rightid=@b.example
    authby=secret
    ike=aes128-sha2_256-modp2048
    esp=aes_gcm128
    auto=add
$2
CONF
  echo '@a.example @b.example : PSK "what both know"' >"$machines/$1/etc/ipsec.d/net.secrets"
  quietly whack "$1" --rereadsecrets
  quietly inside "$1" /usr/libexec/ipsec/addconn net
}
conns() { conn a "$1" && conn b "$1"; } # LINES: the same at both ends, of which each knows its own side
tunnel="    left=10.80.0.1
    leftsubnet=10.82.1.0/24
    right=10.80.0.2
    rightsubnet=10.82.2.0/24"

up() { quietly whack "$1" --initiate --name net; }
down() { quietly whack "$1" --terminate --name net; }
# last END child|ike: the number of its newest SA that is established; 0: it has none.
last() {
  whack "$1" --showstates 2>/dev/null | sed -nE "s/.*#([0-9]+): \"net\".*ESTABLISHED_${2^^}_SA.*/\1/p" | sort -n | tail -n 1 | grep . || echo 0
}
established() { [[ $(last "$1" child) -gt 0 ]]; }
later() { [[ $(last "$1" "$2") -gt $3 ]]; }
# renew END child|ike: END rekeys it; done when it has the new one and packets have passed by it.
renew() {
  local before kind=$2
  # The older one has another word.
  [[ $release.$kind != bookworm.child ]] || kind=ipsec
  before=$(last "$1" "$2")
  quietly whack "$1" "--rekey-$kind" --name net || return 1
  within 30 later "$1" "$2" "$before" || { whack "$1" --showstates; return 1; }
  quietly ping_a 20 0.01
}
renewed() { # TIMES child|ike: so often by a, then once by b
  for ((i = 0; i < $1; i++)); do renew a "$2" || return 1; done
  renew b "$2"
}
# loses_none COMMAND...: succeeds when it does, and no packet is lost meanwhile but those that come in before their state is
# there. A pluto sends by new states as soon as it has answered, so that its packets may be there before the other one has read
# the answer; Linux counts and drops them as well (XfrmAcquireError).
loses_none() {
  local before lost
  before=$(early)
  rm -f "$dir/done"
  under_traffic marked "$@" >"$dir/traffic" && return
  lost=$(sed -nE 's/.*no answer to \[(.*)\].*/\1/p' "$dir/traffic" | wc -w)
  [[ -e $dir/done && $lost -gt 0 ]] && (($(early) - before >= lost)) || { cat "$dir/traffic"; return 1; }
}
marked() { "$@" && touch "$dir/done"; }
early() { for end in a b; do xfrm_counters "$end"; done | awk '$1 == "XfrmAcquireError" { n += $2 } END { print n + 0 }'; }
# No states are left but those without keys that a packet has asked for, which last for xfrm_acq_expires.
keyless() { ! xfrm "$1" state | has 'spi 0x0*[1-9a-f]'; }
nothing_left() { within 20 keyless a && within 20 keyless b; }

wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
  ip -n "$name-$end" addr add "fd80::$i/64" dev veth nodad
  ip -n "$name-$end" addr add "fd82:$i::1/64" dev lo nodad
  # Routes lead to the other network, as on most hosts; policies say the rest.
  ip -n "$name-$end" route add default via "10.80.0.$((3 - i))"
  ip -n "$name-$end" route add default via "fd80::$((3 - i))"
done
# Another way between them, by a router that masquerades a.
ip netns add "$name-router"
for end in a b; do
  ip -n "$name-$end" link add wan type veth peer name "$end" netns "$name-router"
  i=$([[ $end == a ]] && echo 3 || echo 4)
  ip -n "$name-$end" addr add "10.8$i.0.2/24" dev wan
  ip -n "$name-router" addr add "10.8$i.0.1/24" dev "$end"
  ip -n "$name-$end" link set wan up
  ip -n "$name-router" link set dev "$end" up
done
ip -n "$name-a" route add 10.84.0.0/24 via 10.83.0.1
ip netns exec "$name-router" sysctl -qw net.ipv4.ip_forward=1
ip netns exec "$name-router" nft 'add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; }
  add rule ip nat out oifname "b" masquerade'
watch_clear
watch_clear wan
for end in a b; do
  check "machine $end" machine $end
  check "daemon $end" daemon $end IPsec
  check "pluto $end" pluto $end
done

check "a connection" conns "$tunnel"
check "a Child SA in tunnel mode" up a
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "no packet is lost while the Child SA is rekeyed five times" loses_none renewed 4 child
check "nor while the IKE SA is" loses_none renewed 1 ike
check "none in clear" none_in_clear
check "taken down" down a
check "no states are left at either end" nothing_left

check "a connection in transport mode" conns "    left=10.80.0.1
    right=10.80.0.2
    type=transport"
check "a Child SA in transport mode" up b
outer=(10.80.0.1 10.80.0.2)
check "packets pass" ping_a 5 0.1 56 "${outer[@]}"
check "none in clear" none_in_clear
check "taken down" down b
check "no states are left at either end" nothing_left

check "ESP in UDP, asked for" conns "$tunnel
    encapsulation=yes"
check "a Child SA" up a
check "packets pass" ping_a 5
encapsulated() { xfrm "$1" state | has 'encap type espinudp'; }
check "in UDP" encapsulated a
check "none in clear" none_in_clear
check "taken down" down a

check "ESP in TCP, by b's choice" conn b "$tunnel"
check "and by a's" conn a "$tunnel
    enable-tcp=yes
    tcp-remoteport=4500"
check "a Child SA" up a
check "packets pass" ping_a 5
in_tcp() { xfrm "$1" state | has 'encap type espintcp'; }
check "in TCP, for a" in_tcp a
check "and for b" in_tcp b
check "none in clear" none_in_clear
check "no packet is lost while the Child SA is rekeyed" loses_none renew a child
check "taken down" down a
check "no states are left at either end" nothing_left

check "on demand" conns "$tunnel"
check "a trap policy" quietly whack a --route --name net
ip netns exec "$name-a" ping -q -n -c 1 -W 1 -I "${inner[@]}" >"$dir/ping" || true
check "a packet has the SA made" within 30 established a
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "taken down" down a
quietly whack a --unroute --name net
check "no states are left at either end" nothing_left

# From behind a NAT: b waits for whoever has a's name.
behind="    leftsubnet=10.82.1.0/24
    right=10.84.0.2
    rightsubnet=10.82.2.0/24"
check "a, behind a NAT" conn a "    left=10.83.0.2
$behind"
check "b, before it" conn b "    left=%any
$behind"
check "a Child SA" up a
check "packets pass" ping_a 5
check "in UDP" encapsulated a
check "none in clear" none_in_clear
check "no packet is lost while the Child SA is rekeyed" loses_none renewed 2 child
check "taken down" down a
check "no states are left at either end" nothing_left

check "narrowing, at b" conn b "$tunnel
    narrowing=yes"
check "a asks for more than b has" conn a "${tunnel/10.82.2.0\/24/10.82.0.0\/16}
    narrowing=yes"
check "a Child SA" up a
narrowed() { xfrm a policy | has 'src 10.82.1.0/24 dst 10.82.2.0/24' && ! xfrm a state | has '10.82.0.0/16'; }
check "for what both have" narrowed
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "taken down" down a
check "no states are left at either end" nothing_left

check "IPv6" conns "    left=fd80::1
    leftsubnet=fd82:1::/64
    right=fd80::2
    rightsubnet=fd82:2::/64"
check "a Child SA" up a
inner6=(fd82:1::1 fd82:2::1)
check "packets pass" ping_a 5 0.1 56 "${inner6[@]}"
check "none in clear" none_in_clear
check "taken down" down a
check "no states are left at either end" nothing_left

# Interfaces of pluto's own, 1 or a number: it makes and deletes them, and its updown script adds the routes.
has_interface() { inside "$1" "$(realpath "$sealane")" run -- ip -d link show "ipsec$2" 2>&1 | has "xfrm if_id 0x$2"; } # END ID
lacks_interface() { ! inside "$1" "$(realpath "$sealane")" run -- ip link show "ipsec$2" >/dev/null 2>&1; }
for id in 1 2; do
  value=$([[ $id == 1 ]] && echo yes || echo "$id")
  check "a connection with ipsec-interface=$value" conns "$tunnel
    ipsec-interface=$value"
  check "a Child SA" up a
  for end in a b; do check "$end has the interface" has_interface $end $id; done
  routed() { ip -n "$name-a" route show 10.82.2.0/24 | has "dev ipsec$id"; }
  check "a route leads into it" routed
  check "packets pass" ping_a 5
  check "no packet is lost while the Child SA is rekeyed" loses_none renewed 1 child
  check "none in clear" none_in_clear
  check "taken down" down a
  check "no states are left at either end" nothing_left
  ((id == 1)) || check "the one before is gone" lacks_interface a 1
done

# Ends that are lost.
check "a connection" conns "$tunnel"
check "a Child SA" up a
ip netns exec "$name-a" ping -q -n -i 0.01 -I "${inner[@]}" >/dev/null & pings=$!
pids+=("$pings")
end daemon a KILL
check "without the daemon nothing passes" no_answer
check "the next one goes on" daemon a IPsec
check "packets pass" ping_a 5
check "none in clear" none_in_clear
# Before a pluto starts, what one before it has left is removed, in Linux as well: by itself (5.2) or by its unit (4.10).
kill "$pings"
killed a
check "without its key manager a tunnel goes on" ping_a 5
xfrm a policy flush
xfrm a state flush
check "pluto comes back" pluto a
check "and has its connection made again" conn a "$tunnel"
check "a Child SA" up a
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "taken down" down a

# strongSwan at the other end.
shut b
check "a connection for both" conn a "$tunnel
    pfs=no"
config b 10.80.0.2 10.80.0.1 10.82.2.0/24 10.82.1.0/24 '' ''
check "a charon at b" charon b
check "a Child SA with it" up a
check "packets pass" ping_a 5
check "no packet is lost while pluto rekeys it" loses_none renew a child
by_charon() {
  local before; before=$(last a child)
  quietly swan b --rekey --child net && within 30 later a child "$before" && quietly ping_a 20 0.01
}
check "nor while charon does" loses_none by_charon
check "none in clear" none_in_clear
check "taken down" down a
check "no states are left at either end" nothing_left
check "a Child SA that charon asks for" initiate b
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "taken down by charon" terminate b
check "no states are left at either end" nothing_left

if [[ $kernel != none && -x $kernels/$kernel ]]; then
  ip -n "$name-a" tuntap add tap mode tap
  ip -n "$name-a" addr add 10.81.0.1/24 dev tap
  ip -n "$name-a" link set tap up
  ip -n "$name-a" route replace default via 10.81.0.2
  quietly whack a --listen
  check "a connection with a kernel" conn a "${tunnel//10.80/10.81}"
  cp "$machines"/a/etc/ipsec.d/net.* "$machines/b/etc/ipsec.d/"
  # The guest ends with the script, or when it is told to.
  ip netns exec "$name-a" "$boot" "$kernel" --tap tap -- bash -c "
    ip addr add 10.81.0.2/24 dev vec0; ip link set vec0 up; ip addr add 10.82.2.1/24 dev lo; ip route add default via 10.81.0.1
    mount -t proc proc '$machines/b/proc'
    inside() { chroot '$machines/b' env -i PATH=/usr/sbin:/usr/bin \"\$@\"; }
    inside /usr/libexec/ipsec/pluto --nofork --stderrlog >/run/b.log 2>&1 &
    for i in {1..300}; do inside /usr/libexec/ipsec/whack --status 2>/run/status | grep -q 10.81.0.2 && break; sleep 0.1; done
    inside /usr/libexec/ipsec/addconn net >/run/load 2>&1 && touch '$dir/guest'
    while [ -e '$dir/a.toml' ] && ! [ -e '$dir/guest-over' ]; do sleep 0.1; done
    inside /usr/libexec/ipsec/whack --showstates; ip xfrm state; awk '\$2' /proc/net/xfrm_stat
    tail -n 5 /run/status /run/load /run/b.log" >"$dir/kernel.log" 2>&1 &
  guest=$!
  pids+=($guest)
  check "a pluto inside $kernel" within 60 test -e "$dir/guest"
  check "a Child SA with it" up a
  check "packets pass" ping_a 5
  check "no packet is lost while it is rekeyed" loses_none renew a child
  touch "$dir/guest-over"
  wait "$guest" || true
  check "it has it in its kernel" grep -q 'src 10.81.0.1 dst 10.81.0.2' "$dir/kernel.log"
  ((!failed)) || cat "$dir/kernel.log"
elif [[ $kernel != none ]]; then
  echo "SKIPPED a pluto inside $kernel: no $kernels/$kernel"
fi
exit "$failed"
