#!/usr/bin/env bash
# The OCI image: two of the same build are equal, tools of others read it, and two containers of it, each with three
# capabilities, a read-only root and a network namespace of its own, have a tunnel by `ip xfrm`. A container that ends in
# any way sends nothing in clear, and the next one with the same volumes goes on with its policies. States with the same
# keys are then set once more, and go on with numbers that were never used.
#
# As root, with skopeo, umoci and crun: installed ones, or those of this Debian, unpacked in target/image-tools. Each check
# writes PASS or FAIL. Exit status: 0 all passed, 1 not, 77 could not try.
suite=image
. "$(dirname "$0")/common.sh"
lacks() { echo "SKIPPED image: $1"; exit 77; }
[[ $EUID -eq 0 ]] || lacks "only root may make network namespaces"
[[ -c /dev/net/tun ]] || lacks "no /dev/net/tun"
tools=$root/target/image-tools
tool() { env "LD_LIBRARY_PATH=$tools/usr/lib/$(uname -m)-linux-gnu" "PATH=$tools/usr/bin:$PATH" "$@"; }
if type -P skopeo umoci crun >/dev/null; then tool() { env "$@"; }; else
  # With the C library that this machine has.
  release=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  "$(dirname "$0")/unpack.sh" "$release" "$tools" crun skopeo umoci >/dev/null 2>&1 || lacks "no skopeo, umoci and crun, and none can be had"
fi
# No container needs a cgroup here. crun refuses a machine that has the hierarchies of both versions, though it uses none.
crun() {
  tool unshare --mount sh -c 'mount -t cgroup2 cgroup2 /sys/fs/cgroup; exec crun --root "$0" --cgroup-manager=disabled "$@"' "$dir/crun" "$@"
}
. "$(dirname "$0")/two_ends.sh"
. "$(dirname "$0")/ipsec_ends.sh"
ends_containers() { for end in a b; do crun delete --force "$name-$end" 2>/dev/null || true; done; cleanup; }
trap ends_containers EXIT

image=$root/target/image/sealane.tar
made() { "$root/scripts/image.sh" >"$dir/out" 2>&1 || { tail -n 20 "$dir/out"; return 1; }; }
check "the image is made" made
cp "$image" "$dir/first.tar"
check "and made again" made
check "equal, byte by byte" cmp "$image" "$dir/first.tar"
described() { tool skopeo inspect --config "oci-archive:$image" | has '"org.opencontainers.image.version": *"'; }
check "skopeo reads it" described
mkdir "$dir/layout"
tar -xf "$image" -C "$dir/layout"
version=$("$root/scripts/version.sh")
unpacked() { quietly tool umoci unpack --image "$dir/layout:$version" "$dir/bundle"; }
check "umoci unpacks it" unpacked
programs() {
  local others; others=$(find "$dir/bundle/rootfs" -type f -perm /111 -printf '%f\n' | grep -v '^\(sealane\|lib.*\.so.*\|ld-.*\)$' || true)
  [[ -z $others ]] || { echo "$others"; return 1; }
}
check "no program but sealane is in it" programs

