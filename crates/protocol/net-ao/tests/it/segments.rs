//! Editing of segments: what goes in comes out again, and nothing else changes.

use crate::common::segment;
use crate::random::Random;
use core::net::SocketAddr;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::output::OptionFields;
use sealane_net_ao::segment::cut::Cut;
use sealane_net_ao::segment::join::{Join, Pushed};
use sealane_net_ao::segment::{ChecksumState, insert, make_room, max_payload, options_with, strip};
use sealane_wire::ip::{self, Family, Layout};
use sealane_wire::tcp::{Auth, BadOptions, Flags, Options, Segment};

const MSS: [u8; 4] = [2, 4, 0x05, 0xb4];
const TIMESTAMPS: [u8; 12] = [1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8];

fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
    if v6 {
        ("[2001:db8::1]:179".parse().unwrap(), "[2001:db8::2]:4000".parse().unwrap())
    } else {
        ("192.0.2.1:179".parse().unwrap(), "198.51.100.2:4000".parse().unwrap())
    }
}

fn fields(mac_len: usize) -> OptionFields {
    OptionFields { key_id: 5, rnext_key_id: 6, mac_len }
}

/// SACK with `blocks` blocks, aligned as Linux does.
fn sack(blocks: u8) -> Vec<u8> {
    let mut out = vec![1, 1, 5, 2 + 8 * blocks];
    out.extend((0..8 * blocks).map(|i| 0x40 + i));
    out
}

/// Puts the option in and finishes the checksum as signing would, the MAC left zero.
fn with_option(packet: &[u8], fields: &OptionFields) -> Result<(Vec<u8>, Layout), DropReason> {
    let mut out = vec![0; packet.len() + 40];
    let at = insert(&Segment::parse(packet).unwrap(), fields, &mut out)?;
    out.truncate(at.end);
    ip::set_tcp_checksum(&mut out, &at);
    Ok((out, at))
}

fn without_option(packet: &mut [u8]) -> &mut [u8] {
    let segment = Segment::parse(packet).unwrap();
    let (at, Ok(Some(Auth::Ao(option)))) = (*segment.layout(), segment.auth()) else { panic!("no option") };
    let (start, new_at) = strip(packet, &at, &option, ChecksumState::Complete);
    let packet = &mut packet[start..];
    assert_eq!(Layout::find(packet), Ok(new_at));
    packet
}

#[test]
fn strip_undoes_insert() {
    let mut random = Random(3);
    for _ in 0..2000 {
        let v6 = random.one_in(2);
        let (source, destination) = ends(v6);
        let mac_len = 1 + random.below(16);
        let room = 40 - fields(mac_len).padded_len();
        let mut options = Vec::new();
        for option in [&MSS[..], &TIMESTAMPS, &[3, 3, 7, 1], &[254, 4, 9, 9], &[1, 1, 1, 1], &sack(1)] {
            if random.one_in(2) && options.len() + option.len() <= room {
                options.extend(option);
            }
        }
        let payload: Vec<u8> = (0..random.below(300)).map(|_| random.next() as u8).collect();
        let flags = random.next() as u8;
        let (seq, ack) = (random.next() as u32, random.next() as u32);
        let packet = segment(source, destination, seq, ack, flags, &options, &payload);
        let (mut signed, at) = with_option(&packet, &fields(mac_len)).unwrap();
        assert_eq!(signed.len(), packet.len() + fields(mac_len).padded_len());
        assert!(ip::tcp_checksum_ok(&signed, &at));
        let option = match Segment::parse(&signed).unwrap().auth() {
            Ok(Some(Auth::Ao(option))) => option,
            other => panic!("{other:?}"),
        };
        assert_eq!((option.at, option.key_id, option.rnext_key_id, option.mac_len), (0, 5, 6, mac_len));
        assert_eq!(without_option(&mut signed), packet);
    }
}

