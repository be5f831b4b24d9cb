//! Tables, sets, chains and rules as netlink messages.

use super::cover::{Bits, Change};
use super::expr::{R1, Rule};
use crate::netlink::{Attributes, Messages, Socket, errno};
use sealane_abi::netlink as nl;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

/// The name of our tables.
pub(super) const TABLE: &str = "sealane";
/// The name of the table without an owner, where [`TABLE`] would not outlive its owner.
pub(super) const GUARD: &str = "sealane-guard";

/// The families in which we have a table.
pub(super) const INET: u8 = libc::NFPROTO_INET as u8;
pub(super) const NETDEV: u8 = libc::NFPROTO_NETDEV as u8;

/// A connection as its incoming segments show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The device at which they arrive. Segments of a VLAN pass the hook of its parent device first, but do not match
    /// there.
    pub device: u32,
    /// The sender's address.
    pub source: SocketAddr,
    /// Our address.
    pub destination: SocketAddr,
}

/// A connection, by the address and port of its peer and of our end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Connection {
    /// The peer's end.
    pub remote: SocketAddr,
    /// Our end.
    pub local: SocketAddr,
}

/// The TCP option of TCP-AO (RFC 5925, section 2.2).
pub(super) const TCPOPT_AO: u8 = 29;

/// After the filters (0), security modules (50) and source NAT (100) of others: packets that they drop never reach us,
/// and they do not see packets twice that we drop.
pub(super) const PRIORITY: i32 = 250;
/// The priority of [`GUARD`]'s chains, right after.
pub(super) const GUARD_PRIORITY: i32 = PRIORITY + 1;
/// The bit of a packet's mark from the chains of [`TABLE`] to those of [`GUARD`], which take it away again: the packet has
/// been judged.
pub(super) const JUDGED: u32 = 0x8000_0000;

pub(super) const NFTA_LIST_ELEM: u16 = 1;
pub(super) const NFTA_TABLE_NAME: u16 = 1;
pub(super) const NFTA_TABLE_FLAGS: u16 = 2;
pub(super) const NFT_TABLE_F_OWNER: u32 = 2;
pub(super) const NFT_TABLE_F_PERSIST: u32 = 4;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_HOOK_DEV: u16 = 3;
pub(super) const NFTA_CHAIN_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
pub(super) const NFTA_CHAIN_HOOK: u16 = 4;
pub(super) const NFTA_CHAIN_TYPE: u16 = 7;
pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(super) const NFTA_SET_TABLE: u16 = 1;
pub(super) const NFTA_SET_NAME: u16 = 2;
pub(super) const NFTA_SET_FLAGS: u16 = 3;
pub(super) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(super) const NFTA_SET_KEY_LEN: u16 = 5;
pub(super) const NFTA_SET_ID: u16 = 10;
pub(super) const NFTA_SET_ELEM_KEY: u16 = 1;
pub(super) const NFTA_SET_ELEM_FLAGS: u16 = 3;
pub(super) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(super) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(super) const NFTA_DATA_VALUE: u16 = 1;

/// The time in which another owner of a table may end.
const OWNER_ENDS: Duration = Duration::from_secs(3);

/// Elements per message: a message's list must stay below 64 KB.
const ELEMENTS: usize = 500;

/// The numbers that `nft` uses for data types, so that `nft list ruleset` prints our sets.
pub(super) const TYPE_IPADDR: u32 = 7;
pub(super) const TYPE_IP6ADDR: u32 = 8;
const TYPE_INET_SERVICE: u32 = 13;
const TYPE_IFINDEX: u32 = 20;

/// Names, key length in bytes and type of the sets of peers, v4 and v6: hosts, and prefixes. Adding or removing an
/// element of a hashed set takes as long as a lookup; adding one to 100,000 intervals takes 12 ms.
pub(super) const PEERS: [([&str; 2], u32, u32); 2] =
    [(["hosts4", "nets4"], 4, TYPE_IPADDR), (["hosts6", "nets6"], 16, TYPE_IP6ADDR)];
/// Name and key length in bytes of the sets of flows: device, source, port, destination, port, each padded to 4 bytes.
pub(super) const FLOWS: [(&str, u32); 2] = [("flows4", 20), ("flows6", 44)];

/// Name and key length in bytes of the sets of known connections: source, port, destination, port, each padded to 4 bytes.
pub(super) const KNOWN: [(&str, u32); 2] = [("known4", 16), ("known6", 40)];

/// The type number of `device . address . service . address . service`.
pub(super) const fn flow_type(address: u32) -> u32 {
    TYPE_IFINDEX << 24 | known_type(address)
}

