//! The tables of policies in a network namespace.

use super::chains::{Dropped, Means};
use super::refused::Refused;
use super::tables::{GUARD, TABLE};
use super::wanted::Wanted;
use crate::late::{Devices, LATE, LATE_GUARD, Late};
use crate::rule::{Pair, Rule};
use crate::table::{Chain, Name, Owned, Table};
use crate::told;
use crate::transaction::{Transaction, exists};
use crate::watch::Watch;
use sealane_sys::families::Families;
use sealane_sys::marks::{Bits, Opened};
use sealane_sys::netlink::{Socket, errno};
use sealane_sys::{release, rights};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// All tables that there may be.
const TABLES: [Name<'static>; 4] = [TABLE, GUARD, LATE, LATE_GUARD];

/// The table in the namespace of the thread that made it.
#[derive(Debug)]
pub struct PolicyTable {
    pub(super) socket: Socket,
    pub(super) means: Means,
    /// The kind of tables that this kernel has.
    pub(super) owned: Owned,
    there: bool,
    /// Whether this process has written the table, and the numbers of packets that its rules had dropped at the last
    /// look.
    pub(super) ours: bool,
    dropped: Dropped,
    /// The contents of the table, if this process has written it.
    written: Wanted,
    /// The devices by which packets may leave late.
    late: Devices,
    /// Whether the kernel has sets of pairs of prefixes (Linux 5.6).
    may_have_sets: bool,
    /// The sets that rules look into, and their tables.
    pub(super) sets: Vec<(Name<'static>, String)>,
    /// When rules were written that may have sets in place of single policies.
    unsettled: Option<Instant>,
}

/// Rules are settled when nothing has changed for this time.
const QUIET: Duration = Duration::from_millis(200);

impl PolicyTable {
    /// Creates a table, which the first rules write. `device` is the TUN device's name, and `owner` the socket that owns
    /// the table of a predecessor, if somebody has kept it. `opened` are the marks of opened packets that come in by the devices
    /// that they came by sealed, and `late` is the late way of those that leave.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(
        device: &str,
        bits: Bits,
        (opened, late): (Option<Opened>, Option<Late>),
        owner: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let socket = owner.map_or_else(|| Socket::open(libc::NETLINK_NETFILTER), Socket::adopt)?;
        let device = device.to_owned();
        let user = rights::user_in_rules()?;
        let mut table = PolicyTable {
            socket,
            means: Means { device, bits, user, sets: false, sockets: true, counts: true, rejects: true, opened, late },
            owned: Owned::Persists,
            there: false,
            ours: false,
            dropped: Dropped::default(),
            written: Wanted::default(),
            late: Devices::default(),
            may_have_sets: release::is_at_least(5, 6),
            sets: Vec::new(),
            unsettled: None,
        };
        table.there = !table.existing()?.is_empty();
        Ok(table)
    }

    /// The tables of ours that are there.
    fn existing(&mut self) -> io::Result<Vec<Name<'static>>> {
        let mut there = Vec::new();
        for name in TABLES {
            if exists(&mut self.socket, name)? {
                there.push(name);
            }
        }
        Ok(there)
    }

    /// Whether the rules know opened packets that come in by the devices that they came by sealed.
    pub fn knows_opened(&self) -> bool {
        self.ours && self.means.opened.is_some()
    }

    /// The socket that owns the table. As long as somebody has it open, others cannot remove the rules.
    pub fn owner(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Watches for changes of the table by others.
    ///
    /// # Errors
    /// The kernel's.
    pub fn watch(&self) -> io::Result<Watch> {
        Watch::over(&TABLES, self.socket.port()?)
    }

    /// Writes the last rules again, whatever is there. Nothing happens if this process has written none.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn restore(&mut self) -> io::Result<()> {
        if !self.ours {
            return Ok(());
        }
        let wanted = self.written.clone();
        self.replace(wanted)
    }

    /// Whether a table exists, ours or that of a predecessor that died.
    pub fn is_there(&self) -> bool {
        self.there
    }

    /// The number of packets that the rules have dropped since this table was created, in the order of
    /// [`Refused::ALL`]; the last known numbers if the kernel does not answer.
    pub fn dropped(&mut self) -> [u64; Refused::ALL.len()] {
        if self.ours && self.means.counts {
            for (why, dropped) in Refused::ALL.into_iter().zip(&mut self.dropped) {
                if let Ok(Some(packets)) = told::counted(&mut self.socket, TABLE, why.chain()) {
                    *dropped = packets.max(*dropped);
                }
            }
        }
        self.dropped
    }

    /// The names of the chains whose rules, as the kernel has them, are not these.
    ///
    /// # Errors
    /// The kernel's.
    pub fn unlike(&mut self, wanted: &Wanted) -> io::Result<BTreeSet<String>> {
        let means = if self.sets.is_empty() { self.means.clone() } else { self.with_sets() };
        let mut unlike = BTreeSet::new();
        for table in self.tables(&means, wanted) {
            unlike.extend(told::unlike(&mut self.socket, &table)?);
        }
        Ok(unlike)
    }

    /// The tables of some means.
    fn tables(&self, means: &Means, wanted: &Wanted) -> Vec<Table> {
        let mut tables = vec![means.table(self.owned, wanted, self.dropped, &self.late)];
        tables.extend((self.owned == Owned::Goes).then(|| means.guard(wanted, self.dropped)));
        tables.extend(means.late_tables(self.owned, wanted, &self.late));
        tables
    }

    fn with_sets(&self) -> Means {
        Means { sets: true, ..self.means.clone() }
    }

    /// The time after which [`Self::settle`] is to be called, if there is anything to settle.
    pub fn settle_again(&self) -> Option<Duration> {
        self.unsettled.map(|since| QUIET.saturating_sub(since.elapsed()))
    }

    /// Gives policies that differ by their addresses one rule together, with a set, in place of one each. Packets pass fewer rules then. The
    /// rules say the same before, and at any moment in between.
    ///
    /// # Errors
    /// The kernel's: the rules stay.
    pub fn settle(&mut self) -> io::Result<()> {
        if self.unsettled.take().is_none() || !self.ours {
            return Ok(());
        }
        let tables = self.tables(&self.with_sets(), &self.written);
        let mut names = BTreeMap::<Vec<Pair>, String>::new();
        let (mut sets, mut create) = (Vec::new(), Transaction::new());
        for table in &tables {
            for pairs in table.chains.iter().flat_map(|chain| &chain.rules).filter_map(Rule::pairs) {
                let next = names.len() + 1;
                let name = names.entry(pairs.to_vec()).or_insert_with(|| format!("between{next}")).clone();
                let set = (TABLES.into_iter().find(|of| *of == table.name()).unwrap_or(TABLE), name);
                if !sets.contains(&set) {
                    create.create_pairs(set.0, &set.1, pairs);
                    sets.push(set);
                }
            }
        }
        create.commit(&mut self.socket)?;
        self.sets = sets;
        let mut changes = Transaction::new();
        changes.know(names);
        for table in &tables {
            let looking = table.chains.iter().filter(|chain| chain.looks_for_pairs());
            looking.for_each(|chain| changes.rewrite(table.name(), chain));
        }
        changes.commit(&mut self.socket).inspect_err(|_| self.delete_sets())
    }

    /// Deletes sets that no rule looks into.
    fn delete_sets(&mut self) {
        let mut changes = Transaction::new();
        self.sets.iter().for_each(|(table, set)| changes.delete_set(*table, set));
        if changes.commit(&mut self.socket).is_ok() {
            self.sets.clear();
        }
    }

    /// Lets packets leave late by those `suitable` of the devices that are `there`, and by no others. Those that are `gone` have been so
    /// since the last call, even if they have come back. The first rules list them when they are written. Nothing happens where there is no
    /// late way.
    ///
    /// # Errors
    /// The kernel's. No packet leaves late in that case.
    pub fn list(
        &mut self,
        there: &BTreeMap<u32, String>,
        suitable: &BTreeSet<u32>,
        gone: impl Fn(u32) -> bool,
    ) -> io::Result<()> {
        // One that is back has lost its chain.
        let mut is_lost = false;
        if self.means.late.is_some_and(Late::loses_chains) {
            is_lost = self.late.forget(gone).any(|index| there.contains_key(&index));
        }
        let next = self.late.next(there, suitable);
        let is_due = self.means.late.is_some_and(|late| next != self.late || late.again().is_some());
        let before = core::mem::replace(&mut self.late, next);
        if !self.ours || !is_due {
            return Ok(());
        }
        if is_lost {
            return self.restore();
        }
        let mut changes = Transaction::new();
        self.means.change_devices(&mut changes, self.owned, &before, &self.late);
        // A device may go at this moment.
        changes.commit(&mut self.socket).or_else(|_| self.restore())
    }

    /// Whether the kernel has removed a chain with its device, if these have gone: [`Self::list`] is to be called at once.
    pub fn loses_chain(&self, gone: impl Fn(u32) -> bool) -> bool {
        self.means.late.is_some_and(Late::loses_chains) && self.late.with_chain.keys().any(|index| gone(*index))
    }

    /// The time after which [`Self::list`] is to be called again, whether devices have changed or not.
    pub fn list_again(&self) -> Option<Duration> {
        self.means.late?.again()
    }

    /// Writes these rules in one transaction. Returns the families for whose packets they are others than before.
    ///
    /// # Errors
    /// The kernel's; nothing has changed in that case.
    pub fn write(&mut self, wanted: Wanted) -> io::Result<Families> {
        let families = if self.ours { self.written.families(&wanted) } else { Families::ALL };
        // A table without an owner may have been changed by others.
        if self.ours && self.owned != Owned::Nobody && self.rewrite(&wanted).is_ok() {
            self.written = wanted;
            return Ok(families);
        }
        self.replace(wanted)?;
        Ok(families)
    }

    /// Writes the chains that say something else than before. All others keep their rules, and what these have counted. Sets go.
    fn rewrite(&mut self, wanted: &Wanted) -> io::Result<()> {
        let mut chains: Vec<Chain> = self.means.changed(&self.written, wanted).collect();
        if chains.is_empty() {
            return Ok(());
        }
        if !self.sets.is_empty() {
            let had = self.with_sets().table(self.owned, &self.written, self.dropped, &self.late).chains;
            let looked = |name: &str| had.iter().any(|chain| chain.name == name && chain.looks_for_pairs());
            let all = self.means.table(self.owned, wanted, self.dropped, &self.late).chains;
            let more = all.into_iter().filter(|chain| looked(&chain.name));
            let more: Vec<_> = more.filter(|chain| chains.iter().all(|there| there.name != chain.name)).collect();
            chains.extend(more);
        }
        let mut changes = Transaction::new();
        chains.iter().for_each(|chain| changes.rewrite(TABLE, chain));
        if self.means.late.is_some() && (!self.sets.is_empty() || self.written.output != wanted.output) {
            self.means.change_judge(&mut changes, self.owned, wanted);
        }
        self.sets.iter().filter(|(table, _)| *table != GUARD).for_each(|(table, set)| changes.delete_set(*table, set));
        if self.owned == Owned::Goes {
            if exists(&mut self.socket, GUARD)? {
                changes.delete(GUARD);
            }
            changes.create(&self.means.guard(wanted, self.dropped));
        }
        changes.commit(&mut self.socket)?;
        self.note_plain();
        Ok(())
    }

    /// Notes that there are no sets, and whether there may be any.
    fn note_plain(&mut self) {
        self.sets.clear();
        self.unsettled = self.may_have_sets.then(Instant::now);
    }

    /// Writes all tables, in place of those that are there.
    fn replace(&mut self, wanted: Wanted) -> io::Result<()> {
        // The new counters continue from the old ones; packets dropped in between are not counted.
        self.dropped();
        loop {
            let mut changes = Transaction::new();
            self.existing()?.into_iter().for_each(|name| changes.delete(name));
            self.tables(&self.means, &wanted).iter().for_each(|table| changes.create(table));
            match changes.replace(&mut self.socket, TABLE) {
                // This kernel's tables do not outlive their owners, or have none. Only the first write can show that.
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE))
                        && self.owned != Owned::Nobody
                        && !self.ours =>
                {
                    self.owned = self.owned.less();
                }
                // A device of a chain has gone.
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.late != Devices::default() => {
                    self.late = Devices::default();
                }
                // Before Linux 5.9 rules that forwarded packets get to cannot answer. Only rules that block show that.
                Err(e) if errno(&e) == Some(libc::EOPNOTSUPP) && self.means.rejects => self.means.rejects = false,
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.means.do_without() => {}
                Ok(()) => {
                    (self.there, self.ours, self.written) = (true, true, wanted);
                    self.note_plain();
                    return Ok(());
                }
                failed => return failed,
            }
        }
    }

    /// Deletes all rules.
    ///
    /// # Errors
    /// The kernel's.
    pub fn delete(&mut self) -> io::Result<()> {
        let mut changes = Transaction::new();
        self.existing()?.into_iter().for_each(|name| changes.delete(name));
        self.dropped();
        (self.there, self.ours, self.unsettled) = (false, false, None);
        self.sets.clear();
        changes.commit(&mut self.socket)
    }
}
