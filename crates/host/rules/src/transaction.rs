//! Changes of tables, which the kernel makes all together or not at all.

use crate::encode;
use crate::nfta::*;
use crate::rule::Pair;
use crate::table::{Chain, ChainType, Element, Hook, Name, Owned, Part, Set, Table};
use crate::value::{Prefix, Value};
use sealane_abi::netlink as nl;
use sealane_sys::netlink::{Attributes, Messages, Socket, errno};
use std::collections::BTreeMap;
use std::io;
use std::time::{Duration, Instant};

/// The time in which another owner of a table may end.
const OWNER_ENDS: Duration = Duration::from_secs(3);

/// Elements per message: a message's list must stay below 64 KB.
const ELEMENTS: usize = 500;

/// A transaction: messages between a begin and an end. The kernel reports refusals, and acknowledges the last message.
#[derive(Debug)]
pub struct Transaction {
    messages: Messages,
    /// The offset of the last message.
    last: usize,
    /// The names of the sets in which its rules look for pairs.
    names: BTreeMap<Vec<Pair>, String>,
}

impl Default for Transaction {
    fn default() -> Self {
        let mut messages = Messages::new();
        messages.push(libc::NFNL_MSG_BATCH_BEGIN as u16, 0, &batch_header(), |_| {});
        Transaction { messages, last: 0, names: BTreeMap::new() }
    }
}

impl Transaction {
    /// A transaction that changes nothing.
    pub fn new() -> Self {
        Transaction::default()
    }

