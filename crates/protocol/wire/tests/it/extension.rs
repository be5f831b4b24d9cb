//! Walks over extension headers find what the packets were built from, wherever these are cut short.

use crate::random::Random;
use sealane_wire::ip::{ExtensionHeaders, Layout, NotTcp, v6_upper};
use sealane_wire::proto::{AH, DESTINATION, ESP, FRAGMENT, HOP_BY_HOP, ICMPV6, MOBILITY, NONE, ROUTING, TCP, UDP};
use sealane_wire::walk::{Fragment, Malformed, Walk, unfragmentable};

/// A header that a packet is built from.
#[derive(Debug, Clone, Copy)]
struct Header {
    kind: u8,
    at: usize,
    /// The offset of the byte that names it.
    named_at: usize,
    len: usize,
    /// Of a fragment header: the offset in bytes, and whether more follow.
    part: (usize, bool),
    segments_left: u8,
}

impl Header {
    fn is_part(&self) -> bool {
        self.kind == FRAGMENT && self.part != (0, false)
    }

    fn is_later(&self) -> bool {
        self.kind == FRAGMENT && self.part.0 != 0
    }
}

/// A packet, and its headers, of which the last is the upper-layer protocol's.
struct Built {
    headers: Vec<Header>,
    bytes: Vec<u8>,
}

const ID: u32 = 0x0102_0304;

fn build(random: &mut Random) -> Built {
    let mut headers: Vec<Header> = Vec::new();
    let (mut at, mut named_at) = (40, 6);
    for _ in 0..random.below(6) {
        let kind = random.of(&[HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION, AH, MOBILITY]);
        let len = match kind {
            FRAGMENT => 8,
            AH => 8 + 4 * random.below(5),
            _ => 8 * (1 + random.of(&[0, 0, 1, 2, 255])),
        };
        let part = (random.of(&[0, 0, 8, 1480]), random.one_in(3));
        let segments_left = random.of(&[0, 0, 0, 1]);
        headers.push(Header { kind, at, named_at, len, part, segments_left });
        (named_at, at) = (at, at + len);
    }
    let kind = random.of(&[TCP, TCP, UDP, ESP, ICMPV6, NONE]);
    headers.push(Header { kind, at, named_at, len: 20, part: (0, false), segments_left: 0 });
    let mut bytes = vec![0; at + 20];
    (bytes[0], bytes[7]) = (0x60, 64);
    // The upper-layer header looks like that of TCP.
    bytes[at + 12] = 0x50;
    for header in &headers {
        bytes[header.named_at] = header.kind;
    }
    for header in &headers[..headers.len() - 1] {
        let units = if header.kind == AH { header.len / 4 - 2 } else { header.len / 8 - 1 };
        bytes[header.at + 1] = units as u8;
        match header.kind {
            FRAGMENT => {
                // The reserved bits may be set.
                let bits = (header.part.0 as u16) | 6 | u16::from(header.part.1);
                bytes[header.at + 2..header.at + 4].copy_from_slice(&bits.to_be_bytes());
                bytes[header.at + 4..header.at + 8].copy_from_slice(&ID.to_be_bytes());
                // Its second byte is reserved.
                bytes[header.at + 1] = 7;
            }
            ROUTING => bytes[header.at + 3] = header.segments_left,
            _ => {}
        }
    }
    Built { headers, bytes }
}

/// States a length that ends the packet there, and may leave bytes behind it in the buffer.
fn end_at(built: &Built, end: usize, padding: usize) -> Vec<u8> {
    let mut packet = built.bytes[..end].to_vec();
    packet[4..6].copy_from_slice(&((end - 40) as u16).to_be_bytes());
    packet.resize(end + padding, 0xee);
    packet
}

const BASIC: [u8; 4] = [HOP_BY_HOP, ROUTING, FRAGMENT, DESTINATION];

