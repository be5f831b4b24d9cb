//! The share of each user in a round.

use std::collections::HashMap;

/// The time that the clients of one user have in a round: some thousands of short requests, or one or two of RSA-4096.
const SHARE_NS: u64 = 5_000_000;

/// The time that each user's clients have had in a round.
#[derive(Default)]
pub(super) struct Shares(HashMap<u32, u64>);

impl Shares {
    /// Whether there is time left for another request of this user's.
    pub(super) fn is_left(&self, user: u32) -> bool {
        self.0.get(&user).is_none_or(|had| *had < SHARE_NS)
    }

    /// Counts the time of a request.
    pub(super) fn took(&mut self, user: u32, ns: u64) {
        let had = self.0.entry(user).or_default();
        *had = had.saturating_add(ns);
    }
}
