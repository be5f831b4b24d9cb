//! The tables of policies as values, for tests that pretend to be the kernel.

use super::chains::{Dropped, Means};
use super::wanted::Wanted;
use crate::late::Devices;
use crate::table::{Chain, Owned, Table};
use sealane_sys::families::Families;
use sealane_sys::marks::Bits;

/// The rules' knowledge of a daemon, on a kernel that can do all that they ask for.
#[derive(Debug, Clone)]
pub struct Values(Means);

impl Values {
    /// For a daemon of root's with these marks, and with this TUN device.
    pub fn new(device: &str, bits: Bits) -> Self {
        Values(Means::complete(device, bits))
    }

    /// All tables, as they are written first.
    pub fn tables(&self, owned: Owned, wanted: &Wanted) -> Vec<Table> {
        let whole = self.0.table(owned, wanted, Dropped::default(), &Devices::default());
        core::iter::once(whole).chain((owned == Owned::Goes).then(|| self.guard(wanted))).collect()
    }

    /// The table without an owner.
    pub fn guard(&self, wanted: &Wanted) -> Table {
        self.0.guard(wanted, Dropped::default())
    }

    /// The chains of the first table that are written again when something else is wanted.
    pub fn changed(&self, before: &Wanted, after: &Wanted) -> Vec<Chain> {
        self.0.changed(before, after).collect()
    }
}

/// The families for whose packets the policies are others.
pub fn families(before: &Wanted, after: &Wanted) -> Families {
    before.families(after)
}
