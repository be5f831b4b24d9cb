//! The rules about rates come into force.

use crate::namespace::Xfrm;
use crate::rates::{self, RateRule};
use crate::serial::Serial;
use sealane_net_ipsec::sad::pairs::PairView;

impl Xfrm {
    /// Has states of IP-TFS, those that are there and those to come, send at the rate of the first rule that is about them, and
    /// all others when there is something to send.
    pub fn set_rates(&mut self, rules: Vec<RateRule>) {
        self.rates = rules;
        let all: Vec<Serial> = self.states.iter().map(|(serial, _)| serial).collect();
        all.into_iter().for_each(|serial| self.follow_rates(serial));
    }

    /// Has a state send as the rules say, after they or its interface id have changed.
    pub(crate) fn follow_rates(&mut self, serial: Serial) {
        let Some((state, id)) = self.states.get(serial).and_then(|state| Some((state, state.sa?))) else { return };
        self.data.sad.set_rate(id, rates::of(&self.rates, state));
    }

    /// The rules that decide about no state now.
    #[must_use]
    pub fn unused_rates(&self) -> Vec<RateRule> {
        let (mut used, mut unused) = (vec![false; self.rates.len()], self.rates.len());
        for (_, state) in self.states.iter() {
            if unused == 0 {
                break;
            }
            if let Some(at) = rates::first(&self.rates, state)
                && !core::mem::replace(&mut used[at], true)
            {
                unused -= 1;
            }
        }
        self.rates.iter().zip(used).filter(|(_, used)| !used).map(|(rule, _)| rule.clone()).collect()
    }

    /// The pairs of states of IP-TFS whose rate is the lowest one because their peer sends no feedback, each once until it does.
    pub fn take_silent_pairs(&mut self) -> Vec<PairView> {
        self.data.sad.take_silent()
    }
}
