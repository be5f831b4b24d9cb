//! Packets that rules hand over as they are about to leave by a device of others: a TAP device of our own gets their frames, in whose
//! header the rules (`sealane_rules::late`) have put where they come from.
//!
//! ```text
//! 0    the index of the device that the frame was about to leave by (32 bits, as this machine has them)
//! 6    the mark of the packet (32 bits, likewise)
//! 12   the EtherType
//! ```
//!
//! Superframes and unfinished checksums cross as with [`Tun`](super::tun::Tun).

use super::ring::LINK_HEADER_LEN;
use super::tap::MAX_MTU;
use super::tun;
use sealane_sys::link;
use sealane_wire::gso::Offload;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// The name of the device.
pub const DEVICE: &str = "sealane-out0";

/// The alias by which the device of an earlier daemon is recognized.
const ALIAS: &str = "sealane: packets that policies cover as they leave";

/// The origin of a packet of the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Origin {
    /// Its mark.
    pub mark: u32,
    /// The index of the device that it was about to leave by; 0 where it did not come from there.
    pub device: u32,
}

/// The TAP device. It stays without the daemon, and drops then, until it is let go.
#[derive(Debug)]
pub struct OutgoingDevice {
    file: File,
    index: u32,
}

impl OutgoingDevice {
    /// Opens the device in the calling thread's namespace, perhaps that of an earlier daemon, and sets it up.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN`; `EEXIST` when another interface has its name.
    pub fn open() -> io::Result<Self> {
        if link::index(DEVICE).is_ok() && link::alias(DEVICE)?.as_deref() != Some(ALIAS) {
            return Err(io::Error::from_raw_os_error(libc::EEXIST));
        }
        let file = tun::queue(DEVICE, libc::IFF_TAP)?;
        let index = link::index(DEVICE)?;
        link::set_mtu(DEVICE, MAX_MTU)?;
        // Without an address it sends nothing by itself. This fails on a kernel without IPv6, which needs nothing.
        let _ = super::tap::no_addresses(index);
        link::set_alias(index, ALIAS)?;
        link::set_up(DEVICE, true)?;
        tun::wait_for_carrier(DEVICE)?;
        tun::persist(&file, true)?;
        Ok(OutgoingDevice { file, index })
    }

    /// Removes the device of a daemon that has ended, if there is one.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove() -> io::Result<()> {
        match link::index(DEVICE) {
            Ok(index) if link::alias(DEVICE)?.as_deref() == Some(ALIAS) => link::delete(index),
            _ => Ok(()),
        }
    }

    /// The device's index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Makes the kernel remove the device with the last value of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn let_go(&self) -> io::Result<()> {
        tun::persist(&self.file, false)
    }

    /// Duplicates the descriptor, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(OutgoingDevice { file: self.file.try_clone()?, index: self.index })
    }

    /// Reads a frame. Returns the range of its packet in `buf`, the offloads that are left to do, and where it comes from; `None` when there
    /// is no frame. What is not of IP is skipped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<Option<(core::ops::Range<usize>, Offload, Origin)>> {
        loop {
            let Some((range, offload)) = tun::read_frame(&mut self.file, buf)? else { return Ok(None) };
            if let Some((origin, offload)) = packet_of(&buf[range.clone()], offload) {
                return Ok(Some((range.start + LINK_HEADER_LEN..range.end, offload, origin)));
            }
        }
    }
}

/// The origin of the packet in a frame, and its offloads as the packet counts.
fn packet_of(frame: &[u8], offload: Offload) -> Option<(Origin, Offload)> {
    let number = |at: usize| Some(u32::from_ne_bytes(*frame.get(at..)?.first_chunk()?));
    let ether_type = u16::from_be_bytes(*frame.get(12..)?.first_chunk()?);
    if ![libc::ETH_P_IP, libc::ETH_P_IPV6].contains(&i32::from(ether_type)) {
        return None;
    }
    let checksum = match offload.checksum {
        Some((start, at)) => Some((start.checked_sub(LINK_HEADER_LEN as u16)?, at)),
        None => None,
    };
    Some((Origin { device: number(0)?, mark: number(6)? }, Offload { checksum, ..offload }))
}

impl AsFd for OutgoingDevice {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_where_its_packet_comes_from() {
        let mut frame = vec![0; 40];
        frame[..4].copy_from_slice(&7u32.to_ne_bytes());
        frame[6..10].copy_from_slice(&0x1234_5678u32.to_ne_bytes());
        let none = Offload { checksum: None, gso_size: 0 };
        let some = Offload { checksum: Some((34, 6)), gso_size: 1400 };
        let origin = Origin { device: 7, mark: 0x1234_5678 };
        for ether_type in [[8, 0], [0x86, 0xdd]] {
            frame[12..14].copy_from_slice(&ether_type);
            assert_eq!(packet_of(&frame, none), Some((origin, none)));
            assert_eq!(packet_of(&frame, some), Some((origin, Offload { checksum: Some((20, 6)), ..some })));
        }
        // A checksum within the header of the link, other types, and no header.
        assert_eq!(packet_of(&frame, Offload { checksum: Some((13, 0)), gso_size: 0 }), None);
        frame[12..14].copy_from_slice(&[0x81, 0]);
        assert_eq!(packet_of(&frame, none), None);
        assert_eq!(packet_of(&frame[..13], none), None);
    }
}
