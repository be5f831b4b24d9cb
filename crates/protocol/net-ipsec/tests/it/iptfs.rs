//! IP-TFS (RFC 9347): whatever goes in comes out, however it is cut, in any order that the window permits; and what of it
//! is not so.

use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::iptfs::congestion::header::CcHeader;
use sealane_net_ipsec::iptfs::receive::{MAX_WAITING_LEN, Received, Receiver};
use sealane_net_ipsec::iptfs::send::Sender;
use sealane_net_ipsec::iptfs::{CC_HEADER_LEN, Config, HEADER_LEN, Origin};
use std::ops::Range;

const MS: u64 = 1_000_000;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

/// A packet of so many bytes, of which each is another one's.
fn packet(rng: &mut Rng, v6: bool, len: usize) -> Vec<u8> {
    let mut packet: Vec<u8> = (0..len).map(|_| rng.below(256) as u8).collect();
    if v6 {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&((len - 40) as u16).to_be_bytes());
    } else {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    }
    packet
}

fn packets(rng: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let each = |_| {
        let (v6, most) = (rng.below(2) == 1, [30, 300, 3000][rng.below(3)]);
        let len = if v6 { 40 } else { 20 } + rng.below(most);
        packet(rng, v6, len)
    };
    (0..count).map(each).collect()
}

/// The payloads of a sender of ours.
fn sent(packets: &[Vec<u8>], most: usize) -> Vec<Vec<u8>> {
    let (mut sender, config) = (Sender::default(), Config::default());
    packets.iter().for_each(|packet| sender.push(packet, &config, 0).unwrap());
    sender.handle_timeout(0);
    let mut buffer = vec![0xee; HEADER_LEN + most];
    let mut payloads = Vec::new();
    while let Some(len) = sender.next_payload(most, false, &mut buffer, &mut Vec::new()) {
        payloads.push(buffer[..len].to_vec());
    }
    payloads
}

/// The places of the bytes of our payloads in those of all packets: too little room for a header is padding.
fn places(packets: &[Vec<u8>], payloads: &[Vec<u8>]) -> Vec<Range<usize>> {
    let ends = packets.iter().scan(0, |end, packet| {
        *end += packet.len();
        Some(*end)
    });
    let ends: Vec<usize> = ends.collect();
    let mut at = 0;
    let of = |payload: &Vec<u8>| {
        let most = at + payload.len() - HEADER_LEN;
        let end = ends.iter().rev().find(|end| **end <= most).filter(|end| **end > at && most - **end < 40);
        let place = at..*end.unwrap_or(&most);
        at = place.end;
        place
    };
    payloads.iter().map(of).collect()
}

/// Payloads are full, so that outer packets have one length, but for the last one; and nobody has to do with a header in pieces.
#[test]
fn payloads_are_full() {
    let (mut padding, mut begun) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let count = 1 + rng.below(40);
        let packets = packets(&mut rng, count);
        let most = 100 + rng.below(1500);
        let payloads = sent(&packets, most);
        let places = places(&packets, &payloads);
        assert!(payloads.iter().rev().skip(1).all(|payload| payload.len() == HEADER_LEN + most), "seed {seed}");
        assert_eq!(places.last().unwrap().end, packets.iter().map(Vec::len).sum::<usize>(), "seed {seed}");
        let mut start = 0;
        for packet in &packets {
            let place = places.iter().find(|place| place.contains(&start)).unwrap();
            let beginning = place.end - start;
            assert!(beginning >= packet.len().min(40), "seed {seed}: {beginning} bytes of {}", packet.len());
            begun += usize::from(start > place.start && beginning < packet.len());
            start += packet.len();
        }
        padding +=
            payloads.iter().zip(&places).filter(|(payload, place)| place.len() < payload.len() - HEADER_LEN).count();
    }
    assert!(padding > 100 && begun > 1000, "{padding} with padding, {begun} begin at an end");
}

