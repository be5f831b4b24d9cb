//! Devices of ours as a program sees them: of kind `xfrm`, with the attributes of one (`xfrmi_fill_info` in
//! net/xfrm/xfrm_interface_core.c).

use super::call::IFINFOMSG;
use sealane_abi::if_link::{IFLA_XFRM_IF_ID, IFLA_XFRM_LINK};
use sealane_abi::netlink::{Attr, Attrs, Message, Messages, NLA_F_NESTED, NLMSG_HDRLEN, align, push_attr};
use sealane_abi::sealane::Interface;

/// The flags of a TUN device that an xfrm interface has not.
const TUN_FLAGS: u32 = (libc::IFF_POINTOPOINT | libc::IFF_MULTICAST) as u32;

/// A datagram of the kernel's with our devices as xfrm interfaces; `None` if it tells of none. It does not become longer, so that
/// it fits where the other one did. `netns` is the cookie of the namespace in which it is read, and `is_ours` tells whether
/// the device with an index is one.
pub(super) fn rewritten(datagram: &[u8], netns: u64, is_ours: impl Fn(u32) -> bool) -> Option<Vec<u8>> {
    if !Messages::new(datagram).any(|m| interface(&m).is_some() || of_ipv6(&m).is_some()) {
        return None;
    }
    let (mut out, mut is_told_of) = (Vec::with_capacity(datagram.len()), false);
    for m in Messages::new(datagram) {
        let at = out.len();
        match interface(&m) {
            Some(interface) => {
                show(&m, interface, netns, &mut out);
                is_told_of = true;
            }
            None => {
                out.extend_from_slice(m.bytes);
                if of_ipv6(&m).is_some_and(&is_ours) {
                    show_flags(&mut out[at..]);
                    is_told_of = true;
                }
            }
        }
        out.resize(align(out.len()), 0);
    }
    is_told_of.then_some(out)
}

/// The type of an attribute with the mark of a list.
pub(super) fn whole_type(attribute: &Attr<'_>) -> u16 {
    attribute.type_ | if attribute.nested { NLA_F_NESTED } else { 0 }
}

/// The device that IPv6 tells of (`inet6_fill_ifinfo` in net/ipv6/addrconf.c), without its alias, if it may be one of ours.
fn of_ipv6(m: &Message<'_>) -> Option<u32> {
    let fixed: &[u8; IFINFOMSG] = m.payload.first_chunk()?;
    let is_link = matches!(m.header.nlmsg_type, libc::RTM_NEWLINK | libc::RTM_DELLINK);
    let number = |at: usize| u32::from_ne_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
    (is_link && i32::from(fixed[0]) == libc::AF_INET6 && number(8) & TUN_FLAGS == TUN_FLAGS).then(|| number(4))
}

/// The interface that a message is about.
fn interface(m: &Message<'_>) -> Option<Interface> {
    if !matches!(m.header.nlmsg_type, libc::RTM_NEWLINK | libc::RTM_DELLINK) {
        return None;
    }
    let alias = Attrs::new(m.payload.get(IFINFOMSG..)?).find(|a| a.type_ == libc::IFLA_IFALIAS)?.payload;
    Interface::of_alias(str::from_utf8(alias.split(|b| *b == 0).next()?).ok()?)
}

/// Takes the flags away that the device has not, in a message about one.
fn show_flags(message: &mut [u8]) {
    let flags = &mut message[NLMSG_HDRLEN + 8..NLMSG_HDRLEN + 12];
    let shown = u32::from_ne_bytes(*flags.first_chunk().expect("four bytes")) & !TUN_FLAGS;
    flags.copy_from_slice(&shown.to_ne_bytes());
}

fn show(m: &Message<'_>, interface: Interface, netns: u64, out: &mut Vec<u8>) {
    let at = out.len();
    out.extend_from_slice(&m.bytes[..NLMSG_HDRLEN + IFINFOMSG]);
    show_flags(&mut out[at..]);
    // In another namespace than its own the index would be that of another device.
    let link = if interface.is_of(netns) { interface.link } else { 0 };
    for attribute in Attrs::new(&m.payload[IFINFOMSG..]) {
        match attribute.type_ {
            libc::IFLA_IFALIAS | libc::IFLA_LINK => {}
            libc::IFLA_LINKINFO => {
                push_attr(out, libc::IFLA_LINKINFO, &info(interface, attribute.payload));
                // The place that it has in the kernel's (`rtnl_fill_link_netnsid`).
                push_attr(out, libc::IFLA_LINK, &link.to_ne_bytes());
            }
            _ => push_attr(out, whole_type(&attribute), attribute.payload),
        }
    }
    let len = (out.len() - at) as u32;
    out[at..at + 4].copy_from_slice(&len.to_ne_bytes());
}

