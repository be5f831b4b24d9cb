//! Rows in the format of `/proc/crypto` (`crypto/proc.c` and the `show` function of each type).

use crate::info::Kind;
use crate::registry::{Row, TestState};
use core::fmt::{self, Write};

/// Writes the paragraph of one row and the blank line after it.
///
/// # Errors
/// Those of `out`.
pub fn render(row: &Row, out: &mut impl Write) -> fmt::Result {
    let info = &row.info;
    let mut field = |name: &str, value: &dyn fmt::Display| writeln!(out, "{name:<12} : {value}");
    field("name", &info.name)?;
    field("driver", &row.driver)?;
    field("module", &row.module)?;
    field("priority", &row.priority)?;
    field("refcnt", &1)?;
    field(
        "selftest",
        &match row.test_state() {
            TestState::Passed | TestState::Exempt => "passed",
            TestState::Untested => "unknown",
            TestState::Failed => "failed",
        },
    )?;
    field("internal", &"no")?;
    match info.kind {
        Kind::Hash | Kind::NonceMac => {
            field("type", &if info.kind == Kind::Hash { "shash" } else { "nonce-mac" })?;
            field("blocksize", &info.block_len)?;
            field("digestsize", &info.digest_len)?;
        }
        Kind::Skcipher => {
            field("type", &"skcipher")?;
            field("async", &"no")?;
            field("blocksize", &info.block_len)?;
            field("min keysize", &info.key_lens.min())?;
            field("max keysize", &info.key_lens.max())?;
            field("ivsize", &info.iv_len)?;
            field("chunksize", &info.chunk_len)?;
            field("walksize", &info.chunk_len)?;
            field("statesize", &0)?;
        }
        Kind::Aead => {
            field("type", &"aead")?;
            field("async", &"no")?;
            field("blocksize", &info.block_len)?;
            field("ivsize", &info.iv_len)?;
            field("maxauthsize", &info.tag_lens.max())?;
            field("geniv", &"<none>")?;
        }
        Kind::Rng => {
            field("type", &"rng")?;
            field("seedsize", &row.seed_len())?;
        }
    }
    out.write_char('\n')
}