/// The payloads of a sender that fills each of them, whatever the lengths of packets; some have congestion control, and some
/// payloads between two packets are padding alone.
fn filled(packets: &[Vec<u8>], rng: &mut Rng) -> Vec<Vec<u8>> {
    let all = packets.concat();
    let mut ends = packets.iter().scan(0, |end, packet| {
        *end += packet.len();
        Some(*end)
    });
    let (mut at, mut end, mut payloads) = (0, 0, Vec::new());
    while at < all.len() {
        while end < at {
            end = ends.next().unwrap();
        }
        if rng.below(8) == 0 {
            payloads.push(vec![0; HEADER_LEN + rng.below(50)]);
        }
        let len = (6 + rng.below(700)).min(all.len() - at);
        let mut payload = if rng.below(4) == 0 { vec![0; CC_HEADER_LEN] } else { vec![0; HEADER_LEN] };
        payload[0] = u8::from(payload.len() == CC_HEADER_LEN);
        payload[2..4].copy_from_slice(&((end - at) as u16).to_be_bytes());
        payload.extend_from_slice(&all[at..at + len]);
        at += len;
        if at == all.len() || end == at && rng.below(2) == 0 {
            payload.extend(vec![0; rng.below(9)]);
        }
        payloads.push(payload);
    }
    payloads
}

/// An order in which each of so many comes at most `window` places late; the first one comes first.
fn shuffled(count: usize, window: usize, rng: &mut Rng) -> Vec<usize> {
    let mut order: Vec<(usize, usize)> =
        (0..count).map(|i| (if i == 0 { 0 } else { i + rng.below(window + 1) }, i)).collect();
    order.sort_by_key(|(key, i)| (*key, usize::MAX - *i));
    // The first has set the number that comes next.
    let first = order.iter().position(|(_, i)| *i == 0).unwrap();
    let first = order.remove(first);
    order.insert(0, first);
    order.into_iter().map(|(_, i)| i).collect()
}

fn receiver(window: usize) -> Receiver {
    Receiver::new(&Config { reorder_pkts: window as u16, ..Config::default() })
}

fn take(received: &mut Received) -> Vec<Vec<u8>> {
    core::mem::take(&mut received.packets).into_iter().map(|emerged| emerged.packet).collect()
}

#[test]
fn what_goes_in_comes_out() {
    let (mut pieces, mut together, mut late) = (0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng(seed);
        let count = 1 + rng.below(60);
        let packets = packets(&mut rng, count);
        let most = 6 + rng.below(3000);
        let payloads = if seed % 2 == 0 { sent(&packets, most) } else { filled(&packets, &mut rng) };
        pieces += payloads.len().saturating_sub(packets.len());
        together += packets.len().saturating_sub(payloads.len());
        let window = rng.below(9);
        let mut receiver = receiver(window);
        let mut received = Received::default();
        let start = [1, u64::from(u32::MAX) - 5, u64::MAX - 100_000][rng.below(3)];
        let order = shuffled(payloads.len(), window, &mut rng);
        late += order.windows(2).filter(|pair| pair[0] > pair[1]).count();
        for i in order {
            receiver.input(start + i as u64, &payloads[i], &Origin::default(), 0, &mut received);
        }
        assert_eq!((take(&mut received), received.faults), (packets, vec![]), "seed {seed}");
        assert_eq!(receiver.poll_timeout(), None, "nothing waits: seed {seed}");
    }
    assert!(pieces > 100 && together > 100 && late > 100, "{pieces} pieces, {together} together, {late} late");
}

