//! Checks of a new state before anything is created (`verify_newsa_info`), in the kernel's order.

use sealane_abi::netlink::rules::Reject;
use sealane_abi::xfrm::*;

/// IP protocol of destination options (Mobile IPv6's home address option).
const IPPROTO_DSTOPTS: u8 = 60;
/// IP protocol of the routing header.
const IPPROTO_ROUTING: u8 = 43;

/// The attributes of IP-TFS.
const IPTFS: [u16; 6] = [
    XFRMA_IPTFS_DROP_TIME,
    XFRMA_IPTFS_REORDER_WINDOW,
    XFRMA_IPTFS_DONT_FRAG,
    XFRMA_IPTFS_INIT_DELAY,
    XFRMA_IPTFS_MAX_QSIZE,
    XFRMA_IPTFS_PKT_SIZE,
];

/// A family that addresses can be of (`verify_xfrm_family`).
pub(crate) fn family(family: u16) -> Result<(), Reject> {
    if matches!(family, AF_INET | AF_INET6) { Ok(()) } else { Err(Reason::Family.into()) }
}

/// Prefixes of a selector (`verify_selector_prefixlen`).
pub(crate) fn prefixes(family: u16, sel: &Selector) -> Result<(), Reject> {
    let longest = sel.prefixlen_d.max(sel.prefixlen_s);
    match family {
        0 => Ok(()),
        AF_INET if longest > 32 => Err(Reason::SelectorPrefix4.into()),
        AF_INET6 if longest > 128 => Err(Reason::SelectorPrefix6.into()),
        AF_INET | AF_INET6 => Ok(()),
        _ => Err(Reason::SelectorFamily.into()),
    }
}

/// `XFRMA_MTIMER_THRESH` (`verify_mtimer_thresh`).
pub(crate) fn mtimer(has_encap: bool, dir: u8) -> Result<(), Reject> {
    if !has_encap {
        return Err(Reason::MtimerEncap.into());
    }
    if dir == XFRM_SA_DIR_OUT {
        return Err(Reason::MtimerOut.into());
    }
    Ok(())
}

/// All of it.
pub(crate) fn new_state(p: &UsersaInfo, attrs: &Attributes<'_>) -> Result<(), Reject> {
    let has = |attr: u16| attrs.raw(attr).is_some();
    let dir = attrs.sa_dir()?.unwrap_or(0);
    family(p.family)?;
    let unspecified = p.sel.family == 0 && p.flags & XFRM_STATE_AF_UNSPEC == 0;
    prefixes(if unspecified { p.family } else { p.sel.family }, &p.sel)?;
    protocol(p, &has)?;
    attrs.alg_aead()?;
    attrs.alg_auth_trunc()?;
    attrs.alg_auth()?;
    attrs.alg_crypt()?;
    attrs.alg_comp()?;
    attrs.sec_ctx()?;
    replay(p, attrs, dir)?;
    match p.mode {
        XFRM_MODE_TRANSPORT | XFRM_MODE_TUNNEL | XFRM_MODE_ROUTEOPTIMIZATION | XFRM_MODE_BEET => {}
        XFRM_MODE_IPTFS if p.id.proto != IPPROTO_ESP => return Err(Reason::IptfsProto.into()),
        XFRM_MODE_IPTFS if dir == 0 => return Err(Reason::IptfsDir.into()),
        XFRM_MODE_IPTFS => {}
        _ => return Err(Reason::Mode.into()),
    }
    if has(XFRMA_MTIMER_THRESH) {
        mtimer(has(XFRMA_ENCAP), dir)?;
    }
    match dir {
        XFRM_SA_DIR_OUT => output(p, attrs, &has)?,
        XFRM_SA_DIR_IN => input(p, attrs, &has)?,
        _ => {}
    }
    if dir == 0 && has(XFRMA_SA_PCPU) {
        return Err(Reason::PcpuDir.into());
    }
    Ok(())
}

/// Checks the attributes that a protocol requires or excludes.
fn protocol(p: &UsersaInfo, has: &dyn Fn(u16) -> bool) -> Result<(), Reject> {
    let any = |attrs: &[u16]| attrs.iter().any(|attr| has(*attr));
    let auth = [XFRMA_ALG_AUTH, XFRMA_ALG_AUTH_TRUNC];
    let auth_or_crypt = [XFRMA_ALG_AUTH, XFRMA_ALG_AUTH_TRUNC, XFRMA_ALG_CRYPT];
    let reason = match p.id.proto {
        IPPROTO_AH if !any(&auth) => Reason::AhMissing,
        IPPROTO_AH if any(&[XFRMA_ALG_AEAD, XFRMA_ALG_CRYPT, XFRMA_ALG_COMP, XFRMA_TFCPAD]) => Reason::AhAttributes,
        IPPROTO_ESP if has(XFRMA_ALG_COMP) => Reason::EspComp,
        IPPROTO_ESP if !any(&auth_or_crypt) && !has(XFRMA_ALG_AEAD) => Reason::EspMissing,
        IPPROTO_ESP if any(&auth_or_crypt) && has(XFRMA_ALG_AEAD) => Reason::EspAead,
        IPPROTO_ESP if has(XFRMA_TFCPAD) && p.mode != XFRM_MODE_TUNNEL => Reason::TfcMode,
        IPPROTO_ESP if any(&IPTFS) && p.mode != XFRM_MODE_IPTFS => Reason::IptfsOptions,
        IPPROTO_COMP if !has(XFRMA_ALG_COMP) => Reason::CompMissing,
        IPPROTO_COMP if any(&auth_or_crypt) || any(&[XFRMA_ALG_AEAD, XFRMA_TFCPAD]) => Reason::CompAttributes,
        IPPROTO_COMP if p.id.spi.get() >= 0x10000 => Reason::CompSpi,
        IPPROTO_DSTOPTS | IPPROTO_ROUTING
            if any(&auth_or_crypt)
                || any(&[XFRMA_ALG_COMP, XFRMA_ALG_AEAD, XFRMA_ENCAP, XFRMA_SEC_CTX, XFRMA_TFCPAD]) =>
        {
            Reason::MipAttributes
        }
        IPPROTO_DSTOPTS | IPPROTO_ROUTING if !has(XFRMA_COADDR) => Reason::MipMissing,
        IPPROTO_AH | IPPROTO_ESP | IPPROTO_COMP | IPPROTO_DSTOPTS | IPPROTO_ROUTING => return Ok(()),
        _ => Reason::Proto,
    };
    Err(reason.into())
}

