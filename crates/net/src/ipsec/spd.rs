//! The security policy database: which traffic must be protected how, which passes, which does not.
//!
//! Policies with the same masks form a group with one hash table, so that a look-up costs as many probes as there are kinds
//! of masks, however many policies there are; groups are asked in the order of their best policy, and those that cannot win
//! any more are not asked. [`cache`] remembers flows, [`resolve`] finds the states that an outbound packet goes through,
//! [`check`] judges an inbound one.

use crate::ipsec::lifetime::{Age, Limits, Usage};
use crate::ipsec::sa::{Mode, Proto};
use crate::ipsec::sad::{Hash, Index};
use crate::ipsec::selector::{Flow, Mark, Selector, family_of};
use crate::wire::ip::Family;
use arrayvec::ArrayVec;
use core::fmt;
use core::net::IpAddr;
use std::collections::BTreeSet;

pub mod cache;
pub mod check;
pub mod resolve;

/// How many templates a policy may have (`XFRM_MAX_DEPTH`).
pub const MAX_TEMPLATES: usize = 6;

/// Which packets a policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Dir {
    /// Those for this host.
    In = 0,
    /// Those that leave.
    Out = 1,
    /// Those that are forwarded.
    Fwd = 2,
}

/// What becomes of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They pass, by the templates if there are any.
    Allow,
    /// They are dropped.
    Block,
}

/// One transformation that a policy asks for (`struct xfrm_tmpl`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Template {
    /// Outer source; unspecified for any.
    pub src: IpAddr,
    /// Outer destination of a tunnel.
    pub dst: IpAddr,
    /// ESP or AH.
    pub proto: Proto,
    /// Mode.
    pub mode: Mode,
    /// Joins it with states.
    pub reqid: u32,
    /// SPI; 0 for any.
    pub spi: u32,
    /// Whether it is left out where there is no state (`level use`).
    pub optional: bool,
}

/// A policy.
#[derive(Debug, Clone)]
pub struct Policy {
    /// Which packets.
    pub dir: Dir,
    /// Which traffic; its family is said.
    pub selector: Selector,
    /// The least number comes first.
    pub priority: u32,
    /// What becomes of it.
    pub action: Action,
    /// Which marks.
    pub mark: Mark,
    /// The interface id of xfrm interfaces.
    pub if_id: u32,
    /// Transformations, innermost first.
    pub templates: ArrayVec<Template, MAX_TEMPLATES>,
    /// The device that serves it in packet offload: such policies come before all others, the newest first.
    pub device: Option<u32>,
    /// Limits of time; those of volume are the states' matter.
    pub limits: Limits,
    /// When it was added, in seconds of wall time.
    pub add_time_s: u64,
    /// When it was used last; 0 before that.
    pub use_time_s: u64,
    /// The kernel's index: unique, its lowest three bits are the direction.
    pub index: u32,
}

impl Policy {
    /// One that lets traffic pass, to be changed as needed.
    #[must_use]
    pub fn allow(dir: Dir, selector: Selector) -> Self {
        Policy {
            dir,
            selector,
            priority: 0,
            action: Action::Allow,
            mark: Mark::default(),
            if_id: 0,
            templates: ArrayVec::new(),
            device: None,
            limits: Limits::NONE,
            add_time_s: 0,
            use_time_s: 0,
            index: 0,
        }
    }

    /// Whether it is for a flow (`xfrm_policy_match`).
    #[must_use]
    pub fn matches(&self, flow: &Flow, if_id: u32) -> bool {
        self.if_id == if_id && self.mark.matches(flow.mark) && self.selector.matches(flow)
    }

    /// What the clock says of it, and when to ask again.
    #[must_use]
    pub fn age(&self, now_s: u64) -> (Age, Option<u64>) {
        let used = Usage { add_time_s: self.add_time_s, use_time_s: self.use_time_s, ..Usage::default() };
        self.limits.time(&used, false, now_s)
    }
}

/// A handle: it never names another policy than the one it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    slot: u32,
    generation: u32,
}

