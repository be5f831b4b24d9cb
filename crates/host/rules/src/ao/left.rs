//! Peers that a predecessor left protected: those in a table whose owner died.

use super::peers::PEERS;
use super::tables::{GUARD, TABLE};
use crate::table::{Element, Name};
use crate::told::elements;
use sealane_sys::netlink::{Socket, errno};
use std::io;
use std::net::IpAddr;

/// The peers that the table of the calling thread's namespace protects; empty where there is no table.
///
/// # Errors
/// The kernel's.
pub fn left() -> io::Result<Vec<(IpAddr, u8)>> {
    let mut socket = Socket::open(libc::NETLINK_NETFILTER)?;
    // If the owner has gone with the rules that queue, those that drop are left.
    match left_in(&mut socket, TABLE) {
        Err(e) if errno(&e) == Some(libc::ENOENT) => {}
        done => return done,
    }
    match left_in(&mut socket, GUARD) {
        Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(Vec::new()),
        done => done,
    }
}

/// The peers that one table protects.
fn left_in(socket: &mut Socket, table: Name<'_>) -> io::Result<Vec<(IpAddr, u8)>> {
    let mut peers = Vec::new();
    for (family, of) in PEERS.into_iter().enumerate() {
        let [hosts, nets] = of.sets;
        let hosts = ends(&elements(socket, table, hosts)?);
        peers.extend(hosts.into_iter().map(|end| (address(family, end.first), [32, 128][family])));
        let nets = prefixes(ends(&elements(socket, table, nets)?));
        peers.extend(nets.into_iter().map(|(first, len)| (address(family, first), len)));
    }
    Ok(peers)
}

/// An end of an interval: an address in the upper bits, and whether it ends the interval (which it is not part of). In
/// sort order, an end precedes a beginning at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct End {
    first: u128,
    begins: bool,
}

/// Elements as ends of intervals.
fn ends(elements: &[Element]) -> Vec<End> {
    let addresses = elements.iter().filter(|element| element.key.len() <= 16);
    let end = |element: &Element| {
        let mut bytes = [0; 16];
        bytes[..element.key.len()].copy_from_slice(&element.key);
        End { first: u128::from_be_bytes(bytes), begins: !element.ends }
    };
    addresses.map(end).collect()
}

/// Converts intervals to prefixes. Each interval that we write is one prefix; others are covered by the prefixes that
/// they touch.
fn prefixes(mut ends: Vec<End>) -> Vec<(u128, u8)> {
    ends.sort();
    let mut out = Vec::new();
    for (i, end) in ends.iter().enumerate().filter(|(_, end)| end.begins) {
        let last = ends.get(i + 1).map_or(u128::MAX, |next| next.first.wrapping_sub(1));
        let len = (end.first ^ last).leading_zeros() as u8;
        out.push((end.first, len));
    }
    out
}

fn address(family: usize, first: u128) -> IpAddr {
    if family == 0 { IpAddr::from(((first >> 96) as u32).to_be_bytes()) } else { IpAddr::from(first.to_be_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_become_prefixes() {
        let v4 = |a: u8, b: u8, c: u8, d: u8| u128::from(u32::from_be_bytes([a, b, c, d])) << 96;
        let [begin, end] = [true, false].map(|begins| move |first| End { first, begins });
        // In descending order, as in a dump.
        let list = vec![
            begin(v4(224, 0, 0, 0)),
            end(v4(10, 3, 0, 0)),
            begin(v4(10, 2, 0, 0)),
            end(v4(10, 2, 0, 0)),
            begin(v4(10, 0, 0, 0)),
            end(0),
        ];
        // Two adjacent prefixes, and one that ends with the last address.
        assert_eq!(prefixes(list), [(v4(10, 0, 0, 0), 15), (v4(10, 2, 0, 0), 16), (v4(224, 0, 0, 0), 3)]);
        assert_eq!(prefixes(vec![begin(0)]), [(0, 0)], "everything");
        assert_eq!(prefixes(vec![end(0)]), []);
        assert_eq!(address(0, v4(10, 2, 0, 1)), IpAddr::from([10, 2, 0, 1]));
    }
}
