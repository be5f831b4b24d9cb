//! Connection tracking for the data path: the socket and state that a segment belongs to.
//!
//! Connections are learnt from the segments that pass, because `accept()` and the handshake happen without a call that
//! could be intercepted. The [`Kernel`] is asked for what a segment does not tell.
//!
//! ```text
//! track_in  ─▶ Target ─▶ classify ─▶ (burst of MACs) ─▶ settled │ refused
//! track_out ─▶ Target ─▶ choose   ─▶ (burst of MACs)
//! ```
//!
//! Only authentic segments create state: a half-open connection is remembered after its SYN has been verified, and
//! there are at most [`MAX_HALF_OPEN`] of them. Authentic segments can be replayed; [`Namespace::sweep`] removes
//! connections that the kernel does not have.

mod decide;
mod table;

use crate::connect::Accepted;
use crate::facts::{SocketFacts, SocketId};
use crate::namespace::Namespace;
use core::net::SocketAddr;
use decide::{Answer, Change, Handshake, Kind, Known, Verdict, Way};
use sealane_abi::admin;
use sealane_abi::tcp::State as KernelState;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::endpoint::{Endpoint, EndpointState, Request};
use sealane_net_ao::info::{Child, Conn};
use sealane_net_ao::input::{self, Class, IcmpError, Refusal, Ticket};
use sealane_net_ao::output::{self, Choice};
use sealane_net_ao::table::Ids;
use sealane_net_ao::traffic::Wanted;
use sealane_wire::tcp::Segment;
use std::collections::HashSet;
use std::sync::Arc;
pub use table::{Ends, MAX_HALF_OPEN};
use table::{Flow, Stage};
pub(super) use table::{Flows, MADE_UP};

/// Lifetime of a half-open connection: longer than the kernel retries its SYN-ACK with default settings.
const HALF_OPEN_MS: u64 = 128_000;

/// Lifetime of a connection whose socket is gone: longer than TIME_WAIT, which takes 60 s.
const GONE_MS: u64 = 75_000;

/// The delay after a handshake until the kernel is asked whether it has a socket for it, and between further questions.
const LOOK_MS: u64 = 10_000;

/// The most questions of one [`Namespace::sweep`]: a fraction of a millisecond.
const MAX_LOOKS: usize = 32;

/// The most connections that the kernel has not been asked about. Above that, answers to SYN cookies are dropped.
const MAX_UNSEEN: usize = 16_384;

/// The socket to which the kernel would hand a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its cookie; the listener's for a segment that opens a connection.
    pub id: SocketId,
    /// Its state.
    pub state: KernelState,
    /// The VRF that the segment came through or goes out by, 0 for none.
    pub vrf: i32,
}

/// The kernel's own tables of sockets. A burst may be begun with `None` for answers that are not known yet, and begun again when
/// they are: tracking changes nothing for a segment whose socket is not found.
pub trait Kernel {
    /// The socket for a segment between these ends that passes `device`: a connection, else a listener, else `None`.
    fn find(&mut self, local: SocketAddr, remote: SocketAddr, device: u32) -> Option<Found>;

    /// Whether the last answer of [`Self::find`] was no answer: the kernel could not be asked, because it had no memory for that.
    /// The segment is dropped then, as if a queue had been full.
    fn is_unanswered(&self) -> bool {
        false
    }

    /// The number of the configured peer to which a connection without keys of its program belongs.
    fn configured(&mut self, _: &Ends) -> Option<u32> {
        None
    }

    /// Whether there is a socket for a connection whose segments pass `device`; `None` if it is half open or the answer
    /// is not known.
    fn has(&mut self, _: &Ends, _device: u32) -> Option<bool> {
        None
    }
}

/// The connection or listener that a segment belongs to.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    id: SocketId,
    ends: Ends,
    state: EndpointState,
    request: Option<Request>,
    vrf: i32,
    device: u32,
    /// The MSS that the peer announced; 0 when its SYN was not seen.
    peer_mss: u16,
    accurate_ecn: bool,
}