/// Why a policy cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PolicyError {
    /// There is one with this selector, mark and interface id.
    Exists,
    /// Its selector has no family, or addresses of two.
    Family,
    /// As many as there can be.
    Full,
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicyError::Exists => "there is a policy with this selector",
            PolicyError::Family => "the selector's family does not suit its addresses",
            PolicyError::Full => "as many policies as there can be",
        })
    }
}

impl core::error::Error for PolicyError {}

/// The order of policies: device policies before others, the newest first; then by priority, the oldest first.
type Rank = (bool, u32, i64);

struct Entry {
    policy: Policy,
    rank: Rank,
    /// The next of the same masked values, in the order of ranks.
    next: Option<u32>,
}

/// What of a flow counts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Masks {
    dir: Dir,
    family: Family,
    destination_len: u8,
    source_len: u8,
    dport: u16,
    sport: u16,
    proto: bool,
    ifindex: bool,
}

impl Masks {
    fn of(policy: &Policy, family: Family) -> Self {
        let s = &policy.selector;
        Masks {
            dir: policy.dir,
            family,
            destination_len: s.destination_len,
            source_len: s.source_len,
            dport: s.dport_mask,
            sport: s.sport_mask,
            proto: s.proto != 0,
            ifindex: s.ifindex != 0,
        }
    }

    fn hash(&self, hash: &Hash, flow: &Flow) -> u32 {
        let ports = u64::from(flow.sport & self.sport) << 16 | u64::from(flow.dport & self.dport);
        let proto = if self.proto { u64::from(flow.proto) << 32 } else { 0 };
        let interface = if self.ifindex { u64::from(flow.ifindex as u32) } else { 0 };
        let rest = hash.mix(ports | proto, interface);
        let both = hash.addr(
            masked(flow.destination, self.destination_len),
            hash.addr(masked(flow.source, self.source_len), rest),
        );
        (both >> 32) as u32
    }
}

/// The address with all but its first `len` bits 0.
fn masked(addr: IpAddr, len: u8) -> IpAddr {
    match addr {
        IpAddr::V4(a) => {
            IpAddr::V4((a.to_bits() & u32::MAX.checked_shl(32 - u32::from(len.min(32))).unwrap_or(0)).into())
        }
        IpAddr::V6(a) => {
            IpAddr::V6((a.to_bits() & u128::MAX.checked_shl(128 - u32::from(len.min(128))).unwrap_or(0)).into())
        }
    }
}

/// The values of a selector as a flow.
fn values(selector: &Selector) -> Flow {
    Flow {
        source: selector.source,
        destination: selector.destination,
        proto: selector.proto,
        sport: selector.sport,
        dport: selector.dport,
        mark: 0,
        ifindex: selector.ifindex,
    }
}

struct Group {
    masks: Masks,
    /// The first policy of each set of masked values.
    table: Index,
    ranks: BTreeSet<Rank>,
}

/// The database.
pub struct Spd {
    entries: Vec<(u32, Option<Entry>)>,
    free: Vec<u32>,
    /// In the order of their best policies.
    groups: Vec<Group>,
    defaults: [Action; 3],
    hash: Hash,
    serial: i64,
    next_index: u32,
    changes: u64,
}

