//! Modes of whole blocks: ECB and CBC, with padding, and as TLS uses CBC.

use super::base::Base;
use super::row::{Cipher, CipherRow, mode};
use super::tls;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests, Text};
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::Instance;
use inout::InOutBuf;
use sealane_crypto::rng::Entropy;
use sealane_crypto::skcipher::Direction;
use sealane_drivers::SystemEntropy;
use zeroize::{Zeroize, Zeroizing};

const MAX_BLOCK_LEN: usize = 16;

#[derive(Clone)]
struct Block {
    base: Base,
    /// The bytes of an incomplete block; decrypting with padding, also a last block that may be all there is.
    buffer: Zeroizing<[u8; MAX_BLOCK_LEN]>,
    buffered: usize,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Block { base: Base::new(row), buffer: Zeroizing::default(), buffered: 0 })
}

/// Runs whole blocks, which CBC chains.
#[inline]
pub(super) fn run<'a>(base: &mut Base, data: InOutBuf<'a, 'a, u8>) -> Done {
    let dir = base.dir;
    let (tfm, iv) = base.keyed()?;
    tfm.flat(dir, iv, data).map_err(|error| {
        base.interrupted_by(error);
        home::failed(error, Reason::CipherOperationFailed.into())
    })
}

impl Block {
    fn len(&self) -> usize {
        self.base.row.block_len
    }

    /// The bytes that come out when `len` more go in.
    fn ready(&self, len: usize) -> usize {
        let block = self.len();
        let total = self.buffered + len;
        let whole = total - total % block;
        // The last block may be padding, which is only known at the end.
        let is_kept = self.base.dir == Direction::Decrypt && self.base.padding && whole == total && whole > 0;
        whole - if is_kept { block } else { 0 }
    }

    /// Takes text of which `ready` bytes come out.
    fn stream(&mut self, mut text: Text<'_>, ready: usize) -> Done {
        let (block, waiting) = (self.len(), self.buffered);
        let (mut taken, mut done) = (0, 0);
        if ready > 0 && waiting > 0 {
            // The output is behind the input from here on.
            text.part();
            taken = block - waiting;
            self.buffer[waiting..block].copy_from_slice(&text.input()[..taken]);
            run(&mut self.base, (&mut self.buffer[..block]).into())?;
            text.output()[..block].copy_from_slice(&self.buffer[..block]);
            self.buffered = 0;
            done = block;
        }
        if ready > done {
            let end = taken + ready - done;
            // Where the text is in place, the rest is kept before it is overwritten.
            self.keep(&text, end);
            run(&mut self.base, text.piece(taken..end, done))
        } else {
            self.keep(&text, taken);
            Ok(())
        }
    }

    /// Keeps the input from `from` on for later.
    fn keep(&mut self, text: &Text<'_>, from: usize) {
        let rest = &text.input()[from..];
        self.buffer[self.buffered..self.buffered + rest.len()].copy_from_slice(rest);
        self.buffered += rest.len();
    }

    /// Encrypts or decrypts a record of TLS in place; returns its length with padding, or that of its content.
    fn record(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        let failed = || Failure::new(Reason::CipherOperationFailed);
        let (len, block) = (call.len(), self.len());
        if !call.has_input() || !call.in_place() || call.room() < len || !self.base.padding {
            return Err(failed());
        }
        if !tls::is_known(self.base.tls.version) {
            return Err(failed());
        }
        if self.base.dir == Direction::Encrypt {
            // RFC 5246 section 6.2.3.2: each byte of the padding says how many others there are.
            let padding = block - len % block;
            let mut text = call.text(len + padding).map_err(|_| failed())?;
            text.output()[len..].fill((padding - 1) as u8);
            run(&mut self.base, text.output().into())?;
            return Ok(len + padding);
        }
        if len % block != 0 || len == 0 {
            return Err(failed());
        }
        self.base.tls.mac = None;
        let mut text = call.text(len)?;
        run(&mut self.base, text.output().into())?;
        let mut decoy = Zeroizing::new([0u8; tls::MAX_MAC_LEN]);
        SystemEntropy.fill(&mut *decoy).map_err(|_| Failure::new(Reason::ErrorRetrievingEntropy))?;
        let state = &mut self.base.tls;
        let (content, mac) =
            tls::open(state.version, text.output(), block, state.mac_len, &decoy).ok_or_else(failed)?;
        state.mac = mac;
        Ok(content)
    }

