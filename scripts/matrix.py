#!/usr/bin/env python3
"""Writes MATRIX.md: every call of AF_ALG's ABI, whether the preloaded library and the seccomp path serve it, and which programs
use it. The built library's symbols and the supervisor's source say what is served. --check fails when MATRIX.md is stale."""

import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
SHIM = pathlib.Path(os.environ.get("SEALANE", str(ROOT / "target/release/sealane"))).with_name("libsealane_shim.so")

# Call, its other C entry points, the programs that use it on AF_ALG descriptors.
CALLS = [
    ("socket", [], "all"),
    ("bind", [], "all"),
    ("setsockopt", [], "all that set a key or an authentication size"),
    ("getsockopt", [], "CPython (SO_TYPE, SO_DOMAIN)"),
    ("accept", ["accept4"], "all"),
    ("getsockname", [], "CPython, libkcapi (NETLINK_CRYPTO)"),
    ("getpeername", [], ""),
    ("listen", [], ""),
    ("connect", [], ""),
    ("shutdown", [], ""),
    ("send", [], "CPython, libkcapi"),
    ("sendto", [], "libkcapi (NETLINK_CRYPTO)"),
    ("sendmsg", [], "CPython, libkcapi, cryptsetup, afalg engine, iwd"),
    ("sendmmsg", [], ""),
    ("recv", ["__recv_chk"], "CPython, libkcapi"),
    ("recvfrom", ["__recvfrom_chk"], ""),
    ("recvmsg", [], "libkcapi"),
    ("recvmmsg", [], ""),
    ("read", ["__read_chk"], "cryptsetup, afalg engine, iwd, strongSwan"),
    ("write", [], "strongSwan, iwd"),
    ("readv", [], ""),
    ("writev", [], "libkcapi"),
    ("pread64", ["pread", "__pread_chk", "__pread64_chk"], ""),
    ("pwrite64", ["pwrite"], ""),
    ("preadv", ["preadv64"], ""),
    ("pwritev", ["pwritev64"], ""),
    ("preadv2", ["preadv64v2"], ""),
    ("pwritev2", ["pwritev64v2"], ""),
    ("vmsplice", [], "libkcapi, afalg engine (native: the pipe is the kernel's)"),
    ("splice", [], "libkcapi, afalg engine"),
    ("tee", [], "(native: both ends are pipes)"),
    ("sendfile", ["sendfile64"], "libkcapi's fuzzers, CPython (os.sendfile)"),
    ("io_setup", [], "libkcapi, afalg engine (native: the context is the kernel's)"),
    ("io_submit", [], "libkcapi, afalg engine"),
    ("io_getevents", ["io_pgetevents"], "libkcapi, afalg engine"),
    ("io_destroy", [], "libkcapi, afalg engine"),
    ("close", ["close_range", "closefrom", "fclose"], "all"),
    ("dup", ["dup2", "dup3"], "CPython"),
    ("fcntl", ["fcntl64"], "CPython"),
    ("ioctl", [], ""),
    ("poll", ["ppoll", "__poll_chk", "__ppoll_chk"], "CPython (time-outs)"),
    ("select", ["pselect"], ""),
    ("epoll_ctl", [], "event loops"),
    ("fork", ["vfork"], "daemons (inherited by the process record, pthread_atfork)"),
    ("execve", [], "(not inherited: ALG-11)"),
    ("open of /proc/crypto", ["open", "open64", "openat", "openat64", "__open_2", "__open64_2", "__openat_2",
                             "__openat64_2", "fopen", "fopen64"], "libkcapi"),
    ("add_key", [], "ALG_SET_KEY_BY_KEY_SERIAL (logon keys)"),
    ("setresuid", ["setuid", "seteuid", "setreuid", "setresgid", "setgid", "setegid", "setregid", "setfsuid", "setfsgid",
                  "setgroups", "initgroups", "capset", "chroot", "prctl", "setns", "unshare"],
     "daemons that drop privileges (the process gets memory of its own: ALG-37)"),
    ("syscall()", ["syscall"], "libkcapi and afalg engine (AIO), CPython's ctypes"),
    ("io_uring_enter", [], "(not served: ALG-26)"),
]
# The stand-in is a socket, so positioned reads fail as they do in the kernel; pipes and AIO contexts are the kernel's.
NATIVE = {"vmsplice", "tee", "io_setup", "pread64", "pwrite64", "preadv", "pwritev"}
# C functions whose system call has another name.
SYSTEM_CALL = {"send": "sendto", "recv": "recvfrom"}
# Functions that the library replaces for another reason than a call on a socket (ALG-52), and those that look for a file of
# IPsec's.
OTHERS = {"dl_iterate_phdr", "stat", "stat64", "lstat", "lstat64", "fstatat", "fstatat64", "statx"}
OTHERS |= {"access", "eaccess", "euidaccess", "faccessat"}


def shim_symbols():
    out = subprocess.run(["nm", "-D", "--defined-only", str(SHIM)], stdout=subprocess.PIPE, check=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if " T " in line}


def seccomp_calls():
    served = set()
    for path in ("crates/host/launch/src/serve/calls.rs", "crates/host/sys/src/seccomp.rs"):
        served |= set(re.findall(r"libc::SYS_([a-z0-9_]+)", (ROOT / path).read_text()))
    return served


def main():
    shim, seccomp = shim_symbols(), seccomp_calls()
    lines = [
        "# AF_ALG, call by call",
        "",
        "This page lists the system calls that programs use on AF_ALG sockets, and how Sealane serves each. `scripts/matrix.py` makes it;",
        "do not edit it. The ids, such as ALG-11, are rows of [LIMITATIONS.md](LIMITATIONS.md#af_alg).",
        "",
        "| column | meaning |",
        "|---|---|",
        "| preload | for dynamic programs: the functions of the C library that the preloaded library replaces |",
        "| seccomp | for static and Go programs: the system calls that the launcher serves |",
        "| used by | programs that are known to make the call |",
        "",
        "*native*: the kernel's own call already does what is needed. *no*: the call is not served.",
        "",
        "| call | preload | seccomp | used by |",
        "|---|---|---|---|",
    ]
    known = set()
    for call, others, users in CALLS:
        names = [n for n in [call, *others] if n in shim]
        known |= set(names)
        if call in NATIVE:
            preload = watched = "native"
        else:
            preload = ", ".join(f"`{n}`" for n in names) or ("native" if call in ("fork",) else "no")
            watched = ", ".join(f"`{n}`" for n in [SYSTEM_CALL.get(call, call), *others] if n in seccomp)
            watched = watched or ("native" if call in ("fork", "close", "poll", "select", "epoll_ctl") else "no")
        lines.append(f"| {call} | {preload} | {watched} | {users} |")
    rest = sorted(n for n in shim - known - OTHERS if not n.startswith(("rust_", "_R", "__rust")))
    if rest:
        lines += ["", "Also exported by the library: " + ", ".join(f"`{n}`" for n in rest) + "."]
    text = "\n".join(lines) + "\n"
    target = ROOT / "MATRIX.md"
    if "--check" in sys.argv:
        if target.read_text() != text:
            print("FAIL MATRIX.md: stale, run scripts/matrix.py")
            return 1
        print("PASS MATRIX.md is what scripts/matrix.py makes")
        return 0
    target.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
