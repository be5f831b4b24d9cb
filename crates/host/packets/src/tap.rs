//! Returns packets to the stack as if they had arrived at a device: a TAP device of our own redirects its packets to
//! that device's ingress ([`super::bpf`]).
//!
//! Rules about devices, sockets bound to one, VRFs and link-local addresses therefore see the device at which the
//! packet really arrived. A superframe crosses once (`IFF_VNET_HDR`), and the stack handles it like one that the device
//! had merged.

use super::bpf;
use super::ring::LINK_HEADER_LEN;
use sealane_abi::netlink as nl;
use sealane_sys::link::{self, Facts};
use sealane_sys::marks::Marks;
use sealane_sys::netlink::{Messages, Socket};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// The most pieces of one packet: two headers, and the payloads of its segments.
pub const MAX_PIECES: usize = 130;

/// Length of `struct virtio_net_hdr` in bytes.
pub(super) const VNET_HEADER_LEN: usize = 10;

/// Length of the addresses in a link header, in bytes: the destination's, and the source's.
pub(super) const ADDRESSES_LEN: usize = 12;

/// The largest MTU of a device with frames.
pub(super) const MAX_MTU: u32 = 65_521;

/// Offloads of a device: packets may cross it as TCP superframes and without finished checksums.
pub(super) const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;

/// A packet's headers, without its link header.
#[derive(Debug, Clone, Copy)]
pub struct Headers<'a> {
    /// The bytes from the IP header to the end of the TCP header.
    pub bytes: &'a [u8],
    /// The offset of the TCP header.
    pub tcp_at: usize,
    /// Whether the TCP checksum holds only the sum of the pseudo-header.
    pub partial_checksum: bool,
    /// For a superframe, the payload of each of its segments but the last, in bytes.
    pub gso_size: Option<u16>,
}

/// A TAP device whose packets arrive at another device. It is removed with this value.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// The addresses in link headers, with the device as the destination.
    addresses: [u8; ADDRESSES_LEN],
}