#[test]
fn an_option_anywhere_comes_out_with_its_padding() {
    let (source, destination) = ends(false);
    let ao = |mac_len: usize| [&[29, 4 + mac_len as u8, 1, 2][..], &vec![0xaa; mac_len]].concat();
    for (before, mac_len, behind, left) in [
        (&TIMESTAMPS[..], 12, &[][..], &TIMESTAMPS[..]),
        (&TIMESTAMPS, 13, &[1, 1, 1], &TIMESTAMPS),
        (&TIMESTAMPS, 13, &[0, 0, 0], &TIMESTAMPS),
        (&[1, 1], 10, &TIMESTAMPS, &TIMESTAMPS),
        (&[1, 1], 10, &MSS, &MSS),
        (&[1, 1, 1], 9, &MSS, &MSS),
        (&[3, 3, 1], 9, &MSS, &[3, 3, 1, 1, 2, 4, 0x05, 0xb4]),
        (&[], 10, &[3, 3, 1, 3, 3, 2], &[1, 1, 3, 3, 1, 3, 3, 2]),
        // An EOL that hides something is not padding.
        (&[], 15, &[0, 2, 4, 5, 0xb4], &[1, 1, 1, 0, 2, 4, 5, 0xb4]),
    ] {
        let options = [before, &ao(mac_len), behind].concat();
        let mut packet = segment(source, destination, 1, 2, Flags::ACK, &options, b"payload");
        let packet = without_option(&mut packet);
        let stripped = Segment::parse(packet).unwrap();
        let list = |bytes: &[u8]| -> Vec<Vec<u8>> {
            Options::new(bytes).map(|o| o.unwrap().bytes.to_vec()).filter(|o| o[0] != 1).collect()
        };
        assert_eq!(list(stripped.option_bytes()), list(left), "{options:02x?}");
        assert!(stripped.option_bytes().len() <= left.len(), "{options:02x?}");
        assert_eq!(stripped.payload(), b"payload");
        assert!(ip::tcp_checksum_ok(packet, stripped.layout()), "{options:02x?}");
    }
}

#[test]
fn a_wrong_checksum_stays_wrong_and_a_partial_one_partial() {
    let (source, destination) = ends(true);
    let packet = segment(source, destination, 1, 2, Flags::ACK, &TIMESTAMPS, b"odd");
    let (good, at) = with_option(&packet, &fields(12)).unwrap();
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 0x10;
    let stripped = without_option(&mut wrong);
    assert!(!ip::tcp_checksum_ok(stripped, &Layout::find(stripped).unwrap()));

    let mut partial = good;
    ip::set_partial_checksum(&mut partial, &at);
    let Ok(Some(Auth::Ao(option))) = Segment::parse(&partial).unwrap().auth() else { panic!("no option") };
    let (start, at) = strip(&mut partial, &at, &option, ChecksumState::Partial);
    let mut want = packet;
    ip::set_partial_checksum(&mut want, &at);
    assert_eq!(partial[start..], want);
}

#[test]
fn sack_blocks_give_way() {
    let kinds = |options: &[u8]| -> Vec<(u8, usize)> {
        Options::new(options)
            .map(|o| o.unwrap())
            .filter(|o| o.bytes[0] != 1)
            .map(|o| (o.bytes[0], o.bytes.len()))
            .collect()
    };
    let with_timestamps = |blocks| [&TIMESTAMPS[..], &sack(blocks)].concat();
    for (mac_len, options, want) in [
        (12, with_timestamps(1), vec![(29, 16), (8, 10), (5, 10)]),
        (12, with_timestamps(3), vec![(29, 16), (8, 10), (5, 10)]),
        (4, with_timestamps(3), vec![(29, 8), (8, 10), (5, 18)]),
        (16, with_timestamps(3), vec![(29, 20), (8, 10)]),
        (12, sack(4), vec![(29, 16), (5, 18)]),
        (16, sack(4), vec![(29, 20), (5, 18)]),
        (9, sack(4), vec![(29, 13), (5, 18)]),
        // Two of them, which no TCP sends, share what room there is.
        (12, [sack(1), sack(1), TIMESTAMPS.to_vec()].concat(), vec![(29, 16), (5, 10), (8, 10)]),
        // Padding gives way before anything else does.
        (12, [&[1; 12][..], &TIMESTAMPS, &sack(1)].concat(), vec![(29, 16), (8, 10), (5, 10)]),
    ] {
        let out = options_with(&fields(mac_len), &options).unwrap();
        assert_eq!(kinds(&out), want, "{mac_len} {options:02x?}");
        assert!(out.len().is_multiple_of(4) && out.len() <= 40);
        let first = |options: &[u8]| {
            Options::new(options).map(|o| o.unwrap()).find(|o| o.bytes[0] == 5).map(|o| o.bytes[2..10].to_vec())
        };
        assert!(first(&out).is_none_or(|block| Some(block) == first(&options)), "the first block first");
    }
    let full = [&MSS[..], &TIMESTAMPS, &[3, 3, 7, 1], &[254, 8, 0, 0, 0, 0, 0, 0]].concat();
    assert_eq!(options_with(&fields(12), &full).unwrap_err(), DropReason::NoRoom);
    assert_eq!(options_with(&fields(16), &[[8, 50]; 12].concat()).unwrap_err(), DropReason::BadHeader);
    assert_eq!(options_with(&fields(40), &[]).unwrap_err(), DropReason::NoRoom);
    // Options that fit are not parsed.
    assert!(options_with(&fields(12), &[8, 50, 0, 0]).is_ok());
}

