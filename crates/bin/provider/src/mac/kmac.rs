//! KMAC128 and KMAC256 (SP 800-185 section 4).

use super::context::Mac;
use crate::digest::Sponge;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::Params;
use crate::instance::Instance;
use zeroize::Zeroizing;

/// Lengths that the default provider takes, in bytes.
const KEY_LENS: core::ops::RangeInclusive<usize> = 4..=512;
const MAX_CUSTOM: usize = 512;
const MAX_OUTPUT: usize = 0xff_ffff / 8;

#[derive(Clone)]
struct Kmac {
    /// The sponge's block in bytes.
    rate: usize,
    len: usize,
    xof: bool,
    custom: Vec<u8>,
    key: Option<Zeroizing<Vec<u8>>>,
    running: Option<Sponge>,
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
    fn set_key(&mut self, key: &[u8]) -> Done {
        if !KEY_LENS.contains(&key.len()) {
            return Err(Reason::InvalidKeyLength.into());
        }
        self.key = Some(Zeroizing::new(key.to_vec()));
        Ok(())
    }

    fn running(&mut self) -> Result<&mut Sponge, Failure> {
        self.running.as_mut().ok_or_else(|| Reason::NoKeySet.into())
    }
}

impl Mac for Kmac {
    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
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
            self.set_key(key.octets()?.unwrap_or_default())?;
        }
        if let Some(custom) = params.get(c"custom") {
            if custom.len() > MAX_CUSTOM {
                return Err(Reason::InvalidCustomLength.into());
            }
            self.custom = custom.octets()?.unwrap_or_default().to_vec();
        }
        Ok(())
    }

    fn init(&mut self, _: &Instance, key: Option<&[u8]>) -> Done {
        if let Some(key) = key {
            self.set_key(key)?;
        }
        let key = self.key.as_ref().ok_or_else(|| Failure::new(Reason::NoKeySet))?;
        let mut sponge = Sponge::cshake(self.rate);
        sponge.left_encode(self.rate);
        sponge.encode_string(b"KMAC");
        sponge.encode_string(&self.custom);
        sponge.fill_block();
        sponge.left_encode(self.rate);
        sponge.encode_string(key);
        sponge.fill_block();
        self.running = Some(sponge);
        Ok(())
    }

    fn update(&mut self, data: &[u8], _: usize) -> Done {
        self.running()?.absorb(data);
        Ok(())
    }

    fn len(&self) -> usize {
        self.len
    }

    fn block_len(&self) -> usize {
        self.rate
    }

    fn finish(&mut self, tag: &mut [u8]) -> Done {
        let bits = if self.xof { 0 } else { 8 * tag.len() };
        let sponge = self.running()?;
        sponge.right_encode(bits);
        sponge.squeeze(tag);
        self.running = None;
        Ok(())
    }

    fn duplicate(&self) -> Result<Box<dyn Mac>, Failure> {
        Ok(Box::new(self.clone()))
    }
}
