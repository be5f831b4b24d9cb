//! Fragments: ports are in the first alone, and policies ask for them. The others go its way.

use core::net::IpAddr;
use sealane_net_ipsec::selector::Flow;
use sealane_wire::walk::Walk;

/// The most packets whose remaining fragments are expected. Fragments arrive one after another, except from several
/// CPUs.
const PACKETS: usize = 32;

/// Addresses, identification and protocol in the header, which all fragments of a packet share.
type FragmentKey = (IpAddr, IpAddr, u32, u8);

/// The first fragments seen last.
#[derive(Default)]
pub(crate) struct FirstFragments {
    known: [Option<(FragmentKey, Flow)>; PACKETS],
    next: usize,
}

/// The kind of a packet with respect to fragmentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FragmentKind {
    /// A whole packet, or the first fragment of one.
    Own,
    /// A later fragment, of a flow that is known.
    Later(Flow),
    /// A later fragment of nothing that is known.
    Stray,
}

/// Whether a packet is a fragment, the first one too.
pub(crate) fn is_fragment(packet: &[u8]) -> bool {
    match packet {
        [0x40..=0x4f, _, _, _, _, _, flags, offset, ..] => flags & 0x3f != 0 || *offset != 0,
        // TCP and UDP right behind the header are by far the most.
        [0x60..=0x6f, _, _, _, _, _, 6 | 17, ..] => false,
        _ => Walk::find(packet).is_ok_and(|walk| walk.fragment.is_some()),
    }
}

impl FirstFragments {
    /// Classifies a packet whose own flow is `flow`.
    pub(crate) fn classify(&mut self, packet: &[u8], flow: &Flow) -> FragmentKind {
        let v4 = packet.first().is_some_and(|b| b >> 4 == 4);
        if v4 && packet.get(6..8).is_none_or(|f| f[0] & 0x3f == 0 && f[1] == 0) {
            return FragmentKind::Own;
        }
        let Some(fragment) = Walk::find(packet).ok().and_then(|walk| walk.fragment) else { return FragmentKind::Own };
        let name = (flow.source, flow.destination, fragment.id, fragment.next);
        if !fragment.is_later {
            self.known[self.next] = Some((name, *flow));
            self.next = (self.next + 1) % PACKETS;
            return FragmentKind::Own;
        }
        let first = self.known.iter().flatten().find(|known| known.0 == name);
        first.map_or(FragmentKind::Stray, |known| FragmentKind::Later(known.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(id: u8, flags: u8, offset: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 36, 0, id, flags, offset, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        packet.extend_from_slice(&[0, 7, 0, 9, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    fn v6(id: u8, offset_flags: [u8; 2]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, 24, 44, 64];
        packet.extend_from_slice(&[7; 32]);
        packet.extend_from_slice(&[17, 0, offset_flags[0], offset_flags[1], 0, 0, 0, id]);
        packet.extend_from_slice(&[0, 7, 0, 9, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
        packet
    }

    #[test]
    fn later_ones_go_the_way_of_the_first() {
        let mut fragments = FirstFragments::default();
        let mut of = |packet: &[u8]| fragments.classify(packet, &Flow::of(packet, 0, 0).unwrap());
        assert_eq!(of(&v4(1, 0x40, 0)), FragmentKind::Own);
        for (first, later, stray) in
            [(v4(1, 0x20, 0), v4(1, 0, 2), v4(2, 0, 2)), (v6(1, [0, 1]), v6(1, [0, 16]), v6(2, [0, 16]))]
        {
            assert_eq!(of(&first), FragmentKind::Own);
            let flow = Flow::of(&first, 0, 0).unwrap();
            assert_eq!((flow.sport, flow.dport), (7, 9));
            assert_eq!(of(&later), FragmentKind::Later(flow));
            assert_eq!(of(&stray), FragmentKind::Stray);
        }
        // An atomic fragment of IPv6 is whole.
        assert_eq!(of(&v6(3, [0, 0])), FragmentKind::Own);
    }

    /// Headers behind the fragment header are in the first fragment only.
    #[test]
    fn headers_of_the_first_are_those_of_all() {
        let v6 = |id: u8, offset_flags: [u8; 2]| {
            let mut packet = vec![0x60, 0, 0, 0, 0, 32, 44, 64];
            packet.extend_from_slice(&[7; 32]);
            packet.extend_from_slice(&[60, 0, offset_flags[0], offset_flags[1], 0, 0, 0, id]);
            packet.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
            packet.extend_from_slice(&[0, 7, 0, 9, 0, 40, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
            packet
        };
        let mut fragments = FirstFragments::default();
        let mut of = |packet: &[u8]| fragments.classify(packet, &Flow::of(packet, 0, 0).unwrap());
        let first = Flow::of(&v6(1, [0, 1]), 0, 0).unwrap();
        assert_eq!((first.proto, first.sport, first.dport), (17, 7, 9));
        assert_eq!(of(&v6(1, [0, 1])), FragmentKind::Own);
        assert_eq!(of(&v6(1, [0, 16])), FragmentKind::Later(first));
        assert_eq!(of(&v6(2, [0, 16])), FragmentKind::Stray);
    }
}
