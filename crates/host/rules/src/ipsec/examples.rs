//! Policies and circumstances with which tests begin.

use super::chains::Means;
use super::wanted::{Match, Rules, Then, Wanted};
use crate::late;
use sealane_sys::marks::{Bits, Opened};
use std::net::IpAddr;

/// A process and kernel for the rules of tests.
pub(super) fn means() -> Means {
    Means::complete("sealane-ipsec", Bits::new(0x4a5b_6c70, 0x4d3c_2b10))
}

/// The marks of opened packets that come in by the devices that they came by sealed.
pub(super) const OPENED: Opened = Opened { plain: 0x5b6c_7d80, priority: 0x7d8e_9fa0 };

/// The same, where there are such packets.
pub(super) fn means_with_opened() -> Means {
    Means { opened: Some(OPENED), ..means() }
}

/// The same, where packets may leave late.
pub(super) fn means_with_late() -> Means {
    Means { late: Some(late::EXAMPLE), ..means() }
}

/// A list of policies and no default.
pub(super) fn rules(list: &[(Match, Then)]) -> Rules {
    Rules { list: list.to_vec(), block_rest: false }
}

/// A selector of all packets between two prefixes.
pub(super) fn between(source: &str, destination: &str) -> Match {
    let prefix = |text: &str| {
        let (address, bits) = text.split_once('/').expect("a prefix");
        (address.parse::<IpAddr>().expect("an address"), bits.parse::<u8>().expect("a length"))
    };
    let (source, destination) = (prefix(source), prefix(destination));
    Match { source, destination, proto: 0, sport: (0, 0), dport: (0, 0), mark: (0, 0) }
}

/// A selector of a protocol and a destination port to 192.0.2.0/24.
pub(super) fn to_port(proto: i32, port: u16) -> Match {
    Match { proto: proto as u8, dport: (port, u16::MAX), ..between("0.0.0.0/0", "192.0.2.0/24") }
}

/// The policies of the picture in the documentation.
pub(super) fn picture() -> Wanted {
    let there = between("0.0.0.0/0", "192.0.2.0/24");
    let too = between("0.0.0.0/0", "198.18.0.0/15");
    let back = Match { source: there.destination, destination: there.source, ..there };
    Wanted {
        output: rules(&[
            (to_port(libc::IPPROTO_TCP, 23), Then::Block),
            (there, Then::Protect(0)),
            (too, Then::Protect(0)),
        ]),
        input: rules(&[(back, Then::Protect(0))]),
        forward: rules(&[(back, Then::Protect(0))]),
        ..Wanted::default()
    }
}
