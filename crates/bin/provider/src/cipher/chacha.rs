//! ChaCha20-Poly1305 (RFC 8439) over text in pieces, and the records of TLS 1.2 (RFC 7905).

use super::record::{self, AAD_LEN};
use super::row::{Cipher, CipherRow};
use crate::ct;
use crate::failure::{Done, Failure, Reason};
use crate::ffi::{Call, Params, Requests};
use crate::given::Given;
use crate::home::{self, Owner, Secret};
use crate::instance::{AlgId, Instance};
use crate::partial::Partial;
use inout::InOutBuf;
use poly1305::universal_hash::{KeyInit, UniversalHash};
use poly1305::{Block, Poly1305};
use sealane_crypto::OpError;
use sealane_crypto::aead::{AeadStream, AeadTfm};
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use zeroize::{Zeroize, Zeroizing};

const KEY_LEN: usize = 32;
const IV_LEN: usize = 12;
const TAG_LEN: usize = 16;
/// Bytes of the keystream that one counter gives.
const CHUNK_LEN: usize = 64;
/// The longest text: the counter has 32 bits, of which the first value is Poly1305's key (RFC 8439 section 2.8).
const MAX_TEXT: u64 = ((1 << 32) - 1) * CHUNK_LEN as u64;

/// A key of this process, for text in pieces.
struct Here {
    stream: SkcipherTfm,
    once: Secret<Once>,
}

/// A key in the form for text in pieces.
enum Form {
    Here(Here),
    /// It is computed with elsewhere.
    Kept(Box<dyn AeadStream>),
}

/// A key, in the forms for text in pieces and for records.
struct Key {
    form: Form,
    records: AeadTfm,
    owner: Owner,
}

/// The secrets of one message.
#[derive(Clone)]
struct Once {
    poly: Poly1305,
    /// The keystream of the counter; the first one begins with Poly1305's key.
    chunk: Zeroizing<[u8; CHUNK_LEN]>,
}

impl Once {
    fn new() -> Self {
        Once { poly: Poly1305::new(&Default::default()), chunk: Zeroizing::new([0; CHUNK_LEN]) }
    }

    /// Begins to authenticate under the key that the keystream begins with.
    fn start(&mut self) {
        let mut key = poly1305::Key::default();
        key[..].copy_from_slice(&self.chunk[..KEY_LEN]);
        self.poly = Poly1305::new(&key);
        key[..].zeroize();
    }
}

impl Key {
    fn again(&self) -> Result<Self, Failure> {
        let form = match &self.form {
            Form::Here(Here { stream, once }) => Form::Here(Here { stream: stream.clone(), once: once.again()? }),
            Form::Kept(stream) => {
                let fork = stream.fork();
                Form::Kept(fork.map_err(|error| home::failed(error, Reason::CipherOperationFailed.into()))?)
            }
        };
        Ok(Key { form, records: self.records.clone(), owner: self.owner })
    }
}

/// A message under a nonce.
#[derive(Clone)]
struct Message {
    partial: Partial,
    associated_len: u64,
    text_len: u64,
    nonce: [u8; IV_LEN],
    counter: u32,
}

impl Message {
    fn new(key: &mut Here, nonce: [u8; IV_LEN]) -> Result<Self, Failure> {
        let mut message = Message { partial: Partial::default(), associated_len: 0, text_len: 0, nonce, counter: 0 };
        message.next_chunk(key)?;
        key.once.with_mut(Once::start)?;
        Ok(message)
    }

