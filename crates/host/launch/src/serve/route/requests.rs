//! Requests that mean the same whoever sends them by a socket, if they have CAP_NET_ADMIN over its network namespace: nothing in
//! them is a descriptor, a process, a user or another namespace, which the kernel looks for where their sender is.

use super::call::IFINFOMSG;
use sealane_abi::netlink::{Attrs, Message, NLM_F_REQUEST, NLMSG_MIN_TYPE};

/// One kind of requests.
struct Kind {
    /// The first of four types: to add, delete, get and set.
    first: u16,
    /// The length of the structure before the attributes.
    fixed: usize,
    /// The attributes that may be in it.
    attributes: &'static [u16],
}

/// Devices, addresses, routes and rules (`linux/if_link.h`, `if_addr.h`, `rtnetlink.h`, `fib_rules.h`).
const KINDS: [Kind; 4] = [
    Kind {
        first: libc::RTM_NEWLINK,
        fixed: IFINFOMSG,
        attributes: &[
            libc::IFLA_ADDRESS,
            libc::IFLA_BROADCAST,
            libc::IFLA_IFNAME,
            libc::IFLA_MTU,
            libc::IFLA_LINK,
            libc::IFLA_MASTER,
            libc::IFLA_TXQLEN,
            libc::IFLA_OPERSTATE,
            libc::IFLA_LINKMODE,
            libc::IFLA_LINKINFO,
            libc::IFLA_IFALIAS,
            libc::IFLA_GROUP,
            libc::IFLA_EXT_MASK,
            libc::IFLA_PROMISCUITY,
            libc::IFLA_NUM_TX_QUEUES,
            libc::IFLA_NUM_RX_QUEUES,
        ],
    },
    // All but IFA_TARGET_NETNSID.
    Kind { first: libc::RTM_NEWADDR, fixed: 8, attributes: &[1, 2, 3, 4, 5, 6, 7, 8, 9, 11] },
    // RTA_DST, SRC, IIF, OIF, GATEWAY, PRIORITY, PREFSRC, TABLE, MARK, VIA, PREF, EXPIRES, IP_PROTO, SPORT, DPORT, NH_ID.
    Kind {
        first: libc::RTM_NEWROUTE,
        fixed: 12,
        attributes: &[1, 2, 3, 4, 5, 6, 7, 15, 16, 18, 20, 23, 27, 28, 29, 30],
    },
    // All but FRA_UID_RANGE.
    Kind {
        first: libc::RTM_NEWRULE,
        fixed: 12,
        attributes: &[1, 2, 3, 4, 6, 10, 11, 12, 13, 14, 15, 16, 17, 19, 21, 22, 23, 24],
    },
];

/// Kinds of devices whose data says nothing of the sender: a veth's peer may be in the namespace of a process.
const DEVICES: [&[u8]; 8] = [b"dummy", b"bridge", b"bond", b"vlan", b"vrf", b"vxlan", b"gre", b"ipip"];

/// Whether a message means the same whoever sends it.
pub(super) fn is_anybodys(m: &Message<'_>) -> bool {
    let header = &m.header;
    if header.nlmsg_flags & NLM_F_REQUEST == 0 || header.nlmsg_type < NLMSG_MIN_TYPE {
        return true;
    }
    let Some(kind) = KINDS.iter().find(|kind| kind.first == header.nlmsg_type & !3) else { return false };
    Attrs::new(m.payload.get(kind.fixed..).unwrap_or_default()).all(|attribute| {
        let is_link = kind.first == libc::RTM_NEWLINK && attribute.type_ == libc::IFLA_LINKINFO;
        kind.attributes.contains(&attribute.type_) && (!is_link || is_plain_device(attribute.payload))
    })
}

fn is_plain_device(info: &[u8]) -> bool {
    let kind = Attrs::new(info).find(|a| a.type_ == libc::IFLA_INFO_KIND).map(|a| a.payload);
    kind.and_then(|kind| kind.split(|b| *b == 0).next()).is_some_and(|kind| DEVICES.contains(&kind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_abi::netlink::answer::message;
    use sealane_abi::netlink::{Messages, push_attr};

    fn is_anybodys_with(type_: u16, fixed: usize, attributes: &[(u16, &[u8])]) -> bool {
        let mut payload = vec![0; fixed];
        attributes.iter().for_each(|(type_, bytes)| push_attr(&mut payload, *type_, bytes));
        let bytes = message(type_, NLM_F_REQUEST, 1, 0, &payload);
        is_anybodys(&Messages::new(&bytes).next().expect("a message"))
    }

    #[test]
    fn what_the_kernel_looks_for_where_the_sender_is() {
        let kind = |kind: &[u8]| {
            let mut info = Vec::new();
            push_attr(&mut info, libc::IFLA_INFO_KIND, kind);
            info
        };
        let name = (libc::IFLA_IFNAME, &b"x0\0"[..]);
        let [dummy, veth] = [&b"dummy\0"[..], b"veth\0"].map(kind);
        assert!(is_anybodys_with(libc::RTM_NEWLINK, 16, &[name, (libc::IFLA_LINKINFO, &dummy)]));
        assert!(!is_anybodys_with(libc::RTM_NEWLINK, 16, &[name, (libc::IFLA_LINKINFO, &veth)]));
        assert!(!is_anybodys_with(libc::RTM_SETLINK, 16, &[name, (libc::IFLA_NET_NS_FD, &[3, 0, 0, 0])]));
        assert!(is_anybodys_with(libc::RTM_GETLINK, 16, &[name]) && is_anybodys_with(libc::RTM_DELLINK, 16, &[]));
        assert!(is_anybodys_with(libc::RTM_NEWROUTE, 12, &[(libc::RTA_DST, &[10, 0, 0, 0])]));
        const RTA_ENCAP: u16 = 22;
        assert!(!is_anybodys_with(libc::RTM_NEWROUTE, 12, &[(RTA_ENCAP, &[])]));
        assert!(is_anybodys_with(libc::RTM_GETRULE, 12, &[]) && !is_anybodys_with(libc::RTM_NEWNSID, 4, &[]));
    }
}
