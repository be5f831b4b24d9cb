//! The flow cache: the decision for an outbound flow, valid until a policy or state changes.

use crate::drop::DropReason;
use crate::event::Event;
use crate::index::Hash;
use crate::sad::Sad;
use crate::selector::Flow;
use crate::spd::Spd;
use crate::spd::resolve::{Decision, OutboundQuery, resolve};
use sealane_cpu::prefetch;

/// The number of slots from which on memory is prefetched; smaller tables stay in the caches.
const WARM_FROM: usize = 1024;

/// Two cache lines.
#[repr(align(64))]
struct CacheSlot {
    flow: Flow,
    if_id: u32,
    cpu: u32,
    /// The sum of both change counters when the slot was filled. Neither ever decreases, so any change alters the sum.
    changes: u64,
    decision: Decision,
}

const _: () = assert!(size_of::<Option<CacheSlot>>() == 128);

fn changes(spd: &Spd, sad: &Sad) -> u64 {
    spd.changes().wrapping_add(sad.changes())
}

/// A table of flows. A flow whose slot is occupied replaces the other one; if that happens often, the table grows.
pub struct FlowCache {
    slots: Vec<Option<CacheSlot>>,
    hash: Hash,
    hits: u64,
    misses: u64,
    /// A count of flows with a valid decision that were replaced since the table has grown.
    crowded: usize,
}

impl FlowCache {
    /// A cache for about `flows` flows. `seed` must be secret, so that nobody can construct collisions.
    #[must_use]
    pub fn new(flows: usize, seed: u64) -> Self {
        let len = flows.next_power_of_two();
        FlowCache { slots: (0..len).map(|_| None).collect(), hash: Hash::new(seed), hits: 0, misses: 0, crowded: 0 }
    }

    /// The numbers of hits and misses.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    fn place(&self, flow: &Flow, if_id: u32) -> usize {
        let ports = u64::from(flow.sport) << 16 | u64::from(flow.dport) | u64::from(flow.proto) << 32;
        let rest = self.hash.mix(ports, u64::from(flow.mark) << 32 | u64::from(flow.ifindex as u32));
        let hash = self.hash.addr(flow.destination, self.hash.addr(flow.source, rest ^ u64::from(if_id)));
        (hash >> 20) as usize & (self.slots.len() - 1)
    }

    fn fresh(&self, at: usize, changes: u64, query: &OutboundQuery<'_>) -> Option<&Decision> {
        let OutboundQuery { flow, if_id, cpu, .. } = *query;
        let same = |s: &&CacheSlot| s.changes == changes && s.flow == *flow && (s.if_id, s.cpu) == (if_id, cpu);
        self.slots[at].as_ref().filter(same).map(|slot| &slot.decision)
    }

    /// The cached decision for a packet.
    #[must_use]
    pub fn find(&mut self, spd: &Spd, sad: &Sad, query: &OutboundQuery<'_>) -> Option<&Decision> {
        let at = self.place(query.flow, query.if_id);
        let changes = changes(spd, sad);
        if self.fresh(at, changes, query).is_some() {
            self.hits += 1;
        } else {
            self.misses += 1;
        }
        self.fresh(at, changes, query)
    }

    /// Whether a decision for a packet is cached.
    #[must_use]
    pub fn knows(&self, spd: &Spd, sad: &Sad, query: &OutboundQuery<'_>) -> bool {
        self.fresh(self.place(query.flow, query.if_id), changes(spd, sad), query).is_some()
    }

    /// Caches a decision that was just resolved. Resolving may itself have changed the states.
    pub fn put(&mut self, spd: &Spd, sad: &Sad, query: &OutboundQuery<'_>, decision: Decision) -> &Decision {
        let OutboundQuery { flow, if_id, cpu, .. } = *query;
        let at = self.place(flow, if_id);
        let changes = changes(spd, sad);
        let other = |s: &CacheSlot| s.changes == changes && (s.flow, s.if_id, s.cpu) != (*flow, if_id, cpu);
        self.crowded += usize::from(self.slots[at].as_ref().is_some_and(other));
        &self.slots[at].insert(CacheSlot { flow: *flow, if_id, cpu, changes, decision }).decision
    }

    /// Enlarges and empties the table if it is too small for its flows, up to `flows` slots. To be called occasionally
    /// by an owner of many states.
    pub fn grow(&mut self, flows: usize) {
        if self.crowded > self.slots.len() && self.slots.len() < flows {
            let len = (self.slots.len() * 4).min(flows.next_power_of_two());
            self.slots = (0..len).map(|_| None).collect();
            self.crowded = 0;
        }
    }

    /// Prefetches the slot of a flow, to be called for all packets of a burst before [`Self::resolve`].
    pub fn warm(&self, flow: &Flow, if_id: u32) {
        if self.slots.len() >= WARM_FROM {
            prefetch(&self.slots[self.place(flow, if_id)], 2);
        }
    }

    /// The decision for a packet, from the cache or from [`resolve`]. Refusals are not cached.
    ///
    /// # Errors
    /// As [`resolve`].
    #[expect(clippy::missing_panics_doc, reason = "a slot that was found or filled is taken")]
    pub fn resolve<'c>(
        &'c mut self,
        spd: &Spd,
        sad: &mut Sad,
        query: &OutboundQuery<'_>,
        events: &mut Vec<Event>,
    ) -> Result<&'c Decision, DropReason> {
        if self.find(spd, sad, query).is_none() {
            let decision = resolve(spd, sad, query, events)?;
            self.put(spd, sad, query, decision);
        }
        let at = self.place(query.flow, query.if_id);
        Ok(&self.slots[at].as_ref().expect("it was found or filled").decision)
    }
}