    /// Encrypts whole chunks, or decrypts them.
    fn crypt<'a>(&mut self, stream: &SkcipherTfm, data: InOutBuf<'a, 'a, u8>) -> Done {
        let chunks = data.len() / CHUNK_LEN;
        let mut iv = [0; 16];
        iv[..4].copy_from_slice(&self.counter.to_le_bytes());
        iv[4..].copy_from_slice(&self.nonce);
        let done = stream.flat(Direction::Encrypt, &mut iv, data);
        // The text's length was checked, so that the counter does not wrap but at its very end.
        self.counter = self.counter.wrapping_add(chunks as u32);
        done.map_err(|_| Failure::SILENT)
    }

    fn next_chunk(&mut self, key: &mut Here) -> Done {
        let Here { stream, once } = key;
        once.with_mut(|once| {
            once.chunk.zeroize();
            self.crypt(stream, once.chunk.as_mut_slice().into())
        })?
    }

    fn associated(&mut self, key: &mut Here, data: &[u8]) -> Done {
        if self.text_len > 0 {
            return Err(Failure::SILENT);
        }
        self.absorb(key, data, (self.associated_len % TAG_LEN as u64) as usize)?;
        self.associated_len += data.len() as u64;
        Ok(())
    }

    fn text<'a>(&mut self, key: &mut Here, dir: Direction, mut data: InOutBuf<'a, 'a, u8>) -> Done {
        if data.is_empty() {
            return Ok(());
        }
        if data.len() as u64 > MAX_TEXT - self.text_len {
            return Err(Failure::SILENT);
        }
        if self.text_len == 0 {
            self.fill(key, (self.associated_len % TAG_LEN as u64) as usize)?;
        }
        let waiting = (self.text_len % TAG_LEN as u64) as usize;
        let used = (self.text_len % CHUNK_LEN as u64) as usize;
        self.text_len += data.len() as u64;
        if dir == Direction::Decrypt {
            self.absorb(key, data.get_in(), waiting)?;
        }
        self.stream(key, used, data.reborrow())?;
        if dir == Direction::Encrypt {
            self.absorb(key, data.get_out(), waiting)?;
        }
        Ok(())
    }

    /// Goes on `used` bytes into the current chunk.
    fn stream<'a>(&mut self, key: &mut Here, used: usize, mut data: InOutBuf<'a, 'a, u8>) -> Done {
        if used > 0 {
            let len = data.len().min(CHUNK_LEN - used);
            let (mut head, rest) = data.split_at(len);
            key.once.with(|once| head.xor_in2out(&once.chunk[used..used + len]))?;
            data = rest;
        }
        let whole = data.len() - data.len() % CHUNK_LEN;
        let (body, mut tail) = data.split_at(whole);
        if whole > 0 {
            self.crypt(&key.stream, body)?;
        }
        if !tail.is_empty() {
            self.next_chunk(key)?;
            let len = tail.len();
            key.once.with(|once| tail.xor_in2out(&once.chunk[..len]))?;
        }
        Ok(())
    }

    fn tag(&mut self, key: &mut Here) -> Result<[u8; TAG_LEN], Failure> {
        let open = if self.text_len > 0 { self.text_len } else { self.associated_len };
        self.fill(key, (open % TAG_LEN as u64) as usize)?;
        let mut lengths = Block::default();
        lengths[..8].copy_from_slice(&self.associated_len.to_le_bytes());
        lengths[8..].copy_from_slice(&self.text_len.to_le_bytes());
        key.once.with_mut(|once| {
            once.poly.update(&[lengths]);
            let mut tag = [0; TAG_LEN];
            tag.copy_from_slice(&once.poly.clone().finalize()[..]);
            tag
        })
    }

    /// Authenticates `data` behind `waiting` bytes.
    fn absorb(&mut self, key: &mut Here, data: &[u8], waiting: usize) -> Done {
        key.once.with_mut(|once| self.partial.absorb(data, waiting, |blocks| once.poly.update(blocks)))
    }

    /// Zeros up to a whole block, behind `waiting` bytes.
    fn fill(&mut self, key: &mut Here, waiting: usize) -> Done {
        key.once.with_mut(|once| self.partial.fill(waiting, |blocks| once.poly.update(blocks)))
    }
}

/// A message that has begun.
#[derive(Clone)]
enum Begun {
    Here(Message),
    /// Under a key that is computed with elsewhere, which has the message.
    Kept,
}

/// A message with its key.
enum Current<'a> {
    Here(&'a mut Here, &'a mut Message),
    Kept(&'a mut dyn AeadStream),
}

fn silent(error: OpError) -> Failure {
    home::failed(error, Failure::SILENT)
}

struct ChaCha {
    row: &'static CipherRow,
    dir: Direction,
    key: Option<Key>,
    iv: [u8; IV_LEN],
    /// The nonce of TLS, before a record's sequence number goes in.
    record_iv: [u8; IV_LEN],
    message: Option<Begun>,
    tag: [u8; TAG_LEN],
    tag_len: usize,
    /// Associated data of the next record, and the length of its text.
    record: Option<([u8; AAD_LEN], usize)>,
    record_growth: usize,
}

