//! RSA as a cipher: the keeper decrypts, and whoever has the public key encrypts.

use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Kind as Type, Known, Params, Requests, Word};
use crate::instance::Instance;
use crate::key::Key;
use crate::sign::Hash;
use core::ffi::CStr;
use sealane_keeper_client::message::{Answer, Operation};
use sealane_pkey::{Digest, MAX_LABEL_LEN, PREMASTER_LEN, Padding};
use zeroize::Zeroizing;

/// The paddings with their numbers and names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Pkcs1,
    Oaep,
    Tls,
}

impl Mode {
    fn of(word: Word<'_>) -> Result<Self, Failure> {
        match word {
            Word::Number(1) | Word::Text("pkcs1") => Ok(Mode::Pkcs1),
            // OpenSSL has kept the second spelling since it was a mistake.
            Word::Number(4) | Word::Text("oaep" | "oeap") => Ok(Mode::Oaep),
            Word::Number(7) => Ok(Mode::Tls),
            _ => Err(Failure::text(
                Reason::IllegalPaddingMode,
                "sealane: the keeper decrypts the paddings pkcs1 and oaep, and TLS's".to_owned(),
            )),
        }
    }

    fn word(self) -> (i32, &'static CStr) {
        match self {
            Mode::Pkcs1 => (1, c"pkcs1"),
            Mode::Oaep => (4, c"oaep"),
            Mode::Tls => (7, c""),
        }
    }
}

/// A text that is decrypted or encrypted.
#[derive(Clone)]
pub(crate) struct AsymCipher {
    key: Option<Key>,
    is_decrypting: bool,
    mode: Mode,
    digest: Digest,
    mgf1: Option<Digest>,
    label: Vec<u8>,
    client_version: u16,
    negotiated: u16,
}

/// The values that can be set.
pub(crate) static SETTABLE: [Known; 9] = [
    Known::new(c"digest", Type::Text),
    Known::new(c"pad-mode", Type::Text),
    Known::new(c"mgf1-digest", Type::Text),
    Known::new(c"mgf1-digest-props", Type::Text),
    Known::new(c"oaep-label", Type::Octets),
    Known::new(c"tls-client-version", Type::Uint),
    Known::new(c"tls-negotiated-version", Type::Uint),
    Known::new(c"implicit-rejection", Type::Uint),
    Known::END,
];

/// The values that can be asked for.
pub(crate) static GETTABLE: [Known; 8] = [
    Known::new(c"digest", Type::Text),
    Known::new(c"pad-mode", Type::Text),
    Known::new(c"mgf1-digest", Type::Text),
    Known::new(c"oaep-label", Type::OctetsPointer),
    Known::new(c"tls-client-version", Type::Uint),
    Known::new(c"tls-negotiated-version", Type::Uint),
    Known::new(c"implicit-rejection", Type::Uint),
    Known::END,
];

impl AsymCipher {
    pub(crate) fn new() -> Self {
        AsymCipher {
            key: None,
            is_decrypting: false,
            mode: Mode::Pkcs1,
            digest: Digest::Sha1,
            mgf1: None,
            label: Vec::new(),
            client_version: 0,
            negotiated: 0,
        }
    }

    pub(crate) fn start(&mut self, key: Option<&Key>, is_decrypting: bool, params: Params<'_>) -> Done {
        let key = key.or(self.key.as_ref()).ok_or(Reason::NoKeySet)?.clone();
        if is_decrypting {
            key.home()?;
        }
        key.public()?;
        *self = AsymCipher { key: Some(key), is_decrypting, ..Self::new() };
        self.set(params)
    }

