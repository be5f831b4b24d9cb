//! send, recv, read, write and their families.

use super::hook::hook;
use crate::entry::real;
use crate::program::{LocalDescriptor, address};
use crate::table;
use core::ffi::{c_int, c_uint, c_void};
use libc::{iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use sealane_engine_alg::front;

/// A count of bytes or messages as C functions return it.
#[inline]
fn count(done: Result<usize, i32>) -> Result<isize, i32> {
    done.map(|n| n as isize)
}

hook! {
    /// `send(2)`.
    fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize, fd |h| {
        count(front::send(h, address(buf), len, flags as u32))
    };
    /// `sendto(2)`; the address changes nothing.
    fn sendto(fd: c_int, buf: *const c_void, len: usize, flags: c_int, addr: *const sockaddr, addr_len: socklen_t)
        -> isize, fd |h| {
        count(front::sendto(h, address(buf), len, flags as u32, address(addr), addr_len))
    };
    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int, fd |h| {
        count(front::sendmmsg(h, address(msgs), n, flags as u32))
    };
    /// `recv(2)`.
    fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize, fd |h| {
        count(front::recv(h, address(buf), len, flags as u32))
    };
    /// `recvfrom(2)`.
    fn recvfrom(fd: c_int, buf: *mut c_void, len: usize, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t)
        -> isize, fd |h| {
        count(front::recvfrom(h, address(buf), len, flags as u32, address(addr), address(addr_len)))
    };
    /// `recvmmsg(2)`.
    fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int, fd |h| {
        let _ = timeout;
        count(front::recvmmsg(h, address(msgs), n, flags as u32))
    };
    /// `read(2)`.
    fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize, fd |h| {
        count(front::read(h, address(buf), len))
    };
    /// `write(2)`.
    fn write(fd: c_int, buf: *const c_void, len: usize) -> isize, fd |h| {
        count(front::send(h, address(buf), len, 0))
    };
    /// `readv(2)`.
    fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize, fd |h| {
        count(front::readv(h, address(iov), n as u64))
    };
    /// `writev(2)`.
    fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize, fd |h| {
        count(front::writev(h, address(iov), n as u64))
    };
    /// `preadv2(2)`.
    fn preadv2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        count(front::preadv2(h, address(iov), n as u64, offset))
    };
    /// `pwritev2(2)`.
    fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        count(front::pwritev2(h, address(iov), n as u64, offset))
    };
    /// `preadv64v2`: glibc's name for `preadv2` with a 64-bit offset.
    fn preadv64v2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        count(front::preadv2(h, address(iov), n as u64, offset))
    };
    /// `pwritev64v2`: glibc's name for `pwritev2` with a 64-bit offset.
    fn pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        count(front::pwritev2(h, address(iov), n as u64, offset))
    };
    /// `__read_chk`: read(2) as _FORTIFY_SOURCE calls it.
    fn __read_chk(fd: c_int, buf: *mut c_void, len: usize, room: usize) -> isize, fd |h| {
        if len > room {
            overflow();
        }
        count(front::read(h, address(buf), len))
    };
    /// `__recv_chk`: recv(2) as _FORTIFY_SOURCE calls it.
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: usize, room: usize, flags: c_int) -> isize, fd |h| {
        if len > room {
            overflow();
        }
        count(front::recv(h, address(buf), len, flags as u32))
    };
}

/// `__recvfrom_chk`: recvfrom(2) as _FORTIFY_SOURCE calls it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __recvfrom_chk(
    fd: c_int,
    buf: *mut c_void,
    len: usize,
    room: usize,
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> isize {
    if len > room {
        overflow();
    }
    // SAFETY: the program's arguments, checked as glibc would.
    unsafe { recvfrom(fd, buf, len, flags, addr, addr_len) }
}

/// Aborts as glibc does for a buffer that is too small.
fn overflow() -> ! {
    unsafe extern "C" {
        fn __chk_fail() -> !;
    }
    // SAFETY: takes nothing, does not return.
    unsafe { __chk_fail() }
}

/// `sendmsg(2)`; descriptors of ours that travel in other sockets' messages are noted.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize {
    if table::ours(fd) {
        return crate::entry::guarded(|| {
            let handle = table::borrow(fd).ok_or(libc::EBADF)?;
            // SAFETY: the program's own call.
            let here = unsafe { LocalDescriptor::new(fd, &handle) };
            count(front::sendmsg(&here, address(msg), flags as u32))
        });
    }
    if table::active() {
        // SAFETY: the program's message, which the real call is about to read.
        unsafe { super::fds::note_sent_handles(msg) };
    }
    real!(sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize)
}

/// `recvmsg(2)`; descriptors of ours that arrive in other sockets' messages are recognised.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    if table::ours(fd) {
        return crate::entry::guarded(|| {
            let handle = table::borrow(fd).ok_or(libc::EBADF)?;
            // SAFETY: the program's own call.
            let here = unsafe { LocalDescriptor::new(fd, &handle) };
            count(front::recvmsg(&here, address(msg), flags as u32))
        });
    }
    let got = real!(recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize);
    if got >= 0 && table::active() {
        // SAFETY: the program's message, which the real call has filled in.
        unsafe { super::fds::recognise_received_handles(msg) };
    }
    got
}
