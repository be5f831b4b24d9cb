//! Handles of associations.

/// A handle: it never names another association than the one it was made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SaId {
    /// Names none: a slot's generations start at 1, and a slot that would come back to 0 is given up.
    pub const NONE: SaId = SaId { index: u32::MAX, generation: 0 };

    /// The slot that it has in its table, where no other one is at the same time.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}
