//! The names of numbers in the notation of `ip xfrm`.

use sealane_abi::xfrm as x;

/// Protocols of states and templates.
pub(super) const PROTOS: &[(&str, u8)] =
    &[("esp", x::IPPROTO_ESP), ("ah", x::IPPROTO_AH), ("comp", x::IPPROTO_COMP), ("route2", 43), ("hao", 60)];

/// Modes.
pub(super) const MODES: &[(&str, u8)] = &[
    ("transport", x::XFRM_MODE_TRANSPORT),
    ("tunnel", x::XFRM_MODE_TUNNEL),
    ("ro", x::XFRM_MODE_ROUTEOPTIMIZATION),
    ("in_trigger", x::XFRM_MODE_IN_TRIGGER),
    ("beet", x::XFRM_MODE_BEET),
    ("iptfs", x::XFRM_MODE_IPTFS),
];

/// Flags of states.
pub(super) const STATE_FLAGS: &[(&str, u8)] = &[
    ("noecn", x::XFRM_STATE_NOECN),
    ("decap-dscp", x::XFRM_STATE_DECAP_DSCP),
    ("nopmtudisc", x::XFRM_STATE_NOPMTUDISC),
    ("wildrecv", x::XFRM_STATE_WILDRECV),
    ("icmp", x::XFRM_STATE_ICMP),
    ("af-unspec", x::XFRM_STATE_AF_UNSPEC),
    ("align4", x::XFRM_STATE_ALIGN4),
    ("esn", x::XFRM_STATE_ESN),
];

/// Extra flags of states.
pub(super) const EXTRA_FLAGS: &[(&str, u32)] =
    &[("dont-encap-dscp", x::XFRM_SA_XFLAG_DONT_ENCAP_DSCP), ("oseq-may-wrap", x::XFRM_SA_XFLAG_OSEQ_MAY_WRAP)];

/// Flags of policies.
pub(super) const POLICY_FLAGS: &[(&str, u8)] =
    &[("localok", x::XFRM_POLICY_LOCALOK), ("icmp", x::XFRM_POLICY_ICMP), ("cpu-acquire", x::XFRM_POLICY_CPU_ACQUIRE)];

/// Directions of policies.
pub(super) const DIRS: &[(&str, u8)] =
    &[("in", x::XFRM_POLICY_IN), ("out", x::XFRM_POLICY_OUT), ("fwd", x::XFRM_POLICY_FWD)];

/// Actions of policies.
pub(super) const ACTIONS: &[(&str, u8)] = &[("allow", x::XFRM_POLICY_ALLOW), ("block", x::XFRM_POLICY_BLOCK)];

/// Types of policies.
pub(super) const PTYPES: &[(&str, u8)] = &[("main", x::XFRM_POLICY_TYPE_MAIN), ("sub", x::XFRM_POLICY_TYPE_SUB)];

/// Levels of templates.
pub(super) const LEVELS: &[(&str, u8)] = &[("required", 0), ("use", 1)];

/// Sharing modes.
pub(super) const SHARES: &[(&str, u8)] = &[
    ("any", x::XFRM_SHARE_ANY),
    ("session", x::XFRM_SHARE_SESSION),
    ("user", x::XFRM_SHARE_USER),
    ("unique", x::XFRM_SHARE_UNIQUE),
];

/// Types of encapsulation.
pub(super) const ENCAPS: &[(&str, u16)] = &[("espinudp-nonike", 1), ("espinudp", 2), ("espintcp", 7)];

/// Default actions for traffic without a policy.
pub(super) const DEFAULTS: &[(&str, u8)] =
    &[("block", x::XFRM_USERPOLICY_BLOCK), ("accept", x::XFRM_USERPOLICY_ACCEPT)];

/// Upper-layer protocols of selectors.
pub(super) const UPPER: &[(&str, u8)] = &[
    ("ip", 0),
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("sctp", 132),
    ("mobility-header", 135),
    ("udplite", 136),
];

/// The name of a number, or the number itself if it has no name.
pub(super) fn of<T: Copy + PartialEq + Into<u64>>(table: &[(&str, T)], value: T) -> String {
    let found = table.iter().find(|(_, v)| *v == value);
    found.map_or_else(|| value.into().to_string(), |(name, _)| (*name).to_owned())
}

/// The names of the bits that are set, followed by the bits without a name as a number.
pub(super) fn bits<T: Copy + Into<u64>>(table: &[(&str, T)], value: T) -> String {
    let mut left: u64 = value.into();
    let mut names = Vec::new();
    for (name, bit) in table {
        let bit: u64 = (*bit).into();
        if left & bit != 0 {
            left &= !bit;
            names.push((*name).to_owned());
        }
    }
    if left != 0 {
        names.push(format!("{left:x}"));
    }
    names.join(" ")
}

/// The name of the protocol of a state or template, or its number.
pub(super) fn proto_name(proto: u8) -> String {
    of(PROTOS, proto)
}
