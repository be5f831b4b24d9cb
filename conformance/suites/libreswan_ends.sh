# Sourced by libreswan.sh after charon_ends.sh: libreswan of Debian 12 and 13, each on a root folder of its own, which is
# this machine's with the packages over it. LIBRESWAN_ROOT is the folder into which unpack_libreswan.sh unpacks both when
# they are not there yet (default target/libreswan).
LIBRESWAN_ROOT=${LIBRESWAN_ROOT-$root/target/libreswan}

for release in bookworm trixie; do
  why=$("$(dirname "${BASH_SOURCE[0]}")/unpack_libreswan.sh" "$release" "$LIBRESWAN_ROOT/$release" 2>&1) ||
    lacks "libreswan of Debian's $release could not be unpacked: ${why%%$'\n'*}"
done
unshare -m sh -ec 'mount -t tmpfs tree "$1"; mkdir "$1/u" "$1/w" "$1/n"
  mount -t overlay overlay -o "lowerdir=/usr,upperdir=$1/u,workdir=$1/w" "$1/n"' sh "$dir" 2>/dev/null ||
  lacks "no overlay of /usr can be mounted"
LIBRESWAN_ROOT=$(realpath "$LIBRESWAN_ROOT")
declare -A release=([a]=bookworm [b]=trixie) holder=()
# libreswan wants more characters than the suites of charon have.
psk='"what both of them know"'

# tree END: makes its root folder and its mounts, which a process holds that ends with the script.
tree() {
  local folder=$dir/tree-$1
  mkdir "$folder"
  ip netns exec "$name-$1" unshare -m --propagation private bash -ec '
    folder=$1 tree=$2; shift 2
    mount -t tmpfs tree "$folder"
    root=$folder/root
    mkdir "$root"
    mount --bind / "$root"
    # Not of the whole root folder: layers must not be inside of each other.
    for part in usr etc var; do
      mkdir -p "$folder/upper/$part" "$folder/work/$part" "$tree/$part"
      mount -t overlay overlay -o "lowerdir=$tree/$part:/$part,upperdir=$folder/upper/$part,workdir=$folder/work/$part" "$root/$part"
    done
    for mount in /proc /sys /dev; do mount --rbind $mount "$root$mount"; done
    for mount in "$@"; do mount --bind "$mount" "$root$mount"; done
    mount -t tmpfs run "$root/run"
    mkdir -p "$root/run/pluto" "$root/var/lib/ipsec/nss"
    exec chroot "$root" sleep infinity' tree "$folder" "$LIBRESWAN_ROOT/${release[$1]}" /tmp "$root" "$work" \
    >"$dir/$1.tree" 2>&1 &
  holder[$1]=$!
  pids+=($!)
  within 20 at "$1" test -d /run/pluto 2>/dev/null || { cat "$dir/$1.tree"; return 1; }
}
# at END COMMAND...: runs it on its root folder, in its network namespace.
at() { enter "$1"; "${enter[@]}" "${@:2}"; }
enter() { enter=(nsenter -t "${holder[$1]}" -m -n -r --wd=/ env SEALANE_RUNTIME_DIR="$dir/run-$1"); }
# under END COMMAND...: the same under Sealane.
under() { at "$1" "$sealane" run -- "${@:2}"; }
ipsec() { at "$1" timeout 60 ipsec "${@:2}"; }
whack() { at "$1" timeout 60 ipsec whack "${@:2}"; }

# swan_config END LINES: its ipsec.conf, with a connection `net` of these lines.
swan_config() {
  cat >"$dir/$1.conf" <<CONF
config setup
  logfile=$dir/$1.log
  logtime=no
  uniqueids=no

conn net
  authby=secret
  ikev2=insist
  ike=aes128-sha256-modp2048
  retransmit-timeout=10s
  ${2//;/$'\n'  }
CONF
  echo ": PSK $psk" >"$dir/$1.secrets"
  at "$1" cp "$dir/$1.conf" /etc/ipsec.conf
  at "$1" cp "$dir/$1.secrets" /etc/ipsec.secrets
}
# pluto END: starts it as its unit does.
pluto() {
  : >"$dir/$1.log"
  at "$1" ipsec checknss >"$dir/$1.nss" 2>&1 || { cat "$dir/$1.nss"; return 1; }
  under "$1" /usr/libexec/ipsec/_stackmanager start --xfrm >"$dir/$1.stack" 2>&1 || { cat "$dir/$1.stack"; return 1; }
  enter "$1"
  "${enter[@]}" "$sealane" run -- /usr/libexec/ipsec/pluto --config /etc/ipsec.conf --nofork >"$dir/$1.out" 2>&1 &
  pids+=($!)
  declare -g "pluto_$1=$!"
  within 30 listens "$1" || { cat "$dir/$1.out" "$dir/$1.log"; return 1; }
}
# kill_pluto END: kills it itself, not its launcher.
kill_pluto() {
  local pid=pluto_$1
  kill -KILL "$(at "$1" cat /run/pluto/pluto.pid)"
  { wait "${!pid}" || true; } 2>/dev/null
}
listens() { whack "$1" --status >"$dir/$1.status" 2>&1 && grep -q 'interface.*10\.80\.0\.' "$dir/$1.status"; }
# conn END LINES: loads the connection `net` of these lines.
conn() {
  swan_config "$1" "$2"
  ipsec "$1" auto --replace net >"$dir/$1.add" 2>&1 || { cat "$dir/$1.add"; return 1; }
  # It succeeds without a connection, too.
  whack "$1" --status >"$dir/$1.status" 2>&1
  grep -q '"net":' "$dir/$1.status" || { cat "$dir/$1.add"; tail -n 3 "$dir/$1.log"; return 1; }
}
up() { quietly ipsec "$1" auto --up net; }
down() { quietly ipsec "$1" auto --down net; }
# spis END: the SPIs of its states, in order.
spis() { xfrm "$1" state | sed -nE 's/.*spi (0x[0-9a-f]+).*/\1/p' | sort | xargs; }
