//! `linux/socket.h`, `asm-generic/socket.h` and `linux/net.h`: families, levels, options, message flags.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Address family of the crypto interface.
pub const AF_ALG: i32 = 38;
/// Address family of netlink.
pub const AF_NETLINK: i32 = 16;
/// Largest socket address that the kernel accepts: `sizeof(struct sockaddr_storage)`.
pub const SOCKADDR_STORAGE_LEN: usize = 128;

/// Byte stream.
pub const SOCK_STREAM: i32 = 1;
/// Datagrams.
pub const SOCK_DGRAM: i32 = 2;
/// Raw access.
pub const SOCK_RAW: i32 = 3;
/// Sequenced packets, as AF_ALG requires.
pub const SOCK_SEQPACKET: i32 = 5;
/// The mask of the bits of `type` without flags.
pub const SOCK_TYPE_MASK: i32 = 0xf;
/// Flag in the type: non-blocking.
pub const SOCK_NONBLOCK: i32 = 0o4000;
/// Flag in the type: close on exec.
pub const SOCK_CLOEXEC: i32 = 0o200_0000;

/// Option level of all sockets.
pub const SOL_SOCKET: i32 = 1;
/// Option level of AF_ALG.
pub const SOL_ALG: i32 = 279;
/// Option level of netlink.
pub const SOL_NETLINK: i32 = 270;

/// Broadcast permission and other switches that are a plain integer.
pub const SO_DEBUG: i32 = 1;
/// Reuse of addresses.
pub const SO_REUSEADDR: i32 = 2;
/// Type of the socket (read only).
pub const SO_TYPE: i32 = 3;
/// Pending error, cleared by reading.
pub const SO_ERROR: i32 = 4;
/// No routing.
pub const SO_DONTROUTE: i32 = 5;
/// Broadcast.
pub const SO_BROADCAST: i32 = 6;
/// Size of the send buffer; the kernel doubles the value.
pub const SO_SNDBUF: i32 = 7;
/// Size of the receive buffer; the kernel doubles the value.
pub const SO_RCVBUF: i32 = 8;
/// Keep-alive.
pub const SO_KEEPALIVE: i32 = 9;
/// Out-of-band data in line.
pub const SO_OOBINLINE: i32 = 10;
/// No checksums.
pub const SO_NO_CHECK: i32 = 11;
/// Priority.
pub const SO_PRIORITY: i32 = 12;
/// Linger on close: `struct linger`, 8 bytes.
pub const SO_LINGER: i32 = 13;
/// Several sockets on one port.
pub const SO_REUSEPORT: i32 = 15;
/// Receive low-water mark.
pub const SO_RCVLOWAT: i32 = 18;
/// Send low-water mark (read only).
pub const SO_SNDLOWAT: i32 = 19;
/// Receive timeout: `struct timeval`, 16 bytes.
pub const SO_RCVTIMEO: i32 = 20;
/// Send timeout: `struct timeval`, 16 bytes.
pub const SO_SNDTIMEO: i32 = 21;
/// Time stamps.
pub const SO_TIMESTAMP: i32 = 29;
/// Whether the socket listens (read only).
pub const SO_ACCEPTCONN: i32 = 30;
/// Size of the send buffer, limits ignored (CAP_NET_ADMIN).
pub const SO_SNDBUFFORCE: i32 = 32;
/// Size of the receive buffer, limits ignored (CAP_NET_ADMIN).
pub const SO_RCVBUFFORCE: i32 = 33;
/// Time stamps in nanoseconds.
pub const SO_TIMESTAMPNS: i32 = 35;
/// Counts of dropped packets as control messages.
pub const SO_RXQ_OVFL: i32 = 40;
/// Wireless status of sent packets.
pub const SO_WIFI_STATUS: i32 = 41;
/// No frame check sequence.
pub const SO_NOFCS: i32 = 43;
/// No further change of filters.
pub const SO_LOCK_FILTER: i32 = 44;
/// Errors wake select's third set.
pub const SO_SELECT_ERR_QUEUE: i32 = 45;
/// Mark.
pub const SO_MARK: i32 = 36;
/// Protocol (read only).
pub const SO_PROTOCOL: i32 = 38;
/// Address family (read only).
pub const SO_DOMAIN: i32 = 39;

