//! Sockets of any kind, and their options.

use super::transient;
use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::FromBytes;

/// Opens a socket, close-on-exec, so that programs we start do not inherit it. `kind` may include `SOCK_NONBLOCK`.
///
/// # Errors
/// The kernel's.
pub fn open(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::from_raw(family as u16), SocketType::from_raw(kind as u32));
    let protocol = NonZeroU32::new(protocol as u32).map(Protocol::from_raw);
    transient::counted(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map_err(io::Error::from))
}

/// Binds a packet socket to a device, for frames of `protocol` (`ETH_P_*`; 0 for none).
///
/// # Errors
/// The kernel's.
pub fn bind_to_device(fd: BorrowedFd<'_>, protocol: u16, device: u32) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: device as i32,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let (at, len) = ((&raw const address).cast(), size_of_val(&address) as libc::socklen_t);
    // SAFETY: the kernel reads this many bytes of a live value.
    let r = unsafe { libc::bind(fd.as_raw_fd(), at, len) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets a socket option from a plain-data value. If it has the addresses of others, the caller answers for what the kernel does there.
///
/// # Errors
/// The kernel's.
pub fn set_option<T: ?Sized>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (at, len) = ((&raw const *value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel reads this many bytes of a live value.
    let r = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, at, len) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a socket option. Bytes that the kernel does not write are zero.
///
/// # Errors
/// The kernel's.
pub fn option<T: FromBytes>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::new_zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a local, which may have any bytes.
    let r = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Reads an `i32` socket option; `None` where the socket has no such option.
pub fn int_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> Option<i32> {
    option(fd, level, name).ok()
}

/// Sends bytes over a socket; repeats the call when a signal interrupts it.
///
/// # Errors
/// The kernel's.
pub fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let sent = rustix::io::retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::empty()));
    transient::counted(sent.map_err(io::Error::from))
}
