//! Generators (`crypto/algif_rng.c`). All operations of one transform draw from the same generator.

use super::error::key_errno;
use super::iov::{Sink, Source};
use crate::image::{Malformed, Reader, Writer};
use lock_api::{Mutex, RawMutex};
use sealane_abi::{Caller, Errno};
use sealane_crypto::rng::RngState;
use std::sync::Arc;
use zeroize::{Zeroize, Zeroizing};

/// The most that one receive returns, and the most additional input, in bytes.
const MAX_LEN: usize = 128;

/// A generator that several operations draw from.
pub(super) struct SharedRng<L: RawMutex> {
    state: Arc<Mutex<L, Box<dyn RngState>>>,
    /// Its entropy has been replaced for a test; operations accepted from now on take additional input.
    cavp: bool,
}

impl<L: RawMutex> SharedRng<L> {
    pub(super) fn new(state: Box<dyn RngState>) -> Self {
        SharedRng { state: Arc::new(Mutex::new(state)), cavp: false }
    }

    pub(super) fn seed(&self, seed: &[u8]) -> Result<(), Errno> {
        self.state.lock().seed(seed).map_err(key_errno)
    }

    /// Replaces the entropy source by the caller's bytes (`CONFIG_CRYPTO_USER_API_RNG_CAVP`).
    pub(super) fn set_entropy(&mut self, val: Option<&[u8]>, len: usize, caller: Caller) -> Result<(), Errno> {
        if !caller.privileged {
            return Err(Errno::EACCES);
        }
        if self.cavp {
            return Err(Errno::EINVAL);
        }
        if len > MAX_LEN {
            return Err(Errno::EMSGSIZE);
        }
        if len == 0 {
            return Ok(());
        }
        self.state.lock().set_entropy(val.ok_or(Errno::EFAULT)?).map_err(key_errno)?;
        self.cavp = true;
        Ok(())
    }
}

/// An operation on a generator.
pub(super) struct RngOp<L: RawMutex> {
    state: Arc<Mutex<L, Box<dyn RngState>>>,
    /// Additional input for the next receive; `None` where it is not taken.
    additional: Option<Zeroizing<Vec<u8>>>,
}

impl<L: RawMutex> RngOp<L> {
    pub(super) fn new(rng: &SharedRng<L>) -> Self {
        RngOp { state: rng.state.clone(), additional: rng.cavp.then(|| Zeroizing::new(Vec::new())) }
    }

    /// Writes its state into an image. The generator is not in it: its copies in other processes differ, as each request
    /// takes fresh entropy.
    pub(super) fn save(&self, image: &mut Writer) {
        image.option(self.additional.as_ref().map(|a| &a[..]));
    }

    /// Takes its state from an image.
    pub(super) fn load(&mut self, image: &mut Reader<'_>) -> Result<(), Malformed> {
        match (&mut self.additional, image.option()?) {
            (Some(additional), Some(bytes)) if bytes.len() <= MAX_LEN => {
                additional.zeroize();
                additional.extend_from_slice(bytes);
                Ok(())
            }
            (None, None) => Ok(()),
            _ => Err(Malformed),
        }
    }

    pub(super) fn send(&mut self, data: &[&[u8]], unreadable: usize) -> Result<usize, Errno> {
        let Some(additional) = &mut self.additional else { return Err(Errno::EOPNOTSUPP) };
        let mut source = Source::new(data);
        let len = source.left;
        if len + unreadable > MAX_LEN {
            return Err(Errno::EMSGSIZE);
        }
        additional.zeroize();
        if unreadable > 0 {
            return Err(Errno::EFAULT);
        }
        source.append_to(additional, len);
        Ok(len)
    }

    pub(super) fn recv(&mut self, sink: &mut Sink<'_, '_>) -> Result<usize, Errno> {
        let len = sink.left.min(MAX_LEN);
        let mut out = [0u8; MAX_LEN];
        let additional: &[u8] = self.additional.as_ref().map_or(&[], |a| &a[..]);
        // The kernel's generators answer so when they have not been seeded.
        let done = if len == 0 {
            Ok(())
        } else {
            self.state.lock().generate(additional, &mut out[..len]).map_err(|_| Errno::EINVAL)
        };
        if let Some(additional) = &mut self.additional {
            additional.zeroize();
        }
        let done = done.and_then(|()| sink.check(len));
        if done.is_ok() {
            sink.write(&out[..len]);
        }
        out.zeroize();
        done.map(|()| len)
    }
}
