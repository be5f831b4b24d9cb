//! The flow cache: the way of an outbound flow, until a policy or state changes.

use crate::ipsec::drop::DropReason;
use crate::ipsec::event::Event;
use crate::ipsec::sad::{Hash, Sad};
use crate::ipsec::selector::Flow;
use crate::ipsec::spd::Spd;
use crate::ipsec::spd::resolve::{Leaving, Way, resolve};

struct Slot {
    flow: Flow,
    if_id: u32,
    cpu: u32,
    /// Changes of policies and of states when it was made.
    changes: (u64, u64),
    way: Way,
}

/// A table of flows of a fixed size: a flow that falls on another's place takes it.
pub struct FlowCache {
    slots: Vec<Option<Slot>>,
    hash: Hash,
    hits: u64,
    misses: u64,
}

impl FlowCache {
    /// For about `flows` flows; `seed` keeps strangers from choosing what collides.
    #[must_use]
    pub fn new(flows: usize, seed: u64) -> Self {
        let len = flows.next_power_of_two();
        FlowCache { slots: (0..len).map(|_| None).collect(), hash: Hash::new(seed), hits: 0, misses: 0 }
    }

    /// How often a flow was there, and how often not.
    #[must_use]
    pub fn hits_and_misses(&self) -> (u64, u64) {
        (self.hits, self.misses)
    }

    /// The way of a packet, as [`resolve`] finds it. What is refused is not remembered.
    ///
    /// # Errors
    /// As [`resolve`].
    #[expect(clippy::missing_panics_doc, reason = "a slot that was refilled or found fresh is taken")]
    pub fn resolve<'c>(
        &'c mut self,
        spd: &Spd,
        sad: &mut Sad,
        leaving: &Leaving<'_>,
        events: &mut Vec<Event>,
    ) -> Result<&'c Way, DropReason> {
        let Leaving { flow, if_id, cpu, .. } = *leaving;
        let ports = u64::from(flow.sport) << 16 | u64::from(flow.dport) | u64::from(flow.proto) << 32;
        let rest = self.hash.mix(ports, u64::from(flow.mark) << 32 | u64::from(flow.ifindex as u32));
        let hash = self.hash.addr(flow.destination, self.hash.addr(flow.source, rest ^ u64::from(if_id)));
        let changes = (spd.changes(), sad.changes());
        let at = (hash >> 20) as usize & (self.slots.len() - 1);
        let fresh = self.slots[at]
            .as_ref()
            .is_some_and(|s| s.changes == changes && s.flow == *flow && (s.if_id, s.cpu) == (if_id, cpu));
        if fresh {
            self.hits += 1;
        } else {
            self.misses += 1;
            let way = resolve(spd, sad, leaving, events)?;
            // Resolving may itself have changed the states.
            let changes = (spd.changes(), sad.changes());
            self.slots[at] = Some(Slot { flow: *flow, if_id, cpu, changes, way });
        }
        Ok(&self.slots[at].as_ref().expect("it has just been filled").way)
    }
}
