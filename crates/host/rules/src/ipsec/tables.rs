//! The tables of policies, with and without an owner.

use super::chains::{self, Dropped, Inputs, Means};
use super::refused::Refused;
use super::wanted::Wanted;
use crate::late::{self, Devices};
use crate::rule::Rule;
use crate::table::{Chain, ChainType, FIRST, Family, Hook, Name, Owned, Point, Table};

/// The table.
pub(super) const TABLE: Name<'static> = Name { family: Family::Inet, name: "sealane-ipsec" };
/// The table without an owner, where [`TABLE`] would not outlive its owner.
pub(super) const GUARD: Name<'static> = Name { family: Family::Inet, name: "sealane-ipsec-guard" };

/// Behind the translation of destinations and back (NF_IP_PRI_NAT_DST), and behind the mangle tables of others.
const BEHIND_NAT: i32 = -99;
/// Before the filters of others.
const BEFORE_FILTERS: i32 = -150;
/// Behind everything else.
const LAST: i32 = i32::MAX - 2;
/// Before source NAT, and before everything else behind routing.
const NAT: Hook = Hook::new(ChainType::Filter, Point::Postrouting, FIRST);
/// As packets leave.
const BACKSTOP: Hook = Hook::new(ChainType::Filter, Point::Postrouting, LAST);

/// A chain whose rules depend on policies, states and devices.
struct Plan {
    name: &'static str,
    hook: Option<Hook>,
    inputs: fn(&Wanted) -> Inputs<'_>,
    rules: fn(&Means, Inputs<'_>) -> Vec<Rule>,
}

/// The chains that lead packets to a device of ours.
static LEADING: [Plan; 9] = [
    Plan { name: chains::LEAVING, hook: None, inputs: |of| Inputs::default().rules(&of.output), rules: Means::leaving },
    Plan {
        name: chains::OUTPUT_OURS,
        hook: None,
        inputs: |of| Inputs::default().interfaces(of).marks(of),
        rules: Means::output_ours,
    },
    Plan { name: chains::OUTPUT_TO_DEVICE, hook: None, inputs: nothing, rules: Means::output_to_device },
    Plan { name: chains::OUTPUT_LED, hook: None, inputs: packet_devices, rules: Means::output_led },
    Plan { name: chains::OUTPUT_COVERED, hook: None, inputs: packet_devices, rules: Means::output_covered },
    Plan {
        name: "output",
        hook: Some(Hook::new(ChainType::Route, Point::Output, BEHIND_NAT)),
        inputs: outbound,
        rules: Means::output,
    },
    Plan { name: chains::PREROUTING_LED, hook: None, inputs: nothing, rules: Means::prerouting_led },
    Plan { name: chains::PREROUTING_COVERED, hook: None, inputs: nothing, rules: Means::prerouting_covered },
    Plan {
        name: "prerouting",
        hook: Some(Hook::new(ChainType::Filter, Point::Prerouting, BEHIND_NAT)),
        inputs: outbound,
        rules: Means::prerouting,
    },
];

/// The chains for opened packets that come in by the devices that they came by sealed.
static OPENED: [Plan; 4] = [
    Plan {
        name: chains::WAS_OPENED,
        hook: None,
        inputs: |of| Inputs::default().devices(of),
        rules: Means::through_opened,
    },
    Plan { name: chains::AS_IT_CAME, hook: None, inputs: nothing, rules: Means::as_it_came },
    Plan { name: chains::OPENED, hook: None, inputs: nothing, rules: Means::opened },
    Plan {
        name: "arrived",
        hook: Some(Hook::new(ChainType::Filter, Point::Prerouting, FIRST)),
        inputs: nothing,
        rules: Means::arrived,
    },
];

/// The chains that judge packets before they are routed, where opened ones come in by the devices that they came by sealed.
static ARRIVING: [Plan; 3] = [
    Plan {
        name: chains::FORWARD_V6,
        hook: None,
        inputs: |of| Inputs::default().rules(&of.forward).devices(of),
        rules: Means::forward_v6,
    },
    Plan {
        name: chains::ARRIVING_COVERED,
        hook: None,
        inputs: |of| Inputs::default().rules(&of.forward).devices(of),
        rules: Means::arriving_covered,
    },
    Plan {
        name: "arriving",
        hook: Some(Hook::new(ChainType::Filter, Point::Prerouting, LAST)),
        inputs: |of| Inputs::default().rules(&of.forward),
        rules: Means::arriving,
    },
];

/// The chains that judge packets which come in.
static JUDGING: [Plan; 3] = [
    Plan {
        name: chains::INPUT_COVERED,
        hook: None,
        inputs: |of| Inputs::default().rules(&of.input).devices(of),
        rules: Means::input_covered,
    },
    Plan {
        name: "input",
        hook: Some(Hook::new(ChainType::Filter, Point::Input, BEFORE_FILTERS)),
        inputs: |of| Inputs::default().rules(&of.input),
        rules: Means::input,
    },
    Plan {
        name: "forward",
        hook: Some(Hook::new(ChainType::Filter, Point::Forward, FIRST)),
        inputs: |of| Inputs::default().rules(&of.forward).devices(of).outbound(&of.output),
        rules: Means::forward,
    },
];

/// The chain of packets through this host that may come in.
const ONWARD: Plan = Plan {
    name: chains::ONWARD,
    hook: None,
    inputs: |of| Inputs::default().outbound(&of.output),
    rules: Means::onward,
};

/// The chains that judge packets behind routing.
static DEPARTING: [Plan; 4] = [
    Plan { name: chains::ESCAPING, hook: None, inputs: ways, rules: Means::escaping },
    ONWARD,
    Plan { name: "before-nat", hook: Some(NAT), inputs: outbound, rules: Means::before_nat },
    Plan { name: "backstop", hook: Some(BACKSTOP), inputs: outbound, rules: Means::depart },
];

/// The chain by which packets of this host are led to the TUN device where they may be sealed late.
static LED_LATE: Plan = Plan { name: late::LED, hook: None, inputs: nothing, rules: Means::led_late };

/// The chains that judge packets behind routing there.
static DEPARTING_LATE: [Plan; 9] = [
    Plan { name: chains::ESCAPING, hook: None, inputs: ways, rules: Means::escaping },
    Plan { name: late::LOOKED_AT, hook: None, inputs: nothing, rules: Means::looked_at },
    Plan { name: late::STRAYED_LATE, hook: None, inputs: nothing, rules: Means::strayed_late },
    Plan { name: late::STRAYED, hook: None, inputs: ways, rules: Means::strayed },
    Plan { name: late::PASSED, hook: None, inputs: nothing, rules: Means::passed },
    Plan { name: late::SEALED_LATE, hook: None, inputs: ways, rules: Means::sealed_late },
    ONWARD,
    Plan { name: "before-nat", hook: Some(NAT), inputs: outbound, rules: Means::before_nat },
    Plan { name: "backstop", hook: Some(BACKSTOP), inputs: outbound, rules: Means::leaving_late },
];

fn nothing(_: &Wanted) -> Inputs<'_> {
    Inputs::default()
}

