//! The tables of policies in a network namespace.

use super::chains::{Dropped, Means};
use super::refused::Refused;
use super::tables::{GUARD, TABLE};
use super::wanted::Wanted;
use crate::table::{Family, Name, Owned};
use crate::told;
use crate::transaction::{Transaction, exists};
use crate::watch::Watch;
use sealane_sys::families::Families;
use sealane_sys::marks::{Bits, Opened};
use sealane_sys::netlink::{Socket, errno};
use sealane_sys::rights;
use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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
}

impl PolicyTable {
    /// Creates a table, which the first rules write. `device` is the TUN device's name, and `owner` the socket that owns
    /// the table of a predecessor, if somebody has kept it. `opened` are the marks of opened packets that come in by the devices
    /// that they came by sealed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(device: &str, bits: Bits, opened: Option<Opened>, owner: Option<OwnedFd>) -> io::Result<Self> {
        let socket = owner.map_or_else(|| Socket::open(libc::NETLINK_NETFILTER), Socket::adopt)?;
        let device = device.to_owned();
        let user = rights::user_in_rules()?;
        let mut table = PolicyTable {
            socket,
            means: Means { device, bits, user, sockets: true, counts: true, rejects: true, opened },
            owned: Owned::Persists,
            there: false,
            ours: false,
            dropped: Dropped::default(),
            written: Wanted::default(),
        };
        table.there = !table.existing()?.is_empty();
        Ok(table)
    }

    /// The tables of ours that are there.
    fn existing(&mut self) -> io::Result<Vec<Name<'static>>> {
        let mut there = Vec::new();
        for name in [TABLE, GUARD] {
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
        // Tables of [`crate::ingress`] have the same name in another family, and sockets of their own.
        Watch::over(&[TABLE.name, GUARD.name], &[Family::Inet], self.socket.port()?)
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
        let table = self.means.table(self.owned, wanted, self.dropped);
        told::unlike(&mut self.socket, &table)
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

    /// Writes the chains that say something else than before. All others keep their rules, and what these have counted.
    fn rewrite(&mut self, wanted: &Wanted) -> io::Result<()> {
        let mut changes = Transaction::new();
        let mut any = false;
        for chain in self.means.changed(&self.written, wanted) {
            changes.rewrite(TABLE, &chain);
            any = true;
        }
        if any && self.owned == Owned::Goes {
            if exists(&mut self.socket, GUARD)? {
                changes.delete(GUARD);
            }
            changes.create(&self.means.guard(wanted, self.dropped));
        }
        changes.commit(&mut self.socket)
    }

    /// Writes all tables, in place of those that are there.
    fn replace(&mut self, wanted: Wanted) -> io::Result<()> {
        // The new counters continue from the old ones; packets dropped in between are not counted.
        self.dropped();
        loop {
            let mut changes = Transaction::new();
            self.existing()?.into_iter().for_each(|name| changes.delete(name));
            changes.create(&self.means.table(self.owned, &wanted, self.dropped));
            if self.owned == Owned::Goes {
                changes.create(&self.means.guard(&wanted, self.dropped));
            }
            match changes.replace(&mut self.socket, TABLE) {
                // This kernel's tables do not outlive their owners, or have none. Only the first write can show that.
                Err(e)
                    if matches!(errno(&e), Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE))
                        && self.owned != Owned::Nobody
                        && !self.ours =>
                {
                    self.owned = self.owned.less();
                }
                // Before Linux 5.9 rules that forwarded packets get to cannot answer. Only rules that block show that.
                Err(e) if errno(&e) == Some(libc::EOPNOTSUPP) && self.means.rejects => self.means.rejects = false,
                Err(e) if errno(&e) == Some(libc::ENOENT) && self.means.do_without() => {}
                Ok(()) => {
                    (self.there, self.ours, self.written) = (true, true, wanted);
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
        (self.there, self.ours) = (false, false);
        changes.commit(&mut self.socket)
    }
}
