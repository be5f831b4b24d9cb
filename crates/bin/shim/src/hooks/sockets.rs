//! socket, bind, accept, options, names.

use super::hook::hook;
use crate::entry::{guarded, real};
use crate::fork;
use crate::handle::{Object, Standin};
use crate::standin;
use crate::sys;
use crate::system::{self, CryptoUser, Socket, number};
use crate::table::{self, Borrow};
use crate::user;
use core::ffi::{c_int, c_void};
use libc::{sockaddr, socklen_t};
use sealane_crypto::Kind;

const AF_ALG: c_int = libc::AF_ALG;
const NETLINK_CRYPTO: c_int = 21;
const FLAGS: c_int = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const TYPE: c_int = 0xf;

/// Opens a stand-in and puts `object` behind it.
fn publish(object: Object, lively: bool, flags: c_int) -> Result<isize, i32> {
    let fd = standin::open(lively, flags)?;
    let arena = fork::ensure().inspect_err(|_| sys::close(fd))?;
    table::install(arena, fd, object, flags & libc::SOCK_NONBLOCK != 0, Standin::new(lively))
        .inspect_err(|_| sys::close(fd))?;
    Ok(fd as isize)
}

fn open(domain: c_int, type_: c_int, protocol: c_int) -> Result<isize, i32> {
    if type_ & !(TYPE | FLAGS) != 0 {
        return Err(libc::EINVAL);
    }
    let system = system::get()?;
    if domain == AF_ALG {
        let socket = Socket::create(&system, type_ & TYPE, protocol).map_err(number)?;
        return publish(Object::Alg(socket), false, type_ & FLAGS);
    }
    let socket = CryptoUser::create(&system, type_ & TYPE, protocol).map_err(number)?;
    publish(Object::Netlink(socket), true, type_ & FLAGS)
}

/// `socket(2)`: AF_ALG and NETLINK_CRYPTO never reach the kernel.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, type_: c_int, protocol: c_int) -> c_int {
    if domain == AF_ALG || (domain == libc::AF_NETLINK && protocol == NETLINK_CRYPTO) {
        return guarded(|| open(domain, type_, protocol)) as c_int;
    }
    let fd = real!(socket(domain: c_int, type_: c_int, protocol: c_int) -> c_int);
    super::fds::fresh(fd);
    fd
}

fn accepted(handle: &Borrow, addr: *mut sockaddr, flags: c_int) -> Result<isize, i32> {
    let Object::Alg(socket) = handle.object() else { return Err(libc::EOPNOTSUPP) };
    if flags & !FLAGS != 0 {
        return Err(libc::EINVAL);
    }
    let op = socket.accept().map_err(number)?;
    if !addr.is_null() {
        // The new socket has no name, which the kernel finds out too late.
        return Err(libc::ECONNABORTED);
    }
    let lively = matches!(op.kind(), Some(Kind::Skcipher | Kind::Aead));
    publish(Object::Alg(op), lively, flags)
}

/// A call that operations of processes that are gone may have kept from its socket: they end without telling us.
fn unburied(once: impl Fn() -> Result<(), i32>) -> Result<(), i32> {
    match once() {
        Err(libc::EBUSY) if crate::reap::reap() => once(),
        done => done,
    }
}

fn set(handle: &Borrow, level: c_int, name: c_int, val: *const c_void, len: socklen_t) -> Result<isize, i32> {
    let len = usize::try_from(len as i32).map_err(|_| libc::EINVAL)?;
    // AF_ALG gives meaning to a length without a value (ALG_SET_AEAD_AUTHSIZE); an option that needs it finds out when it
    // looks at it, as the kernel does.
    // SAFETY: the program's value.
    let bytes = if val.is_null() { None } else { unsafe { user::bytes(val, len) }.ok() };
    let caller = sys::caller();
    let once = || match handle.object() {
        Object::Alg(socket) => socket.setsockopt(level, name, bytes, len, caller).map_err(number),
        Object::Netlink(socket) => socket.setsockopt(level, name, bytes, len, caller).map_err(number),
    };
    unburied(once).map(|()| 0)
}

