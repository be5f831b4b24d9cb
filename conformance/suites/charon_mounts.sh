#!/usr/bin/env bash
# Runs a command in a mount namespace in which a charon of newer_charon.sh finds its plugins.
#
#   charon_mounts.sh FOLDER COMMAND...
#
# strongSwan looks for plugins in /usr/lib/ipsec, which may not be there to mount over: /usr/lib becomes a folder of
# links to what is in it, and to the plugins in FOLDER. As root.
set -euo pipefail
CHARON_MOUNTS=$(realpath "$1") exec unshare -m --propagation private bash -ec '
  new=$(mktemp -d)
  mount -t tmpfs lib "$new"
  mkdir "$new/machine"
  mount --rbind /usr/lib "$new/machine"
  (cd /usr/lib && find . -mindepth 1 -maxdepth 1 ! -name ipsec -printf "machine/%P\0") | xargs -0 ln -s -t "$new"
  ln -s "$CHARON_MOUNTS/usr/lib/ipsec" "$new/ipsec"
  mount --move "$new" /usr/lib
  rmdir "$new"
  exec "$@"' mounts "${@:2}"
