//! GMAC (SP 800-38D): the tag of GCM over a message that is not encrypted.

use super::context::Mac;
use crate::cipher::MAX_GCM_IV_LEN;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::{AlgId, Instance, is_named};
use crate::names;
use core::ffi::CStr;
use sealane_crypto::aead::AeadStream;

pub(super) const TAG_LEN: usize = 16;

/// The ciphers that GMAC takes, under their names in GCM mode, and the lengths of their keys in bytes.
static CIPHERS: [(&CStr, usize); 3] = [(names::AES_128_GCM, 16), (names::AES_192_GCM, 24), (names::AES_256_GCM, 32)];

/// The place of an IV in its life: it serves one message.
#[derive(Clone)]
enum Iv {
    Missing,
    Waiting(Vec<u8>),
    Used(Vec<u8>),
    Spent,
}

struct Gmac {
    key_len: Option<usize>,
    /// The key, with the message under the IV in use.
    stream: Option<Box<dyn AeadStream>>,
    /// Whether the key is computed with elsewhere.
    is_kept: bool,
    owner: Owner,
    iv: Iv,
}

pub(super) fn new() -> Box<dyn Mac> {
    Box::new(Gmac { key_len: None, stream: None, is_kept: false, owner: Owner::this_process(), iv: Iv::Missing })
}

impl Gmac {
    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        const GCM: AlgId = AlgId::of("gcm(aes)");
        let len = self.key_len.ok_or_else(|| Failure::from(Reason::InvalidKeyLength))?;
        key.check_len(len)?;
        // If the keeper gives none there is none, so that no caller goes on under the old key.
        let key = instance.key(GCM, key, Some(len)).inspect_err(|_| self.stream = None)?;
        match &mut self.stream {
            Some(stream) if self.owner.is_here() && self.is_kept == key.is_kept() => {
                stream.set_key(key.bytes()).map_err(home::refused)?;
            }
            _ => {
                self.stream = None;
                self.stream = Some(instance.aead_stream(GCM, &key)?);
            }
        }
        self.is_kept = key.is_kept();
        self.owner = key.owner();
        if let Iv::Used(iv) = &mut self.iv {
            self.iv = Iv::Waiting(core::mem::take(iv));
        }
        Ok(())
    }

    /// The message under the IV, which is started when it is first needed.
    fn message(&mut self) -> Result<&mut dyn AeadStream, Failure> {
        let no_key = || Failure::new(Reason::NoKeySet);
        if let Iv::Waiting(iv) = &mut self.iv {
            self.stream
                .as_mut()
                .ok_or_else(no_key)?
                .start(iv)
                .map_err(|error| home::failed(error, Reason::InvalidIvLength.into()))?;
            self.iv = Iv::Used(core::mem::take(iv));
        }
        match &self.iv {
            Iv::Used(_) => Ok(&mut **self.stream.as_mut().ok_or_else(no_key)?),
            Iv::Missing | Iv::Waiting(_) | Iv::Spent => Err(Reason::InvalidIvLength.into()),
        }
    }
}

impl Mac for Gmac {
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if let Some(name) = params.get(c"cipher") {
            let name = name.text()?;
            let found = CIPHERS.iter().find(|(names, _)| is_named(names, name));
            let found = found.ok_or_else(|| Failure::text(Reason::InvalidMode, format!("GMAC over {name}")))?;
            *self = Gmac { key_len: Some(found.1), stream: None, is_kept: false, owner: self.owner, iv: Iv::Missing };
        }
        if let Some(key) = params.get(c"key") {
            self.set_key(instance, Given::Bytes(key.octets()?.unwrap_or_default()))?;
        }
        if let Some(iv) = params.get(c"iv") {
            let iv = iv.octets()?.filter(|iv| (1..=MAX_GCM_IV_LEN).contains(&iv.len()));
            self.iv = Iv::Waiting(iv.ok_or_else(|| Failure::new(Reason::InvalidIvLength))?.to_vec());
        }
        Ok(())
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        key.map_or(Ok(()), |key| self.set_key(instance, Given::Bytes(key)))
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.set_key(instance, key)
    }

    fn update(&mut self, data: &[u8], _: usize) -> Done {
        if data.is_empty() {
            return Ok(());
        }
        self.message()?.associated(data).map_err(|error| home::failed(error, Failure::SILENT))
    }

    fn len(&self) -> usize {
        TAG_LEN
    }

    fn block_len(&self) -> usize {
        TAG_LEN
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        let done = self.message()?.seal(tag);
        self.iv = Iv::Spent;
        done.map_err(|error| home::failed(error, Failure::SILENT))
    }

    fn owner(&self) -> Option<Owner> {
        self.stream.as_ref().map(|_| self.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        let stream = self.stream.as_ref().map(|stream| stream.fork()).transpose();
        let stream = stream.map_err(|error| home::failed(error, Reason::CipherOperationFailed.into()))?;
        let Gmac { key_len, is_kept, owner, .. } = *self;
        Ok(Box::new(Gmac { key_len, stream, is_kept, owner, iv: self.iv.clone() }))
    }
}
