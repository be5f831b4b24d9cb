//! MACs of segments, computed in bursts across connections.
//!
//! The input of a MAC is the SNE, the pseudo-header, the TCP header with checksum and MAC zeroed, and the payload (RFC
//! 5925 section 5.1). The first three are put together in a scratch buffer. A long payload is read where it lies; a
//! short one is copied behind its header, because drivers are fastest with messages of one piece.

use crate::drop::DropReason;
use crate::mkt::OPTION_HEADER_LEN;
use arrayvec::ArrayVec;
use sealane_crypto::mac::{self, MacOp, MacTfm, VerifyOp};
use sealane_wire::ip::{self, Family, Layout, MAX_TCP_HEADER_LEN, PROTO_TCP, TCP_HEADER_LEN};

/// The most segments that go to the drivers in one call.
pub const BURST: usize = 64;

/// SNE, pseudo-header of IPv6, longest TCP header.
const HEAD_LEN: usize = 4 + 40 + MAX_TCP_HEADER_LEN;

/// Payloads up to this length in bytes are copied: the cost of a copy grows with the length, its gain does not.
const COPIED_LEN: usize = 256;

/// The longest input before a payload that is not copied.
const INPUT_LEN: usize = HEAD_LEN + COPIED_LEN;

/// The coverage of a segment's MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Offset of the MAC in the TCP header.
    pub mac_at: usize,
    /// Length of the MAC in bytes.
    pub mac_len: usize,
    /// Sequence number extension of the segment.
    pub sne: u32,
    /// Whether the MAC leaves the other TCP options out.
    pub exclude_options: bool,
}

/// Appends the MAC's input in front of the payload, and the payload as well if `whole`.
///
/// # Panics
/// When the option does not lie within the TCP header of `packet`, or `out` is full.
#[inline]
fn append<const N: usize>(out: &mut ArrayVec<u8, N>, packet: &[u8], at: &Layout, cover: &Coverage, whole: bool) {
    fn extend<const N: usize>(out: &mut ArrayVec<u8, N>, bytes: &[u8]) {
        out.try_extend_from_slice(bytes).expect("room for a burst");
    }
    let sne = cover.sne.to_be_bytes();
    let tcp_len = (at.tcp_len() as u32).to_be_bytes();
    match at.family {
        Family::V4 => {
            let mut pseudo = [0; 4 + 12];
            pseudo[..4].copy_from_slice(&sne);
            pseudo[4..12].copy_from_slice(&packet[12..20]);
            pseudo[12..].copy_from_slice(&[0, PROTO_TCP, tcp_len[2], tcp_len[3]]);
            extend(out, &pseudo);
        }
        Family::V6 => {
            let mut pseudo = [0; 4 + 40];
            pseudo[..4].copy_from_slice(&sne);
            pseudo[4..36].copy_from_slice(&packet[8..40]);
            pseudo[36..40].copy_from_slice(&tcp_len);
            pseudo[43] = PROTO_TCP;
            extend(out, &pseudo);
        }
    }
    let tcp = out.len();
    let header = &packet[at.tcp_at..at.payload_at];
    let mac_end = cover.mac_at + cover.mac_len;
    let mac_at = if cover.exclude_options {
        let option = &header[cover.mac_at - OPTION_HEADER_LEN..mac_end];
        extend(out, &header[..TCP_HEADER_LEN]);
        extend(out, option);
        if whole {
            extend(out, &packet[at.payload_at..at.end]);
        }
        TCP_HEADER_LEN + OPTION_HEADER_LEN
    } else {
        assert!(mac_end <= header.len(), "the MAC lies within the header");
        match packet[at.tcp_at..].first_chunk::<MAX_TCP_HEADER_LEN>() {
            _ if whole => extend(out, &packet[at.tcp_at..at.end]),
            // A copy of constant length takes a few moves, one of variable length a call.
            Some(longest) if out.remaining_capacity() >= longest.len() => {
                extend(out, longest);
                out.truncate(tcp + header.len());
            }
            _ => extend(out, header),
        }
        cover.mac_at
    };
    out[tcp + 16..tcp + 18].fill(0);
    let mac = &mut out[tcp + mac_at..][..cover.mac_len];
    match mac.len() {
        // The usual lengths, without a call.
        12 => mac.copy_from_slice(&[0; 12]),
        16 => mac.copy_from_slice(&[0; 16]),
        _ => mac.fill(0),
    }
}

