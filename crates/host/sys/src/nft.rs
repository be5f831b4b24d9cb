//! The TCP-AO rules of one network namespace, in tables of our own that are written over netlink.
//!
//! ```text
//! table inet sealane                                   table netdev sealane
//!   set hosts4, hosts6   single peers, by hash           set flows4, flows6   device and 4-tuple of the fast path
//!   set nets4, nets6     prefixes, no overlaps           chain in<ifindex>    hook ingress of one device
//!   set known4, known6   connections, by 4-tuple
//!   chain output  hook output, after all filters           in flows, option 29 first, no fragment: drop
//!     mark is ours: accept                                   (the device's ring has seen it before this hook)
//!     by a VRF: accept (it comes here again, for a device of the VRF)
//!     TCP to peers: queue
//!   chain input   hook input, after all filters
//!     mark is ours: accept
//!     TCP of known connections: queue of peers
//!     TCP from peers: queue of newcomers
//!     TCP with option 29: queue of strangers
//!     ICMP errors about TCP to peers: queue of strangers
//! ```
//!
//! A queue without a listener drops, so nothing passes while no daemon runs. On kernels that support it (6.9), the
//! table is owned by this socket and persists without it: nobody else's `nft flush ruleset` affects it, and after a
//! crash it stays in place for the next daemon. On older kernels an owned table goes with its owner's socket, so that
//! another one without an owner, `sealane-guard`, has the same sets and chains right after: they drop segments of peers
//! that the first table has not judged. It takes a flush and the end of everybody who has the socket to remove both.

mod cover;
mod expr;
pub mod ingress;
pub mod ipsec;
mod left;
mod told;
mod write;

use super::netlink::{Messages, Socket, errno};
use super::{random, rights, vrf};
use cover::{Bits, Change, Peers};
use expr::{QueueKind, R1, Rule};
pub use left::left;
use sealane_abi::netlink as nl;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use write::{
    Base, Batch, FLOWS, GUARD, GUARD_PRIORITY, INET, JUDGED, KNOWN, NETDEV, NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST,
    PEERS, PRIORITY, TABLE, TCPOPT_AO, TYPE_IP6ADDR, TYPE_IPADDR, bits, chain, delete_chain, delete_table, exists,
    flow_type, known_type, load_ends, write_chain, write_change, write_device, write_flows, write_known, write_rule,
    write_set, write_table,
};
pub use write::{Connection, Flow};

/// `NFT_META_OIFKIND` of `linux/netfilter/nf_tables.h`: the kind of the device that a packet leaves by.
const NFT_META_OIFKIND: i32 = 27;

/// The marks (`SO_MARK`) of our packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// Draws marks that nobody can guess.
    pub fn draw() -> Self {
        let mut bytes = [0; 4];
        random::fill(&mut bytes);
        // Bits by which IPsec leads packets to its device stay clear, and no mark is 0.
        Marks::new(u32::from_ne_bytes(bytes) & 0x0fff_ffff | 0x4000_0000)
    }

    /// Three marks from `base`, whose two lower bits are ignored.
    pub const fn new(base: u32) -> Self {
        Marks(base & !3)
    }

    /// The mark of outgoing signed packets.
    pub const fn signed(self) -> u32 {
        self.0
    }

    /// The mark of outgoing signed packets from whose frames the link header is learnt.
    pub const fn learn(self) -> u32 {
        self.0 | 1
    }

    /// The mark of incoming verified packets.
    pub const fn verified(self) -> u32 {
        self.0 | 2
    }
}

