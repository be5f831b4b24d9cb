//! States of IPComp (`net/xfrm/xfrm_ipcomp.c`, `net/ipv4/ipcomp.c`, `net/ipv6/ipcomp6.c`).
//!
//! What does not shrink is sent without a header of IPComp: in tunnel mode it is IP in IP. A state of its own takes that in.
//! All states of IPComp in tunnel mode between the same addresses share it; it comes with the first of them and goes with the
//! last.

use crate::namespace::Xfrm;
use crate::serial::Serial;
use crate::state::{Km, State};
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{
    AF_INET, AF_INET6, Address, IPPROTO_COMP, Id, LifetimeCfg, LifetimeCur, Reason, UsersaInfo, XFRM_MODE_TRANSPORT,
    XFRM_MODE_TUNNEL,
};
use sealane_net::ipsec::transform::Transform;
use sealane_net::wire::proto;
use std::collections::BTreeMap;

/// The numbers by which states of IP in IPv6 are named, one for each source (`xfrm6_tunnel_alloc_spi`).
#[derive(Default)]
pub(crate) struct TunnelSpis {
    last: u32,
    /// The number of a source, and of how many states.
    of: BTreeMap<[u8; 16], (u32, u32)>,
}

impl TunnelSpis {
    fn take(&mut self, source: &Address) -> u32 {
        if let Some((spi, states)) = self.of.get_mut(&source.bytes) {
            *states += 1;
            return *spi;
        }
        // There are fewer states than numbers.
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if self.of.values().all(|(spi, _)| *spi != self.last) {
                break;
            }
        }
        self.of.insert(source.bytes, (self.last, 1));
        self.last
    }

    fn put_back(&mut self, source: &Address) {
        let Some((_, states)) = self.of.get_mut(&source.bytes) else { return };
        *states -= 1;
        if *states == 0 {
            self.of.remove(&source.bytes);
        }
    }
}

impl Xfrm {
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
            AF_INET6 => (proto::IPV6, self.tunnel_spis.of.get(&info.saddr.bytes).map_or(0, |(spi, _)| *spi)),
            _ => (proto::IPIP, u32::from_be_bytes([0, 1, 2, 3].map(|i| info.saddr.bytes[i]))),
        };
        let found = self.states.find(of.mark.v & of.mark.m, &info.id.daddr, spi, proto, info.family);
        let found = found.or_else(|| self.add_tunnel(of, proto, spi, now_s));
        if let Some(tunnel) = found.and_then(|serial| self.states.get_mut(serial)) {
            tunnel.tunnel_users += 1;
        }
        found
    }

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
        (tunnel.replay_ticks, tunnel.replay_thresh) = (0, 0);
        self.insert_state(tunnel, Transform::keyless(), now_s).ok()
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
