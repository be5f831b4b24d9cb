//! Message authentication codes, and the hashes whose key is optional.

mod beyond;
mod blake2;
mod cbc_mac;
mod checksum;
mod driver;
mod hmac;

use sealane_crypto::registry::Row;

pub(super) use hmac::Key as HmacKey;

pub(super) fn rows() -> Vec<Row> {
    let mut rows = hmac::rows();
    rows.extend(cbc_mac::rows());
    rows.extend(blake2::rows());
    rows.extend(checksum::rows());
    rows.extend(beyond::rows());
    rows
}
