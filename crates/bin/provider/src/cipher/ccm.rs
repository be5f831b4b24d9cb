//! AES-CCM (RFC 3610): one text, whose length and tag length are known before it; and the records of TLS 1.2 (RFC 6655).

use super::record::{self, AAD_LEN, EXPLICIT_LEN, FIXED_LEN};
use super::row::{Cipher, CipherRow};
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests, Text};
use crate::given::Given;
use crate::home::{self, Owner};
use crate::instance::Instance;
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::skcipher::Direction;

const MAX_TAG_LEN: usize = 16;

#[derive(Clone)]
struct Ccm {
    row: &'static CipherRow,
    dir: Direction,
    tfm: Option<AeadTfm>,
    owner: Owner,
    /// The nonce, of which the first `15 - length_field` bytes count.
    iv: [u8; 16],
    iv_set: bool,
    /// Bytes of the field that has the text's length (L of RFC 3610).
    length_field: usize,
    tag: [u8; MAX_TAG_LEN],
    tag_len: usize,
    tag_set: bool,
    /// The text's length, once it is known.
    text_len: Option<usize>,
    associated: Vec<u8>,
    record: Option<[u8; AAD_LEN]>,
    record_growth: usize,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(Ccm {
        row,
        dir: Direction::Encrypt,
        tfm: None,
        owner: Owner::this_process(),
        iv: [0; 16],
        iv_set: false,
        length_field: 8,
        tag: [0; MAX_TAG_LEN],
        tag_len: 12,
        tag_set: false,
        text_len: None,
        associated: Vec::new(),
        record: None,
        record_growth: 0,
    })
}

impl Ccm {
    fn iv_len(&self) -> usize {
        15 - self.length_field
    }

    /// The nonce as the core takes it: behind the size of the length field, less one.
    fn nonce(&self) -> [u8; 16] {
        let mut nonce = [0; 16];
        nonce[0] = (self.length_field - 1) as u8;
        let len = self.iv_len();
        nonce[1..=len].copy_from_slice(&self.iv[..len]);
        nonce
    }

    fn run(&mut self, call: Call<'_>) -> Result<usize, Failure> {
        if self.tfm.is_none() {
            return Err(Failure::SILENT);
        }
        if let Some(aad) = self.record {
            return self.run_record(&aad, call);
        }
        let len = call.len();
        if !call.has_input() && call.has_output() {
            return Ok(0);
        }
        if !self.iv_set {
            return Err(Failure::SILENT);
        }
        match (call.has_input(), call.has_output()) {
            (false, _) => self.begin(Some(len)),
            (true, false) => self.set_associated(call.input())?,
            (true, true) => self.run_text(call.text(len)?)?,
        }
        Ok(len)
    }

    /// Forgets what was given of a message, and begins another one, of `text_len` bytes if they are known.
    fn begin(&mut self, text_len: Option<usize>) {
        self.text_len = text_len;
        self.associated.clear();
    }

    fn set_associated(&mut self, data: &[u8]) -> Done {
        // RFC 3610 puts the text's length before the associated data, which comes in one piece.
        if !data.is_empty() && (self.text_len.is_none() || !self.associated.is_empty()) {
            return Err(Failure::SILENT);
        }
        self.associated = data.to_vec();
        Ok(())
    }

    fn run_text(&mut self, mut text: Text<'_>) -> Done {
        let len = text.input().len();
        if self.text_len.is_some_and(|said| said != len) || (self.dir == Direction::Decrypt && !self.tag_set) {
            return Err(Failure::SILENT);
        }
        // Kept where opening fails: the end of the message then finds no other text that the tag might fit.
        self.text_len = Some(len);
        let (nonce, tag_len) = (self.nonce(), self.tag_len);
        let tfm = self.tfm.as_ref().ok_or(Failure::SILENT)?;
        let (aad, tag) = (&self.associated, &mut self.tag[..tag_len]);
        let done = tfm.one(self.dir, &nonce, &[aad], text.all().into(), tag);
        done.map_err(|error| home::failed(error, Failure::SILENT))?;
        self.spend();
        // A sealed text has a tag to ask for, and no second text goes under its nonce.
        self.tag_set = self.dir == Direction::Encrypt;
        Ok(())
    }

    /// After a message, the next one needs all of its own.
    fn spend(&mut self) {
        self.iv_set = false;
        self.tag_set = false;
        self.begin(None);
    }

    /// Seals or opens a record of TLS 1.2 in place: explicit part of the nonce, text, tag.
    fn run_record(&mut self, aad: &[u8; AAD_LEN], call: Call<'_>) -> Result<usize, Failure> {
        let (len, tag_len) = (call.len(), self.tag_len);
        let text_len = len.checked_sub(EXPLICIT_LEN + tag_len).ok_or(Failure::SILENT)?;
        if !call.has_input() || !call.in_place() || self.iv_len() != FIXED_LEN + EXPLICIT_LEN {
            return Err(Failure::SILENT);
        }
        let mut text = call.text(len)?;
        let (explicit, rest) = text.output().split_at_mut(EXPLICIT_LEN);
        if self.dir == Direction::Encrypt {
            // The record's sequence number, with which the associated data begins.
            explicit.copy_from_slice(&aad[..EXPLICIT_LEN]);
        }
        self.iv[FIXED_LEN..FIXED_LEN + EXPLICIT_LEN].copy_from_slice(explicit);
        let (data, tag) = rest.split_at_mut(text_len);
        let tfm = self.tfm.as_ref().ok_or(Failure::SILENT)?;
        let done = tfm.one(self.dir, &self.nonce(), &[aad], data.into(), tag);
        done.map_err(|error| home::failed(error, Failure::SILENT))?;
        Ok(if self.dir == Direction::Encrypt { len } else { text_len })
    }

