//! Defaults, thresholds and counts of a namespace (`xfrm_set_default`, `xfrm_set_spdinfo`, `xfrm_get_sadinfo`).

use crate::changes::DEFAULTS;
use crate::namespace::Xfrm;
use crate::reply::{Notice, RequestContext};
use crate::settings::HASH_MAX;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    Attribute, Body, Reason, Request, Sadhinfo, Spdhinfo, Spdhthresh, Spdinfo, UserpolicyDefault,
    XFRM_USERPOLICY_ACCEPT, XFRM_USERPOLICY_BLOCK, XFRMNLGRP_POLICY, XfrmMessage,
};
use sealane_net_ipsec::spd::{Action, Dir};

impl Xfrm {
    /// Sets how long a key manager's answer to an acquire is awaited, in seconds (`net.core.xfrm_acq_expires`).
    pub fn set_acquire_s(&mut self, seconds: u32) {
        self.settings.acquire_s = seconds.into();
    }

    pub(crate) fn reply_sad_info(&self, flags: u32, context: &mut RequestContext<'_>) {
        let table = Sadhinfo { sadhcnt: self.states.buckets().count(), sadhmcnt: HASH_MAX };
        let count = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let message =
            XfrmMessage::new(Body::NewSadInfo(flags)).with(Attribute::SadCnt(count)).with(Attribute::SadHinfo(table));
        context.reply(&message);
    }

    pub(crate) fn reply_spd_info(&self, flags: u32, context: &mut RequestContext<'_>) {
        let [incnt, outcnt, fwdcnt] = self.policies.counts();
        let info = Spdinfo { incnt, outcnt, fwdcnt, ..Spdinfo::default() };
        let table = Spdhinfo { spdhcnt: self.policies.buckets().count() - 1, spdhmcnt: HASH_MAX };
        let message = XfrmMessage::new(Body::NewSpdInfo(flags))
            .with(Attribute::SpdInfo(info))
            .with(Attribute::SpdHinfo(table))
            .with(Attribute::SpdIpv4Hthresh(self.settings.hthresh4))
            .with(Attribute::SpdIpv6Hthresh(self.settings.hthresh6));
        context.reply(&message);
    }

    /// Thresholds are kept and told back; how policies are found here does not depend on them.
    pub(crate) fn set_thresholds(&mut self, request: &Request<'_>) -> Result<(), Reject> {
        let beyond = |t: Option<Spdhthresh>, max: u8| t.is_some_and(|t| t.lbits > max || t.rbits > max);
        if beyond(request.hthresh4, 32) {
            return Err(Reason::Hthresh4.into());
        }
        if beyond(request.hthresh6, 128) {
            return Err(Reason::Hthresh6.into());
        }
        self.settings.hthresh4 = request.hthresh4.unwrap_or(self.settings.hthresh4);
        self.settings.hthresh6 = request.hthresh6.unwrap_or(self.settings.hthresh6);
        Ok(())
    }

    pub(crate) fn set_defaults(&mut self, wanted: &UserpolicyDefault, context: &mut RequestContext<'_>) {
        let settings = &mut self.settings.defaults;
        for (now, wanted, dir) in [
            (&mut settings.input, wanted.input, Dir::In),
            (&mut settings.fwd, wanted.fwd, Dir::Fwd),
            (&mut settings.out, wanted.out, Dir::Out),
        ] {
            let action = match wanted {
                XFRM_USERPOLICY_BLOCK => Action::Block,
                XFRM_USERPOLICY_ACCEPT => Action::Allow,
                _ => continue,
            };
            *now = wanted;
            self.data.spd.set_default(dir, action);
        }
        self.policies.changes.note(DEFAULTS);
        // The kernel's event has no number and no port.
        let message = XfrmMessage::new(Body::GetDefault(self.settings.defaults));
        context.replies.events.push(Notice::new(XFRMNLGRP_POLICY, &message, 0, 0));
    }

    pub(crate) fn reply_defaults(&self, context: &mut RequestContext<'_>) {
        context.reply(&XfrmMessage::new(Body::GetDefault(self.settings.defaults)));
    }
}
