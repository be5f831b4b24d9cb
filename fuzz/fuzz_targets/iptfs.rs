//! IP-TFS: any payloads in any order, and nothing comes out but whole packets, in bounded memory; what a sender makes of any
//! packets comes out as it was; and whatever a peer says of congestion, the rate stays within its limits.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_net_ipsec::iptfs::congestion::Congestion;
use sealane_net_ipsec::iptfs::congestion::header::CcHeader;
use sealane_net_ipsec::iptfs::receive::{Received, Receiver};
use sealane_net_ipsec::iptfs::send::Sender;
use sealane_net_ipsec::iptfs::{CC_HEADER_LEN, Config, HEADER_LEN, Origin, Rate};

/// Commands, each with a byte: a payload of so many bytes, with a number so much higher; or time that passes.
fn any(mut data: &[u8]) {
    let [window, rest @ ..] = data else { return };
    data = rest;
    let config = Config { reorder_pkts: u16::from(*window) % 9, ..Config::default() };
    let (mut receiver, mut received) = (Receiver::new(&config), Received::default());
    let (mut number, mut now_ns) = (100u64, 0);
    let mut seen = std::collections::BTreeSet::new();
    while let [step, len, rest @ ..] = data {
        number = number.saturating_add_signed(i64::from(step.cast_signed() % 12));
        let (payload, rest) = rest.split_at(usize::from(*len).min(rest.len()));
        data = rest;
        if step.is_multiple_of(16) {
            now_ns += 400_000_000;
            receiver.handle_timeout(now_ns, &mut received);
            assert!(receiver.poll_timeout().is_none_or(|at| at > now_ns), "what was due is done");
        }
        if seen.insert(number) {
            receiver.input(number, payload, &Origin::default(), now_ns, &mut received);
        }
        assert!(receiver.poll_timeout().is_none_or(|at| at <= now_ns + 1_000_000_000));
    }
    while let Some(at) = receiver.poll_timeout() {
        receiver.handle_timeout(at, &mut received);
    }
    for emerged in &received.packets {
        let packet = &emerged.packet;
        let len = match packet[0] >> 4 {
            4 => usize::from(u16::from_be_bytes([packet[2], packet[3]])),
            6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
            version => panic!("version {version}"),
        };
        assert!(packet.len() == len && len >= 20);
    }
}

/// Lengths of packets, and the most bytes of a payload.
fn there_and_back(data: &[u8]) {
    let [high, low, data @ ..] = data else { return };
    let most = usize::from(u16::from_be_bytes([*high, *low])).max(6);
    let packets: Vec<Vec<u8>> = data
        .chunks_exact(2)
        .take(64)
        .map(|len| {
            let len = usize::from(u16::from_be_bytes([len[0] & 0x1f, len[1]])).max(20);
            let mut packet = vec![len as u8; len];
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            packet
        })
        .collect();
    let (mut sender, config) = (Sender::default(), Config::default());
    packets.iter().for_each(|packet| sender.push(packet, &config, 0).expect("room"));
    sender.handle_timeout(0);
    let (mut receiver, mut received) = (Receiver::new(&config), Received::default());
    let mut buffer = vec![0; HEADER_LEN + most];
    let mut number = 0;
    while let Some(len) = sender.next_payload(most, false, &mut buffer, &mut Vec::new()) {
        number += 1;
        receiver.input(number, &buffer[..len], &Origin::default(), 0, &mut received);
    }
    assert!(received.faults.is_empty() && receiver.poll_timeout().is_none());
    assert!(received.packets.iter().map(|emerged| &emerged.packet).eq(&packets));
}

/// Headers of a peer, each behind a byte for a step of the number and one for time that passes: eighths of a power of two of
/// nanoseconds.
fn congestion(mut data: &[u8]) {
    let rate = Rate { interval_ns: 1_000_000, packet_len: 1400, congestion_control: true };
    let (mut congestion, mut number, mut now_ns) = (Congestion::new(&rate), 1000u64, 1_000_000_000u64);
    while let [step, time, rest @ ..] = data {
        let (payload, rest) = rest.split_at(rest.len().min(CC_HEADER_LEN));
        data = rest;
        number = number.wrapping_add_signed(i64::from(step.cast_signed()).pow(3));
        now_ns = now_ns.saturating_add(u64::from(time % 8 + 8) << (time / 8));
        let mut payload = payload.to_vec();
        if let Some(header) = CcHeader::parse(&payload) {
            let mut again = [0; CC_HEADER_LEN];
            header.write(&mut again);
            assert!(CcHeader::parse(&again) == Some(header));
            if step.is_multiple_of(2) {
                // One that answers.
                let (_, ours) = congestion.output(now_ns.saturating_sub(header.rtt_us.into()));
                payload[20..24].copy_from_slice(&ours.time.to_be_bytes());
            }
        }
        congestion.input(u64::from(step % 7 == 0), number, &payload, step % 5 == 0, now_ns);
        let (interval_ns, _) = congestion.output(now_ns);
        assert!((1_000_000..=2_000_000_000).contains(&interval_ns));
    }
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => there_and_back(rest),
        [255, rest @ ..] => congestion(rest),
        rest => any(rest),
    }
});
