//! The security association database: associations by handle, by the fields of inbound packets, and by those of policy
//! templates.
//!
//! A database has one owner; nothing in it is shared between threads.

pub mod aggregate;
mod aggregations;
pub mod pairs;

use self::aggregations::Aggregations;
use crate::burst::{BURST, Job, Keys, SaKey};
use crate::comp::Codec;
use crate::drop::{DropReason, TrafficCounters};
use crate::event::Event;
use crate::index::{Hash, HashIndex};
use crate::lifetime::{Age, Limits, Usage, WallClock};
use crate::progress::Words;
use crate::replay::Window;
use crate::sa::{
    CryptoDevice, Encap, FIND_LINES, Hot, IN_LINES, Mode, OUT_LINES, Proto, Sa, SaDir, SaError, SaId, SaSpec, SaState,
    ipip_spi,
};
use crate::selector::{Flow, Mark, family_of};
use crate::seq::Lease;
use crate::transform::Crypt;
use arrayvec::ArrayVec;
use core::cmp::Reverse;
use core::net::IpAddr;
use sealane_cpu::prefetch;
use sealane_wire::walk::address_pair;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// The number of associations from which on memory is prefetched; fewer stay in the caches.
const WARM_FROM: usize = 256;

/// The search criteria for an outbound packet's association, from a policy's template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SaQuery {
    /// Outer source; unspecified for any.
    pub src: IpAddr,
    /// Outer destination.
    pub dst: IpAddr,
    /// Protocol.
    pub proto: Proto,
    /// Mode.
    pub mode: Mode,
    /// The template's reqid.
    pub reqid: u32,
    /// SPI, 0 for any.
    pub spi: u32,
    /// The policy's mark.
    pub mark: u32,
    /// The policy's interface id.
    pub if_id: u32,
    /// The CPU that sends.
    pub cpu: u32,
    /// The policy's offload device; the association must have the same one, or none.
    pub device: Option<u32>,
}

/// The result of a search for [`SaQuery`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// A usable association.
    State(SaId),
    /// None yet, but the key manager has been asked for one.
    Acquiring(SaId),
    /// Only an expired one: no new one is requested until it is deleted.
    Expired,
    /// None: the key manager is to be asked for one.
    None,
}

/// The number of timers of deleted associations that is tolerated.
const SPARE_TIMERS: usize = 1024;

/// The database.
pub struct Sad {
    hot: Vec<Hot>,
    cold: Vec<Option<Sa>>,
    free: Vec<u32>,
    by_spi: HashIndex,
    /// The newest association of each (source, destination, reqid); it links to the older ones.
    by_pair: HashIndex,
    hash: Hash,
    serial: u64,
    /// By the clock that nobody sets.
    timers: BinaryHeap<Reverse<(u64, SaId)>>,
    clock: WallClock,
    changes: u64,
    acquiring: usize,
    /// The number of associations of IP in IP.
    ipip: usize,
    /// The number of associations that write a header in front of what they open.
    not_tunnels: usize,
    is_device: bool,
    pub(crate) traffic: TrafficCounters,
    /// Made for the first packet of IPComp.
    pub(crate) codec: Option<Box<Codec>>,
    aggregations: Aggregations,
}

