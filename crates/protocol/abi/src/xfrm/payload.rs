//! What every kind of attribute can do: be read and be written.

use crate::netlink::rules::Reject;

/// What an attribute holds.
pub(super) trait Payload: Sized {
    /// Reads it; bytes behind it are passed over, as the kernel does.
    fn read(attr: u16, bytes: &[u8]) -> Result<Self, Reject>;
    /// Its length in bytes.
    fn len(&self) -> usize;
    /// Writes it, without padding.
    fn write(&self, out: &mut Vec<u8>);
}
