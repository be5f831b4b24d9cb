//! The sockets that ESP and AH come by, of all workers of a stack.

use crate::groups::{Groups, Port};
use sealane_abi::socket::NAT_T;
use sealane_packets::esp::{RawEsp, UdpEsp};
use sealane_packets::shard::Shard;
use std::io;
use std::sync::{Arc, Weak};

/// Sockets of a worker of the stack, or of all of them.
#[derive(Clone, Default)]
pub(crate) struct Sockets {
    pub(crate) udp: Vec<Arc<UdpEsp>>,
    pub(crate) raw: Vec<Arc<RawEsp>>,
}

impl Sockets {
    /// Opens the sockets of so many workers.
    pub(crate) fn open(groups: &mut Groups, exempt: u32, workers: u32) -> io::Result<Vec<Self>> {
        let mut all: Vec<Sockets> = (0..workers).map(|_| Sockets::default()).collect();
        for (v6, protocol) in [(false, 50), (true, 50), (false, 51), (true, 51)] {
            for (index, of) in (0..).zip(&mut all) {
                match RawEsp::open(v6, protocol, exempt, Shard { index, of: workers }) {
                    Err(e) if v6 && e.raw_os_error() == Some(libc::EAFNOSUPPORT) => {}
                    socket => of.raw.push(Arc::new(socket?)),
                }
            }
        }
        for v6 in [false, true] {
            // If an IKE daemon does not share its port there is none.
            let sockets = groups.open((v6, NAT_T), exempt, workers).unwrap_or_default();
            all.iter_mut().zip(sockets).for_each(|(of, socket)| of.udp.push(socket));
        }
        Ok(all)
    }

    /// All of them.
    pub(crate) fn all(each: &[Self]) -> Self {
        let udp = each.iter().flat_map(|of| of.udp.iter().cloned()).collect();
        Sockets { udp, raw: each.iter().flat_map(|of| of.raw.iter().cloned()).collect() }
    }
}

/// Sockets that other workers read, and close.
pub(crate) type LentSockets = Vec<(Port, Weak<UdpEsp>)>;

/// One of the sockets that a worker reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SocketId {
    /// A UDP socket, by its index.
    Udp(usize),
    /// A raw socket, by its index.
    Raw(usize),
}