impl Spd {
    /// An empty one, which lets everything pass. `seed` keeps strangers from choosing what collides.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Spd {
            entries: Vec::new(),
            free: Vec::new(),
            groups: Vec::new(),
            defaults: [Action::Allow; 3],
            hash: Hash::new(seed),
            serial: 0,
            next_index: 8,
            changes: 0,
        }
    }

    /// How many policies there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts changes: what was looked up before one is to be looked up again.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// What becomes of traffic without a policy (`XFRM_MSG_SETDEFAULT`).
    pub fn set_default(&mut self, dir: Dir, action: Action) {
        self.defaults[dir as usize] = action;
        self.changes += 1;
    }

    /// What becomes of traffic without a policy.
    #[must_use]
    pub fn default_action(&self, dir: Dir) -> Action {
        self.defaults[dir as usize]
    }

    /// A policy, unless the handle is stale.
    #[must_use]
    pub fn get(&self, id: PolicyId) -> Option<&Policy> {
        let (generation, entry) = self.entries.get(id.slot as usize)?;
        Some(&entry.as_ref().filter(|_| *generation == id.generation)?.policy)
    }

    /// All policies.
    pub fn iter(&self) -> impl Iterator<Item = (PolicyId, &Policy)> {
        self.entries.iter().zip(0..).filter_map(|((generation, entry), slot)| {
            Some((PolicyId { slot, generation: *generation }, &entry.as_ref()?.policy))
        })
    }

    /// The policy of a selector, mark and interface id.
    #[must_use]
    pub fn find(&self, dir: Dir, selector: &Selector, mark: Mark, if_id: u32) -> Option<PolicyId> {
        let same = |p: &Policy| p.selector == *selector && p.mark == mark && p.if_id == if_id;
        let masks = Masks::of(&Policy { dir, ..Policy::allow(dir, *selector) }, selector.family?);
        let group = self.groups.iter().find(|group| group.masks == masks)?;
        let hash = masks.hash(&self.hash, &values(selector));
        let mut at = group.table.find(hash).find(|slot| self.same_values(&masks, *slot, &values(selector)));
        while let Some(slot) = at {
            let entry = self.entry(slot);
            if same(&entry.policy) {
                return Some(self.id(slot));
            }
            at = entry.next;
        }
        None
    }

    /// Adds a policy; `replace` takes the place of the one with the same selector, mark and interface id, its index too, and
    /// its place among those of its priority.
    ///
    /// # Errors
    /// [`PolicyError`].
    pub fn add(&mut self, mut policy: Policy, replace: bool) -> Result<PolicyId, PolicyError> {
        let family = policy.selector.family.ok_or(PolicyError::Family)?;
        if family_of(policy.selector.source) != family || family_of(policy.selector.destination) != family {
            return Err(PolicyError::Family);
        }
        policy.mark.value &= policy.mark.mask;
        let old = self.find(policy.dir, &policy.selector, policy.mark, policy.if_id);
        let mut serial = self.serial;
        if let Some(old) = old {
            if !replace {
                return Err(PolicyError::Exists);
            }
            let entry = self.entry(old.slot);
            policy.index = entry.policy.index;
            if (entry.policy.priority, entry.policy.device) == (policy.priority, policy.device) {
                serial = entry.rank.2.abs();
            }
            self.remove(old);
        } else if policy.index == 0 {
            policy.index = self.next_index | policy.dir as u32;
            self.next_index = self.next_index.wrapping_add(8).max(8);
        }
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                let slot = u32::try_from(self.entries.len()).map_err(|_| PolicyError::Full)?;
                self.entries.push((1, None));
                slot
            }
        };
        self.serial += 1;
        self.changes += 1;
        let rank = match policy.device {
            Some(_) => (false, 0, -serial),
            None => (true, policy.priority, serial),
        };
        let masks = Masks::of(&policy, family);
        let flow = values(&policy.selector);
        self.entries[slot as usize].1 = Some(Entry { policy, rank, next: None });
        self.link(slot, masks, &flow, rank);
        Ok(self.id(slot))
    }

    fn link(&mut self, slot: u32, masks: Masks, flow: &Flow, rank: Rank) {
        let at = self.groups.iter().position(|group| group.masks == masks).unwrap_or_else(|| {
            self.groups.push(Group { masks, table: Index::new(), ranks: BTreeSet::new() });
            self.groups.len() - 1
        });
        let hash = masks.hash(&self.hash, flow);
        let head = self.groups[at].table.find(hash).find(|head| self.same_values(&masks, *head, flow));
        match head {
            None => self.groups[at].table.insert(hash, slot),
            Some(head) if rank < self.entry(head).rank => {
                self.entry_mut(slot).next = Some(head);
                self.groups[at].table.replace(hash, head, slot);
            }
            Some(head) => {
                let mut before = head;
                while let Some(next) = self.entry(before).next.filter(|next| self.entry(*next).rank < rank) {
                    before = next;
                }
                self.entry_mut(slot).next = self.entry(before).next;
                self.entry_mut(before).next = Some(slot);
            }
        }
        self.groups[at].ranks.insert(rank);
        self.sort();
    }

    fn sort(&mut self) {
        self.groups.retain(|group| !group.ranks.is_empty());
        if !self.groups.is_sorted_by_key(|group| group.ranks.first().copied()) {
            self.groups.sort_by_key(|group| group.ranks.first().copied());
        }
    }

    /// Takes a policy out.
    pub fn remove(&mut self, id: PolicyId) -> Option<Policy> {
        let policy = self.get(id)?;
        let masks = Masks::of(policy, policy.selector.family?);
        let flow = values(&policy.selector);
        let hash = masks.hash(&self.hash, &flow);
        let at = self.groups.iter().position(|group| group.masks == masks)?;
        let head = self.groups[at].table.find(hash).find(|head| self.same_values(&masks, *head, &flow))?;
        let next = self.entry(id.slot).next;
        if head != id.slot {
            let mut before = head;
            while self.entry(before).next != Some(id.slot) {
                before = self.entry(before).next?;
            }
            self.entry_mut(before).next = next;
        } else if let Some(next) = next {
            self.groups[at].table.replace(hash, head, next);
        } else {
            self.groups[at].table.remove(hash, head);
        }
        let slot = &mut self.entries[id.slot as usize];
        let entry = slot.1.take()?;
        // After 2^32 uses of a slot a handle could come back: the slot is given up then.
        slot.0 = slot.0.wrapping_add(1);
        if slot.0 != 0 {
            self.free.push(id.slot);
        }
        self.groups[at].ranks.remove(&entry.rank);
        self.changes += 1;
        self.sort();
        Some(entry.policy)
    }

    /// The policy for a flow (`xfrm_policy_lookup`).
    #[must_use]
    pub fn lookup(&self, dir: Dir, flow: &Flow, if_id: u32) -> Option<PolicyId> {
        let family = family_of(flow.destination);
        let mut best: Option<(Rank, u32)> = None;
        for group in &self.groups {
            if (group.masks.dir, group.masks.family) != (dir, family) {
                continue;
            }
            let first = group.ranks.first().copied();
            if best.is_some_and(|(rank, _)| first.is_none_or(|first| rank < first)) {
                break;
            }
            let hash = group.masks.hash(&self.hash, flow);
            let mut at = group.table.find(hash).find(|slot| self.entry(*slot).policy.selector.matches(flow));
            while let Some(slot) = at {
                let entry = self.entry(slot);
                if best.is_some_and(|(rank, _)| rank < entry.rank) {
                    break;
                }
                if entry.policy.matches(flow, if_id) {
                    best = Some((entry.rank, slot));
                    break;
                }
                at = entry.next;
            }
        }
        best.map(|(_, slot)| self.id(slot))
    }

    /// A policy was used.
    pub fn used(&mut self, id: PolicyId, now_s: u64) {
        if self.get(id).is_some() {
            self.entry_mut(id.slot).policy.use_time_s = now_s;
        }
    }

    fn id(&self, slot: u32) -> PolicyId {
        PolicyId { slot, generation: self.entries[slot as usize].0 }
    }

    fn entry(&self, slot: u32) -> &Entry {
        self.entries[slot as usize].1.as_ref().expect("tables name policies that exist")
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        self.entries[slot as usize].1.as_mut().expect("tables name policies that exist")
    }

    /// Whether a policy has these values under its masks.
    fn same_values(&self, masks: &Masks, slot: u32, flow: &Flow) -> bool {
        let other = values(&self.entry(slot).policy.selector);
        masked(other.destination, masks.destination_len) == masked(flow.destination, masks.destination_len)
            && masked(other.source, masks.source_len) == masked(flow.source, masks.source_len)
            && (other.dport ^ flow.dport) & masks.dport == 0
            && (other.sport ^ flow.sport) & masks.sport == 0
            && (!masks.proto || other.proto == flow.proto)
            && (!masks.ifindex || other.ifindex == flow.ifindex)
    }
}
