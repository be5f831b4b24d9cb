//! Sends whole IP packets past the stack: an `AF_PACKET` socket of one device, for packets whose link header is known.
//!
//! This costs about half as much as a raw socket: no route lookup, no netfilter, no neighbour lookup. The queueing
//! discipline of the device still applies: bypassing it gained nothing, and an administrator may shape traffic on
//! purpose.

use super::raw::{BURST, Sent};
use super::ring::LINK_HEADER_LEN;
use sealane_sys::marks::Marks;
use sealane_sys::socket;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Bytes that may wait in the socket for the device; the kernel counts allocated memory.
const SEND_BUFFER: i32 = 8 << 20;

/// A packet socket of one device.
#[derive(Debug)]
pub struct Frames {
    fd: OwnedFd,
}

impl Frames {
    /// Opens a socket for a device in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(device: u32, marks: Marks) -> io::Result<Self> {
        // With protocol 0 it receives nothing.
        let fd = socket::open(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        socket::bind_to_device(fd.as_fd(), 0, device)?;
        socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &marks.signed())?;
        socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
        Ok(Frames { fd })
    }

    /// Sends packets in order, each after this link header.
    pub fn send(&self, link: &[u8; LINK_HEADER_LEN], packets: &[&[u8]]) -> Sent {
        let mut sent = Sent::default();
        for burst in packets.chunks(BURST) {
            // SAFETY: all-zero values of these are valid.
            let (mut headers, mut iovecs) = unsafe {
                (core::mem::zeroed::<[libc::mmsghdr; BURST]>(), core::mem::zeroed::<[[libc::iovec; 2]; BURST]>())
            };
            for (i, packet) in burst.iter().enumerate() {
                iovecs[i] = [&link[..], *packet]
                    .map(|b| libc::iovec { iov_base: b.as_ptr().cast_mut().cast(), iov_len: b.len() });
                headers[i].msg_hdr.msg_iov = iovecs[i].as_mut_ptr();
                headers[i].msg_hdr.msg_iovlen = 2;
            }
            // SAFETY: the vectors, the header and the packets live until here.
            unsafe { super::sent::send_many(self.fd.as_fd(), &mut headers[..burst.len()], &mut sent) };
        }
        sent
    }
}
