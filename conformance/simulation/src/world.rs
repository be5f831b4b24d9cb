//! The host in its network, with the model beside it: what happens is done to both, and each packet's end is judged.

use crate::daemon::{Daemon, Kept};
use crate::faults::Fault;
use crate::flow::{Flow, Upper, number};
use crate::kernel::{Fate, Kernel, Passage};
use crate::model::{Action, Change, Dir, Reference, Selected, State};
use crate::net::{CLIENT, HOST_WAN, LAN, Peer, REMOTE, SERVICE, TUN, WAN, is_local};
use crate::peers::Peers;
use crate::situations::{Reached, Situation};
use crate::transition::{Asked, By, Kind, Near, Sent, Transition};
use sealane_engine_xfrm::Now;
use sealane_rules::eval::Packet;
use sealane_rules::table::{Family, Name, Owned};
use std::collections::BTreeSet;

/// Something that must not have happened.
pub(crate) type Violation = String;

/// The time at which every world begins.
const START_S: u64 = 1_800_000_000;
/// A step of the clock between events.
const TICK_NS: u64 = 1_000_000;
/// The ports of programs on this side.
const CLIENT_PORT: u16 = 1000;
const HOST_PORT: u16 = 2000;
/// The user of programs on the host.
const SOMEBODY: u32 = 1000;

/// The table without an owner, beside one that goes with its owner.
const GUARD: Name<'static> = Name { family: Family::Inet, name: "sealane-ipsec-guard" };

pub(crate) struct World {
    kernel: Kernel,
    owned: Owned,
    fault: Option<Fault>,
    kept: Kept,
    daemon: Option<Daemon>,
    /// The number of daemons that there were.
    daemons: u32,
    /// All that is acknowledged, and all that may be in force besides: during a request, and after a crash in one until the next daemon
    /// runs.
    model: Reference,
    pending: Option<Reference>,
    peers: Peers,
    now: Now,
    packets: u64,
    states: u32,
    /// States that sent and are deleted.
    deleted: Vec<(u32, State)>,
    /// Packets of ESP for the host: whether they came out of their tunnel, and under which daemon.
    to_host: Vec<(Packet, Option<u32>)>,
    /// The numbers that the host has sent.
    numbers: BTreeSet<(u32, u32)>,
    /// Numbers of packets that came out of tunnels.
    opened: BTreeSet<u64>,
    /// The states whose numbers must go on, and why.
    going_on: BTreeSet<(u32, bool)>,
    was_updated: bool,
    was_flushed: bool,
    pub(crate) reached: Reached,
}

/// The origin of a packet on its way through the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Host,
    Wire,
    /// The daemon sends it.
    Daemon,
    /// It came out of a tunnel of this peer.
    Tunnel(Peer),
}

/// The end of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Clear,
    /// With what its peer makes of it.
    Sealed {
        spi: u32,
        number: u32,
        inner: Option<Vec<u8>>,
    },
    Delivered,
    Lost,
}

impl World {
    pub(crate) fn new(owned: Owned, fault: Option<Fault>) -> Self {
        World {
            kernel: Kernel::new(),
            owned,
            fault,
            kept: Kept::default(),
            daemon: None,
            daemons: 0,
            model: Reference::default(),
            pending: None,
            peers: Peers::new(),
            now: Now { monotonic_ns: TICK_NS, wall_s: START_S },
            packets: 0,
            states: 0,
            deleted: Vec::new(),
            to_host: Vec::new(),
            numbers: BTreeSet::new(),
            opened: BTreeSet::new(),
            going_on: BTreeSet::new(),
            was_updated: false,
            was_flushed: false,
            reached: Reached::default(),
        }
    }

