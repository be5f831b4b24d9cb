//! The chains of the late way ([`crate::late`]), which depend on policies, states and devices.

use super::chains::{ESCAPING, Inputs, Means, neighbour_discovery};
use super::refused::Refused;
use super::tables::TABLE;
use super::wanted::{Then, Wanted};
use crate::field;
use crate::key;
use crate::late::{
    BLOCKED, COVERED, Devices, JUDGE, LATE, LATE_GUARD, Late, PASSED, SEALED_LATE, SET, STRAYED_LATE, TO_DAEMON,
};
use crate::rule::{Rule, Step, Test};
use crate::table::{Chain, FIRST, Name, Owned, Table};
use crate::transaction::Transaction;
use crate::value::Value;

impl Means {
    /// The tables at egress.
    pub(super) fn late_tables(&self, owned: Owned, wanted: &Wanted, devices: &Devices) -> Vec<Table> {
        let Some(late) = self.late else { return Vec::new() };
        let table = |(name, priority)| {
            let (owned, to_daemon) =
                if name == LATE { (owned, late.to_daemon()) } else { (Owned::Nobody, vec![Rule::new().drop()]) };
            let unjudged = |name, end| {
                let mut rules = vec![neighbour_discovery()];
                rules.extend(late.unjudged(end));
                Chain::new(name, None, rules)
            };
            let chains = vec![
                Chain::new(TO_DAEMON, None, to_daemon),
                unjudged(COVERED, Rule::new().jump(TO_DAEMON)),
                unjudged(BLOCKED, Rule::new().drop()),
                self.judge(wanted),
            ];
            late.table(name, owned, chains, (&devices.with_chain, priority))
        };
        tables_of(owned).iter().copied().map(table).collect()
    }

    /// Changes the devices from these to those that are `next`.
    pub(super) fn change_devices(&self, changes: &mut Transaction, owned: Owned, before: &Devices, next: &Devices) {
        let Some(late) = self.late else { return };
        for (table, priority) in tables_of(owned) {
            let gone = before.with_chain.iter().filter(|(index, name)| next.with_chain.get(index) != Some(name));
            gone.for_each(|(index, _)| changes.delete_chain(*table, &key::out_chain(*index)));
            let new = next.with_chain.iter().filter(|(index, name)| before.with_chain.get(index) != Some(name));
            new.for_each(|(index, name)| changes.create_chain(*table, &late.of_device(*index, name, *priority)));
        }
        changes.clear(TABLE, SET);
        changes.add(TABLE, SET, &next.elements());
    }

    /// Changes the policies of the chains at egress.
    pub(super) fn change_judge(&self, changes: &mut Transaction, owned: Owned, wanted: &Wanted) {
        let judge = self.judge(wanted);
        tables_of(owned).iter().for_each(|(table, _)| changes.rewrite(*table, &judge));
    }

    /// Frames, by the policies. Most are for none.
    fn judge(&self, wanted: &Wanted) -> Chain {
        let rules = self.sorted(Some(&wanted.output), COVERED, BLOCKED);
        Chain::new(JUDGE, None, rules.into_iter().map(of_frames).collect())
    }

    /// Packets of this host that a policy protects. The socket of one may be bound to the device that it is to leave by: if no route leads
    /// it to ours, it goes on by its own.
    pub(super) fn led_late(&self, _: Inputs<'_>) -> Vec<Rule> {
        let perhaps_bound = by_late_device().set_mark(!self.bits.device, self.bits.perhaps_bound()).accept();
        vec![perhaps_bound, self.protect(0)]
    }

    /// Packets through this host that policies protect may go on by devices whose chain looks at them once more, whatever a flowtable does
    /// with their flow.
    pub(super) fn looked_at(&self, of: Inputs<'_>) -> Vec<Rule> {
        let looked_at = |late: Late| by_late_device().set_priority(late.priority).accept();
        let mut rules = vec![self.to_stack()];
        rules.extend(self.late.filter(|_| !of.guards).map(looked_at));
        rules.push(Rule::new().jump(ESCAPING));
        rules
    }

    /// Packets behind routing that policies protect, before source NAT.
    pub(super) fn strayed(&self, of: Inputs<'_>) -> Vec<Rule> {
        self.covered(of, STRAYED_LATE)
    }

    /// Those among them that no other way is for.
    pub(super) fn strayed_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        let by_late_device = if of.guards { Rule::new() } else { by_late_device() };
        vec![by_late_device.set_mark(u32::MAX, self.bits.protect).accept(), Rule::new().jump(Refused::Escape.chain())]
    }

    /// Packets that are about to leave, by the policies, where these may seal them late. Those that have been led to a TUN device before do
    /// not leave because no policy covers them any more.
    pub(super) fn leaving_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        let Some(late) = self.late else { return Vec::new() };
        let priority = Rule::new().is(field::PRIORITY, Value::host(late.priority)).set_priority(0);
        let mut rules = vec![late.judged(of.guards).unwrap_or(priority)];
        let verdict = |then| {
            Rule::new().jump(match then {
                Then::Pass => PASSED,
                Then::Protect(0) => SEALED_LATE,
                Then::Protect(_) | Then::Block => ESCAPING,
            })
        };
        rules.extend(self.policies(of.policies, verdict, Some(&verdict), Rule::new().jump(ESCAPING)));
        rules.push(self.led().jump(ESCAPING));
        rules
    }

    /// Packets that no policy is for any more.
    pub(super) fn passed(&self, _: Inputs<'_>) -> Vec<Rule> {
        vec![self.led().jump(ESCAPING), Rule::new().accept()]
    }

    /// Packets that policies protect.
    pub(super) fn sealed_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        let Some(late) = self.late else { return Vec::new() };
        let mut rules: Vec<Rule> = self.by_other_ways(of).collect();
        rules.extend(self.unjudged(of).into_iter().map(|rule| rule.instead_of_accept(PASSED)));
        if !of.guards {
            rules.push(by_late_device().set_priority(late.priority).accept());
        }
        rules.push(Rule::new().jump(Refused::Escape.chain()));
        rules
    }
}

/// Packets that are to leave by a device with a chain at egress.
fn by_late_device() -> Rule {
    Rule::new().in_set([field::OUT, field::OUT_NAME], SET)
}

/// The tables at egress that there are with this kind of owner, and the priorities of their chains for devices.
fn tables_of(owned: Owned) -> &'static [(Name<'static>, i32)] {
    const ALL: [(Name<'static>, i32); 2] = [(LATE, FIRST), (LATE_GUARD, FIRST + 1)];
    if owned == Owned::Goes { &ALL } else { &ALL[..1] }
}

/// The same rule where packets are frames of a device: their family is the type of Ethernet.
fn of_frames(mut rule: Rule) -> Rule {
    for step in &mut rule.steps {
        if let Step::Is { field: of, tests, .. } = step
            && *of == field::FAMILY
        {
            let is_v6 = *tests == [Test::Eq(Value::from(libc::NFPROTO_IPV6 as u8))];
            let ether_type = [libc::ETH_P_IP, libc::ETH_P_IPV6][usize::from(is_v6)] as u16;
            (*of, *tests) = (field::ETHER_TYPE, vec![Test::Eq(ether_type.into())]);
        }
    }
    rule
}

#[cfg(test)]
mod judged;
