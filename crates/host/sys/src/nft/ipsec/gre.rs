//! GRE headers whose key a policy selects (RFC 2784, RFC 2890; PPTP's of RFC 2637), as `__skb_flow_dissect_gre` reads them.

use crate::nft::expr::Rule;

const R1: i32 = libc::NFT_REG_1;
const CHECKSUM: u16 = 0x8000;
const ROUTING: u16 = 0x4000;
const KEY: u16 = 0x2000;
const VERSION: u16 = 7;
/// The payload's protocol of version 1.
const PPP: u16 = 0x880b;

/// A shape of headers that have a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    /// Whether there is a checksum before the key.
    checksum: bool,
    /// Version 1, of whose key policies see the lower half: the call.
    pptp: bool,
}

/// The shapes in which a key can be that is not 0: a value and its mask.
pub(super) fn shapes((key, mask): (u32, u32)) -> impl Iterator<Item = Shape> {
    let pptp = key & mask & 0xffff_0000 == 0;
    [(false, false), (true, false), (false, true), (true, true)]
        .into_iter()
        .map(|(checksum, pptp)| Shape { checksum, pptp })
        .filter(move |shape| pptp || !shape.pptp)
}

impl Shape {
    /// Continues only for GRE headers of this shape with this key.
    pub(super) fn write(self, r: &mut Rule<'_, '_>, (key, mask): (u32, u32)) {
        let (with, at) = if self.checksum { (CHECKSUM, 8) } else { (0, 4) };
        let (version, mask) = if self.pptp { (1, mask & 0xffff) } else { (0, mask) };
        r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, R1);
        r.and(R1, &(CHECKSUM | ROUTING | KEY | VERSION).to_be_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &(with | KEY | version).to_be_bytes());
        if self.pptp {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, R1).cmp(R1, libc::NFT_CMP_EQ, &PPP.to_be_bytes());
        }
        r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, at, 4, R1).and(R1, &mask.to_be_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &(key & mask).to_be_bytes());
    }
}
