//! The peers of one family. They may overlap, but the elements of an interval set must not.
//!
//! Keys may name 10.0.0.0/8 and 10.1.0.0/16, several times each; an interval set of nftables refuses overlaps. The set
//! therefore holds only the prefixes that no other one contains, and changes of the peers are translated into changes
//! of the set.

use crate::table::{Element, Part};
use sealane_sys::mask;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The sets of peers of a family: hosts, and prefixes. Adding or removing an element of a hashed set takes as long as a
/// lookup; adding one to 100,000 intervals takes 12 ms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sets {
    pub(super) sets: [&'static str; 2],
    pub(super) key: &'static [Part],
}

/// The sets of both families.
pub(super) const PEERS: [Sets; 2] =
    [Sets { sets: ["hosts4", "nets4"], key: &[Part::V4] }, Sets { sets: ["hosts6", "nets6"], key: &[Part::V6] }];

/// A prefix of either family: the address is in the upper 32 or all 128 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Bits {
    /// The address; bits beyond the prefix are zero.
    pub(super) first: u128,
    /// The prefix length in bits.
    pub(super) len: u8,
}

impl Bits {
    /// The first `len` bits of `address`, given in the upper bits.
    pub(super) fn new(address: u128, len: u8) -> Self {
        Bits { first: address & mask(len), len }
    }

    /// The last address of the prefix, with all lower bits set.
    pub(super) fn last(self) -> u128 {
        self.first | !mask(self.len)
    }

    /// Whether it is a single address of family 0 or 1.
    pub(super) fn is_host(self, family: usize) -> bool {
        self.len == [32, 128][family]
    }

    fn contains(self, other: Bits) -> bool {
        self.len <= other.len && other.first & mask(self.len) == self.first
    }
}

/// The family of a prefix (0 or 1) and its bits.
pub(super) fn bits(address: IpAddr, len: u8) -> (usize, Bits) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            // The prefix length of an IPv4-mapped address counts from the start of the v6 address.
            let len = if address.is_ipv6() { len.saturating_sub(96) } else { len };
            (0, Bits::new(u128::from(v4.to_bits()) << 96, len))
        }
        IpAddr::V6(v6) => (1, Bits::new(v6.to_bits(), len)),
    }
}

/// Prefixes of a family as elements of its sets: of hosts, and of prefixes. An interval is its first address, and the first
/// one after it with a flag. The interval that ends with the last address has no end.
pub(super) fn elements(family: usize, prefixes: Vec<Bits>) -> [Vec<Element>; 2] {
    let (len, host_bits) = [(4, 96), (16, 0)][family];
    let key = |address: u128| address.to_be_bytes()[..len].to_vec();
    let (hosts, nets): (Vec<_>, Vec<_>) = prefixes.into_iter().partition(|prefix| prefix.is_host(family));
    let mut intervals = Vec::with_capacity(nets.len() * 2);
    for prefix in nets {
        intervals.push(Element::new(key(prefix.first)));
        let last = prefix.last() >> host_bits << host_bits;
        intervals.extend(last.checked_add(1 << host_bits).map(|end| Element { key: key(end), ends: true }));
    }
    [hosts.into_iter().map(|host| Element::new(key(host.first))).collect(), intervals]
}

/// A change of the set.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    /// Prefixes to remove, before the others are added.
    pub(super) remove: Vec<Bits>,
    /// Prefixes to add.
    pub(super) add: Vec<Bits>,
}

impl Change {
    /// The combined effect of `changes`, one after another.
    pub(super) fn all(changes: impl Iterator<Item = Change>) -> Change {
        let mut net = BTreeMap::<Bits, i32>::new();
        for change in changes {
            change.remove.into_iter().for_each(|p| *net.entry(p).or_default() -= 1);
            change.add.into_iter().for_each(|p| *net.entry(p).or_default() += 1);
        }
        let of = |sign| net.iter().filter(|n| *n.1 == sign).map(|n| *n.0).collect();
        Change { remove: of(-1), add: of(1) }
    }
}