/// The kind of an interface, and its data. Neither list is marked as one (`rtnl_link_fill` in net/core/rtnetlink.c): charon
/// compares whole types, and sends packets around an interface that it does not find. The attributes that the device has as a
/// part of another one stay: by them FRR knows a device of a VRF.
fn info(interface: Interface, of_tun: &[u8]) -> Vec<u8> {
    let (mut info, mut data) = (Vec::new(), Vec::new());
    push_attr(&mut data, IFLA_XFRM_LINK, &interface.link.to_ne_bytes());
    push_attr(&mut data, IFLA_XFRM_IF_ID, &interface.if_id.to_ne_bytes());
    push_attr(&mut info, libc::IFLA_INFO_KIND, b"xfrm\0");
    push_attr(&mut info, libc::IFLA_INFO_DATA, &data);
    let is_of_part = |a: &Attr<'_>| matches!(a.type_, libc::IFLA_INFO_SLAVE_KIND | libc::IFLA_INFO_SLAVE_DATA);
    for attribute in Attrs::new(of_tun).filter(is_of_part) {
        push_attr(&mut info, whole_type(&attribute), attribute.payload);
    }
    info
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::netlink::answer::message;

    #[test]
    fn only_devices_of_ours_change() {
        let device = |alias: &str| {
            let mut payload = vec![0; IFINFOMSG];
            payload[8..12].copy_from_slice(&(TUN_FLAGS | 1).to_ne_bytes());
            push_attr(&mut payload, libc::IFLA_IFNAME, b"ipsec0\0");
            push_attr(&mut payload, libc::IFLA_IFALIAS, &[alias.as_bytes(), &[0]].concat());
            let mut info = Vec::new();
            push_attr(&mut info, libc::IFLA_INFO_KIND, b"tun\0");
            push_attr(&mut info, libc::IFLA_INFO_DATA | NLA_F_NESTED, &[0; 40]);
            push_attr(&mut info, libc::IFLA_INFO_SLAVE_KIND, b"vrf\0");
            push_attr(&mut info, libc::IFLA_INFO_SLAVE_DATA, &[8, 0, 1, 0, 10, 0, 0, 0]);
            push_attr(&mut payload, libc::IFLA_LINKINFO | NLA_F_NESTED, &info);
            message(libc::RTM_NEWLINK, 2, 7, 9, &payload)
        };
        let other = device("mine");
        let rewritten = |datagram: &[u8], netns| rewritten(datagram, netns, |_| unreachable!("it has its alias"));
        assert_eq!(rewritten(&other, 7), None);
        let interface = Interface { if_id: 42, link: 3, home: 7 };
        let both = [&other[..], &device(&interface.alias())].concat();
        let shown = rewritten(&both, 7).expect("one of ours");
        assert!(shown.len() < both.len());
        let list: Vec<_> = Messages::new(&shown).collect();
        assert_eq!((list.len(), list[0].bytes), (2, &other[..]));
        let flags = u32::from_ne_bytes(*list[1].payload[8..].first_chunk().expect("flags"));
        assert_eq!(flags, 1);
        let attributes: Vec<_> =
            Attrs::new(&list[1].payload[IFINFOMSG..]).map(|a| (a.type_, a.nested, a.payload.to_vec())).collect();
        let mut info = Vec::new();
        push_attr(&mut info, libc::IFLA_INFO_KIND, b"xfrm\0");
        let data = [[8u8, 0, 1, 0, 3, 0, 0, 0], [8, 0, 2, 0, 42, 0, 0, 0]].concat();
        push_attr(&mut info, libc::IFLA_INFO_DATA, &data);
        push_attr(&mut info, libc::IFLA_INFO_SLAVE_KIND, b"vrf\0");
        push_attr(&mut info, libc::IFLA_INFO_SLAVE_DATA, &[8, 0, 1, 0, 10, 0, 0, 0]);
        let wanted = [
            (libc::IFLA_IFNAME, false, b"ipsec0\0".to_vec()),
            (libc::IFLA_LINKINFO, false, info),
            (libc::IFLA_LINK, false, 3u32.to_ne_bytes().to_vec()),
        ];
        assert_eq!(attributes, wanted);
        // Moved to another namespace.
        let shown = rewritten(&both, 8).expect("one of ours");
        let moved = Messages::new(&shown).nth(1).expect("ours");
        let link = Attrs::new(&moved.payload[IFINFOMSG..]).find(|a| a.type_ == libc::IFLA_LINK).expect("a link");
        assert_eq!(link.payload, [0; 4]);
    }

    /// IPv6 tells of a device without its alias, so that somebody looks at it.
    #[test]
    fn what_ipv6_tells() {
        let told = |family: i32, index: u32, flags: u32| {
            let mut payload = vec![0; IFINFOMSG];
            payload[0] = family as u8;
            payload[4..8].copy_from_slice(&index.to_ne_bytes());
            payload[8..12].copy_from_slice(&flags.to_ne_bytes());
            push_attr(&mut payload, libc::IFLA_IFNAME, b"ipsec0\0");
            message(libc::RTM_NEWLINK, 2, 7, 9, &payload)
        };
        let is_ours = |index: u32| index == 5;
        let shown = |bytes: &[u8]| rewritten(bytes, 7, is_ours);
        let ours = told(libc::AF_INET6, 5, TUN_FLAGS | 1);
        assert_eq!(shown(&ours), Some(told(libc::AF_INET6, 5, 1)));
        assert_eq!(shown(&told(libc::AF_INET6, 6, TUN_FLAGS | 1)), None);
        let unasked = |bytes: &[u8]| rewritten(bytes, 7, |_| unreachable!("it cannot be one"));
        assert_eq!(unasked(&told(libc::AF_INET6, 5, 1)), None, "a device that is no TUN device");
        assert_eq!(unasked(&told(libc::AF_BRIDGE, 5, TUN_FLAGS)), None);
        let both = [told(libc::AF_INET6, 6, TUN_FLAGS), ours].concat();
        let wanted = [told(libc::AF_INET6, 6, TUN_FLAGS), told(libc::AF_INET6, 5, 1)].concat();
        assert_eq!(shown(&both), Some(wanted));
    }
}
