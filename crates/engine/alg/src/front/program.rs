//! The program that makes a call.

use super::object::Object;
use crate::{Received, Task};
use lock_api::RawMutex;
use sealane_abi::{Caller, Errno};

/// The place of a call's data in the program's memory.
#[derive(Debug, Clone, Copy)]
pub enum Buffers {
    /// One buffer.
    One {
        /// Its address.
        at: u64,
        /// Its length in bytes.
        len: usize,
    },
    /// An array of `struct iovec`.
    Vector {
        /// Its address.
        at: u64,
        /// The number of buffers.
        count: u64,
        /// The errno for more than 1,024 buffers.
        too_many: Errno,
    },
}

/// The memory of a program.
pub trait Memory {
    /// The failure of a call.
    type Failure: From<Errno>;

    /// The longest input that [`Self::input`] takes, in bytes.
    const MAX_INPUT: usize;

    /// Copies `N` bytes.
    ///
    /// # Errors
    /// `EFAULT`.
    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Self::Failure>;

    /// Stores bytes.
    ///
    /// # Errors
    /// `EFAULT`.
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Self::Failure>;

    /// Passes `len` bytes to `then`: an address, an option, control messages.
    ///
    /// # Errors
    /// `EFAULT`.
    fn input<R>(&self, at: u64, len: usize, then: impl FnOnce(&[u8]) -> R) -> Result<R, Self::Failure>;

    /// Passes the data of a send to `then`: the readable pieces, and the number of bytes behind them that cannot be
    /// read.
    ///
    /// # Errors
    /// `EFAULT` and `EINVAL` for impossible buffers, `too_many`; the errors of `then`.
    fn gather<R>(
        &self,
        from: Buffers,
        then: impl FnOnce(&[&[u8]], usize) -> Result<R, Self::Failure>,
    ) -> Result<R, Self::Failure>;

    /// Lets `then` receive into the writable pieces; it also gets the number of bytes behind them that cannot be
    /// written.
    ///
    /// # Errors
    /// `EFAULT` and `EINVAL` for impossible buffers, `too_many`; the errors of `then`.
    fn scatter(
        &self,
        to: Buffers,
        then: impl FnOnce(&mut [&mut [u8]], usize) -> Result<Received, Self::Failure>,
    ) -> Result<Received, Self::Failure>;
}

/// A descriptor of a program, as one call finds it.
pub trait Descriptor: Memory {
    /// The lock of the object.
    type Lock: RawMutex;

    /// The object that the descriptor refers to.
    fn object(&self) -> &Object<Self::Lock>;

    /// The task that makes the call.
    fn task(&self) -> &dyn Task;

    /// Whether O_NONBLOCK is set.
    fn is_nonblocking(&self) -> bool;

    /// The privileges of the calling process.
    fn caller(&self) -> Caller;

    /// The port of a netlink socket that binds without naming one: the process id, which is also the kernel's first
    /// choice.
    fn own_port(&self) -> u32;

    /// Prepares for a change of the object: the arguments have been read, and data is about to be sent or received.
    ///
    /// # Errors
    /// A failure ends the call.
    fn begin(&self) -> Result<(), Self::Failure> {
        Ok(())
    }

    /// Updates the readiness that poll reports, after a call that may have changed it.
    fn changed(&self);

    /// Drops operations whose last user ended without closing them. Returns whether there were any.
    fn sweep(&self) -> bool;

    /// Whether a failure ends a call of several messages, however many have been served.
    fn ends_call(_failure: &Self::Failure) -> bool {
        false
    }
}
