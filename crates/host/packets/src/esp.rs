//! Sockets that carry ESP and AH: in UDP with superframes both ways (`UDP_SEGMENT`, `UDP_GRO`), and raw ones.

use super::shard::Shard;
use arrayvec::ArrayVec;
use parking_lot::Mutex;
use sealane_sys::socket;
use sealane_sys::transient;
use sealane_wire::outer::OuterHeader;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Size of a socket's buffers in bytes.
const BUFFER: i32 = 8 << 20;

/// The most datagrams in one superframe that every kernel accepts (`UDP_MAX_SEGMENTS`).
pub const MAX_SEGMENTS: usize = 64;

/// `UDP_SEGMENT` and `UDP_GRO` of `linux/udp.h`.
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// Control messages with the extension headers of a received IPv6 packet (RFC 3542). The option that asks for each is
/// one less.
const IPV6_HOPOPTS: i32 = 54;
const IPV6_RTHDR: i32 = 57;
const IPV6_DSTOPTS: i32 = 59;
/// The most bytes of extension headers that are kept.
const MAX_EXTENSIONS: usize = 256;
const AH: u8 = 51;

const CONTROL_LEN: usize = 512;

/// A buffer for control messages.
#[repr(C, align(8))]
struct Control([u8; CONTROL_LEN]);

/// The metadata of one read.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// Bytes read.
    pub len: usize,
    /// Length of each datagram but the last.
    pub segment: usize,
    /// The peer's port; 0 without UDP.
    pub port: u16,
    /// The outer headers, without ports.
    pub outer: OuterHeader,
    /// For AH over IPv6, the type of the first extension header.
    pub first: Option<u8>,
    /// The device that the packet arrived at; 0 if unknown.
    pub device: u32,
    /// The packet's mark; 0 if the kernel does not report it, before Linux 5.19.
    pub mark: u32,
}

/// A socket for ESP in UDP, bound to a port.
#[derive(Debug)]
pub struct UdpEsp {
    fd: OwnedFd,
    /// The address, unspecified where it is bound to all, and the port.
    at: SocketAddr,
    /// Whether datagrams longer than the path's MTU are fragmented. The lock is held while a thread sends.
    fragments: Mutex<bool>,
}

fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    socket::open(family, kind | libc::SOCK_NONBLOCK, protocol)
}

/// Sets the mark, the buffers and the reported header fields of either kind of socket.
fn prepare(fd: BorrowedFd<'_>, v6: bool, mark: u32) -> io::Result<()> {
    let set = |level, option, value: i32| socket::set_option(fd, level, option, &value);
    socket::set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    let _ = tell_marks(fd);
    set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER)?;
    set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, BUFFER)?;
    if v6 {
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
        set(libc::IPPROTO_IPV6, libc::IPV6_RECVHOPLIMIT, 1)
    } else {
        set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        set(libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
        set(libc::IPPROTO_IP, libc::IP_RECVTTL, 1)
    }
}

/// Has a socket report the marks of packets.
fn tell_marks(fd: BorrowedFd<'_>) -> io::Result<()> {
    const SO_RCVMARK: i32 = 75;
    socket::set_option(fd, libc::SOL_SOCKET, SO_RCVMARK, &1i32)
}

pub(super) fn allow_fragments(fd: BorrowedFd<'_>, v6: bool, allow: bool) -> io::Result<()> {
    // The engine tracks the path's MTU itself. The kernel's value for this destination may be one that we reported for
    // packets before encryption, so it must not limit packets after encryption.
    let (level, option, value) = match (v6, allow) {
        (false, true) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT),
        (false, false) => (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE),
        (true, true) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT),
        (true, false) => (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE),
    };
    socket::set_option(fd, level, option, &value)
}

/// A socket address.
#[repr(C)]
union Address {
    v4: libc::sockaddr_in,
    v6: libc::sockaddr_in6,
}

fn address(to: IpAddr, port: u16) -> (Address, libc::socklen_t) {
    match to {
        IpAddr::V4(to) => {
            let v4 = libc::sockaddr_in {
                sin_family: libc::AF_INET as u16,
                sin_port: port.to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(to.octets()) },
                sin_zero: [0; 8],
            };
            (Address { v4 }, size_of::<libc::sockaddr_in>() as libc::socklen_t)
        }
        IpAddr::V6(to) => {
            let v6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as u16,
                sin6_port: port.to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: to.octets() },
                sin6_scope_id: 0,
            };
            (Address { v6 }, size_of::<libc::sockaddr_in6>() as libc::socklen_t)
        }
    }
}