pub(super) fn new(row: &'static CipherRow) -> Box<dyn Cipher> {
    Box::new(ChaCha {
        row,
        dir: Direction::Encrypt,
        key: None,
        iv: [0; IV_LEN],
        record_iv: [0; IV_LEN],
        message: None,
        tag: [0; TAG_LEN],
        tag_len: 0,
        record: None,
        record_growth: 0,
    })
}

impl ChaCha {
    fn set_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        const STREAM: AlgId = AlgId::of("chacha20");
        key.check_len(KEY_LEN)?;
        // As for other modes, so that no caller goes on under the old key.
        self.key = None;
        let key = instance.key(self.row.alg, key, Some(KEY_LEN))?;
        let records = key.aead()?;
        let form = if key.is_kept() {
            Form::Kept(instance.aead_stream(self.row.alg, &key)?)
        } else {
            let stream = instance.alg(STREAM)?.skcipher(key.bytes()).map_err(home::refused)?;
            Form::Here(Here { stream, once: Secret::new(Box::new(Once::new()))? })
        };
        self.key = Some(Key { form, records, owner: key.owner() });
        Ok(())
    }

    /// The key, and the message, which is started when it is first needed.
    fn message(&mut self) -> Result<Current<'_>, Failure> {
        let key = self.key.as_mut().ok_or(Failure::SILENT)?;
        match (&mut key.form, &mut self.message) {
            (Form::Here(key), Some(Begun::Here(message))) => Ok(Current::Here(key, message)),
            (Form::Kept(stream), Some(Begun::Kept)) => Ok(Current::Kept(&mut **stream)),
            (Form::Here(key), none) => {
                let Begun::Here(message) = none.insert(Begun::Here(Message::new(key, self.iv)?)) else {
                    return Err(Reason::Internal.into());
                };
                Ok(Current::Here(key, message))
            }
            (Form::Kept(stream), none) => {
                stream.start(&self.iv).map_err(silent)?;
                *none = Some(Begun::Kept);
                Ok(Current::Kept(&mut **stream))
            }
        }
    }

    fn end(&mut self) -> Done {
        let (dir, expected, len) = (self.dir, self.tag, self.tag_len);
        let mut tag = [0; TAG_LEN];
        let done = match (self.message()?, dir) {
            (Current::Here(key, message), Direction::Encrypt) => {
                tag = message.tag(key)?;
                Ok(())
            }
            (Current::Here(key, message), Direction::Decrypt) => {
                let is = message.tag(key)?;
                if len > 0 && ct::same(&is[..len], &expected[..len]) { Ok(()) } else { Err(Failure::SILENT) }
            }
            (Current::Kept(stream), Direction::Encrypt) => stream.seal(&mut tag).map_err(silent),
            (Current::Kept(stream), Direction::Decrypt) => stream.open(&expected[..len]).map_err(silent),
        };
        self.message = None;
        done?;
        if dir == Direction::Encrypt {
            self.tag = tag;
        }
        Ok(())
    }

    /// Seals or opens a record: text, tag.
    fn run_record(&mut self, aad: &[u8; AAD_LEN], text_len: usize, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        let key = self.key.as_ref().ok_or(Failure::SILENT)?;
        if len != text_len + TAG_LEN {
            return Err(Failure::SILENT);
        }
        let mut text = call.text(len)?;
        let mut tag = [0; TAG_LEN];
        tag.copy_from_slice(&text.input()[text_len..]);
        let done = key.records.one(self.dir, &self.iv, &[aad], text.piece(0..text_len, 0).into(), &mut tag);
        if let Err(error) = done {
            text.output()[..text_len].fill(0);
            return Err(silent(error));
        }
        if self.dir == Direction::Decrypt {
            return Ok(text_len);
        }
        self.tag = tag;
        text.output()[text_len..len].copy_from_slice(&tag);
        Ok(len)
    }

    /// Takes the associated data of a record, whose sequence number makes its nonce.
    fn set_record(&mut self, aad: &[u8]) -> Done {
        let extra = if self.dir == Direction::Decrypt { TAG_LEN } else { 0 };
        let (aad, text_len) = record::associated(aad, extra).ok_or_else(|| Failure::new(Reason::InvalidData))?;
        self.iv = self.record_iv;
        self.iv[4..].iter_mut().zip(&aad[..8]).for_each(|(iv, number)| *iv ^= number);
        self.message = None;
        self.record = Some((aad, text_len));
        self.record_growth = TAG_LEN;
        Ok(())
    }
}

