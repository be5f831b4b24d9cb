#!/usr/bin/env bash
# The Debian package, under systemd in a container: installed, its unit is started and serves strongSwan's unmodified charon;
# it is upgraded under a tunnel, not removed while it protects traffic, and then removed and purged.
#
#   [CHARON_ROOT=FOLDER] package.sh [FILE.deb]
#
# Without FILE it packs what was built. charon_ends.sh says where charon comes from, container.sh how systemd runs. As root,
# with what those need, debhelper and dpkg. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=package
. "$(dirname "$0")/charon_ends.sh"
. "$(dirname "$0")/container.sh"

built=${1:-$dir/packages/sealane_*.deb}
# Not compressed as well as those of `make deb`: that takes longer than all the rest.
pack() { (cd "$root" && DEB_BUILD_OPTIONS=noautodbgsym DPKG_DEB_COMPRESSOR_LEVEL=1 debian/rules binary OUT="$dir/packages" && debian/rules clean); }
if (($# == 0)); then
  command -v dh dpkg-deb >/dev/null || lacks "no debhelper here (scripts/install-deps.sh packages)"
  check "the package is built" quietly pack
fi
cp $built "$dir/sealane.deb"
if command -v lintian >/dev/null; then
  clean() { lintian --allow-root --fail-on error,warning "$dir/sealane.deb"; }
  check "lintian is content" clean
else
  echo "SKIPPED lintian: it is not installed"
fi

wire
for end in a b; do ip -n "$name-$end" addr add "10.82.$([[ $end == a ]] && echo 1 || echo 2).1/24" dev lo; done
watch_clear
config a 10.80.0.1 10.80.0.2 10.82.1.0/24 10.82.2.0/24 'encap = yes' ''
config b 10.80.0.2 10.80.0.1 10.82.2.0/24 10.82.1.0/24 'encap = yes' ''
printf '[ipsec]\n' >"$dir/a.toml"
mkdir -p "$dir/units"
cat >"$dir/units/strongswan.service" <<UNIT
[Service]
Type=notify
ExecStart=${charon[*]}
Environment=STRONGSWAN_CONF=$dir/a.strongswan SWANCTL_DIR=$dir
[Install]
WantedBy=suite.target
UNIT
container

# There is nothing of the package yet, nothing that keeps packages from starting units, and no index of man pages.
inside rm -r /usr/local/bin/sealane /usr/local/lib/sealane /etc/sealane /etc/systemd/system/sealane.service
inside rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update
inside systemctl daemon-reload
# Files with the name of the package in all folders that it may write to, but for what the suite itself has put there.
files() {
  inside find /etc /usr /var /run /boot /opt /root /srv /tmp -name '*sealane*' -not -path "$dir/*" -not -path '/var/cache/man/*' \
    -not -path '/etc/systemd/system/*.d/*' -not -path /etc/systemd/system/sealane.service.d -not -path '/tmp/*/*' 2>/dev/null | sort
}
others=$(files)
package() { quietly inside env DEBIAN_FRONTEND=noninteractive dpkg "$@"; }
is() { [[ $(inside systemctl "is-$1" sealane) == "$2" ]]; }
not() { ! "$@" >/dev/null; }



check "the package is installed" package -i "$dir/sealane.deb"
check "its unit is not enabled" is enabled disabled
check "and does not run" is active inactive
check "systemd-analyze verify finds nothing" inside systemd-analyze verify sealane.service
check "its configuration is valid" quietly inside sealane check /etc/sealane/sealane.toml
check "there is a man page" inside test -s /usr/share/man/man1/sealane-daemon.1.gz
check "the library is found" quietly inside sealane run -- /bin/true
# A kernel with a list of modules, among which esp4 is blocked.
release=$(uname -r)
inside mkdir -p "/lib/modules/$release" /etc/modprobe.d
inside sh -c "printf 'kernel/net/ipv4/esp4.ko:\nkernel/net/ipv6/esp6.ko:\n' >/lib/modules/$release/modules.dep
  echo 'install esp4 /bin/false' >/etc/modprobe.d/no-esp.conf; [ -e /usr/sbin/charon-systemd ] || ln -s /bin/true /usr/sbin/charon-systemd"
check "charon's unit is enabled" quietly inside systemctl enable strongswan
# finds ID...: the problems that `sealane doctor` finds.
finds() {
  local found; found=$(inside sealane doctor | sed -n 's/^PROBLEM (\(.*\)): .*/\1/p' | tr '\n' ' ')
  [[ $found == "${*:+$* }" ]] || { inside sealane doctor; return 1; }
}
check "doctor finds what is to be done" finds daemon not-adopted
check "and says so by its exit status" not inside sealane doctor
check "the unit starts" inside systemctl enable --now sealane
check "charon's unit is adopted" quietly inside sealane adopt strongswan
check "doctor finds no problem" finds
check "and says so by its exit status" quietly inside sealane doctor
protects() { ! inside sealane clear --check >/dev/null; }
check "nothing is protected yet" inside sealane clear --check
check "charon starts by its unit" inside systemctl start strongswan
within 20 test -S "$dir/a.vici" || inside systemctl status --no-pager strongswan || true
check "daemon b" daemon b IPsec
check "charon b" charon b
check "requests are accepted" load a
check "a CHILD SA" initiate a
check "packets pass" ping_a 5

before="$(newest a child) $(newest b child)"
was=$(main)
check "an upgrade" package -i "$dir/sealane.deb"
other() { [[ $(main) != "$was" && $(main) != 0 ]]; }
check "it runs the new daemon" within 20 other
check "packets pass" within 20 reached
same() { [[ $before == "$(newest a child) $(newest b child)" ]] && ping_a 10 0.02; }
check "by the same SA" same
check "removal is refused" not package -r sealane
check "packets pass" ping_a 5
# A key manager that is killed leaves its policies.
inside systemctl kill -s KILL strongswan
check "the unit stops" inside systemctl stop sealane
check "what is left protects" protects
check "removal is refused" not package -r sealane
check "nothing was sent in clear" none_in_clear
check "protection is given up" quietly inside sealane xfrm clear
check "removal" package -r sealane
nothing() { local left; left=$(inside sh -c 'nft list tables; ip rule; ip -br link; ip route show table all' | grep -E 'sealane|24225|^9[67]:' || true); [[ -z $left ]] || { echo "left: $left"; return 1; }; }
check "no rule and no device is left" nothing
check "its configuration is left" inside test -s /etc/sealane/sealane.toml

check "it is installed again" package -i "$dir/sealane.deb"
check "the unit starts" inside systemctl start sealane
check "removal while it runs, and protects nothing" package -P sealane
check "no rule and no device is left" nothing
check "the unit is gone" not inside systemctl cat sealane
check "charon's unit is as it was" not inside test -e /etc/systemd/system/strongswan.service.d
no_files() { local left; left=$(comm -13 <(echo "$others") <(files)); [[ -z $left ]] || { echo "left: $left"; return 1; }; }
check "no file is left" no_files
exit "$failed"
