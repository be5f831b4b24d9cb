//! A MAC as OpenSSL's interface sees it.

use crate::failure::{Done, Failure};
use crate::ffi::Params;
use crate::given::Given;
use crate::home::Owner;
use crate::instance::Instance;

/// A context of a MAC.
pub(crate) trait Mac: Send {
    /// Takes parameters.
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done;
    /// Takes a key for the messages that follow.
    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done;
    /// Starts a message, under `key` or else the key of before.
    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done;
    /// The bytes that the caller of [`Self::update`] has, if it says `len`.
    fn reach(&self, len: usize) -> usize {
        len
    }
    /// Adds the first `len` bytes of `data` to the message; the others are readable, and not part of it.
    fn update(&mut self, data: &[u8], len: usize) -> Done;
    /// The length of the tag in bytes, 0 where it is not known yet.
    fn len(&self) -> usize;
    /// Bytes that are absorbed at a time.
    fn block_len(&self) -> usize;
    /// Ends the message; `tag` has [`Self::len`] bytes.
    fn finish(&mut self, tag: &mut [u8]) -> Done;
    /// The process of the key, if there is one.
    fn owner(&self) -> Option<Owner>;
    /// A second context that continues from here.
    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure>;
}
