//! The overhead of an association, and the MTU that remains (`xfrm_state_mtu`).

use crate::ipsec::encap::{BEET_MAX_LEN, ESP_LEN};
use crate::ipsec::sa::{Hot, Mode, Proto, Sa};
use crate::wire::ip::{Family, V4_HEADER_LEN, V6_HEADER_LEN};

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
        Proto::Esp => ESP_LEN + usize::from(hot.iv_len) + usize::from(sa.outer.udp_len),
    };
    let v4_inside = sa.selector.family != Some(Family::V6);
    own + match (sa.mode, sa.family()) {
        (Mode::Tunnel, family) => ip_len(family),
        (Mode::Beet, Family::V4) if v4_inside => BEET_MAX_LEN,
        (Mode::Beet, Family::V6) if v4_inside => BEET_MAX_LEN + V6_HEADER_LEN - V4_HEADER_LEN,
        _ => 0,
    }
}

/// The longest packet, in bytes, whose sealed form fits `mtu`; at least 1.
pub(crate) fn inner_mtu(sa: &Sa, hot: &Hot, mtu: u32) -> u32 {
    let header_len = header_len(sa, hot) as u32;
    if sa.proto != Proto::Esp {
        return mtu.saturating_sub(header_len).max(1);
    }
    let around = match sa.mode {
        Mode::Tunnel => 0,
        Mode::Transport | Mode::Beet => ip_len(sa.family()) as u32,
    };
    let overhead = header_len + u32::from(hot.icv_len) + around;
    let payload = mtu.saturating_sub(overhead) / u32::from(hot.align) * u32::from(hot.align);
    if payload <= 2 { 1 } else { payload + around - 2 }
}
