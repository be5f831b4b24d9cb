//! System calls, wrapped.
//!
//! Programs: `process`, `seccomp`, `peer`, `gone`, `mapping`, `keys`, `sleep`.
//! Sockets: `tcp_socket` (a program's), `sock_diag` (the kernel's tables), `usersock` (netlink between programs), `rights`
//! (who may).
//! Packets: `netlink` (messages), `nft` (rules), `nfqueue` (packets of the stack, and what becomes of them), `ring` (packets
//! of a device), `raw` and `frames` (sending), `tap` and `bpf` (giving back to the stack), `netns` and `link` (where),
//! `poll`, `fast_path` (the flows that earn it, and learnt link headers). IPsec: `tun` (plaintext), `esp` (sockets of ESP and AH, in UDP and without), `route` (which packets come to the TUN
//! device, addresses, paths), `nft::ipsec`, `nft::ingress` (what the stack leaves to a ring); gateways: `xdp` (which frames go
//! past the stack), `xsk` (the sockets that they go to), `hops` (whereto from there).

pub mod bpf;
mod cbpf;
pub mod clock;
pub mod cpu;
pub mod esp;
pub mod ethtool;
pub mod fast_path;
pub mod frames;
pub mod gone;
pub mod hops;
pub mod keys;
pub mod link;
pub mod mapping;
pub mod netlink;
pub mod netns;
pub mod nfqueue;
pub mod nft;
pub mod peer;
pub mod poll;
pub mod presence;
pub mod process;
pub mod random;
pub mod raw;
pub mod rights;
pub mod ring;
pub mod route;
pub mod runtime;
pub mod seccomp;
pub mod shard;
pub mod sleep;
pub mod sock_diag;
pub mod tap;
pub mod tcp_socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod tun;
pub mod unix;
pub mod usersock;
pub mod xdp;
pub mod xsk;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The first `len` of 128 bits, all of them where that is more.
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

/// Opens a socket, which no program that we start gets. `kind` may have `SOCK_NONBLOCK` in it.
fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: plain values; the descriptor is new and ours.
    unsafe {
        let fd = libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Binds a socket to an address, which is the structure of its family.
fn bind<T: Copy>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    // SAFETY: the kernel reads this many bytes of a live value.
    let r = unsafe { libc::bind(fd.as_raw_fd(), (&raw const *address).cast(), size_of::<T>() as libc::socklen_t) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Sets a socket option to a value of plain memory.
fn set_option<T: Copy>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads this many bytes of a live value.
    let r = unsafe {
        libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), size_of::<T>() as libc::socklen_t)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// An option of a socket that is an `i32`; `None` where the socket has no such option.
fn int_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> Option<i32> {
    let mut value: i32 = 0;
    let mut len = size_of::<i32>() as libc::socklen_t;
    // SAFETY: a local of the length that is told.
    let r = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    (r == 0).then_some(value)
}

/// Sends bytes over a socket, again after a signal.
fn send(fd: BorrowedFd<'_>, bytes: &[u8], flags: i32) -> io::Result<usize> {
    loop {
        // SAFETY: the kernel reads live bytes.
        let n = unsafe { libc::send(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
        if let Ok(n) = usize::try_from(n) {
            return Ok(n);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}

/// Sends messages, without waiting; one that the kernel refuses is left out.
///
/// # Safety
/// Every pointer in `headers` is to memory of the length beside it that lives until the call returns.
unsafe fn send_many(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], sent: &mut raw::Sent) {
    let mut rest = headers;
    while !rest.is_empty() {
        // SAFETY: the caller's promise; the kernel only reads the memory, and writes lengths into the headers.
        let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) };
        let done = usize::try_from(n).unwrap_or(0);
        sent.taken += done;
        rest = &mut rest[done..];
        if done == 0 {
            if io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            // The first of them failed. When there is no room, there is none for the others either.
            sent.refused += 1;
            rest = &mut rest[1..];
        }
    }
}
