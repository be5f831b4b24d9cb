//! Sends whole IP packets through the stack, over raw sockets.
//!
//! The stack finds the route and the link header of each packet, on any device. Packets that do not fit into the
//! socket's buffer are dropped, as if a device's queue were full: TCP retransmits them and slows down.

use sealane_sys::marks::Marks;
use sealane_sys::socket;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

pub use super::sent::Sent;

/// Packets per system call.
pub const BURST: usize = 64;

/// Bytes that may wait in a socket for the device; the kernel counts allocated memory.
const SEND_BUFFER: i32 = 8 << 20;

/// The sockets, in the namespace of the thread that opened them.
#[derive(Debug)]
pub struct Raw {
    /// v4 and v6, for packets with mark [`Marks::signed`].
    signed: [Option<OwnedFd>; 2],
    /// v4 and v6, for packets with mark [`Marks::learn`].
    learn: [Option<OwnedFd>; 2],
}

/// Opens a raw socket of a family; `None` where the kernel lacks the family.
fn open(family: i32, mark: u32) -> io::Result<Option<OwnedFd>> {
    // With IPPROTO_RAW, packets include their headers and nothing is received.
    let fd = match socket::open(family, libc::SOCK_RAW, libc::IPPROTO_RAW) {
        Err(e) if e.raw_os_error() == Some(libc::EAFNOSUPPORT) => return Ok(None),
        fd => fd?,
    };
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
    socket::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &SEND_BUFFER)?;
    Ok(Some(fd))
}

impl Raw {
    /// Opens the sockets.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW` and `CAP_NET_ADMIN`.
    pub fn open(marks: Marks) -> io::Result<Self> {
        let families = |mark| -> io::Result<[Option<OwnedFd>; 2]> {
            Ok([open(libc::AF_INET, mark)?, open(libc::AF_INET6, mark)?])
        };
        Ok(Raw { signed: families(marks.signed())?, learn: families(marks.learn())? })
    }

    /// Allows packets up to the device's MTU, whatever has been learnt about their paths.
    ///
    /// # Errors
    /// The kernel's.
    pub fn ignore_learnt_mtu(&self) -> io::Result<()> {
        for (v6, sockets) in [false, true].into_iter().zip(self.signed.iter().zip(&self.learn)) {
            for socket in [sockets.0, sockets.1].into_iter().flatten() {
                super::esp::allow_fragments(socket.as_fd(), v6, false)?;
            }
        }
        Ok(())
    }

    /// Keeps the frames of packets sent with `learn` for [`Raw::frames`], as the stack hands them to their device. They
    /// are the copies that the kernel makes for time stamps (`Documentation/networking/timestamping.rst`); no other
    /// packet is affected.
    ///
    /// # Errors
    /// The kernel's, when it is too old (before 4.13).
    pub fn keep_frames(&self) -> io::Result<()> {
        for (v6, socket) in [false, true].into_iter().zip(&self.learn) {
            if let Some(socket) = socket {
                let (level, option) = if v6 {
                    (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO)
                } else {
                    (libc::IPPROTO_IP, libc::IP_PKTINFO)
                };
                socket::set_option(socket.as_fd(), level, option, &1i32)?;
                let flags = libc::SOF_TIMESTAMPING_TX_SCHED | libc::SOF_TIMESTAMPING_OPT_CMSG;
                socket::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &flags)?;
            }
        }
        Ok(())
    }

    /// Hands kept frames of one family to `each`: the device's index, and the start of the frame. A frame whose
    /// neighbour was unknown appears once it is resolved.
    pub fn frames(&self, v6: bool, mut each: impl FnMut(u32, &[u8])) {
        let Some(socket) = &self.learn[usize::from(v6)] else { return };
        while let Some((device, len, frame)) = kept_frame(socket) {
            each(device, &frame[..len]);
        }
    }

    /// Sends packets of one family in order. Unless it is 0, `device` limits the device that they may leave through.
    /// With `learn` their frames pass the device's ring, or are kept for [`Raw::frames`].
    pub fn send(&self, packets: &[&[u8]], device: u32, learn: bool) -> Sent {
        let mut sent = Sent::default();
        for burst in packets.chunks(BURST) {
            let sockets = if learn { &self.learn } else { &self.signed };
            let socket = burst[0].first().and_then(|b| sockets.get(usize::from(b >> 4 == 6))?.as_ref());
            match socket {
                Some(socket) => send_burst(socket, burst, device, &mut sent),
                None => sent.refused += burst.len(),
            }
        }
        sent
    }
}

/// Room for one control message, which names the device.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; 40]);

