//! The parts of a composition, and the row made of them.

use crate::choice::{MeasuredDirection, STREAM_BYTES};
use crate::info::{AlgInfo, Kind, Lengths};
use crate::registry::{Alg, Driver, Registry, Row};
use crate::template::Name;

/// The module name of composed rows.
pub const MODULE: &str = "template";

/// The most operations of a burst that a composition hands to its parts at a time.
pub(super) const CHUNK: usize = 32;

/// The longest IV of a cipher here (XChaCha, Adiantum), in bytes.
pub(super) const MAX_IV_LEN: usize = 32;

/// A part of a composition.
pub(super) fn part(registry: &Registry, kind: Kind, name: &Name<'_>) -> Option<Alg> {
    registry.lookup(kind, name.text).ok()
}

/// The part in `template(part)`.
pub(super) fn only_part(registry: &Registry, kind: Kind, name: &Name<'_>, template: &str) -> Option<Alg> {
    if name.head != template {
        return None;
    }
    part(registry, kind, name.only_arg()?)
}

/// The driver name of a part: that of the driver that serves long texts.
fn driver_of(alg: &Alg) -> &str {
    &alg.row_for(MeasuredDirection::Forward, STREAM_BYTES, 1).driver
}

/// Makes a row named after its parts, and sets `info.name`.
pub(super) fn row(template: &str, parts: &[&Alg], info: AlgInfo, driver: Driver) -> Row {
    let join = |names: Vec<&str>| format!("{template}({})", names.join(","));
    let name = join(parts.iter().map(|alg| &*alg.info().name).collect());
    let driver_name = join(parts.iter().map(|alg| driver_of(alg)).collect());
    let priority = parts.iter().map(|alg| alg.rows()[0].priority).max().unwrap_or(0);
    let legacy = parts.iter().any(|alg| alg.info().legacy);
    Row::new(AlgInfo { name, legacy, ..info }, &driver_name, MODULE, priority, driver)
}

/// Key lengths of a part with `salt` more bytes.
pub(super) fn salted(lens: Lengths, salt: usize) -> Lengths {
    match (lens, salt) {
        (Lengths::Of([16, 24, 32]), 3) => Lengths::Of(&[19, 27, 35]),
        (Lengths::Of([16, 24, 32]), 4) => Lengths::Of(&[20, 28, 36]),
        (lens, salt) => Lengths::Range(lens.min() + salt, lens.max().saturating_add(salt)),
    }
}
