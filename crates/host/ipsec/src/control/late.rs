//! The devices by which packets may leave late ([`sealane_rules::late`]): those with frames of Ethernet that stand for themselves.

use sealane_sys::link::{self, Link};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

/// The folder of the settings of `br_netfilter`, if that is there.
const BRIDGE_SETTINGS: &str = "/proc/sys/net/bridge";
/// The beginning of the names of our own devices.
const OURS: &str = "sealane-";

/// The devices of a namespace.
pub(super) struct Devices {
    /// All of them, with their names.
    pub(super) there: BTreeMap<u32, String>,
    /// Those by which packets may leave late.
    pub(super) suitable: BTreeSet<u32>,
}

/// Those of the calling thread's namespace.
///
/// # Errors
/// The kernel's.
pub(super) fn devices() -> io::Result<Devices> {
    let bridges_judge = Path::new(BRIDGE_SETTINGS).exists();
    let links = link::all()?;
    let suitable = links.iter().filter(|link| is_suitable(link, bridges_judge)).map(|link| link.index).collect();
    Ok(Devices { there: links.into_iter().map(|link| (link.index, link.name)).collect(), suitable })
}

/// Whether what is about to leave by a device can be taken from it. With `br_netfilter` packets that a bridge passes on are judged as if
/// they left by it, but leave by a port.
fn is_suitable(link: &Link, bridges_judge: bool) -> bool {
    let stands_alone = link.member_of.as_deref().is_none_or(|kind| kind == "vrf");
    link.ethernet
        && !link.loopback
        && stands_alone
        && !link.name.starts_with(OURS)
        && !(bridges_judge && link.kind.as_deref() == Some("bridge"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_taken_from_a_device() {
        let of = |name: &str, kind: Option<&str>, member_of: Option<&str>| Link {
            index: 2,
            name: name.to_owned(),
            ethernet: true,
            loopback: false,
            kind: kind.map(str::to_owned),
            member_of: member_of.map(str::to_owned),
        };
        let eth = of("eth0", None, None);
        let rows = [
            (eth.clone(), true, true),
            (of("eth0", Some("vlan"), None), true, true),
            (of("eth0", None, Some("vrf")), true, true),
            (of("eth0", Some("veth"), Some("bridge")), false, false),
            (of("eth0", None, Some("bond")), false, false),
            (of("eth0", None, Some("")), false, false),
            (of("br0", Some("bridge"), None), true, false),
            (of("sealane-out0", Some("tun"), None), false, false),
            (Link { ethernet: false, ..eth.clone() }, false, false),
            (Link { loopback: true, ..eth }, false, false),
        ];
        for (link, without, with) in rows {
            assert_eq!([false, true].map(|judge| is_suitable(&link, judge)), [without, with], "{link:?}");
        }
    }
}
