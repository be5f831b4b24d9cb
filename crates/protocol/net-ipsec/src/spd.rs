//! The security policy database: which traffic is protected and how, which bypasses IPsec, and which is discarded.
//!
//! Policies with the same masks form a group with one hash table, so that a look-up takes one probe for each kind of
//! masks, however many policies there are. Groups are searched in the order of their best policy, until none of the
//! rest can win. [`cache`] remembers flows, [`resolve`] finds the states for an outbound packet, [`check`] checks an
//! inbound one.

use crate::index::{Hash, HashIndex};
use crate::lifetime::{Age, Limits, Usage};
use crate::sa::{Mode, Proto};
use crate::selector::{Flow, Mark, Selector, family_of};
use arrayvec::ArrayVec;
use core::fmt;
use core::net::IpAddr;
use sealane_wire::ip::Family;
use std::collections::BTreeSet;

pub mod cache;
pub mod check;
mod lookup;
pub mod resolve;

/// The maximum number of templates of a policy (`XFRM_MAX_DEPTH`).
pub const MAX_TEMPLATES: usize = 6;

/// The direction of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dir {
    /// Packets to this host.
    In = 0,
    /// Packets from this host, and forwarded packets as they leave.
    Out = 1,
    /// Forwarded packets.
    Fwd = 2,
}

/// The action of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// The traffic passes, protected by the templates if there are any.
    Allow,
    /// The traffic is dropped.
    Block,
}

/// One transformation that a policy requires (`struct xfrm_tmpl`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Outer source, unspecified for any.
    pub src: IpAddr,
    /// Outer destination of a tunnel.
    pub dst: IpAddr,
    /// ESP or AH.
    pub proto: Proto,
    /// Mode.
    pub mode: Mode,
    /// The request id, which links the template to states.
    pub reqid: u32,
    /// SPI, 0 for any.
    pub spi: u32,
    /// Whether it is skipped if there is no state (`level use`).
    pub optional: bool,
}

/// A policy. The fields that packets use come first, up to the first template: [`FRONT_LINES`].
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub struct Policy {
    /// Direction.
    pub dir: Dir,
    /// Action.
    pub action: Action,
    /// Whether ICMP errors about its traffic are treated like that traffic (`XFRM_POLICY_ICMP`).
    pub icmp: bool,
    /// Whether each CPU gets states of its own (RFC 9611, `XFRM_POLICY_CPU_ACQUIRE`): a CPU without any requests some,
    /// and uses those of every CPU in the meantime.
    pub cpu_acquire: bool,
    /// The mark of its packets.
    pub mark: Mark,
    /// The interface id of xfrm interfaces.
    pub if_id: u32,
    /// The packet offload device. Policies of devices precede all others, the newest first.
    pub device: Option<u32>,
    /// Transformations, innermost first.
    pub templates: ArrayVec<Template, MAX_TEMPLATES>,
    /// Its traffic; the selector's family is set.
    pub selector: Selector,
    /// The lowest number comes first.
    pub priority: u32,
    /// The kernel's index: unique, its lowest three bits are the direction.
    pub index: u32,
    /// Limits on time; limits on volume apply to states.
    pub limits: Limits,
    /// When it was added, in seconds of wall time.
    pub add_time_s: u64,
}

/// The number of cache lines of a policy that packets use.
const FRONT_LINES: usize = 2;

const _: () = assert!(core::mem::offset_of!(Policy, templates) + 8 + size_of::<Template>() <= FRONT_LINES * 64);

impl Policy {
    /// A policy that lets traffic pass, to be adapted as needed.
    #[must_use]
    pub fn allow(dir: Dir, selector: Selector) -> Self {
        Policy {
            dir,
            selector,
            priority: 0,
            action: Action::Allow,
            icmp: false,
            cpu_acquire: false,
            mark: Mark::default(),
            if_id: 0,
            templates: ArrayVec::new(),
            device: None,
            limits: Limits::NONE,
            add_time_s: 0,
            index: 0,
        }
    }

