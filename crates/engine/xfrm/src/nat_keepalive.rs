//! NAT keep-alives that are due (`net/xfrm/xfrm_nat_keepalive.c`).

use crate::convert;
use crate::keepalive::{Keepalive, NextChecks};
use crate::namespace::Xfrm;
use crate::serial::Serial;
use crate::time::Now;

impl Xfrm {
    /// Starts the checks of a new state.
    pub(crate) fn start_keepalive(&mut self, serial: Serial, now_s: u64) {
        let Some(state) = self.states.get_mut(serial) else { return };
        state.keepalive = NextChecks::default();
        if state.keepalive_s != 0 {
            state.keepalive.next = Some(self.keepalives.0.start(now_s, serial));
        }
    }

    /// The keep-alives to be sent now, of states that were idle for their interval. [`Self::poll_timeout`] gives the
    /// time of the next ones.
    pub fn keepalives(&mut self, now: Now) -> Vec<Keepalive> {
        let mut due = Vec::new();
        while let Some(serial) = self.keepalives.0.due(now.wall_s) {
            let Some(state) = self.states.get(serial) else { continue };
            let used_s = self.see_sad(state, |sad, sa| sad.get(sa).map_or(0, |sa| sa.last_used_s)).unwrap_or(0);
            let (interval, idle) = (u64::from(state.keepalive_s), now.wall_s.saturating_sub(used_s));
            let mut looked = state.keepalive;
            let next = if idle < interval {
                looked.not_before_s = now.wall_s + interval - idle;
                looked.not_before_s
            } else if looked.not_before_s > now.wall_s {
                looked.not_before_s
            } else {
                if let Some(encap) = &state.encap {
                    let (info, family) = (&state.info, state.info.family);
                    due.push(Keepalive {
                        source: convert::ip(&info.saddr, family),
                        destination: convert::ip(&info.id.daddr, family),
                        sport: encap.encap_sport.get(),
                        dport: encap.encap_dport.get(),
                    });
                }
                now.wall_s + interval
            };
            looked.next = Some(self.keepalives.0.start(next, serial));
            if let Some(state) = self.states.get_mut(serial) {
                state.keepalive = looked;
            }
        }
        due
    }
}
