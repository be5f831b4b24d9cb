//! The rules of one network namespace: a table of our own, made over netlink.
//!
//! ```text
//! table inet sealane                                   table netdev sealane
//!   set hosts4, hosts6   single peers, by hash           set flows4, flows6   device and 4-tuple of the fast path
//!   set nets4, nets6     prefixes, no overlaps           chain in<ifindex>    hook ingress of one device
//!   chain output  hook output, after all filters           in flows, option 29 first, no fragment: drop
//!     mark is ours: accept                                   (the device's ring has seen it before this hook)
//!     TCP to peers: queue
//!   chain input   hook input, after all filters
//!     mark is ours: accept
//!     TCP from peers: queue
//!     TCP with option 29: queue
//!     ICMP errors about TCP to peers: queue
//! ```
//!
//! A queue without a listener drops: nothing passes when we are gone. Where the kernel can (6.9), the table is owned by
//! this socket and outlives it, so that nobody else's `nft flush ruleset` touches it, and a crash leaves it in place for
//! the next daemon. On an older kernel a flush takes it away for as long as [`Watch`] and [`Table::restore`] need.

mod cover;
mod expr;
pub mod ingress;
pub mod ipsec;
mod left;
mod write;

use super::netlink::{Messages, Socket, errno};
use cover::{Bits, Change, Peers};
use expr::QueueKind;
pub use left::left;
use sealane_abi::netlink as nl;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use write::{
    Batch, NFT_TABLE_F_OWNER, NFT_TABLE_F_PERSIST, bits, chain, delete_chain, delete_table, exists, write_change,
    write_device, write_flows,
};

/// The name of our tables.
const TABLE: &str = "sealane";

/// Marks of packets (`SO_MARK`) that are ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks(u32);

impl Marks {
    /// Three marks from `base`, whose two lower bits do not count.
    pub const fn new(base: u32) -> Self {
        Marks(base & !3)
    }

    /// Of signed packets that leave.
    pub const fn signed(self) -> u32 {
        self.0
    }

    /// Of signed packets from whose frame the link header is learnt.
    pub const fn learn(self) -> u32 {
        self.0 | 1
    }

    /// Of verified packets that come in.
    pub const fn verified(self) -> u32 {
        self.0 | 2
    }
}

impl Default for Marks {
    /// "sea lane", and rarely anybody else's.
    fn default() -> Self {
        Marks::new(0x5ea1_1a40)
    }
}

/// What the rules say.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Number of the first queue of packets that leave.
    pub output_queue: u16,
    /// Number of the first queue of packets that come in.
    pub input_queue: u16,
    /// The number of queues that follow one another in each direction. The kernel picks one by a hash of both addresses
    /// that is the same in both directions (`nfqueue_hash`).
    pub queues: u16,
    /// Marks of what we send and give back.
    pub marks: Marks,
    /// Whether every TCP segment with option 29 is queued, whoever sent it. Not where a kernel that has TCP-AO serves
    /// other programs.
    pub any_option: bool,
}

/// A connection as its incoming segments show it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Flow {
    /// The device that they come in by. A VLAN's segments pass its parent's hook first, and are not that one's.
    pub device: u32,
    /// Who sends.
    pub source: SocketAddr,
    /// Our side.
    pub destination: SocketAddr,
}

/// Our tables in the namespace of the thread that installed them.
#[derive(Debug)]
pub struct Table {
    socket: Socket,
    options: Options,
    kind: QueueKind,
    /// Table flags that this kernel takes.
    flags: u32,
    peers: [Peers; 2],
    /// Devices with a chain, and their names.
    devices: BTreeMap<u32, String>,
    flows: HashSet<Flow>,
}

/// The families that have a table of ours.
const INET: u8 = libc::NFPROTO_INET as u8;
const NETDEV: u8 = libc::NFPROTO_NETDEV as u8;

impl Table {
    /// Puts the rules in place for these peers. A table that a predecessor left is replaced in one step; the queues
    /// should be open before, so that nothing is dropped that need not be.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` or `ENOENT` where it lacks nftables or queues.
    pub fn install(options: Options, peers: &[(IpAddr, u8)]) -> io::Result<Self> {
        let mut table = Table {
            socket: Socket::open(libc::NETLINK_NETFILTER)?,
            options,
            kind: QueueKind::Native,
            flags: NFT_TABLE_F_OWNER | NFT_TABLE_F_PERSIST,
            peers: [Peers::new(0), Peers::new(1)],
            devices: BTreeMap::new(),
            flows: HashSet::new(),
        };
        for &(address, len) in peers {
            let (family, prefix) = bits(address, len);
            table.peers[family].add(prefix);
        }
        table.restore()?;
        Ok(table)
    }

