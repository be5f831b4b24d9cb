//! CCM (RFC 3610, SP 800-38C) with the kernel's IV: a block that starts with the size of the length field, less one,
//! and the nonce.

use super::block::{Cipher, EncryptBlock, Family, Visit};
use super::modes::keystream;
use cipher::InnerIvInit;
use cipher::consts::U16;
use ctr::flavors::Ctr128BE;
use inout::InOutBuf;
use sealane_crypto::aead::{AeadDriver, FlatAeadOp};
use sealane_crypto::error::{KeyError, OpError, Status};
use sealane_crypto::key::PreparedKey;
use sealane_crypto::skcipher::Direction;
use std::marker::PhantomData;
use subtle::ConstantTimeEq;
use zeroize::{Zeroize, Zeroizing};

pub(super) struct Ccm<F>(pub(super) PhantomData<F>);

impl<F: Family<Block = U16>> AeadDriver for Ccm<F> {
    fn prepare(&self, key: &[u8]) -> Result<Box<dyn PreparedKey>, KeyError> {
        Ok(Box::new(F::key(key)?))
    }

    fn one(&self, slot: usize, op: FlatAeadOp<'_, '_>) -> Status {
        let iv: &[u8; 16] = op.nonce.try_into().map_err(|_| OpError::Nonce)?;
        if !(1..=7).contains(&iv[0]) {
            return Err(OpError::Nonce);
        }
        let len_bytes = usize::from(iv[0]) + 1;
        if len_bytes < 8 && op.data.len() as u64 >> (8 * len_bytes) != 0 {
            return Err(OpError::TooLong);
        }
        let mut counter = *iv;
        counter[16 - len_bytes..].fill(0);
        let run = RunCcm { dir: op.dir, counter, len_bytes, aad: op.aad, data: op.data, tag: op.tag };
        F::with(op.tfm.key::<F::Key>(slot), run)
    }
}

struct RunCcm<'b> {
    dir: Direction,
    /// The counter block that encrypts the tag: flags, nonce and a zero counter.
    counter: [u8; 16],
    len_bytes: usize,
    aad: &'b [&'b [u8]],
    data: InOutBuf<'b, 'b, u8>,
    tag: &'b mut [u8],
}

impl RunCcm<'_> {
    /// The CBC-MAC over B_0, the associated data and `text`, encrypted with the first keystream block.
    fn tag_of<C: Cipher<U16>>(&self, cipher: &C, text: &[u8]) -> Zeroizing<[u8; 16]> {
        let aad_len: usize = self.aad.iter().map(|piece| piece.len()).sum();
        let mut first = self.counter;
        first[0] |= ((8 * ((self.tag.len() - 2) / 2)) | if aad_len == 0 { 0 } else { 64 }) as u8;
        first[16 - self.len_bytes..].copy_from_slice(&(text.len() as u64).to_be_bytes()[8 - self.len_bytes..]);
        let mut mac = CcmMac { cipher, state: [0; 16], fill: 0 };
        mac.update(&first);
        if aad_len != 0 {
            if aad_len < 0xff00 {
                mac.update(&(aad_len as u16).to_be_bytes());
            } else if let Ok(len) = u32::try_from(aad_len) {
                mac.update(&[0xff, 0xfe]);
                mac.update(&len.to_be_bytes());
            } else {
                mac.update(&[0xff, 0xff]);
                mac.update(&(aad_len as u64).to_be_bytes());
            }
            self.aad.iter().for_each(|piece| mac.update(piece));
            mac.pad();
        }
        mac.update(text);
        mac.pad();
        let mut tag = Zeroizing::new(self.counter);
        EncryptBlock(&mut tag).visit(cipher);
        tag.iter_mut().zip(&mac.state).for_each(|(t, m)| *t ^= m);
        tag
    }
}

impl Visit<U16> for RunCcm<'_> {
    type Out = Status;

    fn visit<C: Cipher<U16>>(mut self, cipher: &C) -> Status {
        let mut data = core::mem::replace(&mut self.data, InOutBuf::from(&mut [][..]));
        let mut counter = self.counter;
        counter[15] = 1;
        let stream = ctr::CtrCore::<&C, Ctr128BE>::inner_iv_init(cipher, (&counter).into());
        match self.dir {
            Direction::Encrypt => {
                let tag = self.tag_of(cipher, data.get_in());
                self.tag.copy_from_slice(&tag[..self.tag.len()]);
                keystream(stream, data);
            }
            Direction::Decrypt => {
                keystream(stream, data.reborrow());
                let tag = self.tag_of(cipher, data.get_out());
                if !bool::from(tag[..self.tag.len()].ct_eq(self.tag)) {
                    data.get_out().zeroize();
                    return Err(OpError::Auth);
                }
            }
        }
        Ok(())
    }
}

struct CcmMac<'c, C> {
    cipher: &'c C,
    state: [u8; 16],
    /// Bytes of the current block that have been absorbed.
    fill: usize,
}

impl<C: Cipher<U16>> CcmMac<'_, C> {
    fn update(&mut self, mut text: &[u8]) {
        while !text.is_empty() {
            let (head, rest) = text.split_at(text.len().min(16 - self.fill));
            self.state[self.fill..].iter_mut().zip(head).for_each(|(s, b)| *s ^= b);
            self.fill += head.len();
            text = rest;
            if self.fill == 16 {
                self.pad();
            }
        }
    }

    /// Pads the current block with zeros.
    fn pad(&mut self) {
        if self.fill != 0 {
            EncryptBlock(&mut self.state).visit(self.cipher);
            self.fill = 0;
        }
    }
}

impl<C> Drop for CcmMac<'_, C> {
    fn drop(&mut self) {
        self.state.zeroize();
    }
}