/// Packets of which no part was lost come out, in their order.
#[test]
fn what_is_lost_takes_nothing_else_with_it() {
    let (mut lost_packets, mut given_up) = (0, 0);
    for seed in 0..300 {
        let mut rng = Rng(seed);
        let packets = packets(&mut rng, 40);
        let most = 100 + rng.below(1500);
        let payloads = sent(&packets, most);
        let bytes = places(&packets, &payloads);
        let lost: Vec<bool> = (0..payloads.len()).map(|i| i > 0 && rng.below(6) == 0).collect();
        let mut at = 0;
        let whole = packets.iter().filter(|packet| {
            let part = at..at + packet.len();
            at = part.end;
            !bytes.iter().zip(&lost).any(|(of, lost)| *lost && of.start < part.end && part.start < of.end)
        });
        let whole: Vec<Vec<u8>> = whole.cloned().collect();
        lost_packets += packets.len() - whole.len();
        let window = rng.below(6);
        let mut receiver = receiver(window);
        let mut received = Received::default();
        let mut now_ns = 0;
        for (i, payload) in payloads.iter().enumerate().filter(|(i, _)| !lost[*i]) {
            // Some come so late that what is missing is given up.
            if i > 0
                && lost[i - 1]
                && rng.below(2) == 0
                && let Some(at) = receiver.poll_timeout()
            {
                receiver.handle_timeout(at - 1, &mut received);
                assert_eq!(receiver.poll_timeout(), Some(at), "not before its time");
                receiver.handle_timeout(at, &mut received);
                (now_ns, given_up) = (at, given_up + 1);
            }
            receiver.input(i as u64 + 1, payload, &Origin::default(), now_ns, &mut received);
        }
        while let Some(at) = receiver.poll_timeout() {
            receiver.handle_timeout(at, &mut received);
        }
        assert_eq!(take(&mut received), whole, "seed {seed}");
        assert!(received.faults.iter().all(|fault| *fault == DropReason::IptfsFragment), "{:?}", received.faults);
    }
    assert!(lost_packets > 100 && given_up > 100, "{lost_packets} lost, {given_up} given up");
}

/// Payloads and what becomes of them: packets, faults.
fn fed(payloads: &[&[u8]]) -> (usize, Vec<DropReason>) {
    let (mut receiver, mut received) = (receiver(3), Received::default());
    for (number, payload) in (1..).zip(payloads) {
        receiver.input(number, payload, &Origin::default(), 0, &mut received);
    }
    (take(&mut received).len(), received.faults)
}

