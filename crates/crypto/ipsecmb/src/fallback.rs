//! The portable rows, for operations that the library cannot do.

use sealane_crypto::registry::Alg;
use sealane_crypto::{Kind, Registry, templates};
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