impl Tap {
    /// Creates a device whose packets arrive at `device`, which has these `facts`, with mark [`Marks::verified`].
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN` or `CAP_BPF`, and those of
    /// [`bpf::redirect`].
    pub fn open(device: u32, facts: &Facts, marks: Marks) -> io::Result<Self> {
        // `sealane0` and the like are names that people give to IPsec devices.
        let redirect = |index| bpf::redirect(index, device, marks.verified());
        let file = open_redirected("sealane-ao%d", facts.mtu.min(MAX_MTU), redirect)?;
        let mut addresses = [0; ADDRESSES_LEN];
        addresses[..6].copy_from_slice(&facts.address);
        Ok(Tap { file, addresses })
    }

    /// Passes a packet to the stack: its headers, then the pieces of its payload, at most [`MAX_PIECES`] less two.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for headers that contradict each other.
    ///
    /// # Panics
    /// When there are too many pieces.
    pub fn give<'a>(&mut self, headers: Headers<'a>, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        write_frame(&self.file, &self.addresses, headers, pieces)
    }
}

/// Creates a device whose packets a program hands to others: `redirect` attaches it to the device with this index.
///
/// # Errors
/// Those of [`open_device`] and of `redirect`.
pub(super) fn open_redirected(name: &str, mtu: u32, redirect: impl FnOnce(u32) -> io::Result<()>) -> io::Result<File> {
    let (file, name) = open_device(name, libc::IFF_TAP, &[OFFLOADS])?;
    let index = link::index(&name)?;
    // Without an address it sends nothing by itself. This fails on a kernel without IPv6, which needs nothing.
    let _ = no_addresses(index);
    link::set_mtu(&name, mtu)?;
    redirect(index)?;
    link::set_up(&name, true)?;
    Ok(file)
}

/// Opens a queue of the device with this name, which is created with its first queue. Its frames have vnet headers, and
/// it gets the first of `offloads` that the kernel supports. Returns the name too, in which the kernel replaces `%d` by
/// a number. Other users without `CAP_NET_ADMIN` cannot open queues of it.
///
/// # Errors
/// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` when a device of this name
/// exists; `ENODEV` for a name that is too long.
pub(super) fn open_device(name: &str, flags: i32, offloads: &[libc::c_uint]) -> io::Result<(File, String)> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_CLOEXEC | libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    let fd = file.as_raw_fd();
    let mut request = link::request(name)?;
    request.ifr_ifru.ifru_flags = (flags | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as libc::c_short;
    // SAFETY: the ioctl reads and writes an `ifreq`.
    if unsafe { libc::ioctl(fd, libc::TUNSETIFF, &raw mut request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // Every user may open /dev/net/tun, and a queue of a device without an owner.
    let owner = libc::c_ulong::from(rustix::process::geteuid().as_raw());
    // SAFETY: the ioctl takes a plain value.
    if unsafe { libc::ioctl(fd, libc::TUNSETOWNER, owner) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the ioctl takes a plain value.
    if !offloads.iter().any(|offload| unsafe { libc::ioctl(fd, libc::TUNSETOFFLOAD, *offload) } == 0) {
        return Err(io::Error::last_os_error());
    }
    Ok((file, link::name_in(&request)))
}

/// Writes one frame with a link header.
///
/// # Errors
/// The kernel's; `EINVAL` for headers that contradict each other.
///
/// # Panics
/// When there are too many pieces.
pub(super) fn write_frame<'a>(
    file: &File,
    addresses: &[u8; ADDRESSES_LEN],
    headers: Headers<'a>,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let is_v6 = headers.bytes.first().is_some_and(|b| b >> 4 == 6);
    let ether_type = if is_v6 { libc::ETH_P_IPV6 } else { libc::ETH_P_IP } as u16;
    let mut front = [0u8; VNET_HEADER_LEN + LINK_HEADER_LEN];
    let (vnet, link) = front.split_at_mut(VNET_HEADER_LEN);
    vnet.copy_from_slice(&vnet_header(&headers, LINK_HEADER_LEN));
    link[..ADDRESSES_LEN].copy_from_slice(addresses);
    link[ADDRESSES_LEN..].copy_from_slice(&ether_type.to_be_bytes());
    write(file, &front, headers.bytes, pieces)
}

/// Writes one frame: `front`, the headers, and the pieces of the payload.
///
/// # Errors
/// The kernel's.
///
/// # Panics
/// When there are too many pieces.
pub(super) fn write<'a>(
    file: &File,
    front: &[u8],
    headers: &[u8],
    pieces: impl Iterator<Item = &'a [u8]>,
) -> io::Result<()> {
    let mut slices = [IoSlice::new(&[]); MAX_PIECES];
    slices[0] = IoSlice::new(front);
    slices[1] = IoSlice::new(headers);
    let mut count = 2;
    for piece in pieces {
        slices[count] = IoSlice::new(piece);
        count += 1;
    }
    sealane_sys::transient::counted(rustix::io::writev(file, &slices[..count]).map(drop).map_err(io::Error::from))
}

/// `struct virtio_net_hdr` for a packet that follows a link header.
pub(super) fn vnet_header(headers: &Headers<'_>, link_len: usize) -> [u8; VNET_HEADER_LEN] {
    const NEEDS_CSUM: u8 = 1;
    const GSO_TCPV4: u8 = 1;
    const GSO_TCPV6: u8 = 4;
    const GSO_ECN: u8 = 0x80;
    const CWR: u8 = 0x80;
    const CHECKSUM_AT: u16 = 16;
    let mut out = [0; VNET_HEADER_LEN];
    if let Some(size) = headers.gso_size {
        let v6 = headers.bytes.first().is_some_and(|b| b >> 4 == 6);
        let cwr = headers.bytes.get(headers.tcp_at + 13).is_some_and(|flags| flags & CWR != 0);
        out[1] = if v6 { GSO_TCPV6 } else { GSO_TCPV4 } | if cwr { GSO_ECN } else { 0 };
        out[2..4].copy_from_slice(&((link_len + headers.bytes.len()) as u16).to_ne_bytes());
        out[4..6].copy_from_slice(&size.to_ne_bytes());
    }
    if headers.partial_checksum {
        out[0] = NEEDS_CSUM;
        out[6..8].copy_from_slice(&((link_len + headers.tcp_at) as u16).to_ne_bytes());
        out[8..10].copy_from_slice(&CHECKSUM_AT.to_ne_bytes());
    }
    out
}

/// Prevents the kernel from assigning an IPv6 address to a device.
pub(super) fn no_addresses(index: u32) -> io::Result<()> {
    const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;
    const IN6_ADDR_GEN_MODE_NONE: u8 = 1;
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &link::ifinfomsg(index), |a| {
        a.nest(libc::IFLA_AF_SPEC, |a| {
            a.nest(libc::AF_INET6 as u16, |a| a.put(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]));
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}
