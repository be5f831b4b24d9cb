//! The common part of the modes without authentication.

use super::row::{CipherRow, mode};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests};
use crate::given::Given;
use crate::home::Owner;
use crate::instance::Instance;
use sealane_crypto::OpError;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use zeroize::Zeroizing;

/// The longest IV of a mode without authentication, in bytes.
const MAX_IV_LEN: usize = 16;

/// An IV that a kernel reads and writes as one vector. If it met two cache lines, the next text would wait for it for as long as a
/// block of AES takes.
#[derive(Clone, Copy)]
#[repr(align(16))]
struct Iv([u8; MAX_IV_LEN]);

/// A mode's key, IV and parameters.
#[derive(Clone)]
pub(super) struct Base {
    pub(super) row: &'static CipherRow,
    pub(super) dir: Direction,
    tfm: Option<SkcipherTfm>,
    /// Whether its key is computed with elsewhere.
    is_kept: bool,
    /// Whether a text was not computed to its end.
    is_interrupted: bool,
    owner: Owner,
    /// The IV that continues the text.
    iv: Iv,
    /// The IV as it was set.
    first_iv: [u8; MAX_IV_LEN],
    pub(super) iv_set: bool,
    pub(super) padding: bool,
    num: u32,
    pub(super) tls: Tls,
    /// Whether all text comes out at once: no record of TLS, nothing that is kept back for its padding, and a key of this process. False
    /// where it is not known: [`Self::quick`] serves nothing then.
    is_plain: bool,
}

/// The properties that TLS gives its records.
#[derive(Clone, Default)]
pub(super) struct Tls {
    /// The protocol's version, 0 where the text is no record.
    pub(super) version: u32,
    /// The length of the MAC in a record.
    pub(super) mac_len: usize,
    /// The MAC of the last record.
    pub(super) mac: Option<Zeroizing<Vec<u8>>>,
}

impl Base {
    pub(super) fn new(row: &'static CipherRow) -> Self {
        Base {
            row,
            dir: Direction::Encrypt,
            tfm: None,
            is_kept: false,
            is_interrupted: false,
            owner: Owner::this_process(),
            iv: Iv([0; MAX_IV_LEN]),
            first_iv: [0; MAX_IV_LEN],
            iv_set: false,
            padding: true,
            num: 0,
            tls: Tls::default(),
            is_plain: false,
        }
    }

