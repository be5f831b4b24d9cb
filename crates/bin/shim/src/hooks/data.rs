//! send, recv, read, write and their families.

use super::hook::hook;
use crate::entry::real;
use crate::handle::Object;
use crate::standin::{changed, dontwait};
use crate::system::number;
use crate::table::{self, Borrow};
use crate::user;
use core::ffi::{c_int, c_uint, c_void};
use libc::{iovec, mmsghdr, msghdr, sockaddr, socklen_t, timespec};
use sealane_engine_alg::{Received, SendMsg};

/// Sends pieces to whatever `handle` is.
#[inline]
pub(crate) fn give(fd: c_int, handle: &Borrow, msg: &SendMsg<'_>) -> Result<isize, i32> {
    let sent = match handle.object() {
        Object::Alg(socket) => socket.sendmsg(msg).map_err(number),
        Object::Netlink(socket) => {
            if socket.port() == 0 {
                socket.set_port(super::sockets::port_or_own(0));
            }
            let caller = crate::sys::caller();
            match msg.data {
                _ if msg.unreadable > 0 => Err(libc::EFAULT),
                [all] => socket.send(all, caller).map_err(number),
                pieces => socket.send(&pieces.concat(), caller).map_err(number),
            }
        }
    };
    changed(fd, handle);
    sent.map(|n| n as isize)
}

/// Receives from whatever `handle` is.
#[inline]
pub(crate) fn take(
    fd: c_int,
    handle: &Borrow,
    data: &mut [&mut [u8]],
    unwritable: usize,
    flags: u32,
) -> Result<Received, i32> {
    let flags = flags | dontwait(handle);
    let got = match handle.object() {
        Object::Alg(socket) => socket.recvmsg_faulty(data, unwritable, flags).map_err(number),
        Object::Netlink(_) if unwritable > 0 => Err(libc::EFAULT),
        Object::Netlink(socket) => match data {
            [all] => socket.recv(all, flags).map_err(number),
            pieces => {
                let mut whole = vec![0; pieces.iter().map(|p| p.len()).sum()];
                socket.recv(&mut whole, flags).map_err(number).inspect(|got| {
                    let mut rest = &whole[..got.len.min(whole.len())];
                    for piece in pieces {
                        let n = piece.len().min(rest.len());
                        piece[..n].copy_from_slice(&rest[..n]);
                        rest = &rest[n..];
                    }
                })
            }
        },
    };
    changed(fd, handle);
    got
}

/// One flat send.
#[inline]
pub(crate) unsafe fn put(
    fd: c_int,
    handle: &Borrow,
    buf: *const c_void,
    len: usize,
    flags: c_int,
) -> Result<isize, i32> {
    // SAFETY: the program's buffer.
    let (data, unreadable) = unsafe { user::flat(buf, len) }?;
    let flags = flags as u32 | dontwait(handle);
    give(fd, handle, &SendMsg { data: &[data], unreadable, flags, ..SendMsg::default() })
}

/// One gathered send without control data.
pub(crate) unsafe fn put_vec(fd: c_int, handle: &Borrow, iov: *const iovec, n: c_int) -> Result<isize, i32> {
    let n = usize::try_from(n).map_err(|_| libc::EINVAL)?;
    // SAFETY: the program's array.
    let mut data = unsafe { user::gather(iov, n, libc::EINVAL) }?;
    if data.is_empty() {
        // Nothing in all does not reach the socket, other than a flat write of nothing.
        return Ok(0);
    }
    put_pieces(fd, handle, &mut data)
}

/// Sends pieces without control data.
pub(crate) fn put_pieces(fd: c_int, handle: &Borrow, data: &mut user::Pieces<&[u8]>) -> Result<isize, i32> {
    let (unreadable, flags) = (data.absent, dontwait(handle));
    give(fd, handle, &SendMsg { data: data.as_mut(), unreadable, flags, ..SendMsg::default() })
}

