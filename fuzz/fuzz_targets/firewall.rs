//! Firewalls: findings have a line of the text, a rule and a reason; other texts are refused with a line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_firewall::examine;

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let lines = text.split('\n').count();
    match examine(text, &["ipsec0".to_owned()]) {
        Ok(report) => {
            for finding in &report.findings {
                assert!((1..=lines).contains(&finding.line) && !finding.whys.is_empty() && !finding.rule.is_empty());
                assert!(finding.instead.iter().all(|rule| !rule.is_empty()), "{finding:?}");
            }
            assert!(report.includes.iter().all(|(line, _)| (1..=lines).contains(line)));
        }
        Err(e) => assert!((1..=lines).contains(&e.line) && !e.what.is_empty(), "{e}"),
    }
});