/// The result of tracking a segment.
#[derive(Debug, Clone, Copy)]
pub enum Track {
    /// TCP-AO is not concerned.
    Pass,
    /// It is dropped.
    Drop(DropReason),
    /// It belongs to this target.
    To(Target),
}

impl Track {
    pub(super) fn target(&self) -> Option<&Target> {
        match self {
            Track::To(target) => Some(target),
            _ => None,
        }
    }
}

/// The kernel's answer about a segment between these ends, as decisions need it. The peer is looked up where they are `by_peer`: others
/// may send segments of other kinds as fast as they like.
fn answer(found: Option<Found>, ends: Ends, by_peer: bool, kernel: &mut dyn Kernel) -> Answer {
    match found {
        Some(found) => Answer::socket(found.state),
        None => {
            let is_answered = !kernel.is_unanswered();
            Answer::Nothing { is_answered, is_configured: by_peer && is_answered && kernel.configured(&ends).is_some() }
        }
    }
}

impl Namespace {
    fn endpoint<'a>(&'a self, to: &'a Target) -> Endpoint<'a> {
        let socket = self.sockets.get(&to.id);
        Endpoint {
            info: socket.and_then(|s| s.info.as_ref()),
            state: to.state,
            request: to.request.as_ref(),
            ifindex: to.vrf,
            md5: socket.is_some_and(|s| s.md5.lookup(to.ends.remote.ip(), Some(to.vrf)).is_some()),
        }
    }

    fn target(&self, ends: Ends, flow: &Flow) -> Target {
        let (state, request) = match flow.stage {
            Stage::SynSent => (EndpointState::SynSent, None),
            Stage::SynReceived => (EndpointState::SynReceived, None),
            Stage::Half(request) => (EndpointState::Listen, Some(request)),
            Stage::Open => (EndpointState::Established, None),
            Stage::Gone => (EndpointState::TimeWait, None),
        };
        let Flow { id, vrf, device, peer_mss, accurate_ecn, .. } = *flow;
        Target { id, ends, state, request, vrf, device, peer_mss, accurate_ecn }
    }

    /// Finds the target of an inbound segment.
    pub(super) fn track_in(
        &mut self,
        segment: &Segment<'_>,
        ends: Ends,
        device: u32,
        kernel: &mut dyn Kernel,
    ) -> Track {
        let kind = Kind::of(segment);
        let known = self.known(segment, ends, kind, device, kernel);
        match decide::way(known, kind) {
            Way::Connection => return self.tracked(ends),
            Way::Listener => {
                return match self.tracked(ends) {
                    Track::To(target) => Track::To(Target { request: None, ..target }),
                    other => other,
                };
            }
            Way::Ask => {}
        }
        let mut found = kernel.find(ends.local, ends.remote, device);
        let mut verdict = decide::inbound(known, kind, answer(found, ends, kind.is_unsigned(), kernel));
        if verdict == Verdict::AskListener {
            let nobody = SocketAddr::new(ends.remote.ip(), 0);
            found = kernel.find(ends.local, nobody, device).filter(|found| found.state == KernelState::Listen);
            verdict = decide::inbound(known, kind, answer(found, ends, kind.is_unsigned(), kernel));
        }
        self.follow(verdict, ends, found, device, kernel)
    }

    /// The knowledge about the connection of an inbound segment. The kernel is asked about a half-open one that the segment is
    /// not of.
    fn known(&self, segment: &Segment<'_>, ends: Ends, kind: Kind, device: u32, kernel: &mut dyn Kernel) -> Known {
        match self.flows.get(&ends).map(|flow| flow.stage) {
            None => Known::Nothing,
            Some(Stage::SynSent | Stage::SynReceived) => Known::Connecting,
            Some(Stage::Half(request)) => {
                let isn = if kind.first_syn { segment.seq() } else { segment.seq().wrapping_sub(1) };
                let is_syn_ack = segment.flags().syn() && !kind.first_syn;
                if is_syn_ack || request.rcv_isn == isn {
                    return Known::Half(Handshake::Its);
                }
                Known::Half(Handshake::Other { has_socket: kernel.has(&ends, device) })
            }
            Some(Stage::Open) => Known::Open,
            Some(Stage::Gone) => Known::Gone,
        }
    }

