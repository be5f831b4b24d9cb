//! Cipher and AEAD operations (`crypto/algif_skcipher.c`, `crypto/algif_aead.c`).

use super::common::Common;
use super::error::op_errno;
use super::iov::{Sink, Source};
use super::keyed::Keyed;
use super::message::SendMsg;
use super::tx::Tx;
use crate::host::Task;
use crate::image::{Malformed, Reader, Writer};
use crate::rules::{Rules, ShortRecv};
use inout::InOutBuf;
use lock_api::{MutexGuard, RawMutex};
use sealane_abi::Errno;
use sealane_abi::if_alg::{ALG_OP_DECRYPT, ALG_OP_ENCRYPT, Control};
use sealane_abi::poll::PollMask;
use sealane_abi::socket::{MSG_DONTWAIT, MSG_MORE};
use sealane_crypto::aead::AeadTfm;
use sealane_crypto::data::Data;
use sealane_crypto::mac::MAX_TAG_LEN;
use sealane_crypto::skcipher::{Direction, SkcipherTfm};
use sealane_crypto::{AlgInfo, CipherMode, Kind, OpError, Status};
use zeroize::Zeroize;

/// The longest IV of any algorithm, in bytes (XChaCha20 and Adiantum in the kernel: 32).
const MAX_IV_LEN: usize = 64;

/// The key of a cipher operation.
pub(super) enum CipherKey {
    Skcipher(SkcipherTfm),
    Aead {
        tfm: AeadTfm,
        tag_len: usize,
    },
    /// Another process guards it.
    Elsewhere,
}

/// A cipher or AEAD operation. The flags are the kernel's.
pub(super) struct CipherOp {
    key: Option<CipherKey>,
    tx: Tx,
    iv: [u8; MAX_IV_LEN],
    iv_len: usize,
    chunk_len: usize,
    assoc_len: usize,
    enc: bool,
    /// The last complete send had MSG_MORE.
    more: bool,
    /// A message has begun.
    init: bool,
    /// A sender is in the middle of its message, possibly asleep.
    write: bool,
    /// The messages that were given up because a driver has failed.
    failures: u64,
    aead: bool,
    xts: bool,
    cbc: bool,
    /// The block, where the kernel computes whole blocks before it refuses the rest of a text (`lskcipher`); otherwise
    /// 1.
    lsk_block_len: usize,
}

/// A checked control message.
pub(super) struct Command<'a> {
    enc: bool,
    iv: Option<&'a [u8]>,
    assoc_len: usize,
}

impl CipherOp {
    pub(super) fn new(info: &AlgInfo, lskcipher: bool) -> Self {
        CipherOp {
            key: None,
            tx: Tx::default(),
            iv: [0; MAX_IV_LEN],
            iv_len: info.iv_len.min(MAX_IV_LEN),
            chunk_len: info.chunk_len.max(1),
            assoc_len: 0,
            enc: false,
            more: false,
            init: false,
            write: false,
            failures: 0,
            aead: info.kind == Kind::Aead,
            xts: info.mode == CipherMode::Xts,
            cbc: info.mode == CipherMode::Cbc,
            lsk_block_len: if lskcipher { info.block_len.max(1) } else { 1 },
        }
    }

    pub(super) fn set_key(&mut self, key: CipherKey) {
        self.key = Some(key);
    }

    /// Writes its state, without the key, into an image.
    pub(super) fn save(&self, image: &mut Writer) {
        image.bytes(&self.iv[..self.iv_len]);
        image.number(self.assoc_len as u64);
        for flag in [self.enc, self.more, self.init, self.write] {
            image.flag(flag);
        }
        image.number(self.failures);
        self.tx.save(image);
    }

    /// Takes its state from an image. `sender_gone`: whether the process is gone whose sender is in the middle of its
    /// message.
    pub(super) fn load(&mut self, image: &mut Reader<'_>, sender_gone: &dyn Fn() -> bool) -> Result<(), Malformed> {
        let iv = image.bytes()?;
        if iv.len() != self.iv_len {
            return Err(Malformed);
        }
        self.iv[..iv.len()].copy_from_slice(iv);
        self.assoc_len = image.word()? as usize;
        for flag in [&mut self.enc, &mut self.more, &mut self.init, &mut self.write] {
            *flag = image.flag()?;
        }
        self.failures = image.number()?;
        self.write = self.write && !sender_gone();
        self.tx.load(image)
    }

    pub(super) fn poll(&self, sndbuf: usize) -> PollMask {
        let mut mask = PollMask::none();
        if !self.more || self.tx.used() > 0 {
            mask |= PollMask::IN | PollMask::RDNORM;
        }
        if self.tx.writable(sndbuf) {
            mask |= PollMask::OUT | PollMask::WRNORM | PollMask::WRBAND;
        }
        mask
    }

