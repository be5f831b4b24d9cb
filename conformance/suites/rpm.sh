#!/usr/bin/env bash
# The rpm package: two of the same build are equal, rpmlint finds nothing, and it is installed, upgraded, not removed while
# Sealane protects something, and removed, by rpm of Debian on this machine's root under an overlay, with an empty database.
# systemd does not run there: what is asked of `systemctl` is written down. No Fedora or RHEL is tried, nor whether their
# packages give what this one requires.
#
# As root. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=rpm
. "$(dirname "$0")/common.sh"
[[ $EUID -eq 0 ]] || { echo "SKIPPED rpm: only root may mount and make network namespaces"; exit 77; }
if [[ ${1:-} != inside ]]; then
  place=$root/target/rpms
  . "$(dirname "$0")/made_twice.sh"
  result=0
  made_twice rpm.sh 'rpm/*.rpm' "$place"
  folder=$(mktemp -d "$work/rpm.XXXXXX")
  trap 'rm -rf --one-file-system "$folder"' EXIT
  # Everything that is written stays in memory.
  unshare --mount --pid --net --fork --kill-child bash -ec '
    . "$1/conformance/suites/machine.sh"
    mount -t tmpfs -o mode=755 tmpfs "$2"
    mkdir "$2"/{upper,work,new}
    mount -t overlay overlay -o "lowerdir=/,upperdir=$2/upper,workdir=$2/work" "$2/new"
    cd "$2/new"
    mount -t proc proc proc
    mount --rbind /dev dev
    mount -t tmpfs -o mode=755 tmpfs run
    mkdir -p ".$1/target"
    mount --bind "$1" ".$1"
    become "$2/new" "$1/conformance/suites/rpm.sh" inside' sh "$root" "$folder" || result=1
  exit $result
fi

dir=$(mktemp -d) failed=0
check() { # WHAT COMMAND...
  if "${@:2}" >"$dir/log" 2>&1; then echo "PASS $1"; else echo "FAIL $1"; failed=1; tail -n 10 "$dir/log"; fi
}
# The stand-in for systemctl.
mkdir -p /run/systemd/system
rm -f /usr/bin/systemctl
printf '#!/bin/sh\necho "$@" >>/run/asked\n' >/usr/bin/systemctl
chmod 755 /usr/bin/systemctl
asked() { grep -qx -- "$1" /run/asked; }
not_asked() { ! asked "$1"; }

# Debian's packages are not in rpm's database.
first=$(echo "$root"/target/rpms/first/*.rpm) next=$(echo "$root"/target/rpms/next/*.rpm)
check "it is installed" rpm --install --nodeps "$first"
check "its files are as they were packed" rpm --verify --nodeps sealane
check "it asks for the C library" bash -c 'rpm -q --requires sealane | grep -F "libc.so.6(GLIBC_"'
check "systemd reads its unit" asked daemon-reload
check "and does not start it" bash -c '! grep start /run/asked'
check "it runs, and finds its library" bash -c 'sealane --version && sealane run --intercept preload -- true'
check "the shipped configuration is good" bash -c 'sealane check /etc/sealane/sealane.toml && test "$(stat -c %a /etc/sealane/sealane.toml)" = 600'
check "OpenSSL loads the provider by the shipped example" \
  bash -c 'OPENSSL_CONF=/etc/sealane/openssl-sealane.cnf openssl list -providers | grep "Sealane provider"'

ip link set lo up
echo '# changed' >>/etc/sealane/sealane.toml
(cd / && exec /usr/bin/sealane daemon --config /etc/sealane/sealane.toml >"$dir/daemon" 2>&1) &
daemon=$!
for ((i = 0; i < 300; i++)); do ! grep -q IPsec "$dir/daemon" || break; sleep 0.1; done
check "a policy" sealane xfrm policy add src 10.82.1.0/24 dst 10.82.2.0/24 dir out tmpl proto esp mode transport
: >/run/asked
check "an upgrade" rpm --upgrade --nodeps "$next"
check "to the next version" bash -c 'rpm -q sealane | grep -F +next'
check "restarts the daemons if they run" asked 'try-restart sealane.service sealane-keeper.service'
check "and keeps it enabled" not_asked '--no-reload disable --quiet sealane.service'
check "it keeps the changed configuration" grep '# changed' /etc/sealane/sealane.toml

refused() { # PATTERN: what is said
  ! rpm --erase sealane >"$dir/erase" 2>&1 || { echo "it went"; return 1; }
  cat "$dir/erase"
  grep -e "$1" "$dir/erase" && rpm -q sealane && test -x /usr/bin/sealane
}
check "no removal while it protects: it says what to do" refused 'sealane xfrm clear'
kill "$daemon"
wait "$daemon" || true
check "nor without a daemon, while a policy is in force" refused 'sealane xfrm clear'
check "sealane xfrm clear" sealane xfrm clear
mkdir -p /etc/systemd/system/strongswan.service.d
printf '[Service]\nExecStart=\nExecStart=/usr/bin/sealane run -- /usr/sbin/charon-systemd\n' >/etc/systemd/system/strongswan.service.d/sealane.conf
check "nor while units run under it: it names them" refused strongswan.service.d/sealane.conf
rm -r /etc/systemd/system/strongswan.service.d
check "it is removed" rpm --erase sealane
check "and disabled" asked '--no-reload disable --quiet sealane.service'
left() { local found; found=$(ls -d /usr/bin/sealane /usr/lib/sealane /usr/share/doc/sealane /usr/share/licenses/sealane \
  /usr/lib/systemd/system/sealane.service /usr/lib*/ossl-modules/sealane.so /etc/sealane/openssl-sealane.cnf /run/sealane \
  2>/dev/null); [[ -z $found ]] || { echo "$found"; return 1; }; }
check "nothing of it is left" left
check "but the changed configuration" test -f /etc/sealane/sealane.toml.rpmsave
exit "$failed"
