//! The row of a generator.

use crate::row::{MODULE, PRIORITY};
use sealane_crypto::AlgInfo;
use sealane_crypto::registry::{Driver, Row};
use sealane_crypto::rng::RngDriver;
use std::sync::Arc;

/// Makes a row under the kernel's own driver name, because programs bind to it.
pub(super) fn row(name: &str, driver: &str, imp: impl RngDriver + 'static) -> Row {
    Row::new(AlgInfo::rng(name), driver, MODULE, PRIORITY, Driver::Rng(Arc::new(imp)))
}
