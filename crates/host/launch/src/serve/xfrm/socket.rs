//! Options, names and ioctls of a NETLINK_XFRM socket.

use super::receive::name_out;
use super::{Done, XfrmCall, link};
use crate::serve::server::Verdict;
use sealane_abi::netlink::{NETLINK_XFRM, SockaddrNl};
use sealane_abi::sealane::XFRM_PORT;
use sealane_sys::ethtool;
use sealane_sys::netns;
use sealane_sys::thread::Span;
use sealane_sys::usersock;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use zerocopy::FromBytes;

impl XfrmCall<'_> {
    pub(super) fn connect(&self) -> Done {
        let len = self.call.n.int(2);
        if len < size_of::<SockaddrNl>() as i32 {
            return Err(Verdict::Pass);
        }
        let bytes: [u8; size_of::<SockaddrNl>()] = self.call.peer.bytes(self.call.n.arg(1))?;
        let to = SockaddrNl::read_from_bytes(&bytes).map_err(|_| libc::EINVAL)?;
        match i32::from(to.nl_family) {
            libc::AF_NETLINK if to.nl_pid == 0 && to.nl_groups == 0 => {
                self.ensure_port()?;
                // Connected to the kernel, it receives from it alone.
                let port = self.entry.daemon.lock().as_ref().map_or(XFRM_PORT, |daemon| daemon.port);
                usersock::connect(self.fd.as_fd(), port).map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
                Ok(0)
            }
            libc::AF_NETLINK => Err(libc::ECONNREFUSED.into()),
            _ => Err(Verdict::Pass),
        }
    }

    pub(super) fn getpeername(&self) -> Done {
        // Connected or not, it is the kernel.
        name_out(self.call.peer, 0, 0, self.call.n.arg(1), self.call.n.arg(2))?;
        Ok(0)
    }

    pub(super) fn setsockopt(&self) -> Done {
        match (self.call.n.int(1), self.call.n.int(2)) {
            (libc::SOL_SOCKET, libc::SO_PASSCRED) => {
                if self.call.n.int(4) < 4 {
                    return Err(libc::EINVAL.into());
                }
                let on = i32::from_ne_bytes(self.call.peer.bytes(self.call.n.arg(3))?) != 0;
                self.entry.passes_credentials.store(on, Ordering::Relaxed);
                Ok(0)
            }
            _ => Err(Verdict::Pass),
        }
    }

    pub(super) fn getsockopt(&self) -> Done {
        let value = match (self.call.n.int(1), self.call.n.int(2)) {
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => NETLINK_XFRM,
            (libc::SOL_SOCKET, libc::SO_PASSCRED) => i32::from(self.entry.passes_credentials.load(Ordering::Relaxed)),
            _ => return Err(Verdict::Pass),
        };
        let room = i32::from_ne_bytes(self.call.peer.bytes(self.call.n.arg(4))?);
        let n = usize::try_from(room).map_err(|_| libc::EINVAL)?.min(4);
        self.call.peer.write(&[Span { at: self.call.n.arg(3), len: n }], &value.to_ne_bytes()[..n])?;
        self.call.peer.write(&[Span { at: self.call.n.arg(4), len: 4 }], &(n as u32).to_ne_bytes())?;
        Ok(0)
    }

    /// All are the kernel's, but for the question whether a device of ours can do ESP.
    pub(super) fn ioctl(&self) -> Done {
        if self.call.n.arg(1) as u32 != ethtool::SIOCETHTOOL {
            return Err(Verdict::Pass);
        }
        let request: [u8; 24] = self.call.peer.bytes(self.call.n.arg(2))?;
        let name = request[..16].split(|b| *b == 0).next().unwrap_or_default();
        let devices = netns::cookie(self.fd.as_fd()).ok().and_then(link::devices).unwrap_or_default();
        let ours = devices.iter().any(|d| d.as_bytes() == name);
        let at = u64::from_ne_bytes(*request[16..].first_chunk().expect("inside the structure"));
        let command = u32::from_ne_bytes(self.call.peer.bytes(at)?);
        if !ours || command != ethtool::GFEATURES {
            return Err(Verdict::Pass);
        }
        let blocks = u32::from_ne_bytes(self.call.peer.bytes(at + 4)?);
        let answer = ethtool::features(self.fd.as_fd(), name, blocks.min(64), "esp-hw-offload")?;
        self.call.peer.write(&[Span { at, len: answer.len() }], &answer)?;
        Ok(0)
    }
}
