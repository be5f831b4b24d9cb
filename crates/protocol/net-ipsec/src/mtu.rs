//! The overhead of an association, and the MTU that remains (`xfrm_state_mtu`).

use crate::encap::{BEET_MAX_LEN, ESP_LEN};
use crate::iptfs;
use crate::sa::{Carrier, Hot, Mode, Proto, Sa};
use crate::transform::Transform;
use sealane_wire::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN};

/// The minimum MTU of IPv6.
pub const V6_MIN_MTU: u32 = 1280;

fn ip_len(family: Family) -> usize {
    match family {
        Family::V4 => V4_HEADER_LEN,
        Family::V6 => V6_HEADER_LEN,
    }
}

/// The state's header length in the kernel's sense (`props.header_len`).
fn header_len(sa: &Sa, hot: &Hot) -> usize {
    let own = match sa.proto {
        Proto::Ah => sa.ah_len(hot.icv_len.into()),
        // What does not shrink is sent without its header.
        Proto::Comp | Proto::Ipip => 0,
        Proto::Esp => ESP_LEN + usize::from(hot.iv_len) + usize::from(sa.outer.encap_len),
    };
    let v4_inside = sa.selector.family != Some(Family::V6);
    own + match (sa.mode, sa.family()) {
        (Mode::Tunnel, family) => ip_len(family),
        (Mode::Iptfs, family) => ip_len(family) + iptfs::HEADER_LEN,
        (Mode::Beet, Family::V4) if v4_inside => BEET_MAX_LEN,
        (Mode::Beet, Family::V6) if v4_inside => BEET_MAX_LEN + V6_HEADER_LEN - V4_HEADER_LEN,
        _ => 0,
    }
}

/// The bytes in front of the packets in an outer packet of IP-TFS (`props.header_len`): by these Linux limits
/// [`Config::pkt_size`](iptfs::Config::pkt_size).
#[must_use]
pub fn iptfs_header_len(family: Family, transform: &Transform, carrier: Option<Carrier>) -> usize {
    let encap_len = carrier.map_or(0, Carrier::header_len);
    ip_len(family) + encap_len + ESP_LEN + usize::from(transform.iv_len) + iptfs::HEADER_LEN
}

/// The most bytes of packets in one payload of IP-TFS with a header of so many bytes over a path of `mtu`, 0 where that is not
/// known; at least 1 (`iptfs_get_cur_pmtu`).
pub(crate) fn iptfs_most(sa: &Sa, hot: &Hot, pkt_size: u32, mtu: u32, tfs_header_len: usize) -> u32 {
    let by_path = inner_mtu(sa, hot, if mtu == 0 { V6_MIN_MTU } else { mtu });
    let most = match pkt_size.saturating_sub(header_len(sa, hot) as u32) {
        0 => by_path,
        by_size => by_size.min(by_path),
    };
    // Linux knows the short header alone. A longer one takes its bytes from those of packets, so that outer packets stay as long.
    most.saturating_sub((tfs_header_len - iptfs::HEADER_LEN) as u32).max(1)
}

/// The longest packet, in bytes, whose sealed form fits `mtu`; at least 1. One of IP-TFS is not cut then.
pub(crate) fn inner_mtu(sa: &Sa, hot: &Hot, mtu: u32) -> u32 {
    let header_len = header_len(sa, hot) as u32;
    if sa.proto != Proto::Esp {
        return mtu.saturating_sub(header_len).max(1);
    }
    let around = match sa.mode {
        Mode::Tunnel | Mode::Iptfs => 0,
        Mode::Transport | Mode::Beet => ip_len(sa.family()) as u32,
    };
    let overhead = header_len + u32::from(hot.icv_len) + around;
    let payload = mtu.saturating_sub(overhead) / u32::from(hot.align) * u32::from(hot.align);
    if payload <= 2 { 1 } else { payload + around - 2 }
}
