//! AF_ALG sockets.
//!
//! A socket is created, bound to an algorithm and given a key; accepting it yields operation sockets, which take data
//! by sendmsg and give results by recvmsg (`Documentation/crypto/userspace-if.rst`). The two kinds are one type, as
//! they are one kind of descriptor to their user.
//!
//! Every method takes `&self` and locks inside, so that one socket serves all threads and processes that have it.
//! Dropping the last reference to an operation socket releases its hold on the socket that it was accepted from.

mod cipher;
mod common;
mod error;
mod hash;
mod iov;
mod keyed;
mod message;
mod op;
mod rng;
mod tfm;
mod tx;
mod wait;
mod work;

use crate::catalog::kind_named;
use crate::host::{Call, Event, KeyringKey, Task};
use crate::image::{Malformed, Reader, Writer};
use crate::options::Options;
use crate::system::System;
use common::Common;
use hash::HashOp;
use iov::Sink;
use keyed::Keyed;
use lock_api::{Mutex, RawMutex};
pub use message::{Received, SendMsg};
use op::OpSocket;
use sealane_abi::if_alg::{
    ALG_SET_AEAD_AUTHSIZE, ALG_SET_DRBG_ENTROPY, ALG_SET_KEY, ALG_SET_KEY_BY_KEY_SERIAL, AlgAddress, Control,
};
use sealane_abi::poll::PollMask;
use sealane_abi::socket::{
    AF_ALG, MSG_DONTWAIT, MSG_MORE, SOCK_SEQPACKET, SOCK_TYPE_MASK, SOCKADDR_STORAGE_LEN, SOL_ALG, SOL_SOCKET,
};
use sealane_abi::{Caller, Errno};
use sealane_crypto::Kind;
use std::sync::Arc;
use tfm::{Bound, Label, TfmSocket};
pub(crate) use wait::Change;
pub use wait::Watch;
use work::Work;

/// The depth of the stack to which operations reach, in bytes. Each of them has as much stack.
const OPERATION_LEN: usize = 4 << 10;

/// One AF_ALG socket: a transform, or an operation that was accepted from one.
pub struct Socket<L: RawMutex> {
    common: Common,
    body: Body<L>,
}

/// A transform socket apart from its descriptors: it lives on in its operations.
pub struct Family<L: RawMutex> {
    sys: Arc<System>,
    tfm: Arc<TfmSocket<L>>,
}

impl<L: RawMutex> Family<L> {
    /// The operations of this process that were accepted from it: all, and those without a key.
    #[must_use]
    pub fn counts(&self) -> [u32; 2] {
        self.tfm.counts()
    }

    /// Says how many operations other processes have, as [`Self::counts`].
    pub fn set_others(&self, counts: [u32; 2]) {
        self.tfm.set_others(counts);
    }

    /// Writes its algorithm and key into an image.
    pub fn save(&self, image: &mut Writer) {
        self.tfm.save(image);
    }

    /// Takes its algorithm and key from an image of a copy that another process has.
    ///
    /// # Errors
    /// [`Malformed`]; the state is then partly that of the image.
    pub fn load(&self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        self.tfm.load(&self.sys, image)
    }
}

#[expect(clippy::large_enum_variant, reason = "most sockets are operations, and each is in an Arc already")]
enum Body<L: RawMutex> {
    Tfm(Arc<TfmSocket<L>>),
    Op(OpSocket<L>),
}

impl<L: RawMutex> Socket<L> {
    /// A new socket (`socket(AF_ALG, type_, protocol)`); `SOCK_NONBLOCK` and `SOCK_CLOEXEC` in `type_` are ignored.
    ///
    /// # Errors
    /// [`Errno::ESOCKTNOSUPPORT`] unless the type is `SOCK_SEQPACKET`, [`Errno::EPROTONOSUPPORT`] unless the protocol is 0.
    pub fn create(sys: &Arc<System>, type_: i32, protocol: i32) -> Result<Arc<Self>, Errno> {
        if type_ & SOCK_TYPE_MASK != SOCK_SEQPACKET {
            return Err(Errno::ESOCKTNOSUPPORT);
        }
        if protocol != 0 {
            return Err(Errno::EPROTONOSUPPORT);
        }
        Ok(Self::with_body(sys, Body::Tfm(Arc::new(TfmSocket::new()))))
    }

