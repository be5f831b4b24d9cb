//! A TUN device: packets of the stack that are to be protected come out of it, those that were go into it.
//!
//! With vnet headers (`IFF_VNET_HDR`) superframes cross whole, both ways.

use super::link;
use super::netlink::{IFA_LOCAL, Messages, Socket};
use super::tap::{self, Headers, VNET_HEADER_LEN};
use sealane_abi::netlink as nl;
use sealane_net::wire::gso::Offload;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// The longest frame: a packet of 64 KB and its vnet header.
pub const FRAME_LEN: usize = VNET_HEADER_LEN + 65_536;

/// The MTU: what a path carries is the data path's to say, which tells each sender.
const MTU: u32 = 65_535;

/// Superframes of UDP (6.2).
const USO: libc::c_uint = libc::TUN_F_USO4 | libc::TUN_F_USO6;

/// The dummy address of IPv4 (RFC 7600 section 4.8).
const DUMMY: [u8; 4] = [192, 0, 0, 8];

/// What stands at devices that outlive us (`ip link show`), so that they are known again.
const KEPT: &str = "sealane: an xfrm interface";

/// The MTU of an xfrm interface, as the kernel makes it (`xfrmi_dev_setup`).
const KEPT_MTU: u32 = 1500;

/// The device. It goes with this value.
#[derive(Debug)]
pub struct Tun {
    file: File,
    index: u32,
}

impl Tun {
    /// Makes one in the calling thread's namespace and puts it up.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`, `EBUSY` when there is one of this
    /// name.
    pub fn open(name: &str) -> io::Result<Self> {
        let file = queue(name, 0)?;
        let index = prepare(name, MTU)?;
        Ok(Tun { file, index })
    }

    /// The same with a device that stays when we die, and drops then what is routed to it; after that it is taken up again as it is.
    /// It goes with this value after [`Self::let_go`].
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when there is another interface of this name.
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

    /// The device goes with the last value of it.
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

    /// The same with several queues, a value for each: the stack spreads flows over them, and leads what belongs to a flow that
    /// came in by one of them there.
    ///
    /// # Errors
    /// As [`Tun::open`]; `EEXIST` when there is one of this name.
    pub fn open_queues(name: &str, count: usize) -> io::Result<Vec<Self>> {
        if count == 1 {
            return Ok(vec![Tun::open(name)?]);
        }
        // The kernel would give us queues of another's device.
        if link::index(name).is_ok() {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let files: Vec<File> = (0..count).map(|_| queue(name, libc::IFF_MULTI_QUEUE)).collect::<io::Result<_>>()?;
        let index = prepare(name, MTU)?;
        Ok(files.into_iter().map(|file| Tun { file, index }).collect())
    }

    /// The same device for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(Tun { file: self.file.try_clone()?, index: self.index })
    }

    /// Its index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Reads a frame: where its packet lies in `buf`, and what is left to do for it. `None` when there is none.
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
                Err(e) => return Err(e),
            }
        }
    }

    /// Gives a packet to the stack: its headers, then the pieces of its payload, at most [`tap::MAX_PIECES`] less two.
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

/// Opens a queue of a device, which is made with the first of them.
fn queue(name: &str, more: i32) -> io::Result<File> {
    Ok(tap::open_device(name, libc::IFF_TUN | more, &[tap::OFFLOADS | USO, tap::OFFLOADS])?.0)
}

/// Makes a device ready and puts it up; its index.
fn prepare(name: &str, mtu: u32) -> io::Result<u32> {
    let index = link::index(name)?;
    // It says nothing by itself. A kernel without IPv6 has nothing to be told.
    let _ = tap::no_addresses(index);
    link::set_mtu(name, mtu)?;
    // What comes out of a tunnel may come from anywhere; strict filters of all devices are loosened for this one.
    let _ = std::fs::write(format!("/proc/sys/net/ipv4/conf/{name}/rp_filter"), "2");
    address(index)?;
    link::set_up(name, true)?;
    Ok(index)
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Gives a device an address that is nobody's: even the loosest filter drops what comes in by a device without any.
fn address(index: u32) -> io::Result<()> {
    let [a, b, c, d] = index.to_ne_bytes();
    let mut messages = Messages::new();
    let flags = nl::NLM_F_ACK | libc::NLM_F_CREATE as u16;
    // Of the host alone, so that nothing is ever sent from it.
    let fixed = [libc::AF_INET as u8, 32, 0, libc::RT_SCOPE_HOST, a, b, c, d];
    messages.push(libc::RTM_NEWADDR, flags, &fixed, |to| to.put(IFA_LOCAL, &DUMMY));
    Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)
}

/// What a vnet header says.
fn offload(header: &[u8]) -> Offload {
    let word = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    Offload {
        checksum: (header[0] & 1 != 0).then(|| (word(6), word(8))),
        gso_size: if header[1] == 0 { 0 } else { word(4) },
    }
}
