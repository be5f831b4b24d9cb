//! The tables of TCP-AO: that which queues, that which guards it, and that of devices.

use super::chains::{Means, seen};
use super::connections::{Connection, FLOWS, Flow, KNOWN, flows, known};
use super::peers::{PEERS, Peers, elements};
use crate::key;
use crate::rule::Rule;
use crate::table::{Chain, ChainType, Family, Hook, Name, Owned, Point, Set, Table};
use std::collections::{BTreeMap, HashSet};

/// The table that queues.
pub(super) const TABLE: Name<'static> = Name { family: Family::Inet, name: "sealane" };
/// The table without an owner, where [`TABLE`] would not outlive its owner.
pub(super) const GUARD: Name<'static> = Name { family: Family::Inet, name: "sealane-guard" };
/// The table that is there for the moment in which sets of the others change.
pub(super) const COVER: Name<'static> = Name { family: Family::Inet, name: "sealane-cover" };
/// The table of devices.
pub(super) const DEVICES: Name<'static> = Name { family: Family::Netdev, name: "sealane" };

/// After the filters (0), security modules (50) and source NAT (100) of others: packets that they drop never reach us,
/// and they do not see packets twice that we drop.
const PRIORITY: i32 = 250;
/// The priority of [`GUARD`]'s chains, right after.
const GUARD_PRIORITY: i32 = PRIORITY + 1;
/// All of them.
pub(super) const ALL: [Name<'static>; 4] = [DEVICES, TABLE, GUARD, COVER];

impl Means {
    /// The table that queues the segments of peers.
    pub(super) fn table(&self, owned: Owned, peers: &[Peers; 2], connections: &HashSet<Connection>) -> Table {
        let mut sets = sets(peers);
        sets.extend([0, 1].map(|family| {
            let (name, key) = KNOWN[family];
            Set { elements: known(connections, family), ..Set::new(name, key) }
        }));
        let chains = [("output", Point::Output, self.output()), ("input", Point::Input, self.input())];
        table(TABLE, owned, sets, chains.map(|(name, point, rules)| chain(name, point, PRIORITY, rules)).into())
    }

    /// The table that drops what the first one has not judged.
    pub(super) fn guard(&self, peers: &[Peers; 2]) -> Table {
        self.dropping(GUARD, Owned::Nobody, peers)
    }

    /// The same while the first one changes.
    pub(super) fn cover(&self, owned: Owned, peers: &[Peers; 2]) -> Table {
        self.dropping(COVER, owned, peers)
    }

    fn dropping(&self, name: Name<'static>, owned: Owned, peers: &[Peers; 2]) -> Table {
        let chains = [("output", Point::Output, self.guard_output()), ("input", Point::Input, self.guard_input())];
        let chains = chains.map(|(name, point, rules)| chain(name, point, GUARD_PRIORITY, rules));
        table(name, owned, sets(peers), chains.into())
    }
}

/// The table of devices, whose rings see the segments of flows.
pub(super) fn devices(owned: Owned, devices: &BTreeMap<u32, String>, of: &HashSet<Flow>) -> Table {
    let sets = [0, 1].map(|family| {
        let (name, key) = FLOWS[family];
        Set { elements: flows(of, family), ..Set::new(name, key) }
    });
    table(DEVICES, owned, sets.into(), devices.iter().map(|(&index, name)| device(index, name)).collect())
}

/// The chain of a device.
pub(super) fn device(index: u32, name: &str) -> Chain {
    Chain::new(key::chain(index), Some(Hook::ingress(name, PRIORITY)), [0, 1].map(seen).into())
}

fn table(Name { family, name }: Name<'static>, owned: Owned, sets: Vec<Set>, chains: Vec<Chain>) -> Table {
    Table { family, name: name.into(), owned, sets, chains }
}

fn chain(name: &'static str, point: Point, priority: i32, rules: Vec<Rule>) -> Chain {
    Chain::new(name, Some(Hook::new(ChainType::Filter, point, priority)), rules)
}

/// The sets of peers.
fn sets(peers: &[Peers; 2]) -> Vec<Set> {
    let of = |family: usize| {
        let [hosts, nets] = elements(family, peers[family].all());
        let sets = PEERS[family];
        let [one, many] = sets.sets.map(|name| Set::new(name, sets.key));
        [Set { elements: hosts, ..one }, Set { elements: nets, intervals: true, ..many }]
    };
    [0, 1].into_iter().flat_map(of).collect()
}