fn packet_devices(of: &Wanted) -> Inputs<'_> {
    Inputs::default().packet_devices(of)
}

/// What says which packets leave by other ways than policies.
fn ways(of: &Wanted) -> Inputs<'_> {
    Inputs::default().devices(of).marks(of)
}

fn outbound(of: &Wanted) -> Inputs<'_> {
    Inputs::default().rules(&of.output)
}

impl Plan {
    fn chain(&self, means: &Means, wanted: &Wanted) -> Chain {
        Chain::new(self.name, self.hook.clone(), (self.rules)(means, (self.inputs)(wanted)))
    }
}

impl Means {
    /// The table that applies policies.
    pub(super) fn table(&self, owned: Owned, wanted: &Wanted, dropped: Dropped, late: &Devices) -> Table {
        let mut chains = self.refusing(dropped);
        chains.extend(self.plans().map(|plan| plan.chain(self, wanted)));
        let sets = self.late.map(|way| way.set(late)).into_iter().collect();
        Table { family: TABLE.family, name: TABLE.name.into(), owned, sets, chains }
    }

    fn plans(&self) -> impl Iterator<Item = &'static Plan> {
        let opened = self.opened.map_or(&[][..], |_| &OPENED[..]);
        opened.iter().chain(self.late.map(|_| &LED_LATE)).chain(&LEADING).chain(self.judging())
    }

    fn judging(&self) -> impl Iterator<Item = &'static Plan> {
        let departing = if self.late.is_some() { &DEPARTING_LATE[..] } else { &DEPARTING };
        departing.iter().chain(self.opened.map_or(&[][..], |_| &ARRIVING)).chain(&JUDGING)
    }

    /// The table without an owner, whose chains judge packets right after those of the other one.
    pub(super) fn guard(&self, wanted: &Wanted, dropped: Dropped) -> Table {
        let mut chains = self.refusing(dropped);
        chains.extend(self.judging().map(|plan| {
            let rules = (plan.rules)(self, (plan.inputs)(wanted).guarding());
            let mut chain = Chain::new(plan.name, plan.hook.clone(), rules);
            chain.hook.iter_mut().for_each(|hook| hook.priority += 1);
            chain
        }));
        Table { family: GUARD.family, name: GUARD.name.into(), owned: Owned::Nobody, sets: Vec::new(), chains }
    }

    /// The chains of the first table that depend on something that has changed, one after another.
    pub(super) fn changed(&self, before: &Wanted, after: &Wanted) -> impl Iterator<Item = Chain> {
        self.plans().filter(|plan| (plan.inputs)(before) != (plan.inputs)(after)).map(|plan| plan.chain(self, after))
    }

    /// The chains that drop, which others jump to.
    fn refusing(&self, dropped: Dropped) -> Vec<Chain> {
        let refused = Refused::ALL.into_iter().zip(dropped).map(|(why, dropped)| {
            let rules = match why {
                Refused::OutBlock | Refused::OutRest => self.kept_from_leaving(dropped),
                _ => self.refused(dropped),
            };
            Chain::new(why.chain(), None, rules)
        });
        let input = Refused::INPUT.map(|(why, name)| Chain::new(name, None, self.refused_here(why)));
        refused.chain(input).collect()
    }
}
