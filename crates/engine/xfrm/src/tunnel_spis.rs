//! Numbers of states of IP in IPv6.

use sealane_abi::xfrm::Address;
use std::collections::{BTreeMap, BTreeSet};

/// The numbers by which states of IP in IPv6 are named, one for each source (`xfrm6_tunnel_alloc_spi`).
#[derive(Default)]
pub(crate) struct TunnelSpis {
    last: u32,
    used: BTreeSet<u32>,
    /// The number of a source, and of how many states.
    of: BTreeMap<[u8; 16], (u32, u32)>,
}

impl TunnelSpis {
    /// The number of a source; 0 for none.
    pub(crate) fn of(&self, source: &Address) -> u32 {
        self.of.get(&source.bytes).map_or(0, |(spi, _)| *spi)
    }

    /// The number of a source, for one more state.
    pub(crate) fn take(&mut self, source: &Address) -> u32 {
        if let Some((spi, states)) = self.of.get_mut(&source.bytes) {
            *states += 1;
            return *spi;
        }
        // There are fewer states than numbers.
        loop {
            self.last = self.last.checked_add(1).unwrap_or(1);
            if self.used.insert(self.last) {
                break;
            }
        }
        self.of.insert(source.bytes, (self.last, 1));
        self.last
    }

    /// A state of a source is gone.
    pub(crate) fn put_back(&mut self, source: &Address) {
        let Some((spi, states)) = self.of.get_mut(&source.bytes) else { return };
        *states -= 1;
        if *states == 0 {
            self.used.remove(spi);
            self.of.remove(&source.bytes);
        }
    }
}
