//! The checks of a gateway on any frame before and after IPsec: length, hop limit, flow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_wire::forward::{decrement_hop_limit, is_plain, is_same_flow, validate};

fuzz_target!(|data: &[u8]| {
    let _ = is_plain(data);
    let (front, back) = data.split_at(data.len() / 2);
    assert_eq!(is_same_flow(front, back), is_same_flow(back, front));
    let Some((len, ends)) = validate(data) else { return };
    assert!(len <= data.len());
    let packet = &data[..len];
    let mut sent = packet.to_vec();
    let at = if packet[0] >> 4 == 6 { 7 } else { 8 };
    if !decrement_hop_limit(&mut sent) {
        assert!(packet[at] < 2 && sent == packet);
        return;
    }
    assert_eq!(sent[at] + 1, packet[at]);
    assert_eq!(validate(&sent), Some((len, ends)), "its checksum still holds");
    let changed = sent.iter().zip(packet).filter(|(a, b)| a != b).count();
    assert!(changed <= 3, "the hops, and the checksum of IPv4");
    if is_plain(packet) && len >= 44 {
        assert!(is_same_flow(packet, &sent));
    }
});
