//! AES-XTS (IEEE 1619): each call is a data unit of its own, under the same tweak.

use super::base::Base;
use super::row::{Cipher, CipherRow};
use crate::ct;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests};
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::Instance;
use sealane_crypto::skcipher::Direction;

const BLOCK_LEN: usize = 16;

/// The longest data unit: 2^20 blocks (IEEE 1619-2018, SP 800-38E).
const MAX_UNIT: usize = BLOCK_LEN << 20;

#[derive(Clone)]
struct Xts(Base);

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Xts(Base::new(row)))
}

impl Cipher for Xts {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        // Equal halves make the tweaks predictable (Rogaway 2004, section 6). Text encrypted with them stays readable.
        let key_of_length = key.filter(|key| key.len() == self.0.row.key_len);
        if dir == Direction::Encrypt && key_of_length.is_some_and(ct::halves_are_same) {
            return Err(Reason::XtsDuplicatedKeys.into());
        }
        self.0.init(instance, dir, key, iv)
    }

    /// Of keys that are elsewhere the keeper, or who gave it the key, has looked at the halves.
    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        match key {
            Given::Bytes(bytes) if self.0.dir == Direction::Encrypt && ct::halves_are_same(bytes) => {
                Err(Reason::XtsDuplicatedKeys.into())
            }
            key => self.0.set_key(instance, key),
        }
    }

    fn update(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if call.room() < call.len() {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        self.cipher(instance, call).map_err(|failure| failure.or(Reason::CipherOperationFailed))
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        Ok(0)
    }

    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        let (dir, len, iv_set) = (self.0.dir, call.len(), self.0.iv_set);
        let (tfm, iv) = self.0.keyed().map_err(|_| Failure::SILENT)?;
        if !iv_set || !call.has_input() || !call.has_output() || len < BLOCK_LEN {
            return Err(Failure::SILENT);
        }
        if len > MAX_UNIT {
            return Err(Reason::XtsDataUnitIsTooLarge.into());
        }
        let mut tweak = [0; BLOCK_LEN];
        tweak.copy_from_slice(iv);
        let mut text = call.text(len)?;
        tfm.flat(dir, &mut tweak, text.all()).map_err(|error| home::failed(error, Failure::SILENT))?;
        Ok(len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        self.0.get(asked, None, self.0.iv())
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        match params.get(c"keylen") {
            Some(len) if len.size()? != self.0.row.key_len => Err(Failure::SILENT),
            Some(_) | None => Ok(()),
        }
    }

    fn owner(&self) -> Option<Owner> {
        self.0.owner()
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        Ok(Box::new(self.clone()))
    }
}