impl Sad {
    /// An empty database. `seed` must be secret, so that nobody can construct hash collisions.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Sad {
            hot: Vec::new(),
            cold: Vec::new(),
            free: Vec::new(),
            by_spi: HashIndex::new(),
            by_pair: HashIndex::new(),
            hash: Hash::new(seed),
            serial: 0,
            timers: BinaryHeap::new(),
            clock: WallClock::default(),
            changes: 0,
            acquiring: 0,
            ipip: 0,
            not_tunnels: 0,
            is_device: false,
            traffic: TrafficCounters::default(),
            codec: None,
            aggregations: Aggregations::default(),
        }
    }

    /// An empty database of a packet offload device: it uses the states that are offloaded, and does not request
    /// missing ones.
    #[must_use]
    pub fn of_device(seed: u64) -> Self {
        Sad { is_device: true, ..Sad::new(seed) }
    }

    /// Whether packets without a state cause a request for one.
    pub(crate) fn asks(&self) -> bool {
        !self.is_device
    }

    /// The traffic of all states, also of those that are gone.
    #[must_use]
    pub fn traffic(&self) -> TrafficCounters {
        self.traffic
    }

    /// The number of associations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.cold.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A counter of changes: results of earlier look-ups are stale once it differs.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// The number of placeholders for states requested from the key manager.
    #[must_use]
    pub fn acquiring(&self) -> usize {
        self.acquiring
    }

    /// Whether all associations are in tunnel or IP-TFS mode, so that opening a packet needs no headroom
    /// ([`Inbound::described`](crate::open::Inbound::described)).
    #[must_use]
    pub fn has_only_tunnels(&self) -> bool {
        self.not_tunnels == 0
    }

    /// Adds an association.
    ///
    /// # Errors
    /// [`SaError`].
    pub fn add(&mut self, spec: SaSpec) -> Result<SaId, SaError> {
        if self.taken(&spec, None) {
            return Err(SaError::Exists);
        }
        let index = match self.free.last() {
            Some(index) => *index,
            None => u32::try_from(self.cold.len()).map_err(|_| SaError::Full)?,
        };
        let generation = self.hot.get(index as usize).map_or(1, |hot| hot.generation);
        let (mut hot, mut sa) = Sa::new(spec, self.serial, generation)?;
        if self.is_device && hot.state == SaState::Offloaded {
            hot.state = SaState::Valid;
        }
        sa.refill(&mut hot);
        self.serial += 1;
        self.changes += 1;
        self.acquiring += usize::from(matches!(hot.crypt, Crypt::None));
        self.ipip += usize::from(sa.proto == Proto::Ipip);
        self.not_tunnels += usize::from(!matches!(sa.mode, Mode::Tunnel | Mode::Iptfs));
        let id = SaId { index, generation };
        let (age, at) = sa.limits.time(&sa.usage(&hot), false, sa.add_time_s);
        sa.note_soft(age, sa.add_time_s);
        if let Some(at) = at {
            self.look_at(at, id);
        }
        if sa.spi != 0 {
            self.by_spi.insert(self.hash.of_spi(sa.spi), index);
        }
        let pair = self.hash.of_pair(sa.src, sa.dst, sa.reqid);
        let head = self.head(sa.src, sa.dst, sa.reqid);
        sa.older = head;
        match head {
            Some(head) => {
                self.cold_at_mut(head).newer = Some(index);
                self.by_pair.replace(pair, head, index);
            }
            None => self.by_pair.insert(pair, index),
        }
        if self.free.pop().is_some() {
            self.hot[index as usize] = hot;
            self.cold[index as usize] = Some(sa);
        } else {
            self.hot.push(hot);
            self.cold.push(Some(sa));
        }
        self.begin_pace(id);
        Ok(id)
    }

    /// Removes an association, and returns it with its usage.
    pub fn remove(&mut self, id: SaId) -> Option<(Sa, Usage)> {
        let hot = self.hot.get_mut(id.index as usize).filter(|hot| hot.generation == id.generation)?;
        let sa = self.cold.get_mut(id.index as usize)?.take()?;
        let usage = sa.usage(hot);
        self.changes += 1;
        self.acquiring -= usize::from(matches!(hot.crypt, Crypt::None));
        self.ipip -= usize::from(sa.proto == Proto::Ipip);
        self.not_tunnels -= usize::from(!matches!(sa.mode, Mode::Tunnel | Mode::Iptfs));
        hot.crypt = Crypt::None;
        hot.state = SaState::Dead;
        // After 2^32 uses of a slot a handle would repeat, so the slot is retired.
        hot.generation = hot.generation.wrapping_add(1);
        if hot.generation != 0 {
            self.free.push(id.index);
        }
        if sa.spi != 0 {
            self.by_spi.remove(self.hash.of_spi(sa.spi), id.index);
        }
        if let Some(older) = sa.older {
            self.cold_at_mut(older).newer = sa.newer;
        }
        match (sa.newer, sa.older) {
            (Some(newer), _) => self.cold_at_mut(newer).older = sa.older,
            (None, Some(older)) => {
                self.by_pair.replace(self.hash.of_pair(sa.src, sa.dst, sa.reqid), id.index, older);
            }
            (None, None) => self.by_pair.remove(self.hash.of_pair(sa.src, sa.dst, sa.reqid), id.index),
        }
        // Timers of deleted associations are skipped when due, unless too many have accumulated.
        if self.timers.len() > 2 * self.len() + SPARE_TIMERS {
            let hot = &self.hot;
            self.timers.retain(|Reverse((_, id))| hot[id.index as usize].generation == id.generation);
        }
        self.forget_gathered(id, &sa);
        Some((sa, usage))
    }

    /// An association, unless the handle is stale.
    #[must_use]
    pub fn get(&self, id: SaId) -> Option<&Sa> {
        self.hot.get(id.index as usize).filter(|hot| hot.generation == id.generation)?;
        self.cold.get(id.index as usize)?.as_ref()
    }

    /// The state of an association.
    #[must_use]
    pub fn state(&self, id: SaId) -> SaState {
        self.hot
            .get(id.index as usize)
            .filter(|hot| hot.generation == id.generation)
            .map_or(SaState::Dead, |hot| hot.state)
    }

    /// The keys of an association, for crypto without the database; `None` if it has none.
    #[must_use]
    pub fn key(&self, id: SaId) -> Option<SaKey> {
        let hot = self.hot.get(id.index as usize).filter(|hot| hot.generation == id.generation)?;
        (!matches!(hot.crypt, Crypt::None)).then(|| SaKey(hot.crypt.clone()))
    }

    /// The keys of jobs.
    pub fn keys(&self, jobs: &[Job], keys: &mut Keys) {
        keys.gather(jobs, |id| self.key(id));
    }

    /// The device that runs its crypto.
    #[must_use]
    pub fn crypto_device(&self, id: SaId) -> Option<CryptoDevice> {
        self.get(id)?.crypto_device
    }

    /// Sets the device that runs its crypto.
    pub fn set_crypto_device(&mut self, id: SaId, device: Option<CryptoDevice>) {
        if let Some((_, sa)) = self.pair_mut(id) {
            sa.crypto_device = device;
        }
    }

    /// Its usage.
    #[must_use]
    pub fn usage(&self, id: SaId) -> Option<Usage> {
        Some(self.get(id)?.usage(&self.hot[id.index as usize]))
    }

    /// The last number sent.
    #[must_use]
    pub fn out_number(&self, id: SaId) -> Option<u64> {
        self.get(id)?;
        Some(self.hot[id.index as usize].number)
    }

    /// Length of its ICV in bytes.
    #[must_use]
    pub fn icv_len(&self, id: SaId) -> Option<usize> {
        self.get(id)?;
        Some(self.hot[id.index as usize].icv_len.into())
    }

    /// The longest packet, in bytes, whose sealed form fits a path of `mtu`.
    #[must_use]
    pub fn inner_mtu(&self, id: SaId, mtu: u32) -> Option<u32> {
        Some(crate::mtu::inner_mtu(self.get(id)?, &self.hot[id.index as usize], mtu))
    }

    /// Replaces the limits.
    pub fn set_limits(&mut self, id: SaId, limits: Limits, now_s: u64) {
        let Some((hot, sa)) = self.pair_mut(id) else { return };
        sa.limits = limits;
        sa.dying = false;
        sa.refill(hot);
        let look = limits.time(&sa.usage(hot), false, now_s);
        sa.note_soft(look.0, now_s);
        self.look_again(id, look, now_s);
    }

    /// Replaces the usage by what another machine reports (`XFRMA_LTIME_VAL`).
    pub fn set_usage(&mut self, id: SaId, used: &Usage, now_s: u64) {
        let Some((hot, sa)) = self.pair_mut(id) else { return };
        sa.count_from(hot, used);
        sa.note_progress(hot);
        let look = sa.limits.time(used, sa.dying, now_s);
        sa.note_soft(look.0, now_s);
        self.look_again(id, look, now_s);
    }

    /// Sets a timer after limits or times have changed. A limit that is already reached takes effect a second later, as
    /// in Linux.
    fn look_again(&mut self, id: SaId, look: (Age, Option<u64>), now_s: u64) {
        let at = match look {
            (Age::Young, next) => next,
            (Age::Soft | Age::Hard, _) => Some(now_s.saturating_add(1)),
        };
        if let Some(at) = at {
            self.look_at(at, id);
        }
    }

    /// Starts a timer, in seconds of wall time.
    fn look_at(&mut self, at_s: u64, id: SaId) {
        self.timers.push(Reverse((self.clock.unset(at_s), id)));
    }

    /// Notes that the clock on the wall was set, by so many seconds. Timers go on as they were: limits are looked at when the
    /// time has passed, and then by what the clock says (`xfrm_timer_handler`).
    pub fn clock_was_set(&mut self, by_s: i64) {
        self.clock.was_set(by_s);
    }

    /// Renews the lease of sequence numbers, which the caller has stored.
    pub fn renew_lease(&mut self, id: SaId, lease: Lease) {
        if let Some((hot, sa)) = self.pair_mut(id) {
            sa.renew(hot, lease);
        }
    }

    /// Replaces the ports of its encapsulation if it has one, after the peer's NAT has changed.
    pub fn set_ports(&mut self, id: SaId, encap: Encap) {
        if let Some((_, sa)) = self.pair_mut(id)
            && sa.encap.is_some()
        {
            sa.encap = Some(encap);
        }
    }

    /// Moves it to another xfrm interface.
    pub fn set_if_id(&mut self, id: SaId, if_id: u32) {
        if let Some((_, sa)) = self.pair_mut(id) {
            sa.if_id = if_id;
            self.changes += 1;
            self.join_pair(id);
        }
    }

    /// Sets the numbers, sent and received, from which on the next packet causes [`Event::Numbers`]; `u64::MAX` for
    /// never. A state without a window has no number received.
    pub fn watch_numbers(&mut self, id: SaId, from: [u64; 2]) {
        if let Some((_, sa)) = self.pair_mut(id) {
            sa.notify_from = if sa.window.size_pkts() == 0 { [from[0], u64::MAX] } else { from };
        }
    }

    /// Replaces numbers and window by those of another machine (`XFRM_MSG_NEWAE`): the last number sent, the highest
    /// received, and the numbers of the window that have been `seen`.
    ///
    /// # Errors
    /// [`SaError::Gone`]; [`SaError::Backward`] if numbers would be sent twice; [`SaError::Window`] if `in_number`
    /// exceeds 32 bits and numbers are not extended.
    pub fn set_replay(
        &mut self,
        id: SaId,
        out_number: u64,
        in_number: u64,
        seen: impl IntoIterator<Item = u64>,
    ) -> Result<(), SaError> {
        let (hot, sa) = self.pair_mut(id).ok_or(SaError::Gone)?;
        if out_number < hot.number {
            return Err(SaError::Backward);
        }
        let mut window = Window::new(sa.window.size_pkts(), sa.flags.esn, in_number).ok_or(SaError::Window)?;
        seen.into_iter().for_each(|number| window.mark(number));
        sa.window = window;
        hot.number = out_number;
        sa.refill(hot);
        sa.note_progress(hot);
        Ok(())
    }

    /// Notes the progress of an association in these words from now on.
    pub fn set_progress(&mut self, id: SaId, words: Arc<dyn Words>) {
        if let Some((hot, sa)) = self.pair_mut(id) {
            sa.set_progress(hot, words);
        }
    }

    /// Changes the mark that packets which come through it get.
    pub fn change_set_mark(&mut self, id: SaId, mark: Mark) {
        if let Some((_, sa)) = self.pair_mut(id) {
            sa.set_mark = mark;
        }
    }

    /// Sets when its last packet came, in seconds of wall time.
    pub fn set_last_used(&mut self, id: SaId, at_s: u64) {
        if let Some((_, sa)) = self.pair_mut(id) {
            sa.last_used_s = at_s;
        }
    }

    /// Changes the outer addresses: the association continues under a new handle with its counters
    /// (`xfrm_state_migrate`).
    ///
    /// # Errors
    /// As [`Self::rebuild`].
    pub fn migrate(&mut self, id: SaId, src: IpAddr, dst: IpAddr) -> Result<SaId, SaError> {
        self.rebuild(id, |spec| (spec.src, spec.dst) = (src, dst))
    }

    /// Changes the specification: the association continues under a new handle with its keys and counters. Keys, salt
    /// and numbers must not be changed.
    ///
    /// # Errors
    /// [`SaError::Gone`], [`SaError::Family`], [`SaError::Exists`]: the database is unchanged.
    pub fn rebuild(&mut self, id: SaId, change: impl FnOnce(&mut SaSpec)) -> Result<SaId, SaError> {
        let (hot, sa) = self.pair_mut(id).ok_or(SaError::Gone)?;
        let (state, mut spec) = (hot.state, sa.moved(hot, sa.src, sa.dst));
        change(&mut spec);
        if family_of(spec.src) != family_of(spec.dst) {
            return Err(SaError::Family);
        }
        if self.taken(&spec, Some(id.index)) {
            return Err(SaError::Exists);
        }
        let (old, used) = self.remove(id).ok_or(SaError::Gone)?;
        let new = self.add(spec)?;
        let (hot, sa) = self.pair_mut(new).ok_or(SaError::Gone)?;
        sa.inherit(hot, &old, &used);
        hot.state = state;
        Ok(new)
    }

    /// All associations.
    pub fn iter(&self) -> impl Iterator<Item = (SaId, &Sa)> {
        let each = self.cold.iter().zip(&self.hot).zip(0..);
        each.filter_map(|((sa, hot), index)| Some((SaId { index, generation: hot.generation }, sa.as_ref()?)))
    }

    /// The association for an inbound packet (`xfrm_input_state_lookup`). If marks let several match, it is the newest.
    #[must_use]
    #[inline]
    pub fn find_in(&self, spi: u32, dst: IpAddr, proto: Proto, mark: u32) -> Option<SaId> {
        match self.by_spi.first(self.hash.of_spi(spi)).filter(|i| self.is_alone(*i, spi, dst, proto)) {
            Some(index) => Some(SaId { index, generation: self.hot[index as usize].generation }),
            None => self.find_among(spi, dst, proto, mark),
        }
    }

    /// Whether there is an association for the addresses of this packet of IP in IP, whatever its mark.
    pub(crate) fn has_ipip(&self, packet: &[u8]) -> bool {
        self.ipip != 0
            && address_pair(packet).is_ok_and(|(src, dst)| {
                self.of_spi(ipip_spi(src), dst, Proto::Ipip).any(|i| self.cold_at(i).src == src)
            })
    }

    /// The association for IP in IP between two addresses.
    pub(crate) fn find_ipip(&self, src: IpAddr, dst: IpAddr, mark: u32) -> Option<SaId> {
        let fits = |i: &u32| self.cold_at(*i).src == src && self.cold_at(*i).mark.matches(mark);
        let index =
            self.of_spi(ipip_spi(src), dst, Proto::Ipip).filter(fits).max_by_key(|i| self.cold_at(*i).serial)?;
        Some(SaId { index, generation: self.hot[index as usize].generation })
    }

    /// [`Self::find_in`] where several may match.
    #[inline(never)]
    fn find_among(&self, spi: u32, dst: IpAddr, proto: Proto, mark: u32) -> Option<SaId> {
        let fits = self.of_spi(spi, dst, proto).filter(|i| self.cold_at(*i).mark.matches(mark));
        let index = fits.max_by_key(|i| self.cold_at(*i).serial)?;
        Some(SaId { index, generation: self.hot[index as usize].generation })
    }

    /// Whether an association matches and has no mark. Then no other one matches: one added later with the same SPI,
    /// destination and protocol is refused, and this one is newer than those with marks.
    #[inline(always)]
    fn is_alone(&self, index: u32, spi: u32, dst: IpAddr, proto: Proto) -> bool {
        let sa = self.cold_at(index);
        sa.spi == spi && sa.dst == dst && sa.proto == proto && sa.mark.mask == 0
    }

    /// The associations for a burst of inbound packets. Each step is done for all of them before the next one, so that
    /// their cache misses overlap.
    pub fn find_burst(&self, names: &[(u32, IpAddr, Proto, u32)], out: &mut Vec<Option<SaId>>) {
        out.clear();
        let mut first = [None; BURST];
        for names in names.chunks(first.len()) {
            for (slot, name) in first.iter_mut().zip(names) {
                *slot = self.by_spi.first(self.hash.of_spi(name.0));
            }
            let firsts = first.iter().zip(names);
            out.extend(firsts.map(|(first, (spi, dst, proto, mark))| {
                match first.filter(|i| self.is_alone(*i, *spi, *dst, *proto)) {
                    Some(index) => Some(SaId { index, generation: self.hot[index as usize].generation }),
                    None => self.find_among(*spi, *dst, *proto, *mark),
                }
            }));
        }
    }

    /// Whether there are so many associations that memory is prefetched for each burst.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.cold.len() >= WARM_FROM
    }

    /// Prefetches the associations of outbound packets.
    pub fn warm(&self, ids: impl Iterator<Item = SaId>) {
        if self.is_large() {
            ids.for_each(|id| self.warm_at(id.index, OUT_LINES));
        }
    }

    fn warm_at(&self, index: u32, lines: usize) {
        if let (Some(hot), Some(cold)) = (self.hot.get(index as usize), self.cold.get(index as usize)) {
            prefetch(hot, 1);
            prefetch(cold, lines);
        }
    }

    /// Prefetches the newest associations of (source, destination, reqid), [`BURST`] of them at most. Each step is done
    /// for all of them before the next one.
    pub(crate) fn warm_pairs(&self, pairs: impl Iterator<Item = (IpAddr, IpAddr, u32)>) {
        if !self.is_large() {
            return;
        }
        let hashes: ArrayVec<u32, BURST> =
            pairs.take(BURST).map(|(src, dst, reqid)| self.hash.of_pair(src, dst, reqid)).collect();
        hashes.iter().for_each(|hash| self.by_pair.warm_tags(*hash));
        hashes.iter().for_each(|hash| self.by_pair.warm_entry(*hash));
        let heads = hashes.iter().filter_map(|hash| self.by_pair.first(*hash));
        heads.for_each(|index| self.warm_at(index, FIND_LINES));
    }

    /// Prefetches the associations of a burst of inbound packets, given by SPI and sequence number. Each step is done
    /// for all of them before the next one.
    pub(crate) fn warm_in(&self, names: impl Iterator<Item = (u32, u32)>) {
        if !self.is_large() {
            return;
        }
        let hashes: ArrayVec<(u32, u32), BURST> =
            names.take(BURST).map(|(spi, seq)| (self.hash.of_spi(spi), seq)).collect();
        hashes.iter().for_each(|(hash, _)| self.by_spi.warm_tags(*hash));
        hashes.iter().for_each(|(hash, _)| self.by_spi.warm_entry(*hash));
        let firsts: ArrayVec<Option<u32>, BURST> = hashes.iter().map(|(hash, _)| self.by_spi.first(*hash)).collect();
        firsts.iter().flatten().for_each(|index| self.warm_at(*index, IN_LINES));
        for (index, (_, seq)) in firsts.iter().zip(&hashes) {
            if let Some(sa) = index.and_then(|index| self.cold[index as usize].as_ref()) {
                sa.window.warm(*seq);
            }
        }
    }

    /// The association for an outbound packet (`xfrm_state_find`). One that is not dying is preferred, then the one
    /// added in the latest second, then the last one added; and one of this CPU to one of every CPU.
    #[must_use]
    pub fn find_out(&self, wanted: &SaQuery, flow: &Flow) -> Found {
        let (mut best, mut acquiring, mut expired): (Option<u32>, _, _) = (None, None, false);
        let any = match wanted.src {
            IpAddr::V4(_) => IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(_) => IpAddr::V6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        for src in [wanted.src, any] {
            let mut at = self.head(src, wanted.dst, wanted.reqid);
            while let Some(index) = at {
                let sa = self.cold_at(index);
                at = sa.older;
                let fits = sa.mark.matches(wanted.mark)
                    && sa.if_id == wanted.if_id
                    && sa.device == wanted.device
                    && !sa.flags.wildrecv
                    && sa.mode == wanted.mode
                    && sa.proto == wanted.proto
                    && (wanted.spi == 0 || wanted.spi == sa.spi);
                if !fits {
                    continue;
                }
                let selected = sa.selector.family.is_none() || sa.selector.matches(flow);
                match self.hot[index as usize].state {
                    SaState::Valid | SaState::Offloaded
                        if selected
                            && sa.cpu.is_none_or(|cpu| cpu == wanted.cpu)
                            && best.is_none_or(|best| self.better(sa, self.cold_at(best), wanted.cpu)) =>
                    {
                        best = Some(index);
                    }
                    SaState::Acquiring => acquiring = acquiring.or(Some(index)),
                    SaState::Expired if selected => expired = true,
                    _ => {}
                }
            }
            if best.is_some() || acquiring.is_some() || src == any {
                break;
            }
        }
        let id = |index: u32| SaId { index, generation: self.hot[index as usize].generation };
        match (best, acquiring) {
            (Some(best), _) => Found::State(id(best)),
            (None, Some(acquiring)) => Found::Acquiring(id(acquiring)),
            (None, None) if expired => Found::Expired,
            (None, None) => Found::None,
        }
    }

    /// Whether the key manager has been asked for an association of this CPU.
    pub(crate) fn acquiring_for_cpu(&self, wanted: &SaQuery) -> bool {
        let mut at = self.head(wanted.src, wanted.dst, wanted.reqid);
        while let Some(index) = at {
            let sa = self.cold_at(index);
            at = sa.older;
            let fits = (sa.proto, sa.mode, sa.if_id) == (wanted.proto, wanted.mode, wanted.if_id);
            if fits && sa.cpu == Some(wanted.cpu) && self.hot[index as usize].state == SaState::Acquiring {
                return true;
            }
        }
        false
    }

    fn better(&self, sa: &Sa, best: &Sa, cpu: u32) -> bool {
        (best.cpu.is_none() && sa.cpu == Some(cpu))
            || best.dying & !sa.dying
            || (best.dying == sa.dying && best.add_time_s < sa.add_time_s)
    }

    /// When [`Self::handle_timeout`] must be called, in seconds of wall time.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<u64> {
        self.timers.peek().map(|Reverse((at, _))| self.clock.wall_s(*at))
    }

    /// Handles limits on time.
    pub fn handle_timeout(&mut self, now_s: u64, events: &mut Vec<Event>) {
        while self.poll_timeout().is_some_and(|at| at <= now_s)
            && let Some(Reverse((_, id))) = self.timers.pop()
        {
            let Some((hot, sa)) = self.pair_mut(id) else { continue };
            if hot.state == SaState::Expired {
                continue;
            }
            sa.excuse(now_s);
            let (age, next) = sa.limits.time(&sa.usage(hot), sa.dying, now_s);
            sa.note_soft(age, now_s);
            match age {
                Age::Young => {}
                Age::Soft => {
                    sa.dying = true;
                    sa.refill(hot);
                    self.changes += 1;
                    events.push(Event::SoftExpire(id));
                }
                Age::Hard => {
                    hot.state = SaState::Expired;
                    self.changes += 1;
                    events.push(Event::HardExpire(id));
                }
            }
            if let Some(next) = next {
                self.look_at(next, id);
            }
        }
    }

    /// Handles a limit that may have been reached, see [`Sa::at_limit`].
    pub(crate) fn at_limit(&mut self, id: SaId, dir: SaDir, events: &mut Vec<Event>) -> Result<(), DropReason> {
        let told = events.len();
        let Some((hot, sa)) = self.pair_mut(id) else { return Ok(()) };
        let outcome = sa.at_limit(id, hot, dir, events);
        // Another association may be preferred now.
        self.changes += u64::from(events.len() != told);
        outcome
    }

    pub(crate) fn hot(&self) -> &[Hot] {
        &self.hot
    }

    pub(crate) fn pair_mut(&mut self, id: SaId) -> Option<(&mut Hot, &mut Sa)> {
        let hot = self.hot.get_mut(id.index as usize).filter(|hot| hot.generation == id.generation)?;
        Some((hot, self.cold.get_mut(id.index as usize)?.as_mut()?))
    }

    fn cold_at(&self, index: u32) -> &Sa {
        self.cold[index as usize].as_ref().expect("tables name associations that exist")
    }

    fn cold_at_mut(&mut self, index: u32) -> &mut Sa {
        self.cold[index as usize].as_mut().expect("tables name associations that exist")
    }

    fn of_spi(&self, spi: u32, dst: IpAddr, proto: Proto) -> impl Iterator<Item = u32> {
        self.by_spi.find(self.hash.of_spi(spi)).filter(move |index| {
            let sa = self.cold_at(*index);
            sa.spi == spi && sa.dst == dst && sa.proto == proto
        })
    }

    /// Whether an association other than `except` has the same SPI, destination and protocol.
    fn taken(&self, spec: &SaSpec, except: Option<u32>) -> bool {
        let mark = spec.mark.value & spec.mark.mask;
        // The numbers of IP in IP are made of its sources, and two of IPv6 may have the same.
        let differs = |i: u32| spec.proto == Proto::Ipip && self.cold_at(i).src != spec.src;
        let same = |i: u32| Some(i) != except && self.cold_at(i).mark.matches(mark) && !differs(i);
        spec.spi != 0 && self.of_spi(spec.spi, spec.dst, spec.proto).any(same)
    }

    fn head(&self, src: IpAddr, dst: IpAddr, reqid: u32) -> Option<u32> {
        self.by_pair.find(self.hash.of_pair(src, dst, reqid)).find(|index| {
            let sa = self.cold_at(*index);
            sa.src == src && sa.dst == dst && sa.reqid == reqid && family_of(sa.dst) == family_of(dst)
        })
    }

    /// Memory of one association's slot in bytes, without keys and window.
    #[must_use]
    pub const fn slot_len() -> usize {
        size_of::<Hot>() + size_of::<Option<Sa>>()
    }
}
