//! Types of algorithms, as arguments.

use clap::ValueEnum;
use sealane_crypto::Kind;

/// A type of algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KindArg {
    Hash,
    NonceMac,
    Skcipher,
    Aead,
    Rng,
}

impl From<KindArg> for Kind {
    fn from(kind: KindArg) -> Kind {
        match kind {
            KindArg::Hash => Kind::Hash,
            KindArg::NonceMac => Kind::NonceMac,
            KindArg::Skcipher => Kind::Skcipher,
            KindArg::Aead => Kind::Aead,
            KindArg::Rng => Kind::Rng,
        }
    }
}
