//! Records of TLS below CBC: how padding and MAC are taken off before anybody knows whether they are authentic.
//!
//! A record whose padding is wrong must look, in time and memory, like one whose MAC is wrong (RFC 5246 section 6.2.3.2), or
//! whoever can measure that decrypts it. So it gets a random MAC, and masks choose between that and the real one.

use crate::ct::{at_least, equal};
use zeroize::Zeroizing;

const TLS1: u32 = 0x301;
const TLS1_1: u32 = 0x302;
const TLS1_2: u32 = 0x303;
const DTLS1: u32 = 0xfeff;
const DTLS1_2: u32 = 0xfefd;
/// The version that Cisco's AnyConnect speaks.
const DTLS1_BAD: u32 = 0x100;

/// The longest MAC of a record in bytes.
pub(super) const MAX_MAC_LEN: usize = 64;

/// The longest padding, with the byte that says how long it is.
const MAX_PADDING: usize = 256;

/// Whether records of this version are taken. Those of SSL 3 are not.
pub(super) fn is_known(version: u32) -> bool {
    [TLS1, TLS1_1, TLS1_2, DTLS1, DTLS1_2, DTLS1_BAD].contains(&version)
}

/// The content's length and MAC of a decrypted record, which begins with its IV from TLS 1.1 on. A wrong padding gives `decoy`
/// as MAC. `None`: the record is too short, which everybody can see.
pub(super) fn open(
    version: u32,
    record: &[u8],
    block_len: usize,
    mac_len: usize,
    decoy: &[u8; MAX_MAC_LEN],
) -> Option<(usize, Option<Zeroizing<Vec<u8>>>)> {
    let record = if version == TLS1 { record } else { record.get(block_len..)? };
    if record.len() < 1 + mac_len || mac_len > MAX_MAC_LEN {
        return None;
    }
    let padding = usize::from(record[record.len() - 1]);
    let mut good = at_least(record.len(), 1 + mac_len + padding);
    // As many bytes as the padding may have are looked at, whatever it says.
    for (i, byte) in record.iter().rev().take(MAX_PADDING).enumerate() {
        good &= !at_least(padding, i) | equal((*byte).into(), padding);
    }
    // From here `good` is all ones or zero.
    good = equal(good.into(), 0xff);
    let end = record.len() - (usize::from(good & 1) * (padding + 1));
    if mac_len == 0 {
        // Then the record has been authenticated before (RFC 7366), and padding is no secret.
        return (good == 0xff).then_some((end, None));
    }
    let mac = mac_before(record, end, mac_len);
    let mac = mac.iter().zip(decoy).map(|(m, d)| (m & good) | (d & !good)).collect();
    Some((end - mac_len, Some(Zeroizing::new(mac))))
}

/// The `mac_len` bytes before `end`, which is secret and at most [`MAX_PADDING`] bytes before the end of the record.
fn mac_before(record: &[u8], end: usize, mac_len: usize) -> Zeroizing<Vec<u8>> {
    let start = end - mac_len;
    let first = record.len().saturating_sub(mac_len + MAX_PADDING);
    // The bytes of the MAC come in order, but from an unknown place of the ring on.
    let mut ring = Zeroizing::new(vec![0u8; mac_len]);
    let mut offset = 0usize;
    for (i, byte) in record.iter().enumerate().skip(first) {
        let at = (i - first) % mac_len;
        let is_mac = at_least(i, start) & !at_least(i, end);
        ring[at] |= byte & is_mac;
        offset |= at & usize::from(equal(i, start)).wrapping_mul(0x0101_0101);
    }
    // Turned by powers of two, so that no place of memory depends on the offset.
    let mut turned = ring.clone();
    let mut step = 1;
    while step < mac_len {
        let is_turned = equal(offset & 1, 1);
        for i in 0..mac_len {
            turned[i] = (ring[(i + step) % mac_len] & is_turned) | (ring[i] & !is_turned);
        }
        core::mem::swap(&mut ring, &mut turned);
        offset >>= 1;
        step <<= 1;
    }
    ring
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECOY: [u8; MAX_MAC_LEN] = [0xd0; MAX_MAC_LEN];

    /// A record of `content` bytes, a MAC, and `padding + 1` bytes.
    fn record(content: usize, mac_len: usize, padding: usize) -> (Vec<u8>, Vec<u8>) {
        let mut record: Vec<u8> = (0..content).map(|i| (i * 5) as u8).collect();
        let mac: Vec<u8> = (0..mac_len).map(|i| 0x40 + i as u8).collect();
        record.extend(&mac);
        record.extend(vec![padding as u8; padding + 1]);
        (record, mac)
    }

    #[test]
    fn mac_and_content_of_every_padding_are_found() {
        for mac_len in [16, 20, 32, 48, 64] {
            for content in [0, 1, 15, 300] {
                for padding in 0..=255 {
                    let (record, mac) = record(content, mac_len, padding);
                    let (len, found) = open(TLS1, &record, 16, mac_len, &DECOY).unwrap();
                    assert_eq!((len, found.unwrap().to_vec()), (content, mac), "{mac_len} {content} {padding}");
                }
            }
        }
    }

    #[test]
    fn a_wrong_padding_gives_the_decoy() {
        for padding in 1..=255usize {
            let (mut record, _) = record(40, 20, padding);
            let place = record.len() - 1 - padding;
            record[place] ^= 1;
            let (len, found) = open(TLS1, &record, 16, 20, &DECOY).unwrap();
            assert_eq!(found.unwrap().to_vec(), DECOY[..20], "{padding}");
            assert_eq!(len, record.len() - 20);
        }
        // A padding that would reach beyond the record.
        let (mut record, _) = record(0, 20, 3);
        record.iter_mut().for_each(|b| *b = 200);
        assert_eq!(open(TLS1, &record, 16, 20, &DECOY).unwrap().1.unwrap().to_vec(), DECOY[..20]);
    }

    #[test]
    fn short_records_are_refused_and_the_iv_is_skipped() {
        assert!(open(TLS1, &[0; 20], 16, 20, &DECOY).is_none());
        assert!(open(TLS1_2, &[0; 15], 16, 0, &DECOY).is_none());
        let (body, mac) = record(9, 32, 6);
        let with_iv: Vec<u8> = [vec![0xee; 16], body].concat();
        let (len, found) = open(TLS1_2, &with_iv, 16, 32, &DECOY).unwrap();
        assert_eq!((len, found.unwrap().to_vec()), (9, mac));
        assert!(open(TLS1_2, &with_iv[..47], 16, 0, &DECOY).is_none(), "its last byte is no padding");
    }
}
