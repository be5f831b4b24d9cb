//! AES in counter mode.

use super::base::Base;
use super::row::{Cipher, CipherRow};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests};
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::Instance;
use crate::keystream::Keystream;
use sealane_crypto::skcipher::Direction;
use zeroize::Zeroizing;

#[derive(Clone)]
struct Ctr {
    base: Base,
    stream: Keystream,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Ctr { base: Base::new(row), stream: Keystream::new([0; 16]) })
}

impl Ctr {
    fn run(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        let tls = &self.base.tls;
        let dir = self.base.dir;
        let has_mac = dir == Direction::Decrypt && tls.version != 0 && tls.mac_len != 0;
        let (tfm, _) = self.base.keyed()?;
        let mut text = call.text(len)?;
        self.stream.apply(tfm, dir, text.all()).map_err(|error| {
            self.base.interrupted_by(error);
            home::failed(error, Reason::CipherOperationFailed.into())
        })?;
        if !has_mac {
            return Ok(len);
        }
        let tls = &mut self.base.tls;
        // A record of a stream cipher ends with its MAC.
        let content = len.checked_sub(tls.mac_len).ok_or(Failure::SILENT)?;
        tls.mac = Some(Zeroizing::new(text.output()[content..len].to_vec()));
        Ok(content)
    }
}

impl Cipher for Ctr {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.base.init(instance, dir, key, iv)?;
        // Without a new IV the stream goes on with its next block.
        let counter = if iv.is_some() { *self.base.iv() } else { self.stream.counter };
        self.stream.restart(counter);
        Ok(())
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.base.set_key(instance, key)?;
        self.stream.restart(self.stream.counter);
        Ok(())
    }

    fn quick(&mut self, call: &mut Call<'_>) -> bool {
        let Some(tfm) = self.base.plain() else { return false };
        let dir = self.base.dir;
        call.flat().is_some_and(|text| self.stream.quick(tfm, dir, text))
    }

    fn update(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.run(call)
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        Ok(0)
    }

    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        self.run(call).map(|_| len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        self.base.get(asked, Some(self.stream.used as u32), &self.stream.counter)
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        self.base.set(params)?;
        if params.get(c"num").is_some() {
            self.stream.used = 0;
        }
        Ok(())
    }

    fn owner(&self) -> Option<Owner> {
        self.base.owner()
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        Ok(Box::new(self.clone()))
    }
}
