//! IPComp: any packet with its header, whatever it inflates to; and any payload compressed and decompressed again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_net_ipsec::comp::{Codec, HEADER_LEN, MAX_PAYLOAD_LEN};
use sealane_net_ipsec::open::{Inbound, Opened, open};
use sealane_net_ipsec::packet::Packet;
use sealane_net_ipsec::sa::{Mode, Proto, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::transform::Transform;
use sealane_wire::walk::Walk;
use std::net::IpAddr;

const ENDS: [[&str; 2]; 2] = [["192.0.2.1", "192.0.2.2"], ["2001:db8::1", "2001:db8::2"]];

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// States of both modes and families: CPIs 0x1000 and 0x1001.
fn states() -> Sad {
    let mut sad = Sad::new(0);
    for [src, dst] in ENDS {
        for (cpi, mode) in [(0x1000, Mode::Tunnel), (0x1001, Mode::Transport)] {
            let spec = SaSpec::tunnel(cpi, addr(src), addr(dst), Transform::keyless());
            sad.add(SaSpec { proto: Proto::Comp, mode, ..spec }).expect("a good spec");
        }
    }
    sad
}

fn opened(packet: &[u8]) {
    let (mut sad, mut buffer) = (states(), packet.to_vec());
    let end = buffer.len();
    let mut burst = [Inbound::new(Packet::new(&mut buffer, 0, end))];
    open(&mut sad, &mut burst, 0, &mut Vec::new());
    let [Inbound { packet, path, status, .. }] = &burst;
    assert!(packet.len() <= 65_535 + 40);
    match status {
        Ok(Opened::Packet) => {
            assert!(!path.is_empty());
            let walk = Walk::find(packet.bytes()).expect("a packet");
            assert_eq!(walk.end, packet.len());
        }
        Ok(Opened::Waiting) => panic!("nobody would go on with it"),
        _ => {}
    }
}

fn there_and_back(payload: &[u8]) {
    let mut codec = Codec::default();
    let Some(compressed) = codec.compress(payload).map(<[u8]>::to_vec) else { return };
    assert!(compressed.len() + HEADER_LEN <= payload.len());
    if payload.len() <= MAX_PAYLOAD_LEN {
        assert_eq!(codec.decompress(&compressed), Ok(payload));
    }
}

fuzz_target!(|data: &[u8]| {
    match data {
        [0, packet @ ..] if packet.len() <= 65_535 => opened(packet),
        [1, payload @ ..] => there_and_back(payload),
        [_, compressed @ ..] => {
            let mut codec = Codec::default();
            if let Ok(plain) = codec.decompress(compressed) {
                assert!(plain.len() <= MAX_PAYLOAD_LEN && plain.len() >= compressed.len() + HEADER_LEN);
            }
        }
        [] => {}
    }
});
