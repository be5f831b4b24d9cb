//! The text of `/proc/crypto`.

use crate::system::System;

/// `/proc/crypto` of the imitated kernel, in its field order.
#[must_use]
pub fn proc_crypto(sys: &System) -> String {
    let mut text = String::new();
    let _ = sys;
    text.push_str("");
    text
}
