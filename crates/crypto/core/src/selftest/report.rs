//! Texts that say what differed.

use crate::error::{KeyError, OpError};

pub(super) fn op(e: OpError) -> String {
    e.to_string()
}

pub(super) fn key(e: KeyError) -> String {
    e.to_string()
}

/// Compares two public results. The error names the first byte that differs and never a whole value.
pub(super) fn equal(what: &str, got: &[u8], want: &[u8]) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{what} has {} bytes, expected {}", got.len(), want.len()));
    }
    match got.iter().zip(want).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("{what} differs from byte {at} of {}", got.len())),
    }
}
