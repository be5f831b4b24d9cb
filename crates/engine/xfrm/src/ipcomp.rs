//! States of IPComp (`net/xfrm/xfrm_ipcomp.c`, `net/ipv4/ipcomp.c`, `net/ipv6/ipcomp6.c`).
//!
//! A packet that does not shrink is sent without a header of IPComp: in tunnel mode it is IP in IP. A state of its own takes that in.
//! All states of IPComp in tunnel mode between the same addresses share it; it comes with the first of them and goes with the
//! last.

use crate::namespace::Xfrm;
use crate::serial::Serial;
use crate::state::{Km, State};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, IPPROTO_COMP, Id, LifetimeCfg, LifetimeCur, Reason, UsersaInfo, XFRM_MODE_TRANSPORT,
    XFRM_MODE_TUNNEL,
};
use sealane_net_ipsec::transform::Transform;
use sealane_wire::proto;

impl Xfrm {
    /// Initialises a state of IPComp (`ipcomp_init_state`).
    pub(crate) fn init_comp(state: &State) -> Result<Transform, Reject> {
        if !matches!(state.info.mode, XFRM_MODE_TRANSPORT | XFRM_MODE_TUNNEL) {
            return Err(Reason::IpcompMode.into());
        }
        if state.comp.is_none() {
            return Err(Reason::IpcompMissing.into());
        }
        if state.encap.is_some() {
            return Err(Reason::IpcompEncap.into());
        }
        Ok(Transform::keyless())
    }

    /// The state of IP in IP that goes with a new state of IPComp in tunnel mode (`ipcomp_tunnel_attach`).
    pub(crate) fn attach_tunnel(&mut self, of: &State, now_s: u64) -> Option<Serial> {
        let info = &of.info;
        if (info.id.proto, info.mode) != (IPPROTO_COMP, XFRM_MODE_TUNNEL) {
            return None;
        }
        let (proto, spi) = match info.family {
            AF_INET6 => (proto::IPV6, self.tunnel_spis.of(&info.saddr)),
            _ => (proto::IPIP, u32::from_be_bytes([0, 1, 2, 3].map(|i| info.saddr.bytes[i]))),
        };
        let found = self.states.find(of.mark.v & of.mark.m, &info.id.daddr, spi, proto, info.family);
        let found = found.or_else(|| self.add_tunnel(of, proto, spi, now_s));
        if let Some(tunnel) = found.and_then(|serial| self.states.get_mut(serial)) {
            tunnel.tunnel_users += 1;
        }
        found
    }

    /// Adds such a state (`ipcomp_tunnel_create`).
    fn add_tunnel(&mut self, of: &State, proto: u8, spi: u32, now_s: u64) -> Option<Serial> {
        let (old, is_v4) = (&of.info, of.info.family == AF_INET);
        let spi = if is_v4 { spi } else { self.tunnel_spis.take(&old.saddr) };
        let info = UsersaInfo {
            sel: old.sel,
            id: Id { daddr: old.id.daddr, spi: spi.into(), proto, pad: [0; 3] },
            saddr: old.saddr,
            lft: LifetimeCfg::NONE,
            curlft: LifetimeCur { add_time: now_s, ..LifetimeCur::default() },
            family: old.family,
            mode: old.mode,
            flags: if is_v4 { old.flags } else { 0 },
            ..UsersaInfo::default()
        };
        let mut tunnel = State::new(info, Km::Valid);
        tunnel.extra_flags = if is_v4 { of.extra_flags } else { 0 };
        (tunnel.mark, tunnel.if_id) = (of.mark, of.if_id);
        let added = self.insert_state(tunnel, Transform::keyless(), now_s).ok();
        if added.is_none() && !is_v4 {
            self.tunnel_spis.put_back(&old.saddr);
        }
        added
    }

    /// A state has left the table, and with it, perhaps, the last user of its tunnel.
    pub(crate) fn detach_tunnel(&mut self, gone: &State) {
        if gone.info.id.proto == proto::IPV6 {
            self.tunnel_spis.put_back(&gone.info.saddr);
        }
        let Some(serial) = gone.tunnel else { return };
        let Some(tunnel) = self.states.get_mut(serial) else { return };
        tunnel.tunnel_users -= 1;
        if tunnel.tunnel_users == 0 {
            self.remove_state(serial);
        }
    }
}
