//! Tests with packets from one namespace to another. They need root.

use super::*;
use sealane_sys::{link, testing};
use std::net::UdpSocket;
use std::time::Duration;

/// A UDP datagram as a whole IP packet, without a UDP checksum.
fn datagram(v6: bool, text: &[u8]) -> Vec<u8> {
    let udp_len = 8 + text.len() as u16;
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0];
        ip.extend_from_slice(&udp_len.to_be_bytes());
        ip.extend_from_slice(&[17, 64]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip
    } else {
        let mut ip = vec![0x45, 0];
        ip.extend_from_slice(&(20 + udp_len).to_be_bytes());
        ip.extend_from_slice(&[0, 1, 0x40, 0, 64, 17, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]);
        ip
    };
    packet.extend_from_slice(&[0x1b, 0x58, 0x1b, 0x58]);
    packet.extend_from_slice(&udp_len.to_be_bytes());
    packet.extend_from_slice(&[0, 0]);
    packet.extend_from_slice(text);
    if v6 {
        // IPv6 requires a UDP checksum.
        let mut sum = u32::from(udp_len) + 17;
        for pair in packet[8..].chunks(2) {
            sum += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        packet[46..48].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
    packet
}

#[test]
fn bursts_arrive_in_their_order() {
    let Some((a, b)) = testing::pair("sys::raw") else { return };
    let (raw, device) = a.run(|| Ok((Raw::open(Marks::draw())?, link::index("a")?))).expect("sockets");
    for (v6, address) in [(false, "10.77.0.2:7000"), (true, "[fd77::2]:7000")] {
        let receiver = b.run(|| UdpSocket::bind(address)).expect("a receiver");
        receiver.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout");
        for (round, device) in [0, device].into_iter().enumerate() {
            let packets: Vec<_> = (0..100u8).map(|i| datagram(v6, &[round as u8, i])).collect();
            let slices: Vec<&[u8]> = packets.iter().map(|p| &p[..]).collect();
            assert_eq!(raw.send(&slices, device, round == 1), Sent { taken: 100, refused: 0 });
            for i in 0..100 {
                let mut text = [0; 8];
                let n = receiver.recv(&mut text).expect("a datagram");
                assert_eq!(text[..n], [round as u8, i]);
            }
        }
    }
    // A packet that is too long for the device, one without a route, and no packets at all.
    let long = datagram(false, &[0; 1600]);
    let mut nowhere = datagram(false, b"x");
    nowhere[16..20].copy_from_slice(&[192, 0, 2, 1]);
    let good = datagram(false, b"y");
    let sent = raw.send(&[&long, &good, &nowhere, &good], 0, false);
    assert_eq!(sent, Sent { taken: 2, refused: 2 });
    assert_eq!(raw.send(&[&[]], 0, false).taken, 0);
    assert_eq!(raw.send(&[&[0x45]], 0, false).taken, 0);
}
