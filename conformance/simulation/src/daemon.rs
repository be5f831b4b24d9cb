//! The daemon: the engine as it is, and around it the order in which `sealane-ipsec` records, writes rules and answers, one
//! step at a time, so that packets, others and crashes come between any two.

use crate::faults::Fault;
use crate::flow::raw;
use crate::kernel::Kernel;
use crate::model::{Action, Change, Dir, Policy, Selected, Selector, State};
use crate::net::{HOST_WAN, is_local};
use crate::peers::{CIPHER, ICV_BITS, REGISTRY, key};
use crate::situations::Situation;
use sealane_abi::Caller;
use sealane_abi::cryptouser::name_field;
use sealane_abi::netlink::answer::AckOptions;
use sealane_abi::netlink::{Messages, NLM_F_ACK, NLM_F_REQUEST};
use sealane_abi::xfrm::{self, AF_INET, AlgoAead, Attribute, Body, Id, Key, LifetimeCfg, UserTmpl, UserpolicyId};
use sealane_abi::xfrm::{UserpolicyInfo, UsersaId, UsersaInfo, XfrmMessage};
use sealane_engine_xfrm::data::{Paths, Run};
use sealane_engine_xfrm::numbers::{LeaseError, Leased, Numbers, Series};
use sealane_engine_xfrm::{Now, Record, Recorder, Sender, Setup, Xfrm};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::progress::{Progress, Words};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::seq::Lease;
use sealane_rules::eval;
use sealane_rules::field;
use sealane_rules::ipsec::Wanted;
use sealane_rules::ipsec::values::{self, Values};
use sealane_rules::rule::{Rule, Step};
use sealane_rules::table::{Chain, Owned, Table};
use sealane_sys::families::Families;
use sealane_sys::marks::Bits;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The numbers of one lease: few, so that states need many.
const BLOCK: u64 = 8;

/// All that outlives a daemon beside what is in the kernel.
#[derive(Default)]
pub(crate) struct Kept {
    journal: Option<Journal>,
    disk: Disk,
}

/// Records of policies and states, and the words beside these.
#[derive(Default)]
struct Journal {
    policies: BTreeMap<u64, Vec<u8>>,
    states: BTreeMap<u64, StateRecord>,
    words: Vec<Arc<Noted>>,
    /// By a fault, other keys of policies.
    moved: BTreeMap<u64, u64>,
}

/// Keys that the engine does not give to policies.
const MOVED: u64 = 1 << 40;

struct Noted(u32, [AtomicU64; 8]);

impl Words for Noted {
    fn index(&self) -> u32 {
        self.0
    }

    fn words(&self) -> &[AtomicU64; 8] {
        &self.1
    }
}

/// A state as it is recorded, and where its words are.
type StateRecord = (Vec<u8>, Option<u32>);

/// Changes of a journal.
#[derive(Default)]
struct Batch {
    policies: Vec<(u64, Option<Vec<u8>>)>,
    states: Vec<(u64, Option<StateRecord>)>,
    words: Vec<Arc<Noted>>,
    /// The number of words that there were.
    first: u32,
}

impl Recorder for Batch {
    fn words(&mut self) -> Option<Arc<dyn Words>> {
        let words = Arc::new(Noted(self.first + self.words.len() as u32, Default::default()));
        self.words.push(words.clone());
        Some(words)
    }

    fn put_state(&mut self, key: u64, record: &Record<'_>) {
        self.states.push((key, Some((record.request.to_vec(), record.progress))));
    }

    fn remove_state(&mut self, key: u64) {
        self.states.push((key, None));
    }

    fn put_policy(&mut self, key: u64, record: &Record<'_>) {
        self.policies.push((key, Some(record.request.to_vec())));
    }

    fn remove_policy(&mut self, key: u64) {
        self.policies.push((key, None));
    }
}

impl Journal {
    fn write(&mut self, batch: Batch, fault: Option<Fault>) {
        self.words.extend(batch.words);
        for (key, record) in batch.policies {
            let before = self.policies.remove(&self.moved.remove(&key).unwrap_or(key));
            let mut place = key;
            if fault == Some(Fault::NewPlace) && record.is_some() && before.is_some() {
                place = self.policies.keys().next_back().map_or(MOVED, |last| MOVED.max(last + 1));
                self.moved.insert(key, place);
            }
            self.policies.extend(record.map(|record| (place, record)));
        }
        for (key, record) in batch.states {
            self.states.remove(&key);
            self.states.extend(record.map(|record| (key, record)));
        }
    }
}

