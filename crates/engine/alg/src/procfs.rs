//! The text of `/proc/crypto`.

use crate::system::System;
use core::fmt::Write as _;
use sealane_abi::Profile;
use sealane_crypto::proc::render;

/// `/proc/crypto` of the imitated kernel, in its field order, or of our own drivers under the open profile.
#[must_use]
pub fn proc_crypto(sys: &System) -> String {
    let mut text = String::new();
    if sys.profile() == Profile::Open {
        for row in sys.own_rows() {
            // Writing to a string does not fail.
            let _ = render(row, &mut text);
        }
        return text;
    }
    for row in sys.catalog().live_rows() {
        let mut field = |name: &str, value: &str| {
            let _ = writeln!(text, "{:<12} : {value}", name.replace('_', " "));
        };
        field("name", row.name);
        field("driver", row.driver);
        for (name, value) in row.fields() {
            match name {
                "flags" => {}
                "priority" => field(name, &row.priority().to_string()),
                // The count of an instance is that of the moment when it was recorded.
                "refcnt" if row.since() > 1 => field(name, "1"),
                _ => field(name, value),
            }
        }
        text.push('\n');
    }
    text
}