fn send_burst(socket: &OwnedFd, packets: &[&[u8]], device: u32, sent: &mut Sent) {
    // SAFETY: all-zero values of these are valid.
    let (mut headers, mut iovecs, mut addresses, mut control) = unsafe {
        (
            core::mem::zeroed::<[libc::mmsghdr; BURST]>(),
            core::mem::zeroed::<[libc::iovec; BURST]>(),
            core::mem::zeroed::<[libc::sockaddr_in6; BURST]>(),
            Control([0; 40]),
        )
    };
    let control_len = if device == 0 { 0 } else { write_device(&mut control, packets[0], device) };
    for (i, packet) in packets.iter().enumerate() {
        let address_len = write_address(&mut addresses[i], packet, device);
        iovecs[i] = libc::iovec { iov_base: packet.as_ptr().cast_mut().cast(), iov_len: packet.len() };
        let header = &mut headers[i].msg_hdr;
        header.msg_name = (&raw mut addresses[i]).cast();
        header.msg_namelen = address_len;
        header.msg_iov = &raw mut iovecs[i];
        header.msg_iovlen = 1;
        if control_len > 0 {
            header.msg_control = (&raw mut control).cast();
            header.msg_controllen = control_len;
        }
    }
    // SAFETY: the addresses, vectors, packets and the control message live until the call returns.
    unsafe { super::sent::send_many(socket.as_fd(), &mut headers[..packets.len()], sent) };
}

/// Bytes that are read of a kept frame: a link header, and the start of its packet.
const FRONT_LEN: usize = 128;

/// Reads one frame from a socket's error queue; its device is 0 if the kernel does not report it.
fn kept_frame(socket: &OwnedFd) -> Option<(u32, usize, [u8; FRONT_LEN])> {
    let mut frame = [0u8; FRONT_LEN];
    let mut control = [0u64; 64];
    let mut device = 0;
    let mut iovec = libc::iovec { iov_base: frame.as_mut_ptr().cast(), iov_len: FRONT_LEN };
    // SAFETY: all-zero is a valid header.
    let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
    message.msg_iov = &raw mut iovec;
    message.msg_iovlen = 1;
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = size_of_val(&control);
    // SAFETY: the buffers live until the call returns and are writable for these lengths; the control buffer is aligned
    // for its headers.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT) };
    let Ok(len) = usize::try_from(n) else {
        sealane_sys::transient::count(&io::Error::last_os_error());
        return None;
    };
    let len = len.min(FRONT_LEN);
    // SAFETY: the kernel wrote whole messages into the buffer and set its length; each is read according to its type.
    unsafe {
        let mut at = libc::CMSG_FIRSTHDR(&raw const message);
        while !at.is_null() {
            let data = libc::CMSG_DATA(at);
            match ((*at).cmsg_level, (*at).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    device = data.cast::<libc::in_pktinfo>().read_unaligned().ipi_ifindex as u32;
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    device = data.cast::<libc::in6_pktinfo>().read_unaligned().ipi6_ifindex;
                }
                _ => {}
            }
            at = libc::CMSG_NXTHDR(&raw const message, at);
        }
    }
    Some((device, len, frame))
}

/// Writes the destination of a packet; returns the address's length. That is 0 for an invalid packet, which the kernel
/// then refuses.
fn write_address(address: &mut libc::sockaddr_in6, packet: &[u8], device: u32) -> libc::socklen_t {
    if let (Some(4), Some(to)) = (packet.first().map(|b| b >> 4), packet.get(16..20).and_then(<[u8]>::first_chunk)) {
        let v4 = libc::sockaddr_in {
            sin_family: libc::AF_INET as u16,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(*to) },
            sin_zero: [0; 8],
        };
        // SAFETY: the shorter address fits into the longer one, which has at least its alignment.
        unsafe { (&raw mut *address).cast::<libc::sockaddr_in>().write(v4) };
        return size_of::<libc::sockaddr_in>() as libc::socklen_t;
    }
    let Some(to) = packet.get(24..40).and_then(<[u8]>::first_chunk) else { return 0 };
    address.sin6_family = libc::AF_INET6 as u16;
    address.sin6_addr.s6_addr = *to;
    if Ipv6Addr::from(*to).is_unicast_link_local() {
        address.sin6_scope_id = device;
    }
    size_of::<libc::sockaddr_in6>() as libc::socklen_t
}

/// Writes the control message that names the device; returns its length.
fn write_device(control: &mut Control, packet: &[u8], device: u32) -> usize {
    // SAFETY: the buffer is aligned, longer than either message, and written within its length.
    unsafe {
        let header = (&raw mut *control).cast::<libc::cmsghdr>();
        let data = header.cast::<u8>().add(libc::CMSG_LEN(0) as usize);
        let len = if packet.first().is_some_and(|b| b >> 4 == 4) {
            let none = libc::in_addr { s_addr: Ipv4Addr::UNSPECIFIED.to_bits() };
            let info = libc::in_pktinfo { ipi_ifindex: device as i32, ipi_spec_dst: none, ipi_addr: none };
            (*header).cmsg_level = libc::IPPROTO_IP;
            (*header).cmsg_type = libc::IP_PKTINFO;
            data.cast::<libc::in_pktinfo>().write_unaligned(info);
            size_of::<libc::in_pktinfo>()
        } else {
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: [0; 16] }, ipi6_ifindex: device };
            (*header).cmsg_level = libc::IPPROTO_IPV6;
            (*header).cmsg_type = libc::IPV6_PKTINFO;
            data.cast::<libc::in6_pktinfo>().write_unaligned(info);
            size_of::<libc::in6_pktinfo>()
        };
        (*header).cmsg_len = libc::CMSG_LEN(len as u32) as usize;
        libc::CMSG_SPACE(len as u32) as usize
    }
}

#[cfg(test)]
mod tests;
