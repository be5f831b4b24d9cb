//! Safe wrappers of the system calls that the daemon and the launcher make. Of their crates, only this one has unsafe
//! code.
//!
//! - Served programs: `process` (start and wait), `loader` (what programs take a library), `seccomp` (the filter and its
//!   notifications), `older_filters` (those of containers and units), `thread` (a caller's memory and descriptors),
//!   `proc_folder` (files about a process that it names), `peer` (its stand-ins), `rights` (its capabilities), `gone` (when its files are closed), `keys` (keyrings).
//! - A process of ours that serves others: `confine` (what it cannot do any more).
//! - Memory and threads: `mapping`, `slots` (shared with a client of ours), `cpu`, `sleep`, `poll`, `life` (threads that hang), `aside` (jobs that a worker
//!   cannot wait for), `clock`, `random`.
//! - Sockets: `tcp_socket` (a program's), `sock_diag` and `udp_table` (the kernel's tables), `usersock` (netlink between programs),
//!   `unix`, `stream` (a key manager's TCP connection with IKE and ESP).
//! - Network configuration: `netlink` (messages), `netns` and `named_netns` (namespaces), `link` and `ethtool` (devices), `vrf`, `families`, `route`
//!   (rules, routes, the ways of flows, addresses), `hops` (next hops and neighbours), `marks` (of packets).
//! - Packets through the stack: `nfqueue` (queued packets and their verdicts), `raw` (sending), `tun` (plaintext of
//!   IPsec), `tap` and `bpf` (returning packets to the stack), `esp` (ESP and AH, plain and in UDP), `shard`
//!   (distribution over workers), `udp_group` (ports shared with key managers).
//! - Packets past the stack: `ring` (receiving from a device), `frames` (sending), `fast_path` (which flows use them),
//!   and for gateways `xdp` (the program that selects frames) and `xsk` (the sockets that get them).
//! - Errors that pass by themselves: `transient`.
//! - Files: `runtime` (the folder for sockets and state), `presence` (which namespaces are served).
//! - Namespaces that come and go: `found` (those that are served because their names match a pattern).

pub mod aside;
pub mod bpf;
mod cbpf;
pub mod clock;
pub mod confine;
pub mod cpu;
pub mod esp;
pub mod ethtool;
pub mod families;
pub mod fast_path;
pub mod forks;
pub mod found;
pub mod frames;
pub mod gone;
pub mod hops;
pub mod interrupt;
pub mod keys;
pub mod life;
pub mod link;
pub mod listening;
pub mod loader;
pub mod mapping;
pub mod marks;
pub mod named_netns;
pub mod netconf;
pub mod netlink;
pub mod netns;
pub mod nfqueue;
pub mod noted_calls;
pub mod older_filters;
pub mod peer;
pub mod poll;
pub mod presence;
pub mod proc_folder;
pub mod process;
pub mod random;
pub mod raw;
mod refusal;
pub mod rights;
pub mod ring;
pub mod route;
pub mod runtime;
pub mod seccomp;
mod sent;
pub mod shard;
pub mod sleep;
pub mod slots;
pub mod sock_diag;
pub mod stream;
pub mod tap;
pub mod tcp_socket;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod thread;
pub mod transient;
pub mod tun;
pub mod udp_group;
pub mod udp_table;
pub mod unix;
pub mod usersock;
pub mod vrf;
pub mod vti;
pub mod xdp;
pub mod xsk;

use rustix::net::{AddressFamily, Protocol, SendFlags, SocketFlags, SocketType};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use zerocopy::FromBytes;

/// A mask of the upper `len` of 128 bits; all bits if `len` is larger.
pub fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)
}

/// Opens a socket, close-on-exec, so that programs we start do not inherit it. `kind` may include `SOCK_NONBLOCK`.
fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::from_raw(family as u16), SocketType::from_raw(kind as u32));
    let protocol = NonZeroU32::new(protocol as u32).map(Protocol::from_raw);
    transient::counted(rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, protocol).map_err(io::Error::from))
}

/// Binds a packet socket to a device, for frames of `protocol` (`ETH_P_*`; 0 for none).
fn bind_to_device(fd: BorrowedFd<'_>, protocol: u16, device: u32) -> io::Result<()> {
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

/// Sets a socket option from a plain-data value.
fn set_option<T: ?Sized>(fd: BorrowedFd<'_>, level: i32, option: i32, value: &T) -> io::Result<()> {
    let (at, len) = ((&raw const *value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel reads this many bytes of a live value.
    let r = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, at, len) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Reads a socket option. Bytes that the kernel does not write are zero.
fn option<T: FromBytes>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<T> {
    let mut value = T::new_zeroed();
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a local, which may have any bytes.
    let r = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(value) }
}

/// Reads an `i32` socket option; `None` where the socket has no such option.
fn int_option(fd: BorrowedFd<'_>, level: i32, name: i32) -> Option<i32> {
    option(fd, level, name).ok()
}

/// Sends bytes over a socket; repeats the call when a signal interrupts it.
fn send(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let sent = rustix::io::retry_on_intr(|| rustix::net::send(fd, bytes, SendFlags::empty()));
    transient::counted(sent.map_err(io::Error::from))
}

/// Sends messages without waiting; skips those that the kernel refuses.
///
/// # Safety
/// Every pointer in `headers` points to memory of the length beside it that lives until the call returns.
unsafe fn send_many(fd: BorrowedFd<'_>, headers: &mut [libc::mmsghdr], sent: &mut sent::Sent) {
    let mut rest = headers;
    while !rest.is_empty() {
        // SAFETY: the caller's promise; the kernel only reads the memory, and writes lengths into the headers.
        let n = unsafe { libc::sendmmsg(fd.as_raw_fd(), rest.as_mut_ptr(), rest.len() as u32, libc::MSG_DONTWAIT) };
        let done = usize::try_from(n).unwrap_or(0);
        sent.taken += done;
        rest = &mut rest[done..];
        if done == 0 {
            let error = io::Error::last_os_error();
            if error.raw_os_error() == Some(libc::EINTR) {
                continue;
            }
            transient::count(&error);
            // The first message failed. A full buffer is full for the others too.
            sent.refused += 1;
            rest = &mut rest[1..];
        }
    }
}
