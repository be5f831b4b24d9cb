//! Outbound bursts.

use super::{Derive, Outbound, Verdict, derive_nothing, derive_waiting};
use crate::flows::{Kernel, Target, Track};
use crate::namespace::{Changes, Namespace};
use arrayvec::ArrayVec;
use core::ops::Range;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::mac::{self, BURST, Checksum, Sign};
use sealane_net_ao::output::{Choice, Signature};
use sealane_net_ao::segment;
use sealane_net_ao::segment::cut::Cut;
use sealane_wire::tcp::Segment;
use std::sync::Arc;

/// Room for the pieces of one burst in bytes: a superframe of 64 KB cut into very small pieces, with headers.
const ROOM: usize = 1 << 20;

/// Work in flight from [`Namespace::begin_output`] until the signed pieces have left. It is made once and reused for
/// each burst. It shares ownership of the traffic keys, so that they can be deleted meanwhile.
pub struct SignBurst {
    judged: ArrayVec<OutboundJudgement, BURST>,
    signings: ArrayVec<Signing, BURST>,
    pieces: Vec<Signed>,
    /// The buffer of the pieces.
    room: Box<[u8]>,
    changes: Changes,
}

/// The judgement of one packet.
struct OutboundJudgement {
    track: Track,
    verdict: Verdict,
}

/// A packet to sign.
struct Signing {
    packet: u8,
    signature: Signature,
    /// The MAC under a traffic key that was derived where its master key is.
    derived: Option<Arc<MacTfm>>,
    cut: Cut,
    /// The reason why a piece of it has no MAC.
    failed: Option<DropReason>,
}

impl Signing {
    /// Whether both make the same pieces of the same packet.
    fn is_same(&self, other: &Signing) -> bool {
        (self.packet, &self.cut) == (other.packet, &other.cut) && self.signature.is_same(&other.signature)
    }
}

struct Signed {
    packet: u8,
    pieces: usize,
    at: Range<usize>,
}

/// A signed packet that is to leave.
pub struct Piece<'a> {
    /// The index of the packet that it is a piece of.
    pub of: usize,
    /// The number of pieces of that packet.
    pub pieces: usize,
    /// From the IP header on.
    pub packet: &'a [u8],
}

impl Default for SignBurst {
    fn default() -> Self {
        SignBurst::new()
    }
}

impl SignBurst {
    /// A burst without packets.
    #[must_use]
    pub fn new() -> Self {
        SignBurst {
            judged: ArrayVec::new(),
            signings: ArrayVec::new(),
            pieces: Vec::with_capacity(2 * BURST),
            room: vec![0; ROOM].into(),
            changes: Changes::default(),
        }
    }

    /// Writes and signs the pieces of the burst, without the namespace. `packets` are those of
    /// [`Namespace::begin_output`]. Traffic keys whose master keys are elsewhere are had from `derive`, which may wait.
    pub fn run(&mut self, packets: &[Outbound<'_>], derive: Derive<'_>) {
        for signing in self.signings.iter_mut().filter(|signing| signing.derived.is_none()) {
            signing.derived = signing.signature.traffic.wanted().and_then(&mut *derive);
        }
        self.pieces.clear();
        let mut free = Free { rest: &mut self.room, at: 0 };
        let mut ops: ArrayVec<Sign<'_>, BURST> = ArrayVec::new();
        let mut owners: ArrayVec<(usize, Signed), BURST> = ArrayVec::new();
        let mut failed: ArrayVec<Option<DropReason>, BURST> = ArrayVec::new();
        for (of, Signing { packet, signature, derived, cut, .. }) in self.signings.iter().enumerate() {
            failed.push(None);
            let Some(tfm) = signature.traffic.tfm(derived.as_ref()) else {
                failed[of] = Some(DropReason::NoTrafficKey);
                continue;
            };
            let (start, here) = free.take(cut.total_len());
            let Some(source) = packets.get(usize::from(*packet)) else { continue };
            if let Err(reason) = cut.write(source.packet, here) {
                failed[of] = Some(reason);
                continue;
            }
            let mut start = start;
            for (bytes, at, seq) in cut.packets(here) {
                if ops.is_full() {
                    sign(&mut ops, &mut owners, &mut self.pieces, &mut failed);
                }
                let end = start + bytes.len();
                owners.push((of, Signed { packet: *packet, pieces: cut.count(), at: start..end }));
                start = end;
                let cover = signature.coverage(seq);
                ops.push(Sign { tfm, packet: bytes, at, cover, checksum: Checksum::Full, status: Ok(()) });
            }
        }
        sign(&mut ops, &mut owners, &mut self.pieces, &mut failed);
        drop(ops);
        for (signing, failed) in self.signings.iter_mut().zip(failed) {
            signing.failed = failed;
        }
    }

    /// The signed pieces, in the order of their packets. None of them may leave before the burst has ended.
    pub fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let piece = |s: &Signed| (usize::from(s.packet), s.pieces, s.at.clone());
        self.pieces.iter().map(piece).map(|(of, pieces, at)| Piece { of, pieces, packet: &self.room[at] })
    }

