//! ALLOCSPI: a state that reserves an SPI until a key manager has the keys (`xfrm_alloc_userspi`).

use crate::convert;
use crate::find::mark;
use crate::namespace::Xfrm;
use crate::reply::RequestContext;
use crate::serial::Serial;
use crate::state::{Km, State};
use crate::states::States;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, Attributes, IPPROTO_AH, IPPROTO_COMP, IPPROTO_ESP, Id, LifetimeCfg, LifetimeCur, Mark, Reason,
    Selector, UsersaInfo, UserspiInfo,
};
use sealane_net_ipsec::sa::SaSpec;
use sealane_net_ipsec::spd::resolve::MAX_ACQUIRING;
use sealane_net_ipsec::transform::Transform;

/// Random SPIs tried before a range is searched in order.
const TRIES: u32 = 64;

/// The properties by which an acquire is looked up.
pub(crate) struct AcquireQuery {
    pub(crate) info: UsersaInfo,
    pub(crate) mark: Mark,
    pub(crate) if_id: u32,
    pub(crate) cpu: Option<u32>,
}

fn verify(proto: u8, min: u32, max: u32) -> Result<(), Reject> {
    match proto {
        IPPROTO_AH | IPPROTO_ESP => {}
        IPPROTO_COMP if max >= 0x10000 => return Err(Reason::SpiComp.into()),
        IPPROTO_COMP => {}
        _ => return Err(Reason::SpiProto.into()),
    }
    if min > max { Err(Reason::SpiRange.into()) } else { Ok(()) }
}

impl Xfrm {
    pub(crate) fn alloc_spi(
        &mut self,
        request: &UserspiInfo,
        attrs: &Attributes<'_>,
        context: &mut RequestContext<'_>,
    ) -> Result<(), Reject> {
        let (info, now_s) = (&request.info, context.now.wall_s);
        verify(info.id.proto, request.min, request.max)?;
        let (whole, key) = mark(attrs)?;
        let cpu = attrs.sa_pcpu()?;
        if cpu.is_some_and(|cpu| cpu >= self.cpus) {
            return Err(Reason::PcpuRequest.into());
        }
        let wanted = AcquireQuery { info: *info, mark: whole, if_id: attrs.if_id()?.unwrap_or(0), cpu };
        let asked = (info.seq != 0).then(|| self.acquiring_by_seq(key, info.seq, cpu)).flatten();
        let asked = asked.filter(|serial| {
            let found = self.states.get(*serial).map(|state| state.info.id.daddr);
            found.is_some_and(|daddr| convert::equal(&daddr, &info.id.daddr, info.family))
        });
        let found = asked.or_else(|| self.acquiring_between(&wanted));
        let serial = match found {
            Some(serial) => serial,
            None => self.add_acquiring(&wanted, now_s)?,
        };
        if self.states.get(serial).is_some_and(|state| state.info.id.spi.get() == 0) {
            let Some(spi) = self.free_spi(info.id.proto, request.min, request.max) else {
                return Err(Reason::SpiExhausted.into());
            };
            self.states.change(serial, now_s, |state| state.info.id.spi.set(spi));
        }
        if let Some(dir) = attrs.sa_dir()? {
            self.states.change(serial, now_s, |state| state.dir = dir);
        }
        self.renew_acquiring(serial, now_s);
        if let Some(state) = self.states.get(serial) {
            context.reply(&self.new_sa_message(state));
        }
        Ok(())
    }

    /// The state that an acquire with this number waits for (`__xfrm_find_acq_byseq`).
    pub(crate) fn acquiring_by_seq(&self, mark: u32, seq: u32, cpu: Option<u32>) -> Option<Serial> {
        let fits = |s: &State| s.km == Km::Acquiring && s.cpu == cpu && s.fits_mark(mark);
        self.states.of_seq(seq).find(|(_, state)| fits(state)).map(|(serial, _)| serial)
    }

