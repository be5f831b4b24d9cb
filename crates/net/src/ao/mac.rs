//! The MAC of a segment: what goes into it, and bursts of them across connections.
//!
//! Its input is the SNE, the pseudo-header, the TCP header with checksum and MAC zeroed, and the payload (RFC 5925
//! section 5.1). The first three are put together in a few bytes of scratch; the payload is never copied.

use crate::ao::drop::DropReason;
use crate::ao::mkt::OPTION_HEADER_LEN;
use crate::wire::ip::{self, Family, Layout, MAX_TCP_HEADER_LEN, PROTO_TCP, TCP_HEADER_LEN};
use arrayvec::ArrayVec;
use sealane_crypto::mac::{self, MacOp, MacTfm, VerifyOp};

/// How many segments go to the drivers together.
pub const BURST: usize = 64;

/// SNE, pseudo-header of IPv6, longest TCP header.
const SCRATCH_LEN: usize = 4 + 40 + MAX_TCP_HEADER_LEN;

/// What surrounds the bytes of a segment in its MAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Where the MAC starts in the TCP header.
    pub mac_at: usize,
    /// Its length in bytes.
    pub mac_len: usize,
    /// Sequence number extension of the segment.
    pub sne: u32,
    /// Whether the other TCP options stay out.
    pub exclude_options: bool,
}

/// The MAC's input before the payload.
struct Scratch {
    bytes: [u8; SCRATCH_LEN],
    len: usize,
}

impl Scratch {
    const EMPTY: Scratch = Scratch { bytes: [0; SCRATCH_LEN], len: 0 };

    /// # Panics
    /// When the option does not lie within the TCP header of `packet`.
    #[inline]
    fn fill(&mut self, packet: &[u8], at: &Layout, cover: &Coverage) {
        let header = &packet[at.tcp_at..at.payload_at];
        let tcp_len = (at.tcp_len() as u32).to_be_bytes();
        let out = &mut self.bytes;
        out[..4].copy_from_slice(&cover.sne.to_be_bytes());
        let start = match at.family {
            Family::V4 => {
                out[4..12].copy_from_slice(&packet[12..20]);
                out[12..16].copy_from_slice(&[0, PROTO_TCP, tcp_len[2], tcp_len[3]]);
                16
            }
            Family::V6 => {
                out[4..36].copy_from_slice(&packet[8..40]);
                out[36..40].copy_from_slice(&tcp_len);
                out[40..44].copy_from_slice(&[0, 0, 0, PROTO_TCP]);
                44
            }
        };
        let out = &mut out[start..];
        let mac_end = cover.mac_at + cover.mac_len;
        let len = if cover.exclude_options {
            let option = &header[cover.mac_at - OPTION_HEADER_LEN..mac_end];
            out[..TCP_HEADER_LEN].copy_from_slice(&header[..TCP_HEADER_LEN]);
            out[TCP_HEADER_LEN..][..OPTION_HEADER_LEN].copy_from_slice(&option[..OPTION_HEADER_LEN]);
            out[TCP_HEADER_LEN + OPTION_HEADER_LEN..][..cover.mac_len].fill(0);
            TCP_HEADER_LEN + option.len()
        } else {
            out[..header.len()].copy_from_slice(header);
            out[cover.mac_at..mac_end].fill(0);
            header.len()
        };
        out[16..18].fill(0);
        self.len = start + len;
    }

    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What is to become of the TCP checksum of a segment that was signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checksum {
    /// It is computed.
    Full,
    /// It becomes the sum of the pseudo-header; a device does the rest.
    Partial,
}

/// A segment to sign. Its option is in place; the MAC's bytes may hold anything.
pub struct Sign<'a> {
    /// The MAC under the traffic key.
    pub tfm: &'a MacTfm,
    /// The packet.
    pub packet: &'a mut [u8],
    /// Where its parts lie.
    pub at: Layout,
    /// What the MAC covers.
    pub cover: Coverage,
    /// What becomes of the TCP checksum.
    pub checksum: Checksum,
    /// Set by [`sign`]: [`DropReason::Driver`] when there is no MAC, and then the segment must not leave.
    pub status: Result<(), DropReason>,
}