    /// The result of tracking a segment for which the kernel was asked.
    fn follow(
        &mut self,
        verdict: Verdict,
        ends: Ends,
        found: Option<Found>,
        device: u32,
        kernel: &mut dyn Kernel,
    ) -> Track {
        match (verdict, found) {
            (Verdict::Connection, _) => self.tracked(ends),
            (Verdict::Join, Some(found)) => self.join(ends, &found, device, kernel),
            (Verdict::Drop(reason), _) => Track::Drop(reason),
            (Verdict::Pass, _) => Track::Pass,
            // A listener is asked for once, and there is nothing to join without a socket.
            (Verdict::Join | Verdict::AskListener, _) => Track::Drop(DropReason::NoSocket),
        }
    }

    /// Finds the target of an outbound segment, and learns from it.
    pub(super) fn track_out(
        &mut self,
        segment: &Segment<'_>,
        ends: Ends,
        device: u32,
        kernel: &mut dyn Kernel,
        now_ms: u64,
    ) -> Track {
        let flags = segment.flags();
        if flags.syn() && !flags.ack() {
            return self.track_syn(ends, segment, device, kernel);
        }
        if let Some(flow) = self.flows.get(&ends) {
            let (id, stage) = (flow.id, flow.stage);
            match stage {
                Stage::Half(request) if flags.syn() => self.flows.change(&ends, |flow| {
                    flow.stage = Stage::Half(Request { snt_isn: segment.seq(), ..request });
                    flow.due_ms = now_ms + HALF_OPEN_MS;
                }),
                Stage::Open | Stage::Gone => {
                    if segment.accurate_ecn() && !flow.accurate_ecn {
                        self.flows.change(&ends, |flow| flow.accurate_ecn = true);
                    }
                    if let Some(info) = self.sockets.data_mut(id).and_then(|s| s.info.as_mut()) {
                        output::sent(info, segment);
                    }
                    // What is answered in TIME_WAIT begins it anew, and the peer may close a minute after the program.
                    if stage == Stage::Gone {
                        self.flows.change(&ends, |flow| flow.due_ms = now_ms + GONE_MS);
                    }
                }
                _ => {}
            }
            return match self.info(id) {
                // Its keys have been removed before it ended: nothing leaves unsigned.
                None => Track::Drop(DropReason::NoSendKey),
                Some(_) => self.tracked(ends),
            };
        }
        let found = kernel.find(ends.local, ends.remote, device);
        let verdict = decide::outbound(flags.rst(), answer(found, ends, flags.rst(), kernel));
        let track = self.follow(verdict, ends, found, device, kernel);
        match track {
            // An unknown handshake with a peer that has keys: its SYN was not verified.
            Track::To(to) if to.state == EndpointState::Listen => match self.info(to.id) {
                Some(info) if info.ao_required || info.keys().lookup(ends.remote.ip(), Ids::any(to.vrf)).is_some() => {
                    Track::Drop(DropReason::NoSendKey)
                }
                _ => Track::Pass,
            },
            other => other,
        }
    }

