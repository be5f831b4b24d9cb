//! Frames of a TUN device with a vnet header: a packet without its checksum, or a superframe, becomes complete packets.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_wire::gso::{Cutter, Offload};
use sealane_wire::ip::{Layout, UDP_HEADER_LEN, finish, sum, tcp_checksum_ok};
use sealane_wire::proto;
use sealane_wire::walk::{Walk, address_pair};

/// Sets the length field to the actual length.
fn put_right(frame: &mut [u8]) {
    let len = frame.len() as u16;
    match frame.first().map(|b| b >> 4) {
        Some(4) if frame.len() >= 20 => frame[2..4].copy_from_slice(&len.to_be_bytes()),
        Some(6) if frame.len() >= 40 => frame[4..6].copy_from_slice(&(len - 40).to_be_bytes()),
        _ => {}
    }
}

/// Returns the length of a packet's payload, after verifying its checksum.
fn payload_len(packet: &[u8]) -> usize {
    let walk = Walk::find(packet).expect("a packet");
    assert_eq!(walk.end, packet.len());
    if walk.upper == proto::TCP {
        let at = Layout::find(packet).expect("a segment");
        assert!(tcp_checksum_ok(packet, &at));
        return at.payload_len();
    }
    assert_eq!(walk.upper, proto::UDP);
    let udp = &packet[walk.upper_at..];
    assert_eq!(usize::from(u16::from_be_bytes([udp[4], udp[5]])), udp.len());
    let addresses = if packet[0] >> 4 == 4 { 12..20 } else { 8..40 };
    let pseudo = sum(&packet[addresses], udp.len() as u64 + u64::from(proto::UDP));
    assert!(udp[6..8] != [0, 0] && finish(sum(udp, pseudo)) == 0);
    udp.len() - UDP_HEADER_LEN
}

fuzz_target!(|data: &[u8]| {
    let Some((&[how, g0, g1, s0, s1, o0, o1], packet)) = data.split_first_chunk() else { return };
    let gso_size = u16::from_le_bytes([g0, g1]);
    let checksum = (how & 1 != 0).then_some((u16::from_le_bytes([s0, s1]), u16::from_le_bytes([o0, o1])));
    let mut frame = packet[..packet.len().min(65_535)].to_vec();
    if how & 2 != 0 {
        put_right(&mut frame);
    }
    let before = frame.clone();
    let Ok(mut cutter) = Cutter::new(&mut frame, &Offload { checksum, gso_size }) else { return };
    let mut packets = Vec::new();
    while let Some(len) = cutter.next_len() {
        let mut out = vec![0; len];
        cutter.next(&frame, &mut out);
        packets.push(out);
        assert!(packets.len() <= before.len());
    }
    if gso_size == 0 {
        let [one] = &packets[..] else { panic!("one packet") };
        assert!(*one == frame[..one.len()]);
        assert!(frame.iter().zip(&before).filter(|(a, b)| a != b).count() <= 2, "its checksum");
        return;
    }
    assert_eq!(frame, before);
    let (last, others) = packets.split_last().expect("one at least");
    let sizes: Vec<usize> = packets.iter().map(|packet| payload_len(packet)).collect();
    assert!(sizes[..others.len()].iter().all(|size| *size == usize::from(gso_size)), "{sizes:?}");
    assert!(sizes.last().is_some_and(|size| *size <= usize::from(gso_size)));
    // The payloads together are the payload of the frame.
    let joined: Vec<u8> = packets.iter().zip(&sizes).flat_map(|(p, size)| p[p.len() - size..].to_vec()).collect();
    let end = Walk::find(&frame).expect("it was cut").end;
    assert_eq!(joined, frame[end - joined.len()..end]);
    assert_eq!(address_pair(last), address_pair(&frame));
});
