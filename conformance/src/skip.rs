//! Tests that skip themselves say so.

use crate::target::Target;
use std::io::Write;
use std::os::unix::fs::MetadataExt;

/// Reports on standard error that `test` is skipped and why, in the form that [`crate::summary`] counts. The caller
/// then returns. The line bypasses the capture of `cargo test`, so that a skip is not taken for a pass.
pub fn skip(test: &str, reason: &str) {
    let _ = std::io::stderr().write_all(format!("\nSKIPPED {test}: {reason}\n").as_bytes());
}

/// Whether this process is root's.
#[must_use]
pub fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|this| this.uid() == 0)
}

/// Skips `test` when one of `targets` is missing, and returns whether it did.
///
/// # Panics
/// When `sealane` has not been built in CI: kernels may be missing there, but not the program under test.
pub fn skip_without(test: &str, targets: &[&Target]) -> bool {
    let Some((target, reason)) = targets.iter().find_map(|t| t.missing().map(|reason| (t, reason))) else {
        return false;
    };
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!(ci && matches!(target, Target::Sealane { .. })), "{test}: {reason}");
    skip(test, &reason);
    true
}
