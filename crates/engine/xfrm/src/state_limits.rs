//! Limits of time of states that no packet goes through.

use crate::convert;
use crate::namespace::Xfrm;
use crate::reply::Notice;
use crate::time::Now;
use sealane_net_ipsec::lifetime::Age;

impl Xfrm {
    /// Limits of time of states that no packet goes through.
    pub(crate) fn states_timeout(&mut self, now: Now, notices: &mut Vec<Notice>) {
        while let Some(serial) = self.states.due(now.wall_s) {
            let Some(state) = self.states.get_mut(serial) else { continue };
            let limits = convert::limits(&state.info.lft);
            let (age, next) = limits.time(&convert::usage(&state.info.curlft), state.dying, now.wall_s);
            match age {
                Age::Young => {}
                Age::Soft => {
                    state.dying = true;
                    notices.extend(self.states.get(serial).map(|state| self.expire_notice(state, false, 0)));
                }
                Age::Hard => {
                    notices.extend(self.states.get(serial).map(|state| self.expire_notice(state, true, 0)));
                    self.remove_state(serial);
                }
            }
            if let Some(next) = next {
                self.states.schedule_check(serial, next);
            }
        }
    }
}