unsafe fn get(handle: &Borrow, level: c_int, name: c_int, val: *mut c_void, len: *mut socklen_t) -> Result<isize, i32> {
    // SAFETY: the program's pointers.
    unsafe {
        let room = usize::try_from(user::read(len)? as i32).map_err(|_| libc::EINVAL)?;
        let out = user::bytes_mut(val, room)?;
        let n = match handle.object() {
            Object::Alg(socket) => socket.getsockopt(level, name, out),
            Object::Netlink(socket) => socket.getsockopt(level, name, out),
        }
        .map_err(number)?;
        user::write(len, n as socklen_t)?;
    }
    Ok(0)
}

/// An address that a call takes.
unsafe fn address<'a>(addr: *const sockaddr, len: socklen_t) -> Result<&'a [u8], i32> {
    if len > size_of::<libc::sockaddr_storage>() as socklen_t {
        return Err(libc::EINVAL);
    }
    // SAFETY: the program's pointer.
    unsafe { user::bytes(addr.cast(), len as usize) }
}

/// Hands a name out, cut to the room there is.
unsafe fn name_out(name: &[u8], addr: *mut sockaddr, len: *mut socklen_t) -> Result<isize, i32> {
    // SAFETY: the program's pointers.
    unsafe {
        let room = usize::try_from(user::read(len)? as i32).map_err(|_| libc::EINVAL)?;
        let n = room.min(name.len());
        user::bytes_mut(addr.cast(), n)?.copy_from_slice(&name[..n]);
        user::write(len, name.len() as socklen_t)?;
    }
    Ok(0)
}

/// The port that a netlink socket gets when it asks for any: the process's id, as the kernel gives it first.
pub(crate) fn port_or_own(port: u32) -> u32 {
    if port == 0 { sys::getpid() } else { port }
}

fn netlink(handle: &Borrow) -> Result<&CryptoUser, i32> {
    match handle.object() {
        Object::Netlink(socket) => Ok(socket),
        Object::Alg(_) => Err(libc::EOPNOTSUPP),
    }
}

hook! {
    /// `bind(2)`.
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, fd |h| {
        // SAFETY: the program's address.
        let addr = unsafe { address(addr, len) }?;
        match h.object() {
            Object::Alg(socket) => unburied(|| socket.bind(addr, sys::caller()).map_err(number))?,
            Object::Netlink(socket) => {
                // struct sockaddr_nl: family, padding, port, groups.
                let port = addr.get(4..8).and_then(|p| p.first_chunk()).ok_or(libc::EINVAL)?;
                socket.set_port(port_or_own(u32::from_ne_bytes(*port)));
            }
        }
        Ok(0)
    };
    /// `accept(2)`.
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| accepted(h, addr, 0);
    /// `accept4(2)`.
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, fd |h| {
        accepted(h, addr, flags)
    };
    /// `setsockopt(2)`.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, val: *const c_void, len: socklen_t) -> c_int, fd |h| {
        set(h, level, name, val, len)
    };
    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, val: *mut c_void, len: *mut socklen_t) -> c_int, fd |h| {
        // SAFETY: the program's pointers.
        unsafe { get(h, level, name, val, len) }
    };
    /// `getsockname(2)`.
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| {
        let mut name = [0u8; 12];
        name[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        name[4..8].copy_from_slice(&netlink(h)?.port().to_ne_bytes());
        // SAFETY: the program's pointers.
        unsafe { name_out(&name, addr, len) }
    };
    /// `getpeername(2)`.
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| {
        netlink(h)?;
        let mut kernel = [0u8; 12];
        kernel[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
        // SAFETY: the program's pointers.
        unsafe { name_out(&kernel, addr, len) }
    };
    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int, fd |h| {
        let _ = (h, backlog);
        Err(libc::EOPNOTSUPP)
    };
    /// `connect(2)`: only a netlink socket has somebody to connect to, the kernel.
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, fd |h| {
        // SAFETY: the program's address.
        let addr = unsafe { address(addr, len) }?;
        let socket = netlink(h)?;
        if addr.len() < 2 {
            return Err(libc::EINVAL);
        }
        if socket.port() == 0 {
            socket.set_port(port_or_own(0));
        }
        Ok(0)
    };
    /// `shutdown(2)`.
    fn shutdown(fd: c_int, how: c_int) -> c_int, fd |h| {
        let _ = (h, how);
        Err(libc::EOPNOTSUPP)
    };
}