/// The input of one segment, up to the payload if that is not copied.
#[inline]
fn input(packet: &[u8], at: &Layout, cover: &Coverage) -> ArrayVec<u8, INPUT_LEN> {
    let mut out = ArrayVec::new();
    append(&mut out, packet, at, cover, at.payload_len() <= COPIED_LEN);
    out
}

/// A payload that the input does not have yet; nothing otherwise.
fn not_copied(payload: &[u8]) -> &[u8] {
    if payload.len() <= COPIED_LEN { &[] } else { payload }
}

/// The inputs of a burst, one behind another.
struct Inputs {
    bytes: ArrayVec<u8, { BURST * INPUT_LEN }>,
    /// The end of each input.
    ends: ArrayVec<u16, BURST>,
}

impl Inputs {
    fn new() -> Self {
        Inputs { bytes: ArrayVec::new(), ends: ArrayVec::new() }
    }

    #[inline]
    fn push(&mut self, packet: &[u8], at: &Layout, cover: &Coverage) {
        append(&mut self.bytes, packet, at, cover, at.payload_len() <= COPIED_LEN);
        self.ends.push(self.bytes.len() as u16);
    }

    /// The inputs, each followed by the payload of the same operation if that was not copied.
    fn pieces<'p>(&'p self, payloads: impl Iterator<Item = &'p [u8]>) -> ArrayVec<[&'p [u8]; 2], BURST> {
        let mut start = 0;
        let piece = |(end, payload): (&u16, &'p [u8])| {
            let end = usize::from(*end);
            let head = &self.bytes[start..end];
            start = end;
            [head, not_copied(payload)]
        };
        self.ends.iter().zip(payloads).map(piece).collect()
    }
}

/// The pieces without the second one where it is empty.
fn trimmed<'d, 'p>(pieces: &'d [&'p [u8]; 2]) -> &'d [&'p [u8]] {
    if pieces[1].is_empty() { &pieces[..1] } else { pieces }
}

/// The TCP checksum that a signed segment gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// The complete checksum.
    Full,
    /// The sum of the pseudo-header; a device completes it.
    Partial,
}

/// A segment to sign. Its option is in place; the MAC's bytes may hold anything.
pub struct Sign<'a> {
    /// The MAC under the traffic key.
    pub tfm: &'a MacTfm,
    /// The packet.
    pub packet: &'a mut [u8],
    /// The layout of the packet.
    pub at: Layout,
    /// The MAC's coverage.
    pub cover: Coverage,
    /// The TCP checksum that it gets.
    pub checksum: Checksum,
    /// Set by [`sign`]: [`DropReason::Driver`] when the MAC could not be computed. The segment must not leave then.
    pub status: Result<(), DropReason>,
}

