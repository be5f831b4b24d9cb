//! Policy look-up: groups of equal masks are searched in the order of their best policies, until none of the rest can
//! have a better one.

use crate::selector::Flow;
use crate::spd::{Dir, FRONT_LINES, Group, NONE, PolicyId, Rank, Spd, Words, group_slot};
use arrayvec::ArrayVec;
use sealane_cpu::prefetch;
use sealane_wire::ip::Family;

/// The number of policies from which on memory is prefetched; fewer stay in the caches.
const WARM_FROM: usize = 256;

/// The number of policies from which on prefetching pays for more than a few groups.
const VERY_MANY: usize = 400_000;
const FEW_GROUPS: usize = 4;

/// The number of flows, and of groups, whose hashes are kept during a burst.
const FLOWS: usize = 16;
const GROUPS: usize = 16;

/// The best match so far.
type Best = Option<(Rank, u32)>;

impl Spd {
    /// The policy for a flow (`xfrm_policy_lookup`), whose addresses are of one family.
    #[must_use]
    pub fn lookup(&self, dir: Dir, flow: &Flow, if_id: u32) -> Option<PolicyId> {
        let (family, words) = Words::of(flow)?;
        let mut best: Best = None;
        for group in &self.groups[group_slot(dir, family)] {
            if is_beaten(best, group) {
                break;
            }
            self.best_in_group(group, self.hash_in(group, family, &words), &words, flow.mark, if_id, &mut best);
        }
        best.map(|(_, slot)| self.id(slot))
    }

    /// Whether there are so many policies that memory is prefetched for each burst.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.policies.len() >= WARM_FROM
    }

    /// Writes the policies for a burst of flows to `out`. Each step is done for many of them before the next one, so
    /// that their cache misses overlap. The policies found are prefetched, too.
    pub fn lookup_burst(&self, dir: Dir, flows: &[Flow], if_id: u32, out: &mut [Option<PolicyId>]) {
        let each = flows.iter().zip(&mut *out);
        if !self.is_large() {
            each.for_each(|(flow, found)| *found = self.lookup(dir, flow, if_id));
            return;
        }
        // A look-up in many groups overlaps its own cache misses.
        let groups = self.groups[group_slot(dir, Family::V4)].len().max(self.groups[group_slot(dir, Family::V6)].len());
        if groups > FEW_GROUPS && self.policies.len() < VERY_MANY {
            each.for_each(|(flow, found)| *found = self.lookup(dir, flow, if_id));
        } else {
            let chunks = flows.chunks(FLOWS).zip(out.chunks_mut(FLOWS));
            chunks.for_each(|(flows, found)| self.lookup_chunk(dir, flows, if_id, found));
        }
        for id in out.iter().take(flows.len()).flatten() {
            prefetch(&self.policies[id.slot as usize], FRONT_LINES);
        }
    }

    fn lookup_chunk(&self, dir: Dir, flows: &[Flow], if_id: u32, out: &mut [Option<PolicyId>]) {
        let mut hashes = [[0; GROUPS]; FLOWS];
        let words: ArrayVec<Option<(Family, Words)>, FLOWS> = flows.iter().map(Words::of).collect();
        let each = || words.iter().enumerate().filter_map(|(i, words)| Some((i, words.as_ref()?)));
        let groups = |family: Family| &self.groups[group_slot(dir, family)];
        for (i, (family, words)) in each() {
            for (hash, group) in hashes[i].iter_mut().zip(groups(*family)) {
                *hash = self.hash_in(group, *family, words);
                group.table.warm_tags(*hash);
            }
        }
        for (i, (family, _)) in each() {
            hashes[i].iter().zip(groups(*family)).for_each(|(hash, group)| group.table.warm_entry(*hash));
        }
        for (i, (family, _)) in each() {
            for slot in hashes[i].iter().zip(groups(*family)).filter_map(|(hash, group)| group.table.first(*hash)) {
                prefetch(self.key(slot), 1);
                prefetch(&self.ranked[slot as usize], 1);
            }
        }
        for (((words, hashes), flow), found) in words.iter().zip(&hashes).zip(flows).zip(out) {
            *found = words.as_ref().and_then(|(family, words)| {
                let mut best: Best = None;
                for (at, group) in groups(*family).iter().enumerate() {
                    if is_beaten(best, group) {
                        break;
                    }
                    let hash = hashes.get(at).copied().unwrap_or_else(|| self.hash_in(group, *family, words));
                    self.best_in_group(group, hash, words, flow.mark, if_id, &mut best);
                }
                best.map(|(_, slot)| self.id(slot))
            });
        }
    }

    #[inline(always)]
    fn hash_in(&self, group: &Group, family: Family, words: &Words) -> u32 {
        words.under(&group.words).hash(&self.hash, family)
    }

    /// Updates `best` if a group has a better policy.
    #[inline(always)]
    fn best_in_group(&self, group: &Group, hash: u32, words: &Words, mark: u32, if_id: u32, best: &mut Best) {
        let mut slot = self.head(group, hash, &words.under(&group.words));
        while slot != NONE {
            let key = self.key(slot);
            if key.if_id == if_id && key.mark.matches(mark) {
                let rank = self.ranked[slot as usize].rank;
                if best.is_none_or(|(best, _)| rank < best) {
                    *best = Some((rank, slot));
                }
                return;
            }
            slot = key.next;
        }
    }
}

fn is_beaten(best: Best, group: &Group) -> bool {
    best.is_some_and(|(rank, _)| rank < group.best)
}
