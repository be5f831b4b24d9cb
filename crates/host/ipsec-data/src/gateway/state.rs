//! The state of a served interface, as it is shown.

use sealane_abi::admin::ipsec::{XdpMemory, XdpMode};

/// The state of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) mode: XdpMode,
    pub(super) memory: XdpMemory,
    pub(super) queues: u32,
    /// The number of threads that serve it.
    pub(super) threads: usize,
}
