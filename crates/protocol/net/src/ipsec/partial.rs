//! ESP with a partial MAC (`docs/partial-mac.md`): the parts of a packet that are covered always, and the packets that it may not
//! be used for.
//!
//! ```text
//!  ESP header | IV | text: 128 bytes |  body: selected blocks of 16 bytes  | text: 48 bytes | ICV
//!  '--------------- always ----------'                                     '---- always ---'
//! ```
//!
//! The ICV is over what is sent, as everywhere in ESP. The receiver does not know the inner headers before it has checked the
//! ICV, so that what is covered for their sake has a fixed length, and the sender drops packets whose headers are longer.

use crate::ipsec::drop::DropReason;
use crate::wire::proto;
use crate::wire::walk::Walk;
use sealane_crypto::partial::{Message, PartialTfm};
use sealane_crypto::skcipher::SkcipherTfm;

/// The bytes of the text behind the IV that are covered always: an IPv4 header with options and a TCP header with options have 120,
/// and 128 are a number of whole cipher blocks.
pub const FRONT_LEN: usize = 128;
/// The bytes at the end of the text that are covered always. A trailer of ours has 17 bytes at most. In CBC mode the last 32 bytes
/// of the plaintext depend on the last 48 of the ciphertext.
pub const TAIL_LEN: usize = 48;
/// The longest header of an upper protocol: TCP's, with options.
const UPPER_LEN: usize = 60;

/// The keys of a state with a partial MAC.
pub(crate) struct PartialKey {
    /// `None` for null encryption.
    pub(crate) cipher: Option<SkcipherTfm>,
    pub(crate) mac: PartialTfm,
}

/// Checks that all headers of a packet that is to be sealed are covered always, be it in tunnel or in transport mode, which seals less of
/// them. What IPComp has compressed is not known from its first bytes.
pub(crate) fn check(packet: &[u8]) -> Result<(), DropReason> {
    let Walk { upper, upper_at, end, .. } = Walk::find(packet).map_err(|_| DropReason::Malformed)?;
    let fits = end <= FRONT_LEN || upper_at + UPPER_LEN <= FRONT_LEN;
    if fits && upper != proto::COMP { Ok(()) } else { Err(DropReason::OutMode) }
}

/// The bytes of a packet that its ICV is over, from the ESP header to the end of the trailer, in the parts that the MAC takes.
pub(crate) struct Covered<'a> {
    pub(crate) always: [&'a [u8]; 1],
    pub(crate) body: &'a [u8],
    pub(crate) tail: &'a [u8],
}

impl<'a> Covered<'a> {
    /// Divides a sealed packet whose text begins behind `header_len` bytes of ESP header and IV.
    pub(crate) fn new(sealed: &'a [u8], header_len: usize) -> Self {
        let front = (header_len + FRONT_LEN).min(sealed.len());
        let (always, rest) = sealed.split_at(front);
        let (body, tail) = rest.split_at(rest.len().saturating_sub(TAIL_LEN));
        Covered { always: [always], body, tail }
    }

    /// The message of this whole sequence number.
    pub(crate) fn message(&self, number: u64) -> Message<'_> {
        Message { number, always: &self.always, body: self.body, tail: self.tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_in_one_part() {
        let sealed: Vec<u8> = (0..2000u32).map(|n| n as u8).collect();
        for header_len in [8, 16, 24] {
            let front = header_len + FRONT_LEN;
            for len in (0..400).chain([1419, 1420, 2000]) {
                let Covered { always: [always], body, tail } = Covered::new(&sealed[..len], header_len);
                assert_eq!([always, body, tail].concat(), &sealed[..len]);
                assert_eq!((always.len(), tail.len()), (len.min(front), len.saturating_sub(front).min(TAIL_LEN)));
            }
        }
    }
}