    fn push(&mut self, family: u8, type_: i32, flags: i32, attributes: impl FnOnce(&mut Attributes<'_>)) {
        self.last = self.messages.bytes().len();
        self.messages.push(message_type(type_), flags as u16, &[family, 0, 0, 0], attributes);
    }

    /// Deletes a table with its contents.
    pub fn delete(&mut self, Name { family, name }: Name<'_>) {
        self.push(family.number(), libc::NFT_MSG_DELTABLE, 0, |a| a.str(NFTA_TABLE_NAME, name));
    }

    /// Deletes every table of every family, like `nft flush ruleset`.
    #[cfg(test)]
    pub(crate) fn flush(&mut self) {
        self.push(libc::AF_UNSPEC as u8, libc::NFT_MSG_DELTABLE, 0, |_| {});
    }

    /// Creates a table with its contents.
    pub fn create(&mut self, table: &Table) {
        let flags = match table.owned {
            Owned::Persists => NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST,
            Owned::Goes => NFT_TABLE_F_OWNER,
            Owned::Nobody => 0,
        };
        self.push(table.family.number(), libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_TABLE_NAME, &table.name);
            a.be32(NFTA_TABLE_FLAGS, flags);
        });
        table.sets.iter().for_each(|set| self.create_set(table.name(), set));
        table.chains.iter().for_each(|chain| self.create_empty(table.name(), chain));
        table.chains.iter().for_each(|chain| self.append(table.name(), chain));
    }

    fn create_set(&mut self, Name { family, name }: Name<'_>, set: &Set) {
        let intervals = if set.intervals { libc::NFT_SET_INTERVAL as u32 } else { 0 };
        let flags = intervals | if set.timeout.is_some() { NFT_SET_TIMEOUT } else { 0 };
        self.push(family.number(), libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_SET_TABLE, name);
            a.str(NFTA_SET_NAME, set.name);
            a.be32(NFTA_SET_FLAGS, flags);
            a.be32(NFTA_SET_KEY_TYPE, set.type_number());
            a.be32(NFTA_SET_KEY_LEN, set.key_len());
            a.be32(NFTA_SET_ID, 1);
            if let Some(timeout) = set.timeout {
                a.put(NFTA_SET_TIMEOUT, &(timeout.as_millis() as u64).to_be_bytes());
            }
        });
        self.add(Name { family, name }, set.name, &set.elements);
    }

    /// Creates a chain in a table that is there.
    pub fn create_chain(&mut self, table: Name<'_>, chain: &Chain) {
        self.create_empty(table, chain);
        self.append(table, chain);
    }

    /// Creates a chain without its rules.
    fn create_empty(&mut self, Name { family, name }: Name<'_>, chain: &Chain) {
        self.push(family.number(), libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_CHAIN_TABLE, name);
            a.str(NFTA_CHAIN_NAME, &chain.name);
            let Some(Hook { kind, point, priority, device }) = &chain.hook else { return };
            a.nest(NFTA_CHAIN_HOOK, |a| {
                a.be32(NFTA_HOOK_HOOKNUM, point.number());
                a.be32(NFTA_HOOK_PRIORITY, *priority as u32);
                if let Some(device) = device {
                    a.str(NFTA_HOOK_DEV, device);
                }
            });
            let kind = match kind {
                ChainType::Filter => "filter",
                ChainType::Route => "route",
            };
            a.str(NFTA_CHAIN_TYPE, kind);
        });
    }

    /// Appends the rules of a chain.
    fn append(&mut self, Name { family, name }: Name<'_>, chain: &Chain) {
        for rule in &chain.rules {
            // The kernel refuses a rule whose set it does not know.
            let set = rule.pairs().and_then(|pairs| self.names.get(pairs)).cloned().unwrap_or_default();
            self.push(family.number(), libc::NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, |a| {
                a.str(NFTA_RULE_TABLE, name);
                a.str(NFTA_RULE_CHAIN, &chain.name);
                a.nest(NFTA_RULE_EXPRESSIONS, |list| encode::write(rule, &set, list));
            });
        }
    }

    /// The names of the sets in which rules that follow look for pairs. They have to be there already: the kernel shows the elements of such
    /// a set (`nft_set_pipapo`) to packets only after the rules of the same transaction.
    pub(crate) fn know(&mut self, names: BTreeMap<Vec<Pair>, String>) {
        self.names = names;
    }

    /// Creates a set of pairs, which nobody can change once a rule looks into it.
    pub(crate) fn create_pairs(&mut self, Name { family, name }: Name<'_>, set: &str, pairs: &[Pair]) {
        let is_v6 = pairs.iter().any(|[from, _]| from.first().bytes().len() == 16);
        let key = if is_v6 { &[Part::V6; 2] } else { &[Part::V4; 2] };
        let kind = Set::new("", key);
        let flags = (libc::NFT_SET_CONSTANT | libc::NFT_SET_INTERVAL) as u32 | NFT_SET_CONCAT;
        self.push(family.number(), libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_SET_TABLE, name);
            a.str(NFTA_SET_NAME, set);
            a.be32(NFTA_SET_FLAGS, flags);
            a.be32(NFTA_SET_KEY_TYPE, kind.type_number());
            a.be32(NFTA_SET_KEY_LEN, kind.key_len());
            a.be32(NFTA_SET_ID, 1);
            let lengths = |a: &mut Attributes<'_>| {
                key.iter().for_each(|part| a.nest(NFTA_LIST_ELEM, |a| a.be32(NFTA_SET_FIELD_LEN, part.len())));
            };
            a.nest(NFTA_SET_DESC, |a| a.nest(NFTA_SET_DESC_CONCAT, lengths));
        });
        self.push(family.number(), libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE, |a| {
            a.str(NFTA_SET_ELEM_LIST_TABLE, name);
            a.str(NFTA_SET_ELEM_LIST_SET, set);
            a.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |a| {
                for (first, last) in pairs.iter().map(ends) {
                    a.nest(NFTA_LIST_ELEM, |a| {
                        a.nest(NFTA_SET_ELEM_KEY, |a| a.put(NFTA_DATA_VALUE, &first));
                        a.nest(NFTA_SET_ELEM_KEY_END, |a| a.put(NFTA_DATA_VALUE, &last));
                    });
                }
            });
        });
    }

    /// Deletes a set in which no rule looks any more.
    pub(crate) fn delete_set(&mut self, Name { family, name }: Name<'_>, set: &str) {
        self.push(family.number(), libc::NFT_MSG_DELSET, 0, |a| {
            a.str(NFTA_SET_TABLE, name);
            a.str(NFTA_SET_NAME, set);
        });
    }

    /// Writes the rules of a chain in place of those that are there.
    pub fn rewrite(&mut self, table: Name<'_>, chain: &Chain) {
        self.empty(table, &chain.name);
        self.append(table, chain);
    }

    /// Deletes all rules of a chain.
    pub(crate) fn empty(&mut self, Name { family, name }: Name<'_>, chain: &str) {
        self.push(family.number(), libc::NFT_MSG_DELRULE, 0, |a| {
            a.str(NFTA_RULE_TABLE, name);
            a.str(NFTA_RULE_CHAIN, chain);
        });
    }

    /// Deletes a chain.
    pub fn delete_chain(&mut self, Name { family, name }: Name<'_>, chain: &str) {
        self.push(family.number(), libc::NFT_MSG_DELCHAIN, 0, |a| {
            a.str(NFTA_CHAIN_TABLE, name);
            a.str(NFTA_CHAIN_NAME, chain);
        });
    }

    /// Removes all elements of a set.
    pub fn clear(&mut self, Name { family, name }: Name<'_>, set: &str) {
        self.push(family.number(), libc::NFT_MSG_DELSETELEM, 0, |a| {
            a.str(NFTA_SET_ELEM_LIST_TABLE, name);
            a.str(NFTA_SET_ELEM_LIST_SET, set);
        });
    }

    /// Adds elements to a set.
    pub fn add(&mut self, table: Name<'_>, set: &str, elements: &[Element]) {
        self.elements(table, (libc::NFT_MSG_NEWSETELEM, libc::NLM_F_CREATE), set, elements);
    }

    /// Removes elements from a set.
    pub fn remove(&mut self, table: Name<'_>, set: &str, elements: &[Element]) {
        self.elements(table, (libc::NFT_MSG_DELSETELEM, 0), set, elements);
    }

    fn elements(
        &mut self,
        Name { family, name }: Name<'_>,
        (type_, flags): (i32, i32),
        set: &str,
        elements: &[Element],
    ) {
        for chunk in elements.chunks(ELEMENTS) {
            self.push(family.number(), type_, flags, |a| {
                a.str(NFTA_SET_ELEM_LIST_TABLE, name);
                a.str(NFTA_SET_ELEM_LIST_SET, set);
                a.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |a| {
                    for element in chunk {
                        a.nest(NFTA_LIST_ELEM, |a| {
                            a.nest(NFTA_SET_ELEM_KEY, |a| a.put(NFTA_DATA_VALUE, &element.key));
                            if element.ends {
                                a.be32(NFTA_SET_ELEM_FLAGS, libc::NFT_SET_ELEM_INTERVAL_END as u32);
                            }
                        });
                    }
                });
            });
        }
    }

    /// The messages; `None` when there is nothing to do.
    fn finish(mut self) -> Option<Messages> {
        if self.messages.len() == 1 {
            return None;
        }
        self.messages.acknowledge(self.last);
        self.messages.push(libc::NFNL_MSG_BATCH_END as u16, 0, &batch_header(), |_| {});
        Some(self.messages)
    }

    /// Applies all of it, or nothing; waits a little where the table that it replaces has another owner. That may be a
    /// process which keeps a predecessor's socket and is about to end.
    ///
    /// # Errors
    /// As [`Transaction::commit`].
    pub fn replace(self, socket: &mut Socket, table: Name<'_>) -> io::Result<()> {
        let Some(messages) = self.finish() else { return Ok(()) };
        let start = Instant::now();
        loop {
            match socket.transact(&messages) {
                Err(e) if errno(&e) == Some(libc::EPERM) => {
                    // Without CAP_NET_ADMIN this fails, too.
                    exists(socket, table)?;
                    if start.elapsed() > OWNER_ENDS {
                        let name = table.name;
                        let why = format!("another process owns the table {name} (a service manager may keep it)");
                        return Err(io::Error::new(e.kind(), why));
                    }
                    std::thread::sleep(Duration::from_millis(20));
                }
                done => return done,
            }
        }
    }

    /// Applies all of it, or nothing.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn commit(self, socket: &mut Socket) -> io::Result<()> {
        self.finish().map_or(Ok(()), |messages| socket.transact(&messages))
    }
}

/// The first and the last key of a pair.
pub(crate) fn ends(pair: &Pair) -> (Vec<u8>, Vec<u8>) {
    let key = |of: fn(&Prefix) -> Value| pair.iter().flat_map(|prefix| of(prefix).bytes().to_vec()).collect();
    (key(Prefix::first), key(Prefix::last))
}

/// `struct nfgenmsg` of a batch: its resource is the subsystem.
fn batch_header() -> [u8; 4] {
    let [high, low] = (libc::NFNL_SUBSYS_NFTABLES as u16).to_be_bytes();
    [libc::AF_UNSPEC as u8, 0, high, low]
}

/// Whether a table of this name exists.
///
/// # Errors
/// The kernel's.
pub fn exists(socket: &mut Socket, Name { family, name }: Name<'_>) -> io::Result<bool> {
    let mut messages = Messages::new();
    let type_ = message_type(libc::NFT_MSG_GETTABLE);
    messages.push(type_, nl::NLM_F_ACK, &[family.number(), 0, 0, 0], |a| a.str(NFTA_TABLE_NAME, name));
    match socket.transact(&messages) {
        Ok(()) => Ok(true),
        Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}
