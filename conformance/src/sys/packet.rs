//! Raw frames of one device, by AF_PACKET.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Length of `struct virtio_net_hdr`, which precedes each frame of [`Frames::open`] with `offload`.
pub const VNET: usize = 10;

/// A socket that receives and sends frames of a device.
#[derive(Debug)]
pub struct Frames(OwnedFd);

fn check(r: i32) -> io::Result<i32> {
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) }
}

impl Frames {
    /// Opens a socket for the frames of `device` in both directions. With `offload` it sees only inbound frames, each
    /// behind a header of [`VNET`] bytes, so that superframes and checksums left to a device can be passed on.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(device: &str, offload: bool) -> io::Result<Self> {
        let name = CString::new(device)?;
        let all = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: a C string; plain values; the descriptor is new and ours.
        let (fd, index) = unsafe {
            // With protocol 0 it receives nothing before it is bound.
            let fd =
                check(libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0))?;
            (OwnedFd::from_raw_fd(fd), libc::if_nametoindex(name.as_ptr()))
        };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let set = |level: i32, name: i32, value: i32| {
            // SAFETY: a pointer to an integer and its size.
            check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, (&raw const value).cast(), 4) })
        };
        // Root is not limited: a watcher that misses frames proves nothing. This is room for some 400,000 segments, seconds of a
        // fast sender's; it costs only what waits.
        set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 512 << 20)?;
        if offload {
            set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
            set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        }
        // SAFETY: all-zero is a valid address, and its fields are set below.
        let mut addr: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        addr.sll_family = libc::AF_PACKET as u16;
        addr.sll_protocol = all;
        addr.sll_ifindex = index as i32;
        let len = size_of_val(&addr) as u32;
        // SAFETY: an address of that length.
        check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const addr).cast(), len) })?;
        Ok(Frames(fd))
    }

    /// Drops frames that this machine receives, and runs the calling process before others: a busy sender on the same CPU
    /// leaves the socket's buffer time to be emptied.
    ///
    /// # Errors
    /// The kernel's.
    pub fn only_outbound(&self) -> io::Result<()> {
        // linux/filter.h: load the frame's direction, compare it, keep all of the frame or nothing.
        let instruction = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let mut program = [
            instruction(
                libc::BPF_LD | libc::BPF_W | libc::BPF_ABS,
                0,
                0,
                (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32,
            ),
            instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, libc::PACKET_OUTGOING.into()),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, u32::MAX),
            instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: a pointer to the program and its size; plain values.
        unsafe {
            let (at, len) = ((&raw const filter).cast(), size_of_val(&filter) as u32);
            check(libc::setsockopt(self.0.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, at, len))?;
            check(libc::setpriority(libc::PRIO_PROCESS, 0, -20))?;
        }
        Ok(())
    }

    /// Reads the next frame into `buf`; returns its bytes and whether this machine sent it, or `None` when none is
    /// there.
    ///
    /// # Errors
    /// The kernel's.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Option<(usize, bool)>> {
        // SAFETY: all-zero is a valid address.
        let mut addr: libc::sockaddr_ll = unsafe { core::mem::zeroed() };
        let mut len = size_of_val(&addr) as u32;
        let (room, from) = (buf.len(), (&raw mut addr).cast());
        // SAFETY: room for bytes and for an address, with their lengths.
        let n = unsafe { libc::recvfrom(self.0.as_raw_fd(), buf.as_mut_ptr().cast(), room, 0, from, &raw mut len) };
        if n < 0 {
            let e = io::Error::last_os_error();
            return if e.kind() == io::ErrorKind::WouldBlock { Ok(None) } else { Err(e) };
        }
        Ok(Some((n as usize, addr.sll_pkttype == libc::PACKET_OUTGOING)))
    }

    /// Sends a frame. It is lost when the device has no room, as on a wire.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: bytes of that length.
        unsafe { libc::send(self.0.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    }

    /// Returns the number of frames that the socket had no room for since the last call.
    ///
    /// # Errors
    /// The kernel's.
    pub fn missed(&self) -> io::Result<u32> {
        let mut stats = [0u32; 2];
        let mut len = 8u32;
        let at = stats.as_mut_ptr().cast();
        // SAFETY: room for `struct tpacket_stats` and its length.
        check(unsafe {
            libc::getsockopt(self.0.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, at, &raw mut len)
        })?;
        Ok(stats[1])
    }
}

