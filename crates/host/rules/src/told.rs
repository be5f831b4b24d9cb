//! Tables as the kernel tells them.

use crate::encode::{self, ANY_SET, attribute, is_told};
use crate::nfta::*;
use crate::table::{Chain, Element, Name, Table};
use crate::transaction::ends;
use sealane_abi::netlink as nl;
use sealane_sys::netlink::{Messages, Socket};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// The names of the chains whose rules in the kernel are not those of a table. What rules have counted does not matter.
///
/// # Errors
/// The kernel's.
pub fn unlike(socket: &mut Socket, table: &Table) -> io::Result<BTreeSet<String>> {
    let told = rules(socket, table.name(), None)?;
    let wanted = table.chains.iter().filter(|chain| !chain.rules.is_empty());
    let mut unlike = BTreeSet::new();
    for chain in wanted.clone() {
        let there = told.get(&*chain.name).filter(|told| is_like(chain, told));
        if !there.map_or(Ok(false), |told| has_pairs(socket, table.name(), chain, told))? {
            unlike.insert(chain.name.clone().into_owned());
        }
    }
    unlike.extend(told.into_keys().filter(|name| wanted.clone().all(|chain| chain.name != **name)));
    Ok(unlike)
}

/// Whether these are the expressions of a chain's rules.
fn is_like(chain: &Chain, told: &[Vec<u8>]) -> bool {
    let like = |(rule, told)| {
        let mut written = Messages::new();
        written.push(0, 0, &[], |list| encode::write(rule, ANY_SET, list));
        is_told(&written.bytes()[nl::NLMSG_HDRLEN..], told)
    };
    chain.rules.len() == told.len() && chain.rules.iter().zip(told.iter().map(Vec::as_slice)).all(like)
}

/// Whether the sets of a chain's rules have their pairs.
fn has_pairs(socket: &mut Socket, table: Name<'_>, chain: &Chain, told: &[Vec<u8>]) -> io::Result<bool> {
    for (rule, told) in chain.rules.iter().zip(told) {
        let Some(pairs) = rule.pairs() else { continue };
        let set = nl::Attrs::new(told).find_map(|expression| encode::looks_up(expression.payload));
        let there: Vec<_> = told_elements(socket, table, set.unwrap_or_default(), |element| {
            let key = |type_| attribute(attribute(element, type_)?, NFTA_DATA_VALUE).map(<[u8]>::to_vec);
            Some((key(NFTA_SET_ELEM_KEY)?, key(NFTA_SET_ELEM_KEY_END)?))
        })?;
        if there.into_iter().collect::<BTreeSet<_>>() != pairs.iter().map(ends).collect() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The number of packets that the first rule of a chain that counts has counted.
///
/// # Errors
/// The kernel's.
pub fn counted(socket: &mut Socket, table: Name<'_>, chain: &str) -> io::Result<Option<u64>> {
    let told = rules(socket, table, Some(chain))?;
    let all = told.get(chain).into_iter().flatten();
    Ok(all.flat_map(|rule| nl::Attrs::new(rule)).find_map(|expression| encode::counted(expression.payload)))
}

/// The expressions of each rule, by the name of its chain.
type Rules = BTreeMap<String, Vec<Vec<u8>>>;

/// The rules of a table, or of one chain.
fn rules(socket: &mut Socket, table: Name<'_>, chain: Option<&str>) -> io::Result<Rules> {
    let mut messages = Messages::new();
    let family = table.family.number();
    messages.push(message_type(libc::NFT_MSG_GETRULE), nl::NLM_F_DUMP, &[family, 0, 0, 0], |a| {
        a.str(NFTA_RULE_TABLE, table.name);
        if let Some(chain) = chain {
            a.str(NFTA_RULE_CHAIN, chain);
        }
    });
    socket.dump(&messages, |rules: &mut Rules, message| {
        let of = |type_| attribute(message.payload.get(4..).unwrap_or_default(), type_);
        let name = |type_| of(type_)?.strip_suffix(&[0]).map(String::from_utf8_lossy);
        // Older kernels tell the rules of all tables and chains.
        if let (Some(of_table), Some(of_chain), Some(expressions)) =
            (name(NFTA_RULE_TABLE), name(NFTA_RULE_CHAIN), of(NFTA_RULE_EXPRESSIONS))
            && of_table == table.name
            && chain.is_none_or(|chain| chain == of_chain)
        {
            rules.entry(of_chain.into_owned()).or_default().push(expressions.to_vec());
        }
    })
}

/// The elements of a set.
///
/// # Errors
/// The kernel's.
pub fn elements(socket: &mut Socket, table: Name<'_>, set: &str) -> io::Result<Vec<Element>> {
    told_elements(socket, table, set, |element| {
        let key = attribute(element, NFTA_SET_ELEM_KEY).and_then(|key| attribute(key, NFTA_DATA_VALUE));
        let flags = attribute(element, NFTA_SET_ELEM_FLAGS).and_then(|flags| flags.first_chunk());
        let ends = flags.is_some_and(|f| u32::from_be_bytes(*f) & libc::NFT_SET_ELEM_INTERVAL_END as u32 != 0);
        key.map(|key| Element { key: key.to_vec(), ends })
    })
}

/// What is read of the elements of a set.
fn told_elements<T>(
    socket: &mut Socket,
    table: Name<'_>,
    set: &str,
    read: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut messages = Messages::new();
    let family = table.family.number();
    messages.push(message_type(libc::NFT_MSG_GETSETELEM), nl::NLM_F_DUMP, &[family, 0, 0, 0], |a| {
        a.str(NFTA_SET_ELEM_LIST_TABLE, table.name);
        a.str(NFTA_SET_ELEM_LIST_SET, set);
    });
    socket.dump(&messages, |elements: &mut Vec<T>, message| {
        let list = message.payload.get(4..).and_then(|b| attribute(b, NFTA_SET_ELEM_LIST_ELEMENTS)).unwrap_or_default();
        let list = nl::Attrs::new(list).filter(|a| a.type_ == NFTA_LIST_ELEM);
        elements.extend(list.filter_map(|element| read(element.payload)));
    })
}
