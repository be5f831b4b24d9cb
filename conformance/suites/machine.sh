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

# devices FOLDER: mounts a /dev there, with terminals of its own.
devices() {
  mount -t tmpfs -o mode=755 dev "$1"
  mkdir "$1/pts" "$1/shm"
  cp -a /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty "$1/"
  mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts "$1/pts"
  ln -s pts/ptmx "$1/ptmx"
  ln -s /proc/self/fd "$1/fd"
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
