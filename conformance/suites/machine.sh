# Sourced by the suites that try a Debian of their own.

# become FOLDER COMMAND...: makes it the root of this mount namespace, where it is mounted, and runs the command there.
become() {
  # Not a chroot, in which nobody may make user namespaces.
  cd "$1"
  shift
  pivot_root . .
  umount --lazy .
  cd /
  /usr/bin/env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
}

# in_machine FOLDER SCRIPT: as root of the Debian that debian.sh has made there, as of a machine that ends with the
# script. It shares this machine's network.
in_machine() {
  unshare --mount --pid --fork --kill-child bash -ec "$(declare -f become)"'
    machine=$1
    mount --make-rprivate /
    mount --bind "$machine" "$machine"
    mount -t proc proc "$machine/proc"
    mount --rbind /sys "$machine/sys"
    mount --rbind /dev "$machine/dev"
    mount -t tmpfs run "$machine/run"
    mount -t tmpfs tmp "$machine/tmp"
    become "$machine" bash -c "$2"' in_machine "$1" "$2"
}