/// Stable storage of sequence numbers: the last one of each series that may have been used, and whether a state has it.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<Leases>>);

#[derive(Default)]
struct Leases {
    series: BTreeMap<[u8; 16], (u64, bool)>,
    asked: Vec<(Series, u64)>,
}

impl Disk {
    fn leases(&self) -> MutexGuard<'_, Leases> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Numbers for Disk {
    fn check(&self, _: &[u8]) -> Result<(), LeaseError> {
        Ok(())
    }

    fn lease(&mut self, identity: &[u8], used: u64) -> Result<Leased, LeaseError> {
        let (low, high) = (sealane_conformance::rng::fnv(identity), identity.len() as u64);
        let mut name = [0; 16];
        name[..8].copy_from_slice(&low.to_le_bytes());
        name[8..].copy_from_slice(&high.to_le_bytes());
        let mut leases = self.leases();
        let (end, live) = leases.series.entry(name).or_insert((used, false));
        if core::mem::replace(live, true) {
            return Err(LeaseError::InUse);
        }
        let used = used.max(*end);
        let lease = Lease::after(used, BLOCK);
        *end = lease.end;
        Ok(Leased { series: Series(name), used, lease })
    }

    fn renew(&mut self, series: Series, used: u64) {
        self.leases().asked.push((series, used));
    }

    fn written(&mut self) -> Vec<(Series, Option<Lease>)> {
        let mut leases = self.leases();
        let asked = core::mem::take(&mut leases.asked);
        let write = |(series, used): (Series, u64)| {
            let lease = Lease::after(used, BLOCK);
            leases.series.get_mut(&series.0).expect("it was leased").0 = lease.end;
            (series, Some(lease))
        };
        asked.into_iter().map(write).collect()
    }

    fn end(&mut self, series: Series, used: Option<u64>) {
        let mut leases = self.leases();
        let entry = leases.series.get_mut(&series.0).expect("it was leased");
        *entry = (used.unwrap_or(entry.0), false);
    }
}

/// The steps of a request. The answer is given behind the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Record,
    Rules,
    Ways,
    Answer,
}

/// A request that the engine has served, and what is left to be done.
struct Request {
    phases: Vec<Phase>,
    accepted: bool,
    batch: Option<Batch>,
    wanted: Option<Wanted>,
    families: Families,
}

/// The steps of a start, in which nobody is answered and no packet is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Rules,
    Ways,
    Journal,
    Route,
    Runs,
}

/// A daemon that runs, or that is about to.
pub(crate) struct Daemon {
    xfrm: Xfrm,
    bits: Bits,
    values: Values,
    owned: Owned,
    fault: Option<Fault>,
    /// The rules that this process has written.
    written: Option<Wanted>,
    policies: u64,
    start: Start,
    request: Option<Request>,
    /// Changes whose rules or records come after the answer, by a fault.
    late: Vec<Request>,
}

/// The host's paths.
struct Local;

impl Paths for Local {
    fn mtu(&mut self, _: IpAddr) -> u32 {
        1500
    }

    fn is_unreachable(&mut self, _: IpAddr, _: IpAddr) -> bool {
        false
    }

    fn source(&mut self, _: IpAddr) -> IpAddr {
        HOST_WAN.into()
    }

    fn is_local(&mut self, to: IpAddr) -> bool {
        matches!(to, IpAddr::V4(to) if is_local(to))
    }
}

/// The sender of requests.
const ROOT: Sender = Sender { port: 9, caller: Caller { privileged: true }, ack: AckOptions { ext: true, cap: false } };

