//! Policies that one rule stands for: they come one behind another, have the same end, and differ by their addresses only. A rule of
//! many tunnels looks their addresses up in a set of its own, which costs about as much as the rule of one policy.

use super::wanted::{Match, Rules, Then};
use crate::rule::Pair;
use crate::value::Prefix;

/// Pairs of a group at most. With as many, a field's rules fill one word of the kernel's bitmaps (`nft_set_pipapo`): those of fields with
/// different numbers of words were mixed up before Linux 6.11.
const PAIRS: usize = 64;

/// Policies with one rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group<'a> {
    /// The first of them.
    pub(super) of: &'a Match,
    /// Their sources and destinations. None has an address that another one has too.
    pub(super) between: Vec<Pair>,
    pub(super) then: Then,
}

/// The groups of policies, in their order; groups of one where rules have no sets of their own.
pub(super) fn groups(rules: &Rules, sets: bool) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for (of, then) in &rules.list {
        if !(sets && groups.last_mut().is_some_and(|last| last.takes(of, *then))) {
            groups.push(Group { of, between: vec![of.between()], then: *then });
        }
    }
    groups
}

impl Group<'_> {
    /// Takes another policy, if it fits.
    fn takes(&mut self, of: &Match, then: Then) -> bool {
        let rest = |of: &Match| (of.source.0.is_ipv4(), of.proto, of.sport, of.dport, of.mark);
        let pair = of.between();
        if then != self.then || rest(of) != rest(self.of) {
            return false;
        }
        if self.between.iter().any(|there| contains(there, &pair)) {
            return true;
        }
        // The kernel refuses elements that overlap.
        let overlaps = |there: &Pair| meet(there, &pair) && !contains(&pair, there);
        if self.between.len() == PAIRS || self.between.iter().any(overlaps) {
            return false;
        }
        self.between.retain(|there| !contains(&pair, there));
        self.between.push(pair);
        true
    }
}

/// Whether one pair contains the whole other one.
fn contains(one: &Pair, other: &Pair) -> bool {
    one.iter().zip(other).all(|(one, other)| one.contains(*other))
}

/// Whether there are addresses that are of both.
fn meet(one: &Pair, other: &Pair) -> bool {
    one.iter().zip(other).all(|(one, other)| one.contains(*other) || other.contains(*one))
}

impl Match {
    /// Its source and destination.
    pub(super) fn between(&self) -> Pair {
        [self.source, self.destination].map(|(address, bits)| Prefix::new(address, bits))
    }
}

#[cfg(test)]
mod tests {
    use super::super::examples::{between, rules};
    use super::*;

    /// The pairs of each group, as text.
    fn grouped(list: &[(Match, Then)]) -> Vec<Vec<String>> {
        let rules = rules(list);
        let text = |pair: &Pair| pair.map(|prefix| prefix.to_string()).join(" > ");
        groups(&rules, true).iter().map(|group| group.between.iter().map(text).collect()).collect()
    }

    fn protect(pairs: &[[&str; 2]]) -> Vec<(Match, Then)> {
        pairs.iter().map(|[from, to]| (between(from, to), Then::Protect(0))).collect()
    }

    #[test]
    fn policies_that_differ_by_their_addresses_have_one_rule() {
        let list =
            protect(&[["10.1.0.0/16", "10.2.0.0/16"], ["10.1.0.0/16", "10.3.0.0/16"], ["10.4.0.0/16", "10.2.0.0/16"]]);
        assert_eq!(
            grouped(&list),
            [["10.1.0.0/16 > 10.2.0.0/16", "10.1.0.0/16 > 10.3.0.0/16", "10.4.0.0/16 > 10.2.0.0/16"]]
        );
        let rules = rules(&list);
        assert_eq!(groups(&rules, false).len(), 3, "without sets");
    }

    #[test]
    fn another_end_port_mark_or_family_has_a_rule_of_its_own() {
        let [one, other] = [between("10.1.0.0/16", "10.2.0.0/16"), between("10.3.0.0/16", "10.4.0.0/16")];
        let with = |change: fn(&mut Match)| {
            let mut changed = other;
            change(&mut changed);
            changed
        };
        let then = Then::Protect(0);
        assert_eq!(grouped(&[(one, then), (other, then)]).len(), 1);
        for different in [
            (other, Then::Protect(1)),
            (other, Then::Pass),
            (other, Then::Block),
            (with(|of| of.proto = 6), then),
            (with(|of| of.sport = (1, u16::MAX)), then),
            (with(|of| of.dport = (1, u16::MAX)), then),
            (with(|of| of.mark = (1, 1)), then),
            (between("2001:db8::/32", "2001:db8::/32"), then),
        ] {
            assert_eq!(grouped(&[(one, then), different]).len(), 2, "{different:?}");
        }
        // Policies in between keep their place.
        assert_eq!(grouped(&[(one, then), (one, Then::Pass), (other, then)]).len(), 3);
    }

    #[test]
    fn a_set_has_no_address_twice() {
        // What another one contains says nothing more, whichever is first.
        let [wide, narrow] = [["10.0.0.0/8", "0.0.0.0/0"], ["10.1.0.0/16", "10.2.0.0/16"]];
        assert_eq!(grouped(&protect(&[wide, narrow])), [["10.0.0.0/8 > 0.0.0.0/0"]]);
        assert_eq!(grouped(&protect(&[narrow, wide])), [["10.0.0.0/8 > 0.0.0.0/0"]]);
        // Some addresses of each.
        let crossing = protect(&[["10.0.0.0/8", "10.2.0.0/16"], ["10.1.0.0/16", "10.0.0.0/8"]]);
        assert_eq!(grouped(&crossing), [["10.0.0.0/8 > 10.2.0.0/16"], ["10.1.0.0/16 > 10.0.0.0/8"]]);
    }

    #[test]
    fn a_group_is_full_some_day() {
        let list: Vec<_> =
            (0..130).map(|n| (between("10.0.0.0/8", &format!("10.2.{n}.0/24")), Then::Protect(0))).collect();
        assert_eq!(grouped(&list).iter().map(Vec::len).collect::<Vec<_>>(), [64, 64, 2]);
    }
}