impl Cipher for ChaCha {
    fn init(&mut self, instance: &Instance, dir: Direction, key: Option<&[u8]>, iv: Option<&[u8]>) -> Done {
        self.dir = dir;
        if let Some(iv) = iv {
            self.iv = iv.try_into().map_err(|_| Failure::new(Reason::InvalidIvLength))?;
            self.record_iv = self.iv;
        }
        if iv.is_some() || key.is_some() {
            self.message = None;
            self.record = None;
        }
        key.map_or(Ok(()), |key| self.set_key(instance, Given::Bytes(key)))
    }

    fn take_key(&mut self, instance: &Instance, key: Given<'_>) -> Done {
        (self.message, self.record) = (None, None);
        self.set_key(instance, key)
    }

    fn update(&mut self, instance: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        if call.len() == 0 { Ok(0) } else { self.cipher(instance, call) }
    }

    fn finish(&mut self, _: &Instance, _: Call<'_>) -> Result<usize, Failure> {
        self.end().map(|()| 0)
    }

    fn cipher(&mut self, _: &Instance, call: Call<'_>) -> Result<usize, Failure> {
        let len = call.len();
        if call.room() < len {
            return Err(Reason::OutputBufferTooSmall.into());
        }
        if call.has_output()
            && call.has_input()
            && self.message.is_none()
            && let Some((aad, text_len)) = self.record.take()
        {
            return self.run_record(&aad, text_len, call);
        }
        if !call.has_input() {
            return self.end().map(|()| 0);
        }
        let dir = self.dir;
        match self.message()? {
            Current::Here(key, message) if call.has_output() => message.text(key, dir, call.text(len)?.all())?,
            Current::Here(key, message) => message.associated(key, call.input())?,
            Current::Kept(stream) if call.has_output() => stream.text(dir, call.text(len)?.all()).map_err(silent)?,
            Current::Kept(stream) => stream.associated(call.input()).map_err(silent)?,
        }
        Ok(len)
    }

    fn get(&mut self, _: &Instance, asked: &mut Requests<'_>) -> Done {
        asked.answer(c"ivlen", |p| p.size(IV_LEN))?;
        asked.answer(c"keylen", |p| p.size(KEY_LEN))?;
        asked.answer(c"taglen", |p| p.size(self.tag_len))?;
        asked.answer(c"tlsaadpad", |p| p.size(self.record_growth))?;
        asked.answer(c"tag", |p| {
            if self.dir == Direction::Decrypt {
                return Err(Reason::TagNotSet.into());
            }
            if !(1..=TAG_LEN).contains(&p.room()) {
                return Err(Reason::InvalidTagLength.into());
            }
            p.octets(&self.tag[..p.room()])
        })
    }

    fn set(&mut self, _: &Instance, params: Params<'_>) -> Done {
        if let Some(len) = params.get(c"keylen")
            && len.size()? != KEY_LEN
        {
            return Err(Reason::InvalidKeyLength.into());
        }
        if let Some(len) = params.get(c"ivlen")
            && len.size()? != IV_LEN
        {
            return Err(Reason::InvalidIvLength.into());
        }
        if let Some(tag) = params.get(c"tag") {
            let bytes = tag.octets()?;
            if !(1..=TAG_LEN).contains(&tag.len()) {
                return Err(Reason::InvalidTagLength.into());
            }
            if let Some(bytes) = bytes {
                if self.dir == Direction::Encrypt {
                    return Err(Reason::TagNotNeeded.into());
                }
                self.tag[..bytes.len()].copy_from_slice(bytes);
            }
            self.tag_len = tag.len();
        }
        if let Some(aad) = params.get(c"tlsaad") {
            self.set_record(aad.octets()?.unwrap_or_default())?;
        }
        if let Some(fixed) = params.get(c"tlsivfixed") {
            let fixed = fixed.octets()?.and_then(|fixed| fixed.try_into().ok());
            self.iv = fixed.ok_or_else(|| Failure::new(Reason::InvalidIvLength))?;
            self.record_iv = self.iv;
        }
        Ok(())
    }

    fn owner(&self) -> Option<Owner> {
        self.key.as_ref().map(|key| key.owner)
    }

    fn duplicate(&self) -> Result<Box<dyn Cipher>, Failure> {
        let key = self.key.as_ref().map(Key::again).transpose()?;
        Ok(Box::new(ChaCha { key, message: self.message.clone(), ..*self }))
    }
}
