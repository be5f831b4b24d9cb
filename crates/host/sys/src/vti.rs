//! VTI devices (`ip link add type vti`, `vti6`): tunnels of the kernel's own IPsec, to which the policies and states belong
//! whose marks are the device's keys.

use super::link::{ifinfomsg, text_in};
use super::netlink::{Messages, Socket};
use sealane_abi::netlink as nl;
use std::io;

/// Their kinds.
const KINDS: [&str; 2] = ["vti", "vti6"];

// Constants of `linux/if_tunnel.h`.
const IFLA_VTI_IKEY: u16 = 2;
const IFLA_VTI_OKEY: u16 = 3;

/// A VTI device.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Vti {
    /// Its name.
    pub name: String,
    /// The mark of packets that come out of it; 0 for none.
    pub input_key: u32,
    /// The mark of packets that are routed to it; 0 for none.
    pub output_key: u32,
}

impl Vti {
    /// The devices of the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn all() -> io::Result<Vec<Vti>> {
        let mut socket = Socket::open(libc::NETLINK_ROUTE)?;
        let mut all = Vec::new();
        for kind in KINDS {
            let mut messages = Messages::new();
            // A kernel that knows the kind tells of no others.
            messages.push(libc::RTM_GETLINK, libc::NLM_F_DUMP as u16, &ifinfomsg(0), |a| {
                a.nest(libc::IFLA_LINKINFO, |a| a.str(libc::IFLA_INFO_KIND, kind));
            });
            let found: Vec<Vti> = socket.dump(&messages, |found: &mut Vec<Vti>, message| {
                found.extend(Vti::of(message.payload));
            })?;
            all.extend(found);
        }
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The device that a message (`struct ifinfomsg`) is about, if it is a VTI device.
    pub(super) fn of(message: &[u8]) -> Option<Vti> {
        let of = |bytes, type_| nl::Attrs::new(bytes).find(|a| a.type_ == type_).map(|a| a.payload);
        let attributes = message.get(16..)?;
        let info = of(attributes, libc::IFLA_LINKINFO)?;
        let kind = text_in(of(info, libc::IFLA_INFO_KIND)?);
        if !KINDS.contains(&kind.as_str()) {
            return None;
        }
        let data = of(info, libc::IFLA_INFO_DATA).unwrap_or_default();
        let key = |type_| of(data, type_).and_then(|key| key.first_chunk()).map_or(0, |key| u32::from_be_bytes(*key));
        let name = text_in(of(attributes, libc::IFLA_IFNAME)?);
        Some(Vti { name, input_key: key(IFLA_VTI_IKEY), output_key: key(IFLA_VTI_OKEY) })
    }
}
