//! The trait of attribute payloads: reading and writing.

use crate::netlink::rules::Reject;

/// The payload of an attribute.
pub(super) trait Payload: Sized {
    /// Reads it; like the kernel, this ignores bytes behind it.
    fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject>;
    /// Its length in bytes.
    fn len(&self) -> usize;
    /// Writes it, without padding.
    fn write(&self, out: &mut Vec<u8>);
}
