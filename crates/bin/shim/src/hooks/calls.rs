//! `syscall(2)` itself, for programs that call by number, and vfork.

use super::{aio, creds, data, fds, keys, pipes, polls, sockets};
use crate::environment;
use crate::sys::{Real, raw, returned};
use crate::table;
use core::ffi::{c_char, c_int, c_long, c_uint};
use core::sync::atomic::AtomicU8;

macro_rules! numbers {
    ($($name:ident)*) => { [$(libc::$name),*] };
}

/// The calls that may concern us.
#[rustfmt::skip]
const WATCHED: &[i64] = &numbers![
    SYS_socket SYS_bind SYS_accept SYS_accept4 SYS_setsockopt SYS_getsockopt SYS_getsockname SYS_getpeername SYS_listen
    SYS_connect SYS_shutdown SYS_sendto SYS_sendmsg SYS_sendmmsg SYS_recvfrom SYS_recvmsg SYS_recvmmsg SYS_read SYS_write
    SYS_readv SYS_writev SYS_preadv2 SYS_pwritev2 SYS_close SYS_close_range SYS_dup SYS_dup3 SYS_fcntl SYS_ioctl SYS_splice
    SYS_vmsplice SYS_tee SYS_sendfile SYS_ppoll SYS_pselect6 SYS_epoll_ctl SYS_io_submit SYS_io_getevents
    SYS_io_destroy SYS_add_key SYS_keyctl SYS_setuid SYS_setreuid SYS_setresuid SYS_setgid SYS_setregid SYS_setresgid
    SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capset SYS_chroot SYS_setns SYS_unshare SYS_prctl SYS_seccomp
    SYS_landlock_restrict_self
];

/// `io_pgetevents`, which the libc crate does not have.
const SYS_IO_PGETEVENTS: i64 = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &numbers![SYS_dup2 SYS_poll SYS_select SYS_fork SYS_vfork];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

const NUMBERS: usize = 512;

/// One byte for each call number: whether it is watched.
static HOT: [AtomicU8; NUMBERS] = {
    let mut hot = [const { AtomicU8::new(0) }; NUMBERS];
    let mut i = 0;
    while i < WATCHED.len() {
        hot[WATCHED[i] as usize] = AtomicU8::new(1);
        i += 1;
    }
    hot[SYS_IO_PGETEVENTS as usize] = AtomicU8::new(1);
    i = 0;
    while i < OLD.len() {
        hot[OLD[i] as usize] = AtomicU8::new(1);
        i += 1;
    }
    hot
};

#[used]
#[unsafe(link_section = "sealane_real")]
static SYSCALL: Real = Real::new(c"syscall");
#[used]
#[unsafe(link_section = "sealane_real")]
static VFORK: Real = Real::new(c"vfork");

/// Finds libc's own functions before anybody needs them without a stack frame of ours, and takes from the environment what counts
/// as it was when the program began.
extern "C" fn start(_: c_int, _: *const *const c_char, environment: *const *const c_char) {
    Real::find_all();
    // SAFETY: glibc gives constructors main's arguments.
    unsafe { environment::take(environment) };
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn(c_int, *const *const c_char, *const *const c_char) = start;

/// `syscall(2)`. Calls that are not watched go to libc's with the caller's own frame: clone with a shared address space
/// returns twice and must not find ours on the stack.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    core::arch::naked_asm!(
        "cmp rdi, {numbers}",
        "jae 2f",
        "lea rax, [rip + {hot}]",
        "cmp byte ptr [rax + rdi], 0",
        "jne {served}",
        "2:",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "je {served}",
        "jmp rax",
        numbers = const NUMBERS,
        hot = sym HOT,
        real = sym SYSCALL,
        served = sym served,
    )
}

/// `syscall(2)`.
#[cfg(not(target_arch = "x86_64"))]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn syscall(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    if HOT.get(n as usize).is_some_and(|h| h.load(core::sync::atomic::Ordering::Relaxed) != 0) {
        // SAFETY: the program's own call.
        return unsafe { served(n, a, b, c, d, e, f) };
    }
    // SAFETY: the program's own call.
    returned(unsafe { raw!(n, a, b, c, d, e, f) }) as c_long
}

/// `vfork(2)`: a fork once we have sockets, because a vfork child would change its parent's table.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn vfork() -> c_int {
    core::arch::naked_asm!(
        "mov rax, [rip + {process}]",
        "test rax, rax",
        "jne 2f",
        "mov rax, [rip + {real}]",
        "test rax, rax",
        "je 2f",
        "jmp rax",
        "2:",
        "jmp {fork}",
        process = sym table::PROCESS,
        real = sym VFORK,
        fork = sym forked,
    )
}

extern "C-unwind" fn forked() -> c_int {
    // SAFETY: what the program asked for, but for the wait for the child.
    unsafe { libc::fork() }
}