    pub(super) fn check<'a>(&self, control: Control<'a>) -> Result<Command<'a>, Errno> {
        let enc = match control.op {
            ALG_OP_ENCRYPT => true,
            ALG_OP_DECRYPT => false,
            _ => return Err(Errno::EINVAL),
        };
        if control.iv.is_some_and(|iv| iv.len() != self.iv_len) {
            return Err(Errno::EINVAL);
        }
        Ok(Command { enc, iv: control.iv, assoc_len: control.assoc_len as usize })
    }

    /// The start of a send: the order of the checks is the kernel's.
    fn begin_send(&mut self, command: Option<Command<'_>>) -> Result<(), Errno> {
        if self.write {
            return Err(Errno::EBUSY);
        }
        if self.init && !self.more && self.tx.used() > 0 {
            return Err(Errno::EINVAL);
        }
        self.init = true;
        if let Some(command) = command {
            self.enc = command.enc;
            self.assoc_len = command.assoc_len;
            if let Some(iv) = command.iv {
                self.iv[..iv.len()].copy_from_slice(iv);
            }
        }
        Ok(())
    }

    fn consume(&mut self, len: usize) {
        if self.tx.consume(len) {
            self.init = self.more;
        }
    }

    /// Whether a receive has something to do. `min`: how much of a message that goes on is enough; 0: nothing is.
    fn ready(&self, min: usize) -> bool {
        self.init && (!self.more || (min > 0 && self.tx.used() >= min))
    }

    /// The least number of queued bytes that a receive can use while the message goes on; 0: none.
    fn min_len(&self) -> usize {
        if self.aead { 0 } else { self.chunk_len }
    }

    fn crypt(&mut self, sink: &mut Sink<'_, '_>, rcvbuf: usize, rules: Rules) -> Result<usize, Errno> {
        if matches!(self.key, Some(CipherKey::Elsewhere)) {
            return self.end(Err(OpError::Driver)).map(|()| 0);
        }
        match self.aead {
            false => self.crypt_skcipher(sink, rcvbuf, rules),
            true => self.crypt_aead(sink, rcvbuf, rules),
        }
    }

    fn crypt_skcipher(&mut self, sink: &mut Sink<'_, '_>, rcvbuf: usize, rules: Rules) -> Result<usize, Errno> {
        let used = self.tx.used();
        let mut len = sink.request_len(used, rcvbuf, rules);
        sink.check(len)?;
        let mut excess = 0;
        if self.more || len < used {
            excess = len % self.chunk_len;
            len -= excess;
            if len == 0 && rules.short != ShortRecv::Nothing {
                return Err(Errno::EINVAL);
            }
        }
        let Some(CipherKey::Skcipher(tfm)) = &self.key else { return Err(Errno::ENOKEY) };
        let before = self.iv;
        let dir = if self.enc { Direction::Encrypt } else { Direction::Decrypt };
        let mut unchanged = before;
        let iv = match self.xts && rules.xts_keeps_iv {
            true => &mut unchanged[..self.iv_len],
            false => &mut self.iv[..self.iv_len],
        };
        let text = self.tx.front(len);
        let block_len = if self.cbc && rules.cbc_blocks_first { self.chunk_len } else { self.lsk_block_len };
        let whole = len - len % block_len;
        if whole < len {
            // The IV has moved on when the refusal comes, which the next text shows.
            let _ = tfm.one(dir, iv, Data::from(&mut text[..whole]));
        }
        let done = match sink.flat(len) {
            Some(out) => tfm.one(dir, iv, Data::Flat(InOutBuf::new(text, out).expect("both have this length"))),
            None => tfm.one(dir, iv, Data::from(&mut *text)).inspect(|()| sink.write(text)),
        };
        if rules.short != ShortRecv::Revert {
            sink.skip(excess);
        }
        self.consume(len);
        if done == Err(OpError::Driver) {
            self.iv = before;
        }
        self.end(done).map(|()| len)
    }

    /// The outcome of a request. If a driver has failed the message is given up: its texts would no longer belong together.
    fn end(&mut self, done: Status) -> Result<(), Errno> {
        if done == Err(OpError::Driver) {
            self.tx.consume(self.tx.used());
            (self.init, self.more) = (false, false);
            self.failures = self.failures.wrapping_add(1);
        }
        done.map_err(op_errno)
    }

    fn crypt_aead(&mut self, sink: &mut Sink<'_, '_>, rcvbuf: usize, rules: Rules) -> Result<usize, Errno> {
        let Some(CipherKey::Aead { tfm, tag_len }) = &self.key else { return Err(Errno::ENOKEY) };
        let tag_len = *tag_len;
        let used = self.tx.used();
        let tag_in = if self.enc { 0 } else { tag_len };
        if used < self.assoc_len + tag_in {
            return Err(Errno::EINVAL);
        }
        // A result that does not fit makes the request shorter.
        let full = if self.enc { used + tag_len } else { used - tag_len };
        let out_len = sink.request_len(full, rcvbuf, rules);
        sink.check(out_len)?;
        let less = full - out_len;
        let text_and_tag = used - self.assoc_len;
        if text_and_tag < less + tag_in {
            return Err(Errno::EINVAL);
        }
        let text_len = text_and_tag - less - tag_in;
        let processed = self.assoc_len + text_len + tag_in;
        let (aad, rest) = self.tx.front(processed).split_at_mut(self.assoc_len);
        let (text, tag_sent) = rest.split_at_mut(text_len);
        let nonce = &self.iv[..self.iv_len];
        let dir = if self.enc { Direction::Encrypt } else { Direction::Decrypt };
        let mut tag_made = [0u8; MAX_TAG_LEN];
        let flat = sink.flat(out_len);
        let scattered = flat.is_none();
        let done = match flat {
            Some(out) => {
                let (out_aad, out) = out.split_at_mut(aad.len());
                out_aad.copy_from_slice(aad);
                let (out_text, out_tag) = out.split_at_mut(text_len);
                let data = Data::Flat(InOutBuf::new(text, out_text).expect("both have this length"));
                tfm.one(dir, nonce, &[aad], data, if self.enc { out_tag } else { tag_sent })
            }
            None => {
                let tag = if self.enc { &mut tag_made[..tag_len] } else { tag_sent };
                tfm.one(dir, nonce, &[aad], Data::from(&mut *text), tag)
            }
        };
        if scattered {
            if done.is_ok() {
                sink.write(aad);
                sink.write(text);
                sink.write(&tag_made[..out_len - aad.len() - text_len]);
            } else {
                sink.skip(out_len);
            }
        }
        self.consume(processed);
        self.end(done).map(|()| out_len)
    }
}

