//! The coverage of AH's ICV (RFC 4302 section 3.3.3.1, appendix A; `net/ipv4/ah4.c`, `net/ipv6/ah6.c`).
//!
//! ```text
//!   0 next header   1 length in words of 4, minus 2   2 reserved   4 SPI   8 sequence number   12 ICV, padding
//! ```

use arrayvec::ArrayVec;
use sealane_wire::extension::{Chain, is_basic};
use sealane_wire::ip::{Family, V4_HEADER_LEN};
use sealane_wire::proto;

/// Length of AH without its ICV in bytes.
pub const FIXED_LEN: usize = 12;

/// The longest IP headers that are covered, in bytes: IPv4's longest, or IPv6's with 216 bytes of extension headers.
pub const MAX_HEADERS_LEN: usize = 256;

/// IP headers with the fields that change in transit set to 0.
pub(crate) type Headers = ArrayVec<u8, MAX_HEADERS_LEN>;

/// IPv4 options that do not change in transit (RFC 4302 appendix A1, as in the kernel): security (130), extended
/// security (133), commercial security (134), router alert (148), and 149.
const IMMUTABLE: [u8; 5] = [130, 133, 134, 148, 149];

/// Returns IP headers in the form that the ICV covers, for a packet that leaves or has arrived. Returns `None` if they
/// are too long, malformed, or would have to be predicted.
pub(crate) fn covered(headers: &[u8], family: Family, leaving: bool) -> Option<Headers> {
    let mut out = Headers::new();
    out.try_extend_from_slice(headers).ok()?;
    match family {
        Family::V4 => v4(&mut out, leaving)?,
        Family::V6 => v6(&mut out)?,
    }
    Some(out)
}

fn v4(header: &mut [u8], leaving: bool) -> Option<()> {
    header[1] = 0;
    header[6..9].fill(0);
    header[10..12].fill(0);
    let mut at = V4_HEADER_LEN;
    while let Some(&kind) = header.get(at) {
        match kind {
            0 => break,
            1 => {
                at += 1;
                continue;
            }
            _ => {}
        }
        let len = usize::from(*header.get(at + 1)?);
        let option = header.get_mut(at..at + len).filter(|option| option.len() >= 2)?;
        match kind {
            kind if IMMUTABLE.contains(&kind) => {}
            // Source routes: the last address is the destination on arrival.
            131 | 137 => {
                let last = *option.last_chunk::<4>().filter(|_| len >= 6)?;
                option.fill(0);
                if leaving {
                    header[16..20].copy_from_slice(&last);
                }
            }
            _ => option.fill(0),
        }
        at += len;
    }
    Some(())
}

fn v6(headers: &mut [u8]) -> Option<()> {
    headers[0] = 0x60;
    headers[1..4].fill(0);
    headers[7] = 0;
    let mut chain = Chain::of(headers)?;
    while chain.at < headers.len() {
        let header = chain.over(headers, is_basic).ok()??;
        let bytes = headers.get_mut(header.at..chain.at)?;
        match header.kind {
            proto::HOP_BY_HOP | proto::DESTINATION => options(&mut bytes[2..])?,
            // With segments left, the final address would have to be predicted; type 0 is forbidden (RFC 5095).
            proto::ROUTING if !header.has_segments_left() => {}
            _ => return None,
        }
    }
    Some(())
}

/// Zeroes the data of options whose type says that it may change in transit (RFC 8200 section 4.2).
fn options(mut rest: &mut [u8]) -> Option<()> {
    while let [kind, tail @ ..] = rest {
        if *kind == 0 {
            rest = tail;
            continue;
        }
        let (len, tail) = tail.split_first_mut()?;
        let (data, tail) = tail.split_at_mut_checked(usize::from(*len))?;
        if *kind & 0x20 != 0 {
            data.fill(0);
        }
        rest = tail;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_v4() {
        let header = |options: &[u8]| {
            let mut header = vec![0x45 + (options.len() / 4) as u8, 0xb9, 0, 60, 1, 2, 0x40, 3, 64, 51, 9, 9];
            header.extend([10, 0, 0, 1, 10, 0, 0, 2]);
            header.extend(options);
            header
        };
        let source_route = header(&[131, 7, 4, 192, 0, 2, 9, 0]);
        assert_eq!(covered(&source_route, Family::V4, false).unwrap()[16..20], [10, 0, 0, 2]);
        let zeroed = |bytes: &[u8]| covered(&header(bytes), Family::V4, true).map(|h| h[20..].to_vec());
        assert_eq!(covered(&header(&[]), Family::V4, true).unwrap()[..12], [0x45, 0, 0, 60, 1, 2, 0, 0, 0, 51, 0, 0]);
        assert_eq!(zeroed(&[148, 4, 1, 2]).unwrap(), [148, 4, 1, 2], "router alert");
        assert_eq!(zeroed(&[1, 7, 3, 4]).unwrap(), [1, 0, 0, 0], "record route");
        assert_eq!(zeroed(&[0, 7, 3, 4]).unwrap(), [0, 7, 3, 4], "behind the end of options");
        assert_eq!(zeroed(&[7, 1, 0, 0]), None);
        assert_eq!(zeroed(&[7, 5, 0, 0]), None);
        let routed = covered(&source_route, Family::V4, true).unwrap();
        assert_eq!((&routed[16..20], &routed[20..]), (&[192, 0, 2, 9][..], &[0; 8][..]));
    }

    #[test]
    fn options_of_v6() {
        let mut headers = vec![0x6b, 0x91, 2, 3, 0, 0, 0, 64];
        headers.extend([1; 32]);
        headers.extend([51, 1, 0x05, 2, 0, 0, 1, 0, 0x3e, 4, 1, 2, 3, 4, 0, 0]);
        let out = covered(&headers, Family::V6, true).unwrap();
        assert_eq!(
            (&out[..8], &out[40..]),
            (&[0x60, 0, 0, 0, 0, 0, 0, 0][..], &[51, 1, 5, 2, 0, 0, 1, 0, 0x3e, 4, 0, 0, 0, 0, 0, 0][..])
        );
        headers[42 + 8 - 1] = 9;
        assert_eq!(covered(&headers[..48], Family::V6, true), None, "cut short");
        headers.extend([0; 300]);
        assert_eq!(covered(&headers, Family::V6, true), None, "too long");
    }

    #[test]
    fn headers_that_are_covered() {
        let front = |next| [&[0x60, 0, 0, 0, 0, 0, next, 64][..], &[1; 32]].concat();
        let of =
            |next, rest: &[u8]| covered(&[&front(next), rest].concat(), Family::V6, true).map(|h| h[40..].to_vec());
        let [hop, routing, fragment] = [proto::HOP_BY_HOP, proto::ROUTING, proto::FRAGMENT];
        let changing = [routing, 0, 0x3e, 4, 1, 2, 3, 4];
        let routed = [proto::AH, 0, 4, 0, 9, 9, 9, 9];
        assert_eq!(of(proto::AH, &[]), Some(vec![]));
        assert_eq!(of(hop, &[changing, routed].concat()), Some([[routing, 0, 0x3e, 4, 0, 0, 0, 0], routed].concat()));
        let left = [proto::AH, 0, 4, 1, 9, 9, 9, 9];
        assert_eq!(of(hop, &[changing, left].concat()), None, "segments left");
        assert_eq!(of(fragment, &routed), None);
        assert_eq!(of(proto::AH, &routed), None, "AH covers no other AH's headers");
        for cut in 1..16 {
            assert_eq!(of(hop, &[changing, routed].concat()[..cut]).is_some(), cut == 8, "{cut}");
        }
    }
}
