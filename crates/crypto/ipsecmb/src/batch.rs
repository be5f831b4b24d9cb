//! Batches: collect operations, join their pieces, order them, and run them in the library.

use crate::ffi::{self, MAX_LANE_LEN, MAX_OPS, MbAlg, OVER_READ, Op};
use crate::manager::{self, JOIN_LEN, Manager};
use arrayvec::ArrayVec;
use core::mem::MaybeUninit;
use sealane_crypto::hash::HashOp;
use sealane_crypto::mac::{MAX_TAG_LEN, MacOp, NonceMacOp};
use sealane_crypto::wipe::wipe_guarded_traces;
use sealane_crypto::{OpError, Status};

/// The smallest page of this architecture.
const PAGE: usize = 4096;

/// The depth of the stack to which the library's scheduler and its kernels reach. A batch itself takes more, and has no key.
const CALL_DEPTH: usize = 8 << 10;

/// The entry of the library that runs a batch.
#[derive(Clone, Copy)]
pub(crate) enum Entry {
    /// The scheduler: several operations at a time.
    Jobs(MbAlg),
    /// GCM, one operation after another.
    Gcm,
}

/// Up to [`MAX_OPS`] operations.
pub(crate) struct Batch<'m> {
    manager: &'m mut Manager,
    ops: ArrayVec<Op, MAX_OPS>,
    joined: usize,
}

impl<'m> Batch<'m> {
    pub(crate) fn new(manager: &'m mut Manager) -> Self {
        Batch { manager, ops: ArrayVec::new(), joined: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.ops.len()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.ops.is_full()
    }

    /// The address of `pieces` in one piece, valid until [`Self::run`] returns: the address of a single piece itself,
    /// otherwise that of a copy. `None`: no room left.
    pub(crate) fn join(&mut self, pieces: &[&[u8]]) -> Option<*const u8> {
        match pieces {
            [] => Some(Op::EMPTY.src),
            [only] => Some(only.as_ptr()),
            _ => self.copy(pieces),
        }
    }

    /// As [`Self::join`], for a function that reads up to [`OVER_READ`] bytes past the end of a message. It ignores
    /// their values, but the page on which they lie may not be mapped.
    fn join_for_over_read(&mut self, pieces: &[&[u8]]) -> Option<*const u8> {
        match pieces {
            [only] if !only.is_empty() => {
                let end_in_page = only.as_ptr_range().end.addr() % PAGE;
                if end_in_page == 0 || PAGE - end_in_page < OVER_READ { self.copy(pieces) } else { Some(only.as_ptr()) }
            }
            _ => self.copy(pieces),
        }
    }

    fn copy(&mut self, pieces: &[&[u8]]) -> Option<*const u8> {
        let len: usize = pieces.iter().map(|p| p.len()).sum();
        if len > JOIN_LEN - self.joined {
            return None;
        }
        // SAFETY: joined <= JOIN_LEN, the length of the buffer.
        let start = unsafe { self.manager.join_ptr().add(self.joined) };
        let mut at = start;
        for piece in pieces {
            // SAFETY: the pieces together fit, as checked above, and nothing else points into the buffer's free part.
            unsafe {
                core::ptr::copy_nonoverlapping(piece.as_ptr(), at, piece.len());
                at = at.add(piece.len());
            }
        }
        self.joined += len;
        Some(start)
    }

    /// Adds an operation.
    ///
    /// # Safety
    /// Its pointers must be valid for the reads and writes of its algorithm until [`Self::run`] has returned, and the
    /// algorithm must accept its lengths, which the library does not check.
    pub(crate) unsafe fn push(&mut self, op: Op) {
        self.ops.push(op);
    }

    /// Runs all operations, and returns them with `done` set.
    pub(crate) fn run(&mut self, entry: Entry, encrypt: bool) -> &[Op] {
        let n = u32::try_from(self.ops.len()).expect("at most MAX_OPS");
        let ops = self.ops.as_mut_ptr();
        let mgr = self.manager.ptr();
        match entry {
            _ if n == 0 => {}
            // SAFETY: the manager is initialised and not in use elsewhere; the operations are as `push` demands.
            Entry::Gcm => unsafe { ffi::slmb_gcm(mgr, encrypt.into(), ops, n) },
            Entry::Jobs(alg) => {
                let order = order(&self.ops);
                // SAFETY: as above, and `order` is a permutation of 0..n.
                unsafe { ffi::slmb_run(mgr, alg as u32, encrypt.into(), ops, order.as_ptr(), n) }
            }
        }
        if n > 0 {
            // The library wipes what it knows of, and not each key on the stack.
            wipe_guarded_traces(CALL_DEPTH);
        }
        if self.joined > 0 {
            // SAFETY: it is the used part of the buffer, which nothing reads any more.
            manager::wipe(unsafe { core::slice::from_raw_parts_mut(self.manager.join_ptr(), self.joined) });
            self.joined = 0;
        }
        &self.ops
    }
}

/// The order in which operations are submitted: longest first when lengths differ, because a long message that starts
/// late leaves the other lanes empty.
fn order(ops: &[Op]) -> [u8; MAX_OPS] {
    const AS_THEY_ARE: [u8; MAX_OPS] = {
        let mut order = [0; MAX_OPS];
        let mut i = 0;
        while i < MAX_OPS {
            order[i] = i as u8;
            i += 1;
        }
        order
    };
    let mut order = AS_THEY_ARE;
    if ops.iter().any(|op| op.len != ops[0].len) {
        order[..ops.len()].sort_unstable_by_key(|i| core::cmp::Reverse(ops[usize::from(*i)].len));
    }
    order
}

/// An operation that turns a message into a few bytes.
pub(crate) trait Digesting {
    fn data(&self) -> &[&[u8]];
    fn out(&mut self) -> &mut [u8];
    fn set_status(&mut self, status: Status);
}

macro_rules! digesting {
    ($op:ident, $out:ident) => {
        impl Digesting for $op<'_> {
            fn data(&self) -> &[&[u8]] {
                self.data
            }
            fn out(&mut self) -> &mut [u8] {
                self.$out
            }
            fn set_status(&mut self, status: Status) {
                self.status = status;
            }
        }
    };
}

