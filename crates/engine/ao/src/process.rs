//! Bursts of packets through a namespace: the MACs of a burst are computed in one call of the drivers.
//!
//! Verdict *i* belongs to packet *i*; nothing is reordered, and nothing is allocated for a packet.

use crate::flows::{Kernel, Target, Track};
use crate::namespace::Namespace;
use arrayvec::ArrayVec;
use sealane_net::ao::drop::DropReason;
use sealane_net::ao::input::{Check, Class, Refusal, Ticket};
use sealane_net::ao::mac::{self, BURST, Checksum, Sign, Verify};
use sealane_net::ao::output::{Choice, Signature};
use sealane_net::ao::segment::cut::Cut;
use sealane_net::ao::segment::{self, ChecksumState};
use sealane_net::wire::ip::Layout;
use sealane_net::wire::tcp::{AoOption, Options, Segment, kind};

/// What is to become of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing of ours: it goes on as it is.
    Pass,
    /// It is no TCP segment, or a piece of one.
    NotTcp,
    /// Inbound: it is authentic and goes on from this offset of its buffer, without the option.
    Deliver(usize, Layout),
    /// Outbound: it left as signed packets.
    Sent,
    /// It goes no further.
    Drop(DropReason),
}

/// One inbound packet.
pub struct Inbound<'a> {
    /// From the IP header on. Rewritten in place when it is delivered.
    pub packet: &'a mut [u8],
    /// What its TCP checksum is.
    pub checksum: ChecksumState,
    /// Index of the device that it came in by.
    pub device: u32,
    /// The largest packet that can go back to its sender, in bytes.
    pub mtu: usize,
    /// The answer.
    pub verdict: Verdict,
}

/// One outbound packet, possibly a superframe.
pub struct Outbound<'a> {
    /// From the IP header on.
    pub packet: &'a [u8],
    /// Index of the device that it leaves by.
    pub device: u32,
    /// The largest packet that can leave, in bytes.
    pub mtu: usize,
    /// The answer.
    pub verdict: Verdict,
}

/// A signed packet that is to leave.
pub struct Piece<'a> {
    /// The number of the packet that it comes from.
    pub of: usize,
    /// How many come from that one.
    pub pieces: usize,
    /// From the IP header on.
    pub packet: &'a [u8],
}

/// A packet at which a look was taken.
struct Looked<'a> {
    /// `None` for one that is no TCP segment.
    segment: Option<Segment<'a>>,
    track: Track,
    verdict: Verdict,
}

/// Packets that go together.
type Run<'a> = ArrayVec<Looked<'a>, BURST>;

/// What the look at a packet before its MAC came to.
enum Step {
    Done,
    Refused(Refusal),
    Judged(Ticket, AoOption, Result<(), DropReason>),
}

/// What remains to be done with an inbound packet.
enum Rest {
    Nothing(Verdict),
    /// The option goes; of a SYN, whose connection it is and the MSS that it announced.
    Strip(Layout, AoOption, Option<(Target, u16)>),
}

/// Takes a look at the first packets, given with their devices, and finds out where each belongs. One that takes part in
/// a handshake changes what those after it mean, and is looked at alone.
fn look<'a>(
    packets: impl Iterator<Item = (&'a [u8], u32)>,
    mut track: impl FnMut(&Segment<'a>, u32) -> Track,
) -> Run<'a> {
    let mut run = Run::new();
    for (packet, device) in packets.take(BURST) {
        let segment = Segment::parse(packet).ok();
        let opens = segment.is_some_and(|s| s.flags().syn());
        if opens && !run.is_empty() {
            break;
        }
        let track = segment.as_ref().map_or(Track::Pass, |s| track(s, device));
        let verdict = match (&segment, &track) {
            (None, _) => Verdict::NotTcp,
            (_, Track::Drop(reason)) => Verdict::Drop(*reason),
            _ => Verdict::Pass,
        };
        run.push(Looked { segment, track, verdict });
        if opens {
            break;
        }
    }
    run
}

