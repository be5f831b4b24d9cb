//! Opaque keys of ciphers and MACs (`EVP_SKEY`, OpenSSL 3.5 and later): of the program's, in their home, and of the keeper's by name.

use crate::failure::{Failure, Reason};
use crate::ffi::{Kind, Known, Params};
use crate::given::{Given, KEY_NAME, Kept, named, no_name_beside_bytes};
use crate::home::{KeyBytes, Secret};
use crate::instance::{AlgId, Instance};
use core::ffi::{CStr, c_int};
use sealane_crypto::rng::Entropy;
use sealane_drivers::SystemEntropy;
use sealane_keeper_client::key::Kind as KeeperKind;
use sealane_keeper_client::message::{Answer, Operation};
use sealane_keeper_client::uri::Uri;
use std::ffi::CString;
use zeroize::Zeroizing;

/// The longest key in bytes.
const MAX_LEN: usize = 1024;

/// The parameters of a key: its bytes, and the length of one to make.
pub(crate) const RAW_BYTES: &CStr = c"raw-bytes";
const KEY_LENGTH: &CStr = c"key-length";

/// The type of opaque keys.
pub(crate) struct OpaqueRow {
    pub(crate) names: &'static CStr,
    /// Lengths of keys in bytes; none: any.
    lens: &'static [usize],
    /// The algorithms for which the keeper gets a key.
    algs: &'static [AlgId],
}

/// The types of opaque keys, named as the default provider's.
pub(crate) static OPAQUES: [OpaqueRow; 2] = [
    OpaqueRow {
        names: c"AES",
        lens: &[16, 24, 32],
        algs: &[
            AlgId::of("ecb(aes)"),
            AlgId::of("cbc(aes)"),
            AlgId::of("ctr(aes)"),
            AlgId::of("xts(aes)"),
            AlgId::of("gcm(aes)"),
            AlgId::of("ccm(aes)"),
            AlgId::of("cmac(aes)"),
        ],
    },
    OpaqueRow {
        names: c"GENERIC-SECRET",
        lens: &[],
        algs: &[
            AlgId::of("hmac(md5)"),
            AlgId::of("hmac(sha1)"),
            AlgId::of("hmac(sha224)"),
            AlgId::of("hmac(sha256)"),
            AlgId::of("hmac(sha384)"),
            AlgId::of("hmac(sha512)"),
            AlgId::of("hmac(sha3-224)"),
            AlgId::of("hmac(sha3-256)"),
            AlgId::of("hmac(sha3-384)"),
            AlgId::of("hmac(sha3-512)"),
            AlgId::of("rfc7539(chacha20,poly1305)"),
        ],
    },
];

/// The parameters by which a key comes in.
pub(crate) static IMPORTED: [Known; 3] =
    [Known::new(RAW_BYTES, Kind::Octets), Known::new(KEY_NAME, Kind::Text), Known::END];

/// The parameters by which a key is made.
pub(crate) static GENERATED: [Known; 2] = [Known::new(KEY_LENGTH, Kind::Size), Known::END];

/// The parts of a key that a caller means (`OSSL_SKEYMGMT_SELECT_SECRET_KEY`).
const SECRET_KEY: c_int = 2;

enum Place {
    Here(Secret<KeyBytes<MAX_LEN>>),
    Kept(Kept),
    /// A key of the keeper's, and its URI for those who ask.
    Named(Uri, CString),
}

/// An opaque key.
pub(crate) struct Opaque(Place);

impl Opaque {
    /// Takes a key in, by its bytes or its name.
    pub(crate) fn import(
        row: &OpaqueRow,
        instance: &Instance,
        selection: c_int,
        params: Params<'_>,
    ) -> Result<Self, Failure> {
        if selection & SECRET_KEY == 0 {
            return Err(Failure::SILENT);
        }
        if let Some(bytes) = params.get(RAW_BYTES) {
            no_name_beside_bytes(params)?;
            return Self::of_bytes(row, instance, bytes.octets()?.unwrap_or_default());
        }
        Self::named(instance, &named(params)?.ok_or(Failure::SILENT)?)
    }

