//! socket, bind, accept, options, names.

use super::aside::stands_aside;
use super::hook::hook;
use super::settled;
use crate::entry::{guarded, real};
use crate::handle::{Handle, Object, Standin};
use crate::program::{LocalDescriptor, address};
use crate::{borrow, fork, share, standin, sys, system, table, thread};
use core::ffi::{c_int, c_void};
use libc::{sockaddr, socklen_t};
use sealane_abi::netlink::NETLINK_CRYPTO;
use sealane_abi::socket::SOCK_TYPE_MASK;
use sealane_engine_alg::front;

/// Makes an object in a home of its own, opens a stand-in and puts the object behind it.
fn publish(parent: *const Handle, flags: c_int, make: impl FnOnce() -> Result<Object, i32>) -> Result<isize, i32> {
    let fresh = table::fresh(fork::ensure()?, parent)?;
    let within = thread::within(fresh.handle().cast());
    let object = make()?;
    if let Some(family) = object.family().filter(|_| !parent.is_null()) {
        borrow::publish_for(fresh.as_handle(), Some(&family));
    }
    drop(within);
    let pollable = object.is_pollable();
    let fd = standin::open(pollable, flags)?;
    fresh
        .install(fd, object, flags & libc::SOCK_NONBLOCK != 0, Standin::new(pollable))
        .inspect_err(|_| sys::close(fd))?;
    Ok(fd as isize)
}

fn open(domain: c_int, type_: c_int, protocol: c_int) -> Result<isize, i32> {
    let system = system::get()?;
    publish(core::ptr::null(), type_ & !SOCK_TYPE_MASK, || front::socket(domain, type_, protocol, || Ok(system)))
}

/// `socket(2)`: AF_ALG and NETLINK_CRYPTO never reach the kernel, but where we stand aside.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn socket(domain: c_int, type_: c_int, protocol: c_int) -> c_int {
    if (domain == libc::AF_ALG || (domain == libc::AF_NETLINK && protocol == NETLINK_CRYPTO)) && !stands_aside() {
        return guarded(|| open(domain, type_, protocol)) as c_int;
    }
    let fd = real!(socket(domain: c_int, type_: c_int, protocol: c_int) -> c_int);
    super::fds::fresh(fd);
    fd
}

fn accepted(here: &LocalDescriptor<'_>, addr: *mut sockaddr, flags: c_int) -> Result<isize, i32> {
    publish(here.handle().as_ptr(), flags, || Ok(front::accept(here, !addr.is_null(), flags)?))
}

hook! {
    /// `bind(2)`.
    fn bind(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, fd |h| {
        share::refresh_operations(h.handle());
        front::bind(h, address(addr), len).map(|()| 0)
    };
    /// `accept(2)`.
    fn accept(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| accepted(h, addr, 0);
    /// `accept4(2)`.
    fn accept4(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, fd |h| {
        accepted(h, addr, flags)
    };
    /// `setsockopt(2)`.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, val: *const c_void, len: socklen_t) -> c_int, fd |h| {
        share::refresh_operations(h.handle());
        front::setsockopt(h, level, name, address(val), len).map(|()| 0)
    }, then |result| settled::option_set(level, name, result);
    /// `getsockopt(2)`.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, val: *mut c_void, len: *mut socklen_t) -> c_int, fd |h| {
        front::getsockopt(h, level, name, address(val), address(len)).map(|()| 0)
    };
    /// `getsockname(2)`.
    fn getsockname(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| {
        front::getsockname(h, address(addr), address(len)).map(|()| 0)
    };
    /// `getpeername(2)`.
    fn getpeername(fd: c_int, addr: *mut sockaddr, len: *mut socklen_t) -> c_int, fd |h| {
        front::getpeername(h, address(addr), address(len)).map(|()| 0)
    };
    /// `listen(2)`.
    fn listen(fd: c_int, backlog: c_int) -> c_int, fd |h| {
        let _ = (h, backlog);
        Err(libc::EOPNOTSUPP)
    };
    /// `connect(2)`.
    fn connect(fd: c_int, addr: *const sockaddr, len: socklen_t) -> c_int, fd |h| {
        front::connect(h, address(addr), len).map(|()| 0)
    }, then |result| settled::connected(result);
    /// `shutdown(2)`.
    fn shutdown(fd: c_int, how: c_int) -> c_int, fd |h| {
        let _ = (h, how);
        Err(libc::EOPNOTSUPP)
    };
}