/// Signs segments and finishes their TCP checksums. Those of one algorithm go to one driver together, whatever
/// connections they belong to and whatever lies between them.
///
/// # Panics
/// When an option does not lie within the header that the layout gives.
pub fn sign(ops: &mut [Sign<'_>]) {
    if let [op] = ops {
        let input = input(op.packet, &op.at, &op.cover);
        let tfm = op.tfm;
        let (tag, payload) = op.tag_and_payload();
        let status = tfm.sign(trimmed(&[&input, not_copied(payload)]), tag);
        op.status = status.map_err(|_| DropReason::Driver);
        op.finish_checksum();
        return;
    }
    for chunk in ops.chunks_mut(BURST) {
        sign_chunk(chunk);
        chunk.iter_mut().for_each(Sign::finish_checksum);
    }
}

fn sign_chunk(chunk: &mut [Sign<'_>]) {
    let mut inputs = Inputs::new();
    for op in chunk.iter() {
        inputs.push(op.packet, &op.at, &op.cover);
    }
    let mut payloads: ArrayVec<&[u8], BURST> = ArrayVec::new();
    let mut tags: ArrayVec<(&MacTfm, &mut [u8]), BURST> = ArrayVec::new();
    for op in chunk.iter_mut() {
        let tfm = op.tfm;
        let (tag, payload) = op.tag_and_payload();
        payloads.push(payload);
        tags.push((tfm, tag));
    }
    let pieces = inputs.pieces(payloads.iter().copied());
    let mut macs: ArrayVec<MacOp<'_>, BURST> =
        tags.into_iter().zip(&pieces).map(|((tfm, tag), pieces)| MacOp::new(tfm, trimmed(pieces), tag)).collect();
    let order = by_algorithm(&mut macs, |op| op.tfm);
    mac::sign(&mut macs);
    let statuses: ArrayVec<sealane_crypto::Status, BURST> = macs.iter().map(|op| op.status).collect();
    // These borrow from the operations.
    drop(macs);
    drop(pieces);
    drop(payloads);
    for (i, status) in order.into_iter().zip(statuses) {
        chunk[usize::from(i)].status = status.map_err(|_| DropReason::Driver);
    }
}

/// Sorts operations by algorithm, because a driver takes neighbouring operations in one call. A burst rarely has more
/// than three algorithms. Returns the former place of each operation.
fn by_algorithm<T>(ops: &mut [T], tfm: impl Fn(&T) -> &MacTfm) -> ArrayVec<u8, BURST> {
    let mut order: ArrayVec<u8, BURST> = (0..ops.len() as u8).collect();
    let mut sorted = 0;
    while sorted < ops.len() {
        let first = sorted;
        sorted += 1;
        for i in first + 1..ops.len() {
            if tfm(&ops[i]).same_alg(tfm(&ops[first])) {
                if i != sorted {
                    ops.swap(i, sorted);
                    order.swap(i, sorted);
                }
                sorted += 1;
            }
        }
    }
    order
}

impl Sign<'_> {
    fn tag_and_payload(&mut self) -> (&mut [u8], &[u8]) {
        let (head, payload) = self.packet[..self.at.end].split_at_mut(self.at.payload_at);
        (&mut head[self.at.tcp_at + self.cover.mac_at..][..self.cover.mac_len], payload)
    }

    fn finish_checksum(&mut self) {
        match self.checksum {
            Checksum::Full => ip::set_tcp_checksum(self.packet, &self.at),
            Checksum::Partial => ip::set_partial_checksum(self.packet, &self.at),
        }
    }
}

/// A segment to verify.
pub struct Verify<'a> {
    /// The MAC under the traffic key.
    pub tfm: &'a MacTfm,
    /// The packet.
    pub packet: &'a [u8],
    /// The layout of the packet.
    pub at: Layout,
    /// The MAC's coverage.
    pub cover: Coverage,
    /// Set by [`verify`]: [`DropReason::Mac`] when it does not match, [`DropReason::Driver`] when it could not be
    /// computed.
    pub status: Result<(), DropReason>,
}

/// Verifies segments in constant time, in bursts as [`sign`].
///
/// # Panics
/// When an option does not lie within the header that the layout gives.
pub fn verify(ops: &mut [Verify<'_>]) {
    if let [op] = ops {
        let input = input(op.packet, &op.at, &op.cover);
        op.status = judged(op.tfm.verify(trimmed(&[&input, not_copied(op.payload())]), op.tag()));
        return;
    }
    for chunk in ops.chunks_mut(BURST) {
        let mut inputs = Inputs::new();
        for op in chunk.iter() {
            inputs.push(op.packet, &op.at, &op.cover);
        }
        let pieces = inputs.pieces(chunk.iter().map(Verify::payload));
        let mut checks: ArrayVec<VerifyOp<'_>, BURST> = chunk
            .iter()
            .zip(&pieces)
            .map(|(op, pieces)| VerifyOp { tfm: op.tfm, data: trimmed(pieces), tag: op.tag(), status: Ok(()) })
            .collect();
        let order = by_algorithm(&mut checks, |op| op.tfm);
        mac::verify(&mut checks);
        for (check, i) in checks.iter().zip(order) {
            chunk[usize::from(i)].status = judged(check.status);
        }
    }
}

fn judged(status: sealane_crypto::Status) -> Result<(), DropReason> {
    use sealane_crypto::OpError;
    status.map_err(|e| if e == OpError::Driver { DropReason::Driver } else { DropReason::Mac })
}

impl<'a> Verify<'a> {
    fn payload(&self) -> &'a [u8] {
        &self.packet[self.at.payload_at..self.at.end]
    }

    fn tag(&self) -> &'a [u8] {
        &self.packet[self.at.tcp_at + self.cover.mac_at..][..self.cover.mac_len]
    }
}
