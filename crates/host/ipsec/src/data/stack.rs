//! The way up to the stack: opened packets are joined and go into the TUN device.

use super::join::{Joins, UnfinishedSuperframe};
use super::routes::Routes;
use super::shared::Shared;
use sealane_net::ipsec::icmp;
use sealane_net::ipsec::open::{Inbound, Opened};
use sealane_net::wire::walk::address_pair;
use sealane_sys::tap::Headers;
use sealane_sys::tun::Tun;
use std::io;
use std::sync::atomic::Ordering::Relaxed;

/// A thread's way up to the stack.
pub(crate) struct Stack {
    tun: Tun,
    /// A superframe that grows.
    unfinished: UnfinishedSuperframe,
}

impl Stack {
    /// Gives packets to the stack by this device.
    pub(crate) fn new(tun: Tun) -> Self {
        Stack { tun, unfinished: UnfinishedSuperframe::new() }
    }

    /// The index of the device.
    pub(crate) fn index(&self) -> u32 {
        self.tun.index()
    }

    /// The device, for another thread.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn tun(&self) -> io::Result<Tun> {
        self.tun.try_clone()
    }

    /// Gives opened packets to the stack. With `more` another burst follows at once, which may continue the last superframe.
    pub(crate) fn deliver(&mut self, shared: &Shared, packets: &[Inbound<'_>], more: bool) {
        let mut joins = Joins::new(&mut self.unfinished);
        let (mut lost, mut elsewhere) = (0, false);
        for packet in packets {
            match packet.status {
                Ok(Opened::Packet) if packet.if_id != 0 => elsewhere = true,
                Ok(Opened::Packet) => {
                    lost += u64::from(joins.push(packet.packet.bytes(), &mut self.tun).is_err());
                }
                _ => {}
            }
        }
        lost += u64::from(joins.finish(more, &mut self.tun).is_err());
        if elsewhere {
            lost += shared.gates.deliver(packets);
        }
        shared.counters.refused_in.fetch_add(lost, Relaxed);
    }

    /// Gives the superframe that grows to the stack as it is.
    pub(crate) fn flush(&mut self, shared: &Shared) {
        self.unfinished.give(&mut self.tun, &shared.counters);
    }

    /// Tells the sender of a packet that it is too big, as if the other end did. With `narrow` the kernel is to cut its
    /// packets if it does not heed that.
    pub(crate) fn tell_too_big(&mut self, packet: &[u8], mtu: u32, narrow: bool, routes: &mut Routes) {
        let mut error = [0; icmp::MAX_ERROR_LEN];
        let Ok((_, destination)) = address_pair(packet) else { return };
        if let Some(len) = icmp::write_too_big(packet, mtu, destination, &mut error) {
            routes.note_mtu(destination, mtu, narrow);
            let headers = Headers { bytes: &error[..len], tcp_at: 0, partial_checksum: false, gso_size: None };
            let _ = self.tun.give(headers, core::iter::empty());
        }
    }
}
