//! KMAC128 and KMAC256 (SP 800-185 section 4).

use super::context::Mac;
use crate::digest::Sponge;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::given::Given;
use crate::home::{KeyBytes, Owner, Secret};
use crate::instance::Instance;

/// Lengths that the default provider takes, in bytes.
const KEY_LENS: core::ops::RangeInclusive<usize> = 4..=MAX_KEY_LEN;
const MAX_KEY_LEN: usize = 512;
const MAX_CUSTOM: usize = 512;
const MAX_OUTPUT: usize = 0xff_ffff / 8;

/// A key, which is absorbed again for each message.
struct Key {
    bytes: Secret<KeyBytes<MAX_KEY_LEN>>,
    owner: Owner,
}

struct Kmac {
    /// The sponge's block in bytes.
    rate: usize,
    len: usize,
    xof: bool,
    custom: Vec<u8>,
    key: Option<Key>,
    /// The message under the key, of which the sponge says as much as the key itself.
    running: Option<Secret<Sponge>>,
}

fn new(rate: usize, len: usize) -> Box<dyn Mac> {
    Box::new(Kmac { rate, len, xof: false, custom: Vec::new(), key: None, running: None })
}

pub(super) fn new128() -> Box<dyn Mac> {
    new(168, 32)
}

pub(super) fn new256() -> Box<dyn Mac> {
    new(136, 64)
}

impl Kmac {
    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        let key = instance.key_here("KMAC", key)?;
        if !KEY_LENS.contains(&key.len()) {
            return Err(Reason::InvalidKeyLength.into());
        }
        // If there is no room for the new key, there is none: a caller that does not look would go on under the old one.
        (self.key, self.running) = (None, None);
        self.key = Some(Key { bytes: Secret::new(KeyBytes::boxed(key))?, owner: Owner::this_process() });
        Ok(())
    }

    fn running(&mut self) -> Result<&mut Secret<Sponge>, Failure> {
        self.running.as_mut().ok_or_else(|| Reason::NoKeySet.into())
    }
}

impl Mac for Kmac {
    fn set(&mut self, instance: &Instance, params: Params<'_>) -> Done {
        if let Some(xof) = params.get(c"xof") {
            self.xof = xof.int()? != 0;
        }
        if let Some(len) = params.get(c"size") {
            let len = len.size()?;
            if len > MAX_OUTPUT {
                return Err(Reason::InvalidOutputLength.into());
            }
            self.len = len;
        }
        if let Some(key) = params.get(c"key") {
            self.set_key(instance, Given::Bytes(key.octets()?.unwrap_or_default()))?;
        }
        if let Some(custom) = params.get(c"custom") {
            if custom.len() > MAX_CUSTOM {
                return Err(Reason::InvalidCustomLength.into());
            }
            self.custom = custom.octets()?.unwrap_or_default().to_vec();
        }
        Ok(())
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.set_key(instance, key)
    }

    fn init(&mut self, instance: &Instance, key: Option<&[u8]>) -> Done {
        if let Some(key) = key {
            self.set_key(instance, Given::Bytes(key))?;
        }
        let key = self.key.as_ref().ok_or_else(|| Failure::new(Reason::NoKeySet))?;
        self.running = None;
        // On the heap, from where it is moved, and not on the stack.
        let mut sponge = Box::new(Sponge::cshake(self.rate));
        sponge.left_encode(self.rate);
        sponge.encode_string(b"KMAC");
        sponge.encode_string(&self.custom);
        sponge.fill_block();
        sponge.left_encode(self.rate);
        key.bytes.with(|key| sponge.encode_string(key.get()))?;
        sponge.fill_block();
        self.running = Some(Secret::new(sponge)?);
        Ok(())
    }

    fn update(&mut self, data: &[u8], _: usize) -> Done {
        self.running()?.with_mut(|sponge| sponge.absorb(data))
    }

    fn len(&self) -> usize {
        self.len
    }

    fn block_len(&self) -> usize {
        self.rate
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        let bits = if self.xof { 0 } else { 8 * tag.len() };
        self.running()?.with_mut(|sponge| {
            sponge.right_encode(bits);
            sponge.squeeze(tag);
        })?;
        self.running = None;
        Ok(())
    }

    fn owner(&self) -> Option<Owner> {
        self.key.as_ref().map(|key| key.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        let again = |key: &Key| Ok::<_, Failure>(Key { bytes: key.bytes.again()?, owner: key.owner });
        let key = self.key.as_ref().map(again).transpose()?;
        let running = self.running.as_ref().map(Secret::again).transpose()?;
        Ok(Box::new(Kmac { custom: self.custom.clone(), key, running, ..*self }))
    }
}
