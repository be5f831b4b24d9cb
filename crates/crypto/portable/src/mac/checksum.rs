//! Checksums that Linux offers as hashes: CRC-32C, CRC-32 and XXH64. Their optional key is the seed.

use super::driver::{self, Mac};
use sealane_crypto::error::KeyError;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::registry::Row;
use sealane_crypto::{AlgInfo, KeyUse, Lengths};
use xxhash_rust::xxh64::Xxh64;

/// Reads an optional key of `N` bytes.
fn seed<const N: usize>(key: &[u8]) -> Result<Option<[u8; N]>, KeyError> {
    if key.is_empty() {
        return Ok(None);
    }
    key.try_into().map(Some).map_err(|_| KeyError::Length)
}

/// CRC-32C. The seed is the initial register in little endian, all ones without a key; the result is the inverted
/// register in little endian (RFC 3720).
struct Crc32c;

impl Mac for Crc32c {
    type Key = u32;
    type Running = u32;

    fn prepare(key: &[u8]) -> Result<u32, KeyError> {
        Ok(seed(key)?.map_or(!0, u32::from_le_bytes))
    }

    fn begin(key: &u32) -> u32 {
        // The crate inverts the register before and after.
        !key
    }

    fn update(_: &u32, running: &mut u32, data: &[u8]) {
        *running = crc32c::crc32c_append(*running, data);
    }

    fn end(_: &u32, running: u32, tag: &mut [u8; MAX_TAG_LEN]) {
        tag[..4].copy_from_slice(&running.to_le_bytes());
    }
}

/// CRC-32 with the polynomial of Ethernet. Without a key the register starts with zeros; it is not inverted at the end.
struct Crc32;

impl Mac for Crc32 {
    type Key = u32;
    type Running = u32;

    fn prepare(key: &[u8]) -> Result<u32, KeyError> {
        Ok(seed(key)?.map_or(0, u32::from_le_bytes))
    }

    fn begin(key: &u32) -> u32 {
        *key
    }

    fn update(_: &u32, running: &mut u32, data: &[u8]) {
        // The crate inverts the register before and after.
        let mut crc = crc32fast::Hasher::new_with_initial(!*running);
        crc.update(data);
        *running = !crc.finalize();
    }

    fn end(_: &u32, running: u32, tag: &mut [u8; MAX_TAG_LEN]) {
        tag[..4].copy_from_slice(&running.to_le_bytes());
    }
}

/// XXH64. Seed and result are in little endian.
struct Xxhash64;

impl Mac for Xxhash64 {
    type Key = u64;
    type Running = Xxh64;

    fn prepare(key: &[u8]) -> Result<u64, KeyError> {
        Ok(seed(key)?.map_or(0, u64::from_le_bytes))
    }

    fn begin(key: &u64) -> Xxh64 {
        Xxh64::new(*key)
    }

    fn update(_: &u64, running: &mut Xxh64, data: &[u8]) {
        running.update(data);
    }

    fn end(_: &u64, running: Xxh64, tag: &mut [u8; MAX_TAG_LEN]) {
        tag[..8].copy_from_slice(&running.digest().to_le_bytes());
    }
}

fn row<M: Mac>(name: &str, block_len: usize, digest_len: usize, key_lens: Lengths) -> Row {
    driver::row::<M>(AlgInfo { key_use: KeyUse::Optional, ..AlgInfo::mac(name, block_len, digest_len, key_lens) })
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row::<Crc32c>("crc32c", 1, 4, Lengths::Of(&[4])),
        row::<Crc32>("crc32", 1, 4, Lengths::Of(&[4])),
        row::<Xxhash64>("xxhash64", 32, 8, Lengths::Of(&[8])),
    ]
}
