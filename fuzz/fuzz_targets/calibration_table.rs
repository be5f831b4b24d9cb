//! Calibrated tables: a table that parses is written so that it parses to the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto::choice::Table;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Table::parse(text) {
        Ok(table) => {
            let once = table.to_string();
            let again = Table::parse(&once).expect("a written table reads").to_string();
            assert_eq!(once, again);
        }
        Err(e) => assert!(e.line >= 1 && e.line <= text.lines().count().max(1), "{e}"),
    }
});