/// Accurate ECN's counters take what all others leave: all, some or none of them.
#[test]
fn accurate_ecn_gives_way() {
    let accecn = |fields: usize| {
        let counters = (1..=3 * fields as u8).collect::<Vec<_>>();
        [&[172, 2 + 3 * fields as u8][..], &counters, &[1][..fields % 2]].concat()
    };
    let kinds = |options: &[u8]| -> Vec<(u8, usize)> {
        let options = Options::new(options).map(|o| o.unwrap()).filter(|o| o.kind() != 1);
        options.map(|o| (o.kind(), o.bytes.len())).collect()
    };
    // A SYN-ACK as Linux writes it, and data.
    let syn_ack = [&MSS[..], &[4, 2], &TIMESTAMPS[2..], &accecn(3), &[1, 3, 3, 7]].concat();
    let offer = [(2, 4), (4, 2), (8, 10), (3, 3)];
    let data = [&TIMESTAMPS[..], &accecn(3)].concat();
    let lossy = [&TIMESTAMPS[..], &sack(1), &accecn(2)].concat();
    for (mac_len, options, others, left) in [
        (4, &syn_ack, &offer[..], 3),
        (12, &syn_ack, &offer, 1),
        // No SACK where no block has room.
        (16, &syn_ack, &[(2, 4), (8, 10), (3, 3)], 0),
        (12, &data, &[(8, 10)], 3),
        (16, &data, &[(8, 10)], 2),
        (20, &data, &[(8, 10)], 1),
        (8, &lossy, &[(8, 10), (5, 10)], 2),
        (12, &lossy, &[(8, 10), (5, 10)], 0),
    ] {
        let out = options_with(&fields(mac_len), options).unwrap();
        let ecn = (left > 0).then_some((172, 2 + 3 * left));
        let want: Vec<_> = [(29, 4 + mac_len)].into_iter().chain(others.iter().copied()).chain(ecn).collect();
        let mut got = kinds(&out);
        // What fits as it is stays where it is.
        got.sort_by_key(|(kind, _)| want.iter().position(|(other, _)| other == kind));
        assert_eq!(got, want, "{mac_len} {options:02x?}");
        assert!(out.len().is_multiple_of(4) && out.len() <= 40);
        let counters = Options::new(&out).map(|o| o.unwrap()).find(|o| o.kind() == 172);
        assert!(counters.is_none_or(|o| o.bytes[2..].iter().copied().eq(1..=3 * left as u8)), "the first ones stay");
    }
}

#[test]
fn the_peers_mss_is_lowered() {
    for v6 in [false, true] {
        let (source, destination) = ends(v6);
        let syn = Flags::SYN | Flags::ACK;
        let headers = if v6 { 60 } else { 40 };
        for (mss, mtu, want) in [
            (1460u16, 1500, 1460.min(1500 - headers) - 16),
            (9000, 1500, 1500 - headers - 16),
            (536, 1500, 520),
            (0, 1500, 0),
            (100, 30, 0),
        ] {
            let options = [&[1, 3, 3, 7, 2, 4][..], &mss.to_be_bytes()].concat();
            let mut packet = segment(source, destination, 1, 2, syn, &options, b"");
            let at = Layout::find(&packet).unwrap();
            make_room(&mut packet, &at, mtu, 16, ChecksumState::Complete);
            assert!(ip::tcp_checksum_ok(&packet, &at));
            let want = [&options[..6], &(want as u16).to_be_bytes()].concat();
            assert_eq!(Segment::parse(&packet).unwrap().option_bytes(), want);
        }
        let packet = segment(source, destination, 1, 2, syn, &TIMESTAMPS, b"");
        let mut same = packet.clone();
        make_room(&mut same, &Layout::find(&packet).unwrap(), 1500, 16, ChecksumState::Complete);
        assert_eq!(same, packet);
    }
}

