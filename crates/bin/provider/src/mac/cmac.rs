//! CMAC (SP 800-38B) over AES, Camellia, SM4 and triple DES.

use super::context::Mac;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::{AlgId, Instance, is_named};
use crate::names;
use core::ffi::CStr;
use sealane_crypto::hash::HashState;

/// A cipher that CMAC takes, under its name in CBC mode.
struct BlockCipher {
    names: &'static CStr,
    key_len: usize,
    block_len: usize,
    alg: AlgId,
}

const fn cipher(names: &'static CStr, key_len: usize, block_len: usize, name: &str) -> BlockCipher {
    BlockCipher { names, key_len, block_len, alg: AlgId::of(name) }
}

static CIPHERS: [BlockCipher; 8] = [
    cipher(names::AES_128_CBC, 16, 16, "cmac(aes)"),
    cipher(names::AES_192_CBC, 24, 16, "cmac(aes)"),
    cipher(names::AES_256_CBC, 32, 16, "cmac(aes)"),
    cipher(names::DES_EDE3_CBC, 24, 8, "cmac(des3_ede)"),
    cipher(c"CAMELLIA-128-CBC:CAMELLIA128:1.2.392.200011.61.1.1.1.2", 16, 16, "cmac(camellia)"),
    cipher(c"CAMELLIA-192-CBC:CAMELLIA192:1.2.392.200011.61.1.1.1.3", 24, 16, "cmac(camellia)"),
    cipher(c"CAMELLIA-256-CBC:CAMELLIA256:1.2.392.200011.61.1.1.1.4", 32, 16, "cmac(camellia)"),
    cipher(c"SM4-CBC:SM4:1.2.156.10197.1.104.2", 16, 16, "cmac(sm4)"),
];

/// The message under a key.
struct Keyed {
    cipher: &'static BlockCipher,
    owner: Owner,
    running: Box<dyn HashState>,
}

#[derive(Default)]
struct Cmac {
    /// The cipher of the next key.
    cipher: Option<&'static BlockCipher>,
    keyed: Option<Keyed>,
}

pub(super) fn new() -> Box<dyn Mac> {
    Box::new(Cmac::default())
}

impl Cmac {
    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        let cipher = self.cipher.take().or_else(|| self.keyed.as_ref().map(|k| k.cipher));
        let cipher = cipher.ok_or_else(|| Failure::new(Reason::MissingCipher))?;
        key.check_len(cipher.key_len)?;
        // If there is no room for the new key, there is none: a caller that does not look would go on under the old one.
        self.keyed = None;
        self.cipher = Some(cipher);
        let key = instance.key(cipher.alg, key, Some(cipher.key_len))?;
        self.keyed = Some(Keyed { cipher, owner: key.owner(), running: key.started()? });
        self.cipher = None;
        Ok(())
    }

    fn running(&mut self) -> Result<&mut Box<dyn HashState>, Failure> {
        self.keyed.as_mut().map(|k| &mut k.running).ok_or_else(|| Reason::NoKeySet.into())
    }
}

impl Mac for Cmac {
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if let Some(name) = params.get(c"cipher") {
            let name = name.text()?;
            let found = CIPHERS.iter().find(|cipher| is_named(cipher.names, name));
            let found = found.ok_or_else(|| Failure::text(Reason::InvalidMode, format!("CMAC over {name}")))?;
            self.cipher = Some(found);
        }
        match params.get(c"key") {
            Some(key) => self.set_key(instance, Given::Bytes(key.octets()?.unwrap_or_default())),
            None => Ok(()),
        }
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.set_key(instance, key)
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        match key {
            Some(key) => self.set_key(instance, Given::Bytes(key)),
            None => {
                self.running()?.reset();
                Ok(())
            }
        }
    }

    fn update(&mut self, data: &[u8], _: usize) -> Done {
        self.running()?.update(data);
        Ok(())
    }

    fn len(&self) -> usize {
        self.keyed.as_ref().map_or(0, |keyed| keyed.cipher.block_len)
    }

    fn block_len(&self) -> usize {
        self.len()
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        self.running()?.finish(tag).map_err(|error| home::failed(error, Failure::SILENT))
    }

    fn owner(&self) -> Option<Owner> {
        self.keyed.as_ref().map(|keyed| keyed.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        let again = |k: &Keyed| Keyed { cipher: k.cipher, owner: k.owner, running: k.running.fork() };
        let keyed = self.keyed.as_ref().map(again);
        Ok(Box::new(Cmac { cipher: self.cipher, keyed }))
    }
}
