//! System calls with safe signatures: the only `unsafe` code of this library.
//!
//! Each function returns the kernel's result: a number, or an errno.
#![allow(unsafe_code)]

mod odd;
pub mod packet;
pub mod tcp;

pub use odd::{Iocb, aio, fault};
use std::ffi::c_void;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

/// A return value, or an errno.
pub type Ret = Result<i64, i32>;

fn ret(n: i64) -> Ret {
    if n >= 0 { Ok(n) } else { Err(io::Error::last_os_error().raw_os_error().unwrap_or(0)) }
}

/// Has a command start with the signals of a terminal as a login leaves them. Under `nohup`, or in a script's background, it
/// would ignore some, and so would a shell that is to catch them.
pub fn heed_terminal(command: &mut Command) {
    let heed = || {
        for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: a valid signal, and no handler.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
        Ok(())
    };
    // SAFETY: between fork and exec it only makes async-signal-safe calls.
    unsafe { command.pre_exec(heed) };
}

/// `socket(AF_ALG, ty, proto)`
///
/// # Errors
/// The errno.
pub fn socket(ty: i32, proto: i32) -> Ret {
    // SAFETY: no pointers.
    ret(i64::from(unsafe { libc::socket(libc::AF_ALG, ty, proto) }))
}

/// `bind`
///
/// # Errors
/// The errno.
pub fn bind(fd: i32, addr: &[u8]) -> Ret {
    // SAFETY: pointer and length come from one slice, which the call only reads.
    ret(i64::from(unsafe { libc::bind(fd, addr.as_ptr().cast(), addr.len() as u32) }))
}

/// `connect`
///
/// # Errors
/// The errno.
pub fn connect(fd: i32, addr: &[u8]) -> Ret {
    // SAFETY: pointer and length come from one slice, which the call only reads.
    ret(i64::from(unsafe { libc::connect(fd, addr.as_ptr().cast(), addr.len() as u32) }))
}

/// `setsockopt`; without a value the pointer is null and `len` stands alone.
///
/// # Errors
/// The errno.
///
/// # Panics
/// When `len` exceeds the value.
pub fn setsockopt(fd: i32, level: i32, name: i32, val: Option<&[u8]>, len: usize) -> Ret {
    let p = val.map_or(ptr::null(), |v| {
        assert!(len <= v.len());
        v.as_ptr()
    });
    // SAFETY: a value holds at least `len` bytes; a null pointer is refused or unused by the callee.
    ret(i64::from(unsafe { libc::setsockopt(fd, level, name, p.cast(), len as u32) }))
}

/// `getsockopt`; returns the length.
///
/// # Errors
/// The errno.
pub fn getsockopt(fd: i32, level: i32, name: i32, out: &mut [u8]) -> Ret {
    let mut len = out.len() as u32;
    // SAFETY: `len` is the length of `out`.
    ret(i64::from(unsafe { libc::getsockopt(fd, level, name, out.as_mut_ptr().cast(), &raw mut len) }))
        .map(|_| i64::from(len))
}

/// `accept4` without an address.
///
/// # Errors
/// The errno.
pub fn accept4(fd: i32, flags: i32) -> Ret {
    // SAFETY: null pointers say that no address is wanted.
    ret(i64::from(unsafe { libc::accept4(fd, ptr::null_mut(), ptr::null_mut(), flags) }))
}

/// `getsockname` or `getpeername`; returns the length and the first bytes.
///
/// # Errors
/// The errno.
pub fn name(fd: i32, peer: bool, out: &mut [u8; 128]) -> Ret {
    let mut len = out.len() as u32;
    let p = out.as_mut_ptr().cast();
    // SAFETY: `len` is the length of `out`.
    let r =
        unsafe { if peer { libc::getpeername(fd, p, &raw mut len) } else { libc::getsockname(fd, p, &raw mut len) } };
    ret(i64::from(r)).map(|_| i64::from(len))
}

/// `dup`
///
/// # Errors
/// The errno.
pub fn dup(fd: i32) -> Ret {
    // SAFETY: no pointers.
    ret(i64::from(unsafe { libc::dup(fd) }))
}

/// `close`
///
/// # Errors
/// The errno.
pub fn close(fd: i32) -> Ret {
    // SAFETY: callers own the descriptors that they close; a wrong number yields EBADF.
    ret(i64::from(unsafe { libc::close(fd) }))
}