    /// A state without SPI between the addresses (`__find_acq_core`).
    pub(crate) fn acquiring_between(&self, wanted: &AcquireQuery) -> Option<Serial> {
        let info = &wanted.info;
        let fits = |s: &State| {
            s.km == Km::Acquiring
                && s.info.mode == info.mode
                && s.info.id.spi.get() == 0
                && s.info.id.proto == info.id.proto
                && s.fits_mark(wanted.mark.v & wanted.mark.m)
                && s.cpu == wanted.cpu
        };
        let mut between = self.states.between(info.family, &info.id.daddr, &info.saddr, info.reqid);
        between.find(|(_, state)| fits(state)).map(|(serial, _)| serial)
    }

    /// Adds such a state; it lasts as long as an acquire is waited for.
    fn add_acquiring(&mut self, wanted: &AcquireQuery, now_s: u64) -> Result<Serial, Reject> {
        let asked = &wanted.info;
        // Unanswered acquires must not fill the memory.
        if self.states.acquiring() >= MAX_ACQUIRING {
            return Err(Reason::AcquireUnknown.into());
        }
        let host = match asked.family {
            AF_INET => 32,
            AF_INET6 => 128,
            _ => 0,
        };
        let (daddr, saddr) = if host == 0 {
            Default::default()
        } else {
            let cut = |a| sealane_abi::xfrm::Address { bytes: convert::key(a, asked.family) };
            (cut(&asked.id.daddr), cut(&asked.saddr))
        };
        let info = UsersaInfo {
            sel: Selector { daddr, saddr, prefixlen_d: host, prefixlen_s: host, ..Selector::default() },
            id: Id { daddr, proto: asked.id.proto, ..Id::default() },
            saddr,
            lft: LifetimeCfg { hard_add_expires_seconds: self.settings.acquire_s, ..LifetimeCfg::NONE },
            curlft: LifetimeCur { add_time: now_s, ..LifetimeCur::default() },
            reqid: asked.reqid,
            family: asked.family,
            mode: asked.mode,
            ..UsersaInfo::default()
        };
        let mut state = State::new(info, Km::Acquiring);
        (state.mark, state.if_id, state.cpu) = (wanted.mark, wanted.if_id, wanted.cpu);
        Ok(self.states.add(state, now_s))
    }

    /// Makes what packets see of a state without keys what the state says.
    pub(crate) fn renew_acquiring(&mut self, serial: Serial, now_s: u64) {
        let Some(state) = self.states.get(serial).filter(|state| state.km == Km::Acquiring) else { return };
        if let Some(old) = state.sa {
            self.data.sad.remove(old);
        }
        let made = self.larval_spec(state).and_then(|spec| self.data.sad.add(spec).ok());
        self.states.change(serial, now_s, |state| state.sa = made);
    }

    fn larval_spec(&self, state: &State) -> Option<SaSpec> {
        let (info, dst) = (&state.info, state.info.id.daddr.ip(state.info.family)?);
        let src = info.saddr.ip(info.family)?;
        Some(SaSpec {
            proto: convert::proto(info.id.proto)?,
            mode: convert::mode(info.mode)?,
            reqid: info.reqid,
            mark: convert::mark(state.mark),
            if_id: state.if_id,
            cpu: state.cpu,
            selector: convert::selector(&info.sel),
            dir: convert::dir(state.dir),
            limits: convert::limits(&info.lft),
            now_s: info.curlft.add_time,
            ..SaSpec::tunnel(info.id.spi.get(), src, dst, Transform::larval())
        })
    }

    /// An SPI of a range that no state of the protocol has (`xfrm_alloc_spi`).
    fn free_spi(&mut self, proto: u8, min: u32, max: u32) -> Option<u32> {
        let range = u64::from(max - min) + 1;
        let free = |states: &States, spi: u32| spi != 0 && !states.is_spi_used(spi, proto);
        for _ in 0..TRIES {
            let random = u64::from_ne_bytes(self.random());
            // The bias of a remainder is a billionth.
            let spi = min + (random % range) as u32;
            if free(&self.states, spi) {
                return Some(spi);
            }
        }
        // The kernel goes on at random; in order, no free one is missed. As many as there are states can be taken.
        (min..=max).take(self.states.len() + 2).find(|spi| free(&self.states, *spi))
    }
}