/// The peers of one family, with the number of users of each.
#[derive(Debug)]
pub(super) struct Peers {
    family: usize,
    /// Single addresses. They have a set of their own, independent of the prefixes.
    hosts: BTreeMap<Bits, u32>,
    nets: Cover,
}

impl Peers {
    /// No peers, of family 0 or 1.
    pub(super) fn new(family: usize) -> Self {
        Peers { family, hosts: BTreeMap::new(), nets: Cover::default() }
    }

    /// Adds a user of `prefix`.
    pub(super) fn add(&mut self, prefix: Bits) -> Change {
        if !prefix.is_host(self.family) {
            return self.nets.add(prefix);
        }
        let users = self.hosts.entry(prefix).or_insert(0);
        *users += 1;
        Change { remove: vec![], add: if *users == 1 { vec![prefix] } else { vec![] } }
    }

    /// Removes a user of `prefix`. Does nothing if there is none.
    pub(super) fn remove(&mut self, prefix: Bits) -> Change {
        if !prefix.is_host(self.family) {
            return self.nets.remove(prefix);
        }
        match self.hosts.get_mut(&prefix) {
            None => return Change::default(),
            Some(users) if *users > 1 => {
                *users -= 1;
                return Change::default();
            }
            Some(_) => self.hosts.remove(&prefix),
        };
        Change { remove: vec![prefix], add: vec![] }
    }

    /// Whether there are prefixes besides single addresses.
    pub(super) fn has_nets(&self) -> bool {
        !self.nets.wanted.is_empty()
    }

    /// The elements of the sets.
    pub(super) fn all(&self) -> Vec<Bits> {
        let mut all = self.nets.all();
        all.extend(self.hosts.keys());
        all
    }
}

/// The prefixes of one family, with the number of users of each.
#[derive(Debug, Default)]
struct Cover {
    wanted: BTreeMap<Bits, u32>,
}

impl Cover {
    /// Adds a user of `prefix`.
    fn add(&mut self, prefix: Bits) -> Change {
        let users = self.wanted.entry(prefix).or_insert(0);
        *users += 1;
        if *users > 1 || self.covered(prefix) {
            return Change::default();
        }
        Change { remove: self.below(prefix), add: vec![prefix] }
    }

    /// Removes a user of `prefix`. Does nothing if there is none.
    fn remove(&mut self, prefix: Bits) -> Change {
        match self.wanted.get_mut(&prefix) {
            None => return Change::default(),
            Some(users) if *users > 1 => {
                *users -= 1;
                return Change::default();
            }
            Some(_) => self.wanted.remove(&prefix),
        };
        if self.covered(prefix) {
            return Change::default();
        }
        Change { remove: vec![prefix], add: self.below(prefix) }
    }

    /// The elements of the set.
    fn all(&self) -> Vec<Bits> {
        maximal(self.wanted.keys().copied())
    }

    /// Whether another prefix contains this one.
    fn covered(&self, prefix: Bits) -> bool {
        (0..prefix.len).any(|len| self.wanted.contains_key(&Bits::new(prefix.first, len)))
    }

    /// The prefixes strictly within `prefix` that no other one within it contains.
    fn below(&self, prefix: Bits) -> Vec<Bits> {
        let range = prefix..=Bits { first: prefix.last(), len: 128 };
        maximal(self.wanted.range(range).map(|(&p, _)| p).filter(|p| *p != prefix))
    }
}