/// `listen`, `shutdown`, `lseek`, `ioctl(FIONREAD)`, `fcntl` without pointers that matter.
///
/// # Errors
/// The errno.
pub fn plain(fd: i32, what: crate::plan::Misc) -> Ret {
    use crate::plan::Misc;
    let mut n = 0i32;
    // SAFETY: the only pointer is that of `n`, an int as FIONREAD wants.
    ret(unsafe {
        match what {
            Misc::Listen => libc::listen(fd, 1).into(),
            Misc::Shutdown => libc::shutdown(fd, 2).into(),
            Misc::Lseek => libc::lseek(fd, 0, libc::SEEK_CUR),
            Misc::Fionread => libc::ioctl(fd, libc::FIONREAD, &raw mut n).into(),
            Misc::Getfl => (libc::fcntl(fd, libc::F_GETFL)).into(),
            Misc::Getfd => (libc::fcntl(fd, libc::F_GETFD)).into(),
            Misc::Getsockname | Misc::Getpeername | Misc::Connect | Misc::Fstat => unreachable!("calls with results"),
        }
    })
}

/// The file type from `fstat`.
///
/// # Errors
/// The errno.
pub fn file_type(fd: i32) -> Ret {
    // SAFETY: all-zero bytes are a valid `stat`.
    let mut st: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: `st` is a `stat`.
    ret(i64::from(unsafe { libc::fstat(fd, &raw mut st) })).map(|_| i64::from(st.st_mode & libc::S_IFMT))
}

/// Sets or clears O_NONBLOCK.
///
/// # Errors
/// The errno.
pub fn set_nonblock(fd: i32, on: bool) -> Ret {
    // SAFETY: no pointers.
    ret(i64::from(unsafe { libc::fcntl(fd, libc::F_SETFL, if on { libc::O_NONBLOCK } else { 0 }) }))
}

/// Events that `poll` reports at once.
///
/// # Errors
/// The errno.
pub fn poll(fd: i32) -> Ret {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLPRI | libc::POLLRDHUP | libc::POLLRDNORM | libc::POLLWRBAND;
    let mut p = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one `pollfd`.
    ret(i64::from(unsafe { libc::poll(&raw mut p, 1, 0) })).map(|_| i64::from(p.revents))
}

/// `send`
///
/// # Errors
/// The errno.
pub fn send(fd: i32, data: &[u8], flags: i32) -> Ret {
    // SAFETY: pointer and length of one slice.
    ret(unsafe { libc::send(fd, data.as_ptr().cast(), data.len(), flags) } as i64)
}

/// `write`
///
/// # Errors
/// The errno.
pub fn write(fd: i32, data: &[u8]) -> Ret {
    // SAFETY: pointer and length of one slice.
    ret(unsafe { libc::write(fd, data.as_ptr().cast(), data.len()) } as i64)
}

/// `recv`
///
/// # Errors
/// The errno.
pub fn recv(fd: i32, out: &mut [u8], flags: i32) -> Ret {
    // SAFETY: pointer and length of one slice.
    ret(unsafe { libc::recv(fd, out.as_mut_ptr().cast(), out.len(), flags) } as i64)
}

/// `read`
///
/// # Errors
/// The errno.
pub fn read(fd: i32, out: &mut [u8]) -> Ret {
    // SAFETY: pointer and length of one slice.
    ret(unsafe { libc::read(fd, out.as_mut_ptr().cast(), out.len()) } as i64)
}

fn iovecs(base: *mut u8, len: usize, pieces: &[usize]) -> Vec<libc::iovec> {
    assert_eq!(pieces.iter().sum::<usize>(), len);
    let mut at = 0;
    pieces
        .iter()
        .map(|&n| {
            // SAFETY: the pieces add up to `len`, the length of what `base` points to.
            let iov_base = unsafe { base.add(at) }.cast::<c_void>();
            at += n;
            libc::iovec { iov_base, iov_len: n }
        })
        .collect()
}

/// `writev` of consecutive pieces of `data`.
///
/// # Errors
/// The errno.
pub fn writev(fd: i32, data: &[u8], pieces: &[usize]) -> Ret {
    let iov = iovecs(data.as_ptr().cast_mut(), data.len(), pieces);
    // SAFETY: the pieces lie in `data`, which the call only reads.
    ret(unsafe { libc::writev(fd, iov.as_ptr(), iov.len() as i32) } as i64)
}

