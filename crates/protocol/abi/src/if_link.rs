//! `linux/if_link.h`, as far as devices of kind `xfrm` need it.

/// Attribute of an xfrm interface: the index of the device that it is on, `u32`.
pub const IFLA_XFRM_LINK: u16 = 1;
/// Attribute of an xfrm interface: its interface id, `u32`.
pub const IFLA_XFRM_IF_ID: u16 = 2;
/// Attribute of an xfrm interface: it serves every interface id, which routes and programs name. A flag.
pub const IFLA_XFRM_COLLECT_METADATA: u16 = 3;
/// Attribute of a device: the id of the namespace in which it is to be, `s32`.
pub const IFLA_TARGET_NETNSID: u16 = 46;
