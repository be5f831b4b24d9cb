//! Returns opened packets to the stack as if they had come in by the device that they came by sealed: a TAP device of our own
//! redirects each packet to the ingress of the device that its frame names ([`super::bpf`]).
//!
//! Rules about devices, sockets bound to one, link-local addresses and multicast groups therefore see that device, as they do with
//! the kernel's own IPsec. A superframe crosses once (`IFF_VNET_HDR`).
//!
//! The source address of a frame has the device and the mark:
//!
//! ```text
//! 0    the hardware address of the device, so that the stack takes the packet for its own
//! 6    the mark of the packet, which rules give it (32 bits, as this machine has them)
//! 10   the index of the device (16 bits, likewise)
//! 12   the EtherType
//! ```

use super::bpf;
use super::tap::{self, ADDRESSES_LEN, Headers, MAX_MTU};
use sealane_sys::marks::Opened;
use std::fs::File;
use std::io;

/// The device that a packet came by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct By {
    /// Its index; a device with a greater one than this takes cannot be named.
    pub device: u16,
    /// Its hardware address; anything if its frames have none.
    pub address: [u8; 6],
    /// The mark that rules give to the packet; 0 for a device whose frames have no header, where they do not find it.
    pub mark: u32,
}

/// The TAP device. It is removed with the last value of it.
#[derive(Debug)]
pub struct IncomingDevice {
    file: File,
}

impl IncomingDevice {
    /// Creates the device in the calling thread's namespace. Its packets have these marks.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` without `/dev/net/tun`, `EPERM` without `CAP_NET_ADMIN` or `CAP_BPF`, and those of
    /// [`bpf::redirect_by_frame`].
    pub fn open(opened: Opened) -> io::Result<Self> {
        let redirect = |index| bpf::redirect_by_frame(index, opened);
        Ok(IncomingDevice { file: tap::open_redirected("sealane-in%d", MAX_MTU, redirect)? })
    }

    /// Passes a packet to the stack: its headers, then the pieces of its payload, at most [`tap::MAX_PIECES`] less two. If the device has
    /// gone the packet is lost without an error.
    ///
    /// # Errors
    /// The kernel's; `EINVAL` for headers that contradict each other.
    ///
    /// # Panics
    /// When there are too many pieces.
    pub fn give<'a>(&self, by: By, headers: Headers<'a>, pieces: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let mut addresses = [0; ADDRESSES_LEN];
        addresses[..6].copy_from_slice(&by.address);
        addresses[6..10].copy_from_slice(&by.mark.to_ne_bytes());
        addresses[10..].copy_from_slice(&by.device.to_ne_bytes());
        tap::write_frame(&self.file, &addresses, headers, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::esp::UdpEsp;
    use sealane_sys::{link, socket, testing};
    use sealane_wire::ip::{finish, sum};
    use std::net::{Ipv4Addr, UdpSocket};
    use std::os::fd::AsFd;
    use std::time::{Duration, Instant};

    const OPENED: Opened = Opened { plain: 0x5ea1_0000, priority: 7 };

    /// A datagram from another host for a port of this one.
    fn datagram(port: u16, text: &[u8]) -> Vec<u8> {
        let len = 28 + text.len();
        let mut packet = vec![0x45, 0, 0, len as u8, 0, 1, 0, 0, 64, 17, 0, 0, 10, 77, 0, 9, 10, 77, 0, 1];
        let checksum = finish(sum(&packet, 0));
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet.extend_from_slice(&7u16.to_be_bytes());
        packet.extend_from_slice(&port.to_be_bytes());
        packet.extend_from_slice(&(8 + text.len() as u16).to_be_bytes());
        packet.extend_from_slice(&[0, 0]);
        packet.extend_from_slice(text);
        packet
    }

    fn alone(packet: &[u8]) -> Headers<'_> {
        Headers { bytes: packet, tcp_at: 0, partial_checksum: false, gso_size: None }
    }

    #[test]
    fn a_packet_comes_in_by_the_device_that_its_frame_names() {
        const TEST: &str = "packets::incoming::by";
        let Some((a, _b)) = testing::pair(TEST) else { return };
        let incoming = match a.run(|| IncomingDevice::open(OPENED)) {
            Err(e) if testing::missing(TEST, &e) => return,
            done => done.expect("a device"),
        };
        let (device, facts) = a
            .run(|| {
                let device = link::index("a")?;
                Ok((device as u16, link::facts(device)?))
            })
            .expect("a device");
        let by = By { device, address: facts.address, mark: 3 };
        let give = |port| {
            incoming.give(by, alone(&datagram(port, b"opened")), core::iter::empty()).expect("given");
        };
        let any = a.run(|| UdpEsp::open((Ipv4Addr::UNSPECIFIED, 5000).into(), 0)).expect("a socket");
        give(5000);
        let (mut text, until) = ([0; 2000], Instant::now() + Duration::from_secs(20));
        let received = loop {
            match any.receive(&mut text).expect("a socket") {
                Some(received) => break received,
                None if Instant::now() < until => std::thread::sleep(Duration::from_millis(1)),
                None => panic!("it does not come"),
            }
        };
        assert_eq!(
            (&text[..received.len], received.device, received.mark),
            (&b"opened"[..], device.into(), OPENED.marked())
        );
        // A socket that is bound to the device gets it, too.
        let bound = a.run(|| UdpSocket::bind("0.0.0.0:5001")).expect("a socket");
        socket::set_option(bound.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &b"a"[..]).expect("bound");
        bound.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        give(5001);
        assert_eq!(bound.recv(&mut text).expect("it comes"), 6);
        // A device that has gone: nothing comes, and nothing fails.
        let gone = By { device: 60_000, ..by };
        incoming.give(gone, alone(&datagram(5001, b"lost")), core::iter::empty()).expect("given");
    }
}
