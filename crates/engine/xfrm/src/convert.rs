//! Between the structures of the ABI and those that packets need.

use core::net::IpAddr;
use sealane_abi::xfrm::{self as abi, AF_INET, AF_INET6, Address};
use sealane_net_ipsec::lifetime::{Limits, Usage};
use sealane_net_ipsec::sa::{Carrier, Encap, Mode, Proto, SaDir, SaFlags};
use sealane_net_ipsec::selector::{Mark, Selector};
use sealane_wire::ip::Family;
use sealane_wire::proto;

/// The protocol; `None` for what packets cannot go through here.
pub(crate) fn proto(number: u8) -> Option<Proto> {
    match number {
        abi::IPPROTO_ESP => Some(Proto::Esp),
        abi::IPPROTO_AH => Some(Proto::Ah),
        abi::IPPROTO_COMP => Some(Proto::Comp),
        // Requests cannot name these.
        proto::IPIP | proto::IPV6 => Some(Proto::Ipip),
        _ => None,
    }
}

/// The mode; `None` for what packets cannot go through here.
pub(crate) fn mode(number: u8) -> Option<Mode> {
    match number {
        abi::XFRM_MODE_TRANSPORT => Some(Mode::Transport),
        abi::XFRM_MODE_TUNNEL => Some(Mode::Tunnel),
        abi::XFRM_MODE_BEET => Some(Mode::Beet),
        abi::XFRM_MODE_IPTFS => Some(Mode::Iptfs),
        _ => None,
    }
}

/// The direction of a state.
pub(crate) fn dir(number: u8) -> Option<SaDir> {
    match number {
        abi::XFRM_SA_DIR_IN => Some(SaDir::In),
        abi::XFRM_SA_DIR_OUT => Some(SaDir::Out),
        _ => None,
    }
}

/// A selector. One without a family is for everything, whatever else it says (`xfrm_state_look_at`).
pub(crate) fn selector(sel: &abi::Selector) -> Selector {
    let (Some(source), Some(destination)) = (sel.saddr.ip(sel.family), sel.daddr.ip(sel.family)) else {
        return Selector::ANY;
    };
    Selector {
        family: Some(if sel.family == AF_INET { Family::V4 } else { Family::V6 }),
        source,
        source_len: sel.prefixlen_s,
        destination,
        destination_len: sel.prefixlen_d,
        sport: sel.sport.get(),
        sport_mask: sel.sport_mask.get(),
        dport: sel.dport.get(),
        dport_mask: sel.dport_mask.get(),
        proto: sel.proto,
        ifindex: sel.ifindex,
    }
}

/// Limits.
pub(crate) fn limits(lft: &abi::LifetimeCfg) -> Limits {
    Limits {
        soft_bytes: lft.soft_byte_limit,
        hard_bytes: lft.hard_byte_limit,
        soft_packets: lft.soft_packet_limit,
        hard_packets: lft.hard_packet_limit,
        soft_add_s: lft.soft_add_expires_seconds,
        hard_add_s: lft.hard_add_expires_seconds,
        soft_use_s: lft.soft_use_expires_seconds,
        hard_use_s: lft.hard_use_expires_seconds,
    }
}

/// The used part of a lifetime.
pub(crate) fn usage(cur: &abi::LifetimeCur) -> Usage {
    Usage { bytes: cur.bytes, packets: cur.packets, add_time_s: cur.add_time, use_time_s: cur.use_time }
}

/// The opposite conversion.
pub(crate) fn lifetime_cur(used: &Usage) -> abi::LifetimeCur {
    abi::LifetimeCur { bytes: used.bytes, packets: used.packets, add_time: used.add_time_s, use_time: used.use_time_s }
}

/// A mark.
pub(crate) fn mark(mark: abi::Mark) -> Mark {
    Mark { value: mark.v, mask: mark.m }
}

/// The encapsulation of a state, which is of a known type.
pub(crate) fn encap(encap: abi::EncapTmpl) -> Encap {
    let by = if encap.encap_type == abi::TCP_ENCAP_ESPINTCP { Carrier::Tcp } else { Carrier::Udp };
    Encap { by, sport: encap.encap_sport.get(), dport: encap.encap_dport.get() }
}

/// Flags of a state.
pub(crate) fn flags(flags: u8, extra: u32) -> SaFlags {
    let has = |flag: u8| flags & flag != 0;
    SaFlags {
        esn: has(abi::XFRM_STATE_ESN),
        noecn: has(abi::XFRM_STATE_NOECN),
        decap_dscp: has(abi::XFRM_STATE_DECAP_DSCP),
        nopmtudisc: has(abi::XFRM_STATE_NOPMTUDISC),
        wildrecv: has(abi::XFRM_STATE_WILDRECV),
        icmp: has(abi::XFRM_STATE_ICMP),
        align4: has(abi::XFRM_STATE_ALIGN4),
        dont_encap_dscp: extra & abi::XFRM_SA_XFLAG_DONT_ENCAP_DSCP != 0,
        oseq_may_wrap: extra & abi::XFRM_SA_XFLAG_OSEQ_MAY_WRAP != 0,
    }
}

/// Whether two addresses of a family are equal (`xfrm_addr_equal`): of IPv4's only the first 4 bytes count.
pub(crate) fn equal(a: &Address, b: &Address, family: u16) -> bool {
    if family == AF_INET6 { a == b } else { a.bytes[..4] == b.bytes[..4] }
}

/// The address with nothing behind an IPv4 one: what tables sort by.
pub(crate) fn key(address: &Address, family: u16) -> [u8; 16] {
    let mut bytes = address.bytes;
    if family != AF_INET6 {
        bytes[4..].fill(0);
    }
    bytes
}

/// The address in its family, or the unspecified one of IPv4.
pub(crate) fn ip(address: &Address, family: u16) -> IpAddr {
    address.ip(family).unwrap_or(IpAddr::V4(core::net::Ipv4Addr::UNSPECIFIED))
}
