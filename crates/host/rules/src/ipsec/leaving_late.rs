//! The chains of the late way ([`crate::late`]), which depend on policies, states and devices.

use super::chains::{Inputs, Means, neighbour_discovery};
use super::policies::policies;
use super::refused::Refused;
use super::tables::TABLE;
use super::wanted::{Then, Wanted};
use crate::field;
use crate::key;
use crate::late::{
    Devices, JUDGE, LATE, LATE_GUARD, LED, LOOKED_AT, PASSED, SEALED_LATE, SET, STRAYED, TO_DAEMON, of_a_socket,
};
use crate::rule::{Rule, Step, Test};
use crate::table::{Chain, FIRST, Name, Owned, Table};
use crate::transaction::Transaction;
use crate::value::Value;

impl Means {
    /// The tables at egress.
    pub(super) fn late_tables(&self, owned: Owned, wanted: &Wanted, devices: &Devices) -> Vec<Table> {
        let Some(late) = self.late else { return Vec::new() };
        let of = Inputs::default().rules(&wanted.output);
        let table = |(name, priority)| {
            let (owned, to_daemon) =
                if name == LATE { (owned, late.to_daemon()) } else { (Owned::Nobody, vec![Rule::new().drop()]) };
            late.table(name, owned, self.judge(of), to_daemon, (&devices.with_chain, priority))
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
        let judge = Chain::new(JUDGE, None, self.judge(Inputs::default().rules(&wanted.output)));
        tables_of(owned).iter().for_each(|(table, _)| changes.rewrite(*table, &judge));
    }

    /// Frames that have not been judged behind routing.
    fn judge(&self, of: Inputs<'_>) -> Vec<Rule> {
        let verdict = |then| match then {
            Then::Pass => Rule::new().accept(),
            Then::Protect(0) => Rule::new().jump(TO_DAEMON),
            Then::Protect(_) | Then::Block => Rule::new().drop(),
        };
        let mut rules = vec![of_a_socket(), neighbour_discovery()];
        rules.extend(policies(of.policies, verdict, Some(&verdict), Rule::new().drop()));
        rules.into_iter().map(of_frames).collect()
    }

    /// The chains that those behind routing jump to.
    pub(super) fn late_chains(&self, guards: bool) -> Vec<Chain> {
        let Some(late) = self.late else { return Vec::new() };
        let escape = Rule::new().jump(Refused::Escape.chain());
        let by_late_device =
            || if guards { Rule::new() } else { Rule::new().in_set([field::OUT, field::OUT_NAME], SET) };
        // Source NAT may make something else of them, or nothing.
        let mut strayed = vec![by_late_device().set_mark(u32::MAX, self.bits.protect).accept()];
        let mut sealed = vec![escape.clone()];
        if !guards {
            strayed.push(escape.clone());
            sealed.insert(0, by_late_device().set_priority(late.priority).accept());
        }
        let led = Rule::new().has_any(field::MARK, Value::host(self.bits.protect));
        let passed = vec![led.jump(Refused::Escape.chain()), Rule::new().accept()];
        let mut chains = vec![(STRAYED, strayed), (SEALED_LATE, sealed), (PASSED, passed)];
        if !guards {
            // The socket of a packet of this host may be bound to the device. If no route leads it to ours, it goes on by its own.
            let perhaps_bound = by_late_device().set_mark(!self.bits.device, self.bits.perhaps_bound()).accept();
            chains.push((LED, vec![perhaps_bound, self.protect(0)]));
            chains.push((LOOKED_AT, vec![by_late_device().set_priority(late.priority).accept(), escape]));
        }
        chains.into_iter().map(|(name, rules)| Chain::new(name, None, rules)).collect()
    }

    /// Packets through this host: those that policies cover may go on by devices whose chain looks at them once more, whatever a flowtable
    /// does with their flow. To the guard the priority says that.
    pub(super) fn before_flows_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        let Some(late) = self.late else { return Vec::new() };
        if !of.guards {
            return self.protecting(of, LOOKED_AT);
        }
        let mut rules = vec![Rule::new().is(field::PRIORITY, Value::host(late.priority)).accept()];
        rules.extend(self.protecting(of, Refused::Escape.chain()));
        rules
    }

    /// Packets behind routing, before source NAT.
    pub(super) fn before_nat_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        self.protecting(of, STRAYED)
    }

    /// Packets behind routing. A chain gets those that policies protect, or that have been on their way to a TUN device.
    fn protecting(&self, of: Inputs<'_>, protected: &'static str) -> Vec<Rule> {
        let mut rules = self.on_other_ways(of, Rule::new().jump(protected));
        let escape = Rule::new().jump(Refused::Escape.chain());
        let verdict = |then| match then {
            Then::Pass => Rule::new().accept(),
            Then::Protect(0) => Rule::new().jump(protected),
            Then::Protect(_) | Then::Block => escape.clone(),
        };
        rules.extend(policies(of.policies, verdict, Some(&verdict), escape.clone()));
        rules
    }

    /// Packets that are about to leave, by the policies, where these may seal them late. Those that have been led to a TUN device before do
    /// not leave because no policy covers them any more.
    pub(super) fn leaving_late(&self, of: Inputs<'_>) -> Vec<Rule> {
        let Some(late) = self.late else { return Vec::new() };
        let priority = Rule::new().is(field::PRIORITY, Value::host(late.priority));
        // Of a packet that comes to the guard it says that it has been judged. Nobody else gives it to packets.
        let mut rules = vec![if of.guards { priority.accept() } else { priority.set_priority(0) }];
        rules.extend(self.by_other_ways(of));
        rules.extend(self.unjudged(of).into_iter().map(|rule| instead_of_accept(rule, PASSED)));
        let escape = Rule::new().jump(Refused::Escape.chain());
        let verdict = |then| match then {
            Then::Pass => Rule::new().jump(PASSED),
            Then::Protect(0) => Rule::new().jump(SEALED_LATE),
            Then::Protect(_) | Then::Block => escape.clone(),
        };
        rules.extend(policies(of.policies, verdict, Some(&verdict), escape.clone()));
        rules.push(Rule::new().jump(PASSED));
        rules
    }
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

/// The same rule with a jump in place of its end.
fn instead_of_accept(mut rule: Rule, chain: &'static str) -> Rule {
    if let Some(last @ Step::Accept) = rule.steps.last_mut() {
        *last = Step::Jump(chain);
    }
    rule
}

#[cfg(test)]
mod judged;
