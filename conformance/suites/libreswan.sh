#!/usr/bin/env bash
# libreswan's unmodified pluto with the daemon's IPsec: that of Debian 12 (4.10) in one namespace, that of Debian 13
# (5.2) in another, and the first one against strongSwan and against a 5.2 with the kernel's own ESP.
#
#   [CHARON_ROOT=FOLDER] [LIBRESWAN_ROOT=FOLDER] libreswan.sh [KERNEL]     KERNEL: linux-7.3 (default); or `none`
#
# charon_ends.sh and libreswan_ends.sh say where the programs come from. Needs iputils-ping and nftables. As root: it
# makes network namespaces. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=libreswan
. "$(dirname "$0")/charon_ends.sh"
. "$(dirname "$0")/libreswan_ends.sh"
kernel=${1:-linux-7.3}
net_a=10.82.1.0/24 net_b=10.82.2.0/24
v4="left=10.80.0.1;right=10.80.0.2;leftid=@a;rightid=@b;esp=aes_gcm128"
v6="left=fd80::1;right=fd80::2;leftid=@a;rightid=@b;esp=aes_gcm128"
guest="left=10.81.0.1;right=10.81.0.2;leftid=@a;rightid=@b;esp=aes_gcm128"
nets="leftsubnet=$net_a;rightsubnet=$net_b"

# both LINES: loads the connection `net` at both ends.
both() { conn a "$1" && conn b "$1"; }
# rekeyed END ike|child TIMES: END rekeys it this many times, and packets pass after each.
rekeyed() {
  local before i what=$2
  # Its name before 5.0.
  [[ ${release[$1]}$what != bookwormchild ]] || what=ipsec
  for ((i = 0; i < $3; i++)); do
    before=$(spis a)
    quietly whack "$1" "--rekey-$what" --name net || return 1
    [[ $2 == ike ]] || within 20 others_than "$before" || return 1
    within 5 reached || return 1
  done
}
others_than() { [[ $(spis a) != "$1" && $(spis a) == *' '* ]]; }
# while_rekeyed END ike|child TIMES: no packet is lost meanwhile, but for those that an end has sent by a new SA before
# the other one has its keys. libreswan's responder does so, whoever serves its IPsec; XfrmAcquireError counts them.
while_rekeyed() { early_before=$(early); under_traffic rekeyed "$@"; }
excused() {
  local lost
  lost=$(sed -nE 's/.* no answer to \[(.*)\], .*/\1/p' "$dir/pings" | tr , '\n' | wc -l)
  ((lost <= $(early) - early_before))
}
early() {
  for end in a b; do under "$end" awk '$1 == "XfrmAcquireError" { print $2 }' /proc/net/xfrm_stat; done |
    awk '{ n += $1 } END { print n + 0 }'
}
state() { xfrm "$1" state | has "$2"; }
policy() { xfrm "$1" policy | has "$2"; }
no_policies() { ! policy "$1" '10\.82|fd82'; }

wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2)
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
  ip -n "$name-$end" addr add "fd82:$i::1/64" dev lo nodad
  ip -n "$name-$end" addr add "fd80::$i/64" dev veth nodad
  ip -n "$name-$end" route add "10.82.$((3 - i)).0/24" via "10.80.0.$((3 - i))" src "10.82.$i.1"
  ip -n "$name-$end" route add "fd82:$((3 - i))::/64" via "fd80::$((3 - i))" src "fd82:$i::1"
done
watch_clear
for end in a b; do
  check "a root folder of ${release[$end]}" tree $end
  check "daemon $end" daemon $end IPsec
  swan_config $end "$v4;$nets;auto=ignore"
  check "pluto $(<"$LIBRESWAN_ROOT/${release[$end]}/version")" pluto $end
done

quietly both "$v4;$nets;encapsulation=yes;auto=add"
check "a tunnel, ESP in UDP" up a
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "no packet is lost while 4.10 rekeys the Child SA three times" while_rekeyed a child 3
check "nor while 5.2 does" while_rekeyed b child 2
check "nor while the IKE SA is rekeyed" while_rekeyed a ike 1
check "it is taken down" down a
check "no states are left" within 20 empty a
check "nor at the other end" within 20 empty b

quietly both "${v4/aes_gcm128/aes128-sha2_256};$nets;encapsulation=no;auto=add"
check "a tunnel that 5.2 asks for, plain ESP, CBC and HMAC" up b
check "packets pass" ping_a 5
check "none in clear" none_in_clear
check "the connection is deleted" quietly ipsec a auto --delete net
check "no states are left" within 20 empty a
check "nor at the other end" within 20 empty b
check "nor policies" within 20 no_policies a

# Narrowing: a asks for more than b gives.
conn a "$v4;leftsubnet=$net_a;rightsubnet=10.82.0.0/16;narrowing=yes;auto=add"
conn b "$v4;$nets;narrowing=yes;auto=add"
check "a Child SA that is narrowed" up a
check "so it is" within 20 policy a "src $net_a dst $net_b"
check "packets pass" ping_a 5
check "it is taken down" down a

# On demand: the first packet asks for the SA; nothing leaves before it is there.
quietly both "$v4;$nets;encapsulation=yes;auto=add"
for end in a b; do quietly ipsec $end auto --route net; done
check "no states before the first packet" empty a
check "a packet has the SA made" within 20 reached
check "packets pass" ping_a 5
check "none in clear" none_in_clear

