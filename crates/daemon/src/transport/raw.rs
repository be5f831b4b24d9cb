//! Raw sockets: whole IP packets that leave by the kernel's own routing.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

const IPV6_HDRINCL: i32 = 36;

/// One for each family, in the namespace of the thread that opened them.
#[derive(Debug)]
pub(crate) struct RawSockets {
    v4: OwnedFd,
    /// `None` where IPv6 is off.
    v6: Option<OwnedFd>,
}

impl RawSockets {
    /// Opens them; what they send bears `mark`.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_RAW`.
    pub(crate) fn open(mark: u32) -> io::Result<Self> {
        let open = |family: i32, level: i32, option: i32| {
            // SAFETY: plain values; the descriptor is new and ours.
            let fd = unsafe {
                let fd = libc::socket(family, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::IPPROTO_RAW);
                if fd < 0 {
                    return Err(io::Error::last_os_error());
                }
                OwnedFd::from_raw_fd(fd)
            };
            super::set_option(fd.as_fd(), level, option, &1i32)?;
            super::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &mark)?;
            super::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &(4i32 << 20))?;
            Ok(fd)
        };
        Ok(RawSockets {
            v4: open(libc::AF_INET, libc::IPPROTO_IP, libc::IP_HDRINCL)?,
            v6: open(libc::AF_INET6, libc::IPPROTO_IPV6, IPV6_HDRINCL).ok(),
        })
    }

    /// Sends a packet to where its header says.
    ///
    /// # Errors
    /// The kernel's: `EMSGSIZE` for what exceeds the MTU, `ENETUNREACH`, `EAFNOSUPPORT` where IPv6 is off.
    pub(crate) fn send(&self, packet: &[u8], to: SocketAddr) -> io::Result<()> {
        let mut name = [0u8; 28];
        // The port of a raw IPv6 socket's destination is a protocol, or 0.
        let (fd, len) = match to.ip() {
            IpAddr::V4(a) => {
                name[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
                name[4..8].copy_from_slice(&a.octets());
                (&self.v4, 16)
            }
            IpAddr::V6(a) => {
                name[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
                name[8..24].copy_from_slice(&a.octets());
                (self.v6.as_ref().ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?, 28)
            }
        };
        // SAFETY: live bytes and an address of that length.
        let n = unsafe {
            libc::sendto(
                fd.as_raw_fd(),
                packet.as_ptr().cast(),
                packet.len(),
                libc::MSG_DONTWAIT,
                name.as_ptr().cast(),
                len,
            )
        };
        if n < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