impl AsFd for Frames {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Waits until one of `fds` is readable, or `ms` have passed. Returns for each whether it is readable, or at its end.
pub fn wait<const N: usize>(fds: [BorrowedFd<'_>; N], ms: i32) -> [bool; N] {
    let mut list = fds.map(|fd| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 });
    // SAFETY: an array of that length.
    unsafe { libc::poll(list.as_mut_ptr(), N as libc::nfds_t, ms) };
    list.map(|p| p.revents != 0)
}

/// The facts about a TCP segment in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Source and destination port.
    pub ports: [u16; 2],
    /// The flags of byte 13.
    pub flags: u8,
    /// Bytes behind the header.
    pub payload: usize,
    /// Whether option 29 is there.
    pub signed: bool,
}

/// Returns the TCP segment of an Ethernet frame, if it has one: of IPv4 or IPv6 without extension headers, and not in a
/// later fragment.
#[must_use]
pub fn segment(frame: &[u8]) -> Option<Segment> {
    let ip = frame.get(14..)?;
    let (tcp, len) = match frame[12..14] {
        [0x08, 0x00] => {
            let header = usize::from(ip.first()? & 15) * 4;
            let later = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]) & 0x1fff != 0;
            if *ip.get(9)? != 6 || later {
                return None;
            }
            (ip.get(header..)?, usize::from(u16::from_be_bytes([ip[2], ip[3]])).saturating_sub(header))
        }
        [0x86, 0xdd] if *ip.get(6)? == 6 => (ip.get(40..)?, usize::from(u16::from_be_bytes([ip[4], ip[5]]))),
        _ => return None,
    };
    let header = usize::from(tcp.get(..20)?[12] >> 4) * 4;
    let mut options = tcp.get(20..header).unwrap_or_default();
    let mut signed = false;
    while let [kind, rest @ ..] = options {
        options = match kind {
            0 => break,
            1 => rest,
            _ => {
                signed |= *kind == 29;
                options.get(usize::from(*rest.first().unwrap_or(&0)).max(2)..).unwrap_or_default()
            }
        };
    }
    let port = |at: usize| u16::from_be_bytes([tcp[at], tcp[at + 1]]);
    Some(Segment { ports: [port(0), port(2)], flags: tcp[13], payload: len.saturating_sub(header), signed })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(v6: bool, options: &[u8]) -> Vec<u8> {
        let header = 20 + options.len();
        let mut f = vec![0u8; 12];
        if v6 {
            f.extend_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, (header + 5) as u8, 6, 64]);
            f.extend_from_slice(&[0; 32]);
        } else {
            f.extend_from_slice(&[8, 0, 0x45, 0, 0, (header + 25) as u8, 0, 0, 0x40, 0, 64, 6, 0, 0]);
            f.extend_from_slice(&[0; 8]);
        }
        f.extend_from_slice(&[0, 179, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, ((header / 4) << 4) as u8, 0x18, 0, 0, 0, 0, 0, 0]);
        f.extend_from_slice(options);
        f.extend_from_slice(b"hello");
        f
    }

    #[test]
    fn segments_are_told_apart() {
        let (ao, none) = ([29, 8, 1, 2, 3, 4, 5, 6], [1, 1, 8, 10, 29, 29, 29, 29, 29, 29, 29, 29]);
        for v6 in [false, true] {
            let expected = |signed| Some(Segment { ports: [179, 1024], flags: 0x18, payload: 5, signed });
            assert_eq!(segment(&frame(v6, &ao)), expected(true));
            assert_eq!(segment(&frame(v6, &[&[1, 1, 4, 2][..], &ao].concat())), expected(true));
            assert_eq!(segment(&frame(v6, &none)), expected(false), "bytes of another option");
            assert_eq!(segment(&frame(v6, &[])), expected(false));
            assert_eq!(segment(&frame(v6, &[0, 29, 8, 0])), expected(false), "behind the end of the list");
            for len in 0..frame(v6, &ao).len() - 5 {
                let cut = segment(&frame(v6, &ao)[..len]);
                assert!(cut.is_none_or(|s| !s.signed || len > 54), "{len}");
            }
        }
        let mut udp = frame(false, &ao);
        udp[23] = 17;
        assert_eq!(segment(&udp), None);
    }
}
