//! AF_ALG's use by a program and its children: `sealane audit`.

pub use sealane_engine_alg::audit::Usage;
use sealane_engine_alg::audit::{Counters, WORDS};
use sealane_sys::mapping::SharedWords;
use std::io;

/// Counters in memory that every process of a program shares.
pub(crate) struct Ledger(SharedWords);

impl Ledger {
    /// An empty one.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new() -> io::Result<Self> {
        SharedWords::new(WORDS).map(Ledger)
    }

    /// Its path for the program's processes.
    pub(crate) fn path(&self) -> String {
        self.0.path()
    }

    /// The counters themselves.
    pub(crate) fn words(&self) -> &'static [core::sync::atomic::AtomicU64] {
        self.0.words()
    }

    /// The counters so far.
    pub(crate) fn usage(&self) -> Vec<Usage> {
        Counters::new(self.0.words()).usage()
    }
}