# The daemon is killed: nothing passes, and nothing is sent unencrypted. The next one goes on.
end daemon a KILL
check "without the daemon nothing passes" no_answer 10.82.2.1
check "daemon a again" daemon a IPsec
check "it goes on" within 20 reached
check "packets pass" ping_a 5
check "none in clear" none_in_clear

# A peer that has lost its SAs.
kill_pluto b
check "pluto comes back beside its daemon" pluto b
quietly both "$v4;$nets;encapsulation=yes;auto=add"
check "a tunnel to it" up a
check "packets pass" ping_a 5

quietly both "$v4;leftprotoport=icmp;rightprotoport=icmp;type=transport;encapsulation=no;auto=add"
check "transport mode, plain ESP" up a
check "packets pass" ping_a 5 0.1 56 10.80.0.1 10.80.0.2
check "so it is" state a 'mode transport'
check "none in clear" none_in_clear
quietly both "$v4;leftprotoport=icmp;rightprotoport=icmp;type=transport;encapsulation=yes;auto=add"
check "transport mode, ESP in UDP" up b
check "packets pass" ping_a 5 0.1 56 10.80.0.1 10.80.0.2
check "none in clear" none_in_clear
check "it is taken down" down a

for how in no yes; do
  both "$v6;leftsubnet=fd82:1::/64;rightsubnet=fd82:2::/64;encapsulation=$how;auto=add"
  check "a tunnel over IPv6 (encapsulation=$how)" up a
  check "packets pass" ping_a 5 0.1 56 fd82:1::1 fd82:2::1
  check "it is taken down" down a
done
check "none in clear" none_in_clear

# Refused where the kernel has no xfrm interfaces (LIMITATIONS.md, XFRM-20); where it has them, the interface is the
# kernel's, and lets nothing pass.
refused() { ! conn a "$v4;$nets;ipsec-interface=yes;auto=add" >/dev/null; }
if unshare -n ip link add ipsec1 type xfrm if_id 1 2>/dev/null; then
  echo "SKIPPED an IPsec interface: this kernel has interfaces of its own"
else
  check "an IPsec interface is refused" refused
  check "and it says so" grep -q 'ipsec-interface=.* not supported' "$dir/a.log"
fi

# strongSwan at the other end.
end pluto b
quietly conn a "$v4;$nets;pfs=no;auto=add"
config b 10.80.0.2 10.80.0.1 $net_b $net_a 'encap = yes' 'start_action = none'
sed -i "s/b\.example/@b/; s/\"what both know\"/$psk/" "$dir/b.swanctl"
check "charon b" charon b
check "a tunnel to strongSwan" up a
check "packets pass" ping_a 5
check "no packet is lost while libreswan rekeys the Child SA" while_rekeyed a child 2
check "none in clear" none_in_clear
check "it is taken down" down a
check "a tunnel that strongSwan asks for" initiate b
check "packets pass" ping_a 5
check "none in clear" none_in_clear
end charon b
check "it is taken down" down a
end daemon b

if [[ $kernel != none && -x $kernels/$kernel ]]; then
  ip -n "$name-a" tuntap add tap mode tap
  ip -n "$name-a" addr add 10.81.0.1/24 dev tap
  ip -n "$name-a" link set tap up
  ip -n "$name-a" route replace 10.82.2.0/24 via 10.81.0.2 src 10.82.1.1
  quietly whack a --listen
  swan_config b "$guest;$nets;encapsulation=no;auto=add"
  # The guest has files of its own below /run, and ends with the script, or when it is told to.
  ip netns exec "$name-a" nsenter -t "${holder[b]}" -m -r --wd=/ "$kernels/boot" "$kernel" --tap tap -- bash -c "
    ip addr add 10.81.0.2/24 dev vec0; ip link set vec0 up; ip link set lo up; ip addr add 10.82.2.1/24 dev lo
    ip route add 10.82.1.0/24 via 10.81.0.1 src 10.82.2.1
    mkdir /run/pluto; cp -r /var/lib/ipsec/nss /run/nss
    /usr/libexec/ipsec/pluto --config /etc/ipsec.conf --nssdir /run/nss --logfile /run/log --nofork >/run/out 2>&1 &
    for i in {1..300}; do ipsec whack --status >/dev/null 2>&1 && break; sleep 0.1; done
    for how in no yes; do
      sed -i \"s/encapsulation=.*/encapsulation=\$how/\" /etc/ipsec.conf
      ipsec auto --replace net && touch '$dir/guest-'\$how
      while [ -e '$dir/a.toml' ] && ! [ -e '$dir/over-'\$how ]; do sleep 0.1; done
      ip xfrm state; awk '\$2' /proc/net/xfrm_stat
    done
    tail -n 50 /run/out /run/log" >"$dir/kernel.log" 2>&1 &
  in_kernel=$!
  pids+=($in_kernel)
  for how in no yes; do
    check "pluto inside $kernel (encapsulation=$how)" within 60 test -e "$dir/guest-$how"
    quietly conn a "$guest;$nets;encapsulation=$how;auto=add"
    check "a tunnel with it" up a
    check "packets pass" ping_a 5
    check "no packet is lost while it is rekeyed" while_rekeyed a child 2
    check "it is taken down" down a
    touch "$dir/over-$how"
  done
  wait "$in_kernel" || true
  check "it was its kernel's" grep -q 'mode tunnel' "$dir/kernel.log"
  ((!failed)) || cat "$dir/kernel.log"
elif [[ $kernel != none ]]; then
  echo "SKIPPED a pluto inside $kernel: no $kernels/$kernel"
fi
end pluto a
exit "$failed"