impl Daemon {
    /// Starts one, the `nth` of this host: it takes up policies and states.
    pub(crate) fn new(kept: &mut Kept, owned: Owned, nth: u32, fault: Option<Fault>, now: Now) -> Self {
        if fault == Some(Fault::ForgottenNumbers) {
            kept.disk = Disk::default();
        }
        let mut seed = sealane_conformance::rng::Rng::new(u64::from(nth));
        let random = move |bytes: &mut [u8]| bytes.iter_mut().for_each(|byte| *byte = seed.next_u64() as u8);
        {
            let mut leases = kept.disk.leases();
            leases.series.values_mut().for_each(|(_, live)| *live = false);
            leases.asked.clear();
        }
        let numbers: Option<Box<dyn Numbers>> = Some(Box::new(kept.disk.clone()));
        let mut xfrm = Xfrm::new(Setup { registry: REGISTRY.clone(), random: Box::new(random), cpus: 1, numbers });
        xfrm.note_time(now);
        if let Some(journal) = &kept.journal {
            for request in journal.policies.values() {
                xfrm.restore_policy(request, None, now).expect("a policy of before");
            }
            for (request, words) in journal.states.values() {
                let words = words.map(|at| journal.words[at as usize].1.each_ref());
                let noted = words.map(|words| Progress::of(words.map(|word| word.load(Ordering::Acquire))));
                let noted = noted.filter(|_| fault != Some(Fault::ForgottenWindows));
                xfrm.restore_state(request, None, noted, now).expect("a state of before");
            }
        }
        xfrm.leave_unknown();
        let bits = Bits::new(0x4000_0000 + 4 * nth, 0x4100_0000);
        let values = Values::new(crate::net::TUN.name, bits);
        let policies = xfrm.spd().changes();
        let (start, written, request, late) = (Start::Rules, None, None, Vec::new());
        Daemon { xfrm, bits, values, owned, fault, written, policies, start, request, late }
    }

    /// Goes on with its start. Returns whether packets are read from now on.
    pub(crate) fn start(&mut self, kept: &mut Kept, kernel: &mut Kernel) -> bool {
        self.start = match self.start {
            Start::Rules => {
                let wanted = sealane_ipsec::rules_of(&self.xfrm);
                self.write_rules(kernel, wanted);
                Start::Ways
            }
            Start::Ways => {
                self.choose_ways(kernel, Families::ALL);
                Start::Journal
            }
            Start::Journal => {
                self.xfrm.start_recording();
                let mut batch = Batch::default();
                self.xfrm.record(&mut batch);
                let mut journal = Journal::default();
                journal.write(batch, None);
                kept.journal = Some(journal);
                Start::Route
            }
            Start::Route => {
                (kernel.routes.rule, kernel.routes.device) = (true, true);
                kernel.choose_anew();
                Start::Runs
            }
            Start::Runs => Start::Runs,
        };
        self.runs()
    }

    /// Whether it reads packets and requests.
    pub(crate) fn runs(&self) -> bool {
        self.start == Start::Runs
    }

    /// Whether a request waits for its answer.
    pub(crate) fn is_asked(&self) -> bool {
        self.request.is_some()
    }

    /// Serves a request up to its first step.
    pub(crate) fn ask(&mut self, kept: &Kept, change: Change, now: Now) {
        self.xfrm.note_time(now);
        let accepted = self.accepts(&message(change), now);
        let mut batch = Batch { first: kept.journal.as_ref().map_or(0, |j| j.words.len() as u32), ..Batch::default() };
        if self.xfrm.has_changes() {
            self.xfrm.record(&mut batch);
        }
        let changes = self.xfrm.spd().changes();
        let wanted = (changes != self.policies).then(|| sealane_ipsec::rules_of(&self.xfrm));
        self.policies = changes;
        let phases = match self.fault {
            Some(Fault::LateRules) => vec![Phase::Record, Phase::Answer, Phase::Rules, Phase::Ways],
            Some(Fault::LateRecords) => vec![Phase::Rules, Phase::Ways, Phase::Answer, Phase::Record],
            _ => vec![Phase::Record, Phase::Rules, Phase::Ways, Phase::Answer],
        };
        let families = Families::default();
        self.request = Some(Request { phases, accepted, batch: Some(batch), wanted, families });
    }

    /// Goes on with a request. Returns whether it was accepted, when it is answered.
    pub(crate) fn go_on(&mut self, kept: &mut Kept, kernel: &mut Kernel) -> Option<bool> {
        let mut request = self.request.take()?;
        let phase = request.phases.remove(0);
        let answer = self.step(phase, &mut request, kept, kernel);
        match answer {
            None => self.request = Some(request),
            Some(_) if request.phases.is_empty() => {}
            Some(_) => self.late.push(request),
        }
        answer
    }

    /// Does what is left of requests that are answered.
    pub(crate) fn catch_up(&mut self, kept: &mut Kept, kernel: &mut Kernel) {
        for mut request in core::mem::take(&mut self.late) {
            for phase in core::mem::take(&mut request.phases) {
                self.step(phase, &mut request, kept, kernel);
            }
        }
    }

