//! A TUN device: it takes packets of the stack that need protection, and returns those that were protected.
//!
//! With vnet headers (`IFF_VNET_HDR`), superframes cross it unsplit in both directions.

use super::link;
use super::netlink::{IFA_LOCAL, Messages, Socket};
use super::tap::{self, Headers, VNET_HEADER_LEN};
use super::transient;
use sealane_abi::netlink as nl;
use sealane_net::wire::gso::Offload;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// Length of the longest frame: a packet of 64 KB and its vnet header.
pub const FRAME_LEN: usize = VNET_HEADER_LEN + 65_536;

/// The device's MTU, the largest there is: the data path tells senders the MTU of each path.
const MTU: u32 = 65_535;

/// Superframes of UDP (Linux 6.2).
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// The dummy address of IPv4 (RFC 7600 section 4.8).
const DUMMY: [u8; 4] = [192, 0, 0, 8];

/// The alias of devices that outlive the daemon (`ip link show`), by which they are recognized.
const KEPT: &str = "sealane: an xfrm interface";

/// The MTU of an xfrm interface, as in the kernel (`xfrmi_dev_setup`).
const KEPT_MTU: u32 = 1500;

/// The device. It is removed with this value.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
}

impl Tun {
    /// Creates a device in the calling thread's namespace and sets it up.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` when a device of this
    /// name exists.
    pub fn open(name: &str) -> io::Result<Self> {
        let file = queue(name, 0)?;
        let index = prepare(name, MTU)?;
        Ok(Tun { file, index })
    }

    /// Like [`Tun::open`], but the device remains if the daemon dies, and then drops packets routed to it. A later call
    /// adopts it unchanged. After [`Self::let_go`] it is removed with this value.
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when another interface has this name.
    pub fn open_kept(name: &str) -> io::Result<Self> {
        let there = link::index(name).is_ok();
        if there && link::alias(name)?.as_deref() != Some(KEPT) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let file = queue(name, 0)?;
        let tun = Tun { file, index: link::index(name)? };
        if !there {
            prepare(name, KEPT_MTU)?;
            link::set_alias(tun.index, KEPT)?;
            tun.persist(true)?;
        }
        Ok(tun)
    }

    /// Makes the kernel remove the device with the last value of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn let_go(&self) -> io::Result<()> {
        self.persist(false)
    }

    fn persist(&self, stays: bool) -> io::Result<()> {
        // SAFETY: the ioctl takes a plain value.
        let r = unsafe { libc::ioctl(self.file.as_raw_fd(), libc::TUNSETPERSIST, libc::c_int::from(stays)) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Like [`Tun::open`], with several queues, a value for each. The stack distributes flows over them, and sends a
    /// flow's packets to the queue at which its packets in the other direction arrived.
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when a device of this name exists.
    pub fn open_queues(name: &str, count: usize) -> io::Result<Vec<Self>> {
        if count == 1 {
            return Ok(vec![Tun::open(name)?]);
        }
        // Otherwise the kernel would add queues to somebody else's device.
        if link::index(name).is_ok() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let files: Vec<File> = (0..count).map(|_| queue(name, libc::IFF_MULTI_QUEUE)).collect::<io::Result<_>>()?;
        let index = prepare(name, MTU)?;
        Ok(files.into_iter().map(|file| Tun { file, index }).collect())
    }

    /// Duplicates the descriptor, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Tun { file: self.file.try_clone()?, index: self.index })
    }

    /// The device's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads a frame. Returns the range of its packet in `buf` and the offloads that are left to do; `None` when there
    /// is no frame.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<(core::ops::Range<usize>, Offload)>> {
        loop {
            match self.file.read(buf) {
                Ok(n) if n > VNET_HEADER_LEN => {
                    return Ok(Some((VNET_HEADER_LEN..n, offload(&buf[..VNET_HEADER_LEN]))));
                }
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The frame waits for the next turn.
                Err(e) if transient::count(&e) => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }

    /// Passes a packet to the stack: its headers, then the pieces of its payload, at most [`tap::MAX_PIECES`] less two.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for headers that contradict each other.
    ///
    /// # Panics
    /// When there are too many pieces.
    pub fn give<'a>(&mut self, headers: Headers<'a>, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        tap::write(&self.file, &tap::vnet_header(&headers, 0), headers.bytes, pieces)
    }
}

/// Opens a queue of a device, which is created with its first queue.
fn queue(name: &str, more: i32) -> io::Result<File> {
    Ok(tap::open_device(name, libc::IFF_TUN | more, &[tap::OFFLOADS | USO, tap::OFFLOADS])?.0)
}

/// Configures a device and sets it up; returns its index.
fn prepare(name: &str, mtu: u32) -> io::Result<u32> {
    let index = link::index(name)?;
    // Without an address it sends nothing by itself. This fails on a kernel without IPv6, which needs nothing.
    let _ = tap::no_addresses(index);
    link::set_mtu(name, mtu)?;
    filter_loosely(index)?;
    address(index)?;
    link::set_up(name, true)?;
    Ok(index)
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Sets `rp_filter` of a device to its loose mode, because packets from a tunnel may have any source. This overrides a
/// strict setting for all devices. By netlink it works where the sandbox of a service protects /proc/sys.
fn filter_loosely(index: u32) -> io::Result<()> {
    const IFLA_INET_CONF: u16 = 1;
    const IPV4_DEVCONF_RP_FILTER: u16 = 8;
    const LOOSE: u32 = 2;
    let mut messages = Messages::new();
    messages.push(libc::RTM_SETLINK, nl::NLM_F_ACK, &link::ifinfomsg(index), |a| {
        a.nest(libc::IFLA_AF_SPEC, |a| {
            a.nest(libc::AF_INET as u16, |a| {
                a.nest(IFLA_INET_CONF, |a| a.u32(IPV4_DEVCONF_RP_FILTER, LOOSE));
            });
        });
    });
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Gives a device an address that nobody uses: even loose filters drop packets that arrive at a device without one.
fn address(index: u32) -> io::Result<()> {
    let [a, b, c, d] = index.to_ne_bytes();
    let mut messages = Messages::new();
    let flags = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16;
    // With host scope, so that it is never used as a source address.
    let fixed = [libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST, a, b, c, d];
    messages.push(libc::RTM_NEWADDR, flags, &fixed, |to| to.put(IFA_LOCAL, &DUMMY));
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// Decodes a vnet header.
fn offload(header: &[u8]) -> Offload {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    Offload {
        checksum: (header[0] & 1 != 0).then(|| (word(6), word(8))),
        gso_size: if header[1] == 0 { 0 } else { word(4) },
    }
}