    /// Writes everything anew, in one transaction, over whatever is there.
    ///
    /// # Errors
    /// As [`Table::install`].
    pub fn restore(&mut self) -> io::Result<()> {
        loop {
            let mut batch = Batch::new();
            for family in [INET, NETDEV] {
                if exists(&mut self.socket, family, TABLE)? {
                    delete_table(&mut batch, family, TABLE);
                }
            }
            self.write_inet(&mut batch);
            if !self.devices.is_empty() {
                self.write_netdev(&mut batch);
            }
            match batch.commit(&mut self.socket) {
                // Each kernel lacks something else; what is lacking shows in the errno alone.
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.kind == QueueKind::Native => {
                    self.kind = QueueKind::Compat;
                }
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE)) && self.flags != 0 =>
                {
                    self.flags = 0;
                }
                done => return done,
            }
        }
    }

    /// Whether others cannot touch the table and it outlives us.
    #[cfg(any(test, feature = "testing"))]
    pub fn owned(&self) -> bool {
        self.flags != 0
    }

    /// The port that stands in the notifications of what this table caused.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u32> {
        self.socket.port()
    }

    /// Protects segments from and to these prefixes, once more each.
    ///
    /// # Errors
    /// The kernel's; nothing has changed then.
    pub fn protect(&mut self, peers: &[(IpAddr, u8)]) -> io::Result<()> {
        self.change(peers, Peers::add).inspect_err(|_| {
            for &(address, len) in peers {
                let (family, prefix) = bits(address, len);
                self.peers[family].remove(prefix);
            }
        })
    }

    /// Protects these prefixes once less each; one that nobody asks for any more is in clear again.
    ///
    /// # Errors
    /// The kernel's. They stay protected then.
    pub fn unprotect(&mut self, peers: &[(IpAddr, u8)]) -> io::Result<()> {
        self.change(peers, Peers::remove).inspect_err(|_| {
            for &(address, len) in peers {
                let (family, prefix) = bits(address, len);
                self.peers[family].add(prefix);
            }
        })
    }

    /// Does `step` for each of `peers` and writes the sum of it in one transaction.
    fn change(&mut self, peers: &[(IpAddr, u8)], step: fn(&mut Peers, Bits) -> Change) -> io::Result<()> {
        let mut batch = Batch::new();
        for (family, known) in self.peers.iter_mut().enumerate() {
            let of_family = peers.iter().map(|&(address, len)| bits(address, len)).filter(|b| b.0 == family);
            write_change(&mut batch, family, Change::all(of_family.map(|b| step(known, b.1))));
        }
        batch.commit(&mut self.socket)
    }

    /// Begins to take segments of [`Table::add_flow`] away from the stack at this device's ingress.
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

    /// Forgets a device. Its chain goes with it when the device itself is gone.
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

    /// Whether segments of a flow are taken away at this device's ingress.
    pub fn has_flows(&self, index: u32) -> bool {
        self.flows.iter().any(|flow| flow.device == index)
    }

    /// Whether the device has a chain.
    pub fn has_device(&self, index: u32) -> bool {
        self.devices.contains_key(&index)
    }

    /// Takes a flow's segments away from the stack, at the devices added so far and later.
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

    /// Leaves a flow's segments to the stack again, which gives them to the queue.
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

    /// Takes all rules away: segments pass in clear. To be done last, and only at an orderly end.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        for family in [NETDEV, INET] {
            if exists(&mut self.socket, family, TABLE)? {
                delete_table(&mut batch, family, TABLE);
            }
        }
        batch.commit(&mut self.socket)
    }
}

impl AsFd for Table {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Tells when somebody else changed a table of our name.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    ours: u32,
}

impl Watch {
    /// Watches over `table` in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(table: &Table) -> io::Result<Self> {
        let socket = Socket::open(libc::NETLINK_NETFILTER)?;
        socket.join(libc::NFNLGRP_NFTABLES as u32)?;
        Ok(Watch { socket, ours: table.port()? })
    }

    /// Whether something changed since the last time. Does not wait.
    pub fn changed(&mut self) -> bool {
        let (ours, mut changed) = (self.ours, false);
        let read = self.socket.receive(|message| {
            // In every message about tables, chains, rules, sets and elements the table's name is attribute 1.
            // A generation's message has a number there.
            let attributes = nl::Attrs::new(message.payload.get(4..).unwrap_or_default());
            let named =
                attributes.filter(|a| a.type_ == 1).any(|a| a.payload.strip_suffix(&[0]) == Some(TABLE.as_bytes()));
            changed |= named && message.header.nlmsg_pid != ours;
        });
        // Lost messages may have been about us.
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
