//! GMAC (SP 800-38D): the tag of GCM over a message that is not encrypted.

use super::context::Mac;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::gcm::{GcmKey, GcmMessage, MAX_IV_LEN};
use crate::instance::{Instance, is_named};
use crate::names;
use core::ffi::CStr;
use std::sync::Arc;

pub(super) const TAG_LEN: usize = 16;

/// The ciphers that GMAC takes, under their names in GCM mode, and the lengths of their keys in bytes.
static CIPHERS: [(&CStr, usize); 3] = [(names::AES_128_GCM, 16), (names::AES_192_GCM, 24), (names::AES_256_GCM, 32)];

/// The place of an IV in its life: it serves one message.
#[derive(Clone)]
enum Iv {
    Missing,
    Waiting(Vec<u8>),
    Used(Vec<u8>, Box<GcmMessage>),
    Spent,
}

#[derive(Clone)]
struct Gmac {
    key_len: Option<usize>,
    key: Option<Arc<GcmKey>>,
    iv: Iv,
}

pub(super) fn new() -> Box<dyn Mac> {
    Box::new(Gmac { key_len: None, key: None, iv: Iv::Missing })
}

impl Gmac {
    fn set_key(&mut self, instance: &Instance, key: &[u8]) -> Done {
        if self.key_len != Some(key.len()) {
            return Err(Reason::InvalidKeyLength.into());
        }
        self.key = Some(Arc::new(GcmKey::new(instance, key)?));
        if let Iv::Used(iv, _) = &mut self.iv {
            self.iv = Iv::Waiting(core::mem::take(iv));
        }
        Ok(())
    }

    /// The message under the IV, which is started when it is first needed.
    fn message(&mut self) -> Result<&mut GcmMessage, Failure> {
        if let Iv::Waiting(iv) = &mut self.iv {
            let key = self.key.as_ref().ok_or_else(|| Failure::new(Reason::NoKeySet))?;
            let message = Box::new(GcmMessage::new(key, iv)?);
            self.iv = Iv::Used(core::mem::take(iv), message);
        }
        match &mut self.iv {
            Iv::Used(_, message) => Ok(message),
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
            *self = Gmac { key_len: Some(found.1), key: None, iv: Iv::Missing };
        }
        if let Some(key) = params.get(c"key") {
            self.set_key(instance, key.octets()?.unwrap_or_default())?;
        }
        if let Some(iv) = params.get(c"iv") {
            let iv = iv.octets()?.filter(|iv| (1..=MAX_IV_LEN).contains(&iv.len()));
            self.iv = Iv::Waiting(iv.ok_or_else(|| Failure::new(Reason::InvalidIvLength))?.to_vec());
        }
        Ok(())
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        key.map_or(Ok(()), |key| self.set_key(instance, key))
    }

    fn update(&mut self, data: &[u8], _: usize) -> Done {
        if data.is_empty() { Ok(()) } else { self.message()?.associated(data) }
    }

    fn len(&self) -> usize {
        TAG_LEN
    }

    fn block_len(&self) -> usize {
        TAG_LEN
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        tag.copy_from_slice(&self.message()?.tag());
        self.iv = Iv::Spent;
        Ok(())
    }

    fn duplicate(&self) -> Box<dyn Mac> {
        Box::new(self.clone())
    }
}