    fn clear(&mut self) {
        self.judged.clear();
        self.signings.clear();
        self.pieces.clear();
    }
}

/// The free end of a buffer.
struct Free<'r> {
    rest: &'r mut [u8],
    at: usize,
}

impl<'r> Free<'r> {
    /// Takes `len` bytes, or fewer at the end of the buffer, and returns their offset.
    fn take(&mut self, len: usize) -> (usize, &'r mut [u8]) {
        let start = self.at;
        let rest = core::mem::take(&mut self.rest);
        let (here, behind) = rest.split_at_mut(len.min(rest.len()));
        self.at += here.len();
        self.rest = behind;
        (start, here)
    }
}

/// Signs the gathered pieces and keeps those that have a MAC.
fn sign(
    ops: &mut ArrayVec<Sign<'_>, BURST>,
    owners: &mut ArrayVec<(usize, Signed), BURST>,
    pieces: &mut Vec<Signed>,
    failed: &mut [Option<DropReason>],
) {
    mac::sign(ops);
    for (op, (of, signed)) in ops.drain(..).zip(owners.drain(..)) {
        match op.status {
            Ok(()) => pieces.push(signed),
            // A piece without a MAC is dropped, and TCP sends it again.
            Err(reason) => failed[of] = Some(reason),
        }
    }
}