/// Sequence numbers of 64 bits (`verify_replay`).
fn replay(p: &UsersaInfo, attrs: &Attributes<'_>, dir: u8) -> Result<(), Reject> {
    let esn = p.flags & XFRM_STATE_ESN != 0;
    let Some(rs) = attrs.replay_esn_val()? else {
        return if esn { Err(Reason::EsnMissing.into()) } else { Ok(()) };
    };
    if !matches!(p.id.proto, IPPROTO_ESP | IPPROTO_AH) {
        return Err(Reason::EsnProto.into());
    }
    if p.replay_window != 0 {
        return Err(Reason::EsnReplayWindow.into());
    }
    let reason = match dir {
        XFRM_SA_DIR_OUT if rs.replay_window != 0 => Reason::OutReplayWindow,
        XFRM_SA_DIR_OUT if rs.seq != 0 || rs.seq_hi != 0 => Reason::OutReplaySeq,
        XFRM_SA_DIR_OUT if !esn && rs.oseq_hi != 0 => Reason::OutReplayOseqHi,
        XFRM_SA_DIR_OUT if !esn && rs.oseq == u32::MAX => Reason::OutReplayOseq,
        XFRM_SA_DIR_OUT if esn && rs.oseq == u32::MAX && rs.oseq_hi == u32::MAX => Reason::OutReplayOseqEnd,
        XFRM_SA_DIR_OUT if rs.bmp_len != 0 => Reason::OutReplayBitmap,
        XFRM_SA_DIR_IN if rs.oseq != 0 || rs.oseq_hi != 0 => Reason::InReplayOseq,
        XFRM_SA_DIR_IN if !esn && rs.seq_hi != 0 => Reason::InReplaySeqHi,
        XFRM_SA_DIR_IN if !esn && rs.seq == u32::MAX => Reason::InReplaySeq,
        XFRM_SA_DIR_IN if esn && rs.seq == u32::MAX && rs.seq_hi == u32::MAX => Reason::InReplaySeqEnd,
        _ => return Ok(()),
    };
    Err(reason.into())
}

/// Refuses attributes that an output state may not have.
fn output(p: &UsersaInfo, attrs: &Attributes<'_>, has: &dyn Fn(u16) -> bool) -> Result<(), Reject> {
    let replay = attrs.replay_val()?.is_some_and(|r| r.seq != 0 || r.bitmap != 0);
    let reason = match p {
        _ if p.flags & XFRM_STATE_DECAP_DSCP != 0 => Reason::OutDecapDscp,
        _ if p.flags & XFRM_STATE_ICMP != 0 => Reason::OutIcmp,
        _ if p.flags & XFRM_STATE_WILDRECV != 0 => Reason::OutWildrecv,
        _ if p.replay_window != 0 => Reason::OutReplayWindow,
        _ if has(XFRMA_IPTFS_DROP_TIME) => Reason::OutIptfsDropTime,
        _ if has(XFRMA_IPTFS_REORDER_WINDOW) => Reason::OutIptfsReorder,
        _ if replay => Reason::OutReplayVal,
        _ => return Ok(()),
    };
    Err(reason.into())
}

/// Refuses attributes that an input state may not have.
fn input(p: &UsersaInfo, attrs: &Attributes<'_>, has: &dyn Fn(u16) -> bool) -> Result<(), Reject> {
    let extra = attrs.sa_extra_flags()?.unwrap_or(0);
    let reason = match p {
        _ if p.flags & XFRM_STATE_NOPMTUDISC != 0 => Reason::InNopmtudisc,
        _ if extra & XFRM_SA_XFLAG_DONT_ENCAP_DSCP != 0 => Reason::InDontEncapDscp,
        _ if extra & XFRM_SA_XFLAG_OSEQ_MAY_WRAP != 0 => Reason::InOseqMayWrap,
        _ if has(XFRMA_IPTFS_DONT_FRAG) => Reason::InIptfsDontFrag,
        _ if has(XFRMA_IPTFS_INIT_DELAY) => Reason::InIptfsInitDelay,
        _ if has(XFRMA_IPTFS_MAX_QSIZE) => Reason::InIptfsMaxQsize,
        _ if has(XFRMA_IPTFS_PKT_SIZE) => Reason::InIptfsPktSize,
        _ => return Ok(()),
    };
    Err(reason.into())
}
