//! Handles of associations.

/// The maximum number of transformations of one packet (`XFRM_MAX_DEPTH`).
pub const MAX_DEPTH: usize = 6;

/// The handle of an association. It never refers to another one, even after deletion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SaId {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

impl SaId {
    /// No association: a slot's generations start at 1, and a slot is retired before its generation would return to 0.
    pub const NONE: SaId = SaId { index: u32::MAX, generation: 0 };

    /// Its slot in the table; no two associations have the same one at the same time.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }
}
