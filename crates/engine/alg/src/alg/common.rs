//! The parts that every AF_ALG socket has.

use super::wait::Change;
use crate::options::Options;
use crate::system::System;
use std::sync::Arc;

/// The parts that transforms and operations have in common.
pub(super) struct Common {
    pub(super) sys: Arc<System>,
    pub(super) options: Options,
    pub(super) change: Change,
}
