//! Headers of GRE (RFC 2784, RFC 2890; PPTP's of RFC 2637), as far as they have keys.

use super::ip::be16;

/// A checksum precedes the key.
pub const CHECKSUM: u16 = 0x8000;
/// Routes follow the key.
pub const ROUTING: u16 = 0x4000;
/// There is a key.
pub const KEY: u16 = 0x2000;
/// The bits of the version.
pub const VERSION: u16 = 7;
/// The payload's protocol of version 1, which is PPTP's.
pub const PPP: u16 = 0x880b;

/// The offset of the key behind these flags.
#[must_use]
pub const fn key_at(flags: u16) -> usize {
    if flags & CHECKSUM == 0 { 4 } else { 8 }
}

/// The key of a header as Linux's policies see it (`__skb_flow_dissect_gre`). That of version 1 is the call; `None` where there
/// is none, or the header has routes or another version.
#[must_use]
pub fn key(header: &[u8]) -> Option<u32> {
    let fixed = header.first_chunk::<4>()?;
    let (flags, payload) = (be16(fixed, 0), be16(fixed, 2));
    let key = u32::from_be_bytes(*header.get(key_at(flags)..)?.first_chunk()?);
    match (flags & (ROUTING | KEY), flags & VERSION) {
        (KEY, 0) => Some(key),
        (KEY, 1) if payload == PPP => Some(key & 0xffff),
        _ => None,
    }
}
