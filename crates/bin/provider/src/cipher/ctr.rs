//! AES in counter mode.

use super::base::Base;
use super::row::{Cipher, CipherRow};
use crate::failure::{Done, Failure};
use crate::ffi::{Call, Params, Requests};
use crate::instance::Instance;
use crate::keystream::{Counter, Keystream};
use sealane_crypto::skcipher::Direction;
use zeroize::Zeroizing;

#[derive(Clone)]
struct Ctr {
    base: Base,
    stream: Keystream,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Ctr { base: Base::new(row), stream: Keystream::new(Counter::Whole, [0; 16]) })
}

impl Ctr {
    fn run(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        let mut text = call.text(len)?;
        let (tfm, _) = self.base.keyed()?;
        self.stream.apply(tfm, text.all())?;
        let tls = &mut self.base.tls;
        if self.base.dir == Direction::Encrypt || tls.version == 0 || tls.mac_len == 0 {
            return Ok(len);
        }
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
        self.stream = Keystream::new(Counter::Whole, counter);
        Ok(())
    }

    fn update(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        self.run(call)
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        Ok(0)
    }

    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
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

    fn duplicate(&self) -> Box<dyn Cipher> {
        Box::new(self.clone())
    }
}
