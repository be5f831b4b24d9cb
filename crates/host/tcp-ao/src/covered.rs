//! The list of the protected peers of a namespace.

use sealane_net_ao::mkt::Prefix;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// The prefixes that the rules cover.
#[derive(Debug, Default)]
pub(super) struct Protected {
    /// Prefixes that are never removed: those of the configuration or of a predecessor.
    pub(super) fixed: HashSet<Prefix>,
    /// Prefixes for which programs have set keys, and the time since which they are unused.
    pub(super) by_keys: HashMap<Prefix, Option<Instant>>,
}

impl Protected {
    /// The prefixes that the rules cover from the beginning.
    pub(super) fn new(fixed: &[Prefix], by_keys: &[Prefix]) -> Self {
        let fixed: HashSet<Prefix> = fixed.iter().copied().collect();
        let by_keys = by_keys.iter().filter(|prefix| !fixed.contains(prefix)).map(|prefix| (*prefix, None)).collect();
        Protected { fixed, by_keys }
    }

    pub(super) fn has(&self, prefix: &Prefix) -> bool {
        self.fixed.contains(prefix) || self.by_keys.contains_key(prefix)
    }
}