#[test]
fn faults_are_told() {
    use DropReason::{IptfsBlock, IptfsFragment, IptfsHeader};
    let mut rng = Rng(1);
    let good = packet(&mut rng, false, 100);
    let payload = |header: &[u8], blocks: &[&[u8]]| [header, &blocks.concat()].concat();
    let basic = |blocks: &[&[u8]]| payload(&[0; 4], blocks);
    let rest = |offset: u8, piece: &[u8]| payload(&[0, 0, 0, offset], &[piece]);
    assert_eq!(fed(&[&basic(&[&good, &good])]), (2, vec![]));
    assert_eq!(fed(&[&basic(&[&good, &[0; 7], &good])]), (1, vec![]), "padding is to the end");
    assert_eq!(fed(&[&[]]), (0, vec![IptfsBlock]));
    assert_eq!(fed(&[&[0; 3]]), (0, vec![IptfsBlock]));
    assert_eq!(fed(&[&[0; 4]]), (0, vec![]), "nothing in it");
    assert_eq!(fed(&[&payload(&[2, 0, 0, 0], &[&good])]), (0, vec![IptfsHeader]), "sub-type");
    assert_eq!(fed(&[&payload(&[0, 1, 0, 0], &[&good])]), (0, vec![IptfsHeader]), "reserved bits");
    assert_eq!(fed(&[&payload(&[1, 0, 0, 0], &[&[0; 19]])]), (0, vec![IptfsBlock]), "congestion control cut short");
    assert_eq!(fed(&[&payload(&[1, 0, 0, 0], &[&[0xff; 20], &good])]), (1, vec![]));
    for flags in 1..=3 {
        assert_eq!(fed(&[&payload(&[1, flags, 0, 0], &[&[0; 20], &good])]), (1, vec![]), "probing, marked");
    }
    assert_eq!(fed(&[&payload(&[1, 4, 0, 0], &[&[0; 20], &good])]), (0, vec![IptfsHeader]), "reserved bits");
    for version in [0x10, 0x50, 0x70, 0xf0] {
        assert_eq!(fed(&[&basic(&[&good, &[version]])]), (1, vec![IptfsBlock]));
    }
    assert_eq!(fed(&[&basic(&[&[0x44, 0, 0, 100]])]), (0, vec![IptfsHeader]), "a header of 16 bytes");
    assert_eq!(fed(&[&basic(&[&[0x45, 0, 0, 19]])]), (0, vec![IptfsHeader]), "shorter than its header");
    // The rest of what began before is skipped, also where it goes on.
    assert_eq!(fed(&[&rest(50, &[9; 50]), &rest(9, &[0xff; 20])]), (0, vec![IptfsBlock]));
    assert_eq!(fed(&[&payload(&[0, 0, 0, 5], &[&[9; 5], &good])]), (1, vec![]));
    // In two pieces, and with as many bytes as there are not.
    assert_eq!(fed(&[&basic(&[&good[..60]]), &rest(40, &good[60..])]), (1, vec![]));
    assert_eq!(fed(&[&basic(&[&good[..60]]), &rest(39, &good[60..99])]), (0, vec![IptfsFragment]));
    assert_eq!(fed(&[&basic(&[&good[..60]]), &basic(&[&good])]), (1, vec![IptfsFragment]), "no rest");
    assert_eq!(fed(&[&basic(&[&good[..60]]), &[0; 9], &rest(40, &good[60..])]), (1, vec![]), "padding in between");
    for runt in 1..4 {
        assert_eq!(fed(&[&basic(&[&good[..runt]]), &rest(100 - runt as u8, &good[runt..])]), (1, vec![]));
        let few = rest(100 - runt as u8, &good[runt..5]);
        assert_eq!(fed(&[&basic(&[&good[..runt]]), &few]), (0, vec![IptfsFragment]), "no length");
    }
    let tiny = [0x45, 0, 0, 9, 0, 0, 0, 0, 0];
    assert_eq!(
        fed(&[&basic(&[&tiny[..2]]), &rest(7, &tiny[2..])]),
        (0, vec![IptfsFragment]),
        "shorter than its header"
    );
}

#[test]
fn what_comes_late_is_gone() {
    let mut rng = Rng(7);
    let each: Vec<Vec<u8>> = (0..9).map(|i| packet(&mut rng, false, 40 + i)).collect();
    let payload = |i: usize| [&[0; 4][..], &each[i]].concat();
    let (mut receiver, mut received) = (receiver(3), Received::default());
    let mut input = |receiver: &mut Receiver, number: usize, now_ns| {
        receiver.input(number as u64, &payload(number), &Origin::default(), now_ns, &mut received);
        take(&mut received).iter().map(|packet| packet.len() - 40).collect::<Vec<_>>()
    };
    assert_eq!(input(&mut receiver, 1, 0), [1]);
    assert!(input(&mut receiver, 3, 0).is_empty());
    assert!(input(&mut receiver, 5, 7 * MS).is_empty());
    assert_eq!(receiver.poll_timeout(), Some(1000 * MS));
    assert_eq!(input(&mut receiver, 6, 9 * MS), [3], "the window has moved: 2 is given up, 4 is not");
    assert!(input(&mut receiver, 2, 9 * MS).is_empty());
    assert!(input(&mut receiver, 3, 9 * MS).is_empty());
    assert_eq!(receiver.poll_timeout(), Some(1007 * MS));
    let mut received = Received::default();
    receiver.handle_timeout(1007 * MS, &mut received);
    assert_eq!(take(&mut received), each[5..7]);
    assert_eq!(receiver.poll_timeout(), None);
    receiver.input(8_000, &payload(8), &Origin::default(), 0, &mut received);
    receiver.input(8_003, &payload(7), &Origin::default(), 0, &mut received);
    assert_eq!(take(&mut received), each[8..9], "thousands are missing");
    receiver.handle_timeout(1000 * MS, &mut received);
    assert_eq!(take(&mut received), each[7..8]);
}

