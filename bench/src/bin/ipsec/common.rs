//! Algorithms, addresses and packets that all parts use.

use sealane_net_ipsec::transform::{Keyed, TransformSpec};
use std::net::{IpAddr, Ipv4Addr};

pub(crate) const BURST: usize = 64;

/// An algorithm: its name in the table, the AEAD behind it, the transform.
pub(crate) struct Algorithm {
    pub(crate) name: &'static str,
    pub(crate) bare: &'static str,
    pub(crate) spec: TransformSpec<'static>,
}

const KEY: [u8; 64] = [7; 64];

pub(crate) fn algorithms() -> [Algorithm; 2] {
    let (enc, auth) = (Keyed { name: "cbc(aes)", key: &KEY[..16] }, Keyed { name: "hmac(sha1)", key: &KEY[..20] });
    let aead = Keyed { name: "rfc4106(gcm(aes))", key: &KEY[..20] };
    [
        Algorithm { name: aead.name, bare: aead.name, spec: TransformSpec::Aead { aead, icv_bits: 128 } },
        Algorithm {
            name: "cbc(aes), hmac(sha1)",
            bare: "authenc(hmac(sha1),cbc(aes))",
            spec: TransformSpec::EncAuth { enc, auth, icv_bits: 96 },
        },
    ]
}

impl Algorithm {
    pub(crate) fn icv_len(&self) -> usize {
        let (TransformSpec::Aead { icv_bits, .. }
        | TransformSpec::EncAuth { icv_bits, .. }
        | TransformSpec::Partial { icv_bits, .. }
        | TransformSpec::Auth { icv_bits, .. }) = self.spec;
        icv_bits as usize / 8
    }
}

pub(crate) const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

pub(crate) fn v4(a: u8, b: u8) -> IpAddr {
    Ipv4Addr::new(192, 0, a, b).into()
}

/// Returns the length of the text of a packet of `len` bytes, with padding, pad length and next header.
pub(crate) fn text_len(bare: &str, len: usize) -> usize {
    let block = if bare.contains("cbc") { 16 } else { 4 };
    // The IV is part of the text where it is encrypted.
    (len + 2).next_multiple_of(block) + if bare.contains("cbc") { 16 } else { 0 }
}

pub(crate) fn packet(len: usize) -> Vec<u8> {
    let mut packet = vec![0x5a; len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet
}