impl Namespace {
    /// Signs outbound packets: all phases in one call, which waits for traffic keys that are derived elsewhere. `emit` gets the pieces that
    /// leave, in order.
    pub fn output(
        &mut self,
        packets: &mut [Outbound<'_>],
        kernel: &mut dyn Kernel,
        now_ms: u64,
        mut emit: impl FnMut(Piece<'_>),
    ) {
        let mut burst = SignBurst::new();
        let mut done = 0;
        while done < packets.len() {
            let count = self.begin_output(&mut burst, &packets[done..], kernel, now_ms);
            let now = &mut packets[done..done + count];
            burst.run(now, &mut derive_waiting);
            self.end_output(&mut burst, now, kernel, now_ms);
            burst.pieces().for_each(|piece| emit(Piece { of: done + piece.of, ..piece }));
            done += count;
        }
    }

    /// Begins a burst with the first of `packets`: finds the connection and key of each, and plans its pieces. Returns
    /// the number of packets taken, at least one if there is one, and otherwise about as many as make [`BURST`] pieces.
    /// The next burst may be begun when this one has ended.
    ///
    /// A SYN changes the meaning of packets after it, and is a burst of its own.
    pub fn begin_output(
        &mut self,
        burst: &mut SignBurst,
        packets: &[Outbound<'_>],
        kernel: &mut dyn Kernel,
        now_ms: u64,
    ) -> usize {
        burst.clear();
        let (mut pieces, mut used) = (0, 0);
        for p in packets.iter().take(BURST) {
            let segment = p.segment();
            let opens = segment.as_ref().is_some_and(|(s, _)| s.flags().syn());
            let full = pieces >= BURST || used > ROOM / 2;
            if !burst.judged.is_empty() && (opens || full) {
                break;
            }
            self.judge_output(burst, p, kernel, now_ms);
            if let Some(signing) = burst.signings.last().filter(|s| usize::from(s.packet) + 1 == burst.judged.len()) {
                pieces += signing.cut.count();
                used += signing.cut.total_len();
            }
            if opens {
                break;
            }
        }
        burst.changes = self.changes();
        burst.judged.len()
    }

    fn judge_output(&mut self, burst: &mut SignBurst, p: &Outbound<'_>, kernel: &mut dyn Kernel, now_ms: u64) {
        let Some((segment, ends)) = p.segment() else {
            burst.judged.push(OutboundJudgement { track: Track::Pass, verdict: Verdict::NotTcp });
            return;
        };
        let track = self.track_out(&segment, ends, p.device, kernel, now_ms);
        let verdict = match &track {
            Track::Pass => Verdict::Pass,
            Track::Drop(reason) => Verdict::Drop(*reason),
            Track::To(from) => match self.choose(&segment, from) {
                Choice::Unsigned => Verdict::Pass,
                Choice::Drop(reason) => Verdict::Drop(reason),
                Choice::Sign(signature) => {
                    let used: usize = burst.signings.iter().map(|s| s.cut.total_len()).sum();
                    match cut(&segment, from, &signature, p.mtu) {
                        Ok(cut) if used + cut.total_len() > ROOM => Verdict::Drop(DropReason::Overload),
                        Ok(cut) => {
                            let packet = burst.judged.len() as u8;
                            burst.signings.push(Signing { packet, signature, derived: None, cut, failed: None });
                            Verdict::Sent
                        }
                        Err(reason) => Verdict::Drop(reason),
                    }
                }
            },
        };
        burst.judged.push(OutboundJudgement { track, verdict });
    }

    /// Ends a signed burst: sets the verdict of each packet. [`SignBurst::pieces`] may leave then. `packets` are those
    /// of [`Namespace::begin_output`].
    pub fn end_output(
        &mut self,
        burst: &mut SignBurst,
        packets: &mut [Outbound<'_>],
        kernel: &mut dyn Kernel,
        now_ms: u64,
    ) {
        if burst.changes != self.changes() {
            self.judge_output_again(burst, packets, kernel, now_ms);
        }
        for (p, judged) in packets.iter_mut().zip(&burst.judged) {
            p.verdict = judged.verdict;
        }
        for signing in &burst.signings {
            let track = burst.judged.get(usize::from(signing.packet)).map(|judged| &judged.track);
            if let (Some((wanted, tfm)), Some(Track::To(from))) =
                (signing.signature.traffic.learnt(signing.derived.as_ref()), track)
            {
                self.learn(from, wanted, tfm);
            }
        }
        for Signing { packet, failed, .. } in &burst.signings {
            if let (Some(reason), Some(p)) = (failed, packets.get_mut(usize::from(*packet))) {
                p.verdict = Verdict::Drop(*reason);
            }
        }
        for (p, judged) in packets.iter().zip(&burst.judged) {
            if let (Some((segment, _)), Verdict::Drop(reason)) = (p.segment(), p.verdict) {
                self.note_drop(&segment, judged.track.target(), reason, now_ms);
            }
        }
    }

    /// Judges a burst by the present state of the namespace. If all packets would still be signed alike, the pieces are
    /// kept; otherwise all of them are signed again.
    fn judge_output_again(
        &mut self,
        burst: &mut SignBurst,
        packets: &[Outbound<'_>],
        kernel: &mut dyn Kernel,
        now_ms: u64,
    ) {
        let before = core::mem::take(&mut burst.signings);
        burst.judged.clear();
        for p in packets {
            self.judge_output(burst, p, kernel, now_ms);
        }
        if before.len() == burst.signings.len() && before.iter().zip(&burst.signings).all(|(a, b)| a.is_same(b)) {
            burst.signings = before;
        } else {
            for signing in &mut burst.signings {
                let same = before.iter().find(|b| b.signature.traffic.is_same(&signing.signature.traffic));
                signing.derived = same.and_then(|b| b.derived.clone());
            }
            // Nobody waits for a key here: the lock is held.
            burst.run(packets, &mut derive_nothing);
        }
    }
}

/// Plans the pieces of a segment.
fn cut(segment: &Segment<'_>, from: &Target, signature: &Signature, mtu: usize) -> Result<Cut, DropReason> {
    let options_len = segment.option_bytes().len() + signature.option.padded_len();
    let mut payload = segment::max_payload(segment.layout(), options_len, mtu);
    if let Some(mss) = from.peer_mss() {
        payload = payload.min(usize::from(mss).saturating_sub(options_len));
    }
    Ok(Cut::new(segment, &signature.option, payload)?.with_accurate_ecn(from.accurate_ecn()))
}
