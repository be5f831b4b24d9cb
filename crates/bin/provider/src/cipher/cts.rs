//! AES-CBC with ciphertext stealing (SP 800-38A addendum): one text, in one call.
//!
//! The three variants write the same blocks. CS1 leaves the short block where it is in the order; CS3 always swaps the last
//! two blocks; CS2 does so only if the last one is short.

use super::base::Base;
use super::block::run;
use super::row::{Cipher, CipherRow};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests, Text};
use crate::given::Given;
use crate::home::Owner;
use crate::instance::Instance;
use core::ffi::CStr;
use sealane_crypto::skcipher::Direction;
use zeroize::Zeroizing;

const BLOCK_LEN: usize = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Cs1,
    Cs2,
    Cs3,
}

impl Variant {
    const ALL: [(Variant, &'static CStr); 3] = [(Variant::Cs1, c"CS1"), (Variant::Cs2, c"CS2"), (Variant::Cs3, c"CS3")];

    /// Whether the last two blocks of a text of `len` bytes are swapped.
    fn swaps(self, len: usize) -> bool {
        match self {
            Variant::Cs1 => false,
            Variant::Cs2 => !len.is_multiple_of(BLOCK_LEN),
            Variant::Cs3 => len > BLOCK_LEN,
        }
    }
}

#[derive(Clone)]
struct Cts {
    base: Base,
    variant: Variant,
    /// Whether the text has been there.
    done: bool,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Cts { base: Base::new(row), variant: Variant::Cs1, done: false })
}

impl Cts {
    /// Encrypts: CBC over the text with zeros behind it, of which the last but one block is cut.
    fn encrypt(&mut self, text: &mut Text<'_>, short: usize) -> Done {
        let len = text.input().len();
        let whole = len - short;
        let mut last = Zeroizing::new([0u8; BLOCK_LEN]);
        last[..short].copy_from_slice(&text.input()[whole..]);
        run(&mut self.base, text.piece(0..whole, 0))?;
        run(&mut self.base, last.as_mut_slice().into())?;
        let out = text.output();
        if self.variant.swaps(len) {
            let stolen: Zeroizing<Vec<u8>> = Zeroizing::new(out[whole - BLOCK_LEN..][..short].to_vec());
            out[whole - BLOCK_LEN..whole].copy_from_slice(&*last);
            out[whole..].copy_from_slice(&stolen);
        } else {
            out[len - BLOCK_LEN..].copy_from_slice(&*last);
        }
        Ok(())
    }

    /// Decrypts: the last whole block first, because the one before it lacks the bytes that it encrypts.
    fn decrypt(&mut self, text: &mut Text<'_>, short: usize) -> Done {
        let len = text.input().len();
        let front = len - short - BLOCK_LEN;
        let tail = &text.input()[front..];
        let (cut, full) = if self.variant.swaps(len) {
            (&tail[BLOCK_LEN..], &tail[..BLOCK_LEN])
        } else {
            (&tail[..short], &tail[short..])
        };
        let mut cut = Zeroizing::new(cut.to_vec());
        let full: [u8; BLOCK_LEN] = full.try_into().expect("a block");
        run(&mut self.base, text.piece(0..front, 0))?;
        let chained = *self.base.iv();
        // Under an IV of zeros CBC is the bare cipher.
        self.base.set_running_iv([0; BLOCK_LEN]);
        let mut end = Zeroizing::new(full);
        run(&mut self.base, end.as_mut_slice().into())?;
        let mut middle = Zeroizing::new(*end);
        middle[..short].copy_from_slice(&cut);
        cut.iter_mut().zip(end.iter()).for_each(|(c, e)| *c ^= e);
        self.base.set_running_iv(chained);
        run(&mut self.base, middle.as_mut_slice().into())?;
        self.base.set_running_iv(full);
        let out = text.output();
        out[front..front + BLOCK_LEN].copy_from_slice(&*middle);
        out[front + BLOCK_LEN..].copy_from_slice(&cut);
        Ok(())
    }
}

impl Cipher for Cts {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.done = false;
        self.base.init(instance, dir, key, iv)
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.done = false;
        self.base.set_key(instance, key)
    }

    fn update(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        if len < BLOCK_LEN || call.room() < len || self.done {
            return Err(Failure::SILENT);
        }
        if !call.has_output() {
            return Ok(len);
        }
        self.base.keyed().map_err(|_| Failure::SILENT)?;
        let mut text = call.text(len)?;
        let short = match len % BLOCK_LEN {
            0 if self.variant.swaps(len) => BLOCK_LEN,
            short => short,
        };
        if short == 0 {
            run(&mut self.base, text.all())?;
        } else if self.base.dir == Direction::Encrypt {
            self.encrypt(&mut text, short)?;
        } else {
            self.decrypt(&mut text, short)?;
        }
        self.done = true;
        Ok(len)
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        Ok(0)
    }

    /// Plain CBC over whole blocks, as in the default provider.
    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        let len = call.len();
        run(&mut self.base, call.text(len)?.all())?;
        Ok(len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        let name = Variant::ALL.iter().find(|(variant, _)| *variant == self.variant).map_or(c"CS1", |(_, name)| name);
        asked.answer(c"cts_mode", |p| p.text(name))?;
        self.base.get(asked, None, self.base.iv())
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        if let Some(wanted) = params.get(c"cts_mode") {
            let wrong = || Failure::new(Reason::FailedToSetParameter);
            let wanted = wanted.text().map_err(|_| wrong())?;
            let found = Variant::ALL.iter().find(|(_, name)| name.to_bytes().eq_ignore_ascii_case(wanted.as_bytes()));
            self.variant = found.ok_or_else(wrong)?.0;
        }
        self.base.set(params)
    }

    fn owner(&self) -> Option<Owner> {
        self.base.owner()
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        Ok(Box::new(self.clone()))
    }
}
