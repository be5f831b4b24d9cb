//! Helpers shared by the tests.

use core::net::{IpAddr, SocketAddr};
use sealane_net_ao::alg::{Algorithm, Algorithms};
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_wire::ip::{self, Layout};
use std::sync::{Arc, LazyLock};

/// The algorithms over the portable drivers.
pub(crate) fn algorithms() -> &'static Algorithms {
    static ALL: LazyLock<Algorithms> = LazyLock::new(|| Algorithms::new(&sealane_crypto_portable::registry()));
    &ALL
}

pub(crate) fn algorithm(name: &str) -> &'static Arc<Algorithm> {
    algorithms().get(name).unwrap_or_else(|| panic!("no {name}"))
}

/// A key for every IPv4 peer.
pub(crate) fn spec<'a>(name: &str, send_id: u8, recv_id: u8) -> MktSpec<'a> {
    MktSpec {
        algorithm: algorithm(name),
        key: b"a master key",
        send_id,
        recv_id,
        mac_len: 0,
        exclude_options: false,
        peer: Prefix::ANY_V4,
        ifindex: None,
    }
}

pub(crate) fn mkt(spec: &MktSpec<'_>) -> Arc<Mkt> {
    Arc::new(Mkt::new(spec).expect("a good key"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal")).collect()
}

/// An IP packet with a TCP segment, all checksums right. `options` are whole words.
pub(crate) fn segment(
    source: SocketAddr,
    destination: SocketAddr,
    seq: u32,
    ack: u32,
    flags: u8,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    assert!(options.len().is_multiple_of(4));
    let words = (5 + options.len() / 4) as u8;
    let tcp_len = (20 + options.len() + payload.len()) as u16;
    let mut packet = Vec::new();
    match (source.ip().to_canonical(), destination.ip().to_canonical()) {
        (IpAddr::V4(s), IpAddr::V4(d)) => {
            packet.extend([0x45, 0]);
            packet.extend((20 + tcp_len).to_be_bytes());
            packet.extend([0, 7, 0x40, 0, 64, 6, 0, 0]);
            packet.extend(s.octets());
            packet.extend(d.octets());
        }
        (IpAddr::V6(s), IpAddr::V6(d)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(tcp_len.to_be_bytes());
            packet.extend([6, 64]);
            packet.extend(s.octets());
            packet.extend(d.octets());
        }
        _ => panic!("two families"),
    }
    packet.extend(source.port().to_be_bytes());
    packet.extend(destination.port().to_be_bytes());
    packet.extend(seq.to_be_bytes());
    packet.extend(ack.to_be_bytes());
    packet.extend([words << 4, flags, 0x10, 0, 0, 0, 0, 0]);
    packet.extend(options);
    packet.extend(payload);
    let at = Layout::find(&packet).expect("a whole segment");
    ip::set_len(&mut packet, &at);
    ip::set_tcp_checksum(&mut packet, &at);
    packet
}