/// Opens a UDP socket for an address, which others may bind too if they share it (`SO_REUSEPORT`).
pub(super) fn bound(at: SocketAddr) -> io::Result<OwnedFd> {
    let fd = socket(if at.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET }, libc::SOCK_DGRAM, 0)?;
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, &1i32)?;
    if at.is_ipv6() {
        socket::set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, &1i32)?;
    }
    rustix::net::bind(&fd, &at)?;
    Ok(fd)
}

impl UdpEsp {
    /// Opens a socket for a port of an address or of all, which it shares with an IKE daemon that sets `SO_REUSEPORT`. Which
    /// datagrams it gets its [group](super::udp_group::UdpGroup) tells the kernel.
    ///
    /// # Errors
    /// The kernel's; `EADDRINUSE` when another socket has the port without `SO_REUSEPORT`.
    pub(super) fn open(at: SocketAddr, mark: u32) -> io::Result<Self> {
        let fd = bound(at)?;
        prepare(fd.as_fd(), at.is_ipv6(), mark)?;
        // Without this option the kernel delivers packets one by one.
        let _ = socket::set_option(fd.as_fd(), libc::IPPROTO_UDP, UDP_GRO, &1i32);
        allow_fragments(fd.as_fd(), at.is_ipv6(), false)?;
        Ok(UdpEsp { fd, at, fragments: Mutex::new(false) })
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.at.port()
    }

    /// The address and port that it is bound to.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Whether this is an IPv6 socket.
    pub fn is_v6(&self) -> bool {
        self.at.is_ipv6()
    }

    /// Reads one superframe.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Option<Received>> {
        receive(self.fd.as_fd(), buf)
    }

    /// Sends datagrams, all of one length except the last, with these headers. The source port is the socket's own. Unless it is 0, `device`
    /// limits the device that they may leave through.
    ///
    /// # Errors
    /// The kernel's: `EMSGSIZE` when a datagram is longer than the path's MTU.
    ///
    /// # Panics
    /// When there are more than [`MAX_SEGMENTS`].
    pub fn send(&self, outer: &OuterHeader, device: u32, datagrams: &[&[u8]]) -> io::Result<()> {
        let fragments = !outer.dont_fragment;
        // Several threads send through this socket.
        let mut now = self.fragments.lock();
        if *now != fragments {
            allow_fragments(self.fd.as_fd(), self.is_v6(), fragments)?;
            *now = fragments;
        }
        let segment = (datagrams.len() > 1).then(|| datagrams[0].len() as u16);
        send(self.fd.as_fd(), outer, device, datagrams, segment)
    }
}

impl AsFd for UdpEsp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A raw socket that receives all packets of a protocol, after reassembly.
#[derive(Debug)]
pub struct RawEsp {
    fd: OwnedFd,
    v6: bool,
    protocol: u8,
    /// Makes the kernel learn the MTU of paths.
    _errors: Option<OwnedFd>,
}

/// A socket that receives nothing, and for whose sake the kernel believes a router's Packet Too Big about a protocol of
/// IPv6: without a protocol handler of its own it does so only if a raw socket asks for errors (`net/ipv6/raw.c`,
/// `rawv6_err`). What it then queues for this socket nobody reads; it queues as much as the smallest buffer holds.
fn errors(protocol: u8, mark: u32) -> io::Result<OwnedFd> {
    let fd = socket(libc::AF_INET6, libc::SOCK_RAW, protocol.into())?;
    let mut program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];
    let filter = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
    // The MTU is noted with the route that packets with this mark take.
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &1i32)?;
    socket::set_option(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, &1i32)?;
    Ok(fd)
}