unsafe fn put_msg(fd: c_int, handle: &Borrow, msg: *const msghdr, flags: c_int) -> Result<isize, i32> {
    // SAFETY: the program's message.
    unsafe {
        let msg = user::read(msg)?;
        let mut data = user::gather(msg.msg_iov, msg.msg_iovlen, libc::EMSGSIZE)?;
        let control = user::control(&msg)?;
        let flags = flags as u32 | dontwait(handle);
        let unreadable = data.absent;
        give(fd, handle, &SendMsg { data: data.as_mut(), unreadable, control, flags, spliced: false })
    }
}

/// One flat receive.
#[inline]
pub(crate) unsafe fn get(fd: c_int, handle: &Borrow, buf: *mut c_void, len: usize, flags: c_int) -> Result<isize, i32> {
    // SAFETY: the program's buffer.
    let (data, unwritable) = unsafe { user::flat_mut(buf, len) }?;
    take(fd, handle, &mut [data], unwritable, flags as u32).map(|got| got.len as isize)
}

/// One read: none of no bytes reaches the socket.
#[inline]
unsafe fn read_flat(fd: c_int, handle: &Borrow, buf: *mut c_void, len: usize) -> Result<isize, i32> {
    // SAFETY: the program's buffer.
    if len == 0 { unsafe { user::flat_mut(buf, 0) }.map(|_| 0) } else { unsafe { get(fd, handle, buf, len, 0) } }
}

/// One scattered receive without control data.
pub(crate) unsafe fn get_vec(fd: c_int, handle: &Borrow, iov: *const iovec, n: c_int) -> Result<isize, i32> {
    let n = usize::try_from(n).map_err(|_| libc::EINVAL)?;
    // SAFETY: the program's array.
    let mut data = unsafe { user::scatter(iov, n, libc::EINVAL) }?;
    get_pieces(fd, handle, &mut data)
}

/// Receives into pieces: none of no bytes reaches the socket.
pub(crate) fn get_pieces(fd: c_int, handle: &Borrow, data: &mut user::Pieces<&mut [u8]>) -> Result<isize, i32> {
    if data.is_empty() {
        return Ok(0);
    }
    let unwritable = data.absent;
    take(fd, handle, data.as_mut(), unwritable, 0).map(|got| got.len as isize)
}

unsafe fn get_msg(fd: c_int, handle: &Borrow, msg: *mut msghdr, flags: c_int) -> Result<isize, i32> {
    // SAFETY: the program's message.
    unsafe {
        let mut head = user::read(msg)?;
        let mut data = user::scatter(head.msg_iov, head.msg_iovlen, libc::EMSGSIZE)?;
        let unwritable = data.absent;
        let got = take(fd, handle, data.as_mut(), unwritable, flags as u32)?;
        head.msg_flags = got.flags as c_int;
        head.msg_controllen = 0;
        if !head.msg_name.is_null() {
            head.msg_namelen = match handle.object() {
                Object::Alg(_) => 0,
                Object::Netlink(_) => from_kernel(head.msg_name, head.msg_namelen)?,
            };
        }
        user::write(msg, head)?;
        Ok(got.len as isize)
    }
}