    /// Takes the associated data of a record and corrects its length, which counts explicit nonce and tag.
    fn set_record(&mut self, aad: &[u8]) -> Done {
        let extra = EXPLICIT_LEN + if self.dir == Direction::Decrypt { self.tag_len } else { 0 };
        let (aad, _) = record::associated(aad, extra).ok_or_else(|| Failure::new(Reason::InvalidData))?;
        self.record = Some(aad);
        self.record_growth = self.tag_len;
        Ok(())
    }
}

impl Cipher for Ccm {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.dir = dir;
        if let Some(iv) = iv {
            if iv.len() != self.iv_len() {
                return Err(Reason::InvalidIvLength.into());
            }
            self.iv[..iv.len()].copy_from_slice(iv);
            self.iv_set = true;
            self.begin(None);
        }
        key.map_or(Ok(()), |key| self.take_key(instance, Given::Bytes(key)))
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        key.check_len(self.row.key_len)?;
        // As for other modes, so that no caller goes on under the old key.
        self.tfm = None;
        let key = instance.key(self.row.alg, key, Some(self.row.key_len))?;
        self.tfm = Some(key.aead()?);
        self.owner = key.owner();
        Ok(())
    }

    fn update(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if call.room() < call.len() {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        self.run(call).map_err(|failure| failure.or(Reason::CipherOperationFailed))
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        if self.tfm.is_none() {
            return Err(Failure::SILENT);
        }
        // A message without text is computed now. One that is sealed or opened has spent its nonce.
        let pending = self.iv_set && self.record.is_none();
        if pending {
            self.run_text(Text::empty())?;
        }
        Ok(0)
    }

    fn cipher(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if !call.has_input() {
            return self.finish(instance, call);
        }
        if call.room() < call.len() {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        let len = call.len();
        self.run(call).map(|_| len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        let iv_len = self.iv_len();
        asked.answer(c"ivlen", |p| p.size(iv_len))?;
        asked.answer(c"taglen", |p| p.size(self.tag_len))?;
        for key in [c"iv", c"updated-iv"] {
            asked.answer(key, |p| {
                if p.room() < iv_len {
                    return Err(Reason::InvalidIvLength.into());
                }
                // All of the room is filled, as in the default provider, whose nonce has 16 bytes, too.
                p.octets_or_address(&self.iv[..p.room().min(self.iv.len())])
            })?;
        }
        asked.answer(c"keylen", |p| p.size(self.row.key_len))?;
        asked.answer(c"tlsaadpad", |p| p.size(self.record_growth))?;
        let Some(mut tag) = asked.get(c"tag") else { return Ok(()) };
        if self.dir == Direction::Decrypt || !self.tag_set {
            return Err(Reason::TagNotSet.into());
        }
        if tag.room() != self.tag_len {
            return Err(Failure::SILENT);
        }
        tag.octets(&self.tag[..self.tag_len])?;
        self.spend();
        Ok(())
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        if let Some(tag) = params.get(c"tag") {
            let bytes = tag.octets()?;
            if !(4..=MAX_TAG_LEN).contains(&tag.len()) || tag.len() % 2 != 0 {
                return Err(Reason::InvalidTagLength.into());
            }
            if let Some(bytes) = bytes {
                if self.dir == Direction::Encrypt {
                    return Err(Reason::TagNotNeeded.into());
                }
                self.tag[..bytes.len()].copy_from_slice(bytes);
                self.tag_set = true;
            }
            self.tag_len = tag.len();
        }
        if let Some(len) = params.get(c"ivlen") {
            let field = 15usize.wrapping_sub(len.size()?);
            if !(2..=8).contains(&field) {
                return Err(Reason::InvalidIvLength.into());
            }
            if self.length_field != field {
                self.length_field = field;
                self.iv_set = false;
            }
        }
        if let Some(aad) = params.get(c"tlsaad") {
            self.set_record(aad.octets()?.unwrap_or_default())?;
        }
        if let Some(fixed) = params.get(c"tlsivfixed") {
            let fixed = fixed.octets()?.filter(|fixed| fixed.len() == FIXED_LEN);
            self.iv[..FIXED_LEN].copy_from_slice(fixed.ok_or_else(|| Failure::new(Reason::InvalidIvLength))?);
        }
        Ok(())
    }

    fn owner(&self) -> Option<Owner> {
        self.tfm.as_ref().map(|_| self.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        Ok(Box::new(self.clone()))
    }
}