/// Both ends of a connection whose segments have no room for a SACK block lose the offer of SACK, and others keep it.
#[test]
fn sack_is_offered_only_where_a_block_fits() {
    const PERMITTED: [u8; 4] = [1, 1, 4, 2];
    let with_timestamps = [&MSS[..], &[4, 2], &TIMESTAMPS[2..], &[1, 3, 3, 7]].concat();
    let without = [&MSS[..], &PERMITTED, &[1, 3, 3, 7]].concat();
    for (mac_len, options, keeps) in [
        (12, &with_timestamps, true),
        (13, &with_timestamps, false),
        (16, &with_timestamps, false),
        (16, &without, true),
    ] {
        let offers = |options: &[u8]| Options::new(options).any(|o| o.unwrap().kind() == 4);
        let signed = options_with(&fields(mac_len), options).unwrap();
        assert_eq!(offers(&signed), keeps, "going out, {mac_len}");
        let rest = signed.len() - options.len();
        let same = signed[rest..].iter().zip(options).filter(|(a, b)| a == b).count();
        assert_eq!(same, options.len() - if keeps { 0 } else { 2 }, "nothing else changes");

        let (source, destination) = ends(false);
        let mut packet = segment(source, destination, 1, 2, Flags::SYN, options, b"");
        let at = Layout::find(&packet).unwrap();
        make_room(&mut packet, &at, 9000, rest, ChecksumState::Complete);
        assert!(ip::tcp_checksum_ok(&packet, &at));
        assert_eq!(offers(Segment::parse(&packet).unwrap().option_bytes()), keeps, "coming in, {mac_len}");
    }
}

/// Cuts a superframe, takes the options out again and joins what is left.
#[test]
fn join_undoes_cut() {
    let mut random = Random(11);
    for round in 0..300 {
        let v6 = random.one_in(2);
        let (source, destination) = ends(v6);
        let payload: Vec<u8> = (0..1 + random.below(20_000)).map(|_| random.next() as u8).collect();
        let flags = Flags::ACK | [0, Flags::PSH, Flags::FIN, Flags::FIN | Flags::PSH][random.below(4)];
        let seq = if random.one_in(2) { random.next() as u32 } else { u32::MAX - 5000 };
        let mut super_frame = segment(source, destination, seq, 9, flags, &TIMESTAMPS, &payload);
        let parsed = Segment::parse(&super_frame).unwrap();
        let mss = 1 + random.below(2000);
        let fields = fields([12, 13, 16][random.below(3)]);
        let cut = Cut::new(&parsed, &fields, mss).unwrap();
        assert_eq!(cut.count(), payload.len().div_ceil(mss));
        let mut out = vec![0; cut.total_len() + 5];
        assert_eq!(cut.write(&super_frame, &mut vec![0; cut.total_len() - 1]), Err(DropReason::Overload));
        cut.write(&super_frame, &mut out).unwrap();

        let mut joined: Option<Join> = None;
        let mut gathered = Vec::new();
        let count = cut.count();
        let first_id = ip_id(&super_frame);
        for (i, (packet, at, seq)) in cut.packets(&mut out).enumerate() {
            assert_eq!(Layout::find(packet), Ok(at));
            assert!(at.payload_len() <= mss && packet.len() == at.end);
            ip::set_tcp_checksum(packet, &at);
            let one = Segment::parse(packet).unwrap();
            assert_eq!(one.seq(), seq);
            let last_only = Flags::FIN | Flags::PSH;
            assert_eq!(one.flags().0, if i + 1 == count { flags } else { flags & !last_only });
            if at.family == Family::V4 {
                assert_eq!(ip_id(packet), first_id.wrapping_add(i as u16));
                assert_eq!(ip::finish(ip::sum(&packet[..20], 0)), 0);
            }
            let plain = without_option(packet);
            let plain = Segment::parse(plain).unwrap();
            gathered.extend(plain.payload());
            match &mut joined {
                None => joined = Join::start(&plain),
                Some(join) => {
                    let last = i + 1 == count;
                    let pushed = join.push(&plain);
                    assert_eq!(
                        pushed == Pushed::Last,
                        last && (flags != Flags::ACK || plain.payload().len() < mss),
                        "{round}"
                    );
                    assert_ne!(pushed, Pushed::No, "{round}: packet {i} of {count}");
                }
            }
        }
        let Some(mut join) = joined else {
            assert_eq!((count, flags == Flags::ACK), (1, false), "one packet with a flag that ends a superframe");
            continue;
        };
        assert_eq!((join.count(), join.gso_size()), (count, mss.min(payload.len())));
        let at = *parsed.layout();
        ip::set_partial_checksum(&mut super_frame, &at);
        assert_eq!([join.header(), &gathered].concat(), super_frame);
        assert_eq!(join.layout(), at);
        assert!(!join.fixed_id() || count == 1);
    }
}