    /// Tracks our SYN, with which a connection begins.
    fn track_syn(&mut self, ends: Ends, segment: &Segment<'_>, device: u32, kernel: &mut dyn Kernel) -> Track {
        let known = self.flows.get(&ends).filter(|f| f.stage == Stage::SynSent).map(|f| (f.id, f.vrf));
        let same = |id: &SocketId| self.info(*id).and_then(|i| i.conn()).is_some_and(|c| c.lisn == segment.seq());
        let (id, vrf) = match known.filter(|(id, _)| same(id)) {
            Some(known) => known,
            None => match kernel.find(ends.local, ends.remote, device) {
                Some(found) => (found.id, found.vrf),
                // Its socket was closed while it waited for us. Nobody knows any more whether that had keys.
                None => return Track::Drop(DropReason::NoSendKey),
            },
        };
        if self.info(id).is_none()
            && let Some(peer) = kernel.configured(&ends)
        {
            self.adopt_configured(id, peer, ends.remote.ip());
        }
        if self.info(id).is_none() {
            self.flows.remove(&ends);
            return Track::Pass;
        }
        self.infer_from_syn(id, vrf, ends.local, ends.remote, segment.seq());
        self.syn_sent(id, ends.local, ends.remote, segment.seq());
        if self.info(id).is_none() {
            // The keys were for other peers, so the connection is unsigned.
            return Track::Pass;
        }
        // A socket that connects to itself receives what it sends; the inbound side changes its state.
        let stage = match self.flows.get(&ends) {
            Some(flow) if flow.stage == Stage::SynReceived => Stage::SynReceived,
            _ => Stage::SynSent,
        };
        self.put(ends, Flow { stage, device, ..Flow::open(id, vrf) });
        self.tracked(ends)
    }

    /// The target of a known connection.
    fn tracked(&self, ends: Ends) -> Track {
        self.flows.get(&ends).map_or(Track::Pass, |flow| Track::To(self.target(ends, flow)))
    }

    /// The target for a socket that the kernel found and that was not learnt from segments: a listener, or a connection
    /// whose keys and numbers were set by TCP_AO_REPAIR.
    fn join(&mut self, ends: Ends, found: &Found, device: u32, kernel: &mut dyn Kernel) -> Track {
        let configured = match self.info(found.id) {
            None => kernel.configured(&ends).and_then(|peer| self.template(peer)),
            Some(_) => None,
        };
        let id = configured.unwrap_or(found.id);
        if configured.is_none() && self.may_be_elsewhere(ends, found) {
            return Track::Drop(DropReason::NoSendKey);
        }
        let unknown = Target {
            id,
            ends,
            state: EndpointState::Listen,
            request: None,
            vrf: found.vrf,
            device,
            peer_mss: 0,
            accurate_ecn: false,
        };
        let Some(socket) = self.sockets.data_mut(id) else {
            let state =
                if found.state == KernelState::Listen { EndpointState::Listen } else { EndpointState::Established };
            return Track::To(Target { state, ..unknown });
        };
        socket.listening |= found.state == KernelState::Listen;
        let state = decide::endpoint(found.state);
        let keyed = socket.info.as_ref().is_some_and(|i| i.is_keyed());
        if state == EndpointState::Established && keyed {
            self.put(ends, Flow { device, ..Flow::open(id, found.vrf) });
        }
        Track::To(Target { state, ..unknown })
    }

    /// Whether a socket in a VRF that nobody knows may be one that is known without a VRF, and without its cookie: the segments of a
    /// socket that is bound to no device may come to pass another one. It would be taken for one without keys.
    fn may_be_elsewhere(&self, ends: Ends, found: &Found) -> bool {
        let is_nameless = |flow: &Flow| flow.id.0 & MADE_UP != 0 && !matches!(flow.stage, Stage::Half(_));
        ends.vrf != 0
            && decide::is_synchronized(found.state)
            && self.info(found.id).is_none()
            && self.flows.get(&ends.in_vrf(0)).is_some_and(is_nameless)
    }

    /// Adds a connection in place of an earlier one between the same ends. The keys of that one are removed where no
    /// notification about its socket will follow.
    fn put(&mut self, ends: Ends, flow: Flow) {
        if let Some(before) = self.flows.insert(ends, flow)
            && before.id != flow.id
            && (before.stage == Stage::Gone || before.id.0 & MADE_UP != 0 && !matches!(before.stage, Stage::Half(_)))
        {
            self.sockets.remove(before.id);
        }
    }

