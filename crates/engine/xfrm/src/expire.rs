//! Orders to expire: a program says that a limit was reached (`xfrm_add_sa_expire`, `xfrm_add_pol_expire`).

use crate::find::mark;
use crate::namespace::Xfrm;
use crate::reply::{RequestContext, plain};
use crate::state::Km;
use sealane_abi::Errno;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{Attributes, Reason, UserExpire, UserPolexpire, UserpolicyId};

impl Xfrm {
    pub(crate) fn expire_state(
        &mut self,
        order: &UserExpire,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let (info, (_, mark)) = (&order.state, mark(attrs)?);
        let found = self.states.find(mark, &info.id.daddr, info.id.spi.get(), info.id.proto, info.family);
        let serial = found.ok_or(plain(Errno::ENOENT))?;
        let Some(state) = self.states.get(serial).filter(|state| state.km == Km::Valid) else {
            return Err(Reason::NotValid.into());
        };
        let hard = order.hard != 0;
        context.replies.events.push(self.expire_notice(state, hard, context.header.nlmsg_pid));
        if hard {
            self.remove_state(serial);
        }
        Ok(())
    }

    pub(crate) fn expire_policy(
        &mut self,
        order: &UserPolexpire,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let p = &order.pol;
        let id = UserpolicyId { sel: p.sel, index: p.index, dir: p.dir, pad: [0; 3] };
        let serial = self.named_policy(&id, attrs)?;
        let hard = order.hard != 0;
        if let Some(policy) = self.policies.get(serial) {
            context.replies.events.push(policy.expire_notice(&self.data.spd, hard, context.header.nlmsg_pid));
        }
        if hard {
            self.remove_policy(serial);
        }
        Ok(())
    }
}
