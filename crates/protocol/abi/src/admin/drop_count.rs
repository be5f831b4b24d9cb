//! Dropped segments and packets by reason.

use serde::{Deserialize, Serialize};

/// The number of segments or packets dropped for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason in one word.
    pub reason: String,
    /// The number of segments or packets.
    pub count: u64,
}