    /// Makes a random key. It is in this process while it is made.
    pub(crate) fn generate(row: &OpaqueRow, instance: &Instance, params: Params<'_>) -> Result<Self, Failure> {
        let len = params.get(KEY_LENGTH).map(|len| len.size()).transpose()?.unwrap_or(32);
        if len > MAX_LEN {
            return Err(Reason::InvalidKeyLength.into());
        }
        let mut bytes = Zeroizing::new(vec![0; len]);
        SystemEntropy.fill(&mut bytes).map_err(|_| Failure::new(Reason::FailedToGenerateKey))?;
        Self::of_bytes(row, instance, &bytes)
    }

    fn of_bytes(row: &OpaqueRow, instance: &Instance, bytes: &[u8]) -> Result<Self, Failure> {
        let is_right =
            if row.lens.is_empty() { (1..=MAX_LEN).contains(&bytes.len()) } else { row.lens.contains(&bytes.len()) };
        if !is_right {
            return Err(Reason::InvalidKeyLength.into());
        }
        let place = match instance.kept_for(bytes, row.algs)? {
            Some(kept) => Place::Kept(kept),
            None => Place::Here(Secret::new(KeyBytes::boxed(bytes))?),
        };
        Ok(Opaque(place))
    }

    /// A key of the keeper's. The version stays the same from then on; whether it is of an algorithm shows where it is used.
    fn named(instance: &Instance, uri: &Uri) -> Result<Self, Failure> {
        let Answer::Keys(keys, _) = instance.keeper().ask(Operation::Show { name: uri.name.clone() })? else {
            return Err(Reason::KeeperWrong.into());
        };
        let info = keys.first().filter(|info| info.name == uri.name).ok_or(Failure::new(Reason::KeeperWrong))?;
        let wanted = match uri.version {
            0 => info.versions.last(),
            number => info.versions.iter().find(|version| version.number == number),
        };
        let version = wanted.filter(|version| version.revoked_s == 0 && info.spec.kind != KeeperKind::Private);
        let Some(version) = version else {
            let why = format!("sealane: {uri} is no symmetric key, or it is revoked");
            return Err(Failure::text(Reason::NoSuchKey, why));
        };
        let uri = Uri { name: uri.name.clone(), version: version.number };
        let id = CString::new(uri.to_string()).map_err(|_| Reason::Internal)?;
        Ok(Opaque(Place::Named(uri, id)))
    }

    /// Gives a context the key.
    pub(crate) fn give<R>(&self, f: impl FnOnce(Given<'_>) -> Result<R, Failure>) -> Result<R, Failure> {
        match &self.0 {
            Place::Here(bytes) => bytes.with(|bytes| f(Given::Bytes(bytes.get())))?,
            Place::Kept(kept) => f(Given::Kept(kept)),
            Place::Named(uri, _) => f(Given::Named(uri)),
        }
    }

    /// The URI of a key of the keeper's.
    pub(crate) fn id(&self) -> Option<&CStr> {
        match &self.0 {
            Place::Named(_, id) => Some(id),
            Place::Here(_) | Place::Kept(_) => None,
        }
    }

    /// Runs `f` on the bytes of a key that lies where the program could read it, too. The bytes stay where they are as long as the key.
    pub(crate) fn export<R>(&self, selection: c_int, f: impl FnOnce(&[u8]) -> R) -> Result<R, Failure> {
        if selection & SECRET_KEY == 0 {
            return Err(Failure::SILENT);
        }
        match &self.0 {
            Place::Here(bytes) if !bytes.is_guarded() => bytes.with(|bytes| f(bytes.get())),
            Place::Here(_) | Place::Kept(_) | Place::Named(..) => {
                let why = "sealane: the bytes of this key are not told";
                Err(Failure::text(Reason::NotSupported, why.to_owned()))
            }
        }
    }
}