digesting!(HashOp, digest);
digesting!(MacOp, tag);
digesting!(NonceMacOp, tag);

/// The parameters of a hash or MAC in the library.
pub(crate) struct Digester {
    pub(crate) entry: Entry,
    /// Length of the full tag or digest, which the library always writes.
    pub(crate) full: usize,
    /// The shortest message that the library takes.
    pub(crate) min_len: usize,
    /// Whether it reads past the end of a message, by less than [`OVER_READ`] bytes.
    pub(crate) over_reads: bool,
}

impl Digester {
    /// Digests each message of `ops`. `keys` returns an operation's key pointers; where it returns `None`, and for
    /// lengths that the library refuses, `other` runs the operation.
    ///
    /// # Safety
    /// The pointers that `keys` returns must be valid for the reads of the algorithm while the operation is borrowed.
    pub(crate) unsafe fn run<T: Digesting>(
        &self,
        ops: &mut [T],
        keys: impl Fn(&T) -> Option<Op>,
        other: impl Fn(&mut T),
    ) {
        let ran = manager::with(|manager| {
            let mut rest = &mut *ops;
            while !rest.is_empty() {
                // SAFETY: the caller keeps the same contract.
                let taken = unsafe { self.run_some(manager, rest, &keys, &other) };
                rest = &mut rest[taken..];
            }
        });
        if let Err(e) = ran {
            for op in ops {
                op.set_status(Err(e));
            }
        }
    }

    /// Digests as many of the first `ops` as one batch takes, and returns their number.
    ///
    /// # Safety
    /// As for [`Self::run`].
    unsafe fn run_some<T: Digesting>(
        &self,
        manager: &mut Manager,
        ops: &mut [T],
        keys: &impl Fn(&T) -> Option<Op>,
        other: &impl Fn(&mut T),
    ) -> usize {
        let mut batch = Batch::new(manager);
        let mut which: ArrayVec<u32, MAX_OPS> = ArrayVec::new();
        // Buffers for truncated tags, because the library writes full ones. They are not initialised: 64 would cost a
        // burst of one too much.
        let mut tags = [const { MaybeUninit::<[u8; MAX_TAG_LEN]>::uninit() }; MAX_OPS];
        let tags = tags.as_mut_ptr().cast::<[u8; MAX_TAG_LEN]>();
        let mut taken = 0;
        for (i, op) in ops.iter_mut().enumerate() {
            let len: usize = op.data().iter().map(|d| d.len()).sum();
            let Some(mut mb) = (self.min_len..=MAX_LANE_LEN).contains(&len).then(|| keys(op)).flatten() else {
                other(op);
                taken = i + 1;
                continue;
            };
            if batch.is_full() {
                break;
            }
            let message = if self.over_reads { batch.join_for_over_read(op.data()) } else { batch.join(op.data()) };
            let Some(message) = message else { break };
            match self.entry {
                Entry::Jobs(_) => (mb.src, mb.len) = (message, len as u64),
                Entry::Gcm => (mb.aad, mb.aad_len) = (message, len as u64),
            }
            let out = op.out();
            mb.tag = if out.len() == self.full {
                out.as_mut_ptr()
            } else {
                // SAFETY: `tags` has MAX_OPS elements, and the batch is not full.
                unsafe { tags.add(batch.len()) }.cast()
            };
            which.push(u32::try_from(i).expect("fewer than 2^32 operations"));
            // SAFETY: the message and the key outlive this function, the tag has room for `full` bytes, and the length
            // is in the library's range.
            unsafe { batch.push(mb) };
            taken = i + 1;
        }
        for (mb, i) in batch.run(self.entry, true).iter().zip(&which) {
            let op = &mut ops[*i as usize];
            if mb.done == 0 {
                op.set_status(Err(OpError::Driver));
                continue;
            }
            let out = op.out();
            if out.len() != self.full {
                // SAFETY: the library has written `full` bytes there, and nothing else points to them.
                let tag = unsafe { core::slice::from_raw_parts_mut(mb.tag, self.full) };
                let n = out.len().min(self.full);
                out[..n].copy_from_slice(&tag[..n]);
                manager::wipe(tag);
            }
            op.set_status(Ok(()));
        }
        taken
    }
}