    /// Classifies an inbound segment.
    #[must_use]
    pub(super) fn classify(&self, segment: &Segment<'_>, to: &Target) -> Class {
        input::classify(segment, &self.endpoint(to))
    }

    /// Chooses the key for an outbound segment.
    #[must_use]
    pub(super) fn choose(&self, segment: &Segment<'_>, from: &Target) -> Choice {
        output::choose(segment, &self.endpoint(from))
    }

    /// Gives a connection a traffic key that was derived for a segment of it. A listener has no use for it, and the connection that has
    /// just been accepted there may.
    pub(super) fn learn(&mut self, of: &Target, wanted: &Wanted, tfm: &Arc<MacTfm>) {
        let now = self.flows.get(&of.ends).map(|flow| flow.id);
        for id in [Some(of.id), now.filter(|id| *id != of.id)].into_iter().flatten() {
            if let Some(info) = self.sockets.data_mut(id).and_then(|socket| socket.info.as_mut()) {
                info.learn(wanted, tfm);
            }
            self.prefer(id);
        }
    }

    /// Counts a segment that is dropped without verifying its MAC.
    pub(super) fn refused(&mut self, to: &Target, refusal: &Refusal) {
        let info = self.sockets.data_mut(to.id).and_then(|s| s.info.as_mut());
        input::refuse(refusal, info, &mut self.netstat);
    }

    /// Counts a segment that is dropped because there is no socket.
    pub(super) fn dropped(&mut self, reason: DropReason) {
        self.netstat.dropped(reason);
    }

    /// Applies the result of verifying an inbound segment's MAC.
    ///
    /// # Errors
    /// The reason for dropping the segment.
    pub(super) fn settled(
        &mut self,
        segment: &Segment<'_>,
        to: &Target,
        ids: (u8, u8),
        ticket: &Ticket,
        verdict: Result<(), DropReason>,
        now_ms: u64,
    ) -> Result<(), DropReason> {
        let Some(info) = self.sockets.data_mut(to.id).and_then(|s| s.info.as_mut()) else {
            return Err(DropReason::NoSocket);
        };
        input::settle(info, ticket, verdict, &mut self.netstat)?;
        let (seq, ack) = (segment.seq(), segment.ack_seq());
        let stage = match decide::change(to.state, to.request.is_some(), segment.flags()) {
            Change::Nothing => return Ok(()),
            Change::HalfOpen => {
                self.half_open(to, segment, ids, now_ms);
                return Ok(());
            }
            Change::OpenByCookie => {
                // The kernel is asked later.
                if self.flows.unseen() >= MAX_UNSEEN {
                    return Err(DropReason::Overload);
                }
                return self.open_child(to, seq.wrapping_sub(1), ack.wrapping_sub(1), ids, now_ms);
            }
            Change::OpenHalf => {
                let Some(r) = to.request else { return Ok(()) };
                return self.open_child(to, r.rcv_isn, r.snt_isn, (r.key_id, r.rnext_key_id), now_ms);
            }
            Change::Forget => {
                self.flows.remove(&to.ends);
                return Ok(());
            }
            Change::Cross => Stage::SynReceived,
            Change::Open => Stage::Open,
        };
        match self.flows.get(&to.ends) {
            Some(_) => self.flows.change(&to.ends, |flow| flow.stage = stage),
            // An earlier process signed its SYN. What follows is signed even if the socket is closed now.
            None => self.put(to.ends, Flow { stage, device: to.device, ..Flow::open(to.id, to.vrf) }),
        }
        let configured = self.sockets.get(&to.id).is_some_and(|s| s.configured.is_some());
        self.dirty |= configured && stage == Stage::Open;
        self.sockets.touch(to.id);
        Ok(())
    }