/// Signs segments and finishes their TCP checksums. Those of one algorithm go to one driver together, whatever
/// connections they belong to and whatever lies between them.
///
/// # Panics
/// When an option does not lie within the header that the layout gives.
pub fn sign(ops: &mut [Sign<'_>]) {
    if let [op] = ops {
        let mut scratch = Scratch::EMPTY;
        scratch.fill(op.packet, &op.at, &op.cover);
        let (head, payload) = op.packet[..op.at.end].split_at_mut(op.at.payload_at);
        let tag = &mut head[op.at.tcp_at + op.cover.mac_at..][..op.cover.mac_len];
        let status = op.tfm.sign(&[scratch.as_slice(), payload], tag);
        op.status = status.map_err(|_| DropReason::Driver);
        op.finish_checksum();
        return;
    }
    let mut scratch = [Scratch::EMPTY; BURST];
    for chunk in ops.chunks_mut(BURST) {
        sign_chunk(chunk, &mut scratch);
        chunk.iter_mut().for_each(Sign::finish_checksum);
    }
}

fn sign_chunk(chunk: &mut [Sign<'_>], scratch: &mut [Scratch; BURST]) {
    let mut data: ArrayVec<[&[u8]; 2], BURST> = ArrayVec::new();
    let mut tags: ArrayVec<(&MacTfm, &mut [u8], &mut Result<(), DropReason>), BURST> = ArrayVec::new();
    for (op, scratch) in chunk.iter_mut().zip(scratch) {
        scratch.fill(op.packet, &op.at, &op.cover);
        let (head, payload) = op.packet[..op.at.end].split_at_mut(op.at.payload_at);
        tags.push((op.tfm, &mut head[op.at.tcp_at + op.cover.mac_at..][..op.cover.mac_len], &mut op.status));
        data.push([scratch.as_slice(), payload]);
    }
    let mut macs: ArrayVec<MacOp<'_>, BURST> = ArrayVec::new();
    let mut statuses: ArrayVec<&mut Result<(), DropReason>, BURST> = ArrayVec::new();
    for ((tfm, tag, status), data) in tags.into_iter().zip(&data) {
        macs.push(MacOp::new(tfm, data, tag));
        statuses.push(status);
    }
    by_algorithm(&mut macs, &mut statuses, |op| op.tfm, mac::sign);
    for (op, status) in macs.iter().zip(statuses) {
        *status = op.status.map_err(|_| DropReason::Driver);
    }
}

/// Runs `run` on runs of one algorithm: brings operations of one algorithm together first. Two or three algorithms are
/// the most that is ever mixed.
fn by_algorithm<T, S>(ops: &mut [T], beside: &mut [S], tfm: impl Fn(&T) -> &MacTfm, run: impl FnOnce(&mut [T])) {
    let mut sorted = 0;
    while sorted < ops.len() {
        let first = sorted;
        sorted += 1;
        for i in first + 1..ops.len() {
            if tfm(&ops[i]).alg().same(tfm(&ops[first]).alg()) {
                ops.swap(i, sorted);
                beside.swap(i, sorted);
                sorted += 1;
            }
        }
    }
    run(ops);
}

impl Sign<'_> {
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
    /// Where its parts lie.
    pub at: Layout,
    /// What the MAC covers.
    pub cover: Coverage,
    /// Set by [`verify`]: [`DropReason::Mac`] when it does not match, [`DropReason::Driver`] when there is no telling.
    pub status: Result<(), DropReason>,
}

/// Verifies segments in constant time, in bursts as [`sign`].
///
/// # Panics
/// When an option does not lie within the header that the layout gives.
pub fn verify(ops: &mut [Verify<'_>]) {
    if let [op] = ops {
        let mut scratch = Scratch::EMPTY;
        scratch.fill(op.packet, &op.at, &op.cover);
        op.status = judged(op.tfm.verify(&[scratch.as_slice(), op.payload()], op.tag()));
        return;
    }
    let mut scratch = [Scratch::EMPTY; BURST];
    for chunk in ops.chunks_mut(BURST) {
        for (op, scratch) in chunk.iter().zip(&mut scratch) {
            scratch.fill(op.packet, &op.at, &op.cover);
        }
        let data: ArrayVec<[&[u8]; 2], BURST> =
            chunk.iter().zip(&scratch).map(|(op, s)| [s.as_slice(), op.payload()]).collect();
        let mut checks: ArrayVec<VerifyOp<'_>, BURST> = chunk
            .iter()
            .zip(&data)
            .map(|(op, data)| VerifyOp { tfm: op.tfm, data, tag: op.tag(), status: Ok(()) })
            .collect();
        let mut order: ArrayVec<usize, BURST> = (0..checks.len()).collect();
        by_algorithm(&mut checks, &mut order, |op| op.tfm, mac::verify);
        for (check, i) in checks.iter().zip(order) {
            chunk[i].status = judged(check.status);
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
