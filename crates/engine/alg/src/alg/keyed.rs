//! Operations that need their transform's key.

/// The state of an operation that may have been accepted before its transform had a key.
pub(super) struct Keyed<T> {
    /// Accepted before there was a key, and not used since: the kernel's `nokey_refcnt`.
    pub(super) nokey: bool,
    pub(super) op: T,
}