    fn with_body(sys: &Arc<System>, body: Body<L>) -> Arc<Self> {
        let options = Options::new(sys.host().net_defaults(), AF_ALG, SOCK_SEQPACKET, 0);
        Arc::new(Socket { common: Common { sys: sys.clone(), options, change: Change::new() }, body })
    }

    /// Binds to an algorithm. `addr` is a `struct sockaddr_alg` of any length.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] for a malformed address, [`Errno::ENOENT`] for an algorithm that is not there or not allowed,
    /// [`Errno::EBUSY`] when an operation has been accepted, [`Errno::EOPNOTSUPP`] on an operation socket.
    pub fn bind(&self, task: &dyn Task, addr: &[u8], caller: Caller) -> Result<(), Errno> {
        if addr.len() > SOCKADDR_STORAGE_LEN {
            return Err(Errno::EINVAL);
        }
        let Body::Tfm(tfm) = &self.body else { return Err(Errno::EOPNOTSUPP) };
        let address = AlgAddress::parse(addr)?;
        let kind = kind_named(address.type_);
        let name = core::str::from_utf8(address.name).unwrap_or("");
        let done = kind.ok_or(Errno::ENOENT).and_then(|kind| {
            // Older kernels let the flag select algorithms that only the kernel can reach; there are none here.
            if self.common.sys.rules().driver_only && address.feat & address.mask != 0 {
                return Err(Errno::ENOENT);
            }
            let alg = self.common.sys.resolve(kind, name, caller)?;
            tfm.bind(Bound::new(kind, name, alg, &self.common.sys)?)
        });
        self.tell(task, Call::Bind, done.map(|()| 0), || (kind, name, None));
        done
    }

    /// setsockopt. `val` is `None` for a NULL pointer, and `len` the length that was passed with it: the tag length of
    /// `ALG_SET_AEAD_AUTHSIZE` is passed so.
    ///
    /// # Errors
    /// As the kernel's: [`Errno::EBUSY`] while an operation with a key lives, [`Errno::ENOPROTOOPT`], [`Errno::ENOSYS`] for
    /// a key on an unkeyed hash, [`Errno::EINVAL`] for lengths, [`Errno::EOPNOTSUPP`] on an operation socket. Of a home of
    /// keys [`Errno::EIO`] when it does not answer, [`Errno::ENOKEY`], [`Errno::EACCES`], [`Errno::EKEYEXPIRED`],
    /// [`Errno::EKEYREVOKED`], [`Errno::EKEYREJECTED`], and [`Errno::EINVAL`] for a named key of another algorithm.
    pub fn setsockopt(
        &self,
        task: &dyn Task,
        level: i32,
        name: i32,
        val: Option<&[u8]>,
        len: usize,
        caller: Caller,
    ) -> Result<(), Errno> {
        if level == SOL_SOCKET {
            return self.common.options.set(name, val, len, caller);
        }
        let Body::Tfm(tfm) = &self.body else { return Err(Errno::EOPNOTSUPP) };
        let mut state = tfm.lock_idle()?;
        let bound = state.as_mut().filter(|_| level == SOL_ALG).ok_or(Errno::ENOPROTOOPT)?;
        let optmem_max = self.common.options.limits().optmem_max as usize;
        match name {
            ALG_SET_KEY | ALG_SET_KEY_BY_KEY_SERIAL if name == ALG_SET_KEY || self.common.sys.rules().key_by_serial => {
                let (sys, keep) = (&*self.common.sys, tfm.is_shared());
                let done = if name == ALG_SET_KEY {
                    match val {
                        _ if len >= optmem_max => Err(Errno::ENOMEM),
                        _ if len == 0 => bound.set_key(Some(task), &[], sys, keep),
                        Some(key) => bound.set_key(Some(task), key, sys, keep),
                        None => Err(Errno::EFAULT),
                    }
                } else {
                    self.key_by_serial(task, val, len, bound.has_home()).and_then(|key| match key {
                        KeyringKey::Payload(key) if key.len() >= optmem_max => Err(Errno::ENOMEM),
                        KeyringKey::Payload(key) => bound.set_key(Some(task), &key, sys, keep),
                        KeyringKey::Named(name) => {
                            let name = sys.host().key_home().and_then(|home| home.name(&name)).ok_or(Errno::ENOKEY)?;
                            bound.set_named(task, name, sys, keep)
                        }
                    })
                };
                let label = bound.label.clone();
                drop(state);
                self.tell(task, Call::SetKey, done.map(|()| len), || (Some(label.kind), &label.name, Some(&label)));
                done
            }
            ALG_SET_AEAD_AUTHSIZE => bound.set_tag_len(len),
            ALG_SET_DRBG_ENTROPY if self.common.sys.rules().drbg_entropy => bound.set_entropy(val, len, caller),
            _ => Err(Errno::ENOPROTOOPT),
        }
    }