/// `readv` into consecutive pieces of `out`.
///
/// # Errors
/// The errno.
pub fn readv(fd: i32, out: &mut [u8], pieces: &[usize]) -> Ret {
    let iov = iovecs(out.as_mut_ptr(), out.len(), pieces);
    // SAFETY: the pieces lie in `out` and do not overlap.
    ret(unsafe { libc::readv(fd, iov.as_ptr(), iov.len() as i32) } as i64)
}

fn msghdr(iov: &mut [libc::iovec], control: *mut u8, control_len: usize) -> libc::msghdr {
    // SAFETY: all-zero bytes are a valid `msghdr`.
    let mut msg: libc::msghdr = unsafe { std::mem::zeroed() };
    msg.msg_iov = iov.as_mut_ptr();
    msg.msg_iovlen = iov.len();
    if control_len > 0 {
        msg.msg_control = control.cast();
        msg.msg_controllen = control_len;
    }
    msg
}

/// `sendmsg` of consecutive pieces of `data` with a raw control buffer.
///
/// # Errors
/// The errno.
pub fn sendmsg(fd: i32, data: &[u8], pieces: &[usize], control: &[u8], flags: i32) -> Ret {
    let mut iov = iovecs(data.as_ptr().cast_mut(), data.len(), pieces);
    // The kernel reads headers in place, so they are aligned like memory of malloc.
    let mut control = control.to_vec();
    let msg = msghdr(&mut iov, control.as_mut_ptr(), control.len());
    // SAFETY: `msg` points to `iov` and `control`, which outlive the call; the pieces lie in `data`.
    ret(unsafe { libc::sendmsg(fd, &raw const msg, flags) } as i64)
}

/// `recvmsg` into consecutive pieces of `out`; returns count, `msg_flags`, `msg_controllen`, `msg_namelen`.
///
/// # Errors
/// The errno.
pub fn recvmsg(fd: i32, out: &mut [u8], pieces: &[usize], flags: i32) -> Result<(i64, i32, usize, u32), i32> {
    let mut iov = iovecs(out.as_mut_ptr(), out.len(), pieces);
    let mut control = [0u64; 8];
    let mut name = [0u8; 128];
    let mut msg = msghdr(&mut iov, control.as_mut_ptr().cast(), 64);
    msg.msg_name = name.as_mut_ptr().cast();
    msg.msg_namelen = 128;
    // SAFETY: `msg` points to `iov`, `control` and `name`, which outlive the call; the pieces lie in `out`.
    let n = ret(unsafe { libc::recvmsg(fd, &raw mut msg, flags) } as i64)?;
    Ok((n, msg.msg_flags, msg.msg_controllen, msg.msg_namelen))
}

/// Makes a pipe; returns the reading end first.
///
/// # Errors
/// The errno.
pub fn pipe() -> Result<(i32, i32), i32> {
    let mut fds = [0; 2];
    // SAFETY: an array of two ints.
    ret(i64::from(unsafe { libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) }))?;
    Ok((fds[0], fds[1]))
}

/// `splice` without offsets.
///
/// # Errors
/// The errno.
pub fn splice(from: i32, to: i32, len: usize, flags: u32) -> Ret {
    // SAFETY: null pointers say that the descriptors have no offsets.
    ret(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), len, flags) } as i64)
}

