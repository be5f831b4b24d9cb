#!/usr/bin/env bash
# Unpacks the BGP speakers of Debian 12 (FRR, ExaBGP, OpenBGPD, GoBGP, BIRD) and StayRTR, with all that they need, into
# a folder to chroot into: SPEAKERS_ROOT of speakers.sh. It does nothing if they are there already.
#
#   speakers_root.sh FOLDER
#
# unpack.sh says what it needs.
set -euo pipefail
folder=$(realpath -m "${1:?FOLDER is missing}")
. "$(dirname "$0")/unpack.sh"
download bookworm base-files libc-bin frr exabgp openbgpd gobgpd bird2 stayrtr
# Packages of Debian 12 have files in both /lib and /usr/lib, which are one folder.
for part in bin sbin lib lib64; do
  mkdir -p "$folder/usr/$part"
  [[ -e $folder/$part ]] || ln -s "usr/$part" "$folder/$part"
done
for package in "$packages"/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x -C "$folder" --keep-directory-symlink
done
mkdir -p "$folder"/{proc,dev,run,tmp,etc}
# Scripts of the packages would make these users; here everything runs as root, and OpenBGPD gives its rights up.
cat >"$folder/etc/passwd" <<'PASSWD'
root:x:0:0:root:/root:/bin/sh
_openbgpd:x:6001:6001::/run/openbgpd:/bin/false
_bgpd:x:6001:6001::/run/openbgpd:/bin/false
frr:x:6002:6002::/run/frr:/bin/false
PASSWD
cat >"$folder/etc/group" <<'GROUP'
root:x:0:
_openbgpd:x:6001:
_bgpd:x:6001:
frr:x:6002:
frrvty:x:6003:
GROUP
echo '127.0.0.1 localhost' >"$folder/etc/hosts"
version=$(cd "$packages" && printf '%s ' {frr,exabgp,openbgpd,gobgpd,bird2,stayrtr}_*.deb)
finish "$version"
