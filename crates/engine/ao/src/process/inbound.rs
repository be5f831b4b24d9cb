//! Inbound bursts.

use super::{Derive, Inbound, Verdict, derive_nothing, derive_waiting};
use crate::flows::{Kernel, Track};
use crate::namespace::{Changes, Namespace};
use arrayvec::ArrayVec;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::input::{Check, Class, Refusal};
use sealane_net_ao::mac::{self, BURST, Verify};
use sealane_net_ao::segment;
use sealane_wire::tcp::{AoOption, Options, Segment, kind};
use std::sync::Arc;

/// Work in flight between [`Namespace::begin_input`] and [`VerifyBurst::finish`]. It is made once and reused for each
/// burst. It shares ownership of the traffic keys, so that they can be deleted meanwhile.
#[derive(Default)]
pub struct VerifyBurst {
    judged: ArrayVec<InboundJudgement, BURST>,
    macs: ArrayVec<Mac, BURST>,
    /// For each packet that is delivered: the option to remove, and the room to make in a SYN.
    strips: ArrayVec<Option<Strip>, BURST>,
    changes: Changes,
}

/// The judgement of one packet before its MAC.
struct InboundJudgement {
    track: Track,
    step: Step,
}

enum Step {
    /// There is no MAC to verify.
    Done(Verdict),
    Refused(Refusal),
    /// The MAC with this index decides.
    Verify(u8),
}

/// A MAC to verify.
struct Mac {
    packet: u8,
    check: Check,
    /// The MAC under a traffic key that was derived where its master key is.
    derived: Option<Arc<MacTfm>>,
    /// `None` until it was computed.
    done: Option<Result<(), DropReason>>,
}

impl Mac {
    /// Whether both are the same computation over the same packet.
    fn is_same(&self, other: &Mac) -> bool {
        self.packet == other.packet
            && self.check.traffic.is_same(&other.check.traffic)
            && (self.check.cover, self.check.option) == (other.check.cover, other.check.option)
    }

    /// Takes over what was computed for the same MAC.
    fn take_over(&mut self, before: &Mac) {
        (self.derived, self.done) = (before.derived.clone(), before.done);
    }
}

#[derive(Clone, Copy)]
struct Strip {
    option: AoOption,
    /// For a SYN: the length of the longest option that our segments will have.
    room: Option<usize>,
}

impl VerifyBurst {
    /// A burst without packets.
    #[must_use]
    pub fn new() -> Self {
        VerifyBurst::default()
    }

