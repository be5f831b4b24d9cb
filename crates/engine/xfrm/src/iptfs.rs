//! States of IP-TFS (`net/xfrm/xfrm_iptfs.c`).

use crate::convert;
use crate::state::State;
use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::{AF_INET, Attribute, Attributes, Reason, XFRM_MODE_IPTFS, XFRM_SA_DIR_IN};
use sealane_net_ipsec::iptfs::Config;
use sealane_net_ipsec::mtu::iptfs_header_len;
use sealane_net_ipsec::transform::Transform;
use sealane_wire::ip::Family;

/// The properties that a request asks for (`iptfs_user_init`); `None` for a state in another mode.
pub(crate) fn config(state: &State, transform: &Transform, attrs: &Attributes<'_>) -> Result<Option<Config>, Reject> {
    if state.info.mode != XFRM_MODE_IPTFS {
        return Ok(None);
    }
    let of = Config::default();
    let config = Config {
        dont_frag: attrs.iptfs_dont_frag()?.is_some(),
        pkt_size: attrs.iptfs_pkt_size()?.unwrap_or(of.pkt_size),
        max_queue_len: attrs.iptfs_max_qsize()?.unwrap_or(of.max_queue_len),
        init_delay_us: attrs.iptfs_init_delay()?.unwrap_or(of.init_delay_us),
        reorder_pkts: attrs.iptfs_reorder_window()?.unwrap_or(of.reorder_pkts),
        drop_time_us: attrs.iptfs_drop_time()?.unwrap_or(of.drop_time_us),
        rate: None,
    };
    let family = if state.info.family == AF_INET { Family::V4 } else { Family::V6 };
    let carrier = state.encap.map(|of| convert::encap(of).by);
    let least = iptfs_header_len(family, transform, carrier);
    if config.pkt_size != 0 && config.pkt_size as usize <= least {
        return Err(Reason::IptfsPktSize.into());
    }
    Ok(Some(config))
}

/// Appends the attributes of a state of IP-TFS, in the kernel's order (`iptfs_copy_to_user`).
pub(crate) fn tell(state: &State, attrs: &mut Vec<Attribute>) {
    let Some(config) = state.iptfs else { return };
    if state.dir == XFRM_SA_DIR_IN {
        attrs.push(Attribute::IptfsDropTime(config.drop_time_us));
        attrs.push(Attribute::IptfsReorderWindow(config.reorder_pkts));
        return;
    }
    if config.dont_frag {
        attrs.push(Attribute::IptfsDontFrag(()));
    }
    attrs.push(Attribute::IptfsInitDelay(config.init_delay_us));
    attrs.push(Attribute::IptfsMaxQsize(config.max_queue_len));
    attrs.push(Attribute::IptfsPktSize(config.pkt_size));
}
