//! Packets: bursts on their way out and in, by the states and policies of one network namespace.
//!
//! Status *i* belongs to packet *i*. Nothing is allocated for a packet; what key managers must hear of is collected and
//! becomes messages when the burst is done.

use crate::burst::direction;
pub use crate::burst::{BURST, Paths, Run, each_run};
use crate::fragments::{FirstFragments, FragmentKind, is_fragment};
use crate::scratch::{OutboundAhead, RunStates, Scratch};
use crate::time::Now;
use arrayvec::ArrayVec;
use core::net::IpAddr;
use sealane_crypto::Status;
use sealane_net_ipsec::burst::{Job, Jobs};
use sealane_net_ipsec::drop::{DropReason, Stat};
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::icmp;
use sealane_net_ipsec::iptfs::Origin;
use sealane_net_ipsec::iptfs::receive::{Emerged, Received};
use sealane_net_ipsec::mtu::V6_MIN_MTU;
use sealane_net_ipsec::open::{self, Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Mode, SaId};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::sad::aggregate::Leaving;
use sealane_net_ipsec::seal::{self, Outbound};
use sealane_net_ipsec::selector::Flow;
use sealane_net_ipsec::spd::cache::FlowCache;
use sealane_net_ipsec::spd::check::{InboundQuery, judge};
use sealane_net_ipsec::spd::resolve::{Bundle, Decision, OutboundQuery, resolve_by, resolve_error};
use sealane_net_ipsec::spd::{Action, Dir, Policy, PolicyId, Spd};
use sealane_wire::outer::OuterHeader;
use sealane_wire::proto;

/// The number of flows that the cache of outbound flows holds.
const CACHED_FLOWS: usize = 4096;

/// States and policies as packets need them, with counters and caches: a namespace's stack has one, and each packet
/// device has its own.
pub struct Databases {
    /// States.
    pub sad: Sad,
    /// Policies.
    pub spd: Spd,
    /// Counters of packets.
    pub stat: Stat,
    /// Events that packets caused and that have not been reported yet.
    pub events: Vec<Event>,
    pub(crate) owner: Owner,
    /// The interface ids that there are xfrm interfaces of.
    pub(crate) interfaces: Vec<u32>,
    /// Ways of outbound flows.
    cache: FlowCache,
    /// Fragments that leave, and that came in.
    fragments: [FirstFragments; 2],
    hints: Hints,
    scratch: Option<Box<Scratch>>,
    /// Packets that came out of payloads of IP-TFS, and that their policies let pass.
    emerged: Vec<Inbound<'static>>,
}

/// The owner of databases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// There are no others.
    Alone,
    /// A stack's beside which devices have theirs: packets that [`is_unknown`] speaks of are not counted.
    Stack,
    /// A packet device's. Packets without a policy or state are left to the stack and not counted; fragments and packets
    /// that exceed the path's MTU are dropped.
    Device,
}

/// Whether a packet names no state that the tables which it was opened with may use, so that it may be others'.
#[must_use]
pub fn is_unknown(packet: &Inbound<'_>) -> bool {
    matches!(packet.status, Err(DropReason::NoState | DropReason::InInvalid)) && packet.path.is_empty()
}

/// Whether a packet that a device was to seal is the stack's matter.
#[must_use]
pub fn is_left(packet: &Outbound<'_>) -> bool {
    matches!(packet.status, Err(DropReason::OutBlock | DropReason::OutRest | DropReason::OutNoState))
}

impl Databases {
    /// Counters of packets, and the traffic of the states.
    #[must_use]
    pub fn stat(&self) -> Stat {
        let mut stat = self.stat.clone();
        stat.traffic = self.sad.traffic();
        stat
    }

