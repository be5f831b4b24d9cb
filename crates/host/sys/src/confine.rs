//! A seccomp filter for a process of ours that only serves sockets which it has, and files of a folder.
//!
//! It opens no socket, starts no program, and looks at no other process. What is not allowed fails with EPERM, as
//! `SystemCallErrorNumber=EPERM` of the daemon's unit has it.

use super::cbpf::Size::Word;
use super::cbpf::{NEXT, Program};
use super::seccomp::{ARCH, ARCH_AT, NR};
use libc::BPF_JEQ;
use rustix::process::DumpableBehavior;
use std::io;

/// Calls that stay allowed.
#[rustfmt::skip]
const ALLOWED: &[i64] = &[
    // Sockets that are there.
    libc::SYS_accept4, libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_sendmsg, libc::SYS_shutdown,
    libc::SYS_getsockopt, libc::SYS_ppoll, libc::SYS_eventfd2,
    // Files.
    libc::SYS_openat, libc::SYS_close, libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64,
    libc::SYS_pwrite64, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx, libc::SYS_fsync,
    libc::SYS_fdatasync, libc::SYS_renameat2, libc::SYS_unlinkat, libc::SYS_fcntl, libc::SYS_flock,
    libc::SYS_getdents64, libc::SYS_readlinkat,
    // Memory that is shared with a client, and a long message to the journal.
    libc::SYS_memfd_create, libc::SYS_ftruncate, libc::SYS_fallocate,
    // Memory.
    libc::SYS_brk, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_mprotect, libc::SYS_madvise,
    // Threads, signals and time.
    libc::SYS_futex, libc::SYS_sched_yield, libc::SYS_sched_getaffinity, libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn, libc::SYS_rt_sigtimedwait, libc::SYS_sigaltstack, libc::SYS_restart_syscall, libc::SYS_tgkill,
    libc::SYS_getpid, libc::SYS_gettid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid,
    libc::SYS_clock_gettime, libc::SYS_clock_nanosleep, libc::SYS_nanosleep, libc::SYS_gettimeofday, libc::SYS_getrandom,
    libc::SYS_rseq, libc::SYS_set_robust_list, libc::SYS_membarrier, libc::SYS_exit, libc::SYS_exit_group,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_open,
    libc::SYS_renameat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_stat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_lstat,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_rename,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_unlink,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_readlink,
];

/// The offset of the lower half of a call's argument in `struct seccomp_data`: an int, such as a level or an option's name.
const fn argument(number: u32) -> u32 {
    16 + 8 * number
}

/// Confines all threads of this process from now on: it gains no privileges, leaves no core dump, cannot be traced by its own
/// user, and makes no calls but those that serving needs.
///
/// # Errors
/// The kernel's, for example where it has no seccomp. The process is not to go on then.
pub fn confine() -> io::Result<()> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    rustix::thread::set_no_new_privs(true)?;
    let code = program();
    let program = libc::sock_fprog { len: code.len() as u16, filter: code.as_ptr().cast_mut() };
    let flags: libc::c_ulong = libc::SECCOMP_FILTER_FLAG_TSYNC;
    // SAFETY: a valid program, which the kernel copies.
    let r = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
    match r {
        0 => Ok(()),
        r if r > 0 => Err(io::Error::other("a thread has another filter")),
        _ => Err(io::Error::last_os_error()),
    }
}

fn program() -> Vec<libc::sock_filter> {
    let mut c = Program::new();
    c.load(Word, ARCH_AT).jump(BPF_JEQ, ARCH, NEXT, "kill");
    c.load(Word, NR);
    for &nr in ALLOWED {
        c.jump(BPF_JEQ, nr as u32, "allow", NEXT);
    }
    // Of the options of sockets only room for long packets is set.
    c.jump(BPF_JEQ, libc::SYS_setsockopt as u32, NEXT, "refuse");
    c.load(Word, argument(1)).jump(BPF_JEQ, libc::SOL_SOCKET as u32, NEXT, "refuse");
    c.load(Word, argument(2)).jump(BPF_JEQ, libc::SO_SNDBUF as u32, "allow", NEXT);
    c.label("refuse");
    c.ret(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32);
    c.label("kill").ret(libc::SECCOMP_RET_KILL_PROCESS);
    c.label("allow").ret(libc::SECCOMP_RET_ALLOW);
    c.assemble()
}