/// `vmsplice` of `data` from its own pages, which do not change afterwards.
///
/// # Errors
/// The errno.
pub fn vmsplice(pipe: i32, data: &[u8], flags: u32) -> Ret {
    let len = data.len().max(1);
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private mapping disturbs nothing.
    let map = unsafe { libc::mmap(ptr::null_mut(), len, prot, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
    if map == libc::MAP_FAILED {
        return ret(-1);
    }
    // SAFETY: the mapping holds at least `data.len()` bytes and nobody else knows of it.
    unsafe { ptr::copy_nonoverlapping(data.as_ptr(), map.cast(), data.len()) };
    let iov = libc::iovec { iov_base: map, iov_len: data.len() };
    // SAFETY: the iovec lies in the mapping.
    let n = ret(unsafe { libc::vmsplice(pipe, &raw const iov, 1, flags) } as i64);
    // SAFETY: mapped above; the pipe keeps its own references to the pages.
    unsafe { libc::munmap(map, len) };
    n
}

/// Makes a file in memory that contains `data`, positioned at its start.
///
/// # Errors
/// The errno.
pub fn memory_file(data: &[u8]) -> Result<i32, i32> {
    // SAFETY: a C string literal.
    let fd = ret(i64::from(unsafe { libc::memfd_create(c"data".as_ptr(), libc::MFD_CLOEXEC) }))? as i32;
    let mut at = 0;
    while at < data.len() {
        at += write(fd, &data[at..])? as usize;
    }
    // SAFETY: no pointers.
    ret(unsafe { libc::lseek(fd, 0, libc::SEEK_SET) })?;
    Ok(fd)
}

/// `sendfile` from the start of `from`.
///
/// # Errors
/// The errno.
pub fn sendfile(to: i32, from: i32, len: usize) -> Ret {
    // SAFETY: a null offset says that the file's own position counts.
    ret(unsafe { libc::sendfile(to, from, ptr::null_mut(), len) } as i64)
}

/// `add_key` into the process keyring.
///
/// # Errors
/// The errno.
pub fn add_key(ty: &std::ffi::CStr, payload: &[u8]) -> Ret {
    let p = if payload.is_empty() { ptr::null() } else { payload.as_ptr() };
    // SAFETY: two C strings, pointer and length of one slice.
    ret(unsafe { libc::syscall(libc::SYS_add_key, ty.as_ptr(), c"alg-sequence:k".as_ptr(), p, payload.len(), -2) })
}

/// `keyctl(KEYCTL_REVOKE)`
///
/// # Errors
/// The errno.
pub fn revoke_key(serial: i64) -> Ret {
    // SAFETY: no pointers.
    ret(unsafe { libc::syscall(libc::SYS_keyctl, 3, serial) })
}

/// Runs `f` in a child process and returns its text, or `None` when the child died.
pub fn in_child(f: impl FnOnce() -> String) -> Option<String> {
    let (r, w) = pipe().ok()?;
    // SAFETY: the program has one thread; the child calls `f` and leaves.
    match unsafe { libc::fork() } {
        0 => {
            let text = f();
            let _ = write(w, text.as_bytes());
            // SAFETY: ends the child without running the parent's destructors.
            unsafe { libc::_exit(0) }
        }
        pid => {
            let _ = close(w);
            let mut text = Vec::new();
            let mut buf = [0u8; 512];
            while let Ok(n @ 1..) = read(r, &mut buf) {
                text.extend_from_slice(&buf[..n as usize]);
            }
            let _ = close(r);
            let mut status = 0;
            // SAFETY: `status` is an int.
            while pid > 0 && unsafe { libc::waitpid(pid, &raw mut status, 0) } < 0 {}
            (pid > 0 && status == 0).then(|| String::from_utf8_lossy(&text).into_owned())
        }
    }
}

/// Number of alarms so far. The handler needs no effect; it only has to interrupt calls.
static RINGS: AtomicU64 = AtomicU64::new(0);

extern "C" fn ring(_: i32) {
    RINGS.fetch_add(1, Ordering::Relaxed);
}

/// Makes SIGALRM interrupt a call that blocks (EINTR) instead of ending the process.
pub fn catch_alarm() {
    // SAFETY: all-zero bytes are a valid `sigaction`; the handler only touches an atomic.
    unsafe {
        let mut act: libc::sigaction = std::mem::zeroed();
        act.sa_sigaction = ring as extern "C" fn(i32) as usize;
        libc::sigaction(libc::SIGALRM, &raw const act, ptr::null_mut());
    }
}

/// Raises SIGALRM every `ms` milliseconds until it is set to 0. It repeats because one may come before the call.
pub fn set_alarm(ms: u32) {
    let every = libc::timeval { tv_sec: 0, tv_usec: i64::from(ms) * 1000 };
    let timer = libc::itimerval { it_interval: every, it_value: every };
    // SAFETY: a valid `itimerval`.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &raw const timer, ptr::null_mut()) };
}

/// Sends a signal to a process that this process started, or one below it.
pub fn signal(pid: u32, signal: i32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid as i32, signal) };
}

/// Kills a process that this process started, or one below it.
pub fn kill(pid: u32) {
    // SAFETY: no pointers.
    unsafe { libc::kill(pid as i32, libc::SIGKILL) };
}

/// Kills a whole process group that this process started.
pub fn kill_group(leader: u32) {
    // SAFETY: no pointers; the leader is a child that has not been waited for, so its number is still its own.
    unsafe { libc::kill(-(leader as i32), libc::SIGKILL) };
}
