//! Fragments: ports are in the first alone, and policies ask for them. The others go its way.

use core::net::IpAddr;
use sealane_net::ipsec::selector::Flow;
use sealane_net::wire::ip::Family;
use sealane_net::wire::walk::Walk;

/// The most packets whose remaining fragments are expected. Fragments arrive one after another, except from several
/// CPUs.
const PACKETS: usize = 32;

/// The key that all fragments of a packet share.
type FragmentKey = (IpAddr, IpAddr, u32);

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
        _ => Walk::find(packet).is_ok_and(|walk| walk.fragment),
    }
}

impl FirstFragments {
    /// Classifies a packet whose own flow is `flow`.
    pub(crate) fn classify(&mut self, packet: &[u8], flow: &Flow) -> FragmentKind {
        let v4 = packet.first().is_some_and(|b| b >> 4 == 4);
        if v4 && packet.get(6..8).is_none_or(|f| f[0] & 0x3f == 0 && f[1] == 0) {
            return FragmentKind::Own;
        }
        let Some(walk) = Walk::find(packet).ok().filter(|walk| walk.fragment) else { return FragmentKind::Own };
        // Flags and offset: the offset is in the upper bits for IPv6, in the lower ones for IPv4.
        let (first, id) = match walk.family {
            Family::V4 => {
                (packet[6] & 0x1f == 0 && packet[7] == 0, u32::from(u16::from_be_bytes([packet[4], packet[5]])))
            }
            Family::V6 => {
                let header = &packet[walk.upper_at - 8..walk.upper_at];
                let id = u32::from_be_bytes([header[4], header[5], header[6], header[7]]);
                (header[2] == 0 && header[3] & 0xf8 == 0, id)
            }
        };
        let name = (flow.source, flow.destination, id);
        if first {
            self.known[self.next] = Some((name, *flow));
            self.next = (self.next + 1) % PACKETS;
            return FragmentKind::Own;
        }
        let of_name = self.known.iter().flatten().find(|known| known.0 == name && known.1.proto == flow.proto);
        of_name.map_or(FragmentKind::Stray, |known| FragmentKind::Later(known.1))
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
}
