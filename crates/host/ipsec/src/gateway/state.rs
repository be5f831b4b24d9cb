//! The state of a served interface, as it is shown.

/// The state of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct State {
    pub(super) name: String,
    pub(super) native: bool,
    pub(super) zero_copy: bool,
    pub(super) queues: u32,
    /// The number of threads that serve it.
    pub(super) threads: usize,
}

impl State {
    /// Its mode, in a word.
    pub(super) fn how(&self) -> String {
        let mode = if self.native { "native" } else { "generic" };
        let copying = if self.zero_copy { "zero-copy" } else { "copied" };
        format!("gateway-{mode}-{copying}")
    }
}
