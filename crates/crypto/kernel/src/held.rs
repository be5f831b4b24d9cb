//! Keys as they were set.

use sealane_crypto::KeyError;
use sealane_guarded::Held;

/// The bytes of a key, for the sockets that are opened for it later.
pub(crate) fn held(key: &[u8]) -> Result<Held<[u8]>, KeyError> {
    Held::new(Box::from(key)).map_err(|_| KeyError::Driver)
}
