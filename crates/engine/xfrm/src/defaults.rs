//! What a namespace has once: defaults, thresholds, counts (`xfrm_set_default`, `xfrm_set_spdinfo`, `xfrm_get_sadinfo`).

use super::{Serving, Xfrm};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    Attribute, Body, Message, Reason, Request, Sadhinfo, Spdhinfo, Spdhthresh, Spdinfo, UserpolicyDefault,
    XFRM_USERPOLICY_ACCEPT, XFRM_USERPOLICY_BLOCK, XFRMNLGRP_POLICY,
};
use sealane_net::ipsec::spd::{Action, Dir};

/// The most buckets that a table of the kernel can have.
const HASH_MAX: u32 = 1 << 20;

/// Settings of a namespace.
pub(crate) struct Settings {
    /// What becomes of packets without a policy.
    defaults: UserpolicyDefault,
    hthresh4: Spdhthresh,
    hthresh6: Spdhthresh,
    /// Seconds that an acquire is waited for (`xfrm_acq_expires`).
    pub(crate) acquire_s: u64,
    /// Number of the last acquire.
    pub(crate) last_acquire: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            defaults: UserpolicyDefault {
                input: XFRM_USERPOLICY_ACCEPT,
                fwd: XFRM_USERPOLICY_ACCEPT,
                out: XFRM_USERPOLICY_ACCEPT,
            },
            hthresh4: Spdhthresh { lbits: 32, rbits: 32 },
            hthresh6: Spdhthresh { lbits: 128, rbits: 128 },
            acquire_s: sealane_net::ipsec::spd::resolve::ACQUIRE_S,
            last_acquire: 0,
        }
    }
}

/// How many buckets the kernel's table would have: it doubles when there are more entries than buckets, never shrinks, and
/// is a figure here that nothing depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Buckets(u32);

impl Default for Buckets {
    fn default() -> Self {
        Buckets(8)
    }
}

impl Buckets {
    /// One was added, so that there are `entries` now.
    pub(crate) fn added(&mut self, entries: usize) {
        if entries >= self.0 as usize && self.0 < HASH_MAX {
            self.0 *= 2;
        }
    }

    /// How many there are.
    pub(crate) fn count(self) -> u32 {
        self.0
    }
}

impl Xfrm {
    /// How long a key manager's answer is waited for from now on, in seconds (`net.core.xfrm_acq_expires`).
    pub fn set_acquire_s(&mut self, seconds: u32) {
        self.settings.acquire_s = seconds.into();
    }

    pub(super) fn tell_sad_info(&self, flags: u32, serving: &mut Serving<'_>) {
        let table = Sadhinfo { sadhcnt: self.states.buckets().count(), sadhmcnt: HASH_MAX };
        let count = u32::try_from(self.states.len()).unwrap_or(u32::MAX);
        let message =
            Message::new(Body::NewSadInfo(flags)).with(Attribute::SadCnt(count)).with(Attribute::SadHinfo(table));
        serving.reply(&message);
    }

    pub(super) fn tell_spd_info(&self, flags: u32, serving: &mut Serving<'_>) {
        let [incnt, outcnt, fwdcnt] = self.policies.counts();
        let info = Spdinfo { incnt, outcnt, fwdcnt, ..Spdinfo::default() };
        let table = Spdhinfo { spdhcnt: self.policies.buckets().count() - 1, spdhmcnt: HASH_MAX };
        let message = Message::new(Body::NewSpdInfo(flags))
            .with(Attribute::SpdInfo(info))
            .with(Attribute::SpdHinfo(table))
            .with(Attribute::SpdIpv4Hthresh(self.settings.hthresh4))
            .with(Attribute::SpdIpv6Hthresh(self.settings.hthresh6));
        serving.reply(&message);
    }

    /// Thresholds are kept and told back; how policies are found here does not depend on them.
    pub(super) fn set_thresholds(&mut self, request: &Request<'_>) -> Result<(), Reject> {
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

    pub(super) fn set_defaults(&mut self, wanted: &UserpolicyDefault, serving: &mut Serving<'_>) {
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
        // The kernel's event has no number and no port.
        let message = Message::new(Body::GetDefault(self.settings.defaults));
        serving.replies.events.push(super::Notice::new(XFRMNLGRP_POLICY, &message, 0, 0));
    }

    pub(super) fn tell_defaults(&self, serving: &mut Serving<'_>) {
        serving.reply(&Message::new(Body::GetDefault(self.settings.defaults)));
    }
}
