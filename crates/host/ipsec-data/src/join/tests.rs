use super::*;
use sealane_wire::ip::{Layout, finish, pseudo_sum, set_len, sum};

const MSS: usize = 1386;

/// Whole packets as they were given, and whether each was a superframe.
#[derive(Default)]
struct Given(Vec<(Vec<u8>, bool)>);

impl Sink for Given {
    fn give<'a>(
        &mut self,
        _: Option<By>,
        headers: Headers<'a>,
        pieces: impl Iterator<Item = &'a [u8]> + Clone,
    ) -> io::Result<()> {
        let mut packet = headers.bytes.to_vec();
        pieces.for_each(|piece| packet.extend_from_slice(piece));
        self.0.push((packet, headers.gso_size.is_some()));
        Ok(())
    }
}

impl Given {
    /// Ports and payload of each, and whether it was a superframe.
    fn summary(&self) -> Vec<(u16, u32, usize, bool)> {
        let of = |(packet, gso): &(Vec<u8>, bool)| {
            let number = |at: usize| u32::from_be_bytes(packet[at..at + 4].try_into().unwrap());
            (number(20) as u16, number(24), packet.len() - 40, *gso)
        };
        self.0.iter().map(of).collect()
    }

    fn payload(&self, port: u16) -> Vec<u8> {
        let of_port = self.0.iter().filter(|(packet, _)| packet[22..24] == port.to_be_bytes());
        of_port.flat_map(|(packet, _)| packet[40..].to_vec()).collect()
    }
}

/// Segment `i` of a stream to a port.
fn segment(port: u16, i: usize, len: usize, flags: u8) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, i as u8, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 9, 9];
    packet.extend_from_slice(&port.to_be_bytes());
    packet.extend_from_slice(&((i * MSS) as u32).to_be_bytes());
    packet.extend_from_slice(&[0, 0, 0, 1, 0x50, flags, 1, 0, 0, 0, 0, 0]);
    packet.extend((0..len).map(|at| (at * 7 + i) as u8));
    let at = Layout { family: sealane_wire::ip::Family::V4, tcp_at: 20, payload_at: 40, end: packet.len() };
    set_len(&mut packet, &at);
    let checksum = finish(sum(&packet[20..], pseudo_sum(&packet, &at)));
    packet[36..38].copy_from_slice(&checksum.to_be_bytes());
    packet
}

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

fn burst(kept: &mut UnfinishedSuperframe, packets: &[Vec<u8>], more: bool, given: &mut Given) {
    let mut joins = Joins::new(kept);
    packets.iter().for_each(|packet| joins.push(packet, None, given).unwrap());
    joins.finish(more, given).unwrap();
}

#[test]
fn one_superframe_of_two_bursts() {
    let all: Vec<Vec<u8>> = (0..30).map(|i| segment(1, i, MSS, ACK)).collect();
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    burst(&mut kept, &all[..20], true, &mut given);
    assert!(kept.is_some() && given.0.is_empty());
    burst(&mut kept, &all[20..29], true, &mut given);
    assert!(kept.is_some() && given.0.is_empty());
    burst(&mut kept, &all[29..], false, &mut given);
    assert!(!kept.is_some());
    assert_eq!(given.summary().iter().map(|g| (g.1, g.2, g.3)).collect::<Vec<_>>(), [(0, 30 * MSS, true)]);
    assert_eq!(given.payload(1), all.iter().flat_map(|p| p[40..].to_vec()).collect::<Vec<u8>>());
}

#[test]
fn what_is_kept_is_given_before_what_does_not_continue_it() {
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    burst(&mut kept, &[segment(1, 0, MSS, ACK), segment(1, 1, MSS, ACK)], true, &mut given);
    burst(
        &mut kept,
        &[segment(1, 7, MSS, ACK), segment(1, 8, 100, ACK | PSH), segment(1, 9, MSS, ACK)],
        true,
        &mut given,
    );
    let numbers: Vec<_> = given.summary().iter().map(|g| (g.1 as usize / MSS, g.2)).collect();
    assert_eq!(numbers, [(0, 2 * MSS), (7, MSS + 100)]);
    kept.give(&mut given, &Counters::default());
    assert_eq!(given.summary()[2].1 as usize / MSS, 9);
    assert!(!kept.is_some());
}

#[test]
fn nothing_is_kept_that_a_burst_had_nothing_of() {
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    burst(&mut kept, &[segment(1, 0, MSS, ACK)], true, &mut given);
    let datagram = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0];
    burst(&mut kept, &[datagram], true, &mut given);
    assert!(!kept.is_some());
    assert_eq!(given.0.len(), 2);
}

#[test]
fn the_last_of_several_connections_is_kept() {
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    let of = |i| [segment(1, i, MSS, ACK), segment(2, i, MSS, ACK)];
    burst(&mut kept, &of(0), true, &mut given);
    burst(&mut kept, &of(1), true, &mut given);
    burst(&mut kept, &[], false, &mut given);
    for port in [1, 2] {
        let sent: Vec<u8> = (0..2).flat_map(|i| segment(port, i, MSS, ACK)[40..].to_vec()).collect();
        assert_eq!(given.payload(port), sent);
    }
}

#[test]
fn a_superframe_is_no_longer_than_a_packet() {
    let all: Vec<Vec<u8>> = (0..100).map(|i| segment(1, i, MSS, ACK)).collect();
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    all.chunks(44).for_each(|these| burst(&mut kept, these, true, &mut given));
    kept.give(&mut given, &Counters::default());
    assert_eq!(given.summary().iter().map(|g| g.2).collect::<Vec<_>>(), [47 * MSS, 47 * MSS, 6 * MSS]);
    assert_eq!(given.payload(1), all.iter().flat_map(|p| p[40..].to_vec()).collect::<Vec<u8>>());
}

#[test]
fn a_wrong_checksum_is_joined_to_nothing() {
    let (mut kept, mut given) = (UnfinishedSuperframe::new(), Given::default());
    let mut wrong = segment(1, 1, MSS, ACK);
    wrong[60] ^= 1;
    burst(&mut kept, &[segment(1, 0, MSS, ACK), wrong.clone(), segment(1, 2, MSS, ACK)], false, &mut given);
    assert_eq!(given.0[1], (wrong, false));
    assert_eq!(given.0.len(), 3);
}