    /// Whether it matches a flow (`xfrm_policy_match`).
    #[must_use]
    pub fn matches(&self, flow: &Flow, if_id: u32) -> bool {
        self.if_id == if_id && self.mark.matches(flow.mark) && self.selector.matches(flow)
    }
}

/// The handle of a policy. It never refers to another one, even after deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    slot: u32,
    generation: u32,
}

/// Reasons why a policy cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    /// There is already one with this selector, mark and interface id.
    Exists,
    /// Its selector has no family, or addresses of two families.
    Family,
    /// The table is full.
    Full,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyError::Exists => "there is already a policy with this selector",
            PolicyError::Family => "the selector's family does not match its addresses",
            PolicyError::Full => "the table of policies is full",
        })
    }
}

impl core::error::Error for PolicyError {}

/// The order of policies: those of devices first, the newest first; then by priority, the oldest first.
type Rank = (bool, u32, i64);

/// The part of a policy that a look-up uses once it matches.
struct Ranked {
    rank: Rank,
    generation: u32,
    /// When it was used last, 0 if never. It is here because this part is in the caches after a look-up.
    use_time_s: u64,
}

const _: () = assert!(size_of::<Ranked>() == 32);

/// The parts of a flow that a selector compares.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Masks {
    destination_len: u8,
    source_len: u8,
    dport: u16,
    sport: u16,
    proto: bool,
    ifindex: bool,
}

impl Masks {
    fn of(selector: &Selector) -> Self {
        Masks {
            destination_len: selector.destination_len,
            source_len: selector.source_len,
            dport: selector.dport_mask,
            sport: selector.sport_mask,
            proto: selector.proto != 0,
            ifindex: selector.ifindex != 0,
        }
    }

    fn words(&self, family: Family) -> Words {
        let bits = |len: u8| match family {
            Family::V4 => u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0).into(),
            Family::V6 => u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0),
        };
        let proto = if self.proto { u8::MAX } else { 0 };
        let ifindex = if self.ifindex { u32::MAX } else { 0 };
        Words::new(family, bits(self.source_len), bits(self.destination_len), self.sport, self.dport, proto, ifindex)
    }
}

/// A flow, a selector's values or a group's masks, packed into a few words.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    /// For IPv4 both addresses are in the first word.
    addrs: [u64; 4],
    /// Ports and protocol.
    upper: u64,
    ifindex: u32,
}

impl Words {
    fn new(family: Family, source: u128, destination: u128, sport: u16, dport: u16, proto: u8, ifindex: u32) -> Self {
        let addrs = match family {
            Family::V4 => [(source << 32 | destination) as u64, 0, 0, 0],
            Family::V6 => [source as u64, (source >> 64) as u64, destination as u64, (destination >> 64) as u64],
        };
        Words { addrs, upper: u64::from(proto) << 32 | u64::from(sport) << 16 | u64::from(dport), ifindex }
    }

    /// Packs a flow; `None` if its addresses are of two families.
    fn of(flow: &Flow) -> Option<(Family, Self)> {
        let (family, source, destination) = match (flow.source, flow.destination) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (Family::V4, a.to_bits().into(), b.to_bits().into()),
            (IpAddr::V6(a), IpAddr::V6(b)) => (Family::V6, a.to_bits(), b.to_bits()),
            _ => return None,
        };
        let Flow { sport, dport, proto, ifindex, .. } = *flow;
        Some((family, Words::new(family, source, destination, sport, dport, proto, ifindex as u32)))
    }

    /// Packs the values of a selector that has a family, under its own masks.
    fn of_selector(selector: &Selector, masks: &Words) -> Option<Self> {
        let Selector { source, destination, proto, sport, dport, ifindex, .. } = *selector;
        let values = Flow { source, destination, proto, sport, dport, mark: 0, ifindex };
        Some(Words::of(&values)?.1.under(masks))
    }

    fn under(&self, masks: &Words) -> Self {
        Words {
            addrs: std::array::from_fn(|i| self.addrs[i] & masks.addrs[i]),
            upper: self.upper & masks.upper,
            ifindex: self.ifindex & masks.ifindex,
        }
    }

    fn hash(&self, hash: &Hash, family: Family) -> u32 {
        let [a, b, c, d] = self.addrs;
        let rest = hash.mix(self.upper, self.ifindex.into());
        let all = match family {
            Family::V4 => hash.mix(a, rest),
            Family::V6 => hash.mix(hash.mix(a, b), hash.mix(c, d) ^ rest),
        };
        (all >> 32) as u32
    }
}