    /// Lets one thing happen.
    ///
    /// # Errors
    /// Something that must not happen, and did.
    pub(crate) fn apply(&mut self, event: Transition) -> Result<(), Violation> {
        self.now.monotonic_ns += TICK_NS;
        match event {
            Transition::Ask(asked, steps) => return self.ask(asked, steps),
            Transition::Step => return self.step(),
            Transition::Send(sent) => return self.send(sent),
            Transition::Replay(back) => return self.replay(back),
            Transition::Ends { by_crash } => return self.end(by_crash),
            Transition::Starts(steps) => return self.start(steps),
            Transition::Repair => self.repair(),
            Transition::Wait { seconds } => {
                self.now.monotonic_ns += u64::from(seconds) * 1_000_000_000;
                self.now.wall_s += u64::from(seconds);
                self.handle_timeout();
            }
            Transition::SetClock { by_s } => {
                self.now.wall_s = self.now.wall_s.saturating_add_signed(by_s.into());
                if by_s < 0 {
                    self.reached.note(Situation::ClockWasSetBack);
                }
                self.handle_timeout();
            }
            Transition::Mangle(of) => self.kernel.mangle(of),
            Transition::Masquerade(on) => self.kernel.masquerades = on,
            Transition::Translate(on) => self.kernel.translates = on,
            Transition::Flowtable(on) => {
                self.kernel.has_flowtable = on;
                if !on {
                    self.kernel.forget_flows();
                }
            }
            Transition::RuleOfOthers(on) => {
                self.kernel.routes.others_first = on;
                self.kernel.choose_anew();
            }
            Transition::DeleteOurRule => {
                self.kernel.routes.rule = false;
                self.kernel.choose_anew();
            }
            Transition::DeleteDevice => {
                self.kernel.routes.device = false;
                self.kernel.choose_anew();
            }
            Transition::Flush => {
                self.kernel.flush();
                self.was_flushed = true;
            }
            Transition::Wan(is_up) => {
                self.kernel.is_wan_up = is_up;
                self.kernel.choose_anew();
                if !is_up {
                    self.reached.note(Situation::WanWasDown);
                }
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self) {
        let now = self.now;
        self.daemon.iter_mut().filter(|daemon| daemon.runs()).for_each(|daemon| daemon.handle_timeout(now));
    }

    /// Whether a daemon reads packets; nothing where there is none at all.
    fn running(&self) -> Option<bool> {
        self.daemon.as_ref().map(Daemon::runs)
    }

    fn runs(&self) -> bool {
        self.running() == Some(true)
    }

    fn repair(&mut self) {
        if !self.runs() {
            return;
        }
        let lacks_guard = self.owned == Owned::Goes && self.kernel.table(GUARD).is_none();
        let World { daemon, kernel, .. } = self;
        daemon.iter_mut().for_each(|daemon| daemon.repair(kernel));
        if lacks_guard {
            self.reached.note(Situation::GuardIsBack);
        }
    }

    // Requests.

    fn ask(&mut self, asked: Asked, steps: u8) -> Result<(), Violation> {
        if !self.runs() {
            return Ok(());
        }
        // One after another.
        while self.daemon.as_ref().is_some_and(Daemon::is_asked) {
            self.step()?;
        }
        self.catch_up();
        let Some(change) = self.change(asked) else { return Ok(()) };
        let mut after = self.model.clone();
        if !after.make(change) {
            self.reached.note(Situation::RefusedRequest);
        }
        self.was_updated |= matches!(change, Change::Update(_));
        let World { daemon, kept, now, .. } = self;
        daemon.as_mut().expect("it runs").ask(kept, change, *now);
        self.pending = Some(after);
        if let Change::DeleteState(spi, state) = change
            && !state.inward
        {
            self.deleted.push((spi, state));
            self.going_on.insert((spi, false));
        }
        (0..steps).try_for_each(|_| self.step_request())
    }

    /// The change that is asked for, in this world.
    fn change(&mut self, asked: Asked) -> Option<Change> {
        let policies = &self.model.policies;
        let of = |at: u8| policies.get(usize::from(at) % policies.len().max(1)).copied();
        Some(match asked {
            Asked::Add(policy) => Change::Add(policy),
            Asked::Update(policy) => Change::Update(policy),
            Asked::Change(at, action) => Change::Update(crate::model::Policy { action, ..of(at)? }),
            Asked::Delete(at) => of(at).map(|policy| Change::Delete(policy.dir, policy.selector))?,
            Asked::FlushPolicies => Change::FlushPolicies,
            Asked::AddState(peer, inward) => {
                self.states += 1;
                let (spi, state) = (0x1000 + self.states, State { peer, inward });
                self.peers.learn(spi, state);
                Change::AddState(spi, state)
            }
            Asked::AddAgain(at) => {
                let (spi, state) = *self.deleted.get(usize::from(at) % self.deleted.len().max(1))?;
                Change::AddState(spi, state)
            }
            Asked::DeleteState(at) => {
                let states = &self.model.states;
                let (spi, state) = states.iter().nth(usize::from(at) % states.len().max(1))?;
                Change::DeleteState(*spi, *state)
            }
        })
    }

    fn step(&mut self) -> Result<(), Violation> {
        match self.running() {
            Some(false) => self.step_start(),
            Some(true) if self.daemon.as_ref().is_some_and(Daemon::is_asked) => self.step_request(),
            _ => {
                self.catch_up();
                Ok(())
            }
        }
    }

    /// By a fault, what should have been done before an answer is done only now.
    fn catch_up(&mut self) {
        let World { daemon, kept, kernel, .. } = self;
        daemon.iter_mut().for_each(|daemon| daemon.catch_up(kept, kernel));
    }

    fn step_request(&mut self) -> Result<(), Violation> {
        let World { daemon, kept, kernel, .. } = self;
        let Some(accepted) = daemon.as_mut().and_then(|daemon| daemon.go_on(kept, kernel)) else { return Ok(()) };
        let after = self.pending.take().expect("a request is pending");
        let is_other = after != self.model;
        if accepted != is_other && is_other {
            return Err("a request was refused that the kernel accepts".to_owned());
        }
        self.model = after;
        Ok(())
    }

    // Life.

    fn end(&mut self, by_crash: bool) -> Result<(), Violation> {
        if !by_crash {
            // In good order it ends between requests.
            while self.daemon.as_ref().is_some_and(Daemon::is_asked) {
                self.step()?;
            }
            self.catch_up();
        }
        let Some(daemon) = self.daemon.take() else { return Ok(()) };
        if !daemon.runs() {
            self.reached.note(Situation::EndedWhileStarting);
        }
        if let Some(step) = daemon.next_step() {
            self.reached.note(step);
        }
        daemon.end(&mut self.kernel);
        Ok(())
    }

    fn start(&mut self, steps: u8) -> Result<(), Violation> {
        if self.daemon.is_some() {
            return Ok(());
        }
        self.daemons += 1;
        let mut daemon = Daemon::new(&mut self.kept, self.owned, self.daemons, self.fault, self.now);
        self.settle(&mut daemon)?;
        self.daemon = Some(daemon);
        let sends = self.model.states.iter().filter(|(_, state)| !state.inward);
        self.going_on.extend(sends.map(|(spi, _)| (*spi, true)));
        if !self.model.policies.is_empty() {
            self.reached.note(Situation::RestartedWithPolicies);
            if self.was_updated {
                self.reached.note(Situation::RestartedWithUpdatedPolicy);
            }
        }
        (0..steps).try_for_each(|_| self.step_start())
    }

    fn step_start(&mut self) -> Result<(), Violation> {
        let World { daemon, kept, kernel, .. } = self;
        if let Some(daemon) = daemon.as_mut().filter(|daemon| !daemon.runs())
            && daemon.start(kept, kernel)
        {
            self.pending = None;
        }
        Ok(())
    }

    /// A new daemon has to have taken up all that was acknowledged, or all that was asked for when the last one crashed.
    fn settle(&mut self, daemon: &mut Daemon) -> Result<(), Violation> {
        let is = |daemon: &mut Daemon, now, of: &Reference| {
            daemon.policies() == of.policies.len()
                && of.policies.iter().all(|policy| daemon.has_policy(policy))
                && of.states.iter().all(|(spi, state)| daemon.has_state(*spi, *state, now))
                && daemon.states() == of.states.len()
        };
        let is_pending = self.pending.is_some();
        if is(daemon, self.now, &self.model) {
            if is_pending {
                self.reached.note(Situation::RestartedWithoutChange);
            }
            return Ok(());
        }
        match &mut self.pending {
            Some(after) if is(daemon, self.now, after) => {
                core::mem::swap(&mut self.model, after);
                self.reached.note(Situation::RestartedWithChange);
                Ok(())
            }
            _ => Err("the next daemon has other policies or states than were acknowledged".to_owned()),
        }
    }

    // The model.

    /// All that may be in force.
    fn possible(&self) -> impl Iterator<Item = &Reference> {
        core::iter::once(&self.model).chain(&self.pending)
    }

    /// Whether a flow must not pass as it is.
    fn covers(&self, dir: Dir, flow: &Flow) -> bool {
        self.possible().all(|of| of.covers(dir, flow))
    }

    /// Whether a flow must pass as it is.
    fn clears(&self, dir: Dir, flow: &Flow) -> bool {
        self.possible().all(|of| !of.covers(dir, flow))
    }

    /// Whether a tunnel of a peer may bring a flow.
    fn allows(&self, dir: Dir, flow: &Flow, peer: Peer) -> bool {
        self.possible().any(|of| of.action(dir, flow) == Some(Action::Protect(peer)))
    }

    /// Whether everything is in its place, so that covered packets have to get through.
    fn is_calm(&self) -> bool {
        let routes = self.kernel.routes;
        self.runs()
            && self.pending.is_none()
            && !self.kernel.mangles()
            && self.kernel.is_wan_up
            && routes.rule
            && routes.device
            && !routes.others_first
    }

    // Packets.

    /// Follows a packet to its end, and judges each place where it leaves or arrives.
    fn follow(&mut self, passage: Passage, origin: Origin) -> Result<End, Violation> {
        let Passage { fate, packet, came, routed, left, was_offloaded, was_covered, .. } = passage;
        let World { kernel, model, pending, .. } = self;
        kernel.note_taken_over(|flow| {
            let covers = |of: &Reference| [Dir::Out, Dir::Fwd].into_iter().any(|dir| of.covers(dir, flow));
            covers(model) || pending.as_ref().is_some_and(covers)
        });
        match fate {
            Fate::Refused | Fate::Unreachable => Ok(End::Lost),
            Fate::Left(_) => {
                if let Upper::Esp { spi, number } = left.upper {
                    if !self.numbers.insert((spi, number)) {
                        return Err(format!("the number {number} of {spi:#x} is sent twice"));
                    }
                    return Ok(End::Sealed { spi, number, inner: self.peers.open(&packet.bytes) });
                }
                if was_covered {
                    // The packet that had it taken over needed no policy before NAT. Linux does not look at this one.
                    return Ok(End::Clear);
                }
                // What policies see has its destination translated, and its source not.
                let seen = if was_offloaded { Flow { source: came.source, ..left } } else { routed };
                for flow in [seen, left] {
                    if self.covers(Dir::Out, &flow) {
                        return Err(format!("{flow:?} leaves in clear; it came as {came:?}, {origin:?}"));
                    }
                }
                self.judge_arrival(origin, Dir::Fwd, &came, &seen)?;
                Ok(End::Clear)
            }
            Fate::ToTun => {
                if !was_covered {
                    self.judge_arrival(origin, Dir::Fwd, &came, &routed)?;
                }
                let now = self.now;
                let daemon = self.daemon.as_mut().filter(|daemon| daemon.runs());
                let Some(sent) = daemon.and_then(|daemon| daemon.outbound(&packet.bytes, now)) else {
                    return Ok(End::Lost);
                };
                let passage = self.kernel.send(sent);
                self.follow(passage, Origin::Daemon)
            }
            Fate::Here => {
                if let Upper::Esp { .. } = routed.upper {
                    return self.open(&packet);
                }
                self.judge_arrival(origin, Dir::In, &came, &routed)?;
                Ok(End::Delivered)
            }
        }
    }

    /// Judges what comes through the host, or to it.
    fn judge_arrival(&self, origin: Origin, dir: Dir, came: &Flow, routed: &Flow) -> Result<(), Violation> {
        match origin {
            Origin::Host | Origin::Daemon => Ok(()),
            Origin::Wire if self.covers(dir, came) && self.covers(dir, routed) => {
                Err(format!("{came:?} comes in clear, for {dir:?}"))
            }
            // The engine has decided by where it came to; NAT may lead it on.
            Origin::Tunnel(peer) => {
                let dir = if is_local(came.destination) { Dir::In } else { Dir::Fwd };
                let allows = self.allows(dir, came, peer);
                allows.then_some(()).ok_or_else(|| format!("{came:?} comes by the tunnel of {peer:?}, for {dir:?}"))
            }
            Origin::Wire => Ok(()),
        }
    }

    /// A packet of ESP for the host.
    fn open(&mut self, packet: &Packet) -> Result<End, Violation> {
        let now = self.now;
        let Upper::Esp { spi, .. } = Flow::of(&packet.bytes).upper else { return Ok(End::Lost) };
        let daemon = self.daemon.as_mut().filter(|daemon| daemon.runs());
        let Some(inner) = daemon.and_then(|daemon| daemon.inbound(&packet.bytes, now)) else { return Ok(End::Lost) };
        let state = self.possible().find_map(|of| of.states.get(&spi)).copied();
        let Some(state) = state.filter(|state| state.inward) else {
            return Err(format!("{spi:#x} opens a packet, and is no state for that"));
        };
        if !self.opened.insert(number(&inner.bytes)) {
            return Err(format!("a packet of {spi:#x} comes out twice"));
        }
        let passage = self.kernel.receive(inner, TUN);
        self.follow(passage, Origin::Tunnel(state.peer))
    }

    fn flow(&self, sent: Sent) -> Flow {
        let far = REMOTE[usize::from(sent.far) % REMOTE.len()];
        let (near, from) = match sent.near {
            Near::Client => (CLIENT, CLIENT_PORT),
            Near::Host => (HOST_WAN, HOST_PORT),
            Near::Masqueraded => (HOST_WAN, CLIENT_PORT),
        };
        let upper = match sent.kind {
            Kind::Udp(to) => Upper::Udp { from, to },
            Kind::Tcp(to) => Upper::Tcp { from, to },
            Kind::Gre(key) => Upper::Gre(key),
        };
        Flow { source: near, destination: far, upper }
    }

    fn send(&mut self, sent: Sent) -> Result<(), Violation> {
        let flow = self.flow(sent);
        self.packets += 1;
        match sent.by {
            By::Near => self.send_out(flow, sent.near),
            _ if !self.kernel.is_wan_up || flow.destination == SERVICE => Ok(()),
            By::Far => self.send_in(flow.back()),
            By::Tunnel(peer, before) => self.send_by_tunnel(flow.back(), peer, before),
        }
    }

    /// A packet of the client or of the host itself.
    fn send_out(&mut self, flow: Flow, near: Near) -> Result<(), Violation> {
        let packet = flow.packet(self.packets);
        let before = self.is_calm();
        let had_taken_over = self.kernel.has_taken_over(&flow);
        let (passage, is_forwarded) = match near {
            Near::Client => (self.kernel.receive(packet, LAN), true),
            _ => (self.kernel.send(Packet { user: Some(SOMEBODY), ..packet }), false),
        };
        let (came, routed, left) = (passage.came, passage.routed, passage.left);
        let (fate, was_offloaded, chain) = (passage.fate, passage.was_offloaded, passage.chain.clone());
        let before = before && !passage.was_covered;
        let by_engine = fate == Fate::ToTun;
        let seen = if was_offloaded { Flow { source: came.source, ..left } } else { routed };
        let origin = if is_forwarded { Origin::Wire } else { Origin::Host };
        let may_be_forwarded = !is_forwarded || self.clears(Dir::Fwd, &came) && self.clears(Dir::Fwd, &seen);
        let end = self.follow(passage, origin)?;
        let is_clear = [came, seen, left].iter().all(|flow| self.clears(Dir::Out, flow)) && may_be_forwarded;
        // A flowtable leads a flow back by the device that its answers came by, also to nobody.
        let is_led_to_nobody = was_offloaded && by_engine && !self.runs();
        let has_way = fate != Fate::Unreachable && self.kernel.is_wan_up && !is_led_to_nobody;
        if is_clear && has_way && end != End::Clear {
            return Err(format!("no policy is for {came:?}, which ends as {end:?} ({fate:?}, {chain:?})"));
        }
        let covered = self.covers(Dir::Out, &seen);
        // Source NAT of a connection that began in clear goes on, and then it is the new address for which a policy is looked up, as in
        // Linux (IPSEC-141).
        let is_translated = by_engine && left.source != routed.source;
        let looked_up = if is_translated { left } else { routed };
        if is_translated && covered {
            self.reached.note(Situation::CoveredBehindItsTranslation);
        }
        let masks = self.kernel.masquerades && self.kernel.mangles();
        match &end {
            End::Clear => {
                let by_policy = self.model.action(Dir::Out, &seen) == Some(Action::Pass);
                let reached = &mut self.reached;
                reached.note(if by_policy { Situation::PassedByPolicy } else { Situation::PassedBesidePolicies });
                for (is, situation) in [
                    (left.source != came.source, Situation::PassedMasqueraded),
                    (was_offloaded, Situation::PassedByFlowtable),
                    (by_engine, Situation::PassedByEngine),
                    (self.daemon.is_none(), Situation::PassedWithoutDaemon),
                ] {
                    if is {
                        reached.note(situation);
                    }
                }
            }
            End::Lost if covered => {
                let action = self.model.action(Dir::Out, &seen);
                let has_state = match action {
                    Some(Action::Protect(peer)) => {
                        self.model.states.values().any(|state| *state == State { peer, inward: false })
                    }
                    _ => true,
                };
                let routes = self.kernel.routes;
                let is_overwritten = self.kernel.mangles() && self.runs();
                for (is, situation) in [
                    (!self.runs(), Situation::CoveredWithoutDaemon),
                    (!has_state, Situation::CoveredWithoutState),
                    (action == Some(Action::Block), Situation::CoveredByPolicyThatBlocks),
                    (is_overwritten, Situation::CoveredWithOverwrittenMark),
                    (masks && is_forwarded, Situation::CoveredWithOverwrittenMarkAndMasquerading),
                    (routes.others_first, Situation::CoveredWithRuleOfOthers),
                    (!routes.rule, Situation::CoveredWithoutOurRule),
                    (!routes.device, Situation::CoveredWithoutDevice),
                    (had_taken_over, Situation::CoveredAfterFlowWasTakenOver),
                    (self.was_flushed, Situation::CoveredAfterFlush),
                    (self.pending.is_some() && self.runs(), Situation::CoveredBetweenCallAndAnswer),
                ] {
                    if is {
                        self.reached.note(situation);
                    }
                }
            }
            End::Lost if left.source != came.source && self.covers(Dir::Out, &left) => {
                self.reached.note(Situation::CoveredBySourceNatOnly);
            }
            End::Sealed { spi, number, inner } => {
                if inner
                    .as_ref()
                    .is_none_or(|inner| (Flow::of(inner), self::number(inner)) != (looked_up, self.packets))
                {
                    return Err(format!("{looked_up:?} is sealed, and its peer gets something else"));
                }
                if had_taken_over {
                    self.reached.note(Situation::CoveredAfterFlowWasTakenOver);
                }
                self.judge_sealed(*spi, *number, &came, &looked_up, is_forwarded)?;
            }
            End::Lost | End::Delivered => {}
        }
        let tunnel = match self.model.action(Dir::Out, &looked_up) {
            Some(Action::Protect(peer)) if may_be_forwarded => Some(State { peer, inward: false }),
            _ => None,
        };
        let has_state = tunnel.is_some_and(|of| self.model.states.values().any(|state| *state == of));
        if before && has_state && !matches!(end, End::Sealed { .. }) {
            return Err(format!("a tunnel is there for {came:?}, which ends as {end:?} ({fate:?}, {chain:?})"));
        }
        Ok(())
    }

    /// Judges a packet that the host has sealed.
    fn judge_sealed(
        &mut self,
        spi: u32,
        number: u32,
        came: &Flow,
        routed: &Flow,
        is_forwarded: bool,
    ) -> Result<(), Violation> {
        let state = self.possible().find_map(|of| of.states.get(&spi)).copied();
        let Some(state) = state.filter(|state| !state.inward) else {
            return Err(format!("{spi:#x} seals a packet, and is no state for that"));
        };
        let is_for = |of: &Reference| of.action(Dir::Out, routed) == Some(Action::Protect(state.peer));
        if !self.possible().any(is_for) {
            return Err(format!("{routed:?} is sealed for {:?}", state.peer));
        }
        let is_gre = self.model.policies.iter().any(|policy| matches!(policy.selector.upper, Selected::Gre(_)));
        let sends = self.model.states.iter().filter(|(_, of)| **of == state);
        let several = sends.count() > 1;
        for (is, situation) in [
            (true, Situation::Sealed),
            (is_forwarded, Situation::SealedForwarded),
            (came.destination != routed.destination, Situation::SealedBehindDestinationNat),
            (self.kernel.masquerades && is_forwarded, Situation::SealedWithMasquerading),
            (is_gre && matches!(came.upper, Upper::Gre(5)), Situation::SealedByKeyOfGre),
            (self.daemons > 1, Situation::SealedAfterRestart),
            (several, Situation::SealedByNextState),
            (number > 1 && self.going_on.contains(&(spi, true)), Situation::NumbersGoOnAfterRestart),
            (number > 1 && self.going_on.contains(&(spi, false)), Situation::NumbersGoOnAfterDeletion),
        ] {
            if is {
                self.reached.note(situation);
            }
        }
        Ok(())
    }

    /// A packet in clear from the far side.
    fn send_in(&mut self, flow: Flow) -> Result<(), Violation> {
        let passage = self.kernel.receive(flow.packet(self.packets), WAN);
        let (came, routed, left, fate) = (passage.came, passage.routed, passage.left, passage.fate);
        let dir = if is_local(routed.destination) { Dir::In } else { Dir::Fwd };
        let is_clear = [came, routed].iter().all(|flow| self.clears(dir, flow))
            && (dir == Dir::In || [came, routed, left].iter().all(|flow| self.clears(Dir::Out, flow)));
        let is_covered = self.covers(dir, &came);
        let end = self.follow(passage, Origin::Wire)?;
        let arrives = matches!(end, End::Clear | End::Delivered);
        if is_clear && fate != Fate::Unreachable && !arrives {
            return Err(format!("no policy is for {came:?}, which comes in and ends as {end:?}"));
        }
        if arrives {
            self.reached.note(Situation::ClearDelivered);
        } else if is_covered {
            self.reached.note(Situation::ClearRefused);
        }
        Ok(())
    }

    /// A packet that a peer has sealed: by its newest state, or one before it.
    fn send_by_tunnel(&mut self, inner: Flow, peer: Peer, before: u8) -> Result<(), Violation> {
        let states = self.model.states.iter().rev().filter(|(_, state)| **state == State { peer, inward: true });
        let Some(spi) = states.map(|(spi, _)| *spi).nth(before.into()) else { return Ok(()) };
        let sealed = self.peers.seal(spi, &inner.packet(self.packets).bytes);
        let calm = self.is_calm();
        let passage = self.kernel.receive(sealed.clone(), WAN);
        let end = self.follow(passage, Origin::Wire)?;
        let came_out = self.opened.contains(&self.packets).then_some(self.daemons);
        self.to_host.push((sealed, came_out));
        let dir = if is_local(inner.destination) { Dir::In } else { Dir::Fwd };
        let allowed = self.model.action(dir, &inner) == Some(Action::Protect(peer));
        let mut note = |is, situation| {
            if is {
                self.reached.note(situation);
            }
        };
        note(end == End::Delivered, Situation::Opened);
        note(end == End::Clear, Situation::OpenedForwarded);
        note(matches!(end, End::Sealed { .. }), Situation::OpenedAndSealedAgain);
        note(calm && !allowed, Situation::OpenedWithoutPolicyOfThatPeer);
        note(before > 0 && came_out.is_some(), Situation::OpenedByFormerState);
        if calm && allowed && came_out.is_none() {
            return Err(format!("{inner:?} does not come out of the tunnel of {peer:?}"));
        }
        // What answers to the host's address may be for its client.
        let is_translated = dir == Dir::In && !matches!(inner.upper, Upper::Udp { to: HOST_PORT, .. });
        let out = self.model.action(Dir::Out, &inner);
        let goes_on = !is_translated && (dir == Dir::In || out.is_none_or(|action| action == Action::Pass));
        if calm && allowed && goes_on && end == End::Lost {
            return Err(format!("{inner:?} came out of the tunnel of {peer:?}, and is lost"));
        }
        Ok(())
    }

    /// Somebody sends what a peer has sent before.
    fn replay(&mut self, back: u8) -> Result<(), Violation> {
        let at = self.to_host.len().checked_sub(1 + usize::from(back));
        let Some((packet, came_out)) = at.map(|at| self.to_host[at].clone()) else { return Ok(()) };
        if !self.kernel.is_wan_up {
            return Ok(());
        }
        let opened = self.opened.len();
        let passage = self.kernel.receive(packet, WAN);
        self.follow(passage, Origin::Wire)?;
        if self.opened.len() > opened {
            // It had not come out before.
            self.to_host[at.expect("it is there")].1 = Some(self.daemons);
        } else if let Some(under) = came_out.filter(|_| self.runs()) {
            let after_restart = under < self.daemons;
            self.reached.note(if after_restart {
                Situation::ReplayRefusedAfterRestart
            } else {
                Situation::ReplayRefused
            });
        }
        Ok(())
    }
}
