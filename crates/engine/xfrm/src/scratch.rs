//! Memory for one burst.

use crate::burst::BURST;
use arrayvec::ArrayVec;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::selector::Flow;
use sealane_net_ipsec::spd::resolve::Bundle;
use sealane_net_ipsec::spd::{Dir, PolicyId};

/// The flow of a run's first packet, looked up ahead.
pub(crate) struct OutboundAhead {
    pub(crate) flow: Result<Flow, DropReason>,
    /// Its policy, where that has been looked up.
    pub(crate) policy: Option<Option<PolicyId>>,
}

/// Per-burst scratch space, boxed because it is large and single packets rarely need it.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) run_states: RunStates,
    pub(crate) ahead: ArrayVec<OutboundAhead, BURST>,
    pub(crate) judged: ArrayVec<InboundAhead, BURST>,
}

impl Scratch {
    /// Empties the scratch space for the next burst.
    pub(crate) fn clear(&mut self) {
        self.run_states.first.clear();
        self.run_states.deep.clear();
        self.ahead.clear();
        self.judged.clear();
    }
}

/// The states that the runs of a burst go through.
#[derive(Default)]
pub(crate) struct RunStates {
    /// The first of them, by run; [`SaId::NONE`] for none.
    first: ArrayVec<SaId, BURST>,
    /// Runs that go through several states, with all of them.
    deep: ArrayVec<(usize, Bundle), BURST>,
}

impl RunStates {
    /// Adds the states of the next run.
    pub(crate) fn push(&mut self, bundle: &[SaId]) {
        if bundle.len() > 1 {
            self.deep.push((self.first.len(), bundle.iter().copied().collect()));
        }
        self.first.push(bundle.first().copied().unwrap_or(SaId::NONE));
    }

    /// The states of a run.
    pub(crate) fn of(&self, run: usize) -> &[SaId] {
        match self.deep.iter().find(|(of, _)| *of == run) {
            Some((_, bundle)) => bundle,
            None => self.first.get(run..=run).filter(|first| *first != [SaId::NONE]).unwrap_or_default(),
        }
    }

    /// The number of runs pushed.
    pub(crate) fn len(&self) -> usize {
        self.first.len()
    }

    /// The first state of each run.
    pub(crate) fn firsts(&self) -> impl Iterator<Item = SaId> {
        self.first.iter().copied()
    }

    /// The largest number of states that any run goes through.
    pub(crate) fn depth(&self) -> usize {
        let one = usize::from(self.first.iter().any(|first| *first != SaId::NONE));
        self.deep.iter().map(|(_, bundle)| bundle.len()).max().unwrap_or(one)
    }
}

/// Flow, direction and policy of an inbound packet, looked up ahead.
pub(crate) type InboundAhead = Option<(Flow, Dir, Option<PolicyId>)>;