    fn step(&mut self, phase: Phase, of: &mut Request, kept: &mut Kept, kernel: &mut Kernel) -> Option<bool> {
        match phase {
            Phase::Record => {
                let journal = kept.journal.as_mut().expect("there is one from the start on");
                of.batch.take().into_iter().for_each(|batch| journal.write(batch, self.fault));
            }
            Phase::Rules => {
                if let Some(wanted) = of.wanted.take() {
                    of.families = self.write_rules(kernel, wanted);
                }
            }
            Phase::Ways => self.choose_ways(kernel, of.families),
            Phase::Answer => return Some(of.accepted),
        }
        None
    }

    /// Writes rules as `PolicyTable` does: all of them first, and then chains that say something else.
    fn write_rules(&mut self, kernel: &mut Kernel, wanted: Wanted) -> Families {
        let Some(before) = &self.written else {
            self.write_all(kernel, wanted);
            return Families::ALL;
        };
        let families = values::families(before, &wanted);
        let tables = self.values.tables(self.owned, &wanted);
        let mut changed = self.values.changed(before, &wanted);
        if self.fault == Some(Fault::StaleChains) {
            changed.truncate(1);
        }
        let any = !changed.is_empty();
        for chain in changed.into_iter().filter(|chain| !self.lacks(chain)) {
            let chain = self.faulty_chain(chain);
            kernel.rewrite(tables[0].name(), chain);
        }
        if any && let Some(guard) = tables.into_iter().nth(1) {
            kernel.delete(guard.name());
            kernel.create(self.faulty(guard));
        }
        self.written = Some(wanted);
        families
    }

    fn write_all(&mut self, kernel: &mut Kernel, wanted: Wanted) {
        for table in self.values.tables(self.owned, &wanted) {
            kernel.delete(table.name());
            kernel.create(self.faulty(table));
        }
        self.written = Some(wanted);
    }

    fn choose_ways(&self, kernel: &mut Kernel, families: Families) {
        if families.v4 && self.fault != Some(Fault::KeptWays) {
            kernel.choose_anew();
        }
    }

    /// Puts back what others have changed.
    pub(crate) fn repair(&mut self, kernel: &mut Kernel) {
        if let Some(written) = self.written.clone() {
            self.write_all(kernel, written);
            self.choose_ways(kernel, Families::ALL);
        }
        (kernel.routes.rule, kernel.routes.device) = (true, true);
    }

    /// Its end in the kernel.
    pub(crate) fn end(&self, kernel: &mut Kernel) {
        if self.fault == Some(Fault::RulesGo) {
            self.values.tables(self.owned, &Wanted::default()).iter().for_each(|table| kernel.delete(table.name()));
        }
    }

    /// A table as a fault has it.
    fn faulty(&self, mut table: Table) -> Table {
        table.chains = table.chains.into_iter().map(|chain| self.faulty_chain(chain)).collect();
        table.chains.retain(|chain| !self.lacks(chain));
        if self.fault == Some(Fault::BeforeMangle) {
            // The priority of mangle.
            const MANGLE: i32 = -150;
            let leading = table.chains.iter_mut().filter(|chain| ["output", "prerouting"].contains(&&*chain.name));
            leading.filter_map(|chain| chain.hook.as_mut()).for_each(|hook| hook.priority = MANGLE);
        }
        table
    }

    /// Whether a fault has no such chain.
    fn lacks(&self, chain: &Chain) -> bool {
        self.fault == Some(Fault::BeforeMangle) && chain.name == "before-nat"
    }

    fn faulty_chain(&self, mut chain: Chain) -> Chain {
        if self.fault == Some(Fault::Gre) {
            let knows = |rule: &Rule| {
                rule.steps.iter().any(|step| matches!(step, Step::Is { field, .. } if *field == field::GRE_FLAGS))
            };
            chain.rules.retain(|rule| !knows(rule));
        }
        if self.fault == Some(Fault::TakenOver) && ["forward", "onward"].contains(&&*chain.name) {
            chain.rules.retain(|rule| rule.steps.last() != Some(&Step::Jump("escaping")));
        }
        chain
    }

    // Packets.