fn ip_id(packet: &[u8]) -> u16 {
    u16::from_be_bytes([packet[4], packet[5]])
}

#[test]
fn cwr_stays_on_the_first_packet() {
    let (source, destination) = ends(false);
    let packet = segment(source, destination, 1, 2, Flags::ACK | Flags::CWR | Flags::PSH, &[], &[0; 30]);
    let segment = Segment::parse(&packet).unwrap();
    let cut = Cut::new(&segment, &fields(12), 10).unwrap();
    let mut out = vec![0; cut.total_len()];
    cut.write(&packet, &mut out).unwrap();
    let flags: Vec<u8> = cut.packets(&mut out).map(|(p, _, _)| Segment::parse(p).unwrap().flags().0).collect();
    assert_eq!(flags, [Flags::ACK | Flags::CWR, Flags::ACK, Flags::ACK | Flags::PSH]);
    // With accurate ECN it is one of the bits of a counter.
    let mut counting = packet.clone();
    counting[20 + 12] |= 1;
    let of_this_one = Cut::new(&Segment::parse(&counting).unwrap(), &fields(12), 10).unwrap();
    for (packet, cut) in [(&packet, cut.clone().with_accurate_ecn(true)), (&counting, of_this_one)] {
        cut.write(packet, &mut out).unwrap();
        let mut pieces = cut.packets(&mut out).map(|(p, _, _)| Segment::parse(p).unwrap());
        assert!(pieces.all(|p| p.flags().0 & Flags::CWR != 0 && p.accurate_ecn() == (packet[20 + 12] & 1 != 0)));
    }
    assert_eq!(Cut::new(&segment, &fields(12), 0).err(), Some(DropReason::NoRoom));
    assert_eq!(max_payload(segment.layout(), 16, 1500), 1444);
    assert_eq!(max_payload(segment.layout(), 16, 50), 0);
}

