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

use crate::drop::DropReason;
use sealane_crypto::partial::{Message, PartialTfm};
use sealane_crypto::skcipher::SkcipherTfm;
use sealane_wire::extension::{Chain, V6_HEADER_LEN, is_basic};
use sealane_wire::ip::V4_HEADER_LEN;
use sealane_wire::proto;
use sealane_wire::walk::Walk;

/// The bytes of the text behind the IV that are covered always: an IPv4 header with options and a TCP header with options have 120,
/// and 128 are a number of whole cipher blocks.
pub const FRONT_LEN: usize = 128;
/// The bytes at the end of the text that are covered always. A trailer of ours has 17 bytes at most. In CBC mode the last 32 bytes
/// of the plaintext depend on the last 48 of the ciphertext.
pub const TAIL_LEN: usize = 48;
/// The longest header of an upper protocol: TCP's, with options.
const UPPER_LEN: usize = 60;
/// The part of an upper protocol's header that policies look at, and the length of an ICMP error in front of the packet that it quotes.
const PORTS_LEN: usize = 8;

/// The keys of a state with a partial MAC.
pub(crate) struct PartialKey {
    /// `None` for null encryption.
    pub(crate) cipher: Option<SkcipherTfm>,
    pub(crate) mac: PartialTfm,
}

/// Checks that all headers of a packet that is to be sealed are covered always, be it in tunnel or in transport mode, which seals less of
/// them. What IPComp has compressed is not known from its first bytes.
///
/// The receiver's policies look at more than the first header: at a packet in a packet, which is what IPComp's tunnel mode leaves where
/// compression does not help, and at one that an ICMP error quotes.
pub(crate) fn check(packet: &[u8]) -> Result<(), DropReason> {
    let walk = Walk::find(packet).map_err(|_| DropReason::Malformed)?;
    let Walk { upper, upper_at, end, .. } = walk;
    let is_covered = || {
        // A later fragment has no upper header, whatever it says.
        upper_at + UPPER_LEN <= FRONT_LEN && (walk.is_later_fragment() || covers_inner(&packet[..end], upper, upper_at))
    };
    if upper != proto::COMP && (end <= FRONT_LEN || is_covered()) { Ok(()) } else { Err(DropReason::OutMode) }
}

/// Whether the headers of packets within a packet are in its first [`FRONT_LEN`] bytes. The first [`PORTS_LEN`] bytes of the upper
/// header at `at` are. Nothing behind them is read, so that the receiver finds what is found here.
fn covers_inner(packet: &[u8], mut upper: u8, mut at: usize) -> bool {
    let front = &packet[..FRONT_LEN.min(packet.len())];
    loop {
        at += match upper {
            proto::IPIP | proto::IPV6 => 0,
            // Echo, and whatever else of IPv6's is not below 128, quotes nothing.
            proto::ICMP if matches!(front[at], 3 | 4 | 5 | 11 | 12) => PORTS_LEN,
            proto::ICMPV6 if front[at] < 128 => PORTS_LEN,
            proto::COMP => return false,
            _ => return true,
        };
        let inner = front.get(at..).and_then(inner_upper);
        match inner.filter(|(_, inner_at)| at + inner_at + PORTS_LEN <= FRONT_LEN) {
            Some((next, inner_at)) => (upper, at) = (next, at + inner_at),
            None => return false,
        }
    }
}

/// The upper protocol of a packet that may be cut, and the offset of its header; `None` where its headers do not end before it is cut.
fn inner_upper(packet: &[u8]) -> Option<(u8, usize)> {
    match packet.first()? >> 4 {
        4 if packet.len() >= V4_HEADER_LEN => Some((packet[9], (usize::from(packet[0] & 15) * 4).max(V4_HEADER_LEN))),
        6 if packet.len() >= V6_HEADER_LEN => {
            let mut chain = Chain::of(packet)?;
            while let Some(header) = chain.over(packet, is_basic).ok()? {
                // Behind the header of a later fragment is no other one.
                if header.fragment().is_some_and(|fragment| fragment.is_later) {
                    return Some((proto::NONE, chain.at));
                }
            }
            Some((chain.kind, chain.at))
        }
        _ => None,
    }
}

/// The bytes of a packet that its ICV is over, from the ESP header to the end of the trailer, in the parts that the MAC takes.
pub struct Covered<'a> {
    pub(crate) always: [&'a [u8]; 1],
    pub(crate) body: &'a [u8],
    pub(crate) tail: &'a [u8],
}

impl<'a> Covered<'a> {
    /// Divides a sealed packet whose text begins behind `header_len` bytes of ESP header and IV.
    #[must_use]
    pub fn new(sealed: &'a [u8], header_len: usize) -> Self {
        let front = (header_len + FRONT_LEN).min(sealed.len());
        let (always, rest) = sealed.split_at(front);
        let (body, tail) = rest.split_at(rest.len().saturating_sub(TAIL_LEN));
        Covered { always: [always], body, tail }
    }

    /// The message of this whole sequence number.
    #[must_use]
    pub fn message(&self, number: u64) -> Message<'_> {
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