impl Namespace {
    /// Judges inbound packets, and takes the option off those that are authentic.
    pub fn input(&mut self, packets: &mut [Inbound<'_>], kernel: &mut dyn Kernel, now_ms: u64) {
        let mut rest = packets;
        while !rest.is_empty() {
            let run = self.judge_run(rest, kernel, now_ms);
            let (now, later) = rest.split_at_mut(run.len());
            for (p, done) in now.iter_mut().zip(run) {
                p.verdict = match done {
                    Rest::Nothing(verdict) => verdict,
                    Rest::Strip(at, option, syn) => {
                        let (from, new_at) = segment::strip(p.packet, &at, &option, p.checksum);
                        if let Some((to, mss)) = syn {
                            // What we send to this peer has to leave room for the option.
                            let room = self.option_room(&to);
                            segment::make_room(&mut p.packet[from..], &new_at, p.mtu, room, p.checksum);
                            self.announced(to.ends(), mss);
                        }
                        Verdict::Deliver(from, new_at)
                    }
                };
            }
            rest = later;
        }
    }

    /// Judges the first packets, and acts on the verdicts, up to what is to be done with their bytes.
    fn judge_run(&mut self, packets: &[Inbound<'_>], kernel: &mut dyn Kernel, now_ms: u64) -> ArrayVec<Rest, BURST> {
        let run = look(packets.iter().map(|p| (&*p.packet, p.device)), |segment, device| {
            let track = self.track_in(segment, device, kernel);
            if let Track::Drop(reason) = track {
                self.dropped(reason);
            }
            track
        });
        let steps = self.verify(&run);
        let mut rest: ArrayVec<Rest, BURST> = ArrayVec::new();
        for (looked, step) in run.iter().zip(steps) {
            let (Some(segment), Track::To(to)) = (&looked.segment, &looked.track) else {
                rest.push(Rest::Nothing(looked.verdict));
                continue;
            };
            rest.push(match step {
                Step::Done => Rest::Nothing(looked.verdict),
                Step::Refused(refusal) => {
                    self.refused(to, &refusal);
                    Rest::Nothing(Verdict::Drop(refusal.reason))
                }
                Step::Judged(ticket, option, verdict) => {
                    let ids = (option.key_id, option.rnext_key_id);
                    match self.settled(segment, to, ids, &ticket, verdict, now_ms) {
                        Ok(()) => {
                            let syn = segment.flags().syn().then(|| (*to, announced_mss(segment)));
                            Rest::Strip(*segment.layout(), option, syn)
                        }
                        Err(reason) => Rest::Nothing(Verdict::Drop(reason)),
                    }
                }
            });
        }
        for (looked, rest) in run.iter().zip(&rest) {
            if let (Some(segment), Rest::Nothing(Verdict::Drop(reason))) = (&looked.segment, rest) {
                self.note_drop(segment, looked.track.target(), *reason, now_ms);
            }
        }
        rest
    }

    /// Classifies all segments, and verifies those that have a MAC together.
    fn verify(&self, run: &Run<'_>) -> ArrayVec<Step, BURST> {
        let mut steps: ArrayVec<Step, BURST> = ArrayVec::new();
        let mut checks: ArrayVec<(usize, &Segment<'_>, Check<'_>), BURST> = ArrayVec::new();
        for (i, looked) in run.iter().enumerate() {
            let (Some(segment), Track::To(to)) = (&looked.segment, &looked.track) else {
                steps.push(Step::Done);
                continue;
            };
            steps.push(match self.classify(segment, to) {
                Class::Unsigned | Class::Md5 => Step::Done,
                Class::Drop(refusal) => Step::Refused(refusal),
                Class::Verify(check) => {
                    let step = Step::Judged(check.ticket, check.option, Err(DropReason::Mac));
                    checks.push((i, segment, check));
                    step
                }
            });
        }
        let mut ops: ArrayVec<Verify<'_>, BURST> = checks.iter().map(|(_, s, check)| check.op(s)).collect();
        mac::verify(&mut ops);
        for ((i, ..), op) in checks.iter().zip(&ops) {
            if let Step::Judged(.., verdict) = &mut steps[*i] {
                *verdict = op.status;
            }
        }
        steps
    }

    /// Signs outbound packets. `emit` is handed those that are to leave in their order, as many at a time as are signed
    /// together; `room` is where they are put together, and has to hold the largest packet cut into segments.
    pub fn output(
        &mut self,
        packets: &mut [Outbound<'_>],
        room: &mut [u8],
        kernel: &mut dyn Kernel,
        now_ms: u64,
        mut emit: impl FnMut(&[Piece<'_>]),
    ) {
        let mut done = 0;
        while done < packets.len() {
            let run = look(packets[done..].iter().map(|p| (p.packet, p.device)), |segment, device| {
                self.track_out(segment, device, kernel, now_ms)
            });
            let now = &mut packets[done..done + run.len()];
            self.sign_run(now, &run, room, done, &mut emit);
            for (p, looked) in now.iter().zip(&run) {
                if let (Some(segment), Verdict::Drop(reason)) = (&looked.segment, p.verdict) {
                    self.note_drop(segment, looked.track.target(), reason, now_ms);
                }
            }
            done += run.len();
        }
    }

    fn sign_run(
        &self,
        packets: &mut [Outbound<'_>],
        run: &Run<'_>,
        room: &mut [u8],
        first: usize,
        emit: &mut dyn FnMut(&[Piece<'_>]),
    ) {
        let mut signatures: ArrayVec<(usize, Signature<'_>, Cut<'_>), BURST> = ArrayVec::new();
        for (i, (p, looked)) in packets.iter_mut().zip(run).enumerate() {
            p.verdict = looked.verdict;
            let (Some(segment), Track::To(from)) = (&looked.segment, &looked.track) else { continue };
            match self.choose(segment, from) {
                Choice::Unsigned => {}
                Choice::Drop(reason) => p.verdict = Verdict::Drop(reason),
                Choice::Sign(signature) => {
                    let options_len = segment.option_bytes().len() + signature.option.padded_len();
                    let mut payload = segment::max_payload(segment.layout(), options_len, p.mtu);
                    if let Some(mss) = self.peer_mss(from) {
                        payload = payload.min(usize::from(mss).saturating_sub(options_len));
                    }
                    match Cut::new(segment, &signature.option, payload) {
                        Ok(cut) => {
                            p.verdict = Verdict::Sent;
                            signatures.push((i, signature, cut));
                        }
                        Err(reason) => p.verdict = Verdict::Drop(reason),
                    }
                }
            }
        }
        let mut rest = &signatures[..];
        while let Some((i, _, cut)) = rest.first() {
            let mut used = 0;
            let fitting = rest.iter().take_while(|(_, _, cut)| {
                used += cut.total_len();
                used <= room.len()
            });
            let count = fitting.count();
            if count == 0 {
                debug_assert!(cut.total_len() > room.len(), "one that fits is never refused");
                packets[*i].verdict = Verdict::Drop(DropReason::Overload);
                rest = &rest[1..];
                continue;
            }
            let (now, later) = rest.split_at(count);
            sign_into(now, room, packets, first, emit);
            rest = later;
        }
    }
}

/// Puts the packets together in `room`, signs them in bursts and hands them out.
fn sign_into(
    signatures: &[(usize, Signature<'_>, Cut<'_>)],
    room: &mut [u8],
    packets: &mut [Outbound<'_>],
    first: usize,
    emit: &mut dyn FnMut(&[Piece<'_>]),
) {
    let mut flush = |ops: &mut ArrayVec<Sign<'_>, BURST>, owners: &mut ArrayVec<(usize, usize), BURST>| {
        if ops.is_empty() {
            return;
        }
        mac::sign(ops);
        let mut signed: ArrayVec<Piece<'_>, BURST> = ArrayVec::new();
        for (op, (i, pieces)) in ops.drain(..).zip(owners.drain(..)) {
            match op.status {
                Ok(()) => signed.push(Piece { of: first + i, pieces, packet: op.packet }),
                // A piece without a MAC is a piece that is lost, and sent again.
                Err(reason) => packets[i].verdict = Verdict::Drop(reason),
            }
        }
        emit(&signed);
    };
    let mut ops: ArrayVec<Sign<'_>, BURST> = ArrayVec::new();
    let mut owners: ArrayVec<(usize, usize), BURST> = ArrayVec::new();
    let mut free = room;
    for (i, signature, cut) in signatures {
        let (here, behind) = free.split_at_mut(cut.total_len());
        free = behind;
        if cut.write(here).is_err() {
            continue;
        }
        for (packet, at, seq) in cut.packets(here) {
            if ops.is_full() {
                flush(&mut ops, &mut owners);
            }
            let cover = signature.coverage(seq);
            ops.push(Sign { tfm: signature.tfm.mac(), packet, at, cover, checksum: Checksum::Full, status: Ok(()) });
            owners.push((*i, cut.count()));
        }
    }
    flush(&mut ops, &mut owners);
}

/// The MSS option of a SYN; 0 without one.
fn announced_mss(segment: &Segment<'_>) -> u16 {
    let mss = Options::new(segment.option_bytes()).map_while(Result::ok).find(|o| o.kind() == kind::MSS);
    mss.and_then(|o| o.bytes.get(2..4)).map_or(0, |b| u16::from_be_bytes([b[0], b[1]]))
}
