//! GRE headers whose key a policy selects: those of which [`sealane_net::wire::gre::key`] reads it.

use crate::nft::expr::{R1, Rule};
use sealane_net::wire::gre::{CHECKSUM, KEY, PPP, ROUTING, VERSION, key_at};

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
        let flags = KEY | if self.checksum { CHECKSUM } else { 0 };
        let (version, mask) = if self.pptp { (1, mask & 0xffff) } else { (0, mask) };
        r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, R1);
        r.and(R1, &(CHECKSUM | ROUTING | KEY | VERSION).to_be_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &(flags | version).to_be_bytes());
        if self.pptp {
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 2, 2, R1).cmp(R1, libc::NFT_CMP_EQ, &PPP.to_be_bytes());
        }
        r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, key_at(flags) as u32, 4, R1).and(R1, &mask.to_be_bytes());
        r.cmp(R1, libc::NFT_CMP_EQ, &(key & mask).to_be_bytes());
    }
}
