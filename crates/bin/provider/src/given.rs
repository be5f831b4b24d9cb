//! Keys of ciphers and MACs as contexts are given them.

use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::home::{self, Owner};
use core::ffi::CStr;
use sealane_crypto::hash::HashState;
use sealane_crypto::skcipher::SkcipherTfm;
use sealane_crypto::{Alg, aead::AeadTfm};
use sealane_keeper_client::key::Name;
use sealane_keeper_client::uri::Uri;
use zeroize::Zeroizing;

/// The parameter that names a key of the keeper's.
pub(crate) const KEY_NAME: &CStr = c"sealane-key";

/// A key that a context is given.
#[derive(Clone, Copy)]
pub(crate) enum Given<'a> {
    /// Its bytes.
    Bytes(&'a [u8]),
    /// The name of a key of the keeper's.
    Named(&'a Uri),
    /// A key that the keeper computes with, under one algorithm or another.
    Kept(&'a Kept),
}

/// A key that the keeper computes with.
pub(crate) struct Kept {
    /// Its length in bytes.
    pub(crate) len: usize,
    /// Its references, each under the name of an algorithm of the core.
    pub(crate) references: Vec<(&'static str, Zeroizing<Vec<u8>>)>,
}

impl Given<'_> {
    /// Whether it has this length, as far as it can be seen here. The keeper looks at those that are named.
    pub(crate) fn check_len(self, len: usize) -> Done {
        match self {
            Given::Bytes(bytes) if bytes.len() != len => Err(Reason::InvalidKeyLength.into()),
            Given::Kept(kept) if kept.len != len => Err(Reason::InvalidKeyLength.into()),
            Given::Bytes(_) | Given::Named(_) | Given::Kept(_) => Ok(()),
        }
    }
}

/// The key that a list of parameters names: `NAME`, or a URI as of the store (`sealane://NAME?version=2`).
pub(crate) fn named(params: Params<'_>) -> Result<Option<Uri>, Failure> {
    let Some(name) = params.get(KEY_NAME) else { return Ok(None) };
    let name = name.text()?;
    match Name::new(name) {
        Some(name) => Ok(Some(Uri { name, version: 0 })),
        None => Ok(Some(Uri::parse(name)?)),
    }
}

/// A call has the bytes of a key, or the name of one: nobody could tell which is meant.
pub(crate) fn no_name_beside_bytes(params: Params<'_>) -> Done {
    match params.get(KEY_NAME) {
        Some(_) => Err(Failure::text(Reason::InvalidData, "sealane: a key and the name of one in one call".to_owned())),
        None => Ok(()),
    }
}

/// The bytes that the drivers of an algorithm take for a key.
enum Bytes<'a> {
    Key(&'a [u8]),
    /// The reference of a key that is computed with elsewhere.
    Reference(Zeroizing<Vec<u8>>),
}

/// A key of an algorithm, for the drivers of the place where it is computed with.
pub(crate) struct Ready<'a> {
    alg: &'a Alg,
    bytes: Bytes<'a>,
}

impl<'a> Ready<'a> {
    /// A key of this process.
    pub(crate) fn here(alg: &'a Alg, key: &'a [u8]) -> Self {
        Ready { alg, bytes: Bytes::Key(key) }
    }

    /// A key that the keeper computes with; `alg` takes references.
    pub(crate) fn kept(alg: &'a Alg, reference: Zeroizing<Vec<u8>>) -> Self {
        Ready { alg, bytes: Bytes::Reference(reference) }
    }

    /// Whether it is computed with elsewhere.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self.bytes, Bytes::Reference(_))
    }

    /// The bytes of the key, or of its reference.
    pub(crate) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Key(key) => key,
            Bytes::Reference(reference) => reference,
        }
    }

    /// The process that can use what is made of it.
    pub(crate) fn owner(&self) -> Owner {
        if self.is_kept() { Owner::of_kept() } else { Owner::this_process() }
    }

    /// Makes something of it. Of one that is computed with elsewhere there is no secret, and guarded memory would be open for as long as a
    /// request takes.
    pub(crate) fn made<T>(&self, make: impl FnOnce(&'a Alg, &[u8]) -> T) -> T {
        let make = || make(self.alg, self.bytes());
        if self.is_kept() { sealane_guarded::unguarded(make) } else { make() }
    }

    pub(crate) fn skcipher(&self) -> Result<SkcipherTfm, Failure> {
        self.made(Alg::skcipher).map_err(home::refused)
    }

    pub(crate) fn aead(&self) -> Result<AeadTfm, Failure> {
        self.made(Alg::aead).map_err(home::refused)
    }

    /// The state of a MAC before the first byte.
    pub(crate) fn started(&self) -> Result<Box<dyn HashState>, Failure> {
        let start = |alg: &Alg, key: &[u8]| {
            let tfm = alg.mac(key).map_err(home::refused)?;
            tfm.try_start().map_err(|error| home::failed(error, Failure::SILENT))
        };
        self.made(start)
    }
}
