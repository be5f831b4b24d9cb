# Sourced by the suites of systemd, after two_ends.sh: systemd as init of a container, with namespaces of its own, this
# machine's root under an overlay, and the network namespace of end a. etc/sealane.service is in it, unchanged but for
# the destination of its messages. A suite that sets `base` has the root of a Debian there in the place of this
# machine's, and Sealane as it is installed in it. If the machine lacks something, the suite ends with a SKIPPED line
# and status 77.
base=${base:-/}
lacks() { echo "SKIPPED $suite: $1"; exit 77; }
[[ -x $base/lib/systemd/systemd ]] || lacks "no $base/lib/systemd/systemd"
groups=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
[[ -n $groups ]] || lacks "no unified cgroup hierarchy"
mkdir "$groups/$name" 2>/dev/null || lacks "no cgroup can be made"
trap 'rmdir "$groups/$name"; cleanup' EXIT
unshare -m sh -ec 'mount -t tmpfs tmpfs "$1"; mkdir "$1/u" "$1/w" "$1/n"
  mount -t overlay overlay -o "lowerdir=$2,upperdir=$1/u,workdir=$1/w" "$1/n"' sh "$dir" "$base" 2>/dev/null ||
  lacks "no overlay of $base can be mounted"

# Everything that is written in the container stays in memory, except for this folder, which has the same path in it.
mkdir "$dir/root"
cat >"$dir/init" <<'SH'
set -e
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$1/root"
mkdir "$1"/root/{upper,work,new}
mount -t overlay overlay -o "lowerdir=$5,upperdir=$1/root/upper,workdir=$1/root/work" "$1/root/new"
cd "$1/root/new"
mount --rbind /dev dev
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mkdir run/before
for folder in "$1" ${4:+"$4"}; do
  mkdir -p ".$folder"
  mount --bind "$folder" ".$folder"
done
# strongSwan looks for its plugins here.
[[ -z $4 ]] || ln -sfn "$4/usr/lib/ipsec" usr/lib/ipsec
units=etc/systemd/system
if [[ $5 == / ]]; then
  install -D "$2" usr/local/bin/sealane
  install -D "$(dirname "$2")/libsealane_shim.so" usr/local/lib/sealane/libsealane_shim.so
  install -D -m 600 "$1/a.toml" etc/sealane/sealane.toml
  install -D -m 644 "$3" "$units/sealane.service"
fi
cp -r "$1/units/." "$units/"
mkdir -p "$units/sealane.service.d"
printf '[Service]\nStandardOutput=append:/sealane.log\nStandardError=append:/sealane.log\n' >"$units/sealane.service.d/log.conf"
printf '[Unit]\nDefaultDependencies=no\n' >"$units/suite.target"
# Debian 13 has a /tmp in memory, which would hide the folder.
ln -sfn /dev/null "$units/tmp.mount"
pivot_root . run/before
umount -l /run/before
# As systemd's own containers have it: a service's credentials are mounted by a child of systemd's, and arrive that way.
mount --make-rshared /
exec env -i container=suite PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
  /lib/systemd/systemd --system --unit=suite.target --log-target=console --show-status=0
SH

ends_container() {
  kill -KILL "$container" 2>/dev/null || true
  cleanup 2>/dev/null
  sleep 0.5
  find "$groups/$name" -depth -type d -exec rmdir {} \; 2>/dev/null || true
}
# container: starts it, with the units in the folder `units`. The configuration of the daemon is a.toml.
container() {
  mkdir -p "$dir/units"
  # The container's init is the only child that there ever is of the process that starts it.
  local executable
  executable=$(realpath "$sealane")
  (
    echo "$BASHPID" >"$groups/$name/cgroup.procs"
    exec ip netns exec "$name-a" unshare --pid --fork --mount --uts --ipc --cgroup --kill-child \
      bash "$dir/init" "$dir" "$executable" "$root/etc/sealane.service" "${CHARON_ROOT:-}" "$base"
  ) >"$dir/a.log" 2>&1 &
  container=$!
  pids+=("$container")
  trap ends_container EXIT
  within 10 pgrep -P "$container" >"$dir/out" || true
  init=$(cat "$dir/out")
  check "systemd runs" within 20 up
}
inside() { nsenter -t "$init" -m -u -i -n -p -C env PATH="$PATH:/usr/local/bin" "$@"; }
up() { inside systemctl is-active suite.target >"$dir/out" 2>&1; }
log() { inside cat /sealane.log; }
said() { [[ $(log | grep -c "$1") -ge $2 ]]; }
# reload [FILE]: reloads the service with that configuration.
reload() { inside install -m 600 "$dir/$1" /etc/sealane/sealane.toml && inside systemctl reload sealane; }
main() { inside systemctl show -p MainPID --value sealane; }

# Checks of the sandbox, from the mount namespace of the service.
service() { inside nsenter -t "$(main)" -m "$@"; }
confined() { ! service touch /etc/it /usr/it 2>/dev/null; }
no_tunables() { ! service sh -c 'cat /proc/sys/kernel/core_pattern >/proc/sys/kernel/core_pattern' 2>/dev/null; }
# Root's programs listen at sockets of the file system, systemd among them, and do what root asks for.
no_sockets() {
  local found
  inside test -S /run/systemd/private || { echo "nothing to reach"; return 1; }
  found=$(service find / -xdev -type s 2>/dev/null; service find /run /var -type s 2>/dev/null)
  found=$(sort -u <<<"$found" | grep -vE '^/run/(sealane/|systemd/(notify$|journal/))' || true)
  [[ -z $found ]] || { echo "can be reached: $found"; return 1; }
}
few_rights() {
  local rights
  rights=$(inside sed -nE 's/^Cap(Prm|Eff|Bnd|Inh|Amb):\t//p' "/proc/$(main)/status" | sort -u | tr '\n' ' ')
  # CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
  [[ $rights == "0000000000000000 0000008000003000 " ]] || { echo "rights: $rights"; return 1; }
}
no_swap() {
  local file; file=/sys/fs/cgroup$(inside systemctl show -p ControlGroup --value sealane)/memory.swap.max
  # Without the controller of memory in this container, systemd only knows what it would set.
  if inside test -e "$file"; then [[ $(inside cat "$file") == 0 ]]; else
    [[ $(inside systemctl show -p MemorySwapMax --value sealane) == 0 ]]; fi
}
sandboxed() {
  check "the unit can write to neither /etc nor /usr" confined
  check "nor to /proc/sys" no_tunables
  check "it reaches no socket of a program of root's" no_sockets
  check "it has three capabilities" few_rights
  check "systemd does not swap it out" no_swap
  if inside grep -q '^Max locked memory *unlimited *unlimited' "/proc/$(main)/limits"; then
    check "its memory is locked" inside grep -Eq '^VmLck:\s+[1-9][0-9]{3,} kB' "/proc/$(main)/status"
  else
    echo "SKIPPED locked memory: systemd may not raise the limit here (CAP_SYS_RESOURCE)"
  fi
}