/// Parameters of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// The number of the first queue for outgoing packets.
    pub output_queue: u16,
    /// The number of the first queue for incoming packets of known connections.
    pub input_queue: u16,
    /// The number of the first queue for other segments that come from the addresses of peers. It is another one, because
    /// anybody may forge these addresses: a flood neither delays nor displaces the segments of connections whose ports it
    /// does not know.
    pub newcomers_queue: u16,
    /// The number of queues that follow one another for each of these. The kernel picks one by a hash of both addresses
    /// that is the same in both directions (`nfqueue_hash`).
    pub queues: u16,
    /// The marks of packets that we send or return to the stack.
    pub marks: Marks,
    /// The number of the queue for packets that anybody may send: TCP segments with option 29 that are not from a peer,
    /// and ICMP errors. It is none of the peers' queues, so that a flood neither delays nor displaces theirs. `None`:
    /// such segments are not queued, and the errors are in a queue of newcomers; it has to be so where a kernel with TCP-AO
    /// serves other programs.
    pub any_option: Option<u16>,
}

/// Our tables in the namespace of the thread that installed them.
#[derive(Debug)]
pub struct Table {
    socket: Socket,
    options: Options,
    /// The user of our own sockets as rules see it, where they can tell.
    user: Option<u32>,
    kind: QueueKind,
    /// Table flags that this kernel accepts.
    flags: u32,
    peers: [Peers; 2],
    /// The devices that have a chain, with their names.
    devices: BTreeMap<u32, String>,
    flows: HashSet<Flow>,
    known: HashSet<Connection>,
}

/// The most known connections.
pub const MAX_KNOWN: usize = 65_536;

impl Table {
    /// Installs the rules for these peers. Replaces a predecessor's table in one step. The queues should be open
    /// before, so that no packet is dropped needlessly. `owner` is the socket that owns a predecessor's table, if somebody
    /// has kept it.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` or `ENOENT` where it lacks nftables or queues.
    pub fn install(options: Options, peers: &[(IpAddr, u8)], owner: Option<OwnedFd>) -> io::Result<Self> {
        let socket = owner.map_or_else(|| Socket::open(libc::NETLINK_NETFILTER), Socket::adopt)?;
        let mut table = Table {
            socket,
            options,
            user: rights::user_in_rules()?,
            kind: QueueKind::Native,
            flags: NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST,
            peers: [Peers::new(0), Peers::new(1)],
            devices: BTreeMap::new(),
            flows: HashSet::new(),
            known: HashSet::new(),
        };
        for &(address, len) in peers {
            let (family, prefix) = bits(address, len);
            table.peers[family].add(prefix);
        }
        table.restore()?;
        Ok(table)
    }