/// A watched call by number.
unsafe extern "C-unwind" fn served(n: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
    let fd = a as c_int;
    let (ptr, len) = (b as *mut core::ffi::c_void, c);
    // SAFETY: the program's own call with its own arguments, by the function of the same meaning.
    let done: isize = unsafe {
        match n {
            libc::SYS_socket => sockets::socket(fd, b as c_int, c as c_int) as isize,
            libc::SYS_close => fds::close(fd) as isize,
            libc::SYS_close_range => fds::close_range(a as c_uint, b as c_uint, c as c_int) as isize,
            libc::SYS_dup => fds::dup(fd) as isize,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => fds::dup2(fd, b as c_int) as isize,
            libc::SYS_dup3 => fds::dup3(fd, b as c_int, c as c_int) as isize,
            libc::SYS_fcntl => fds::fcntl(fd, b as c_int, c) as isize,
            libc::SYS_sendmsg => data::sendmsg(fd, ptr.cast(), c as c_int),
            libc::SYS_recvmsg => data::recvmsg(fd, ptr.cast(), c as c_int),
            libc::SYS_io_submit => aio::sys_submit(a, b as c_long, c),
            libc::SYS_io_getevents | SYS_IO_PGETEVENTS => {
                aio::sys_events(n, a, [b as c_long, c as c_long], d, e, if n == SYS_IO_PGETEVENTS { f } else { 0 })
            }
            libc::SYS_io_destroy => aio::sys_destroy(a),
            libc::SYS_add_key => keys::add_key(a as *const _, b as *const _, c as *const _, d, e as c_int) as isize,
            libc::SYS_keyctl => {
                let done = raw!(n, a, b, c, d, e);
                keys::after_keyctl(a, b, c, d, done);
                returned(done)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_fork | libc::SYS_vfork => forked() as isize,
            libc::SYS_ppoll => {
                polls::note_raw_poll(a, b);
                returned(raw!(n, a, b, c, d, e))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_poll => {
                polls::note_raw_poll(a, b);
                returned(raw!(n, a, b, c))
            }
            libc::SYS_pselect6 => {
                polls::note_select(fd, [b as *const _, c as *const _, d as *const _]);
                returned(raw!(n, a, b, c, d, e, f))
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_select => {
                polls::note_select(fd, [b as *const _, c as *const _, d as *const _]);
                returned(raw!(n, a, b, c, d, e))
            }
            libc::SYS_epoll_ctl => {
                polls::note(c as c_int);
                returned(raw!(n, a, b, c, d))
            }
            libc::SYS_splice => pipes::splice(fd, b as *mut i64, c as c_int, d as *mut i64, e, f as c_uint),
            libc::SYS_vmsplice => pipes::vmsplice(fd, b as *const _, c, d as c_uint),
            libc::SYS_tee => pipes::tee(fd, b as c_int, c, d as c_uint),
            libc::SYS_sendfile => pipes::sendfile(fd, b as c_int, c as *mut i64, d),
            libc::SYS_setuid
            | libc::SYS_setreuid
            | libc::SYS_setresuid
            | libc::SYS_setgid
            | libc::SYS_setregid
            | libc::SYS_setresgid
            | libc::SYS_setgroups
            | libc::SYS_setfsuid
            | libc::SYS_setfsgid
            | libc::SYS_capset
            | libc::SYS_chroot
            | libc::SYS_setns
            | libc::SYS_unshare
            | libc::SYS_prctl
            | libc::SYS_seccomp
            | libc::SYS_landlock_restrict_self => {
                if table::active() {
                    creds::before_call(n, [a, b, c, d]);
                }
                returned(raw!(n, a, b, c, d, e, f))
            }
            _ if !table::ours(fd) => returned(raw!(n, a, b, c, d, e, f)),
            libc::SYS_bind => sockets::bind(fd, ptr.cast(), c as u32) as isize,
            libc::SYS_accept => sockets::accept(fd, ptr.cast(), c as *mut u32) as isize,
            libc::SYS_accept4 => sockets::accept4(fd, ptr.cast(), c as *mut u32, d as c_int) as isize,
            libc::SYS_setsockopt => sockets::setsockopt(fd, b as c_int, c as c_int, d as *const _, e as u32) as isize,
            libc::SYS_getsockopt => {
                sockets::getsockopt(fd, b as c_int, c as c_int, d as *mut _, e as *mut u32) as isize
            }
            libc::SYS_getsockname => sockets::getsockname(fd, ptr.cast(), c as *mut u32) as isize,
            libc::SYS_getpeername => sockets::getpeername(fd, ptr.cast(), c as *mut u32) as isize,
            libc::SYS_listen => sockets::listen(fd, b as c_int) as isize,
            libc::SYS_connect => sockets::connect(fd, ptr.cast(), c as u32) as isize,
            libc::SYS_shutdown => sockets::shutdown(fd, b as c_int) as isize,
            libc::SYS_sendto => data::sendto(fd, ptr, len, d as c_int, e as *const _, f as u32),
            libc::SYS_recvfrom => data::recvfrom(fd, ptr, len, d as c_int, e as *mut _, f as *mut u32),
            libc::SYS_sendmmsg => data::sendmmsg(fd, ptr.cast(), c as c_uint, d as c_int) as isize,
            libc::SYS_recvmmsg => data::recvmmsg(fd, ptr.cast(), c as c_uint, d as c_int, e as *mut _) as isize,
            libc::SYS_read => data::read(fd, ptr, len),
            libc::SYS_write => data::write(fd, ptr, len),
            libc::SYS_readv => data::readv(fd, ptr.cast(), c as c_int),
            libc::SYS_writev => data::writev(fd, ptr.cast(), c as c_int),
            // The offset comes in two halves, the whole of it in the first on 64-bit machines.
            libc::SYS_preadv2 => data::preadv2(fd, ptr.cast(), c as c_int, d as i64, f as c_int),
            libc::SYS_pwritev2 => data::pwritev2(fd, ptr.cast(), c as c_int, d as i64, f as c_int),
            libc::SYS_ioctl => fds::ioctl(fd, b, c) as isize,
            _ => returned(raw!(n, a, b, c, d, e, f)),
        }
    };
    done as c_long
}