/// The part of a policy that a look-up compares: one cache line.
#[repr(align(64))]
struct LookupKey {
    /// The values under the group's masks.
    values: Words,
    mark: Mark,
    if_id: u32,
    /// The slot of the next policy with the same values, in the order of ranks.
    next: u32,
}

const _: () = assert!(size_of::<LookupKey>() == 64);

/// The slot number that stands for no policy.
const NONE: u32 = u32::MAX;

struct Group {
    masks: Masks,
    words: Words,
    /// The first policy for each set of values.
    table: HashIndex,
    ranks: BTreeSet<Rank>,
    /// The lowest of the ranks.
    best: Rank,
}

/// The database.
pub struct Spd {
    policies: Vec<Option<Policy>>,
    keys: Vec<LookupKey>,
    ranked: Vec<Ranked>,
    free: Vec<u32>,
    /// The groups of each direction and family, in the order of their best policies.
    groups: [Vec<Group>; 6],
    defaults: [Action; 3],
    hash: Hash,
    serial: i64,
    next_index: u32,
    changes: u64,
}

impl Spd {
    /// An empty database, which lets everything pass. `seed` must be secret, so that nobody can construct hash
    /// collisions.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Spd {
            policies: Vec::new(),
            keys: Vec::new(),
            ranked: Vec::new(),
            free: Vec::new(),
            groups: [const { Vec::new() }; 6],
            defaults: [Action::Allow; 3],
            hash: Hash::new(seed),
            serial: 0,
            next_index: 8,
            changes: 0,
        }
    }

    /// The number of policies.
    #[must_use]
    pub fn len(&self) -> usize {
        self.policies.len() - self.free.len()
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

    /// Counts a change even if nothing changed: a flush of an empty database, for example, must be
    /// followed by those who derive rules from it.
    pub fn confirm(&mut self) {
        self.changes += 1;
    }

    /// Sets the action for traffic without a policy (`XFRM_MSG_SETDEFAULT`).
    pub fn set_default(&mut self, dir: Dir, action: Action) {
        self.defaults[dir as usize] = action;
        self.changes += 1;
    }

    /// The action for traffic without a policy.
    #[must_use]
    pub fn default_action(&self, dir: Dir) -> Action {
        self.defaults[dir as usize]
    }

    /// A policy, unless the handle is stale.
    #[must_use]
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        self.ranked.get(id.slot as usize).filter(|entry| entry.generation == id.generation)?;
        self.policies[id.slot as usize].as_ref()
    }

    /// All policies.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        self.policies.iter().zip(0..).filter_map(|(policy, slot)| Some((self.id(slot), policy.as_ref()?)))
    }

    /// The policies of a direction in the order in which they apply.
    #[must_use]
    pub fn ordered(&self, dir: Dir) -> Vec<&Policy> {
        let of_dir =
            self.policies.iter().zip(&self.ranked).filter_map(|(policy, entry)| Some((entry.rank, policy.as_ref()?)));
        let mut all: Vec<_> = of_dir.filter(|(_, policy)| policy.dir == dir).collect();
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().map(|(_, policy)| policy).collect()
    }

    /// The policy with exactly this selector, mark and interface id.
    #[must_use]
    pub fn find(&self, dir: Dir, selector: &Selector, mark: Mark, if_id: u32) -> Option<PolicyId> {
        let family = selector.family?;
        let masks = Masks::of(selector);
        let group = self.groups[group_slot(dir, family)].iter().find(|group| group.masks == masks)?;
        let values = Words::of_selector(selector, &group.words)?;
        let hash = values.hash(&self.hash, family);
        let mut slot = self.head(group, hash, &values);
        // Selectors that differ only in bits behind the prefix match the same traffic, but they are different
        // selectors.
        while slot != NONE {
            let policy = self.policy(slot);
            if policy.selector == *selector && policy.mark == mark && policy.if_id == if_id {
                return Some(self.id(slot));
            }
            slot = self.key(slot).next;
        }
        None
    }

    /// Adds a policy. With `replace` it takes the place of the one with the same selector, mark and interface id.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn add(&mut self, mut policy: Policy, replace: bool) -> Result<PolicyId, PolicyError> {
        policy.mark.value &= policy.mark.mask;
        let old = self.find(policy.dir, &policy.selector, policy.mark, policy.if_id);
        if old.is_some() && !replace { Err(PolicyError::Exists) } else { self.put(policy, old) }
    }

    /// Adds a policy, in the place of `old` if that is there: it inherits its index, and its position among policies of
    /// the same priority. Others may have the same selector, mark and interface id: the first is for their packets.
    ///
    /// # Errors
    /// [`PolicyError::Family`], [`PolicyError::Full`].
    pub fn put(&mut self, mut policy: Policy, old: Option<PolicyId>) -> Result<PolicyId, PolicyError> {
        let family = policy.selector.family.ok_or(PolicyError::Family)?;
        if family_of(policy.selector.source) != family || family_of(policy.selector.destination) != family {
            return Err(PolicyError::Family);
        }
        policy.mark.value &= policy.mark.mask;
        let mut serial = self.serial;
        if let Some(old) = old.filter(|old| self.get(*old).is_some()) {
            let (there, rank) = (self.policy(old.slot), self.ranked[old.slot as usize].rank);
            policy.index = there.index;
            if (there.priority, there.device) == (policy.priority, policy.device) {
                serial = rank.2.abs();
            }
            self.remove(old);
        } else if policy.index == 0 {
            policy.index = self.next_index | policy.dir as u32;
            self.next_index = self.next_index.wrapping_add(8).max(8);
        }
        self.serial += 1;
        self.changes += 1;
        let rank = match policy.device {
            Some(_) => (false, 0, -serial),
            None => (true, policy.priority, serial),
        };
        let masks = Masks::of(&policy.selector);
        let words = masks.words(family);
        let values = Words::of_selector(&policy.selector, &words).ok_or(PolicyError::Family)?;
        let key = LookupKey { values, mark: policy.mark, if_id: policy.if_id, next: NONE };
        let at = group_slot(policy.dir, family);
        let slot = match self.free.pop() {
            Some(slot) => {
                self.policies[slot as usize] = Some(policy);
                self.keys[slot as usize] = key;
                (self.ranked[slot as usize].rank, self.ranked[slot as usize].use_time_s) = (rank, 0);
                slot
            }
            None => {
                let slot = u32::try_from(self.policies.len()).ok().filter(|slot| *slot != NONE);
                let slot = slot.ok_or(PolicyError::Full)?;
                self.policies.push(Some(policy));
                self.keys.push(key);
                self.ranked.push(Ranked { rank, generation: 1, use_time_s: 0 });
                slot
            }
        };
        let groups = &mut self.groups[at];
        let group = groups.iter().position(|group| group.masks == masks).unwrap_or_else(|| {
            groups.push(Group { masks, words, table: HashIndex::new(), ranks: BTreeSet::new(), best: rank });
            groups.len() - 1
        });
        self.link(slot, (at, group), values.hash(&self.hash, family));
        Ok(self.id(slot))
    }

    fn link(&mut self, slot: u32, (at, group): (usize, usize), hash: u32) {
        let rank_of = |ranked: &[Ranked], slot: u32| ranked[slot as usize].rank;
        let rank = rank_of(&self.ranked, slot);
        let values = self.key(slot).values;
        let head = self.head(&self.groups[at][group], hash, &values);
        let table = &mut self.groups[at][group].table;
        if head == NONE {
            table.insert(hash, slot);
        } else if rank < rank_of(&self.ranked, head) {
            table.replace(hash, head, slot);
            self.keys[slot as usize].next = head;
        } else {
            let mut before = head;
            loop {
                let next = self.key(before).next;
                if next == NONE || rank < rank_of(&self.ranked, next) {
                    break;
                }
                before = next;
            }
            self.keys[slot as usize].next = self.key(before).next;
            self.keys[before as usize].next = slot;
        }
        self.groups[at][group].ranks.insert(rank);
        self.sort(at);
    }

    fn sort(&mut self, at: usize) {
        let groups = &mut self.groups[at];
        groups.retain_mut(|group| match group.ranks.first() {
            Some(first) => {
                group.best = *first;
                true
            }
            None => false,
        });
        if !groups.is_sorted_by_key(|group| group.best) {
            groups.sort_by_key(|group| group.best);
        }
    }

    /// Removes a policy.
    pub fn remove(&mut self, id: PolicyId) -> Option<Policy> {
        let policy = self.get(id)?;
        let family = policy.selector.family?;
        let (at, masks) = (group_slot(policy.dir, family), Masks::of(&policy.selector));
        let group = self.groups[at].iter().position(|group| group.masks == masks)?;
        let (values, next) = (self.key(id.slot).values, self.key(id.slot).next);
        let hash = values.hash(&self.hash, family);
        let head = self.head(&self.groups[at][group], hash, &values);
        let rank = self.ranked[id.slot as usize].rank;
        let group = &mut self.groups[at][group];
        if head != id.slot {
            let mut before = head;
            while self.keys.get(before as usize)?.next != id.slot {
                before = self.keys[before as usize].next;
            }
            self.keys[before as usize].next = next;
        } else if next != NONE {
            group.table.replace(hash, head, next);
        } else {
            group.table.remove(hash, head);
        }
        group.ranks.remove(&rank);
        self.sort(at);
        self.changes += 1;
        // After 2^32 uses of a slot a handle would repeat, so the slot is retired.
        let entry = &mut self.ranked[id.slot as usize];
        entry.generation = entry.generation.wrapping_add(1);
        if entry.generation != 0 {
            self.free.push(id.slot);
        }
        self.policies[id.slot as usize].take()
    }

    /// Records that a policy was used.
    pub fn used(&mut self, id: PolicyId, now_s: u64) {
        if let Some(entry) = self.ranked.get_mut(id.slot as usize).filter(|entry| entry.generation == id.generation)
            && entry.use_time_s != now_s
        {
            entry.use_time_s = now_s;
        }
    }

    /// When a policy was used last, in seconds of wall time; 0 if never.
    #[must_use]
    pub fn use_time_s(&self, id: PolicyId) -> u64 {
        let entry = self.ranked.get(id.slot as usize).filter(|entry| entry.generation == id.generation);
        entry.map_or(0, |entry| entry.use_time_s)
    }

    /// Evaluates a policy's limits on time, and returns when to do so again.
    #[must_use]
    pub fn age(&self, id: PolicyId, now_s: u64) -> Option<(Age, Option<u64>)> {
        let policy = self.get(id)?;
        let used = Usage { add_time_s: policy.add_time_s, use_time_s: self.use_time_s(id), ..Usage::default() };
        Some(policy.limits.time(&used, false, now_s))
    }

    fn id(&self, slot: u32) -> PolicyId {
        PolicyId { slot, generation: self.ranked[slot as usize].generation }
    }

    fn policy(&self, slot: u32) -> &Policy {
        self.policies[slot as usize].as_ref().expect("tables name policies that exist")
    }

    fn key(&self, slot: u32) -> &LookupKey {
        &self.keys[slot as usize]
    }

    /// The first policy of a group with these values, or [`NONE`].
    fn head(&self, group: &Group, hash: u32, values: &Words) -> u32 {
        group.table.find(hash).find(|slot| self.key(*slot).values == *values).unwrap_or(NONE)
    }
}

/// The position in [`Spd::groups`] of a direction and family.
fn group_slot(dir: Dir, family: Family) -> usize {
    dir as usize * 2 + usize::from(family == Family::V6)
}