    /// Rewrites everything in one transaction, whatever is there.
    ///
    /// # Errors
    /// As [`Table::install`].
    pub fn restore(&mut self) -> io::Result<()> {
        loop {
            let mut batch = Batch::new();
            self.delete_all(&mut batch)?;
            self.write_inet(&mut batch);
            if self.tables().contains(&GUARD) {
                self.write_guard(&mut batch);
            }
            if !self.devices.is_empty() {
                self.write_netdev(&mut batch);
            }
            match batch.replace(&mut self.socket, TABLE) {
                // Each kernel may lack another feature, and only the errno tells which.
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.kind == QueueKind::Native => {
                    self.kind = QueueKind::Compat;
                }
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) && self.flags != 0 =>
                {
                    self.flags = if self.flags == NFT_TABLE_F_OWNER { 0 } else { NFT_TABLE_F_OWNER };
                }
                done => return done,
            }
        }
    }

    /// The tables with the sets of peers.
    fn tables(&self) -> &'static [&'static str] {
        if self.flags == NFT_TABLE_F_OWNER { &[TABLE, GUARD] } else { &[TABLE] }
    }

    fn delete_all(&mut self, batch: &mut Batch) -> io::Result<()> {
        for (family, table) in [(NETDEV, TABLE), (INET, TABLE), (INET, GUARD)] {
            if exists(&mut self.socket, family, table)? {
                delete_table(batch, family, table);
            }
        }
        Ok(())
    }

    /// Whether the table is owned: others cannot change it, and it outlives this process.
    #[cfg(any(test, feature = "testing"))]
    pub fn owned(&self) -> bool {
        self.flags != 0
    }

    /// The port in notifications of changes by this table.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u32> {
        self.socket.port()
    }

    /// Adds a user to each of these prefixes; segments from and to them are protected.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn protect(&mut self, peers: &[(IpAddr, u8)]) -> io::Result<()> {
        self.change(peers, Peers::add).inspect_err(|_| {
            for &(address, len) in peers {
                let (family, prefix) = bits(address, len);
                self.peers[family].remove(prefix);
            }
        })
    }

    /// Removes a user from each of these prefixes; those without users are no longer protected.
    ///
    /// # Errors
    /// The kernel's. The prefixes stay protected in that case.
    pub fn unprotect(&mut self, peers: &[(IpAddr, u8)]) -> io::Result<()> {
        self.change(peers, Peers::remove).inspect_err(|_| {
            for &(address, len) in peers {
                let (family, prefix) = bits(address, len);
                self.peers[family].add(prefix);
            }
        })
    }

    /// Applies `step` to each of `peers` and writes the combined change in one transaction.
    fn change(&mut self, peers: &[(IpAddr, u8)], step: fn(&mut Peers, Bits) -> Change) -> io::Result<()> {
        let mut batch = Batch::new();
        let tables = self.tables();
        for (family, known) in self.peers.iter_mut().enumerate() {
            let of_family = peers.iter().map(|&(address, len)| bits(address, len)).filter(|b| b.0 == family);
            write_change(&mut batch, tables, family, Change::all(of_family.map(|b| step(known, b.1))));
        }
        batch.commit(&mut self.socket)
    }

    /// Starts to drop the segments of flows ([`Table::add_flow`]) at this device's ingress, where its ring has seen
    /// them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_device(&mut self, index: u32, name: &str) -> io::Result<()> {
        let first = self.devices.is_empty();
        if self.devices.insert(index, name.to_owned()).is_some() {
            return Ok(());
        }
        let mut batch = Batch::new();
        if first {
            self.write_netdev(&mut batch);
        } else {
            write_device(&mut batch, index, name);
        }
        batch.commit(&mut self.socket).inspect_err(|_| {
            self.devices.remove(&index);
        })
    }

    /// Removes a device. Its chain disappears by itself when the device does.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_device(&mut self, index: u32) -> io::Result<()> {
        if self.devices.remove(&index).is_none() {
            return Ok(());
        }
        let mut batch = Batch::new();
        delete_chain(&mut batch, (NETDEV, TABLE), &chain(index));
        match batch.commit(&mut self.socket) {
            Err(e) if errno(&e) == Some(libc::ENOENT) => Ok(()),
            done => done,
        }
    }

    /// Whether segments of any flow are dropped at this device's ingress.
    pub fn has_flows(&self, index: u32) -> bool {
        self.flows.iter().any(|flow| flow.device == index)
    }

    /// Whether the device has a chain.
    pub fn has_device(&self, index: u32) -> bool {
        self.devices.contains_key(&index)
    }

    /// Drops a flow's segments at ingress, on the devices added so far and later.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_flow(&mut self, flow: Flow) -> io::Result<()> {
        if self.devices.is_empty() || !self.flows.insert(flow) {
            return Ok(());
        }
        let mut batch = Batch::new();
        write_flows(&mut batch, libc::NFT_MSG_NEWSETELEM, &[flow]);
        batch.commit(&mut self.socket).inspect_err(|_| {
            self.flows.remove(&flow);
        })
    }

    /// Leaves a flow's segments to the stack again, whose rules queue them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove_flow(&mut self, flow: Flow) -> io::Result<()> {
        if !self.flows.remove(&flow) {
            return Ok(());
        }
        let mut batch = Batch::new();
        write_flows(&mut batch, libc::NFT_MSG_DELSETELEM, &[flow]);
        batch.commit(&mut self.socket)
    }

    /// The segments of these connections no longer share a queue with those of newcomers. Those beyond [`MAX_KNOWN`] go on
    /// to share it.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn know(&mut self, connections: impl IntoIterator<Item = Connection>) -> io::Result<()> {
        let room = MAX_KNOWN.saturating_sub(self.known.len());
        let new: HashSet<Connection> = connections.into_iter().filter(|c| !self.known.contains(c)).take(room).collect();
        let list: Vec<Connection> = new.iter().copied().collect();
        let mut batch = Batch::new();
        write_known(&mut batch, libc::NFT_MSG_NEWSETELEM, &list);
        batch.commit(&mut self.socket)?;
        self.known.extend(new);
        Ok(())
    }

    /// The known connections.
    pub fn known(&self) -> impl Iterator<Item = &Connection> {
        self.known.iter()
    }

    /// Segments of these connections are those of newcomers again.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn unknow(&mut self, connections: &[Connection]) -> io::Result<()> {
        let list: Vec<Connection> = connections.iter().copied().filter(|c| self.known.contains(c)).collect();
        let mut batch = Batch::new();
        write_known(&mut batch, libc::NFT_MSG_DELSETELEM, &list);
        batch.commit(&mut self.socket)?;
        for connection in &list {
            self.known.remove(connection);
        }
        Ok(())
    }

    /// Forgets all devices and flows, whose rings are gone, and rewrites everything else.
    ///
    /// # Errors
    /// As [`Table::install`].
    pub fn forget_flows(&mut self) -> io::Result<()> {
        self.devices.clear();
        self.flows.clear();
        self.restore()
    }

    /// Deletes all rules, so that segments pass unprotected. Must be the last step, and only of an orderly shutdown.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        self.delete_all(&mut batch)?;
        batch.commit(&mut self.socket)
    }

    /// Writes a table's sets of peers, its chains, and the rules that let our own segments pass.
    fn write_base(&self, batch: &mut Batch, (table, flags): (&'static str, u32), priority: i32) {
        write_table(batch, INET, table, flags);
        for family in [0, 1] {
            let (sets, len, type_) = PEERS[family];
            write_set(batch, (INET, table), sets[0], type_, len, 0);
            write_set(batch, (INET, table), sets[1], type_, len, libc::NFT_SET_INTERVAL as u32);
            write_change(batch, &[table], family, Change { remove: vec![], add: self.peers[family].all() });
        }
        for (name, hook) in [("output", libc::NF_INET_LOCAL_OUT), ("input", libc::NF_INET_LOCAL_IN)] {
            write_chain(batch, (INET, table), name, Some(Base { kind: "filter", hook, priority, device: None }));
        }
        let marks = self.options.marks;
        write_rule(batch, (INET, table), "output", |r| {
            r.meta(libc::NFT_META_MARK, R1).and(R1, &(!1u32).to_ne_bytes());
            r.cmp(R1, libc::NFT_CMP_EQ, &marks.signed().to_ne_bytes());
            r.of_user(self.user).accept();
        });
        // What leaves by a VRF passes this hook first for the VRF, and then for the device of it that it leaves by.
        write_rule(batch, (INET, table), "output", |r| {
            let mut kind = [0; libc::IFNAMSIZ];
            kind[..vrf::KIND.len()].copy_from_slice(vrf::KIND.as_bytes());
            r.meta(NFT_META_OIFKIND, R1).cmp(R1, libc::NFT_CMP_EQ, &kind).accept();
        });
        write_rule(batch, (INET, table), "input", |r| {
            r.meta(libc::NFT_META_MARK, R1).cmp(R1, libc::NFT_CMP_EQ, &marks.verified().to_ne_bytes()).accept();
        });
    }

    /// Writes a rule for the TCP segments to and from each set of peers. `then` is told the chain.
    fn write_peers(&self, batch: &mut Batch, table: &str, family: usize, then: impl Fn(&'static str, &mut Rule)) {
        let (source, destination) = [(12, 16), (8, 24)][family];
        let (sets, len, _) = PEERS[family];
        let protocol = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6][family] as u8;
        for ((chain, offset), set) in
            [("output", destination), ("input", source)].into_iter().flat_map(|c| sets.map(|set| (c, set)))
        {
            write_rule(batch, (INET, table), chain, |r| {
                r.meta(libc::NFT_META_NFPROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol]);
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
                r.payload(libc::NFT_PAYLOAD_NETWORK_HEADER, offset, len, R1);
                then(chain, r.lookup(set, R1));
            });
        }
    }

    fn write_inet(&self, batch: &mut Batch) {
        let Options { output_queue, input_queue, newcomers_queue, queues, any_option, .. } = self.options;
        let kind = self.kind;
        let guarded = self.tables().contains(&GUARD);
        let queue = |r: &mut Rule<'_, '_>, number| {
            if guarded {
                // It comes back from the queue with the mark that it has now.
                r.meta(libc::NFT_META_MARK, R1).or(R1, JUDGED).set_mark(R1);
            }
            r.queue(kind, number, queues);
        };
        self.write_base(batch, (TABLE, self.flags), PRIORITY);
        let known: Vec<Connection> = self.known.iter().copied().collect();
        for (family, (set, len)) in KNOWN.into_iter().enumerate() {
            let type_ = known_type([TYPE_IPADDR, TYPE_IP6ADDR][family]);
            write_set(batch, (INET, TABLE), set, type_, len, 0);
            write_rule(batch, (INET, TABLE), "input", |r| {
                let protocol = [libc::NFPROTO_IPV4, libc::NFPROTO_IPV6][family] as u8;
                r.meta(libc::NFT_META_NFPROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol]);
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
                load_ends(r, family, libc::NFT_REG32_00);
                queue(r.lookup(set, libc::NFT_REG32_00), input_queue);
            });
        }
        write_known(batch, libc::NFT_MSG_NEWSETELEM, &known);
        for family in [0, 1] {
            self.write_peers(batch, TABLE, family, |chain, r| {
                queue(r, if chain == "output" { output_queue } else { newcomers_queue });
            });
            self.write_icmp(batch, family);
        }
        if let Some(strangers) = any_option {
            write_rule(batch, (INET, TABLE), "input", |r| {
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
                r.tcp_option_exists(TCPOPT_AO, R1).cmp(R1, libc::NFT_CMP_EQ, &[1]).queue(kind, strangers, 1);
            });
        }
    }

    /// Writes the table that drops what [`TABLE`] has not judged.
    fn write_guard(&self, batch: &mut Batch) {
        self.write_base(batch, (GUARD, 0), GUARD_PRIORITY);
        for chain in ["output", "input"] {
            write_rule(batch, (INET, GUARD), chain, |r| {
                r.meta(libc::NFT_META_MARK, R1).and(R1, &JUDGED.to_ne_bytes());
                r.cmp(R1, libc::NFT_CMP_EQ, &JUDGED.to_ne_bytes());
                r.meta(libc::NFT_META_MARK, R1).and(R1, &(!JUDGED).to_ne_bytes()).set_mark(R1).accept();
            });
        }
        for family in [0, 1] {
            self.write_peers(batch, GUARD, family, |_, r| r.drop());
        }
    }

    /// Queues the ICMP errors about segments to a peer that RFC 5925, section 7.8, requires to be ignored: v4 type 3,
    /// codes 2 to 4; v6 type 1, codes 1 and 4, whatever the quoted packet carries.
    fn write_icmp(&self, batch: &mut Batch, family: usize) {
        // The header of the packet in error follows 8 bytes of ICMP.
        const INNER: u32 = 8;
        let (sets, len, _) = PEERS[family];
        let (protocol, icmp) =
            [(libc::NFPROTO_IPV4, libc::IPPROTO_ICMP), (libc::NFPROTO_IPV6, libc::IPPROTO_ICMPV6)][family];
        let inner_destination = [16, 24][family];
        let codes: &[[u8; 2]] = [&[[3, 2], [3, 3], [3, 4]][..], &[[1, 1], [1, 4]][..]][family];
        let Options { newcomers_queue, queues, any_option, .. } = self.options;
        let (queue, count) = any_option.map_or((newcomers_queue, queues), |strangers| (strangers, 1));
        for (code, set) in codes.iter().flat_map(|code| sets.map(|set| (code, set))) {
            write_rule(batch, (INET, TABLE), "input", |r| {
                r.meta(libc::NFT_META_NFPROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[protocol as u8]);
                r.meta(libc::NFT_META_L4PROTO, R1).cmp(R1, libc::NFT_CMP_EQ, &[icmp as u8]);
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, 0, 2, R1).cmp(R1, libc::NFT_CMP_EQ, code);
                // In a quoted IPv6 packet TCP may be behind extension headers: whoever judges the error follows them.
                if family == 0 {
                    r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, INNER + 9, 1, R1);
                    r.cmp(R1, libc::NFT_CMP_EQ, &[libc::IPPROTO_TCP as u8]);
                }
                r.payload(libc::NFT_PAYLOAD_TRANSPORT_HEADER, INNER + inner_destination, len, R1);
                r.lookup(set, R1).queue(self.kind, queue, count);
            });
        }
    }

    fn write_netdev(&self, batch: &mut Batch) {
        write_table(batch, NETDEV, TABLE, self.flags);
        write_set(batch, (NETDEV, TABLE), FLOWS[0].0, flow_type(TYPE_IPADDR), FLOWS[0].1, 0);
        write_set(batch, (NETDEV, TABLE), FLOWS[1].0, flow_type(TYPE_IP6ADDR), FLOWS[1].1, 0);
        let flows: Vec<Flow> = self.flows.iter().copied().collect();
        write_flows(batch, libc::NFT_MSG_NEWSETELEM, &flows);
        for (&index, name) in &self.devices {
            write_device(batch, index, name);
        }
    }
}

