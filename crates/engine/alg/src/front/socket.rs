//! socket, bind, accept, options, names, ioctl.

use super::object::{Object, netlink_address};
use super::program::{Descriptor, Memory};
use crate::{CryptoUser, Socket, System};
use lock_api::RawMutex;
use sealane_abi::Errno;
use sealane_abi::netlink::SockaddrNl;
use sealane_abi::socket::{
    AF_ALG, SOCK_CLOEXEC, SOCK_NONBLOCK, SOCK_TYPE_MASK, SOCKADDR_STORAGE_LEN, is_device_ioctl, is_generic_ioctl,
};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// The largest option value that getsockopt gives, in bytes.
const MAX_OPTION: usize = 128;

/// `socket(2)` with the family AF_ALG, or AF_NETLINK with NETLINK_CRYPTO. `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are left
/// to the caller.
///
/// # Errors
/// `EINVAL` for unknown flags, [`Socket::create`]'s, [`CryptoUser::create`]'s and those of `system`.
pub fn socket<L: RawMutex, F: From<Errno>>(
    domain: i32,
    type_: i32,
    protocol: i32,
    system: impl FnOnce() -> Result<Arc<System>, F>,
) -> Result<Object<L>, F> {
    if type_ & !(SOCK_TYPE_MASK | SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let (system, type_) = (system()?, type_ & SOCK_TYPE_MASK);
    Ok(match domain {
        AF_ALG => Object::Alg(Socket::create(&system, type_, protocol)?),
        _ => Object::Netlink(CryptoUser::create(&system, type_, protocol)?),
    })
}

/// `accept4(2)`. `with_address`: the program wants the peer's address. `SOCK_NONBLOCK` and `SOCK_CLOEXEC` are left to
/// the caller.
///
/// # Errors
/// [`Socket::accept`]'s, `EOPNOTSUPP` for a netlink socket, `EINVAL` for unknown flags, `ECONNABORTED` with an address.
pub fn accept<D: Descriptor>(d: &D, with_address: bool, flags: i32) -> Result<Object<D::Lock>, Errno> {
    let Object::Alg(socket) = d.object() else { return Err(Errno::EOPNOTSUPP) };
    if flags & !(SOCK_CLOEXEC | SOCK_NONBLOCK) != 0 {
        return Err(Errno::EINVAL);
    }
    let op = socket.accept(d.task())?;
    if with_address {
        // The new socket has no name, which the kernel finds out too late.
        return Err(Errno::ECONNABORTED);
    }
    Ok(Object::Alg(op))
}

/// Tries again after `EBUSY` if operations of processes that are gone may have caused it.
fn swept<D: Descriptor>(d: &D, once: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
    match once() {
        Err(Errno::EBUSY) if d.sweep() => once(),
        done => done,
    }
}

/// The length of an address that a call takes.
fn address_len(len: u32) -> Result<usize, Errno> {
    usize::try_from(len).ok().filter(|len| *len <= SOCKADDR_STORAGE_LEN).ok_or(Errno::EINVAL)
}

/// `bind(2)`.
///
/// # Errors
/// [`Socket::bind`]'s; `EINVAL` and `EFAULT` for the address.
pub fn bind<D: Descriptor>(d: &D, addr: u64, len: u32) -> Result<(), D::Failure> {
    d.input(addr, address_len(len)?, |addr| match d.object() {
        Object::Alg(socket) => swept(d, || socket.bind(d.task(), addr, d.caller())),
        Object::Netlink(socket) => {
            let port = addr.get(4..8).and_then(|p| p.first_chunk()).ok_or(Errno::EINVAL)?;
            socket.set_port(match u32::from_ne_bytes(*port) {
                0 => d.own_port(),
                port => port,
            });
            Ok(())
        }
    })??;
    Ok(())
}

/// `connect(2)`: only a netlink socket has a peer, the kernel.
///
/// # Errors
/// `EOPNOTSUPP` for AF_ALG; `EINVAL` and `EFAULT` for the address.
pub fn connect<D: Descriptor>(d: &D, addr: u64, len: u32) -> Result<(), D::Failure> {
    let len = address_len(len)?;
    d.input(addr, len, |_| ())?;
    let Object::Netlink(socket) = d.object() else { return Err(Errno::EOPNOTSUPP.into()) };
    if len < 2 {
        return Err(Errno::EINVAL.into());
    }
    if socket.port() == 0 {
        socket.set_port(d.own_port());
    }
    Ok(())
}

/// `setsockopt(2)`.
///
/// # Errors
/// [`Socket::setsockopt`]'s, [`CryptoUser::setsockopt`]'s; `EINVAL` for a negative length.
pub fn setsockopt<D: Descriptor>(d: &D, level: i32, name: i32, val: u64, len: u32) -> Result<(), D::Failure> {
    let len = usize::try_from(len as i32).map_err(|_| Errno::EINVAL)?;
    let caller = d.caller();
    let set = |val: Option<&[u8]>| {
        swept(d, || match d.object() {
            Object::Alg(socket) => socket.setsockopt(d.task(), level, name, val, len, caller),
            Object::Netlink(socket) => socket.setsockopt(level, name, val, len, caller),
        })
    };
    // AF_ALG gives meaning to a length without a value (ALG_SET_AEAD_AUTHSIZE); an option that needs the value fails
    // when it looks at it, as in the kernel.
    let done = match val {
        0 => set(None),
        // A longer value is refused by its length alone.
        at => d.input(at, len.min(D::MAX_INPUT), |val| set(Some(val))).unwrap_or_else(|_| set(None)),
    };
    Ok(done?)
}

/// `getsockopt(2)`.
///
/// # Errors
/// [`Socket::getsockopt`]'s, [`CryptoUser::getsockopt`]'s; `EINVAL` for a negative length, `EFAULT`.
pub fn getsockopt<D: Descriptor>(d: &D, level: i32, name: i32, val: u64, len: u64) -> Result<(), D::Failure> {
    let room = room(d, len)?;
    let mut out = [0; MAX_OPTION];
    let out = &mut out[..room.min(MAX_OPTION)];
    let n = match d.object() {
        Object::Alg(socket) => socket.getsockopt(level, name, out)?,
        Object::Netlink(socket) => socket.getsockopt(level, name, out)?,
    };
    d.write(val, &out[..n])?;
    d.write(len, &(n as u32).to_ne_bytes())
}

/// Reads the room that a program has for an answer, in bytes.
fn room<M: Memory>(memory: &M, len: u64) -> Result<usize, M::Failure> {
    Ok(usize::try_from(i32::from_ne_bytes(memory.read(len)?)).map_err(|_| Errno::EINVAL)?)
}

/// Stores an address, cut to the room for it, and its length.
pub(super) fn address_out<M: Memory>(
    memory: &M,
    address: Option<SockaddrNl>,
    addr: u64,
    len: u64,
) -> Result<(), M::Failure> {
    let address = address.as_ref().map_or(&[][..], |address| address.as_bytes());
    let room = room(memory, len)?.min(address.len());
    memory.write(addr, &address[..room])?;
    memory.write(len, &(address.len() as u32).to_ne_bytes())
}

/// `getsockname(2)`.
///
/// # Errors
/// `EOPNOTSUPP` for AF_ALG; `EINVAL`, `EFAULT`.
pub fn getsockname<D: Descriptor>(d: &D, addr: u64, len: u64) -> Result<(), D::Failure> {
    let Object::Netlink(socket) = d.object() else { return Err(Errno::EOPNOTSUPP.into()) };
    address_out(d, Some(netlink_address(socket.port())), addr, len)
}

/// `getpeername(2)`.
///
/// # Errors
/// `EOPNOTSUPP` for AF_ALG; `EINVAL`, `EFAULT`.
pub fn getpeername<D: Descriptor>(d: &D, addr: u64, len: u64) -> Result<(), D::Failure> {
    let Object::Netlink(_) = d.object() else { return Err(Errno::EOPNOTSUPP.into()) };
    address_out(d, Some(netlink_address(0)), addr, len)
}

/// `ioctl(2)`: whether the kernel may serve the request on the descriptor's native socket.
///
/// # Errors
/// `EOPNOTSUPP` and `ENOTTY` for requests that neither family has.
pub fn ioctl<D: Descriptor>(d: &D, request: u32) -> Result<(), Errno> {
    match d.object() {
        _ if is_generic_ioctl(request) => Ok(()),
        Object::Alg(_) => Err(Errno::EOPNOTSUPP),
        Object::Netlink(_) if is_device_ioctl(request) => Ok(()),
        Object::Netlink(_) => Err(Errno::ENOTTY),
    }
}