    /// The packet that it sends for one from the TUN device.
    pub(crate) fn outbound(&mut self, packet: &[u8], now: Now) -> Option<eval::Packet> {
        let mut buffer = [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat();
        let inner = Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len());
        let mut burst = [Outbound::new(SaId::NONE, inner)];
        self.xfrm.outbound(&[Run::new(1)], &mut burst, &mut Local, 0, now);
        burst[0].status.ok()?;
        let exempt = self.bits.exempt;
        let sent = raw(burst[0].packet.bytes().to_vec());
        Some(eval::Packet { mark: exempt, socket_mark: Some(exempt), user: Some(0), ..sent })
    }

    /// The packet that it gives to the stack for one of ESP.
    pub(crate) fn inbound(&mut self, packet: &[u8], now: Now) -> Option<eval::Packet> {
        let mut buffer = [&[0; HEADROOM][..], packet].concat();
        let end = buffer.len();
        let mut burst = [Inbound::new(Packet::new(&mut buffer, HEADROOM, end))];
        self.xfrm.inbound(&mut burst, &mut Local, now);
        (burst[0].status == Ok(Opened::Packet)).then(|| raw(burst[0].packet.bytes().to_vec()))
    }

    /// Handles timers.
    pub(crate) fn handle_timeout(&mut self, now: Now) {
        self.xfrm.note_time(now);
        self.xfrm.handle_timeout(now);
        self.xfrm.look_after_leases(now);
    }

    // Questions.

    fn accepts(&mut self, message: &XfrmMessage, now: Now) -> bool {
        let replies = self.xfrm.call(&message.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0), ROOT, now);
        let answer = replies.unicast.last().and_then(|answer| Messages::new(answer).next());
        answer.is_some_and(|answer| answer.payload.first_chunk() == Some(&0_i32.to_ne_bytes()))
    }

    /// Whether it has a policy with exactly this action and priority.
    pub(crate) fn has_policy(&self, of: &Policy) -> bool {
        let dir = direction(of.dir);
        let wanted = policy_info(of, dir);
        self.xfrm.spd().iter().any(|(_, policy)| {
            let s = &policy.selector;
            let template = policy.templates.first().map(|template| template.reqid);
            let action = match (policy.action, template) {
                (sealane_net_ipsec::spd::Action::Block, _) => None,
                (_, reqid) => Some(reqid.unwrap_or(0)),
            };
            let same_action = action
                == match of.action {
                    Action::Pass => Some(0),
                    Action::Block => None,
                    Action::Protect(peer) => Some(peer.reqid()),
                };
            policy.dir as u8 == dir
                && policy.priority == of.priority
                && same_action
                && (s.source, s.source_len) == (of.selector.source.0.into(), of.selector.source.1)
                && (s.destination, s.destination_len) == (of.selector.destination.0.into(), of.selector.destination.1)
                && (s.proto, s.sport, s.dport) == (wanted.sel.proto, wanted.sel.sport.get(), wanted.sel.dport.get())
        })
    }

    /// The situation in which it is if it ends now, in the middle of a request.
    pub(crate) fn next_step(&self) -> Option<Situation> {
        Some(match self.request.as_ref()?.phases.first()? {
            Phase::Record => Situation::EndedBeforeRecord,
            Phase::Rules => Situation::EndedBeforeRules,
            Phase::Ways => Situation::EndedBeforeWays,
            Phase::Answer => Situation::EndedBeforeAnswer,
        })
    }

    /// The number of its states.
    pub(crate) fn states(&self) -> usize {
        self.xfrm.sad().len()
    }

    /// The number of its policies.
    pub(crate) fn policies(&self) -> usize {
        self.xfrm.spd().iter().count()
    }

    /// Whether it has a state.
    pub(crate) fn has_state(&mut self, spi: u32, of: State, now: Now) -> bool {
        let replies =
            self.xfrm.call(&XfrmMessage::new(Body::GetSa(state_id(spi, of))).encode(NLM_F_REQUEST, 1, 0), ROOT, now);
        let answer = replies.unicast.first().and_then(|answer| Messages::new(answer).next());
        answer.is_some_and(|answer| answer.header.nlmsg_type == xfrm::XFRM_MSG_NEWSA)
    }
}

fn address(of: Ipv4Addr) -> xfrm::Address {
    IpAddr::from(of).into()
}

