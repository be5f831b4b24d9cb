//! The tables of TCP-AO in a network namespace.

use super::chains::{Means, Options};
use super::connections::{Connection, FLOWS, Flow, KNOWN, flows, known};
use super::peers::{Bits, Change, PEERS, Peers, bits, elements};
use super::tables::{ALL, COVER, DEVICES, GUARD, TABLE, device, devices};
use crate::key;
use crate::rule::QueueWay;
use crate::table::{Name, Owned, Table};
use crate::transaction::{Transaction, exists};
use crate::watch::Watch;
use sealane_sys::netlink::{Socket, errno};
use sealane_sys::{release, rights};
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Our tables in the namespace of the thread that installed them.
#[derive(Debug)]
pub struct PeerTable {
    pub(super) socket: Socket,
    options: Options,
    /// The user of our own sockets as rules see it, where they can tell.
    user: Option<u32>,
    /// The way to a queue that this kernel has, and what its tables can be.
    way: QueueWay,
    pub(super) owned: Owned,
    peers: [Peers; 2],
    /// The devices that have a chain, with their names.
    devices: BTreeMap<u32, String>,
    flows: HashSet<Flow>,
    known: HashSet<Connection>,
}

/// The most known connections.
pub const MAX_KNOWN: usize = 65_536;

impl PeerTable {
    /// Installs the rules for these peers. Replaces a predecessor's table in one step. The queues should be open
    /// before, so that no packet is dropped needlessly. `owner` is the socket that owns a predecessor's table, if somebody
    /// has kept it.
    ///
    /// # Errors
    /// The kernel's: `EPERM` without `CAP_NET_ADMIN`, `EOPNOTSUPP` or `ENOENT` where it lacks nftables or queues.
    pub fn install(options: Options, peers: &[(IpAddr, u8)], owner: Option<OwnedFd>) -> io::Result<Self> {
        let socket = owner.map_or_else(|| Socket::open(libc::NETLINK_NETFILTER), Socket::adopt)?;
        let mut table = PeerTable::new(socket, options, rights::user_in_rules()?, Owned::Persists);
        for &(address, len) in peers {
            let (family, prefix) = bits(address, len);
            table.peers[family].add(prefix);
        }
        table.restore()?;
        Ok(table)
    }

    /// A table that is not written yet.
    pub(super) fn new(socket: Socket, options: Options, user: Option<u32>, owned: Owned) -> Self {
        PeerTable {
            socket,
            options,
            user,
            way: QueueWay::Native,
            owned,
            peers: [Peers::new(0), Peers::new(1)],
            devices: BTreeMap::new(),
            flows: HashSet::new(),
            known: HashSet::new(),
        }
    }

    /// Rewrites everything in one transaction, whatever is there.
    ///
    /// # Errors
    /// As [`PeerTable::install`].
    pub fn restore(&mut self) -> io::Result<()> {
        if self.has_nets() && (exists(&mut self.socket, TABLE)? || exists(&mut self.socket, GUARD)?) {
            return self.covered(|table| table.replace(&[DEVICES, TABLE, GUARD]));
        }
        self.replace(&ALL)
    }

    /// Makes a change of intervals. The kernel shows packets those of a set only after rules and elements of the same transaction are in force
    /// (`nft_set_rbtree`): for a moment it finds neither the old ones nor the new ones. Segments that the table does not judge then are
    /// dropped, and sent again.
    fn covered(&mut self, change: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        let mut cover = Transaction::new();
        self.delete_those(&[COVER], &mut cover)?;
        // It goes with a process that dies meanwhile, where tables have owners.
        let owned = if release::is_at_least(5, 12) { Owned::Goes } else { Owned::Nobody };
        cover.create(&self.cover(owned));
        cover.commit(&mut self.socket)?;
        let done = change(self);
        let mut open = Transaction::new();
        open.delete(COVER);
        done.and(open.commit(&mut self.socket))
    }

    pub(super) fn cover(&self, owned: Owned) -> Table {
        self.means().cover(owned, &self.peers)
    }

    /// Whether there are peers in sets of intervals.
    fn has_nets(&self) -> bool {
        self.peers.iter().any(Peers::has_nets)
    }

    fn means(&self) -> Means {
        Means { options: self.options, user: self.user, way: self.way, guarded: self.tables().contains(&GUARD) }
    }