    /// The packets that came out of payloads of IP-TFS and that are to be delivered, in their order.
    pub(crate) fn take_emerged(&mut self) -> Vec<Inbound<'static>> {
        core::mem::take(&mut self.emerged)
    }

    /// Empty ones. A stack's let everything pass, a device's nothing. `seed` gives numbers that strangers do not know.
    #[must_use]
    pub fn of(owner: Owner, mut seed: impl FnMut() -> u64) -> Self {
        let (mut sad, mut spd) = (Sad::new(seed()), Spd::new(seed()));
        if owner == Owner::Device {
            sad = Sad::of_device(seed());
            [Dir::In, Dir::Out, Dir::Fwd].into_iter().for_each(|dir| spd.set_default(dir, Action::Block));
        }
        Databases {
            owner,
            sad,
            spd,
            stat: Stat::default(),
            events: Vec::new(),
            interfaces: Vec::new(),
            cache: FlowCache::new(CACHED_FLOWS, seed()),
            fragments: Default::default(),
            hints: Hints::default(),
            scratch: None,
            emerged: Vec::new(),
        }
    }

    /// The tables for one burst on a CPU at a time.
    pub fn tables(&mut self, cpu: u32, now: Now) -> Tables<'_> {
        let Databases { sad, spd, cache, fragments, hints, scratch, stat, events, owner, interfaces, emerged } = self;
        let (owner, now_s, if_id) = (*owner, now.wall_s, 0);
        sad.set_now(now.monotonic_ns);
        sad.set_thread(0);
        Tables {
            owner,
            interfaces,
            if_id,
            sad,
            spd,
            cache,
            fragments,
            hints,
            scratch,
            stat,
            events,
            now_s,
            cpu,
            emerged,
        }
    }
}

/// The worker of a stack that a packet is assigned to, because it has the packet's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// The first worker.
    First,
    /// The worker of a CPU (RFC 9611).
    Cpu(u32),
    /// The worker that a number selects.
    Number(u32),
}

/// The last phase of [`Tables::outbound`] without the tables: whether there are packets to be counted
/// ([`Tables::count_out`]).
pub fn sealed(packets: &mut [Outbound<'_>], jobs: &[Job], done: &[Status]) -> bool {
    seal::end(packets, jobs, done);
    packets.iter().any(|out| out.status.is_err())
}

/// The policy, if it protects or blocks.
fn covering(spd: &Spd, policy: Option<PolicyId>) -> Option<&Policy> {
    spd.get(policy?).filter(|policy| policy.action == Action::Block || !policy.templates.is_empty())
}

/// Marks and interfaces that outbound policies ask for.
#[derive(Default)]
pub(crate) struct Hints {
    /// Changes of the policies when they were gathered.
    changes: u64,
    all: Vec<(u32, i32)>,
}

impl Hints {
    fn of(&mut self, spd: &Spd) -> &[(u32, i32)] {
        if self.changes != spd.changes() {
            let asked = |p: &Policy| p.dir == Dir::Out && (p.mark.mask != 0 || p.selector.ifindex != 0);
            let policies = spd.iter().map(|(_, policy)| policy).filter(|policy| asked(policy));
            self.all = policies.map(|p| (p.mark.value & p.mark.mask, p.selector.ifindex)).collect();
            self.all.sort_unstable();
            self.all.dedup();
            self.changes = spd.changes();
        }
        &self.all
    }
}

/// The tables that process a burst.
pub struct Tables<'a> {
    /// States.
    pub sad: &'a mut Sad,
    /// Policies.
    pub spd: &'a mut Spd,
    /// Ways of outbound flows.
    pub cache: &'a mut FlowCache,
    /// Fragments that leave, and that came in.
    pub(crate) fragments: &'a mut [FirstFragments; 2],
    /// Marks and interfaces that outbound policies match and packets do not carry.
    pub(crate) hints: &'a mut Hints,
    scratch: &'a mut Option<Box<Scratch>>,
    /// Counters of packets.
    pub stat: &'a mut Stat,
    /// Events for key managers.
    pub events: &'a mut Vec<Event>,
    /// Wall time in seconds.
    pub now_s: u64,
    /// The CPU that this runs on.
    pub cpu: u32,
    emerged: &'a mut Vec<Inbound<'static>>,
    owner: Owner,
    interfaces: &'a [u32],
    /// The interface id of the xfrm interface that packets leave by; 0 for none.
    pub(crate) if_id: u32,
}

