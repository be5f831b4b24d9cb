//! Skipping a test loudly.

use crate::target::Target;
use std::io::Write;

/// Says on standard error that `test` is skipped and why, in the form that [`crate::summary`] counts. The test then
/// returns. Written past the capture of `cargo test`, so that nobody mistakes it for a pass.
pub fn skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("\nSKIPPED {test}: {reason}\n").as_bytes());
}

/// Skips `test` when one of `targets` is not there, and says so by true.
///
/// # Panics
/// When `sealane` has not been built in CI: kernels may be missing there, what is to be tested may not.
pub fn skip_without(test: &str, targets: &[&Target]) -> bool {
    let Some((target, reason)) = targets.iter().find_map(|t| t.missing().map(|reason| (t, reason))) else {
        return false;
    };
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!(ci && matches!(target, Target::Sealane { .. })), "{test}: {reason}");
    skip(test, &reason);
    true
}
