//! Portable mac drivers.

use crate::registry::Row;

pub(super) fn rows() -> Vec<Row> {
    Vec::new()
}