#[test]
fn what_waits_is_bounded() {
    let (mut receiver, mut received) = (receiver(65_535), Received::default());
    let payload = vec![0; 60_000];
    for number in (1..1000).filter(|number| *number != 2) {
        receiver.input(number, &payload, &Origin::default(), 0, &mut received);
    }
    let kept = MAX_WAITING_LEN / payload.len();
    assert_eq!(received.faults, vec![DropReason::IptfsFull; 997 - kept]);
}

/// A payload has the room of those that it pushes out of the window.
#[test]
fn a_full_window_moves() {
    let mut rng = Rng(6);
    let (mut receiver, mut received) = (receiver(300), Received::default());
    let inner = packet(&mut rng, false, 60_000);
    let payload = [&[0; HEADER_LEN][..], &inner].concat();
    let kept = (MAX_WAITING_LEN / payload.len()) as u64;
    receiver.input(1, &payload, &Origin::default(), 0, &mut received);
    assert_eq!(take(&mut received).len(), 1);
    // 2 has not come, and all that may wait do.
    for number in 3..3 + kept {
        receiver.input(number, &payload, &Origin::default(), 0, &mut received);
    }
    assert!(received.is_empty());
    receiver.input(3 + kept, &payload, &Origin::default(), 0, &mut received);
    assert_eq!(core::mem::take(&mut received.faults), [DropReason::IptfsFull]);
    // The number from which on 2 is out of the window: all that waited for it leave.
    receiver.input(303, &payload, &Origin::default(), 0, &mut received);
    assert_eq!((received.faults.len(), take(&mut received).len()), (0, kept as usize));
    receiver.handle_timeout(1000 * MS, &mut received);
    assert_eq!((received.faults.len(), take(&mut received).len()), (0, 1), "it waits for those before it");
}

#[test]
fn a_queue_is_bounded() {
    let mut rng = Rng(3);
    let config = Config { max_queue_len: 10_000, init_delay_us: 50, ..Config::default() };
    let mut sender = Sender::default();
    let capable = |v6: bool, rng: &mut Rng| {
        let mut packet = packet(rng, v6, 500);
        if v6 {
            packet[1] = 0x20;
        } else {
            packet[1] = 2;
        }
        packet
    };
    let all: Vec<_> = (0..21).map(|i| capable(i % 2 == 0, &mut rng)).collect();
    let pushed: Vec<_> = all.iter().map(|packet| sender.push(packet, &config, 9)).collect();
    assert_eq!(pushed[..20], [Ok(()); 20]);
    assert_eq!(pushed[20], Err(DropReason::IptfsQueue));
    assert_eq!(sender.poll_timeout(), Some(50_009), "since the first one");
    let mut buffer = vec![0; 65_536];
    let mut out = |sender: &mut Sender| {
        sender.next_payload(65_000, false, &mut buffer, &mut Vec::new()).map(|len| buffer[..len].to_vec())
    };
    sender.handle_timeout(50_008);
    assert_eq!(out(&mut sender), None);
    sender.handle_timeout(50_009);
    let payload = out(&mut sender).unwrap();
    assert_eq!((payload.len(), sender.poll_timeout()), (HEADER_LEN + 10_000, None));
    let marked = |i: usize| match payload[HEADER_LEN + i * 500] {
        0x60 => payload[HEADER_LEN + i * 500 + 1] & 0x30 == 0x30,
        _ => payload[HEADER_LEN + i * 500 + 1] & 3 == 3,
    };
    assert_eq!((0..20).filter(|i| marked(*i)).collect::<Vec<_>>(), [19], "above 95 percent");
}

