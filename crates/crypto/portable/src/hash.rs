//! Plain hashes.

use super::row::{MODULE, PRIORITY};
use digest::block_api::BlockSizeUser;
use digest::{Digest, FixedOutputReset, Output};
use sealane_crypto::AlgInfo;
use sealane_crypto::error::{OpError, Status};
use sealane_crypto::hash::{HashDriver, HashOp, HashState};
use sealane_crypto::registry::{Driver, Row};
use std::marker::PhantomData;
use std::sync::Arc;

/// The common traits of RustCrypto's hashes.
pub(super) trait Hash:
    Digest + FixedOutputReset + BlockSizeUser + Clone + Default + Send + Sync + 'static
{
}

impl<D: Digest + FixedOutputReset + BlockSizeUser + Clone + Default + Send + Sync + 'static> Hash for D {}

/// A driver for hash `D`, with the length of the digest, which may be shorter than that of `D`.
struct DigestDriver<D>(PhantomData<fn() -> D>, usize);

struct DigestState<D>(D);

impl<D: Hash> HashState for DigestState<D> {
    fn update(&mut self, data: &[u8]) {
        Digest::update(&mut self.0, data);
    }

    fn finish(&mut self, out: &mut [u8]) -> Status {
        let mut digest = Output::<D>::default();
        Digest::finalize_into_reset(&mut self.0, &mut digest);
        out.copy_from_slice(&digest[..out.len()]);
        Ok(())
    }

    fn reset(&mut self) {
        self.0 = D::default();
    }

    fn fork(&self) -> Box<dyn HashState> {
        Box::new(DigestState(self.0.clone()))
    }
}

impl<D: Hash> HashDriver for DigestDriver<D> {
    fn start(&self) -> Box<dyn HashState> {
        Box::new(DigestState(D::default()))
    }

    fn burst(&self, ops: &mut [HashOp<'_>]) {
        for op in ops {
            let mut hash = D::default();
            for piece in op.data {
                Digest::update(&mut hash, piece);
            }
            let mut digest = Output::<D>::default();
            Digest::finalize_into(hash, &mut digest);
            op.status = match digest[..self.1].get(..op.digest.len()) {
                Some(digest) => {
                    op.digest.copy_from_slice(digest);
                    Ok(())
                }
                None => Err(OpError::TagLen),
            };
        }
    }
}

/// Calls `$row::<Type>(name, legacy)` for each hash that HMAC also uses.
macro_rules! each_hash {
    ($row:ident) => {
        vec![
            $row::<md4::Md4>("md4", true),
            $row::<md5::Md5>("md5", true),
            $row::<sha1::Sha1>("sha1", false),
            $row::<sha2::Sha224>("sha224", false),
            $row::<sha2::Sha256>("sha256", false),
            $row::<sha2::Sha384>("sha384", false),
            $row::<sha2::Sha512>("sha512", false),
            $row::<sha3::Sha3_224>("sha3-224", false),
            $row::<sha3::Sha3_256>("sha3-256", false),
            $row::<sha3::Sha3_384>("sha3-384", false),
            $row::<sha3::Sha3_512>("sha3-512", false),
            $row::<ripemd::Ripemd160>("rmd160", false),
            $row::<sm3::Sm3>("sm3", false),
            $row::<streebog::Streebog256>("streebog256", false),
            $row::<streebog::Streebog512>("streebog512", false),
            $row::<whirlpool::Whirlpool>("wp512", false),
        ]
    };
}
pub(super) use each_hash;

fn row<D: Hash>(name: &str, legacy: bool) -> Row {
    let mut row = truncated::<D>(name, <D as Digest>::output_size());
    row.info.legacy = legacy;
    row
}

/// The first `digest_len` bytes of `D`.
fn truncated<D: Hash>(name: &str, digest_len: usize) -> Row {
    let info = AlgInfo::hash(name, <D as BlockSizeUser>::block_size(), digest_len);
    let imp = Driver::Hash(Arc::new(DigestDriver::<D>(PhantomData, digest_len)));
    Row::new(info, &format!("{name}-{MODULE}"), MODULE, PRIORITY, imp)
}

/// The rows of the hashes without a key. BLAKE2 and the checksums, whose key is optional, are in `mac`.
pub(super) fn rows() -> Vec<Row> {
    let mut rows = each_hash!(row);
    rows.push(truncated::<whirlpool::Whirlpool>("wp384", 48));
    rows.push(truncated::<whirlpool::Whirlpool>("wp256", 32));
    rows
}