impl Drop for CipherOp {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

/// Sends to a locked operation.
#[inline(always)]
pub(super) fn send<L: RawMutex>(
    common: &Common,
    task: &dyn Task,
    mut state: MutexGuard<'_, L, Keyed<CipherOp>>,
    command: Option<Command<'_>>,
    msg: &SendMsg<'_>,
) -> Result<usize, Errno> {
    let limit = || common.options.snd_pages_len();
    let lend_pages = msg.spliced && common.sys.rules().splice_pages;
    let mut source = Source::new(msg.data);
    let mut copied = 0;
    let mut failed = None;
    state.op.begin_send(command)?;
    let failures = state.op.failures;
    if msg.unreadable > 0 {
        source.cut(state.op.tx.before_fault(source.left));
    }
    loop {
        let taken = state.op.tx.fill(&mut source, limit(), lend_pages);
        copied += taken;
        if source.left == 0 && msg.unreadable > 0 {
            let tx = &state.op.tx;
            if tx.in_page() || tx.writable(limit()) {
                failed = Some(Errno::EFAULT);
                break;
            }
        } else if source.left == 0 {
            state.op.more = msg.flags & MSG_MORE != 0;
            break;
        }
        if taken > 0 {
            continue;
        }
        if msg.flags & MSG_DONTWAIT != 0 {
            failed = Some(Errno::EAGAIN);
            break;
        }
        // A receiver may be waiting for what has been queued so far.
        common.change.tell(common.sys.host());
        state.op.write = true;
        let slept =
            common.change.wait_until(task, &mut state, |s| s.op.failures != failures || s.op.tx.writable(limit()));
        state.op.write = false;
        if state.op.failures != failures {
            // The beginning of the message is lost.
            failed = Some(Errno::EIO);
            break;
        }
        if let Err(e) = slept {
            failed = Some(e);
            break;
        }
    }
    common.change.tell(common.sys.host());
    match failed {
        Some(e) if copied == 0 || e == Errno::EIO => Err(e),
        _ => Ok(copied),
    }
}

/// Receives from a locked operation.
#[inline(always)]
pub(super) fn recv<L: RawMutex>(
    common: &Common,
    task: &dyn Task,
    mut state: MutexGuard<'_, L, Keyed<CipherOp>>,
    sink: &mut Sink<'_, '_>,
    dont_wait: bool,
) -> Result<usize, Errno> {
    let min = state.op.min_len();
    let mut total = 0;
    let mut outcome = Ok(());
    while sink.left > 0 {
        if !state.op.ready(min) {
            let waited = match dont_wait {
                true => Err(Errno::EAGAIN),
                false => common.change.wait_until(task, &mut state, |s| s.op.ready(min)),
            };
            if waited.is_err() {
                outcome = waited;
                break;
            }
        }
        match state.op.crypt(sink, common.options.rcv_pages_len(), common.sys.rules()) {
            Ok(0) => break,
            Ok(len) => total += len,
            Err(e) => {
                outcome = Err(e);
                break;
            }
        }
    }
    common.change.tell(common.sys.host());
    match outcome {
        // Bytes already received take precedence over an error, except for a forged text, and for a driver that has failed:
        // nobody would miss what lies between those bytes and the next ones.
        Err(e) if total == 0 || (e == Errno::EBADMSG && state.op.aead) || e == Errno::EIO => Err(e),
        _ => Ok(total),
    }
}
