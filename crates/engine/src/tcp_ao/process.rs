//! Bursts of packets through a namespace: the MACs of a burst are computed in one call of the drivers.
//!
//! Verdict *i* belongs to packet *i*; nothing is reordered, and nothing is allocated for a packet.

use super::Namespace;
use super::flows::{Kernel, Target, Track};
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

/// What the look at a packet before its MAC came to.
enum Step {
    Done,
    Refused(Target, Refusal),
    Judged(Target, Ticket, AoOption, Result<(), DropReason>),
}

/// Whether a packet takes part in a handshake, which changes what the packets after it mean.
fn opens(packet: &[u8]) -> bool {
    Segment::parse(packet).is_ok_and(|s| s.flags().syn())
}

/// Length of the next run that may go together.
fn run_len<'a>(mut packets: impl Iterator<Item = &'a [u8]>) -> usize {
    match packets.next() {
        Some(first) if !opens(first) => 1 + packets.take(BURST - 1).take_while(|p| !opens(p)).count(),
        _ => 1,
    }
}

impl Namespace {
    /// Judges inbound packets, and takes the option off those that are authentic.
    pub fn input(&mut self, packets: &mut [Inbound<'_>], kernel: &mut dyn Kernel, now_ms: u64) {
        let mut rest = packets;
        while !rest.is_empty() {
            let run = run_len(rest.iter().map(|p| &*p.packet));
            let (now, later) = rest.split_at_mut(run);
            self.input_run(now, kernel, now_ms);
            rest = later;
        }
    }

    fn input_run(&mut self, packets: &mut [Inbound<'_>], kernel: &mut dyn Kernel, now_ms: u64) {
        let mut tracks: ArrayVec<Track, BURST> = ArrayVec::new();
        for p in packets.iter_mut() {
            let track = match Segment::parse(p.packet) {
                Ok(segment) => self.track_in(&segment, p.device, kernel),
                Err(_) => Track::Pass,
            };
            p.verdict = match track {
                Track::Drop(reason) => {
                    self.dropped(reason);
                    Verdict::Drop(reason)
                }
                _ if Segment::parse(p.packet).is_err() => Verdict::NotTcp,
                _ => Verdict::Pass,
            };
            tracks.push(track);
        }
        let steps = self.judge(packets, &tracks);
        for (p, step) in packets.iter_mut().zip(steps) {
            match step {
                Step::Done => {}
                Step::Refused(to, refusal) => {
                    self.refused(&to, &refusal);
                    p.verdict = Verdict::Drop(refusal.reason);
                }
                Step::Judged(to, ticket, option, verdict) => {
                    p.verdict = match self.admit(p, &to, &ticket, &option, verdict, now_ms) {
                        Ok((from, at)) => Verdict::Deliver(from, at),
                        Err(reason) => Verdict::Drop(reason),
                    };
                }
            }
        }
        for (p, track) in packets.iter().zip(&tracks) {
            if let Verdict::Drop(reason) = p.verdict {
                self.note_drop(p.packet, track.target(), reason, now_ms);
            }
        }
    }

    /// Looks at all segments, and verifies those that have a MAC together.
    fn judge(&self, packets: &[Inbound<'_>], tracks: &[Track]) -> ArrayVec<Step, BURST> {
        let mut steps: ArrayVec<Step, BURST> = ArrayVec::new();
        let mut checks: ArrayVec<(usize, Segment<'_>, Check<'_>), BURST> = ArrayVec::new();
        for (i, (p, track)) in packets.iter().zip(tracks).enumerate() {
            let (Ok(segment), Track::To(to)) = (Segment::parse(p.packet), track) else {
                steps.push(Step::Done);
                continue;
            };
            steps.push(match self.classify(&segment, to) {
                Class::Unsigned | Class::Md5 => Step::Done,
                Class::Drop(refusal) => Step::Refused(*to, refusal),
                Class::Verify(check) => {
                    let step = Step::Judged(*to, check.ticket, check.option, Err(DropReason::Mac));
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

    /// Acts on the verdict about one segment and makes it what the kernel is to see.
    fn admit(
        &mut self,
        p: &mut Inbound<'_>,
        to: &Target,
        ticket: &Ticket,
        option: &AoOption,
        verdict: Result<(), DropReason>,
        now_ms: u64,
    ) -> Result<(usize, Layout), DropReason> {
        let segment = Segment::parse(p.packet).map_err(|_| DropReason::BadHeader)?;
        let (at, syn, mss) = (*segment.layout(), segment.flags().syn(), announced_mss(&segment));
        self.settled(&segment, to, (option.key_id, option.rnext_key_id), ticket, verdict, now_ms)?;
        let (from, new_at) = segment::strip(p.packet, &at, option, p.checksum);
        if syn {
            // What we send to this peer has to leave room for the option.
            let room = self.option_room(to);
            segment::lower_mss(&mut p.packet[from..], &new_at, p.mtu, room, p.checksum);
            self.announced(to.ends(), mss);
        }
        Ok((from, new_at))
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
            let run = run_len(packets[done..].iter().map(|p| p.packet));
            let now = &mut packets[done..done + run];
            let mut tracks: ArrayVec<Track, BURST> = ArrayVec::new();
            for p in now.iter_mut() {
                let track = match Segment::parse(p.packet) {
                    Ok(segment) => self.track_out(&segment, p.device, kernel, now_ms),
                    Err(_) => Track::Pass,
                };
                p.verdict = match track {
                    Track::Drop(reason) => Verdict::Drop(reason),
                    _ if Segment::parse(p.packet).is_err() => Verdict::NotTcp,
                    _ => Verdict::Pass,
                };
                tracks.push(track);
            }
            self.sign_run(now, &tracks, room, done, &mut emit);
            for (p, track) in now.iter().zip(&tracks) {
                if let Verdict::Drop(reason) = p.verdict {
                    self.note_drop(p.packet, track.target(), reason, now_ms);
                }
            }
            done += run;
        }
    }

    fn sign_run(
        &self,
        packets: &mut [Outbound<'_>],
        tracks: &[Track],
        room: &mut [u8],
        first: usize,
        emit: &mut dyn FnMut(&[Piece<'_>]),
    ) {
        let mut signatures: ArrayVec<(usize, Signature<'_>, Cut<'_>), BURST> = ArrayVec::new();
        for (i, (p, track)) in packets.iter_mut().zip(tracks).enumerate() {
            let (Ok(segment), Track::To(from)) = (Segment::parse(p.packet), track) else { continue };
            match self.choose(&segment, from) {
                Choice::Unsigned => {}
                Choice::Drop(reason) => p.verdict = Verdict::Drop(reason),
                Choice::Sign(signature) => {
                    let options_len = segment.option_bytes().len() + signature.option.padded_len();
                    let mut payload = segment::max_payload(segment.layout(), options_len, p.mtu);
                    if let Some(mss) = self.peer_mss(from) {
                        payload = payload.min(usize::from(mss).saturating_sub(options_len));
                    }
                    match Cut::new(&segment, &signature.option, payload) {
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