impl RawEsp {
    /// Opens a socket for the states of one worker.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(v6: bool, protocol: u8, mark: u32, shard: Shard) -> io::Result<Self> {
        let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let fd = socket(family, libc::SOCK_RAW, protocol.into())?;
        if shard != Shard::ALL {
            let mut program = shard.filter(v6, if protocol == AH { 4 } else { 0 });
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &filter)?;
        }
        prepare(fd.as_fd(), v6, mark)?;
        if v6 && protocol == AH {
            // The ICV of AH covers these headers.
            for option in [IPV6_HOPOPTS, IPV6_RTHDR, IPV6_DSTOPTS] {
                socket::set_option(fd.as_fd(), libc::IPPROTO_IPV6, option - 1, &1i32)?;
            }
        }
        // One for each protocol is enough.
        let errors = if v6 && shard.index == 0 { Some(errors(protocol, mark)?) } else { None };
        Ok(RawEsp { fd, v6, protocol, _errors: errors })
    }

    /// The protocol.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// Whether this is an IPv6 socket, which does not return IP headers.
    pub fn is_v6(&self) -> bool {
        self.v6
    }

    /// Makes sure that the marks of packets are reported.
    ///
    /// # Errors
    /// The kernel's: `ENOPROTOOPT` before Linux 5.19.
    pub fn tell_marks(&self) -> io::Result<()> {
        tell_marks(self.fd.as_fd())
    }

    /// Reads one packet; over IPv4 it includes the IP header.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Option<Received>> {
        receive(self.fd.as_fd(), buf)
    }

    /// Sends an IP payload, in fragments if necessary.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send_fragmented(&self, outer: &OuterHeader, device: u32, payload: &[u8]) -> io::Result<()> {
        allow_fragments(self.fd.as_fd(), self.v6, true)?;
        send(self.fd.as_fd(), &OuterHeader { ports: None, ..*outer }, device, &[payload], None)
    }
}