    fn half_open(&mut self, to: &Target, segment: &Segment<'_>, (key_id, rnext_key_id): (u8, u8), now_ms: u64) {
        let request = Request { used_ao: true, rcv_isn: segment.seq(), snt_isn: 0, key_id, rnext_key_id };
        let due_ms = now_ms + HALF_OPEN_MS;
        let flow = Flow { stage: Stage::Half(request), device: to.device, due_ms, ..Flow::open(to.id, to.vrf) };
        self.put(to.ends, flow);
    }

    /// Completes the handshake of a listener: the connection gets the listener's keys for its peer.
    fn open_child(
        &mut self,
        to: &Target,
        risn: u32,
        lisn: u32,
        (key_id, rnext_key_id): (u8, u8),
        now_ms: u64,
    ) -> Result<(), DropReason> {
        let child = self.flows.make_up_id();
        let conn = Conn::new(to.ends.local, to.ends.remote, lisn, risn);
        let handshake = Child { conn, ifindex: to.vrf, key_id, rnext_key_id };
        self.accepted(&Accepted { listener: to.id, child, handshake }).map_err(|_| DropReason::NoSendKey)?;
        let peer_mss = self.mss_of(&to.ends);
        let configured = self.sockets.get(&to.id).and_then(|s| s.configured.clone());
        self.dirty |= configured.is_some();
        self.sockets.set_configured(child, configured);
        let flow = Flow { device: to.device, due_ms: now_ms + LOOK_MS, peer_mss, ..Flow::open(child, to.vrf) };
        self.put(to.ends, flow);
        Ok(())
    }

    /// Assigns the kernel's cookie to the state of a connection that a listener accepted, and infers the result of a
    /// connect() whose answer was not reported. To be called before each call on a socket.
    pub fn adopt(&mut self, id: SocketId, facts: &SocketFacts<'_>) {
        self.infer_connect(id, facts);
        let (Some(local), Some(peer)) = (facts.local, facts.peer) else { return };
        if self.sockets.get(&id).is_some_and(|s| s.info.is_some()) {
            return;
        }
        let ends = Ends::new(local, peer).in_vrf(facts.vrf());
        let Some(flow) = self.flows.get(&ends) else { return };
        if flow.id.0 & MADE_UP == 0 || matches!(flow.stage, Stage::Half(_)) {
            return;
        }
        if let Some(socket) = self.sockets.remove(flow.id) {
            self.flows.change(&ends, |flow| flow.id = id);
            self.sockets.insert(id, socket);
        }
    }

    /// Lets a socket in repair mode take a connection over: its keys serve the connection between its ends from now on.
    pub(super) fn repaired(&mut self, id: SocketId, facts: &SocketFacts<'_>) {
        let (Some(local), Some(peer)) = (facts.local, facts.peer) else { return };
        if !self.info(id).is_some_and(|info| info.is_keyed()) {
            return;
        }
        let ends = Ends::new(local, peer).in_vrf(facts.vrf());
        let device = u32::try_from(facts.bound_ifindex).unwrap_or(0);
        self.put(ends, Flow { device, ..Flow::open(id, facts.vrf()) });
    }

    /// Handles the end of a kernel's socket. Its connection, if it has one, is kept for as long as TIME_WAIT may last.
    pub fn destroyed(&mut self, id: SocketId, ends: Option<Ends>, now_ms: u64) {
        let ends = self.flows.ends_of(id).or(ends);
        if let Some(ends) = ends
            && let Some(flow) = self.flows.get(&ends)
            && !matches!(flow.stage, Stage::Half(_))
            && (flow.id == id || flow.id.0 & MADE_UP != 0)
        {
            self.flows.change(&ends, |flow| (flow.stage, flow.due_ms) = (Stage::Gone, now_ms + GONE_MS));
            return;
        }
        self.closed(id);
    }

