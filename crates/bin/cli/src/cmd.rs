//! The commands, each in a file of its own.

pub(crate) mod adopt;
pub(crate) mod advise;
pub(crate) mod audit;
pub(crate) mod bench;
pub(crate) mod calibrate;
mod capture;
pub(crate) mod check;
pub(crate) mod daemon;
pub(crate) mod docs;
pub(crate) mod doctor;
pub(crate) mod explain;
pub(crate) mod key;
pub(crate) mod list;
pub(crate) mod run;
pub(crate) mod show;
pub(crate) mod sign;
pub(crate) mod speed;
pub(crate) mod test;
pub(crate) mod verify;

use anyhow::Result;
use sealane_crypto::Registry;
use sealane_crypto::choice::Table;
use sealane_drivers::{SystemEntropy, tables};
use std::sync::Arc;

/// The registry of this build, with the driver table of this machine.
pub(crate) fn registry() -> Result<Registry> {
    let (table, _) = tables::load()?;
    Ok(registry_with(table))
}

/// The registry of this build, with the driver table `table`.
pub(crate) fn registry_with(table: Table) -> Registry {
    sealane_drivers::registry(table, Arc::new(SystemEntropy))
}