    /// Writes everything in place of these tables.
    fn replace(&mut self, tables: &[Name<'_>]) -> io::Result<()> {
        loop {
            let mut changes = Transaction::new();
            self.delete_those(tables, &mut changes)?;
            let means = self.means();
            changes.create(&means.table(self.owned, &self.peers, &self.known));
            if means.guarded {
                changes.create(&means.guard(&self.peers));
            }
            if !self.devices.is_empty() {
                changes.create(&devices(self.owned, &self.devices, &self.flows));
            }
            match changes.replace(&mut self.socket, TABLE) {
                // Each kernel may lack another feature, and only the errno tells which.
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.way == QueueWay::Native => {
                    self.way = QueueWay::Compat;
                }
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE))
                        && self.owned != Owned::Nobody =>
                {
                    self.owned = self.owned.less();
                }
                done => return done,
            }
        }
    }

    /// The tables with the sets of peers.
    fn tables(&self) -> &'static [Name<'static>] {
        if self.owned == Owned::Goes { &[TABLE, GUARD] } else { &[TABLE] }
    }

    /// Deletes those of some tables that are there.
    fn delete_those(&mut self, tables: &[Name<'_>], changes: &mut Transaction) -> io::Result<()> {
        for table in tables {
            if exists(&mut self.socket, *table)? {
                changes.delete(*table);
            }
        }
        Ok(())
    }

    /// The port in notifications of changes by this table.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u32> {
        self.socket.port()
    }

    /// Watches for changes of the tables by others, in the calling thread's namespace.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self) -> io::Result<Watch> {
        Watch::over(&[TABLE, GUARD, DEVICES], self.port()?)
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
        let mut changes = Transaction::new();
        let tables = self.tables();
        let mut gives_way = false;
        for (family, of) in self.peers.iter_mut().enumerate() {
            let of_family = peers.iter().map(|&(address, len)| bits(address, len)).filter(|b| b.0 == family);
            let Change { remove, add } = Change::all(of_family.map(|b| step(of, b.1)));
            // Wider ones for narrower ones, or the other way round.
            gives_way |= !remove.is_empty() && !add.is_empty();
            let [remove, add] = [remove, add].map(|prefixes| elements(family, prefixes));
            for (at, set) in PEERS[family].sets.into_iter().enumerate() {
                tables.iter().for_each(|table| changes.remove(*table, set, &remove[at]));
            }
            for (at, set) in PEERS[family].sets.into_iter().enumerate() {
                tables.iter().for_each(|table| changes.add(*table, set, &add[at]));
            }
        }
        if gives_way {
            self.covered(|table| changes.commit(&mut table.socket))
        } else {
            changes.commit(&mut self.socket)
        }
    }

    /// Starts to drop the segments of flows ([`PeerTable::add_flow`]) at this device's ingress, where its ring has seen
    /// them.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add_device(&mut self, index: u32, name: &str) -> io::Result<()> {
        let first = self.devices.is_empty();
        if self.devices.insert(index, name.to_owned()).is_some() {
            return Ok(());
        }
        let mut changes = Transaction::new();
        if first {
            changes.create(&devices(self.owned, &self.devices, &self.flows));
        } else {
            changes.create_chain(DEVICES, &device(index, name));
        }
        changes.commit(&mut self.socket).inspect_err(|_| {
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
        let mut changes = Transaction::new();
        changes.delete_chain(DEVICES, &key::chain(index));
        match changes.commit(&mut self.socket) {
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
        let mut changes = Transaction::new();
        FLOWS.into_iter().enumerate().for_each(|(at, (set, _))| changes.add(DEVICES, set, &flows([&flow], at)));
        changes.commit(&mut self.socket).inspect_err(|_| {
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
        let mut changes = Transaction::new();
        FLOWS.into_iter().enumerate().for_each(|(at, (set, _))| changes.remove(DEVICES, set, &flows([&flow], at)));
        changes.commit(&mut self.socket)
    }

    /// The segments of these connections no longer share a queue with those of newcomers. Those beyond [`MAX_KNOWN`] go on
    /// to share it.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn know(&mut self, connections: impl IntoIterator<Item = Connection>) -> io::Result<()> {
        let room = MAX_KNOWN.saturating_sub(self.known.len());
        let new: HashSet<Connection> = connections.into_iter().filter(|c| !self.known.contains(c)).take(room).collect();
        let mut changes = Transaction::new();
        KNOWN.into_iter().enumerate().for_each(|(at, (set, _))| changes.add(TABLE, set, &known(&new, at)));
        changes.commit(&mut self.socket)?;
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
        let mut changes = Transaction::new();
        KNOWN.into_iter().enumerate().for_each(|(at, (set, _))| changes.remove(TABLE, set, &known(&list, at)));
        changes.commit(&mut self.socket)?;
        for connection in &list {
            self.known.remove(connection);
        }
        Ok(())
    }

    /// Forgets all devices and flows, whose rings are gone, and rewrites everything else.
    ///
    /// # Errors
    /// As [`PeerTable::install`].
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
        let mut changes = Transaction::new();
        self.delete_those(&ALL, &mut changes)?;
        changes.commit(&mut self.socket)
    }
}

impl AsFd for PeerTable {
    /// The socket that owns the table. As long as somebody has it open, others cannot remove the rules.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