#[test]
fn only_what_continues_is_joined() {
    let (source, destination) = ends(false);
    let base = segment(source, destination, 100, 7, Flags::ACK, &TIMESTAMPS, &[1; 50]);
    let next = segment(source, destination, 150, 7, Flags::ACK, &TIMESTAMPS, &[2; 50]);
    // The identification counts up.
    let numbered = |mut packet: Vec<u8>, id: u16| {
        packet[4..6].copy_from_slice(&id.to_be_bytes());
        let at = Layout::find(&packet).unwrap();
        ip::set_len(&mut packet, &at);
        packet
    };
    let offer =
        |packet: Vec<u8>| Join::start(&Segment::parse(&base).unwrap()).unwrap().push(&Segment::parse(&packet).unwrap());
    assert_eq!(offer(numbered(next.clone(), 8)), Pushed::Yes);
    assert_eq!(offer(numbered(next.clone(), 7)), Pushed::Yes, "or stays");
    assert_eq!(offer(numbered(next.clone(), 9)), Pushed::No);
    let other = |seq, ack, flags, options: &[u8], payload: &[u8]| {
        numbered(segment(source, destination, seq, ack, flags, options, payload), 8)
    };
    assert_eq!(offer(other(150, 7, Flags::ACK, &TIMESTAMPS, &[2; 49])), Pushed::Last);
    assert_eq!(offer(other(150, 7, Flags::ACK | Flags::PSH, &TIMESTAMPS, &[2; 50])), Pushed::Last);
    assert_eq!(offer(other(150, 7, Flags::ACK | Flags::FIN, &TIMESTAMPS, &[2; 50])), Pushed::Last);
    for (what, packet) in [
        ("a gap", other(151, 7, Flags::ACK, &TIMESTAMPS, &[2; 50])),
        ("acknowledgment", other(150, 8, Flags::ACK, &TIMESTAMPS, &[2; 50])),
        ("flags", other(150, 7, Flags::ACK | Flags::ECE, &TIMESTAMPS, &[2; 50])),
        ("urgent", other(150, 7, Flags::ACK | Flags::URG, &TIMESTAMPS, &[2; 50])),
        ("no options", other(150, 7, Flags::ACK, &[], &[2; 50])),
        ("longer than the first", other(150, 7, Flags::ACK, &TIMESTAMPS, &[2; 51])),
        ("empty", other(150, 7, Flags::ACK, &TIMESTAMPS, &[])),
        ("another flow", numbered(segment(destination, source, 150, 7, Flags::ACK, &TIMESTAMPS, &[2; 50]), 8)),
    ] {
        assert_eq!(offer(packet), Pushed::No, "{what}");
    }
    for (what, at, bit) in
        [("TOS", 1, 4), ("don't fragment", 6, 0x40), ("TTL", 8, 1), ("window", 34, 1), ("timestamp", 47, 1)]
    {
        let mut packet = numbered(next.clone(), 8);
        packet[at] ^= bit;
        assert_eq!(offer(packet), Pushed::No, "{what}");
    }
    // Three with one identification are fine, three that change their mind are not.
    let third = segment(source, destination, 200, 7, Flags::ACK, &TIMESTAMPS, &[3; 50]);
    for (ids, want) in [([7, 7], Pushed::Yes), ([8, 9], Pushed::Yes), ([7, 8], Pushed::No), ([8, 8], Pushed::No)] {
        let mut join = Join::start(&Segment::parse(&base).unwrap()).unwrap();
        assert_eq!(join.push(&Segment::parse(&numbered(next.clone(), ids[0])).unwrap()), Pushed::Yes);
        assert_eq!(join.push(&Segment::parse(&numbered(third.clone(), ids[1])).unwrap()), want, "{ids:?}");
        assert_eq!(join.fixed_id(), ids[0] == 7);
    }
}

/// The kernel's idea of malformed, case by case.
#[test]
fn authentication_options() {
    let find = Auth::find;
    let ao = [29, 16, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let md5: Vec<u8> = [&[19, 18][..], &[0; 16]].concat();
    assert_eq!(find(&[]), Ok(None));
    assert_eq!(find(&TIMESTAMPS), Ok(None));
    assert!(matches!(find(&ao), Ok(Some(Auth::Ao(o))) if (o.at, o.key_id, o.rnext_key_id, o.mac_len) == (0, 1, 2, 12)));
    assert_eq!(find(&[&[1, 1][..], &md5].concat()), Ok(Some(Auth::Md5 { at: 2 })));
    assert_eq!(find(&[ao, ao].concat()), Err(BadOptions));
    assert_eq!(find(&[&ao[..], &md5].concat()), Err(BadOptions));
    assert_eq!(find(&[&md5[..], &ao].concat()), Err(BadOptions));
    assert_eq!(find(&[29, 4, 1, 2, 1, 1, 1, 1]), Err(BadOptions), "no MAC");
    assert_eq!(find(&[29, 17, 1, 2, 0, 0, 0, 0]), Err(BadOptions), "runs off the end");
    assert_eq!(find(&[19, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Err(BadOptions));
    assert_eq!(find(&[8, 1, 0, 0, 0]), Err(BadOptions));
    assert_eq!(find(&[8, 0, 0, 0, 0]), Err(BadOptions));
    assert_eq!(find(&[&[0][..], &ao].concat()), Ok(None), "behind EOL nothing counts");
    assert_eq!(find(&[8, 1, 0, 0]), Ok(None), "too short to hold an authentication option");
    assert!(matches!(find(&[29, 5, 1, 2, 0]), Ok(Some(Auth::Ao(o))) if o.mac_len == 1));
}
