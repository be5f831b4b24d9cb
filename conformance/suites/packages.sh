#!/usr/bin/env bash
# The Debian packages: two of the same build are equal, lintian finds nothing, and on a minimal Debian 12 and 13 without
# a compiler they are installed, started, upgraded while packets pass, and removed. Nothing is sent in clear, and
# nothing is left.
#
#   packages.sh             makes packages of this version and of a next one, and tries them on both
#   packages.sh RELEASE     tries those that are made already on one of them: bookworm, trixie
#
# As root, with apt, in about 2 GB of target/packages; container.sh says what else the machine has to have. A tunnel
# between the container and a daemon of this build is up meanwhile, by `ip xfrm`. Each check writes PASS or FAIL. Exit
# status: 0 all passed, 1 not, 77 could not try.
suite=packages
. "$(dirname "$0")/common.sh"
place=$root/target/packages
[[ $EUID -eq 0 ]] || { echo "SKIPPED packages: only root may make network namespaces"; exit 77; }

next=$("$root/scripts/version.sh")+next
if (($# == 0)); then
  . "$(dirname "$0")/made_twice.sh"
  result=0
  made_twice package.sh 'package/*.deb' "$place"
  for release in bookworm trixie; do
    "$0" $release || result=1
  done
  exit $result
fi

release=$1 base=$place/$1
. "$(dirname "$0")/machine.sh"
. "$(dirname "$0")/two_ends.sh"
. "$(dirname "$0")/ipsec_ends.sh"
echo "on $release"
"$(dirname "$0")/debian.sh" "$release" "$base" >"$dir/debian.log" 2>&1 || { tail -n 5 "$dir/debian.log"; echo "SKIPPED packages: no $release"; exit 77; }
cp "$place"/first/sealane_*.deb "$base/root/sealane.deb"
cp "$place"/next/sealane_*.deb "$base/root/next.deb"
in_machine "$base" 'apt-get -qq update; apt-get -qq -y install --no-install-recommends systemd iproute2 procps openssl' >"$dir/debian.log" 2>&1
# fresh SCRIPT: in the minimal Debian, before systemd runs in it.
fresh() { in_machine "$base" "$1" >"$dir/fresh.log" 2>&1 || { tail -n 10 "$dir/fresh.log"; return 1; }; }
install='apt-get -y install --no-install-recommends /root/sealane.deb'
# Names of files that packages of Sealane have made.
find_ours='find / /run -xdev -iname "*sealane*" -not -path "/root/*"'
check "apt installs it" fresh "$install"
check "without a compiler" fresh '! command -v cc gcc rustc cargo make'
check "it runs, and finds its library" fresh 'sealane --version && sealane run --intercept preload -- true'
check "the shipped configuration is good" fresh 'sealane check /etc/sealane/sealane.toml && test "$(stat -c %a /etc/sealane/sealane.toml)" = 600'
check "OpenSSL loads the provider by the shipped example" fresh 'OPENSSL_CONF=/etc/sealane/openssl-sealane.cnf openssl list -providers | grep "Sealane provider"'
check "pages and completions" fresh 'ls /usr/share/man/man1/sealane-daemon.1.gz /usr/share/bash-completion/completions/sealane \
  /usr/share/zsh/vendor-completions/_sealane /usr/share/fish/vendor_completions.d/sealane.fish /usr/share/doc/sealane/docs/packages.md'
check "unused, it is purged without a trace" fresh "apt-get -y purge sealane; test -z \"\$($find_ours)\""
check "and installed again" fresh "$install"

. "$(dirname "$0")/container.sh"
wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2) o=$((3 - i))
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
  ip -n "$name-$end" route add "10.82.$o.0/24" via "10.80.0.$o" src "10.82.$i.1"
done
watch_clear
container
# own END WORDS...: `ip xfrm` as that end's administrator has it.
own() {
  if [[ $1 == a ]]; then inside sealane run -- ip xfrm "${@:2}"; else xfrm "$@"; fi
}
tunnel() { # END
  local i; i=$([[ $1 == a ]] && echo 1 || echo 2)
  local here=10.80.0.$i there=10.80.0.$((3 - i)) inside=10.82.$i.0/24 outside=10.82.$((3 - i)).0/24
  local out="tmpl src $here dst $there proto esp reqid 1 mode tunnel" in="tmpl src $there dst $here proto esp reqid 1 mode tunnel"
  local key=0x$(printf '%040d' 7) state="proto esp reqid 1 mode tunnel replay-window 128"
  own "$1" state add src $here dst $there spi 0x100$i $state aead 'rfc4106(gcm(aes))' $key 128 &&
    own "$1" state add src $there dst $here spi 0x100$((3 - i)) $state aead 'rfc4106(gcm(aes))' $key 128 &&
    own "$1" policy add src $inside dst $outside dir out $out &&
    own "$1" policy add src $outside dst $inside dir in $in
}
idle() { ! inside systemctl is-enabled --quiet sealane && ! inside systemctl is-active --quiet sealane; }
check "it neither starts nor is enabled by itself" idle
check "one command starts it" inside systemctl enable --now --quiet sealane
check "daemon b" daemon b IPsec
check "a tunnel by ip xfrm, end a" tunnel a
check "end b" tunnel b
check "packets pass" ping_a 20 0.02

# Pings go on all the time. Some are lost while no daemon runs.
ip netns exec "$name-a" ping -q -n -i 0.01 -I "${inner[@]}" >"$dir/pings" 2>&1 &
pinging=$!
pids+=("$pinging")
states() { own a state | awk '$1 == "proto" { print $4 }' | sort | tr '\n' ' '; }
before=$(states)
was=$(main)
other_main() { local now; now=$(main); [[ $now != 0 && $now != "$was" ]]; }
is_next() { [[ $(inside dpkg-query -W -f '${Version}' sealane) == "$next" ]]; }
same_states() { [[ $(states) == "$before" ]] || { echo "$before before, and now $(states)"; return 1; }; }
check "an upgrade" quietly inside dpkg --install /root/next.deb
check "to the next version" is_next
check "which runs at once" within 20 other_main
check "packets pass again" within 20 reached
check "by the states of before" same_states
check "none in clear" none_in_clear

refused() { # PATTERN: what is said
  ! inside apt-get -y purge sealane >"$dir/apt.log" 2>&1 || { echo "it went"; return 1; }
  has "$1" <"$dir/apt.log" || { tail -n 20 "$dir/apt.log"; return 1; }
}
check "no removal while it protects: it says what to do" refused 'sealane xfrm clear'
# A unit of the name and the program that strongSwan has.
drop_in=/etc/systemd/system/strongswan.service.d/sealane.conf
inside cp /bin/sleep /usr/sbin/charon-systemd
inside sh -c "printf '[Service]\nExecStart=/usr/sbin/charon-systemd infinity\n' >/etc/systemd/system/strongswan.service"
check "sealane adopt" quietly inside sealane adopt strongswan
under() { inside systemctl show -p ExecStart strongswan | has 'argv..=/usr/bin/sealane run -- /usr/sbin/charon-systemd infinity'; }
check "puts a unit under Sealane" under
check "which starts" inside systemctl restart strongswan
runs() { inside pgrep -x charon-systemd >"$dir/out"; }
check "its program" within 20 runs
inside systemctl stop strongswan
check "the daemon goes on" inside systemctl is-active --quiet sealane
check "packets pass" ping_a 20 0.02
check "disabled and stopped" inside systemctl disable --now --quiet sealane
check "nothing passes" no_answer
check "no removal while it protects without a daemon" refused 'sealane xfrm clear'
check "nothing passes" no_answer
check "none in clear" none_in_clear
kill -INT "$pinging"; wait "$pinging" || true
grep transmitted "$dir/pings"

check "sealane xfrm clear" inside sealane xfrm clear
check "no removal while units run under it: it names them" refused "$drop_in"
check "sealane adopt --undo" quietly inside sealane adopt --undo strongswan
gone() { ! inside test -e "${drop_in%/*}"; }
check "takes the drop-in away" gone
check "purged" quietly inside apt-get -y purge sealane
# But for what container.sh has put there.
no_files() {
  local left; left=$(inside sh -c "$find_ours" | grep -v "^/sealane.log$\|^/etc/systemd/system/sealane.service.d$\|^$work" || true)
  [[ -z $left ]] || { echo "$left"; return 1; }
}
no_rules() {
  local left; left=$(ip netns exec "$name-a" sh -c 'nft list tables; ip rule; ip link; ip route show table all' | grep -i 'sealane\|24225' || true)
  [[ -z $left ]] || { echo "$left"; return 1; }
}
no_process() { ! inside pgrep -l sealane; }
check "no file is left" no_files
check "no rule, route or device" no_rules
check "no process" no_process
exit "$failed"