    /// Asks the kernel for the sockets of some connections whose handshake was completed a while ago. A replayed
    /// segment opens none, nor does one for which the listener had no room. To be called about once a second, and again
    /// as long as it returns that there may be more.
    pub fn sweep(&mut self, kernel: &mut dyn Kernel, now_ms: u64) -> bool {
        for _ in 0..MAX_LOOKS {
            let Some((ends, flow)) = self.flows.first_unseen(now_ms) else { return false };
            let id = flow.id;
            match kernel.has(&ends, flow.device) {
                Some(true) => self.flows.change(&ends, |flow| flow.due_ms = 0),
                Some(false) => self.destroyed(id, Some(ends), now_ms),
                None => self.flows.change(&ends, |flow| flow.due_ms = now_ms + LOOK_MS),
            }
        }
        true
    }

    /// Handles the loss of notifications about closed sockets, and changes of VRFs: the kernel will be asked about all connections
    /// whose device or VRF is known.
    pub fn recheck_all(&mut self, now_ms: u64) {
        let doubted = |(ends, f): &(&Ends, &Flow)| {
            (f.device != 0 || ends.vrf != 0) && !matches!(f.stage, Stage::Half(_) | Stage::Gone)
        };
        let ends: Vec<Ends> = self.flows.iter().filter(doubted).map(|(ends, _)| *ends).collect();
        for ends in ends {
            self.flows.change(&ends, |flow| flow.due_ms = now_ms.max(1));
        }
    }

    /// Has connections go on in the VRFs that the devices of their sockets have come into. `bound` are the kernel's connections whose
    /// sockets are bound to a device: their cookies, devices and present ends. `alive` are the present ends of all that it has. One
    /// that is lost here but not there would be taken for another connection, without keys.
    pub fn moved(&mut self, bound: &[(SocketId, i32, Ends)], alive: &HashSet<Ends>) {
        let is_lost = |(ends, flow): &(&Ends, &Flow)| !alive.contains(*ends) && !matches!(flow.stage, Stage::Half(_));
        let lost: Vec<(Ends, SocketId)> =
            self.flows.iter().filter(is_lost).map(|(ends, flow)| (*ends, flow.id)).collect();
        for (before, id) in lost {
            // A socket that is bound to a VRF stays with it.
            let now = bound.iter().find(|(other, device, ends)| {
                ends.in_vrf(before.vrf) == before
                    && *device != before.vrf
                    && (*other == id || id.0 & MADE_UP != 0)
                    && !self.tracks(ends)
            });
            let Some((_, _, now)) = now else { continue };
            let Some(flow) = self.flows.remove(&before) else { continue };
            let stage = if flow.stage == Stage::Gone { Stage::Open } else { flow.stage };
            // It has its keys by the VRF in which it began: in another one they would not demand that segments are signed.
            self.flows.insert(*now, Flow { stage, due_ms: 0, ..flow });
            self.dirty = true;
            self.sockets.touch(id);
        }
    }

    /// Whether a connection is known.
    #[must_use]
    pub fn tracks(&self, ends: &Ends) -> bool {
        self.flows.get(ends).is_some()
    }

    /// Handles the end of a kernel's socket whose connection another socket has. Only the state of the first one is
    /// removed.
    pub fn closed_copy(&mut self, id: SocketId) {
        if self.flows.ends_of(id).is_none() {
            self.closed(id);
        }
    }

    /// Forgets expired connections.
    pub fn expire(&mut self, now_ms: u64) {
        while let Some(flow) = self.flows.take_due(now_ms) {
            if flow.stage == Stage::Gone {
                self.closed(flow.id);
            }
        }
    }

    /// The connection of a socket and its state.
    pub(super) fn flow_of(&self, id: SocketId) -> Option<(Ends, admin::SocketState)> {
        let ends = self.flows.ends_of(id)?;
        let state = match self.flows.get(&ends)?.stage {
            Stage::SynSent | Stage::SynReceived | Stage::Half(_) => admin::SocketState::Handshake,
            Stage::Open => admin::SocketState::Established,
            Stage::Gone => admin::SocketState::TimeWait,
        };
        Some((ends, state))
    }

