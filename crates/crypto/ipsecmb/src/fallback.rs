//! The portable rows, for what the library cannot do.

use sealane_crypto::registry::{Alg, Driver};
use sealane_crypto::{AlgInfo, Kind, Registry, Row, templates};
use sealane_crypto_portable as portable;

/// All portable rows, by name.
pub(crate) struct Portable(Registry);

impl Portable {
    pub(crate) fn new() -> Self {
        // Not tested here: a row of this crate serves only when the results agree, whoever computed them.
        let untested = |_: &Alg| Ok(());
        Portable(Registry::builder(untested).rows(portable::rows()).templates(templates::all()).build())
    }

    /// The algorithm as its portable driver serves it. `None`: there is no such driver in this build, and then there is
    /// no row here either.
    pub(crate) fn alg(&self, kind: Kind, name: &str) -> Option<Alg> {
        self.0.lookup(kind, name).ok()
    }
}

/// A row of this crate for the algorithm that `info` describes.
pub(crate) fn row(info: &AlgInfo, driver: Driver) -> Row {
    let flat = info.name.replace(['(', ','], "-").replace(')', "");
    Row::new(info.clone(), &format!("{flat}-{}", crate::MODULE), crate::MODULE, crate::PRIORITY, driver)
}
