#!/bin/sh
# Whether the package may be removed; if not, it says why and what to do, and its status is 1. Packages of every format
# ask it first: commands alone take protection away, never a package that goes.

# A daemon or launcher that runs, the policies, and the peers of TCP-AO, in every network namespace.
in_force=$(find /run/sealane -name '*.sock' -o -name 'xfrm.*' -o -name 'tcp-ao.*.json' 2>/dev/null) || true
if [ -n "$in_force" ]; then
    cat >&2 <<'END'
sealane: it protects traffic of this machine, so that it cannot be removed. To give the protection up:
  systemctl disable --now sealane   # from here on what policies cover, and peers of TCP-AO, are cut off
  sealane xfrm clear                # from here on what policies covered passes unencrypted
  sealane tcp-ao clear              # from here on segments of the peers pass unsigned
The last two are for one network namespace: -n NAME and --netns NAME clear others. A reboot does the same for all.
END
    exit 1
fi
units=$(grep -ls '^ExecStart=.*/usr/bin/sealane run ' /etc/systemd/system/*.service /etc/systemd/system/*.service.d/*.conf) || true
if [ -n "$units" ]; then
    echo "sealane: units run under it, so that it cannot be removed. First 'sealane adopt --undo UNIT', or change these:" >&2
    echo "$units" | sed 's/^/  /' >&2
    exit 1
fi
