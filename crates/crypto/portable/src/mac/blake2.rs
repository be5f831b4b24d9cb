//! BLAKE2b and BLAKE2s (RFC 7693): hashes whose key is optional.

use super::driver::{self, Mac};
use blake2::{Blake2bMac, Blake2sMac};
use digest::typenum::{U16, U20, U28, U32, U48, U64};
use digest::{FixedOutput, OutputSizeUser, Update};
use sealane_crypto::error::KeyError;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::registry::Row;
use sealane_crypto::{AlgInfo, KeyUse, Lengths};
use std::marker::PhantomData;

/// The two families, generic over their output.
trait Blake2: FixedOutput + Update + Clone + Send + Sync + 'static {
    /// Longest key in bytes; the block is twice as long.
    const MAX_KEY_LEN: usize;
    /// [`AlgInfo::empty_key`].
    const EMPTY_KEY: bool;
    fn keyed(key: Option<&[u8]>) -> Option<Self>;
}

macro_rules! blake2 {
    ($family:ident, $max_key_len:literal, $empty_key:literal, $($out:ty),*) => {$(
        impl Blake2 for $family<$out> {
            const MAX_KEY_LEN: usize = $max_key_len;
            const EMPTY_KEY: bool = $empty_key;

            fn keyed(key: Option<&[u8]>) -> Option<Self> {
                Self::new_with_salt_and_personal(key, &[], &[]).ok()
            }
        }
    )*};
}

blake2!(Blake2bMac, 64, true, U20, U32, U48, U64);
blake2!(Blake2sMac, 32, false, U16, U20, U28, U32);

/// A driver whose prepared key is the state that has absorbed the key.
struct Keyed<D>(PhantomData<D>);

impl<D: Blake2> Mac for Keyed<D> {
    type Key = D;
    type Running = D;

    fn prepare(key: &[u8]) -> Result<D, KeyError> {
        // The crate accepts keys up to a whole block, the algorithm only up to half a block.
        if key.len() > D::MAX_KEY_LEN {
            return Err(KeyError::Length);
        }
        D::keyed((!key.is_empty()).then_some(key)).ok_or(KeyError::Length)
    }

    fn begin(key: &D) -> D {
        key.clone()
    }

    fn update(_: &D, running: &mut D, data: &[u8]) {
        running.update(data);
    }

    fn end(_: &D, running: D, tag: &mut [u8; MAX_TAG_LEN]) {
        let out = running.finalize_fixed();
        tag[..out.len()].copy_from_slice(&out);
    }
}

fn row<D: Blake2>(name: &str) -> Row {
    let keys = Lengths::Range(1, D::MAX_KEY_LEN);
    let info = AlgInfo::mac(name, 2 * D::MAX_KEY_LEN, <D as OutputSizeUser>::output_size(), keys);
    driver::row::<Keyed<D>>(AlgInfo { key_use: KeyUse::Optional, empty_key: D::EMPTY_KEY, ..info })
}

pub(super) fn rows() -> Vec<Row> {
    vec![
        row::<Blake2bMac<U20>>("blake2b-160"),
        row::<Blake2bMac<U32>>("blake2b-256"),
        row::<Blake2bMac<U48>>("blake2b-384"),
        row::<Blake2bMac<U64>>("blake2b-512"),
        // Linux had these names from 5.6 on for some releases.
        row::<Blake2sMac<U16>>("blake2s-128"),
        row::<Blake2sMac<U20>>("blake2s-160"),
        row::<Blake2sMac<U28>>("blake2s-224"),
        row::<Blake2sMac<U32>>("blake2s-256"),
    ]
}
