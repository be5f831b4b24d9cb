//! Message authentication codes.

mod hmac;

use crate::registry::Row;

pub(super) fn rows() -> Vec<Row> {
    hmac::rows()
}