impl AsFd for RawEsp {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Appends a control message; returns the length so far.
///
/// # Safety
/// `control` has room for the message after its first `len` bytes, which hold the messages before it.
unsafe fn push<T: Copy>(control: &mut Control, len: usize, level: i32, kind: i32, value: T) -> usize {
    // SAFETY: the caller's promise; the buffer is aligned for a header, and messages are padded to that alignment.
    unsafe {
        let header = control.0.as_mut_ptr().add(len).cast::<libc::cmsghdr>();
        (*header).cmsg_level = level;
        (*header).cmsg_type = kind;
        (*header).cmsg_len = libc::CMSG_LEN(size_of::<T>() as u32) as usize;
        header.cast::<u8>().add(libc::CMSG_LEN(0) as usize).cast::<T>().write_unaligned(value);
        len + libc::CMSG_SPACE(size_of::<T>() as u32) as usize
    }
}

fn send(
    fd: BorrowedFd<'_>,
    outer: &OuterHeader,
    device: u32,
    pieces: &[&[u8]],
    segment: Option<u16>,
) -> io::Result<()> {
    let (mut to, to_len) = address(outer.destination, outer.ports.map_or(0, |(_, destination)| destination));
    let mut control = Control([0; CONTROL_LEN]);
    let mut len = 0;
    // SAFETY: five messages of at most 40 bytes each.
    unsafe {
        match outer.source {
            IpAddr::V4(source) => {
                let addr = libc::in_addr { s_addr: u32::from_ne_bytes(source.octets()) };
                let none = libc::in_addr { s_addr: 0 };
                let info = libc::in_pktinfo { ipi_ifindex: device as i32, ipi_spec_dst: addr, ipi_addr: none };
                len = push(&mut control, len, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
                len = push(&mut control, len, libc::IPPROTO_IP, libc::IP_TOS, i32::from(outer.tos));
                len = push(&mut control, len, libc::IPPROTO_IP, libc::IP_TTL, i32::from(outer.ttl));
            }
            IpAddr::V6(source) => {
                let addr = libc::in6_addr { s6_addr: source.octets() };
                let info = libc::in6_pktinfo { ipi6_addr: addr, ipi6_ifindex: device };
                len = push(&mut control, len, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
                len = push(&mut control, len, libc::IPPROTO_IPV6, libc::IPV6_TCLASS, i32::from(outer.tos));
                len = push(&mut control, len, libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, i32::from(outer.ttl));
            }
        }
        if let Some(segment) = segment {
            len = push(&mut control, len, libc::IPPROTO_UDP, UDP_SEGMENT, segment);
        }
    }
    let mut iovecs = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MAX_SEGMENTS];
    for (iovec, piece) in iovecs[..pieces.len()].iter_mut().zip(pieces) {
        *iovec = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
    }
    // SAFETY: all-zero is a valid header.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_name = (&raw mut to).cast();
    message.msg_namelen = to_len;
    message.msg_iov = iovecs.as_mut_ptr();
    message.msg_iovlen = pieces.len();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = len;
    loop {
        // SAFETY: address, control messages and pieces live until the call returns and are only read.
        if unsafe { libc::sendmsg(fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            transient::count(&error);
            return Err(error);
        }
    }
}

fn receive(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<Received>> {
    let mut control = Control([0; CONTROL_LEN]);
    // SAFETY: all-zero values of these are valid.
    let (mut from, mut message): (Address, libc::msghdr) = unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    let mut iovec = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    message.msg_name = (&raw mut from).cast();
    message.msg_namelen = size_of::<Address>() as libc::socklen_t;
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of::<Control>();
    let len = loop {
        // SAFETY: all buffers live until the call returns and are writable for the stated lengths.
        let n = unsafe { libc::recvmsg(fd.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        if let Ok(n) = usize::try_from(n) {
            break n;
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN) => return Ok(None),
            // An ICMP error about an earlier packet, which does not affect receiving.
            Some(libc::EINTR | libc::ECONNREFUSED | libc::EHOSTUNREACH | libc::ENETUNREACH | libc::EMSGSIZE) => {}
            // The socket stays readable, if there is anything to read.
            _ if transient::count(&error) => return Ok(None),
            _ => return Err(error),
        }
    };
    // SAFETY: the kernel wrote an address of either family, whose first member says which.
    let (source, port) = unsafe {
        if i32::from(from.v4.sin_family) == libc::AF_INET6 {
            (IpAddr::from(from.v6.sin6_addr.s6_addr), u16::from_be(from.v6.sin6_port))
        } else {
            (IpAddr::from(from.v4.sin_addr.s_addr.to_ne_bytes()), u16::from_be(from.v4.sin_port))
        }
    };
    let mut outer =
        OuterHeader { source, destination: source, tos: 0, ttl: 64, dont_fragment: false, ports: None, tcp: false };
    let (mut len, mut segment) = (len, len);
    let (mut first, mut extensions) = (None, ArrayVec::<u8, MAX_EXTENSIONS>::new());
    let (mut device, mut mark) = (0, 0);
    // SAFETY: the kernel wrote whole messages into the buffer and set its length; each is read according to its type.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = data.cast::<libc::in_pktinfo>().read_unaligned();
                    outer.destination = IpAddr::from(info.ipi_addr.s_addr.to_ne_bytes());
                    device = info.ipi_ifindex as u32;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info = data.cast::<libc::in6_pktinfo>().read_unaligned();
                    outer.destination = IpAddr::from(info.ipi6_addr.s6_addr);
                    device = info.ipi6_ifindex;
                }
                (libc::IPPROTO_IP, libc::IP_TOS) => outer.tos = data.read(),
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    outer.ttl = data.cast::<i32>().read_unaligned() as u8;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => outer.tos = data.cast::<i32>().read_unaligned() as u8,
                (libc::SOL_SOCKET, libc::SO_MARK) => mark = data.cast::<u32>().read_unaligned(),
                (libc::IPPROTO_IPV6, kind @ (IPV6_HOPOPTS | IPV6_RTHDR | IPV6_DSTOPTS)) => {
                    let len = (*at).cmsg_len.saturating_sub(libc::CMSG_LEN(0) as usize);
                    first = first.or(Some(match kind {
                        IPV6_HOPOPTS => libc::IPPROTO_HOPOPTS as u8,
                        IPV6_RTHDR => libc::IPPROTO_ROUTING as u8,
                        _ => libc::IPPROTO_DSTOPTS as u8,
                    }));
                    // If the headers do not fit, the packet fails verification: its ICV covers them.
                    let _ = extensions.try_extend_from_slice(core::slice::from_raw_parts(data, len));
                }
                (libc::IPPROTO_UDP, UDP_GRO) => segment = data.cast::<i32>().read_unaligned() as usize,
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
    }
    if !extensions.is_empty() && len + extensions.len() <= buf.len() {
        buf.copy_within(..len, extensions.len());
        buf[..extensions.len()].copy_from_slice(&extensions);
        len += extensions.len();
        segment = len;
    }
    Ok(Some(Received { len, segment: segment.max(1), port, outer, first, device, mark }))
}