fn selector(of: &Selector) -> xfrm::Selector {
    let (proto, sport, dport) = match of.upper {
        Selected::Any => (0, None, None),
        Selected::UdpTo(port) => (crate::flow::UDP, None, Some(port)),
        Selected::UdpFrom(port) => (crate::flow::UDP, Some(port), None),
        // A key is in the place of both ports.
        Selected::Gre(key) => (crate::flow::GRE, Some((key >> 16) as u16), Some(key as u16)),
    };
    let mask = |port: Option<u16>| port.map_or(0, |_| u16::MAX);
    xfrm::Selector {
        saddr: address(of.source.0),
        daddr: address(of.destination.0),
        prefixlen_s: of.source.1,
        prefixlen_d: of.destination.1,
        family: AF_INET,
        proto,
        sport: sport.unwrap_or(0).into(),
        sport_mask: mask(sport).into(),
        dport: dport.unwrap_or(0).into(),
        dport_mask: mask(dport).into(),
        ..xfrm::Selector::default()
    }
}

fn policy_info(of: &Policy, dir: u8) -> UserpolicyInfo {
    UserpolicyInfo {
        sel: selector(&of.selector),
        lft: LifetimeCfg::NONE,
        dir,
        priority: of.priority,
        action: if of.action == Action::Block { xfrm::XFRM_POLICY_BLOCK } else { xfrm::XFRM_POLICY_ALLOW },
        ..UserpolicyInfo::default()
    }
}

fn direction(of: Dir) -> u8 {
    match of {
        Dir::In => xfrm::XFRM_POLICY_IN,
        Dir::Out => xfrm::XFRM_POLICY_OUT,
        Dir::Fwd => xfrm::XFRM_POLICY_FWD,
    }
}

fn state_id(spi: u32, of: State) -> UsersaId {
    let to = if of.inward { HOST_WAN } else { of.peer.address() };
    UsersaId { daddr: address(to), spi: spi.into(), family: AF_INET, proto: xfrm::IPPROTO_ESP, pad: 0 }
}

/// A change as a key manager asks for it.
fn message(change: Change) -> XfrmMessage {
    let with_template = |message: XfrmMessage, of: &Policy| {
        let Action::Protect(peer) = of.action else { return message };
        let (from, to) = if of.dir == Dir::Out { (HOST_WAN, peer.address()) } else { (peer.address(), HOST_WAN) };
        let id = Id { daddr: address(to), proto: xfrm::IPPROTO_ESP, ..Id::default() };
        message.with(Attribute::Tmpl(vec![UserTmpl {
            id,
            family: AF_INET,
            saddr: address(from),
            reqid: peer.reqid(),
            mode: xfrm::XFRM_MODE_TUNNEL,
            ..UserTmpl::default()
        }]))
    };
    match change {
        Change::Add(policy) => {
            let info = policy_info(&policy, direction(policy.dir));
            with_template(XfrmMessage::new(Body::NewPolicy(info)), &policy)
        }
        Change::Update(policy) => {
            let info = policy_info(&policy, direction(policy.dir));
            with_template(XfrmMessage::new(Body::UpdPolicy(info)), &policy)
        }
        Change::Delete(dir, of) => {
            let id = UserpolicyId { sel: selector(&of), dir: direction(dir), ..UserpolicyId::default() };
            XfrmMessage::new(Body::DelPolicy(id))
        }
        Change::FlushPolicies => XfrmMessage::new(Body::FlushPolicy),
        Change::AddState(spi, of) => {
            let (from, to) = if of.inward { (of.peer.address(), HOST_WAN) } else { (HOST_WAN, of.peer.address()) };
            let info = UsersaInfo {
                id: Id { daddr: address(to), spi: spi.into(), proto: xfrm::IPPROTO_ESP, pad: [0; 3] },
                saddr: address(from),
                lft: LifetimeCfg::NONE,
                family: AF_INET,
                mode: xfrm::XFRM_MODE_TUNNEL,
                reqid: of.peer.reqid(),
                replay_window: 32,
                flags: xfrm::XFRM_STATE_AF_UNSPEC,
                ..UsersaInfo::default()
            };
            XfrmMessage::new(Body::NewSa(info)).with(Attribute::AlgAead(AlgoAead {
                alg_name: name_field(CIPHER),
                alg_key_len: 160,
                alg_icv_len: ICV_BITS,
                alg_key: Key::new(&key(spi)),
            }))
        }
        Change::DeleteState(spi, of) => XfrmMessage::new(Body::DelSa(state_id(spi, of))),
    }
}
