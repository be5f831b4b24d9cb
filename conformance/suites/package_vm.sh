#!/usr/bin/env bash
# The Debian package on a fresh Debian with its own kernel, in a virtual machine, as a new user would: esp4 and esp6 are
# blocked, AppArmor enforces, strongSwan is Debian's own.
#
#   package_vm.sh bookworm|trixie FILE.deb
#
# As root, with debootstrap, qemu-system-x86, e2fsprogs, Debian's mirror (DEBIAN_MIRROR) and 4 GB in SEALANE_SUITES. Without
# KVM (QEMU_ACCEL=kvm) it takes some five minutes on an idle machine. The fresh system is kept there for the next run.
# Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not, 2 could not try.
. "$(dirname "$0")/common.sh"
release=${1:?bookworm or trixie} deb=${2:?the package}
for program in debootstrap qemu-system-x86_64 mke2fs debugfs; do
  command -v "$program" >/dev/null || { echo "package_vm: no $program here" >&2; exit 2; }
done
fresh=$work/debian-$release
packages=systemd,systemd-sysv,dbus,udev,kmod,procps,iproute2,iputils-ping,nftables,apparmor,charon-systemd,strongswan-swanctl
if [[ ! -e $fresh/complete ]]; then
  rm -rf "$fresh"
  debootstrap --variant=minbase --include="$packages,linux-image-cloud-amd64,initramfs-tools" "$release" "$fresh" \
    "${DEBIAN_MIRROR:-http://deb.debian.org/debian}" >"$work/debootstrap.log" || { tail "$work/debootstrap.log"; exit 2; }
  touch "$fresh/complete"
fi
dir=$(mktemp -d "$work/package-vm.XXXXXX")
trap 'rm -rf "$dir"' EXIT

# inside.sh runs in the virtual machine, as a unit, and ends it.
mkdir "$dir/root"
cp "$deb" "$dir/root/sealane.deb"
cp "$(dirname "$0")/package_vm_inside.sh" "$dir/root/inside.sh"
system=$dir/system
cp -a "$fresh" "$system"
cp "$dir"/root/* "$system/root/"
printf 'install %s /bin/false\n' esp4 esp6 >"$system/etc/modprobe.d/no-esp.conf"
echo '/dev/vda / ext4 rw 0 1' >"$system/etc/fstab"
cat >"$system/etc/systemd/system/inside.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /root/inside.sh
ExecStopPost=/bin/systemctl poweroff
StandardOutput=append:/root/out
StandardError=append:/root/out
TimeoutStartSec=infinity
UNIT
mkdir -p "$system/etc/systemd/system/multi-user.target.wants"
ln -s ../inside.service "$system/etc/systemd/system/multi-user.target.wants/inside.service"
mke2fs -q -t ext4 -d "$system" "$dir/disk" 1200M >/dev/null
rm -rf "$system"
timeout 1200 qemu-system-x86_64 -accel "${QEMU_ACCEL:-tcg,thread=multi}" -cpu max -m 1536 -smp 2 -display none -serial stdio -monitor none \
  -no-reboot -nic none -kernel "$fresh"/boot/vmlinuz-* -initrd "$fresh"/boot/initrd.img-* \
  -append "root=/dev/vda rw console=ttyS0 quiet panic=-1 apparmor=1 security=apparmor systemd.mask=serial-getty@ttyS0.service" \
  -drive file="$dir/disk",if=virtio,format=raw,cache=unsafe </dev/null >"$dir/console" 2>&1 || { tail "$dir/console"; exit 2; }
debugfs -R "cat /root/out" "$dir/disk" 2>/dev/null | tee "$dir/out"
grep -aq '^the end$' "$dir/out" || { tail "$dir/console"; exit 2; }
! grep -aq '^FAIL' "$dir/out"
