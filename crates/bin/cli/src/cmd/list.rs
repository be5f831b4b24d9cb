//! `sealane crypto list`: lists the drivers.

use crate::answer::Answer;
use crate::args::CryptoList;
use crate::render;
use anyhow::Result;
use sealane_crypto::registry::TestState;
use sealane_crypto::{KeyUse, Registry, Row};
use serde::Serialize;
use std::io::Write;
use std::sync::Arc;

#[derive(Serialize)]
struct JsonRow<'a> {
    name: &'a str,
    driver: &'a str,
    module: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    priority: u32,
    selftest: &'static str,
    blocksize: usize,
    chunksize: usize,
    min_keysize: usize,
    max_keysize: usize,
    key: &'static str,
    ivsize: usize,
    digestsize: usize,
    seedsize: usize,
    legacy: bool,
}

pub(crate) fn state_name(state: TestState) -> &'static str {
    match state {
        TestState::Untested => "unknown",
        TestState::Passed => "passed",
        TestState::Failed => "failed",
        TestState::Exempt => "exempt",
    }
}

/// The rows whose algorithm name or driver name contains `part`.
pub(crate) fn matching(registry: &Registry, part: Option<&str>) -> Vec<Arc<Row>> {
    let part = part.unwrap_or("");
    registry.rows().iter().filter(|r| r.info.name.contains(part) || r.driver.contains(part)).cloned().collect()
}

pub(crate) fn list(args: &CryptoList, out: &mut impl Write) -> Result<Answer> {
    let registry = super::registry()?;
    let mut rows = matching(&registry, args.name.as_deref());
    if let Some(kind) = args.kind {
        rows.retain(|r| r.info.kind == kind.into());
    }
    for row in &rows {
        // The list shows the result only; `crypto test` prints the reason of a failure.
        let _ = registry.self_test(row);
    }
    if args.json {
        let rows: Vec<JsonRow<'_>> = rows.iter().map(|r| json_row(r)).collect();
        render::json(out, &rows)?;
    } else {
        let mut text = String::new();
        for row in &rows {
            sealane_crypto::proc::render(row, &mut text)?;
        }
        out.write_all(text.as_bytes())?;
    }
    Ok(if rows.is_empty() { Answer::No } else { Answer::Yes })
}

fn json_row(row: &Row) -> JsonRow<'_> {
    let info = &row.info;
    JsonRow {
        name: &info.name,
        driver: &row.driver,
        module: row.module,
        kind: info.kind.name(),
        priority: row.priority,
        selftest: state_name(row.test_state()),
        blocksize: info.block_len,
        chunksize: info.chunk_len,
        min_keysize: info.key_lens.min(),
        max_keysize: info.key_lens.max(),
        key: match info.key_use {
            KeyUse::None => "none",
            KeyUse::Optional => "optional",
            KeyUse::Required => "required",
        },
        ivsize: info.iv_len,
        digestsize: info.digest_len,
        seedsize: row.seed_len(),
        legacy: info.legacy,
    }
}