    /// Takes what is passed in.
    pub(crate) fn set(&mut self, params: Params<'_>) -> Done {
        let digest_of = |key: &CStr| params.get(key).map(|name| Hash::named(name.text()?)?.digest()).transpose();
        let version_of = |key: &CStr| {
            let version = params.get(key).map(|version| version.uint()).transpose()?;
            version.map(|v| u16::try_from(v).map_err(|_| Failure::new(Reason::BadTlsClientVersion))).transpose()
        };
        if let Some(digest) = digest_of(c"digest")? {
            self.digest = digest;
        }
        if let Some(mode) = params.get(c"pad-mode") {
            self.mode = Mode::of(mode.word()?)?;
        }
        self.mgf1 = digest_of(c"mgf1-digest")?.or(self.mgf1);
        if let Some(label) = params.get(c"oaep-label") {
            let label = label.octets()?.unwrap_or_default();
            if label.len() > MAX_LABEL_LEN {
                let text = format!("sealane: a label has {MAX_LABEL_LEN} bytes at most");
                return Err(Failure::text(Reason::BadLength, text));
            }
            self.label = label.to_vec();
        }
        self.client_version = version_of(c"tls-client-version")?.unwrap_or(self.client_version);
        self.negotiated = version_of(c"tls-negotiated-version")?.unwrap_or(self.negotiated);
        match params.get(c"implicit-rejection").map(|on| on.uint()).transpose()? {
            // The keeper would tell more than is good for the key.
            Some(0) => Err(Failure::text(
                Reason::NotSupported,
                "sealane: the keeper always rejects wrong paddings implicitly".to_owned(),
            )),
            _ => Ok(()),
        }
    }

    /// Answers what is asked for.
    pub(crate) fn answer(&self, asked: &mut Requests<'_>) -> Done {
        let (number, word) = self.mode.word();
        asked.answer(c"pad-mode", |p| p.word(number, word))?;
        asked.answer(c"digest", |p| p.text(Hash::Of(self.digest).name()))?;
        asked.answer(c"mgf1-digest", |p| p.text(Hash::Of(self.mgf1.unwrap_or(self.digest)).name()))?;
        let label = Some(&self.label[..]).filter(|label| !label.is_empty());
        asked.answer(c"oaep-label", |p| p.octets_address(label, self.label.len()))?;
        asked.answer(c"tls-client-version", |p| p.uint(self.client_version.into()))?;
        asked.answer(c"tls-negotiated-version", |p| p.uint(self.negotiated.into()))?;
        asked.answer(c"implicit-rejection", |p| p.uint(1))
    }

    /// The room that the longest text needs, in bytes.
    pub(crate) fn len(&self) -> Result<usize, Failure> {
        let key = self.key.as_ref().ok_or(Reason::NoKeySet)?.public()?;
        Ok(if self.mode == Mode::Tls && self.is_decrypting { PREMASTER_LEN } else { key.signature_len() })
    }

    fn padding(&self) -> Result<Padding, Failure> {
        Ok(match self.mode {
            Mode::Pkcs1 => Padding::Pkcs1,
            Mode::Oaep => {
                Padding::Oaep { digest: self.digest, mgf1: self.mgf1.unwrap_or(self.digest), label: self.label.clone() }
            }
            Mode::Tls if self.client_version == 0 => return Err(Reason::BadTlsClientVersion.into()),
            Mode::Tls => Padding::Tls { client_version: self.client_version, negotiated: self.negotiated },
        })
    }

    /// Asks the keeper to decrypt.
    pub(crate) fn decrypt(&self, instance: &Instance, text: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
        if !self.is_decrypting {
            return Err(Failure::SILENT);
        }
        let key = self.key.as_ref().ok_or(Reason::NoKeySet)?;
        let home = key.home()?;
        // A shorter one counts as if zeros came before it.
        if text.is_empty() || text.len() > key.public()?.signature_len() {
            return Err(Reason::FailedToDecrypt.into());
        }
        let (name, version) = (home.name.clone(), home.version);
        let asked = Operation::Decrypt { name, version, padding: self.padding()?, text: text.to_vec() };
        match instance.keeper().ask(asked)? {
            Answer::Opened(opened) if opened.len() <= self.len()? => Ok(opened),
            _ => Err(Reason::KeeperWrong.into()),
        }
    }

    /// Encrypts by the public key.
    pub(crate) fn encrypt(&self, text: &[u8]) -> Result<Vec<u8>, Failure> {
        if self.is_decrypting {
            return Err(Failure::SILENT);
        }
        let public = self.key.as_ref().ok_or(Reason::NoKeySet)?.public()?;
        public.key.encrypt(&self.padding()?, text).ok_or_else(|| Reason::BadLength.into())
    }
}
