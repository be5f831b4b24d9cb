//! Calibration: measures the drivers and writes a table.

use crate::measure::{Shape, Workload, in_turns};
use crate::tables::cpu_model;
use sealane_crypto::choice::{BURST_POINTS, LEN_POINTS, MeasuredDirection, Table};
use sealane_crypto::registry::TestState;
use sealane_crypto::{Alg, Kind, Registry, Row};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Rounds of one cell. The fastest one counts, because other work of the machine disturbed it least.
const ROUNDS: u32 = 5;

/// The progress of calibration, for a display.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// The algorithm being measured.
    pub alg: String,
    /// Algorithms done.
    pub done: usize,
    /// Algorithms in all.
    pub total: usize,
}

/// Measures every algorithm that has more than one driver and whose name contains `only`, `cell` of time for each
/// driver and cell. Drivers that fail their self-test are left out.
///
/// Measurements for other algorithms that `base` holds are kept.
pub fn calibrate(
    registry: &Registry,
    base: Table,
    only: &str,
    cell: Duration,
    mut progress: impl FnMut(&Progress),
) -> Table {
    let mut by_name: BTreeMap<(Kind, &str), Vec<&Arc<Row>>> = BTreeMap::new();
    for row in registry.rows() {
        if row.info.kind != Kind::Rng && row.test_state() != TestState::Exempt && row.info.name.contains(only) {
            by_name.entry((row.info.kind, &row.info.name)).or_default().push(row);
        }
    }
    by_name.retain(|_, rows| {
        rows.retain(|row| registry.self_test(row).is_ok());
        rows.len() > 1
    });
    let mut table = base;
    table.cpu = cpu_model();
    let total = by_name.len();
    for (done, ((kind, name), rows)) in by_name.into_iter().enumerate() {
        progress(&Progress { alg: name.to_owned(), done, total });
        let algs: Vec<Alg> = rows.iter().map(|row| Alg::of_row(row, registry.entropy())).collect();
        let ways = if matches!(kind, Kind::Skcipher | Kind::Aead) {
            &MeasuredDirection::ALL[..]
        } else {
            &[MeasuredDirection::Forward][..]
        };
        for &way in ways {
            for (l, &bytes) in LEN_POINTS.iter().enumerate() {
                for (b, &burst) in BURST_POINTS.iter().enumerate() {
                    let loads: Result<Vec<Workload>, String> = algs
                        .iter()
                        .map(|alg| Workload::new(alg, measurable(alg, Shape { way, bytes, burst })))
                        .collect();
                    let Ok(mut loads) = loads else { continue };
                    for (row, m) in rows.iter().zip(in_turns(&mut loads, cell, ROUNDS)) {
                        table.set(name, way, &row.driver, l, b, m.min_ns as f32);
                    }
                }
            }
        }
    }
    table
}

/// The shape with its length rounded up to whole blocks, which the mode takes.
#[must_use]
pub fn measurable(alg: &Alg, shape: Shape) -> Shape {
    let info = alg.info();
    let block = if matches!(info.kind, Kind::Skcipher | Kind::Aead) { info.block_len.max(1) } else { 1 };
    Shape { bytes: shape.bytes.next_multiple_of(block), ..shape }
}