# bundle END: that of a container in the network namespace of that end, with as few rights as the page says.
bundle() {
  mkdir -p "$dir/run-$1" "$dir/state-$1" "$dir/$1.bundle"
  chmod 700 "$dir/run-$1" "$dir/state-$1"
  python3 - "$dir" "$1" "/run/netns/$name-$1" <<'PY'
import json, sys
folder, end, netns = sys.argv[1:]
with open(f"{folder}/bundle/config.json") as file:
    config = json.load(file)
rights = ["CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_BPF"]
config["process"] |= {"terminal": False, "noNewPrivileges": True,
                      "capabilities": {kind: rights for kind in ("bounding", "effective", "permitted")}}
config["root"] = {"path": f"{folder}/bundle/rootfs", "readonly": True}
config["linux"].pop("resources", None)
config["hostname"] = f"sealane-{end}"
config["mounts"] = [mount for mount in config["mounts"] if mount["type"] != "cgroup"]
config["mounts"] += [{"destination": to, "type": "bind", "source": f"{folder}/{of}-{end}", "options": ["bind", "nosuid", "nodev", "noexec"]}
                     for to, of in (("/run/sealane", "run"), ("/var/lib/sealane", "state"))]
kinds = ("pid", "mount", "ipc", "uts")
config["linux"]["namespaces"] = [{"type": kind} for kind in kinds] + [{"type": "network", "path": netns}]
config["linux"]["devices"] = [{"path": "/dev/net/tun", "type": "c", "major": 10, "minor": 200, "fileMode": 0o600, "uid": 0, "gid": 0}]
for namespace_of_users in ("uidMappings", "gidMappings"):
    config["linux"].pop(namespace_of_users, None)
with open(f"{folder}/{end}.bundle/config.json", "w") as file:
    json.dump(config, file)
PY
}
start() { # END: starts its container, and waits for the daemon in it
  : >"$dir/$1.log"
  crun run --bundle "$dir/$1.bundle" "$name-$1" >"$dir/$1.log" 2>&1 8>&- 9>&- &
  pids+=($!)
  declare -g "run_$1=$!"
  within 30 grep -q 'IPsec' "$dir/$1.log"
}
# ended END SIGNAL: its container gets the signal, and is gone.
ended() {
  local run=run_$1
  crun kill "$name-$1" "$2"
  wait "${!run}" || true
  crun delete --force "$name-$1" 2>/dev/null || true
}
wire
for end in a b; do
  i=$([[ $end == a ]] && echo 1 || echo 2) o=$((3 - i))
  ip -n "$name-$end" addr add "10.82.$i.1/24" dev lo
  ip -n "$name-$end" route add "10.82.$o.0/24" via "10.80.0.$o" src "10.82.$i.1"
  bundle $end
done
watch_clear
for end in a b; do check "container $end starts" start $end; done
((!failed)) || exit "$failed"
rights() {
  local pid; pid=$(crun list --format json | python3 -c 'import json, sys; print(next(c["pid"] for c in json.load(sys.stdin) if c["id"] == sys.argv[1]))' "$name-a")
  local found; found=$(sed -nE 's/^Cap(Prm|Eff|Bnd|Inh|Amb):\t//p' "/proc/$pid/status" | sort -u | tr '\n' ' ')
  [[ $found == "0000000000000000 0000008000003000 " ]] || { echo "rights: $found"; return 1; }
}
check "with three capabilities" rights

states() { # END
  local i; i=$([[ $1 == a ]] && echo 1 || echo 2)
  local here=10.80.0.$i there=10.80.0.$((3 - i)) key=0x$(printf '%040d' 7) state="proto esp reqid 1 mode tunnel replay-window 128"
  xfrm "$1" state add src $here dst $there spi 0x100$i $state aead 'rfc4106(gcm(aes))' $key 128 &&
    xfrm "$1" state add src $there dst $here spi 0x100$((3 - i)) $state aead 'rfc4106(gcm(aes))' $key 128
}
policies() { # END
  local i; i=$([[ $1 == a ]] && echo 1 || echo 2)
  local here=10.80.0.$i there=10.80.0.$((3 - i)) inside=10.82.$i.0/24 outside=10.82.$((3 - i)).0/24 by="proto esp reqid 1 mode tunnel"
  xfrm "$1" policy add src $inside dst $outside dir out tmpl src $here dst $there $by &&
    xfrm "$1" policy add src $outside dst $inside dir in tmpl src $there dst $here $by
}
for end in a b; do
  check "states by ip xfrm, end $end" states $end
  check "policies by ip xfrm, end $end" policies $end
done
check "packets pass" ping_a 20 0.02
inside() { crun exec "$name-a" /usr/bin/sealane "$@"; }
shown() { inside xfrm state | has 'proto esp spi 0x00001001'; }
check "sealane xfrm inside shows the states" shown
check "sealane run preloads the image's library" inside run --intercept preload -- /usr/bin/sealane --version
count() { xfrm a "$1" | grep -c '^src'; }
for signal in TERM KILL; do
  check "SIG$signal ends container a" ended a $signal
  check "meanwhile nothing passes" no_answer
  check "another one starts" start a
  has_policies() { [[ $(count policy) == 2 ]]; }
  check "with the policies of before" has_policies
  # A container's end is that of the process that keeps states.
  check "nothing passes without states" no_answer
  check "states are set again" states a
  check "packets pass again" within 20 reached
  check "none in clear" none_in_clear
done
exit "$failed"