/// Writes the kernel's netlink address as the sender's, as far as there is room.
unsafe fn from_kernel(addr: *mut c_void, room: socklen_t) -> Result<socklen_t, i32> {
    let mut name = [0u8; 12];
    name[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    let n = name.len().min(room as usize);
    // SAFETY: the program's pointer.
    unsafe { user::bytes_mut(addr, n) }?.copy_from_slice(&name[..n]);
    Ok(name.len() as socklen_t)
}

unsafe fn get_from(
    fd: c_int,
    handle: &Borrow,
    buf: (*mut c_void, usize),
    flags: c_int,
    addr: *mut sockaddr,
    addr_len: *mut socklen_t,
) -> Result<isize, i32> {
    // SAFETY: the program's pointers.
    unsafe {
        let n = get(fd, handle, buf.0, buf.1, flags)?;
        if !addr.is_null() {
            let len = match handle.object() {
                Object::Alg(_) => 0,
                Object::Netlink(_) => from_kernel(addr.cast(), user::read(addr_len)?)?,
            };
            user::write(addr_len, len)?;
        }
        Ok(n)
    }
}

/// Several messages: how many went, or the error of the first.
fn several(n: c_uint, mut each: impl FnMut(usize) -> Result<(), i32>) -> Result<isize, i32> {
    for i in 0..(n as usize).min(1024) {
        match each(i) {
            Err(errno) if i == 0 => return Err(errno),
            Err(_) => return Ok(i as isize),
            Ok(()) => {}
        }
    }
    Ok(n.min(1024) as isize)
}

unsafe fn put_many(fd: c_int, h: &Borrow, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> Result<isize, i32> {
    several(n, |i| {
        let at = msgs.wrapping_add(i);
        // SAFETY: the program's array.
        unsafe {
            let sent = put_msg(fd, h, &raw const (*at).msg_hdr, flags)?;
            user::write(&raw mut (*at).msg_len, sent as c_uint)
        }
    })
}

unsafe fn get_many(fd: c_int, h: &Borrow, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> Result<isize, i32> {
    const MSG_WAITFORONE: c_int = 0x10000;
    several(n, |i| {
        let at = msgs.wrapping_add(i);
        let flags = if i > 0 && flags & MSG_WAITFORONE != 0 { flags | libc::MSG_DONTWAIT } else { flags };
        // SAFETY: the program's array.
        unsafe {
            let got = get_msg(fd, h, &raw mut (*at).msg_hdr, flags & !MSG_WAITFORONE)?;
            user::write(&raw mut (*at).msg_len, got as c_uint)
        }
    })
}

/// Whether positioned vector I/O asks for the current position, which is all that sockets have.
fn positioned(offset: i64) -> Result<(), i32> {
    if offset == -1 { Ok(()) } else { Err(libc::ESPIPE) }
}

hook! {
    /// `send(2)`.
    fn send(fd: c_int, buf: *const c_void, len: usize, flags: c_int) -> isize, fd |h| {
        // SAFETY: the program's buffer.
        unsafe { put(fd, h, buf, len, flags) }
    };
    /// `sendto(2)`; the address changes nothing.
    fn sendto(fd: c_int, buf: *const c_void, len: usize, flags: c_int, addr: *const sockaddr, addr_len: socklen_t)
        -> isize, fd |h| {
        if !addr.is_null() && addr_len > size_of::<libc::sockaddr_storage>() as socklen_t {
            return Err(libc::EINVAL);
        }
        // SAFETY: the program's buffer.
        unsafe { put(fd, h, buf, len, flags) }
    };
    /// `sendmmsg(2)`.
    fn sendmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int) -> c_int, fd |h| {
        // SAFETY: the program's array.
        unsafe { put_many(fd, h, msgs, n, flags) }
    };
    /// `recv(2)`.
    fn recv(fd: c_int, buf: *mut c_void, len: usize, flags: c_int) -> isize, fd |h| {
        // SAFETY: the program's buffer.
        unsafe { get(fd, h, buf, len, flags) }
    };
    /// `recvfrom(2)`.
    fn recvfrom(fd: c_int, buf: *mut c_void, len: usize, flags: c_int, addr: *mut sockaddr, addr_len: *mut socklen_t)
        -> isize, fd |h| {
        // SAFETY: the program's pointers.
        unsafe { get_from(fd, h, (buf, len), flags, addr, addr_len) }
    };
    /// `recvmmsg(2)`.
    fn recvmmsg(fd: c_int, msgs: *mut mmsghdr, n: c_uint, flags: c_int, timeout: *mut timespec) -> c_int, fd |h| {
        let _ = timeout;
        // SAFETY: the program's array.
        unsafe { get_many(fd, h, msgs, n, flags) }
    };
    /// `read(2)`.
    fn read(fd: c_int, buf: *mut c_void, len: usize) -> isize, fd |h| {
        // SAFETY: the program's buffer.
        unsafe { read_flat(fd, h, buf, len) }
    };
    /// `write(2)`.
    fn write(fd: c_int, buf: *const c_void, len: usize) -> isize, fd |h| {
        // SAFETY: the program's buffer.
        unsafe { put(fd, h, buf, len, 0) }
    };
    /// `readv(2)`.
    fn readv(fd: c_int, iov: *const iovec, n: c_int) -> isize, fd |h| {
        // SAFETY: the program's array.
        unsafe { get_vec(fd, h, iov, n) }
    };
    /// `writev(2)`.
    fn writev(fd: c_int, iov: *const iovec, n: c_int) -> isize, fd |h| {
        // SAFETY: the program's array.
        unsafe { put_vec(fd, h, iov, n) }
    };
    /// `preadv2(2)`.
    fn preadv2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        positioned(offset)?;
        // SAFETY: the program's array.
        unsafe { get_vec(fd, h, iov, n) }
    };
    /// `pwritev2(2)`.
    fn pwritev2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        positioned(offset)?;
        // SAFETY: the program's array.
        unsafe { put_vec(fd, h, iov, n) }
    };
    /// `preadv64v2`: glibc's name for `preadv2` with a 64-bit offset.
    fn preadv64v2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        positioned(offset)?;
        // SAFETY: the program's array.
        unsafe { get_vec(fd, h, iov, n) }
    };
    /// `pwritev64v2`: glibc's name for `pwritev2` with a 64-bit offset.
    fn pwritev64v2(fd: c_int, iov: *const iovec, n: c_int, offset: i64, flags: c_int) -> isize, fd |h| {
        let _ = flags;
        positioned(offset)?;
        // SAFETY: the program's array.
        unsafe { put_vec(fd, h, iov, n) }
    };
    /// `__read_chk`: read(2) as _FORTIFY_SOURCE calls it.
    fn __read_chk(fd: c_int, buf: *mut c_void, len: usize, room: usize) -> isize, fd |h| {
        if len > room {
            overflow();
        }
        // SAFETY: the program's buffer.
        unsafe { read_flat(fd, h, buf, len) }
    };
    /// `__recv_chk`: recv(2) as _FORTIFY_SOURCE calls it.
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: usize, room: usize, flags: c_int) -> isize, fd |h| {
        if len > room {
            overflow();
        }
        // SAFETY: the program's buffer.
        unsafe { get(fd, h, buf, len, flags) }
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

/// What glibc does for a buffer that is too small.
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
            let h = &table::borrow(fd).ok_or(libc::EBADF)?;
            // SAFETY: the program's message.
            unsafe { put_msg(fd, h, msg, flags) }
        });
    }
    if table::active() {
        // SAFETY: the program's message, which the real call is about to read.
        unsafe { super::fds::departing(msg) };
    }
    real!(sendmsg(fd: c_int, msg: *const msghdr, flags: c_int) -> isize)
}

/// `recvmsg(2)`; descriptors of ours that arrive in other sockets' messages are recognised.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize {
    if table::ours(fd) {
        return crate::entry::guarded(|| {
            let h = &table::borrow(fd).ok_or(libc::EBADF)?;
            // SAFETY: the program's message.
            unsafe { get_msg(fd, h, msg, flags) }
        });
    }
    let got = real!(recvmsg(fd: c_int, msg: *mut msghdr, flags: c_int) -> isize);
    if got >= 0 && table::active() {
        // SAFETY: the program's message, which the real call has filled in.
        unsafe { super::fds::arriving(msg) };
    }
    got
}