    pub(super) fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.is_plain = false;
        self.num = 0;
        self.dir = dir;
        match iv {
            Some(iv) if self.row.mode != mode::ECB => self.set_iv(iv)?,
            // CBC starts again from the IV of before, as OpenSSL 1.1.1 did.
            None if self.iv_set && self.row.mode == mode::CBC => self.iv.0 = self.first_iv,
            Some(_) | None => {}
        }
        // Without an IV CTR goes on with its key stream.
        self.is_interrupted &= iv.is_none() && self.row.mode == mode::CTR;
        if let Some(key) = key {
            self.set_key(instance, Given::Bytes(key))?;
        }
        self.settle();
        Ok(())
    }

    /// Finds out how text goes on, after something else has changed.
    fn settle(&mut self) {
        let keeps_last = self.dir == Direction::Decrypt && self.padding && self.row.block_len > 1;
        let is_here = self.tfm.is_some() && !self.is_kept && !self.is_interrupted;
        self.is_plain = is_here && self.tls.version == 0 && !keeps_last;
    }

    fn set_iv(&mut self, iv: &[u8]) -> Done {
        if iv.len() != self.row.iv_len {
            return Err(Reason::InvalidIvLength.into());
        }
        self.iv.0[..iv.len()].copy_from_slice(iv);
        self.first_iv = self.iv.0;
        self.iv_set = true;
        Ok(())
    }

    pub(super) fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        self.is_plain = false;
        key.check_len(self.row.key_len)?;
        // If there is no room for the new key, there is none: a caller that does not look would go on under the old one.
        self.tfm = None;
        let key = instance.key(self.row.alg, key, Some(self.row.key_len))?;
        self.tfm = Some(key.skcipher()?);
        self.is_kept = key.is_kept();
        self.owner = key.owner();
        self.settle();
        Ok(())
    }

    /// The key, with the IV that it continues from.
    #[inline]
    pub(super) fn keyed(&mut self) -> Result<(&SkcipherTfm, &mut [u8]), Failure> {
        let tfm = self.tfm.as_ref().ok_or_else(|| Failure::new(Reason::NoKeySet))?;
        if self.is_interrupted {
            let text = "sealane: a call before has failed in the middle of a text: begin anew";
            return Err(Failure::text(Reason::CipherOperationFailed, text.to_owned()));
        }
        Ok((tfm, &mut self.iv.0[..self.row.iv_len]))
    }

    /// The key, if all text comes out at once.
    #[inline]
    pub(super) fn plain(&self) -> Option<&SkcipherTfm> {
        self.tfm.as_ref().filter(|_| self.is_plain)
    }

    /// After a failure of the keeper there is no more text until it is begun anew: a part of a text that is encrypted in place may be
    /// another one already, and by the same key stream it would become the plaintext again.
    pub(super) fn interrupted_by(&mut self, error: OpError) {
        self.is_interrupted |= self.is_kept && error == OpError::Driver;
    }

    /// The process of the key.
    pub(super) fn owner(&self) -> Option<Owner> {
        self.tfm.as_ref().map(|_| self.owner)
    }

    /// Runs text that the mode takes as it is, and returns whether it did.
    #[inline]
    pub(super) fn quick(&mut self, call: &mut Call<'_>) -> bool {
        let Some(tfm) = self.tfm.as_ref().filter(|_| self.is_plain) else { return false };
        let Some(text) = call.flat() else { return false };
        tfm.flat(self.dir, &mut self.iv.0[..self.row.iv_len], text).is_ok()
    }

    /// The IV that continues the text. By reference, because a caller of OpenSSL may ask for its address.
    pub(super) fn iv(&self) -> &[u8; MAX_IV_LEN] {
        &self.iv.0
    }

    /// Sets the IV that continues the text, and leaves the one that was set first.
    pub(super) fn set_running_iv(&mut self, iv: [u8; MAX_IV_LEN]) {
        self.iv.0 = iv;
    }

    pub(super) fn get(&self, asked: &mut Requests<'_>, num: Option<u32>, iv: &[u8; MAX_IV_LEN]) -> Done {
        let len = self.row.iv_len;
        asked.answer(c"ivlen", |p| p.size(len))?;
        asked.answer(c"padding", |p| p.uint(self.padding.into()))?;
        asked.answer(c"iv", |p| p.octets_or_address(&self.first_iv[..len]))?;
        asked.answer(c"updated-iv", |p| p.octets_or_address(&iv[..len]))?;
        asked.answer(c"num", |p| p.uint(num.unwrap_or(self.num)))?;
        asked.answer(c"keylen", |p| p.size(self.row.key_len))?;
        let mac = self.tls.mac.as_ref().map(|mac| mac.as_slice());
        asked.answer(c"tls-mac", |p| p.octets_address(mac, self.tls.mac_len))
    }

    pub(super) fn set(&mut self, params: Params<'_>) -> Done {
        self.is_plain = false;
        if let Some(padding) = params.get(c"padding") {
            self.padding = padding.uint()? != 0;
        }
        if let Some(bits) = params.get(c"use-bits") {
            // It is for modes whose text ends within a byte, of which none is offered.
            bits.uint()?;
        }
        if let Some(version) = params.get(c"tls-version") {
            self.tls.version = version.uint()?;
        }
        if let Some(len) = params.get(c"tls-mac-size") {
            self.tls.mac_len = len.size()?;
        }
        if let Some(num) = params.get(c"num") {
            let num = num.uint()?;
            if num as usize >= self.row.block_len {
                return Err(Reason::FailedToGetParameter.into());
            }
            self.num = num;
        }
        self.settle();
        Ok(())
    }
}