    /// All connections, and whether their sockets still exist.
    pub fn connections(&self) -> impl Iterator<Item = (Ends, bool)> {
        self.flows.iter().map(|(ends, flow)| (*ends, flow.stage != Stage::Gone))
    }

    /// The connections whose handshake is complete.
    pub fn open_connections(&self) -> impl Iterator<Item = Ends> {
        self.flows.iter().filter(|(_, flow)| flow.stage == Stage::Open).map(|(ends, _)| *ends)
    }

    /// Whether the handshake of a connection is complete.
    #[must_use]
    pub fn is_open(&self, ends: &Ends) -> bool {
        self.flows.get(ends).is_some_and(|flow| flow.stage == Stage::Open)
    }

    /// Whether an ICMP error about a connection is to be ignored; counts it if so.
    pub fn ignore_icmp(&mut self, ends: Ends, error: IcmpError) -> bool {
        let Some(flow) = self.flows.get(&ends) else { return false };
        let state = self.target(ends, flow).state;
        let id = flow.id;
        let Some(info) = self.sockets.data_mut(id).and_then(|s| s.info.as_mut()) else { return false };
        input::ignore_icmp(info, state, error, &mut self.netstat)
    }

    /// The connections of configured peers.
    pub(super) fn configured_flows(&self) -> Vec<(SocketId, Ends)> {
        let open = self.flows.iter().filter(|(_, f)| matches!(f.stage, Stage::Open | Stage::Gone));
        let configured = |id: &SocketId| self.sockets.get(id).is_some_and(|s| s.configured.is_some());
        open.filter(|(_, f)| configured(&f.id)).map(|(ends, f)| (f.id, *ends)).collect()
    }

    pub(super) fn mss_of(&self, ends: &Ends) -> u16 {
        self.flows.get(ends).map_or(0, |f| f.peer_mss)
    }

    /// The cookie of a restored connection: its own, or a made-up one.
    pub(super) fn restored_id(&mut self, cookie: u64) -> SocketId {
        if cookie != 0 {
            return SocketId(cookie);
        }
        self.flows.make_up_id()
    }

    /// Adds a restored connection.
    pub(super) fn reopen(&mut self, id: SocketId, ends: Ends, peer_mss: u16) {
        self.put(ends, Flow { peer_mss, ..Flow::open(id, ends.vrf) });
    }

    /// Adds a restored connection whose SYN was sent, and is not answered yet.
    pub(super) fn reopen_handshake(&mut self, id: SocketId, ends: Ends) {
        self.put(ends, Flow { stage: Stage::SynSent, ..Flow::open(id, ends.vrf) });
    }

    /// Notes the MSS that a peer announced in its SYN or SYN-ACK.
    pub(super) fn note_peer_mss(&mut self, ends: Ends, mss: u16) {
        self.flows.change(&ends, |flow| flow.peer_mss = mss);
    }

    /// The length in bytes, with padding, of the longest option that a segment of this connection may get with any of
    /// its keys. Payloads have to leave that much room.
    pub(super) fn option_room(&self, to: &Target) -> usize {
        self.info(to.id).map_or(0, |info| info.keys().option_room(to.ends.remote.ip()))
    }
}

impl Target {
    /// The ends of its connection.
    #[must_use]
    pub fn ends(&self) -> Ends {
        self.ends
    }

    /// The MSS that the peer announced; `None` when its SYN was not seen.
    pub(super) fn peer_mss(&self) -> Option<u16> {
        Some(self.peer_mss).filter(|mss| *mss > 0)
    }

    /// Whether the connection uses accurate ECN, as far as is known.
    pub(super) fn accurate_ecn(&self) -> bool {
        self.accurate_ecn
    }

    /// Whether it is a listener, or a half-open connection of one.
    pub(super) fn is_listener(&self) -> bool {
        self.state == EndpointState::Listen
    }

    /// The socket that holds its keys.
    #[must_use]
    pub fn id(&self) -> SocketId {
        self.id
    }
}
