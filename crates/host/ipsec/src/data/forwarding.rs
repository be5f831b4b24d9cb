//! The interfaces whose packets the kernel forwards. On Linux a packet that was opened is still one of the interface that
//! its ESP packet came by, and IPv4's forwarding is a setting of each. Here it comes by a TUN device, which forwards if any
//! interface does, so that packets of the others are dropped before.

use super::routes::Routes;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Relaxed;
use parking_lot::RwLock;
use sealane_net::ipsec::drop::DropReason;
use sealane_net::ipsec::open::{Inbound, Opened};
use sealane_net::wire::walk::address_pair;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// The index of the loopback device in every namespace.
const LOOPBACK: u32 = 1;

/// The interfaces of a namespace whose packets are forwarded.
#[derive(Default)]
pub(crate) struct Forwarding {
    /// In ascending order. `None` while no interface forwards: the kernel drops what a TUN device of ours gives it then.
    from: RwLock<Option<Vec<u32>>>,
    refused: AtomicU64,
}

impl Forwarding {
    /// The packets that were dropped.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// Replaces the interfaces.
    pub(crate) fn set(&self, from: Option<Vec<u32>>) {
        *self.from.write() = from;
    }

    /// Drops opened packets for other hosts that came by an interface that does not forward. `interfaces` has that of each.
    pub(crate) fn judge(&self, routes: &Routes, packets: &mut [Inbound<'_>], interfaces: impl Iterator<Item = u32>) {
        let from = self.from.read();
        let Some(from) = &*from else { return };
        let mut refused = 0;
        let mut last = None;
        for (packet, interface) in packets.iter_mut().zip(interfaces) {
            // An xfrm interface has a setting of its own, as on Linux.
            if packet.if_id != 0 || !matches!(packet.status, Ok(Opened::Packet { .. })) {
                continue;
            }
            if last != Some(interface) && from.binary_search(&interface).is_ok() {
                last = Some(interface);
            }
            if last == Some(interface) {
                continue;
            }
            // IPv6 has one setting for all.
            if let Ok((_, IpAddr::V4(to))) = address_pair(packet.packet.bytes())
                && is_elsewhere(to, |to| routes.has(to))
            {
                packet.status = Err(DropReason::NotForwarded);
                refused += 1;
            }
        }
        if refused > 0 {
            self.refused.fetch_add(refused, Relaxed);
        }
    }
}

/// Whether packets to an address have to be forwarded.
fn is_elsewhere(to: Ipv4Addr, is_local: impl Fn(IpAddr) -> bool) -> bool {
    !to.is_multicast() && !to.is_broadcast() && !is_local(to.into())
}

/// The interfaces whose packets are forwarded; `None` if there are none. `list` says it of all, among which `ours` are TUN
/// devices that follow the others.
pub(crate) fn interfaces(list: &BTreeMap<u32, bool>, ours: &[u32]) -> Option<Vec<u32>> {
    let others = || list.iter().filter(|(index, _)| !ours.contains(index) && **index != LOOPBACK);
    if !others().any(|(_, forwards)| *forwards) {
        return None;
    }
    // ESP in packets that were opened before: it is not known which interface those came by.
    let all = others().all(|(_, forwards)| *forwards);
    let from = list.iter().filter(|(index, forwards)| if ours.contains(index) { all } else { **forwards });
    Some(from.map(|(index, _)| *index).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_follow_the_others() {
        let list = |on: &[u32]| (1..=5).map(|index| (index, on.contains(&index))).collect::<BTreeMap<_, _>>();
        let found = |on: &[u32]| interfaces(&list(on), &[4, 5]);
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[1, 4, 5]), None, "loopback and ours do not count");
        assert_eq!(found(&[2]), Some(vec![2]));
        assert_eq!(found(&[2, 4]), Some(vec![2]), "what came by ours came by an unknown one");
        assert_eq!(found(&[2, 3]), Some(vec![2, 3, 4, 5]));
        assert_eq!(found(&[1, 2, 3]), Some(vec![1, 2, 3, 4, 5]));
    }

    #[test]
    fn packets_for_this_host_are_not_forwarded() {
        let here = |to: IpAddr| to == IpAddr::from([10, 0, 0, 1]);
        for (to, elsewhere) in
            [([10, 0, 0, 1], false), ([10, 0, 0, 2], true), ([224, 0, 0, 1], false), ([255; 4], false)]
        {
            assert_eq!(is_elsewhere(to.into(), here), elsewhere, "{to:?}");
        }
    }
}