/// The prefixes that no other one contains; `prefixes` must be in ascending order.
fn maximal(prefixes: impl Iterator<Item = Bits>) -> Vec<Bits> {
    let mut out: Vec<Bits> = Vec::new();
    for prefix in prefixes {
        if out.last().is_none_or(|last| !last.contains(prefix)) {
            out.push(prefix);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(a: u8, b: u8, c: u8, d: u8, len: u8) -> Bits {
        Bits::new(u128::from(u32::from_be_bytes([a, b, c, d])) << 96, len)
    }

    #[test]
    fn a_wider_prefix_replaces_those_within_and_gives_them_back() {
        let mut cover = Cover::default();
        let (host, net, wide) = (v4(10, 1, 2, 3, 32), v4(10, 1, 0, 0, 16), v4(10, 0, 0, 0, 8));
        assert_eq!(cover.add(host), Change { remove: vec![], add: vec![host] });
        assert_eq!(cover.add(net), Change { remove: vec![host], add: vec![net] });
        assert_eq!(cover.add(wide), Change { remove: vec![net], add: vec![wide] });
        assert_eq!(cover.remove(net), Change::default(), "the wide one covers it");
        assert_eq!(cover.add(net), Change::default());
        assert_eq!(cover.remove(wide), Change { remove: vec![wide], add: vec![net] });
        assert_eq!(cover.all(), [net]);
        assert_eq!(cover.remove(net), Change { remove: vec![net], add: vec![host] });
        assert_eq!(cover.add(host), Change::default(), "a second user");
        assert_eq!(cover.remove(host), Change::default(), "one is left");
        assert_eq!(cover.remove(host), Change { remove: vec![host], add: vec![] });
        assert_eq!(cover.remove(host), Change::default(), "nobody asked for it");
        assert_eq!(cover.all(), []);
    }

    #[test]
    fn hosts_are_a_matter_of_their_own() {
        let mut peers = Peers::new(0);
        let (host, net) = (v4(10, 1, 2, 3, 32), v4(10, 1, 0, 0, 16));
        assert_eq!(peers.add(net).add, [net]);
        assert_eq!(peers.add(host), Change { remove: vec![], add: vec![host] });
        assert_eq!(peers.add(host), Change::default());
        assert_eq!(peers.all(), [net, host]);
        assert_eq!(peers.remove(host), Change::default());
        assert_eq!(peers.remove(net), Change { remove: vec![net], add: vec![] });
        assert_eq!(peers.remove(host), Change { remove: vec![host], add: vec![] });
        assert_eq!(peers.remove(host), Change::default());
    }

    #[test]
    fn many_changes_become_one() {
        let mut cover = Cover::default();
        let (host, net) = (v4(10, 1, 2, 3, 32), v4(10, 1, 0, 0, 16));
        let both = Change::all([cover.add(host), cover.add(net)].into_iter());
        assert_eq!(both, Change { remove: vec![], add: vec![net] });
        let none = Change::all([cover.remove(net), cover.add(net)].into_iter());
        assert_eq!(none, Change::default());
    }

    #[test]
    fn the_set_never_overlaps_and_always_covers() {
        // Random additions and removals, compared with the plain definition.
        let (mut cover, mut set, mut wanted) = (Cover::default(), Vec::<Bits>::new(), Vec::<Bits>::new());
        let mut state = 1u64;
        let mut random = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        for _ in 0..4000 {
            let prefix = v4(10, 0, random(4) as u8, random(8) as u8, [0, 8, 22, 24, 30, 31, 32][random(7) as usize]);
            let change = if random(2) == 0 {
                wanted.push(prefix);
                cover.add(prefix)
            } else {
                if let Some(at) = wanted.iter().position(|w| *w == prefix) {
                    wanted.swap_remove(at);
                }
                cover.remove(prefix)
            };
            for gone in change.remove {
                let at = set.iter().position(|s| *s == gone).expect("only what is in the set is taken out");
                set.swap_remove(at);
            }
            set.extend(change.add);
            let mut expected: Vec<_> =
                wanted.iter().filter(|w| !wanted.iter().any(|o| o != *w && o.contains(**w))).copied().collect();
            expected.sort_unstable();
            expected.dedup();
            set.sort_unstable();
            assert_eq!(set, expected);
            assert_eq!(cover.all(), expected);
        }
    }
}