impl AsFd for Table {
    /// The socket that owns the table. As long as somebody has it open, others cannot remove the rules.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Notices when somebody else changes a table of our name.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    tables: &'static [&'static str],
    families: &'static [u8],
    ours: u32,
}

impl Watch {
    /// Watches `table` in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(table: &Table) -> io::Result<Self> {
        Watch::over(&[TABLE, GUARD], &[INET, NETDEV], table.port()?)
    }

    /// Watches tables by their names and families. `ours` is the port by which we change them ourselves.
    fn over(tables: &'static [&'static str], families: &'static [u8], ours: u32) -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_NETFILTER)?;
        socket.join(libc::NFNLGRP_NFTABLES as u32)?;
        Ok(Watch { socket, tables, families, ours })
    }

    /// Whether anything has changed since the last call. Does not wait.
    pub fn changed(&mut self) -> bool {
        let (ours, tables, families, mut changed) = (self.ours, self.tables, self.families, false);
        let read = self.socket.receive(|message| {
            // Attribute 1 is the table's name in all messages about tables, chains, rules, sets and elements. In
            // messages about generations it is a number. The family is the first byte of `struct nfgenmsg`.
            let of_family = message.payload.first().is_some_and(|family| families.contains(family));
            let attributes = nl::Attrs::new(message.payload.get(4..).unwrap_or_default());
            let is_ours = |name: &[u8]| tables.iter().any(|table| name.strip_suffix(&[0]) == Some(table.as_bytes()));
            let named = attributes.filter(|a| a.type_ == 1).any(|a| is_ours(a.payload));
            changed |= of_family && named && message.header.nlmsg_pid != ours;
        });
        // Lost messages may have been about our table.
        changed | read.is_err()
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests;
