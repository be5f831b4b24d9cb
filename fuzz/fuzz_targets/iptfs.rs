//! IP-TFS: any payloads in any order, and nothing comes out but whole packets, in bounded memory; and what a sender makes of
//! any packets comes out as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_net::ipsec::iptfs::receive::{Received, Receiver};
use sealane_net::ipsec::iptfs::send::Sender;
use sealane_net::ipsec::iptfs::{Config, HEADER_LEN, Origin};

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

fuzz_target!(|data: &[u8]| {
    match data {
        [0, rest @ ..] => there_and_back(rest),
        rest => any(rest),
    }
});
