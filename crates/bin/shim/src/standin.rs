//! The kernel object behind each of our descriptors: a real socket, so that the number is the kernel's own, fstat says
//! socket, close-on-exec and inheritance work, and poll, select and epoll answer by themselves.
//!
//! Its readiness follows the engine's from the first poll on: programs that never poll pay for one system call,
//! `socket`.

use crate::borrow::Borrow;
use crate::sys::{check, raw};
use core::ffi::c_int;
use core::sync::atomic::Ordering;

/// Readable, as poll has it.
pub(crate) const IN: u32 = libc::POLLIN as u32;
/// Writable.
pub(crate) const OUT: u32 = libc::POLLOUT as u32;

/// A stand-in's descriptor: the lowest free number, as the kernel gives. `flags` are SOCK_CLOEXEC and SOCK_NONBLOCK.
///
/// # Errors
/// The kernel's: `EMFILE`, `ENFILE`, `ENOMEM`.
pub(crate) fn open(lively: bool, flags: c_int) -> Result<c_int, i32> {
    let type_ = if lively { libc::SOCK_DGRAM } else { libc::SOCK_SEQPACKET };
    // SAFETY: plain values.
    check(unsafe { raw!(libc::SYS_socket, libc::AF_UNIX, type_ | flags, 0) }).map(|fd| fd as c_int)
}

/// Notes that `fd` is polled, and makes its native state ours.
pub(crate) fn watch(fd: c_int, handle: &Borrow) {
    if !handle.polled.swap(true, Ordering::Relaxed) {
        show(fd, handle);
    }
}

/// Follows the engine's readiness after a call that may have changed it.
#[inline]
pub(crate) fn changed(fd: c_int, handle: &Borrow) {
    if handle.polled.load(Ordering::Relaxed) {
        show(fd, handle);
    }
}

#[cold]
fn show(fd: c_int, handle: &Borrow) {
    let mut standin = handle.standin.lock();
    if !standin.prepared {
        standin.prepared = true;
        standin.shown = prepare(fd, standin.lively, &mut standin.cookie);
    }
    if !standin.lively {
        return;
    }
    let wanted = handle.object().poll().0 & (IN | OUT);
    if wanted != standin.shown {
        display(fd, wanted, standin.cookie);
        standin.shown = wanted;
    }
}

/// Makes a socket drop every message that does not begin with `cookie`, as if it had taken it. A program that inherits
/// the socket over exec, where it is no longer ours, must not read its own plaintext back and take it for ciphertext.
fn drop_foreign_messages(fd: c_int, cookie: &mut [u8; 8]) -> Result<(), i32> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const UNLESS: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // SAFETY: a buffer of its length.
    check(unsafe { raw!(libc::SYS_getrandom, cookie.as_mut_ptr(), cookie.len(), 0) })?;
    let word = |at: usize| u32::from_be_bytes([cookie[at], cookie[at + 1], cookie[at + 2], cookie[at + 3]]);
    let step = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    // A message that is too short for a load is dropped by that.
    let mut filter = [
        step(LOAD, 0, 0),
        step(UNLESS, 3, word(0)),
        step(LOAD, 0, 4),
        step(UNLESS, 1, word(4)),
        step(RETURN, 0, u32::MAX),
        step(RETURN, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    let (level, name) = (libc::SOL_SOCKET, libc::SO_ATTACH_FILTER);
    // SAFETY: a program of its length, which the kernel copies.
    check(unsafe { raw!(libc::SYS_setsockopt, fd, level, name, &raw const program, size_of_val(&program)) }).map(drop)
}

/// Sets a new stand-in up; what it shows then.
fn prepare(fd: c_int, lively: bool, cookie: &mut [u8; 8]) -> u32 {
    if lively && drop_foreign_messages(fd, cookie).is_err() {
        // Not connected it takes no message at all; poll then sees it as always writable.
        return OUT;
    }
    let mut addr = libc::sockaddr_un { sun_family: libc::AF_UNIX as u16, sun_path: [0; 108] };
    let mut len = size_of_val(&addr) as u32;
    // Binding to the family alone asks for an unused abstract name.
    // SAFETY: pointers to locals of the right sizes; 0 and 1 are valid flags.
    unsafe {
        raw!(libc::SYS_bind, fd, &raw const addr, 2);
        if lively {
            raw!(libc::SYS_getsockname, fd, &raw mut addr, &raw mut len);
            raw!(libc::SYS_connect, fd, &raw const addr, len);
            OUT
        } else {
            raw!(libc::SYS_listen, fd, 0);
            0
        }
    }
}

/// Makes a datagram socket that is connected to itself show `wanted`.
fn display(fd: c_int, wanted: u32, cookie: [u8; 8]) {
    // Twice the 2,304 that the kernel doubles to its minimum; a queued message of 2,000 bytes then fills it.
    let sndbuf: c_int = if wanted & OUT == 0 { 2304 } else { 65536 };
    let mut bytes = [0u8; 2000];
    bytes[..cookie.len()].copy_from_slice(&cookie);
    let len = match wanted {
        OUT => 0,
        w if w & OUT != 0 => cookie.len(),
        _ => bytes.len(),
    };
    let mut sink = [0u8; 1];
    let quiet = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointers to locals with their lengths.
    unsafe {
        let at = sink.as_mut_ptr();
        while raw!(libc::SYS_recvfrom, fd, at, sink.len(), quiet, 0, 0) >= 0 {}
        let opt = &raw const sndbuf;
        raw!(libc::SYS_setsockopt, fd, libc::SOL_SOCKET, libc::SO_SNDBUF, opt, size_of::<c_int>());
        if len > 0 {
            raw!(libc::SYS_sendto, fd, bytes.as_ptr(), len, quiet, 0, 0);
        }
    }
}