#[test]
fn packets_that_may_not_be_cut_are_dropped_when_the_path_gets_narrow() {
    let (mut rng, config) = (Rng(4), Config { dont_frag: true, ..Config::default() });
    let mut sender = Sender::default();
    let all = [300, 900, 200].map(|len| packet(&mut rng, false, len));
    all.iter().for_each(|packet| sender.push(packet, &config, 0).unwrap());
    sender.handle_timeout(0);
    let (mut buffer, mut refused) = (vec![0; 700], Vec::new());
    let first = sender.next_payload(600, true, &mut buffer, &mut refused);
    assert_eq!(
        (first, refused.len()),
        (Some(HEADER_LEN + 300), 0),
        "the second does not fit, and nothing overtakes it"
    );
    assert_eq!(sender.next_payload(600, true, &mut buffer, &mut refused), Some(HEADER_LEN + 200));
    assert_eq!(refused, [DropReason::IptfsTooBig]);
    assert_eq!(buffer[HEADER_LEN..HEADER_LEN + 200], all[2]);
}

/// At a constant rate all payloads are of one length, and what is in them comes out of a receiver as otherwise.
#[test]
fn payloads_of_one_length() {
    const MOST: usize = 700;
    let (mut rng, config) = (Rng(5), Config::default());
    let all = packets(&mut rng, 60);
    let (mut sender, mut receiver, mut received) = (Sender::default(), receiver(3), Received::default());
    let (mut waiting, mut number, mut padding) = (all.iter(), 0, 0);
    let mut came = Vec::new();
    while came.len() < all.len() {
        // Sometimes there is nothing, sometimes there are many.
        for packet in waiting.by_ref().take([0, 0, 0, 2][rng.below(4)]) {
            sender.push(packet, &config, 0).unwrap();
        }
        let mut buffer = vec![0xee; HEADER_LEN + MOST];
        let len = sender.next_constant(MOST, false, true, None, &mut buffer, &mut Vec::new());
        assert_eq!(len, Some(HEADER_LEN + MOST));
        padding += usize::from(buffer.iter().all(|byte| *byte == 0));
        number += 1;
        assert!(number < 10_000, "packets stay away");
        receiver.input(number, &buffer, &Origin::default(), 0, &mut received);
        came.extend(take(&mut received));
    }
    assert_eq!(came, all);
    assert!(padding > 5 && received.faults.is_empty(), "{padding} {:?}", received.faults);
    assert_eq!(sender.next_constant(MOST, false, false, None, &mut [0; HEADER_LEN + MOST], &mut Vec::new()), None);
}

/// With congestion control headers are longer, and all else is as without.
#[test]
fn payloads_that_tell_of_congestion() {
    const MOST: usize = 500;
    let (mut rng, config) = (Rng(8), Config::default());
    let all = packets(&mut rng, 60);
    let (mut sender, mut receiver, mut received) = (Sender::default(), receiver(3), Received::default());
    all.iter().for_each(|packet| sender.push(packet, &config, 0).unwrap());
    let (mut number, mut offsets) = (0, 0);
    while received.packets.len() < all.len() {
        number += 1;
        assert!(number < 10_000, "packets stay away");
        let (marked, probing) = (rng.below(2) == 1, rng.below(2) == 1);
        let header = CcHeader { marked, probing, time: number as u32, echo: 7, ..CcHeader::default() };
        let mut buffer = vec![0xee; CC_HEADER_LEN + MOST];
        let len = sender.next_constant(MOST, false, true, Some(&header), &mut buffer, &mut Vec::new());
        assert_eq!(len, Some(CC_HEADER_LEN + MOST));
        let found = CcHeader::parse(&buffer).unwrap();
        assert_eq!(CcHeader { offset: 0, ..found }, header);
        offsets += usize::from(found.offset > 0);
        receiver.input(number, &buffer, &Origin::default(), 0, &mut received);
    }
    assert_eq!((take(&mut received), received.faults), (all, vec![]));
    assert!(offsets > 10, "{offsets} go on with a packet");
    let nothing = sender.next_constant(MOST, false, false, Some(&CcHeader::default()), &mut [0; 524], &mut Vec::new());
    assert_eq!(nothing, None);
}