/// The result that `Walk::find` has to have: protocol, its offset, the offset of its number, the fragment.
fn walked(built: &Built, end: usize) -> Result<(u8, usize, usize, Option<Fragment>), Malformed> {
    let mut fragment = None;
    for (i, header) in built.headers.iter().enumerate() {
        if header.at > end {
            return Err(Malformed);
        }
        if !BASIC.contains(&header.kind) {
            return Ok((header.kind, header.at, header.named_at, fragment));
        }
        if header.at + header.len > end {
            return Err(Malformed);
        }
        let next = &built.headers[i + 1];
        if header.is_part() {
            let outer = fragment.map_or(next.kind, |outer: Fragment| outer.next);
            fragment = Some(Fragment { id: ID, next: outer, is_later: header.is_later() });
        }
        if header.is_later() {
            return Ok((next.kind, next.at, next.named_at, fragment));
        }
    }
    unreachable!("the last one is no extension header")
}

/// The headers in front of what routers need not know: up to the first that is none of theirs.
fn routers(built: &Built) -> &Header {
    let routing = built.headers.iter().position(|header| header.kind == ROUTING).unwrap_or(usize::MAX);
    let is_theirs = |(i, header): (usize, &Header)| match header.kind {
        HOP_BY_HOP | ROUTING => true,
        DESTINATION => i < routing,
        _ => false,
    };
    let count = built.headers.iter().enumerate().take_while(|header| is_theirs(*header)).count();
    &built.headers[count]
}

/// The result of a sender's look into the front of its packet that an error quotes.
fn quoted(built: &Built, len: usize, with_ah: bool) -> Option<(u8, usize, usize)> {
    for header in &built.headers {
        if header.named_at >= len {
            return None;
        }
        let is_extension = BASIC.contains(&header.kind) || header.kind == AH && with_ah;
        if !is_extension {
            return Some((header.kind, header.named_at, header.at));
        }
        if header.at + 8 > len || header.is_later() {
            return None;
        }
    }
    unreachable!("the last one is no extension header")
}

fn tcp(built: &Built, end: usize) -> Result<usize, NotTcp> {
    for header in &built.headers {
        match header.kind {
            TCP if header.at + 20 > end => return Err(NotTcp::Malformed),
            TCP => return Ok(header.at),
            UDP | ESP | ICMPV6 | NONE => return Err(NotTcp::Other),
            _ if header.at + 8 > end => return Err(NotTcp::Malformed),
            _ if header.is_part() => return Err(NotTcp::Fragment),
            ROUTING if header.segments_left != 0 => return Err(NotTcp::Malformed),
            _ => {}
        }
    }
    unreachable!("the last one is no extension header")
}

#[test]
fn every_walk_finds_what_a_packet_was_built_from() {
    let mut random = Random(6);
    let mut found = [0; 4];
    for round in 0..20_000 {
        let built = build(&mut random);
        let len = built.bytes.len();
        let end = if random.one_in(2) { len } else { 40 + random.below(len - 39) };
        let packet = end_at(&built, end, random.of(&[0, 0, 5]));
        let about = || format!("round {round}, {end} of {len} bytes: {:?}", built.headers);

        let walk = Walk::find(&packet);
        let got = walk.map(|walk| (walk.upper, walk.upper_at, walk.next_at, walk.fragment));
        assert_eq!(got, walked(&built, end), "{}", about());
        if let Ok(walk) = walk {
            let stop = routers(&built);
            assert_eq!(walk.end, end);
            assert_eq!(unfragmentable(&packet, &walk), Ok((stop.at, stop.named_at)), "{}", about());
            found[0] += usize::from(walk.fragment.is_some());
            found[1] += usize::from(stop.kind == DESTINATION);
        }
        for (headers, with_ah) in [(ExtensionHeaders::WithAh, true), (ExtensionHeaders::BeforeIpsec, false)] {
            let got = v6_upper(&built.bytes[..end], headers).map(|upper| (upper.kind, upper.named_at, upper.at));
            assert_eq!(got, quoted(&built, end, with_ah), "{}", about());
            found[2] += usize::from(got.is_some_and(|(_, _, at)| at > end));
        }
        let layout = Layout::find(&packet);
        assert_eq!(layout.map(|layout| layout.tcp_at), tcp(&built, end), "{}", about());
        found[3] += usize::from(layout.is_ok());
    }
    assert!(found.iter().all(|count| *count > 100), "{found:?}");
}