/// The type number of `address . service . address . service`.
pub(super) const fn known_type(address: u32) -> u32 {
    address << 18 | TYPE_INET_SERVICE << 12 | address << 6 | TYPE_INET_SERVICE
}

/// The name of a device's chain.
pub(super) fn chain(index: u32) -> String {
    format!("in{index}")
}

/// The family of a prefix (0 or 1) and its bits.
pub(super) fn bits(address: IpAddr, len: u8) -> (usize, Bits) {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            // The prefix length of an IPv4-mapped address counts from the start of the v6 address.
            let len = if address.is_ipv6() { len.saturating_sub(96) } else { len };
            (0, Bits::new(u128::from(v4.to_bits()) << 96, len))
        }
        IpAddr::V6(v6) => (1, Bits::new(v6.to_bits(), len)),
    }
}

/// A transaction: messages between a begin and an end. The kernel reports refusals, and acknowledges the last message.
pub(super) struct Batch {
    messages: Messages,
    /// The offset of the last message.
    last: usize,
}

impl Batch {
    pub(super) fn new() -> Self {
        let mut messages = Messages::new();
        messages.push(libc::NFNL_MSG_BATCH_BEGIN as u16, 0, &batch_header(), |_| {});
        Batch { messages, last: 0 }
    }

    pub(super) fn push(&mut self, family: u8, type_: i32, flags: i32, attributes: impl FnOnce(&mut Attributes<'_>)) {
        let type_ = (libc::NFNL_SUBSYS_NFTABLES << 8 | type_) as u16;
        self.last = self.messages.bytes().len();
        self.messages.push(type_, flags as u16, &[family, 0, 0, 0], attributes);
    }

    /// The messages so far.
    pub(super) fn messages(&self) -> nl::Messages<'_> {
        nl::Messages::new(self.messages.bytes())
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
    /// As [`Batch::commit`].
    pub(super) fn replace(self, socket: &mut Socket, table: &str) -> io::Result<()> {
        let Some(messages) = self.finish() else { return Ok(()) };
        let start = Instant::now();
        loop {
            match socket.transact(&messages) {
                Err(e) if errno(&e) == Some(libc::EPERM) => {
                    // Without CAP_NET_ADMIN this fails, too.
                    exists(socket, INET, table)?;
                    if start.elapsed() > OWNER_ENDS {
                        let why = format!("another process owns the table {table} (a service manager may keep it)");
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
    pub(super) fn commit(self, socket: &mut Socket) -> io::Result<()> {
        self.finish().map_or(Ok(()), |messages| socket.transact(&messages))
    }
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
pub(super) fn exists(socket: &mut Socket, family: u8, table: &str) -> io::Result<bool> {
    let mut messages = Messages::new();
    let type_ = (libc::NFNL_SUBSYS_NFTABLES << 8 | libc::NFT_MSG_GETTABLE) as u16;
    messages.push(type_, nl::NLM_F_ACK, &[family, 0, 0, 0], |a| a.str(NFTA_TABLE_NAME, table));
    match socket.transact(&messages) {
        Ok(()) => Ok(true),
        Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Deletes a table with its contents.
pub(super) fn delete_table(batch: &mut Batch, family: u8, table: &str) {
    batch.push(family, libc::NFT_MSG_DELTABLE, 0, |a| a.str(NFTA_TABLE_NAME, table));
}

/// Creates an empty table.
pub(super) fn write_table(batch: &mut Batch, family: u8, table: &str, flags: u32) {
    batch.push(family, libc::NFT_MSG_NEWTABLE, libc::NLM_F_CREATE, |a| {
        a.str(NFTA_TABLE_NAME, table);
        a.be32(NFTA_TABLE_FLAGS, flags);
    });
}

/// Creates an empty set in a table. `key_type` is a number of `nft`; `key_len` is in bytes.
pub(super) fn write_set(
    batch: &mut Batch,
    (family, table): (u8, &str),
    name: &str,
    key_type: u32,
    key_len: u32,
    flags: u32,
) {
    batch.push(family, libc::NFT_MSG_NEWSET, libc::NLM_F_CREATE, |a| {
        a.str(NFTA_SET_TABLE, table);
        a.str(NFTA_SET_NAME, name);
        a.be32(NFTA_SET_FLAGS, flags);
        a.be32(NFTA_SET_KEY_TYPE, key_type);
        a.be32(NFTA_SET_KEY_LEN, key_len);
        a.be32(NFTA_SET_ID, 1);
    });
}

/// The hook of a base chain.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) kind: &'a str,
    pub(super) hook: i32,
    pub(super) priority: i32,
    /// For hooks of a single device.
    pub(super) device: Option<&'a str>,
}

/// Creates an empty chain in a table, at a hook or for others to jump to.
pub(super) fn write_chain(batch: &mut Batch, (family, table): (u8, &str), name: &str, base: Option<Base<'_>>) {
    batch.push(family, libc::NFT_MSG_NEWCHAIN, libc::NLM_F_CREATE, |a| {
        a.str(NFTA_CHAIN_TABLE, table);
        a.str(NFTA_CHAIN_NAME, name);
        let Some(Base { kind, hook, priority, device }) = base else { return };
        a.nest(NFTA_CHAIN_HOOK, |a| {
            a.be32(NFTA_HOOK_HOOKNUM, hook as u32);
            a.be32(NFTA_HOOK_PRIORITY, priority as u32);
            if let Some(device) = device {
                a.str(NFTA_HOOK_DEV, device);
            }
        });
        a.str(NFTA_CHAIN_TYPE, kind);
    });
}

/// Deletes a chain.
pub(super) fn delete_chain(batch: &mut Batch, (family, table): (u8, &str), name: &str) {
    batch.push(family, libc::NFT_MSG_DELCHAIN, 0, |a| {
        a.str(NFTA_CHAIN_TABLE, table);
        a.str(NFTA_CHAIN_NAME, name);
    });
}

/// Deletes all rules in a chain of a table.
pub(super) fn delete_rules(batch: &mut Batch, (family, table): (u8, &str), chain: &str) {
    batch.push(family, libc::NFT_MSG_DELRULE, 0, |a| {
        a.str(NFTA_RULE_TABLE, table);
        a.str(NFTA_RULE_CHAIN, chain);
    });
}

/// Appends a rule to a chain of a table.
pub(super) fn write_rule(
    batch: &mut Batch,
    (family, table): (u8, &str),
    chain: &str,
    expressions: impl FnOnce(&mut Rule<'_, '_>),
) {
    batch.push(family, libc::NFT_MSG_NEWRULE, libc::NLM_F_CREATE | libc::NLM_F_APPEND, |a| {
        a.str(NFTA_RULE_TABLE, table);
        a.str(NFTA_RULE_CHAIN, chain);
        a.nest(NFTA_RULE_EXPRESSIONS, |list| expressions(&mut Rule { list }));
    });
}

/// Adds or removes elements of a set: keys and their flags.
pub(super) fn write_elements(
    batch: &mut Batch,
    (family, table): (u8, &str),
    type_: i32,
    set: &str,
    elements: &[(Vec<u8>, u32)],
) {
    for chunk in elements.chunks(ELEMENTS) {
        batch.push(family, type_, if type_ == libc::NFT_MSG_NEWSETELEM { libc::NLM_F_CREATE } else { 0 }, |a| {
            a.str(NFTA_SET_ELEM_LIST_TABLE, table);
            a.str(NFTA_SET_ELEM_LIST_SET, set);
            a.nest(NFTA_SET_ELEM_LIST_ELEMENTS, |a| {
                for (key, flags) in chunk {
                    a.nest(NFTA_LIST_ELEM, |a| {
                        a.nest(NFTA_SET_ELEM_KEY, |a| a.put(NFTA_DATA_VALUE, key));
                        if *flags != 0 {
                            a.be32(NFTA_SET_ELEM_FLAGS, *flags);
                        }
                    });
                }
            });
        });
    }
}

/// Writes a change of peers. An interval is its first address, and the first one after it with a flag. The interval
/// that ends with the last address has no end.
pub(super) fn write_change(batch: &mut Batch, tables: &[&str], family: usize, change: Change) {
    let (sets, len, _) = PEERS[family];
    let host_bits = [96, 0][family];
    let key = |address: u128| address.to_be_bytes()[..len as usize].to_vec();
    for (type_, prefixes) in [(libc::NFT_MSG_DELSETELEM, change.remove), (libc::NFT_MSG_NEWSETELEM, change.add)] {
        let (hosts, nets): (Vec<_>, Vec<_>) = prefixes.into_iter().partition(|p| p.is_host(family));
        let hosts: Vec<_> = hosts.into_iter().map(|p| (key(p.first), 0)).collect();
        tables.iter().for_each(|table| write_elements(batch, (INET, table), type_, sets[0], &hosts));
        let mut elements = Vec::with_capacity(nets.len() * 2);
        for prefix in nets {
            elements.push((key(prefix.first), 0));
            let last = prefix.last() >> host_bits << host_bits;
            if let Some(end) = last.checked_add(1 << host_bits) {
                elements.push((key(end), libc::NFT_SET_ELEM_INTERVAL_END as u32));
            }
        }
        tables.iter().for_each(|table| write_elements(batch, (INET, table), type_, sets[1], &elements));
    }
}

pub(super) fn write_flows(batch: &mut Batch, type_: i32, flows: &[Flow]) {
    for (family, (set, _)) in FLOWS.into_iter().enumerate() {
        let of_family = flows.iter().filter(|f| usize::from(f.source.is_ipv6()) == family);
        let elements: Vec<_> = of_family.map(|f| (flow_key(f), 0)).collect();
        write_elements(batch, (NETDEV, TABLE), type_, set, &elements);
    }
}

/// Adds or removes connections.
pub(super) fn write_known(batch: &mut Batch, type_: i32, connections: &[Connection]) {
    for (family, (set, _)) in KNOWN.into_iter().enumerate() {
        let of_family = connections.iter().filter(|c| usize::from(c.remote.is_ipv6()) == family);
        let elements: Vec<_> = of_family
            .map(|c| {
                let mut key = Vec::with_capacity(40);
                push_ends(&mut key, c.remote, c.local);
                (key, 0)
            })
            .collect();
        write_elements(batch, (INET, TABLE), type_, set, &elements);
    }
}

/// Appends an address to a key.
pub(super) fn push_address(key: &mut Vec<u8>, address: IpAddr) {
    match address {
        IpAddr::V4(v4) => key.extend_from_slice(&v4.octets()),
        IpAddr::V6(v6) => key.extend_from_slice(&v6.octets()),
    }
}

fn flow_key(flow: &Flow) -> Vec<u8> {
    let mut key = Vec::with_capacity(44);
    key.extend_from_slice(&flow.device.to_ne_bytes());
    push_ends(&mut key, flow.source, flow.destination);
    key
}

/// Appends the ends of a segment to a key.
fn push_ends(key: &mut Vec<u8>, source: SocketAddr, destination: SocketAddr) {
    for side in [source, destination] {
        push_address(key, side.ip());
        key.extend_from_slice(&side.port().to_be_bytes());
        key.extend_from_slice(&[0, 0]);
    }
}

/// Loads the ends of a segment into registers, as they are in a key.
pub(super) fn load_ends(r: &mut Rule<'_, '_>, family: usize, mut register: i32) {
    let (source, destination, words) = [(12, 16, 1), (8, 24, 4)][family];
    for (address, port) in [(source, 0), (destination, 2)] {
        r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, address, words * 4, register);
        register += words as i32;
        r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, port, 2, register);
        register += 1;
    }
}

/// Writes the chain of a device. Its conditions match those of the ring's filter ([`crate::ring`]): every segment
/// dropped here has been seen there.
pub(super) fn write_device(batch: &mut Batch, index: u32, device: &str) {
    let name = chain(index);
    let (hook, device) = (libc::NF_NETDEV_INGRESS, Some(device));
    write_chain(batch, (NETDEV, TABLE), &name, Some(Base { kind: "filter", hook, priority: PRIORITY, device }));
    for (family, (set, _)) in FLOWS.into_iter().enumerate() {
        let protocol = [libc::ETH_P_IP, libc::ETH_P_IPV6][family] as u16;
        write_rule(batch, (NETDEV, TABLE), &name, |r| {
            r.meta(libc::NFT_META_PROTOCOL, R1).cmp(R1, libc::NFT_CMP_EQ, &protocol.to_be_bytes());
            if family == 0 {
                // Not a fragment: neither MF nor an offset is set.
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 6, 2, R1).and(R1, &[0x3f, 0xff]);
                r.cmp(R1, libc::NFT_CMP_EQ, &[0, 0]);
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 9, 1, R1);
            } else {
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, 6, 1, R1);
            }
            r.cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
            // There are options, and the first is TCP-AO's. It is removed from segments that we return, so this rule
            // lets them pass.
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 12, 1, R1).cmp(R1, libc::NFT_CMP_GTE, &[0x60]);
            r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 20, 1, R1).cmp(R1, libc::NFT_CMP_EQ, &[TCPOPT_AO]);
            r.meta(libc::NFT_META_IIF, libc::NFT_REG32_00);
            load_ends(r, family, libc::NFT_REG32_01);
            r.lookup(set, libc::NFT_REG32_00).drop();
        });
    }
}