/// Look without taking.
pub const MSG_PEEK: u32 = 0x2;
/// The datagram did not fit.
pub const MSG_TRUNC: u32 = 0x20;
/// Do not wait.
pub const MSG_DONTWAIT: u32 = 0x40;
/// Wait for all of it.
pub const MSG_WAITALL: u32 = 0x100;
/// In recvmmsg: wait for the first message only.
pub const MSG_WAITFORONE: u32 = 0x1_0000;
/// No SIGPIPE.
pub const MSG_NOSIGNAL: u32 = 0x4000;
/// More of this message comes.
pub const MSG_MORE: u32 = 0x8000;
/// Read from the error queue.
pub const MSG_ERRQUEUE: u32 = 0x2000;

/// Option of a UDP socket: the kernel decapsulates ESP in UDP (`linux/udp.h`).
pub const UDP_ENCAP: i32 = 100;
/// Option of a TCP socket: the protocol above it, by name (`linux/tcp.h`).
pub const TCP_ULP: i32 = 31;
/// The longest such name, its end included (`TCP_ULP_NAME_MAX`).
pub const TCP_ULP_NAME_MAX: usize = 16;
/// ESP and IKE in the stream (RFC 9329).
pub const ESPINTCP: &[u8] = b"espintcp";
/// Option of a socket: an IPv4 policy of its own (`linux/in.h`).
pub const IP_XFRM_POLICY: i32 = 17;
/// Option of a socket: an IPv6 policy of its own (`linux/in6.h`).
pub const IPV6_XFRM_POLICY: i32 = 35;
/// The port of ESP in UDP, which is also IKE's (RFC 3948).
pub const NAT_T: u16 = 4500;

/// The most messages of one sendmmsg or recvmmsg: `UIO_MAXIOV`.
pub const MAX_MESSAGES: u32 = 1024;
/// `struct mmsghdr` in bytes: a [`Msghdr`], the length of the message, padding.
pub const MMSGHDR_LEN: u64 = 64;

/// `struct msghdr`, pointers as numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Msghdr {
    /// Address of the peer's address.
    pub msg_name: u64,
    /// Its length.
    pub msg_namelen: u32,
    /// Padding.
    pub pad: u32,
    /// Address of an array of `struct iovec`.
    pub msg_iov: u64,
    /// Its length in elements.
    pub msg_iovlen: u64,
    /// Address of control messages.
    pub msg_control: u64,
    /// Their length in bytes.
    pub msg_controllen: u64,
    /// Flags of a received message.
    pub msg_flags: u32,
    /// Padding.
    pub pad2: u32,
}

const _: () = assert!(size_of::<Msghdr>() == 56);

/// Page size of the imitated machine: the granule of AF_ALG's buffers.
pub const PAGE_SIZE: usize = 4096;

/// Whether this ioctl is served for all socket families: close-on-exec, non-blocking and asynchronous mode, owner,
/// namespace, bridges, VLANs, wireless devices.
#[must_use]
pub fn is_generic_ioctl(request: u32) -> bool {
    matches!(
        request,
        // FIGETBSZ, FIONBIO, FIONCLEX and FIOCLEX, FIOASYNC, FIOQSIZE
        2 | 0x5421 | 0x5450..=0x5452 | 0x5460
        // FIOSETOWN, SIOCSPGRP, FIOGETOWN, SIOCGPGRP, SIOCGSTAMP(NS), SIOCGIFCONF
        | 0x8901..=0x8904 | 0x8906 | 0x8907 | 0x8010_8906 | 0x8010_8907 | 0x8912
        // Bridges, VLANs, SIOCGSKNS
        | 0x8940 | 0x8941 | 0x8982 | 0x8983 | 0x89a0..=0x89a3 | 0x894c
        // SIOCDEVPRIVATE, wireless
        | 0x89f0..=0x89ff | 0x8b00..=0x8bff
    )
}

/// Whether this ioctl is for a network device. Sockets without ioctls of their own pass it on.
#[must_use]
pub fn is_device_ioctl(request: u32) -> bool {
    // SIOCATMARK is not, and neither is the Unix family's SIOCUNIXFILE.
    request >> 8 == 0x89 && request != 0x8905 && request != 0x89e0
}
