//! The portable rows, for operations that the library cannot do.

use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::{AlgInfo, Kind, Registry, Row, templates};
use sealane_crypto_portable as portable;

/// All portable rows, by name.
pub(crate) struct Portable(Registry);

impl Portable {
    pub(crate) fn new() -> Self {
        // Not tested here: the self-test of the row of this crate covers these results as well.
        let untested = |_: &Alg| Ok(());
        Portable(Registry::builder(untested).rows(portable::rows()).templates(templates::all()).build())
    }

    /// The algorithm with its portable driver. `None`: this build has no such driver, and therefore no row here either.
    pub(crate) fn alg(&self, kind: Kind, name: &str) -> Option<Alg> {
        self.0.lookup(kind, name).ok()
    }
}

/// A row of this crate for the algorithm that `info` describes.
pub(crate) fn row(info: &AlgInfo, driver: Driver) -> Row {
    let flat = info.name.replace(['(', ','], "-").replace(')', "");
    Row::new(info.clone(), &format!("{flat}-{}", crate::MODULE), crate::MODULE, crate::PRIORITY, driver)
}