    /// Verifies the MACs of the burst, without the namespace. `packets` are those of [`Namespace::begin_input`]. Traffic keys whose
    /// master keys are elsewhere are had from `derive`, which may wait.
    pub fn run(&mut self, packets: &[Inbound<'_>], derive: Derive<'_>) {
        for mac in self.macs.iter_mut().filter(|mac| mac.done.is_none() && mac.derived.is_none()) {
            mac.derived = mac.check.traffic.wanted().and_then(&mut *derive);
            if mac.derived.is_none() && mac.check.traffic.wanted().is_some() {
                mac.done = Some(Err(DropReason::NoTrafficKey));
            }
        }
        let mut ops: ArrayVec<Verify<'_>, BURST> = ArrayVec::new();
        for mac in self.macs.iter().filter(|mac| mac.done.is_none()) {
            let tfm = mac.check.traffic.tfm(mac.derived.as_ref());
            let segment = packets.get(usize::from(mac.packet)).and_then(Inbound::segment);
            if let (Some((segment, _)), Some(tfm)) = (segment, tfm) {
                ops.push(mac.check.op(tfm, &segment));
            }
        }
        mac::verify(&mut ops);
        let done: ArrayVec<Result<(), DropReason>, BURST> = ops.iter().map(|op| op.status).collect();
        drop(ops);
        for (mac, done) in self.macs.iter_mut().filter(|mac| mac.done.is_none()).zip(done) {
            mac.done = Some(done);
        }
    }

    /// Removes the option from authentic packets, without the namespace, and sets their verdict to
    /// [`Verdict::Deliver`]. `packets` are those of [`Namespace::begin_input`].
    pub fn finish(&mut self, packets: &mut [Inbound<'_>]) {
        for (p, strip) in packets.iter_mut().zip(self.strips.drain(..)) {
            let (Some(Strip { option, room }), Some(located)) = (strip, &p.located) else { continue };
            let (from, new_at) = segment::strip(p.packet, &located.at, &option, p.checksum);
            if let Some(room) = room {
                // Segments to this peer have to leave room for the option.
                segment::make_room(&mut p.packet[from..], &new_at, p.mtu, room, p.checksum);
            }
            p.verdict = Verdict::Deliver(from, new_at);
        }
        self.clear();
    }

    fn clear(&mut self) {
        self.judged.clear();
        self.macs.clear();
        self.strips.clear();
    }
}

impl Namespace {
    /// Judges inbound packets and removes the option from authentic ones: all phases in one call, which waits for traffic keys that are
    /// derived elsewhere.
    pub fn input(&mut self, packets: &mut [Inbound<'_>], kernel: &mut dyn Kernel, now_ms: u64) {
        let mut burst = VerifyBurst::new();
        let mut rest = packets;
        while !rest.is_empty() {
            let count = self.begin_input(&mut burst, rest, kernel);
            let (now, later) = rest.split_at_mut(count);
            burst.run(now, &mut derive_waiting);
            self.end_input(&mut burst, now, kernel, now_ms);
            burst.finish(now);
            rest = later;
        }
    }

    /// Begins a burst with the first of `packets`: finds the connection, key and numbers of each. Returns the number of
    /// packets taken, at least one if there is one. The next burst may be begun when this one has ended.
    ///
    /// A SYN changes the meaning of packets after it, and is a burst of its own.
    pub fn begin_input(&mut self, burst: &mut VerifyBurst, packets: &[Inbound<'_>], kernel: &mut dyn Kernel) -> usize {
        burst.clear();
        for p in packets.iter().take(BURST) {
            let segment = p.segment();
            let opens = segment.as_ref().is_some_and(|(s, _)| s.flags().syn());
            if opens && !burst.judged.is_empty() {
                break;
            }
            self.judge_input(burst, segment, p.device, kernel);
            if opens {
                break;
            }
        }
        burst.changes = self.changes();
        burst.judged.len()
    }

    fn judge_input(
        &mut self,
        burst: &mut VerifyBurst,
        segment: Option<(Segment<'_>, super::Ends)>,
        device: u32,
        kernel: &mut dyn Kernel,
    ) {
        let Some((segment, ends)) = segment else {
            burst.judged.push(InboundJudgement { track: Track::Pass, step: Step::Done(Verdict::NotTcp) });
            return;
        };
        let track = self.track_in(&segment, ends, device, kernel);
        let step = match &track {
            Track::Pass => Step::Done(Verdict::Pass),
            Track::Drop(reason) => Step::Done(Verdict::Drop(*reason)),
            Track::To(to) => match self.classify(&segment, to) {
                Class::Unsigned | Class::Md5 => Step::Done(Verdict::Pass),
                Class::Drop(refusal) => Step::Refused(refusal),
                Class::Verify(check) => {
                    let at = burst.macs.len() as u8;
                    burst.macs.push(Mac { packet: burst.judged.len() as u8, check, derived: None, done: None });
                    Step::Verify(at)
                }
            },
        };
        burst.judged.push(InboundJudgement { track, step });
    }

    /// Ends a burst whose MACs were computed: counts segments, and applies the changes of authentic ones. Sets the
    /// verdict of each packet, except for those that [`VerifyBurst::finish`] delivers. `packets` are those of
    /// [`Namespace::begin_input`].
    pub fn end_input(
        &mut self,
        burst: &mut VerifyBurst,
        packets: &mut [Inbound<'_>],
        kernel: &mut dyn Kernel,
        now_ms: u64,
    ) {
        if burst.changes != self.changes() {
            self.judge_input_again(burst, packets, kernel);
        }
        let VerifyBurst { judged, macs, strips, .. } = burst;
        for (p, InboundJudgement { track, step }) in packets.iter_mut().zip(judged.iter()) {
            let (mut verdict, mut strip) = (Verdict::Pass, None);
            match (step, p.segment()) {
                (Step::Done(done), _) => verdict = *done,
                (Step::Refused(refusal), _) => {
                    if let Track::To(to) = track {
                        self.refused(to, refusal);
                    }
                    verdict = Verdict::Drop(refusal.reason);
                }
                (Step::Verify(at), Some((segment, _))) => {
                    let mac = &macs[usize::from(*at)];
                    match self.settle_input(&segment, track, mac, now_ms) {
                        Ok(found) => strip = Some(found),
                        Err(reason) => verdict = Verdict::Drop(reason),
                    }
                    if let (Some((wanted, tfm)), Track::To(to)) =
                        (mac.check.traffic.learnt(mac.derived.as_ref()), track)
                    {
                        self.learn(to, wanted, tfm);
                    }
                }
                // The packet had a segment when the burst was begun.
                (Step::Verify(_), None) => verdict = Verdict::NotTcp,
            }
            if let (Track::Drop(reason), Verdict::Drop(_)) = (track, verdict) {
                self.dropped(*reason);
            }
            if let (Verdict::Drop(reason), Some((segment, _))) = (verdict, p.segment()) {
                self.note_drop(&segment, track.target(), reason, now_ms);
            }
            p.verdict = verdict;
            strips.push(strip);
        }
    }

    /// Applies the result for the MAC of one packet.
    fn settle_input(
        &mut self,
        segment: &Segment<'_>,
        track: &Track,
        mac: &Mac,
        now_ms: u64,
    ) -> Result<Strip, DropReason> {
        let Track::To(to) = track else { return Err(DropReason::NoSocket) };
        let Check { option, ticket, .. } = &mac.check;
        // A MAC that was not computed proves nothing.
        let verdict = mac.done.unwrap_or(Err(DropReason::Driver));
        self.settled(segment, to, (option.key_id, option.rnext_key_id), ticket, verdict, now_ms)?;
        let room = segment.flags().syn().then(|| {
            self.note_peer_mss(to.ends(), announced_mss(segment));
            self.option_room(to)
        });
        Ok(Strip { option: *option, room })
    }

    /// Judges a burst by the present state of the namespace. Computed MACs are kept where key and coverage are the
    /// same.
    fn judge_input_again(&mut self, burst: &mut VerifyBurst, packets: &[Inbound<'_>], kernel: &mut dyn Kernel) {
        let before = core::mem::take(&mut burst.macs);
        self.begin_input(burst, packets, kernel);
        for mac in &mut burst.macs {
            if let Some(before) = before.iter().find(|b| b.is_same(mac)) {
                mac.take_over(before);
            }
        }
        // Nobody waits for a key here: the lock is held.
        burst.run(packets, &mut derive_nothing);
    }
}

/// The MSS option of a SYN; 0 without one.
fn announced_mss(segment: &Segment<'_>) -> u16 {
    let mss = Options::new(segment.option_bytes()).map_while(Result::ok).find(|o| o.kind() == kind::MSS);
    mss.and_then(|o| o.bytes.get(2..4)).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}
