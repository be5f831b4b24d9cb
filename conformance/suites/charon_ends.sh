# Sourced by the suites of strongSwan, after `suite` is set: charon and swanctl, and two ends that run them over a
# daemon each. CHARON_ROOT is a folder into which newer_charon.sh unpacks both when they are not there yet (default
# target/charon). With an empty CHARON_ROOT the installed ones are used: Debian's charon-systemd, strongswan-swanctl and
# libstrongswan-standard-plugins. If the machine lacks something, the suite ends with a SKIPPED line and status 77.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
CHARON_ROOT=${CHARON_ROOT-$root/target/charon}

lacks() { echo "SKIPPED $suite: $1"; exit 77; }
[[ $EUID -eq 0 ]] || lacks "only root may make network namespaces"
for program in ping nft python3 unshare pkill; do
  command -v "$program" >/dev/null || lacks "no $program here"
done
why=$(unshare -nm sh -ec 'ip tuntap add tap mode tap
  nft "add table netdev t; add chain netdev t c { type filter hook egress device \"tap\" priority 0; }"' 2>&1) ||
  lacks "no network namespace with a tap and an egress hook of nftables can be made: ${why##*$'\n'}"
[[ -x $sealane ]] || { echo "$suite: no $sealane" >&2; exit 2; }

charon=(charon-systemd) swanctl=(swanctl)
if [[ -n $CHARON_ROOT ]]; then
  why=$("$(dirname "${BASH_SOURCE[0]}")/newer_charon.sh" "$CHARON_ROOT" 2>&1) ||
    lacks "strongSwan of Debian 13 could not be unpacked: ${why%%$'\n'*}"
  CHARON_ROOT=$(realpath "$CHARON_ROOT")
  version=$(<"$CHARON_ROOT/version")
  lib=$(echo "$CHARON_ROOT"/usr/lib/*-linux-gnu*)
  # The loader and the C library are newer than this system's, too.
  launch=("$(echo "$lib"/ld-linux*.so.*)" --library-path "$lib:/usr/lib/ipsec")
  charon=("${launch[@]}" "$CHARON_ROOT/usr/sbin/charon-systemd") swanctl=("${launch[@]}" "$CHARON_ROOT/usr/sbin/swanctl")
else
  version=$(dpkg-query -W -f '${Version}' charon-systemd 2>/dev/null) || lacks "no charon-systemd is installed"
fi
# The rest runs in its own mount namespace, with the plugins that were unpacked.
if [[ -n $CHARON_ROOT && ${CHARON_MOUNTS:-} != "$CHARON_ROOT" ]]; then
  exec "$(dirname "${BASH_SOURCE[0]}")/charon_mounts.sh" "$CHARON_ROOT" "$0" "$@"
fi
. "$(dirname "${BASH_SOURCE[0]}")/two_ends.sh"
. "$(dirname "${BASH_SOURCE[0]}")/ipsec_ends.sh"
echo "charon $version"

# wire_networks: the wire, and behind each end a network, 10.82.1.0/24 and 10.82.2.0/24.
wire_networks() {
  wire
  ip -n "$name-a" addr add 10.82.1.1/24 dev lo; ip -n "$name-b" addr add 10.82.2.1/24 dev lo
}

# config END LOCAL REMOTE LOCAL-NET REMOTE-NET CONNECTION-LINES CHILD-LINES: strongswan.conf and swanctl.conf of an end.
# `more_plugins` are loaded as well.
config() {
  local end=$1
  cat >"$dir/$end.strongswan" <<CONF
charon-systemd {
  load_modular = no
  load = random nonce openssl aes sha1 sha2 hmac kdf gmp drbg kernel-netlink socket-default vici updown ${more_plugins:-}
  filelog { log { path = $dir/$end.log
      flush_line = yes
      default = 1
      knl = 2 } }
  syslog { daemon { default = -1 }
    auth { default = -1 } }
  plugins { vici { socket = unix://$dir/$end.vici }
    openssl { load_legacy = no } }
  retransmit_timeout = 1.0
  retransmit_tries = 3
  delete_rekeyed_delay = 3
}
CONF
  # Proposals of ESP are up to the kernel.
  cat >"$dir/$end.swanctl" <<CONF
connections { net {
    version = 2
    local_addrs = $2
    remote_addrs = $3
    proposals = aes128-sha256-modp2048
    $6
    local { auth = psk
      id = $end.example }
    remote { auth = psk }
    children { net {
        local_ts = $4
        remote_ts = $5
        esp_proposals = aes128gcm128
        $7
      } } } }
secrets { ike { secret = "what both know" } }
CONF
}

charon() { # END
  rm -f "$dir/$1.vici"
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir SEALANE_RUNTIME_DIR=$dir/run-$1 \
    ip netns exec "$name-$1" "$sealane" run -- "${charon[@]}" >"$dir/$1.out" 2>&1 &
  pids+=($!)
  declare -g "charon_$1=$!"
  within 30 test -S "$dir/$1.vici" || { cat "$dir/$1.out"; return 1; }
  load "$1"
}
load() { swan "$1" --load-all --clear --file "$dir/$1.swanctl" >"$dir/load-$1" 2>&1 || { cat "$dir/load-$1"; return 1; }; }
last_descendant() { # PROCESS
  local process=$1 child
  while child=$(pgrep -o -P "$process"); do process=$child; done
  echo "$process"
}

end() { # daemon or charon, END [SIGNAL]
  local pid=$1_$2 signal=${3:-TERM}
  # A launcher forwards all signals but this one, which is for the program: below it, and below its guard if it has one.
  if [[ $1$signal == charonKILL ]]; then kill -KILL "$(last_descendant "${!pid}")"; else kill "-$signal" "${!pid}"; fi
  { wait "${!pid}" || true; } 2>/dev/null
}

swan() { # END ARGUMENTS...
  STRONGSWAN_CONF=$dir/$1.strongswan SWANCTL_DIR=$dir timeout 60 "${swanctl[@]}" "${@:2}" --uri "unix://$dir/$1.vici" \
    2> >(grep -v 'failed to load' >&2)
}
initiate() { quietly swan "$1" --initiate --child net; }
terminate() { quietly swan "$1" --terminate --ike net; }
sas() { swan "$1" --list-sas 2>/dev/null; }
says() { sas "$1" | has "$2"; }
installed() { says "$1" INSTALLED; }
gone() { ! installed "$1"; }
empty() { [[ -z $(xfrm "$1" state) ]]; }

# newest END child|ike: prints the number of the newest established SA of that end.
newest() {
  local line='^  net: #([0-9]+),.* INSTALLED,.*'
  [[ $2 == child ]] || line='^net: #([0-9]+), ESTABLISHED,.*'
  sas "$1" | sed -nE "s/$line/\\1/p" | sort -n | tail -n 1
}
newer() { [[ $(newest "$1" "$2") -gt $3 ]]; }
# rekey END child|ike ENDS...: END rekeys it; done when all ENDS have the new one and packets have passed by it.
rekey() {
  local e; local -A before
  for e in "${@:3}"; do before[$e]=$(newest "$e" "$2"); done
  quietly swan "$1" --rekey "--$2" net || return 1
  for e in "${@:3}"; do within 30 newer "$e" "$2" "${before[$e]}" || { sas "$e"; return 1; }; done
  quietly ping_a 20 0.01
}