    fn finish_encrypting(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        let block = self.len();
        if self.base.padding {
            let padding = block - self.buffered;
            self.buffer[self.buffered..block].fill(padding as u8);
        } else if self.buffered == 0 {
            return Ok(0);
        } else if self.buffered != block {
            return Err(Reason::WrongFinalBlockLength.into());
        }
        let mut text = call.text(block)?;
        run(&mut self.base, (&mut self.buffer[..block]).into())?;
        text.output().copy_from_slice(&self.buffer[..block]);
        self.buffered = 0;
        Ok(block)
    }

    fn finish_decrypting(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        let block = self.len();
        if self.buffered != block {
            return if self.buffered == 0 && !self.base.padding {
                Ok(0)
            } else {
                Err(Reason::WrongFinalBlockLength.into())
            };
        }
        run(&mut self.base, (&mut self.buffer[..block]).into())?;
        let len = if self.base.padding { unpadded_len(&self.buffer[..block])? } else { block };
        call.text(len)?.output().copy_from_slice(&self.buffer[..len]);
        self.buffer.zeroize();
        self.buffered = 0;
        Ok(len)
    }
}

/// A random key of DES, each byte of which has odd parity.
fn random_key(len: usize) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut key = Zeroizing::new(vec![0u8; len]);
    SystemEntropy.fill(&mut key).map_err(|_| Failure::new(Reason::FailedToGenerateKey))?;
    key.iter_mut().for_each(|byte| *byte ^= u8::from(byte.count_ones() % 2 == 0));
    Ok(key)
}

/// The length of a last block without its padding (RFC 5652 section 6.3). All bytes are looked at, whatever they are.
fn unpadded_len(block: &[u8]) -> Result<usize, Failure> {
    use crate::ct::{at_least, equal};
    let padding = usize::from(block[block.len() - 1]);
    let mut good = at_least(padding, 1) & at_least(block.len(), padding);
    for (i, byte) in block.iter().rev().enumerate() {
        // Bytes beyond the padding may be anything.
        good &= at_least(i, padding) | equal((*byte).into(), padding);
    }
    if good == 0xff { Ok(block.len() - padding) } else { Err(Reason::BadDecrypt.into()) }
}

impl Cipher for Block {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.buffer.zeroize();
        self.buffered = 0;
        self.base.init(instance, dir, key, iv)
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.buffer.zeroize();
        self.buffered = 0;
        self.base.set_key(instance, key)
    }

    fn quick(&mut self, call: &mut Call<'_>) -> bool {
        let is_whole = call.len() & (self.len() - 1) == 0;
        is_whole && self.buffered == 0 && self.base.quick(call)
    }

    fn update(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        if self.base.tls.version > 0 {
            return self.record(call);
        }
        let ready = self.ready(call.len());
        self.stream(call.text(ready)?, ready)?;
        Ok(ready)
    }

    fn finish(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        if self.base.tls.version > 0 {
            return Err(Reason::CipherOperationFailed.into());
        }
        match self.base.dir {
            Direction::Encrypt => self.finish_encrypting(call),
            Direction::Decrypt => self.finish_decrypting(call),
        }
    }

    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        self.base.keyed()?;
        let len = call.len();
        let mut text = call.text(len)?;
        // ECB leaves bytes behind the last whole block alone.
        let whole = if self.base.row.mode == mode::ECB { len - len % self.len() } else { len };
        run(&mut self.base, text.piece(0..whole, 0))?;
        Ok(len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        self.base.get(asked, None, self.base.iv())?;
        if self.base.row.random_key {
            // EVP_CIPHER_CTX_rand_key does not say how much room there is.
            asked.answer(c"randkey", |p| p.octets_of_unsaid_room(&random_key(self.base.row.key_len)?))?;
        }
        Ok(())
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        self.base.set(params)
    }

    fn owner(&self) -> Option<Owner> {
        self.base.owner()
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        Ok(Box::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_is_counted_and_checked() {
        let mut block = [7u8; 16];
        for padding in 1..=16usize {
            block[16 - padding..].fill(padding as u8);
            assert_eq!(unpadded_len(&block).ok(), Some(16 - padding));
            for i in 16 - padding..15 {
                block[i] ^= 0x20;
                assert!(unpadded_len(&block).is_err(), "byte {i} of {padding}");
                block[i] ^= 0x20;
            }
        }
        for last in [0, 17, 255] {
            block[15] = last;
            assert!(unpadded_len(&block).is_err());
        }
    }
}