    fn key_by_serial(&self, task: &dyn Task, val: Option<&[u8]>, len: usize, names: bool) -> Result<KeyringKey, Errno> {
        if len != 4 {
            return Err(Errno::EINVAL);
        }
        let serial = val.and_then(<[u8]>::first_chunk).ok_or(Errno::EFAULT)?;
        task.keyring_key(i32::from_ne_bytes(*serial), names)
    }

    /// getsockopt: writes at most `out.len()` bytes and returns how many.
    ///
    /// # Errors
    /// [`Errno::ENOPROTOOPT`] for an option of SOL_SOCKET that is not there, [`Errno::EOPNOTSUPP`] for other levels.
    pub fn getsockopt(&self, level: i32, name: i32, out: &mut [u8]) -> Result<usize, Errno> {
        match level {
            SOL_SOCKET => self.common.options.get(name, out),
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    /// Accepts an operation. A hash operation can be accepted from again: its copy continues the same message.
    ///
    /// # Errors
    /// [`Errno::EINVAL`] before bind, [`Errno::ENOKEY`] from an operation that has no key, [`Errno::EOPNOTSUPP`] from
    /// operations other than hashes.
    pub fn accept(self: &Arc<Self>, task: &dyn Task) -> Result<Arc<Self>, Errno> {
        let (done, label) = match &self.body {
            Body::Tfm(tfm) => self.accept_from(tfm, None),
            Body::Op(op) => match &op.work {
                Work::Hash(hash) => {
                    let copy = op.lock_keyed(hash, Bound::give_hash_key)?.op.copy();
                    self.wipe_traces();
                    self.accept_from(&op.parent, Some(copy))
                }
                // Only hashes have an accept of their own; the others refuse before they look for a key.
                _ => return Err(Errno::EOPNOTSUPP),
            },
        };
        let kind = label.as_ref().map(|l| l.kind);
        let outcome = done.as_ref().map(|_| 0).map_err(|e| *e);
        self.tell(task, Call::Accept, outcome, || (kind, label.as_ref().map_or("", |l| &l.name), label.as_deref()));
        done
    }

    #[allow(clippy::type_complexity, reason = "a result and whom it concerns")]
    fn accept_from(
        &self,
        tfm: &Arc<TfmSocket<L>>,
        copy: Option<HashOp>,
    ) -> (Result<Arc<Self>, Errno>, Option<Arc<Label>>) {
        let state = tfm.lock();
        let Some(bound) = &*state else { return (Err(Errno::EINVAL), None) };
        let nokey = bound.needs_key();
        let work = match copy {
            Some(op) => Work::Hash(Mutex::new(Keyed { nokey, op })),
            None => bound.operation(),
        };
        tfm.hold(nokey);
        let label = bound.label.clone();
        let op = OpSocket { parent: tfm.clone(), label: label.clone(), work };
        (Ok(Self::with_body(&self.common.sys, Body::Op(op))), Some(label))
    }

    /// Sends data and control to an operation; returns how many bytes were taken.
    ///
    /// # Errors
    /// As the kernel's: [`Errno::ENOKEY`], [`Errno::EINVAL`], [`Errno::EAGAIN`], [`Errno::EBUSY`] while another sender waits,
    /// [`Errno::EINTR`], [`Errno::EOPNOTSUPP`] on transforms and generators.
    pub fn sendmsg(&self, task: &dyn Task, msg: &SendMsg<'_>) -> Result<usize, Errno> {
        if msg.control.len() >= self.common.options.limits().optmem_max as usize {
            return Err(Errno::ENOBUFS);
        }
        let Body::Op(op) = &self.body else { return Err(Errno::EOPNOTSUPP) };
        let done = self.send_to(task, op, msg);
        if matches!(op.work, Work::Hash(_)) {
            self.wipe_traces();
        }
        self.tell(task, Call::Send, done, || (Some(op.label.kind), &op.label.name, Some(&op.label)));
        done
    }

    /// Overwrites what an operation has left of a guarded key in registers, and in the part of the stack that it has used.
    #[inline]
    fn wipe_traces(&self) {
        if self.common.sys.keys_are_guarded() {
            sealane_crypto::wipe::wipe_traces(OPERATION_LEN);
        }
    }

    fn send_to(&self, task: &dyn Task, op: &OpSocket<L>, msg: &SendMsg<'_>) -> Result<usize, Errno> {
        match &op.work {
            Work::Hash(hash) => {
                let mut state = op.lock_keyed(hash, Bound::give_hash_key)?;
                let more = msg.flags & MSG_MORE != 0;
                match msg.unreadable {
                    0 => state.op.send(msg.data, more),
                    _ => state.op.fault(msg.data.iter().map(|d| d.len()).sum(), more, self.common.sys.rules()),
                }
            }
            Work::Rng(rng) => rng.lock().send(msg.data, msg.unreadable),
            Work::Cipher(cipher) => {
                let state = op.lock_keyed(cipher, Bound::give_cipher_key)?;
                let command = match msg.control {
                    [] => None,
                    bytes => Some(state.op.check(Control::parse(bytes)?)?),
                };
                cipher::send(&self.common, task, state, command, msg)
            }
        }
    }

    /// Receives a result into the pieces of `data`.
    ///
    /// A receive waits until all of `data` is filled or the text ends with the send buffer empty; `MSG_DONTWAIT`
    /// returns what there is. The other flags are ignored, `MSG_PEEK` too.
    ///
    /// # Errors
    /// As the kernel's: [`Errno::ENOKEY`], [`Errno::EINVAL`], [`Errno::EBADMSG`], [`Errno::EAGAIN`], [`Errno::EINTR`],
    /// [`Errno::EOPNOTSUPP`] on transforms.
    pub fn recvmsg(&self, task: &dyn Task, data: &mut [&mut [u8]], flags: u32) -> Result<Received, Errno> {
        self.recvmsg_faulty(task, data, 0, flags)
    }

    /// Receives as [`Self::recvmsg`] does, where the caller has named `unwritable` bytes behind `data` that cannot be
    /// written.
    ///
    /// # Errors
    /// As [`Self::recvmsg`], and [`Errno::EFAULT`] when those bytes are come to.
    pub fn recvmsg_faulty(
        &self,
        task: &dyn Task,
        data: &mut [&mut [u8]],
        unwritable: usize,
        flags: u32,
    ) -> Result<Received, Errno> {
        let Body::Op(op) = &self.body else { return Err(Errno::EOPNOTSUPP) };
        let mut sink = Sink::new(data, unwritable);
        let done = self.recv_from(task, op, &mut sink, flags);
        self.wipe_traces();
        let outcome = done.map(|r| r.len);
        self.tell(task, Call::Recv, outcome, || (Some(op.label.kind), &op.label.name, Some(&op.label)));
        done
    }

    fn recv_from(
        &self,
        task: &dyn Task,
        op: &OpSocket<L>,
        sink: &mut Sink<'_, '_>,
        flags: u32,
    ) -> Result<Received, Errno> {
        let len = match &op.work {
            Work::Hash(hash) => return op.lock_keyed(hash, Bound::give_hash_key)?.op.recv(sink),
            Work::Rng(rng) => rng.lock().recv(sink)?,
            Work::Cipher(cipher) => {
                let state = op.lock_keyed(cipher, Bound::give_cipher_key)?;
                cipher::recv(&self.common, task, state, sink, flags & MSG_DONTWAIT != 0)?
            }
        };
        Ok(Received { len, flags: 0 })
    }

    /// The events that poll reports. Transforms, hashes and generators never report any.
    pub fn poll(&self) -> PollMask {
        match &self.body {
            Body::Tfm(_) => PollMask::none(),
            Body::Op(op) => match &op.work {
                Work::Cipher(cipher) => cipher.lock().op.poll(self.common.options.snd_pages_len()),
                _ => PollMask::none(),
            },
        }
    }

    /// Watches for changes of what [`Self::poll`] reports, for a host that waits: take a watch, poll, then sleep while
    /// its word has not changed.
    pub fn watch(&self) -> Watch<'_> {
        self.common.change.watch()
    }

    /// Begins to keep what other processes that have the socket need, or ends it.
    pub fn share(&self, on: bool) {
        match &self.body {
            Body::Tfm(tfm) => tfm.share(on),
            Body::Op(op) => op.work.share(on),
        }
    }

    /// Writes its state into an image: that of a transform without its algorithm and key, which its [`Family`] writes.
    pub fn save(&self, image: &mut Writer) {
        self.common.options.save(image);
        if let Body::Op(op) = &self.body {
            op.save(image);
        }
    }

    /// Takes its state from an image of a copy that another process has. An operation's family comes first.
    /// `sender_gone`: whether the process is gone whose send waited for room when the image was written.
    ///
    /// # Errors
    /// [`Malformed`]; the state is then partly that of the image.
    pub fn load(&self, image: &mut Reader<'_>, sender_gone: &dyn Fn() -> bool) -> Result<(), Malformed> {
        self.common.options.load(image)?;
        match &self.body {
            Body::Tfm(_) => Ok(()),
            Body::Op(op) => op.load(image, sender_gone),
        }
    }

    /// Its transform: itself, or that which it was accepted from.
    pub fn family(&self) -> Family<L> {
        let tfm = match &self.body {
            Body::Tfm(tfm) => tfm,
            Body::Op(op) => &op.parent,
        };
        Family { sys: self.common.sys.clone(), tfm: tfm.clone() }
    }

    /// Whether it is an operation that draws from its transform: it has no key yet, or is a generator.
    pub fn leans(&self) -> bool {
        match &self.body {
            Body::Tfm(_) => false,
            Body::Op(op) => op.work.leans(),
        }
    }

    /// Whether it was accepted from another socket.
    pub fn is_op(&self) -> bool {
        matches!(self.body, Body::Op(_))
    }

    /// The type that it is bound to.
    pub fn kind(&self) -> Option<Kind> {
        match &self.body {
            Body::Tfm(tfm) => tfm.lock().as_ref().map(|b| b.label.kind),
            Body::Op(op) => Some(op.label.kind),
        }
    }

    /// The algorithm as it was named in bind.
    pub fn name(&self) -> Option<String> {
        match &self.body {
            Body::Tfm(tfm) => tfm.lock().as_ref().map(|b| b.label.name.clone()),
            Body::Op(op) => Some(op.label.name.clone()),
        }
    }

    /// The result of connect, listen, shutdown, getsockname, getpeername, socketpair and mmap.
    ///
    /// # Errors
    /// [`Errno::EOPNOTSUPP`], always.
    pub fn unsupported(&self) -> Result<(), Errno> {
        Err(Errno::EOPNOTSUPP)
    }

    fn tell<'a>(
        &self,
        task: &dyn Task,
        call: Call,
        done: Result<usize, Errno>,
        whom: impl FnOnce() -> (Option<Kind>, &'a str, Option<&'a Label>),
    ) {
        if let Some(observer) = task.observer() {
            let (kind, name, label) = whom();
            let driver = label.map_or("", |l| &l.driver);
            observer.event(&Event { call, kind, name, driver, bytes: done.unwrap_or(0), errno: done.err() });
        }
    }
}