impl Tables<'_> {
    /// The tables for packets that leave by the xfrm interface with this id: policies and states with that id apply to
    /// them, and packets that none of these protects are dropped ([`DropReason::NoWay`]).
    #[must_use]
    pub fn of_interface(self, if_id: u32) -> Self {
        Tables { if_id, ..self }
    }

    /// The tables for the thread with this number, 0 where it is not said: the timers of states of IP-TFS are for the thread
    /// that uses them.
    #[must_use]
    pub fn of_thread(self, thread: u32) -> Self {
        self.sad.set_thread(thread);
        self
    }

    /// Seals each packet that a policy protects. `runs` says which packets, one behind another, are of one flow.
    ///
    /// A packet with a good status and [`SaId::NONE`] as its [`Outbound::sa`] may leave as it is, because a policy allows
    /// it or none applies; with a state it is sealed. [`DropReason::TooBig`] must be reported to the sender.
    pub fn outbound(&mut self, runs: &[Run], packets: &mut [Outbound<'_>], paths: &mut impl Paths) {
        let mut jobs = Jobs::new();
        self.outbound_begin(runs, packets, paths, &mut jobs);
        self.outbound_finish(packets, &jobs);
    }

    /// The first phase of [`Self::outbound`], for at most [`BURST`] packets: policies, states, numbers, headers. The
    /// jobs are run next, without the tables; packets without a job have their final status. For packets that go through
    /// several states only the last state is left to a job.
    pub fn outbound_begin(
        &mut self,
        runs: &[Run],
        packets: &mut [Outbound<'_>],
        paths: &mut impl Paths,
        jobs: &mut Jobs,
    ) {
        jobs.clear();
        let mut scratch = self.scratch.take().unwrap_or_default();
        scratch.clear();
        let Scratch { run_states, ahead, .. } = &mut *scratch;
        if self.looks_ahead(runs.len()) {
            self.outbound_ahead(runs, packets, ahead);
        }
        for (at, (run, these)) in each_run(runs, packets).take(BURST).enumerate() {
            let Some(first) = these.first().map(|first| first.packet.bytes()) else {
                run_states.push(&[]);
                continue;
            };
            // Flows stay where they are: what has just been written in small pieces is slow to copy.
            let way = match ahead.get(at) {
                Some(OutboundAhead { flow: Ok(flow), policy }) => {
                    self.push_bundle(first, flow, *policy, paths, run_states)
                }
                Some(OutboundAhead { flow: Err(reason), .. }) => Err(*reason),
                None => match &Flow::of(first, run.mark, run.ifindex) {
                    Ok(flow) => self.push_bundle(first, flow, None, paths, run_states),
                    Err(_) => Err(DropReason::Malformed),
                },
            };
            if let Err(reason) = way {
                these.iter_mut().for_each(|out| out.status = Err(reason));
            }
            if run_states.len() == at {
                run_states.push(&[]);
            }
        }
        self.sad.warm(run_states.firsts());
        let (mut last, mut beneath): (&[SaId], _) = (&[], (0, None, false));
        // All packets of a burst leave in the same way.
        let mut by_socket = false;
        for (at, (_, these)) in each_run(runs, packets).take(BURST).enumerate() {
            let bundle = run_states.of(at);
            let sa = bundle.first().copied().unwrap_or(SaId::NONE);
            if last != bundle {
                let mode = self.sad.get(sa).map(|sa| sa.mode);
                let mtu = self.mtu(bundle, paths);
                let nowhere = mtu == 0 && self.leads_nowhere(bundle, paths);
                (last, beneath) = (bundle, (mtu, mode, nowhere));
            }
            let (mtu, mode, nowhere) = beneath;
            let transport = mode == Some(Mode::Transport);
            for out in these.iter_mut() {
                // Between hosts packets are cut after they are sealed. Connections are told to make them smaller, and
                // so are senders of extension headers, such as the kernel's tunnels over IPv6: nobody cuts these.
                let bytes = out.packet.bytes();
                let later = transport
                    && matches!(bytes, [0x60..=0x6f, _, _, _, _, _, next, ..] if *next != proto::TCP)
                    && OuterHeader::of(bytes).is_some();
                (out.sa, out.mtu) = (sa, if later { 0 } else { mtu });
                // Nothing can be put around a packet whose headers are only described.
                by_socket |= out.by_socket;
                out.by_socket &= bundle.len() <= 1;
            }
            if self.owner == Owner::Device && mtu != 0 {
                self.check_length(these, sa, mtu);
            }
            if nowhere {
                these.iter_mut().for_each(|out| out.status = Err(DropReason::NoPath));
            } else if mode == Some(Mode::Iptfs) {
                self.gather(bundle, mtu, these);
            } else if self.has_iptfs(bundle) {
                these.iter_mut().for_each(|out| out.status = Err(DropReason::OutMode));
            }
        }
        self.seal_begin(runs, run_states, packets, by_socket, jobs);
        *self.scratch = Some(scratch);
    }

    /// Whether a state of IP-TFS is around another one of a bundle: it would see that one's packets.
    fn has_iptfs(&self, bundle: &[SaId]) -> bool {
        bundle.iter().skip(1).any(|id| self.sad.get(*id).is_some_and(|sa| sa.mode == Mode::Iptfs))
    }

    /// Hands packets of one frame over to the state of IP-TFS that they go through first (`iptfs_output_collect`). If one
    /// finds no room, those behind it are dropped, too.
    fn gather(&mut self, bundle: &[SaId], mtu: u32, packets: &mut [Outbound<'_>]) {
        let Some((id, around)) = bundle.split_first() else { return };
        let mut full = self.has_iptfs(bundle).then_some(DropReason::OutMode);
        for out in packets {
            let gathered = match full {
                Some(reason) => Err((reason, 0)),
                None => self.sad.gather(*id, around, mtu, out.packet.bytes()),
            };
            (out.status, out.inner_mtu, out.gathered) = match gathered {
                // It is not to be sent as it is.
                Ok(()) => (Err(DropReason::OutMode), 0, true),
                Err((reason, mtu)) => (Err(reason), mtu, false),
            };
            if out.status == Err(DropReason::IptfsQueue) {
                full = Some(DropReason::IptfsQueue);
            }
        }
    }

    /// Fills a burst with what leaves states of IP-TFS now, each packet in a part of the buffer, and begins to seal it; and
    /// gives up what these states have waited for too long. The other phases are those of [`Self::outbound`]. To be called
    /// when [`Self::poll_gathered`] says, until no packet comes. With `more` packets at hand that follow at once, what they may
    /// share an outer packet with waits for them.
    pub fn gathered_begin<'b>(
        &mut self,
        buffer: &'b mut [u8],
        packets: &mut ArrayVec<Outbound<'b>, BURST>,
        paths: &mut impl Paths,
        jobs: &mut Jobs,
        more: bool,
    ) {
        jobs.clear();
        let mut scratch = self.scratch.take().unwrap_or_default();
        scratch.clear();
        let mut rest = buffer;
        while !packets.is_full() {
            let leaving = self.sad.next_leaving(rest, more, |to| paths.mtu(to));
            let Some(Leaving { sa, around, len }) = leaving else { break };
            let (slot, others) = core::mem::take(&mut rest).split_at_mut(len);
            rest = others;
            let packet = Packet::new(slot, HEADROOM, len - TAILROOM);
            packets.push(Outbound { by_socket: around.is_empty(), ..Outbound::new(sa, packet) });
            let bundle: Bundle = core::iter::once(sa).chain(around).collect();
            scratch.run_states.push(&bundle);
        }
        let runs = [Run::new(1); BURST];
        self.seal_begin(&runs[..packets.len()], &scratch.run_states, packets, true, jobs);
        *self.scratch = Some(scratch);
        self.judge_received(paths);
    }

    /// When [`Self::gathered_begin`] is to be called by the thread of these tables, by the clock that never goes back.
    #[must_use]
    pub fn poll_gathered(&self) -> Option<u64> {
        self.sad.poll_aggregations()
    }

    /// Takes packets with a good status through all their states, but for the jobs of the last one. `by_socket` is whether
    /// they may be sent by sockets.
    fn seal_begin(
        &mut self,
        runs: &[Run],
        run_states: &RunStates,
        packets: &mut [Outbound<'_>],
        by_socket: bool,
        jobs: &mut Jobs,
    ) {
        let depth = run_states.depth();
        for layer in 1..depth {
            seal::seal(self.sad, packets, self.now_s, self.events);
            each(runs, run_states, packets, |bundle, out| {
                (out.sa, out.mtu) = (bundle.get(layer).copied().unwrap_or(SaId::NONE), 0);
                out.by_socket |= by_socket && layer + 1 == bundle.len();
            });
        }
        if depth > 0 {
            seal::begin(self.sad, packets, self.now_s, self.events, jobs);
        }
        if depth > 1 {
            // Those with a job have their last one already.
            each(runs, run_states, packets, |bundle, out| out.sa = bundle.last().copied().unwrap_or(SaId::NONE));
        }
    }

    /// The other phases of [`Self::outbound`], here and now.
    pub fn outbound_finish(&mut self, packets: &mut [Outbound<'_>], jobs: &[Job]) {
        if !jobs.is_empty() {
            seal::finish(self.sad, packets, jobs);
        }
        self.count_out(packets);
    }

    /// The last phase of [`Self::outbound`]: `done` is what became of `jobs`.
    pub fn outbound_end(&mut self, packets: &mut [Outbound<'_>], jobs: &[Job], done: &[Status]) {
        seal::end(packets, jobs, done);
        self.count_out(packets);
    }

    /// The number by which a packet is assigned to a worker of a stack. All packets of a state, and of the states that
    /// replace it, have the same number. `None` if any worker will do.
    pub fn assignment(&mut self, packet: &[u8], run: &Run, paths: &mut impl Paths) -> Option<Assignment> {
        let flow = Flow::of(packet, run.mark, run.ifindex).ok()?;
        let mut scratch = self.scratch.take().unwrap_or_default();
        scratch.clear();
        let assignment = match self.push_bundle(packet, &flow, None, paths, &mut scratch.run_states) {
            Ok(()) => self.assigned(scratch.run_states.of(0)),
            Err(_) => None,
        };
        *self.scratch = Some(scratch);
        assignment
    }

    fn assigned(&self, bundle: &[SaId]) -> Option<Assignment> {
        let [layer] = *bundle else {
            // Others may share the inner states.
            return (!bundle.is_empty()).then_some(Assignment::First);
        };
        let sa = self.sad.get(layer)?;
        let to = match sa.dst {
            IpAddr::V4(to) => u32::from(to),
            IpAddr::V6(to) => {
                to.to_bits().to_be_bytes().as_chunks::<4>().0.iter().fold(0, |a, word| a ^ u32::from_be_bytes(*word))
            }
        };
        Some(sa.cpu.map_or(Assignment::Number(sa.reqid.wrapping_add(to)), Assignment::Cpu))
    }

    /// Counts packets that were not sealed, where the last phase was done without the tables ([`sealed`]).
    pub fn count_out(&mut self, packets: &[Outbound<'_>]) {
        let counted = packets.iter().filter(|out| !out.gathered && (self.owner != Owner::Device || !is_left(out)));
        counted.filter_map(|out| out.status.err()).for_each(|reason| self.stat.dropped(reason));
    }

    /// Refuses packets that exceed the path's MTU: a device does not fragment.
    fn check_length(&self, packets: &mut [Outbound<'_>], sa: SaId, mtu: u32) {
        let Some(inner) = self.sad.inner_mtu(sa, mtu) else { return };
        for out in packets {
            let v6 = out.packet.bytes().first().is_some_and(|b| b >> 4 == 6);
            let most = if v6 { inner.max(V6_MIN_MTU) } else { inner };
            if out.packet.len() > most as usize {
                (out.status, out.inner_mtu) = (Err(DropReason::TooBig), inner);
            }
        }
    }

    /// Pushes the states that a packet goes through; none for one that may leave as it is. Its policy may be known
    /// already.
    fn push_bundle(
        &mut self,
        packet: &[u8],
        flow: &Flow,
        policy: Option<Option<PolicyId>>,
        paths: &mut impl Paths,
        run_states: &mut RunStates,
    ) -> Result<(), DropReason> {
        if self.owner == Owner::Device && is_fragment(packet) {
            return Err(DropReason::Fragment);
        }
        let piece = self.fragments[0].classify(packet, flow);
        let (flow, policy) = if let FragmentKind::Later(first) = &piece { (first, None) } else { (flow, policy) };
        let mut leaving = self.outbound_query(flow);
        let way = match self.cache.find(self.spd, self.sad, &leaving) {
            Some(way) => way,
            None => {
                let policy = policy.unwrap_or_else(|| self.spd.lookup(Dir::Out, flow, self.if_id));
                if covering(self.spd, policy).is_some() {
                    self.only_way(flow, policy)?;
                }
                if let Some(to) = self.wants_source(policy) {
                    leaving.local = paths.source(to);
                }
                let way = resolve_by(self.spd, self.sad, policy, &leaving, self.events)
                    .inspect_err(|reason| self.note_block(*reason, policy))?;
                self.cache.put(self.spd, self.sad, &leaving, way)
            }
        };
        let policy = match way {
            Decision::Protect(policy, bundle) => {
                run_states.push(bundle);
                Some(*policy)
            }
            &Decision::Bypass(policy) => match self.clear(packet, &leaving, policy)? {
                Decision::Protect(policy, bundle) => {
                    run_states.push(&bundle);
                    Some(policy)
                }
                // Its first part may have been protected.
                Decision::Bypass(_) if piece == FragmentKind::Stray => return Err(DropReason::Fragment),
                // It is what leaves through states, and nothing else (`xfrmi_xmit2`).
                Decision::Bypass(_) if self.if_id != 0 => return Err(DropReason::NoWay),
                Decision::Bypass(policy) => policy,
            },
        };
        policy.iter().for_each(|id| self.spd.used(*id, self.now_s));
        Ok(())
    }

    /// The way of a packet that may leave as it is, by its own flow.
    fn clear(
        &mut self,
        packet: &[u8],
        leaving: &OutboundQuery<'_>,
        policy: Option<PolicyId>,
    ) -> Result<Decision, DropReason> {
        let mut way = Decision::Bypass(policy);
        if let Some(quoted) = icmp::quoted(packet, leaving.flow) {
            way = resolve_error(self.spd, self.sad, leaving, &quoted, self.events)?;
        }
        if let Decision::Bypass(_) = way
            && let Some(flow) = self.only_way(leaving.flow, None)?
        {
            let leaving = OutboundQuery { flow: &flow, ..*leaving };
            let asked = self.cache.resolve(self.spd, self.sad, &leaving, self.events).cloned();
            way = asked.inspect_err(|reason| self.note_block(*reason, self.spd.lookup(Dir::Out, &flow, self.if_id)))?;
        }
        Ok(way)
    }

    /// Notes the use of a policy that blocks (`xfrm_lookup_with_ifid`).
    fn note_block(&mut self, reason: DropReason, policy: Option<PolicyId>) {
        if reason == DropReason::OutBlock {
            policy.iter().for_each(|id| self.spd.used(*id, self.now_s));
        }
    }

    /// The flow as policies see it that ask for a mark or an interface. Neither came with its packet; that it is here may be for
    /// one of them. Where they, or the policy for packets without either, would send it different ways, nobody knows which way
    /// is its own: it must not go to another's peer.
    fn only_way(&mut self, flow: &Flow, without: Option<PolicyId>) -> Result<Option<Flow>, DropReason> {
        let (mut way, mut found) = (without, None);
        for (mark, ifindex) in self.hints.of(self.spd) {
            let asked = Flow { mark: *mark, ifindex: *ifindex, ..*flow };
            let policy = self.spd.lookup(Dir::Out, &asked, self.if_id);
            let Some(one) = covering(self.spd, policy) else { continue };
            if covering(self.spd, way)
                .is_some_and(|other| (one.action, &one.templates) != (other.action, &other.templates))
            {
                return Err(DropReason::Ambiguous);
            }
            (way, found) = (policy, found.or(Some(asked)));
        }
        Ok(found)
    }

    /// The outer destination of a tunnel whose source the policy leaves to the route.
    fn wants_source(&self, policy: Option<PolicyId>) -> Option<IpAddr> {
        let policy = self.spd.get(policy?)?;
        let open = policy.templates.iter().find(|t| t.src.is_unspecified() && !t.dst.is_unspecified())?;
        Some(open.dst)
    }

    /// The MTU beneath the first state of a bundle: what those around it leave.
    fn mtu(&self, bundle: &[SaId], paths: &mut impl Paths) -> u32 {
        let Some(outer) = bundle.last().and_then(|id| self.sad.get(*id)) else { return 0 };
        let mut mtu = paths.mtu(outer.dst);
        if mtu > 0 {
            for id in bundle[1..].iter().rev() {
                mtu = self.sad.inner_mtu(*id, mtu).unwrap_or(mtu);
            }
        }
        mtu
    }

    /// Whether no route leads to the end of a bundle.
    fn leads_nowhere(&self, bundle: &[SaId], paths: &mut impl Paths) -> bool {
        let outer = bundle.last().and_then(|id| self.sad.get(*id));
        outer.is_some_and(|outer| paths.is_unreachable(outer.src, outer.dst))
    }

    /// Opens packets and asks the policies about what comes out. One whose status is [`Opened::Packet`] is to be
    /// delivered.
    pub fn inbound(&mut self, packets: &mut [Inbound<'_>], paths: &mut impl Paths) {
        open::open(self.sad, packets, self.now_s, self.events);
        self.judge_all(packets, paths);
        self.judge_received(paths);
    }

    /// Asks the policies about the packets that came out of payloads of IP-TFS.
    fn judge_received(&mut self, paths: &mut impl Paths) {
        let Some(Received { packets, faults }) = self.sad.take_received() else { return };
        faults.into_iter().for_each(|reason| self.stat.dropped(reason));
        let inside = |Emerged { packet, origin: Origin { path, mark, device } }| Inbound {
            path,
            mark,
            device,
            status: Ok(Opened::Packet),
            ..Inbound::new(Packet::owned(packet))
        };
        let mut packets: Vec<Inbound<'static>> = packets.into_iter().map(inside).collect();
        self.judge_all(&mut packets, paths);
        self.emerged.extend(packets.into_iter().filter(|packet| packet.status.is_ok()));
    }

    /// The first phase of [`Self::inbound`], for at most [`BURST`] packets: states, windows, limits. Each job is to be
    /// run next, without the tables.
    pub fn inbound_begin(&mut self, packets: &mut [Inbound<'_>], jobs: &mut Jobs) {
        open::begin(self.sad, packets, self.now_s, self.events, jobs);
    }

    /// The last phase of [`Self::inbound`]: `done` holds the statuses of `jobs`. Inner layers are opened at once.
    pub fn inbound_end(&mut self, packets: &mut [Inbound<'_>], paths: &mut impl Paths, jobs: &[Job], done: &[Status]) {
        open::end(self.sad, packets, jobs, done, self.now_s, self.events);
        self.inbound(packets, paths);
    }

    /// The other phases of [`Self::inbound`], here and now.
    pub fn inbound_finish(&mut self, packets: &mut [Inbound<'_>], paths: &mut impl Paths, jobs: &[Job]) {
        if !jobs.is_empty() {
            open::finish(self.sad, packets, jobs, self.now_s, self.events);
        }
        self.inbound(packets, paths);
    }

    fn judge_all(&mut self, packets: &mut [Inbound<'_>], paths: &mut impl Paths) {
        let mut last: Option<(Flow, ArrayVec<SaId, { open::MAX_DEPTH }>)> = None;
        for packets in packets.chunks_mut(BURST) {
            let mut scratch = self.scratch.take().unwrap_or_default();
            scratch.clear();
            if self.looks_ahead(packets.len()) {
                self.inbound_ahead(packets, paths, &mut scratch.judged);
            }
            for (at, arrived) in packets.iter_mut().enumerate() {
                if let Ok(Opened::Packet) = arrived.status {
                    arrived.if_id = self.arrival_if_id(arrived);
                    let judged = match scratch.judged.get(at) {
                        // Those of interfaces have other policies.
                        Some(Some((flow, dir, policy))) => {
                            let ahead = Some((*dir, *policy)).filter(|_| arrived.if_id == 0);
                            self.judge(arrived, flow, ahead, &mut last, paths)
                        }
                        _ => match &Flow::of(arrived.packet.bytes(), arrived.mark, 0) {
                            Ok(flow) => self.judge(arrived, flow, None, &mut last, paths),
                            Err(_) => Err(DropReason::Malformed),
                        },
                    };
                    arrived.status = judged.and(arrived.status);
                }
                if let Err(reason) = arrived.status
                    && (self.owner == Owner::Alone || !is_unknown(arrived))
                {
                    self.stat.dropped(reason);
                }
            }
            *self.scratch = Some(scratch);
        }
    }

    /// Asks whether a packet came through the states that this policy requires, and notes the policy's use.
    fn ask(
        &mut self,
        came: &InboundQuery<'_>,
        policy: Option<PolicyId>,
        quoted: Option<&Flow>,
    ) -> Result<(), DropReason> {
        let judged = judge(self.spd, self.sad, came, policy, quoted);
        // A policy that a packet fails has been used, too (`__xfrm_policy_check`).
        let used = match judged {
            Ok((policy, _)) => policy,
            Err(DropReason::InBlock | DropReason::Template) => policy,
            Err(_) => None,
        };
        used.iter().for_each(|id| self.spd.used(*id, self.now_s));
        judged.map(drop)
    }

    /// Whether ICMP errors for this host that came through these states count as part of the flow that they quote.
    fn opens_errors(&self, path: &[SaId]) -> bool {
        path.last().and_then(|id| self.sad.get(*id)).is_some_and(|last| last.flags.icmp)
    }

    /// The interface id of the xfrm interface that a packet comes out of, that of the last state it came through.
    fn arrival_if_id(&self, arrived: &Inbound<'_>) -> u32 {
        if self.interfaces.is_empty() {
            return 0;
        }
        let last = arrived.path.last().and_then(|id| self.sad.get(*id));
        last.map(|sa| sa.if_id).filter(|if_id| self.interfaces.contains(if_id)).unwrap_or(0)
    }

    /// Checks that a packet came through the states that its policy requires. The policy may be known already; the
    /// packet before is often of the same flow.
    fn judge(
        &mut self,
        arrived: &Inbound<'_>,
        flow: &Flow,
        ahead: Option<(Dir, Option<PolicyId>)>,
        last: &mut Option<(Flow, ArrayVec<SaId, { open::MAX_DEPTH }>)>,
        paths: &mut impl Paths,
    ) -> Result<(), DropReason> {
        let piece = self.fragments[1].classify(arrived.packet.bytes(), flow);
        let (flow, ahead) = if let FragmentKind::Later(first) = &piece { (first, None) } else { (flow, ahead) };
        // Errors of one flow may be about many.
        let quoted = icmp::quoted(arrived.packet.bytes(), flow);
        if quoted.is_none() && last.as_ref().is_some_and(|(before, path)| before == flow && *path == arrived.path) {
            return Ok(());
        }
        let (dir, policy) = ahead.unwrap_or_else(|| {
            let dir = direction(flow, paths);
            (dir, self.spd.lookup(dir, flow, arrived.if_id))
        });
        let came = InboundQuery { dir, flow, if_id: arrived.if_id, path: &arrived.path, verified: 0 };
        match (self.ask(&came, policy, quoted.as_ref()), &quoted) {
            (Err(reason), Some(quoted)) if dir == Dir::In && self.opens_errors(&arrived.path) => {
                // Linux judges it once more, and counts it twice if need be (`icmp_rcv`).
                self.stat.dropped(reason);
                let policy = self.spd.lookup(dir, quoted, arrived.if_id);
                self.ask(&InboundQuery { flow: quoted, ..came }, policy, None)?;
            }
            (judged, _) => judged?,
        }
        if quoted.is_none() {
            *last = Some((*flow, arrived.path.clone()));
        }
        Ok(())
    }
}

/// Does `step` for each packet whose status is good, with the bundle of its run.
fn each(
    runs: &[Run],
    run_states: &RunStates,
    packets: &mut [Outbound<'_>],
    mut step: impl FnMut(&[SaId], &mut Outbound<'_>),
) {
    for (at, (_, these)) in each_run(runs, packets).take(run_states.len()).enumerate() {
        let bundle = run_states.of(at);
        these.iter_mut().filter(|out| out.status.is_ok()).for_each(|out| step(bundle, out));
    }
}
