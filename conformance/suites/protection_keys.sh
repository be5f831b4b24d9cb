#!/usr/bin/env bash
# Guarded memory on machines with and without protection keys, under the kernels of Debian 12, its backports, 13 and the coming one:
# the attacks on a key (their matrix is printed), the memory's own tests, and every driver behind a protection key.
#
#   protection_keys.sh [MACHINE...]     all of them, or those named, such as linux-6.1
#
# QEMU emulates the machines, without KVM. It and the kernels are Debian's packages, unpacked in $SEALANE_SUITES (800 MB) and not
# installed. Builds what `make test` builds. As root, with apt. Each check writes PASS or FAIL. Exit status: 0 all passed, 1 not,
# 77 could not try.
. "$(dirname "$0")/common.sh"
lacks() { echo "SKIPPED protection_keys: $1"; exit 77; }
[[ $EUID -eq 0 ]] || lacks "only root may unpack Debian's packages"
# Everything has been built already, where this is set.
[[ -v SEALANE_BUILT ]] || "$root/scripts/test.sh" --build >&2 || exit 2

unpacked() { # RELEASE FOLDER PACKAGE...
  local why; why=$("$root/conformance/suites/unpack.sh" "$@" 2>&1) || lacks "$3 of $1 could not be unpacked: ${why##*$'\n'}"
}
# QEMU 7.2, of Debian 12, spoils the flags at cmpxchg16b, of which kernels panic.
emulator=$work/emulator
unpacked trixie "$emulator" qemu-system-x86 busybox-static
lib=$(echo "$emulator"/usr/lib/*-linux-gnu)
# The loader and the C library are newer than this system's, too.
qemu=("$lib"/ld-linux*.so.* --library-path "$lib" "$emulator/usr/bin/qemu-system-x86_64"
  -L "$emulator/usr/share/seabios" -L "$emulator/usr/share/qemu" -machine pc -accel tcg,thread=multi -smp 2 -m 2048
  -nodefaults -no-user-config -no-reboot -display none -monitor none -serial stdio)

dir=$(mktemp -d "$work/protection_keys.XXXXXX")
trap 'rm -rf --one-file-system "$dir"' EXIT
inside=$dir/root
mkdir -p "$inside"/{bin,dev,lib64,proc,tmp}
cp "$emulator/usr/bin/busybox" "$inside/bin/"
# put FILE NAME: a program, and the libraries that it needs where it looks for them.
put() {
  cp "$1" "$inside/bin/$2"
  local library
  while read -r library; do
    mkdir -p "$inside${library%/*}"
    cp -L "$library" "$inside$library"
  done < <(ldd "$1" | grep -o '/[^ ]*')
}
put "$(type -P chroot)" chroot-as
for test in crypto/guarded/tests/attacks.rs crypto/guarded/tests/guarded.rs crypto/drivers/tests/guarded.rs; do
  executable=$(grep "/crates/$test\"" "$root/target/checked/tests.json" | grep -o '"executable":"[^"]*"' | cut -d'"' -f4)
  [[ -x $executable ]] || { echo "$test is not built" >&2; exit 2; }
  put "$executable" "$(cut -d/ -f2 <<<"$test")-$(basename "$test" .rs)"
done
cat >"$inside/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t devtmpfs dev /dev
exec </dev/null >/dev/ttyS0 2>&1
chmod 1777 /tmp
cd /tmp
run() { # NAME COMMAND...
  echo "BEGIN $1"
  name=$1
  shift
  "$@"
  echo "END $name: $?"
}
user='chroot-as --userspec=1000:1000 --groups= /'
run 'attacks as root' guarded-attacks --nocapture
run 'attacks as a user' $user guarded-attacks --nocapture
run 'its own tests as root' guarded-guarded
run 'its own tests as a user' $user guarded-guarded
! grep -qw ospke /proc/cpuinfo || run 'every driver behind a protection key' env SEALANE_TEST_LOCK=protection-key drivers-guarded
poweroff -f
INIT
chmod 755 "$inside/init"
(cd "$inside" && find . | bin/busybox cpio -o -H newc 2>"$dir/cpio.log") >"$dir/initrd" || { cat "$dir/cpio.log"; exit 2; }

failed=0
check() { # WHAT COMMAND...
  if "${@:2}"; then echo "PASS $1"; else echo "FAIL $1"; failed=1; fi
}
# part WHAT: what the machine's log has of it.
part() { sed -n "/^BEGIN $1\$/,/^END $1: /p" "$dir/log"; }
passed() {
  local said; said=$(part "$1")
  grep -qx "END $1: 0" <<<"$said" || { tail -n 30 <<<"${said:-$(<"$dir/log")}"; return 1; }
}
# matrix WHO EXPECTED: prints it. Guarded memory keeps the key from ten attacks, except from those EXPECTED.
matrix() {
  local rows leaks; rows=$(part "attacks as $1" | grep ' Guarded: ' | awk '!seen[$0]++')
  echo "$rows"
  leaks=$(sed -n 's/ *Process: .* Guarded: Leaks *$//p' <<<"$rows" | paste -sd, -)
  [[ $leaks == "$2" && $(grep -c ' Guarded: \(Holds\|Leaks\)' <<<"$rows") == 10 ]] || { echo "these get the key: $leaks; expected: $2"; return 1; }
}

wanted=" $* "
# machine NAME RELEASE CPU WORDS LEAKS: that Debian's kernel, such words on its command line, and the attacks that get the key.
machine() {
  [[ $wanted == '  ' || $wanted == *" $1 "* ]] || return 0
  unpacked "$2" "$work/kernel-$2" linux-image-cloud-amd64
  local image; image=$(find "$work/kernel-$2/usr/lib/modules" "$work/kernel-$2/boot" -name 'vmlinuz*' -print -quit)
  echo "$1: Linux $(<"$work/kernel-$2/version") of $2, CPU $3, command line: $4"
  # A machine that panics ends, too.
  timeout 600 "${qemu[@]}" -cpu "$3" -kernel "$image" -initrd "$dir/initrd" \
    -append "console=ttyS0 loglevel=1 panic=-1 mitigations=off random.trust_cpu=on $4" </dev/null 2>&1 | tr -d '\r' >"$dir/log" || true
  for who in root 'a user'; do
    check "$1: attacks as $who" passed "attacks as $who"
    check "$1: what they get" matrix "$who" "$5"
    check "$1: its own tests as $who" passed "its own tests as $who"
  done
  [[ $3 != max ]] || check "$1: every driver behind a protection key" passed 'every driver behind a protection key'
}
machine linux-6.1 bookworm max secretmem.enable=1 ''
machine linux-6.12 trixie max '' ''
# The last one that counts memory of memfd_secret as it is mapped, and not as it is used.
machine linux-6.12-backports bookworm-backports max '' ''
machine linux-7.2 forky max '' ''
machine no-protection-key trixie max,-pku '' 'write,over-read'
machine no-memfd_secret trixie max secretmem.enable=0 '/proc/self/mem,process_vm_readv,ptrace'
machine neither trixie max,-pku secretmem.enable=0 '/proc/self/mem,write,vmsplice,process_vm_readv,ptrace,over-read'
exit "$failed"
