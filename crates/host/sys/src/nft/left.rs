//! Peers that a predecessor left protected: those in a table whose owner died.

use super::write::GUARD;
use super::write::{NFTA_LIST_ELEM, NFTA_SET_ELEM_FLAGS, NFTA_SET_ELEM_KEY, NFTA_SET_ELEM_LIST_ELEMENTS};
use super::write::{NFTA_SET_ELEM_LIST_SET, NFTA_SET_ELEM_LIST_TABLE, PEERS};
use super::{INET, TABLE};
use crate::netlink::{Messages, Socket, errno};
use sealane_abi::netlink as nl;
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
fn left_in(socket: &mut Socket, table: &str) -> io::Result<Vec<(IpAddr, u8)>> {
    let mut peers = Vec::new();
    for (family, (sets, _, _)) in PEERS.into_iter().enumerate() {
        for set in sets {
            let elements = elements_of(socket, table, set)?;
            if set == sets[0] {
                let width = [32, 128][family];
                peers.extend(elements.iter().map(|e| (address(family, e.first), width)));
            } else {
                peers.extend(prefixes(elements).into_iter().map(|(first, len)| (address(family, first), len)));
            }
        }
    }
    Ok(peers)
}

/// An element of a set: an address in the upper bits, and whether it ends an interval (which it is not part of). In
/// sort order, an end precedes a beginning at the same address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Element {
    first: u128,
    begins: bool,
}

fn elements_of(socket: &mut Socket, table: &str, set: &str) -> io::Result<Vec<Element>> {
    let mut messages = Messages::new();
    let type_ = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETSETELEM) as u16;
    messages.push(type_, nl::NLM_F_DUMP, &[INET, 0, 0, 0], |a| {
        a.str(NFTA_SET_ELEM_LIST_TABLE, table);
        a.str(NFTA_SET_ELEM_LIST_SET, set);
    });
    socket.dump(&messages, |out: &mut Vec<Element>, message| {
        let within = |bytes, type_| nl::Attrs::new(bytes).find(|a: &nl::Attr<'_>| a.type_ == type_).map(|a| a.payload);
        let list = message.payload.get(4..).and_then(|b| within(b, NFTA_SET_ELEM_LIST_ELEMENTS)).unwrap_or_default();
        for element in nl::Attrs::new(list).filter(|a| a.type_ == NFTA_LIST_ELEM) {
            let key = within(element.payload, NFTA_SET_ELEM_KEY).and_then(|k| within(k, super::write::NFTA_DATA_VALUE));
            let flags = within(element.payload, NFTA_SET_ELEM_FLAGS).and_then(|f| f.first_chunk());
            let Some(key) = key.filter(|k| k.len() <= 16) else { continue };
            let mut bytes = [0; 16];
            bytes[..key.len()].copy_from_slice(key);
            let ends = flags.is_some_and(|f| u32::from_be_bytes(*f) & libc::NFT_SET_ELEM_INTERVAL_END as u32 != 0);
            out.push(Element { first: u128::from_be_bytes(bytes), begins: !ends });
        }
    })
}

/// Converts intervals to prefixes. Each interval that we write is one prefix; others are covered by the prefixes that
/// they touch.
fn prefixes(mut elements: Vec<Element>) -> Vec<(u128, u8)> {
    elements.sort();
    let mut out = Vec::new();
    for (i, element) in elements.iter().enumerate().filter(|(_, e)| e.begins) {
        let last = elements.get(i + 1).map_or(u128::MAX, |next| next.first.wrapping_sub(1));
        let len = (element.first ^ last).leading_zeros() as u8;
        out.push((element.first, len));
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
        let [begin, end] = [true, false].map(|begins| move |first| Element { first, begins });
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
