//! The set of objects that have changed since they were recorded last.

use crate::serial::Serial;
use std::collections::BTreeSet;

/// The key of the record of the defaults, which no policy has.
pub(crate) const DEFAULTS: Serial = 0;

/// The keys of changed states, or of changed policies. Nothing is noted until somebody records them.
#[derive(Default)]
pub(crate) struct Changes {
    recorded: bool,
    keys: BTreeSet<Serial>,
}

impl Changes {
    /// Notes changes from now on.
    pub(crate) fn start(&mut self) {
        self.recorded = true;
    }

    /// Whether changes are noted.
    #[cfg(test)]
    pub(crate) fn are_noted(&self) -> bool {
        self.recorded
    }

    pub(crate) fn note(&mut self, key: Serial) {
        if self.recorded {
            self.keys.insert(key);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(crate) fn take(&mut self) -> BTreeSet<Serial> {
        core::mem::take(&mut self.keys)
    }
}
