//! What the tests share.
#![allow(dead_code, reason = "each test file uses a part")]

use sealane_crypto::portable_registry;
use sealane_net::ao::alg::{Algorithm, Algorithms};
use sealane_net::ao::mkt::{Mkt, MktSpec, Prefix};
use std::sync::{Arc, LazyLock};

/// The algorithms over the portable drivers.
pub(crate) fn algorithms() -> &'static Algorithms {
    static ALL: LazyLock<Algorithms> = LazyLock::new(|| Algorithms::new(&portable_registry()));
    &ALL
}

pub(crate) fn algorithm(name: &str) -> &'static Arc<Algorithm> {
    algorithms().get(name).unwrap_or_else(|| panic!("no {name}"))
}

/// A key for every IPv4 peer.
pub(crate) fn spec<'a>(name: &str, send_id: u8, recv_id: u8) -> MktSpec<'a> {
    MktSpec {
        algorithm: algorithm(name),
        key: b"a master key",
        send_id,
        recv_id,
        mac_len: 0,
        exclude_options: false,
        peer: Prefix::ANY_V4,
        ifindex: None,
    }
}

pub(crate) fn mkt(spec: &MktSpec<'_>) -> Arc<Mkt> {
    Arc::new(Mkt::new(spec).expect("a good key"))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).expect("hexadecimal")).collect()
}

/// Numbers that are the same in every run (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// One in `n`.
    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}
