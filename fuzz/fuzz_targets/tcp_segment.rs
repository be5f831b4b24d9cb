//! IP packets with TCP: the walk, the verdict in every state, adding and removing the option, segmenting and joining.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_fuzz::{Input, algorithms, offered};
use sealane_net_ao::drop::Netstat;
use sealane_net_ao::endpoint::{Endpoint, EndpointState, Request};
use sealane_net_ao::info::{AoInfo, Child, Conn};
use sealane_net_ao::input::{Class, classify, refuse, settle};
use sealane_net_ao::mac::{Checksum, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::output::{Choice, choose, sent};
use sealane_net_ao::segment::cut::Cut;
use sealane_net_ao::segment::join::{Join, Pushed};
use sealane_net_ao::segment::{ChecksumState, MAX_OPTIONS_LEN, make_room, strip};
use sealane_wire::ip::{self, Family, Layout};
use sealane_wire::tcp::{Auth, Flags, Options, Segment, kind};
use std::sync::Arc;

/// Returns two keys for all peers.
fn keys(info: &mut AoInfo) {
    for (id, peer, mac_len, exclude_options) in [(1, Prefix::ANY_V4, 12, false), (2, Prefix::ANY_V6, 13, true)] {
        for (send_id, name) in [(id, "hmac(sha1)"), (id + 60, "cmac(aes128)")] {
            let algorithm = algorithms().get(name).expect("one of ours");
            let spec = MktSpec {
                algorithm,
                key: b"key",
                send_id,
                recv_id: send_id,
                mac_len,
                exclude_options,
                peer,
                ifindex: None,
            };
            info.add_key(Arc::new(Mkt::new(&spec).expect("a good key"))).expect("no traffic keys yet");
        }
    }
}

/// Tests the verdict of a socket in each state on an inbound segment.
fn inbound(segment: &Segment<'_>, info: &mut AoInfo, state: EndpointState, request: Option<&Request>) {
    let mut netstat = Netstat::default();
    let to = Endpoint { info: Some(info), state, request, ifindex: 0, md5: false };
    let (ticket, verdict) = match classify(segment, &to) {
        Class::Unsigned => return assert!(segment.auth() == Ok(None)),
        Class::Md5 => return,
        Class::Drop(refusal) => return refuse(&refusal, Some(info), &mut netstat),
        Class::Verify(check) => {
            let mut op = [check.op(check.traffic.here().expect("derived here"), segment)];
            verify(&mut op);
            (check.ticket, op[0].status)
        }
    };
    assert_eq!(settle(info, &ticket, verdict, &mut netstat), verdict);
}

fn options(bytes: &[u8]) -> Vec<Vec<u8>> {
    Options::new(bytes)
        .map_while(Result::ok)
        .map(|o| o.bytes.to_vec())
        .filter(|o| o[0] != kind::NOP && o[0] != kind::AO)
        .collect()
}

/// Removes the option; nothing else may change, and a valid checksum stays valid.
fn stripped(packet: &mut [u8]) -> &mut [u8] {
    let segment = Segment::parse(packet).expect("it was parsed before");
    let (at, Ok(Some(Auth::Ao(option)))) = (*segment.layout(), segment.auth()) else { return packet };
    let (payload, kept) = (segment.payload().to_vec(), options(segment.option_bytes()));
    let right = ip::tcp_checksum_ok(packet, &at);
    let (start, new_at) = strip(packet, &at, &option, ChecksumState::Complete);
    let packet = &mut packet[start..new_at.end + start];
    let segment = Segment::parse(packet).expect("still a segment");
    assert_eq!((segment.layout(), segment.payload()), (&new_at, &payload[..]));
    assert_eq!(ip::tcp_checksum_ok(packet, &new_at), right);
    // Only options before a malformed one can be compared.
    if Options::new(segment.option_bytes()).all(|o| o.is_ok()) {
        assert_eq!(options(segment.option_bytes()), kept);
    }
    packet
}

/// Signs, segments, verifies, strips and joins.
fn round_trip(packet: &[u8], mss: usize, info: &AoInfo) {
    let mut original = packet.to_vec();
    let at = Layout::find(&original).expect("it was parsed before");
    original.truncate(at.end);
    ip::set_len(&mut original, &at);
    ip::set_tcp_checksum(&mut original, &at);
    let Ok(segment) = Segment::parse(&original) else { return };
    let from = Endpoint { info: Some(info), state: EndpointState::Established, request: None, ifindex: 0, md5: false };
    let Choice::Sign(signature) = choose(&segment, &from) else { return };
    let Ok(cut) = Cut::new(&segment, &signature.option, mss) else { return };
    let mut out = vec![0; cut.total_len()];
    cut.write(segment.packet(), &mut out).expect("room enough");
    let mut ops: Vec<Sign<'_>> = cut
        .packets(&mut out)
        .map(|(packet, at, seq)| {
            assert_eq!(Layout::find(packet), Ok(at));
            let cover = signature.coverage(seq);
            Sign {
                tfm: signature.traffic.here().expect("derived here"),
                packet,
                at,
                cover,
                checksum: Checksum::Full,
                status: Ok(()),
            }
        })
        .collect();
    sign(&mut ops);
    let option_len = signature.option.padded_len();
    let mut expected = original.clone();
    expected[at.tcp_at + 20..at.payload_at].copy_from_slice(&offered(segment.option_bytes(), option_len));
    ip::set_tcp_checksum(&mut expected, &at);
    let checks: Vec<(Layout, _)> = ops.iter().map(|op| (op.at, op.cover)).collect();
    let mut whole = Vec::new();
    let mut joined: Option<Join> = None;
    for (packet, (at, cover)) in cut.packets(&mut out).map(|(packet, ..)| packet).zip(checks) {
        assert!(ip::tcp_checksum_ok(packet, &at));
        let mut op =
            [Verify { tfm: signature.traffic.here().expect("derived here"), packet, at, cover, status: Ok(()) }];
        verify(&mut op);
        assert_eq!(op[0].status, Ok(()));
        let plain = Segment::parse(stripped(packet)).expect("still a segment");
        if cut.count() == 1 && segment.option_bytes().len() + option_len <= MAX_OPTIONS_LEN {
            assert_eq!(plain.packet(), expected);
        }
        whole.extend(plain.payload());
        match &mut joined {
            None => joined = Join::start(&plain),
            // CWR stays on the first packet only, whose flags then differ from the next.
            Some(join) => {
                let pushed = join.push(&plain);
                assert!(pushed != Pushed::No || segment.flags().has(Flags::CWR), "what was cut can be joined");
            }
        }
    }
    assert_eq!(whole, segment.payload());
    let Some(mut join) = joined.filter(|j| j.count() == cut.count()) else { return };
    if segment.option_bytes().len() + option_len <= MAX_OPTIONS_LEN {
        ip::set_partial_checksum(&mut expected, &at);
        assert_eq!([join.header(), &whole].concat(), expected);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let mss = usize::from(input.word());
    let packet = input.0;
    let Ok(segment) = Segment::parse(packet) else { return };
    let at = *segment.layout();
    assert!(at.tcp_at + 20 <= at.payload_at && at.payload_at <= at.end && at.end <= packet.len());
    assert_eq!(at.family == Family::V4, segment.source().is_ipv4());

    let mut listener = AoInfo::new();
    keys(&mut listener);
    let mut connecting = AoInfo::new();
    keys(&mut connecting);
    connecting.keep_matching(segment.source().ip(), 0);
    let (local, remote) = (segment.destination(), segment.source());
    connecting.set_conn(Conn::new(local, remote, segment.ack_seq().wrapping_sub(1), 0));
    let conn = Conn::new(local, remote, segment.ack_seq(), segment.seq().wrapping_sub(1));
    let child = Child { conn, ifindex: 0, key_id: 1, rnext_key_id: 61 };
    let (used_ao, rcv_isn) = (mss % 2 == 0, segment.seq());
    let request = Request { used_ao, rcv_isn, snt_isn: 7, key_id: 1, rnext_key_id: 1 };
    inbound(&segment, &mut connecting, EndpointState::SynSent, None);
    inbound(&segment, &mut connecting, EndpointState::SynReceived, None);
    inbound(&segment, &mut listener, EndpointState::Closed, None);
    inbound(&segment, &mut listener, EndpointState::Listen, None);
    inbound(&segment, &mut listener, EndpointState::Listen, Some(&request));
    if let Ok(mut info) = listener.for_child(&child) {
        inbound(&segment, &mut info, EndpointState::Established, None);
        inbound(&segment, &mut info, EndpointState::TimeWait, None);
        sent(&mut info, &segment);
        round_trip(packet, mss, &info);
    }

    let mut edited = segment.packet().to_vec();
    let right = ip::tcp_checksum_ok(&edited, &at);
    let edited = stripped(&mut edited);
    let at = Layout::find(edited).expect("still a segment");
    make_room(edited, &at, mss, 20, ChecksumState::Complete);
    assert_eq!(Layout::find(edited), Ok(at));
    assert_eq!(ip::tcp_checksum_ok(edited, &at), right);
    if Flags(edited[at.tcp_at + 13]).syn() {
        make_room(edited, &at, mss, 20, ChecksumState::Partial);
    }
});
