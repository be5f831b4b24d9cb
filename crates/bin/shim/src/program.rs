//! A descriptor of this program, for the front end of the engine.

use crate::borrow::Borrow;
use crate::handle::Object;
use crate::lock::RawLock;
use crate::share::Entered;
use crate::thread::{Within, within};
use crate::{audit, share, standin, sys, user};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use sealane_engine_alg::front::{Buffers, Descriptor, Memory};
use sealane_engine_alg::{Caller, Errno, KeyringKey, Observer, Received, Task};

/// A descriptor of this program in the hands of one call.
pub(crate) struct LocalDescriptor<'a> {
    fd: c_int,
    handle: &'a Borrow,
    /// No other process changes the socket during the call.
    _entered: Entered<'a>,
    /// Memory that the call allocates belongs to the socket.
    _within: Within,
}

impl<'a> LocalDescriptor<'a> {
    /// The descriptor `fd`, which stands for `handle`.
    ///
    /// # Safety
    /// The memory of a call that is made on it must be readable or writable for as long as the call takes, unless it is
    /// refused; the kernel asks no less of a program.
    #[inline]
    pub(crate) unsafe fn new(fd: c_int, handle: &'a Borrow) -> Self {
        // Fields are dropped in the order of their declaration.
        let within = within(handle.as_ptr().cast());
        LocalDescriptor { fd, handle, _entered: Entered::new(handle), _within: within }
    }

    /// The open socket.
    #[inline]
    pub(crate) fn handle(&self) -> &'a Borrow {
        self.handle
    }

    /// Runs `f`, which may take long and does not use the socket.
    pub(crate) fn outside<T>(&self, f: impl FnOnce() -> T) -> T {
        share::outside(self.handle, f)
    }
}

/// An address as the front end has it.
#[inline]
pub(crate) fn address<T>(at: *const T) -> u64 {
    at as usize as u64
}

#[inline]
fn pointer(at: u64) -> *mut c_void {
    at as usize as *mut c_void
}

impl Memory for LocalDescriptor<'_> {
    type Failure = i32;

    const MAX_INPUT: usize = usize::MAX;

    #[inline]
    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], i32> {
        // SAFETY: the program's memory, as `new` demands.
        unsafe { user::read(pointer(at).cast()) }
    }

    #[inline]
    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), i32> {
        // SAFETY: the program's memory, as `new` demands.
        unsafe { user::bytes_mut(pointer(at), bytes.len()) }?.copy_from_slice(bytes);
        Ok(())
    }

    #[inline]
    fn input<R>(&self, at: u64, len: usize, then: impl FnOnce(&[u8]) -> R) -> Result<R, i32> {
        // SAFETY: the program's memory, as `new` demands.
        Ok(then(unsafe { user::bytes(pointer(at), len) }?))
    }

    // Each call is of one kind of buffers: its own copy of this has one branch.
    #[inline(always)]
    fn gather<R>(&self, from: Buffers, then: impl FnOnce(&[&[u8]], usize) -> Result<R, i32>) -> Result<R, i32> {
        match from {
            Buffers::One { at, len } => {
                // SAFETY: the program's memory, as `new` demands.
                let (data, unreadable) = unsafe { user::flat(pointer(at), len) }?;
                then(&[data], unreadable)
            }
            Buffers::Vector { at, count, too_many } => {
                // SAFETY: the program's memory, as `new` demands.
                let mut data = unsafe { user::gather(pointer(at).cast(), count as usize, too_many.number()) }?;
                let unreadable = data.absent;
                then(data.as_mut(), unreadable)
            }
        }
    }

    #[inline(always)]
    fn scatter(
        &self,
        to: Buffers,
        then: impl FnOnce(&mut [&mut [u8]], usize) -> Result<Received, i32>,
    ) -> Result<Received, i32> {
        match to {
            Buffers::One { at, len } => {
                // SAFETY: the program's memory, as `new` demands.
                let (data, unwritable) = unsafe { user::flat_mut(pointer(at), len) }?;
                then(&mut [data], unwritable)
            }
            Buffers::Vector { at, count, too_many } => {
                // SAFETY: the program's memory, as `new` demands.
                let mut data = unsafe { user::scatter(pointer(at).cast(), count as usize, too_many.number()) }?;
                let unwritable = data.absent;
                then(data.as_mut(), unwritable)
            }
        }
    }
}

impl Task for LocalDescriptor<'_> {
    fn wait(&self, word: &AtomicU32, seen: u32) -> Result<(), Errno> {
        match share::wait(self.handle, word, seen) {
            Err(libc::EINTR) => Err(Errno::EINTR),
            _ => Ok(()),
        }
    }

    fn keyring_key(&self, serial: i32, names: bool) -> Result<KeyringKey, Errno> {
        crate::hooks::keys::find(serial, names)
    }

    #[inline]
    fn observer(&self) -> Option<&dyn Observer> {
        audit::observer()
    }
}

impl Descriptor for LocalDescriptor<'_> {
    type Lock = RawLock;

    #[inline]
    fn task(&self) -> &dyn Task {
        self
    }

    #[inline]
    fn object(&self) -> &Object {
        self.handle.object()
    }

    #[inline]
    fn is_nonblocking(&self) -> bool {
        self.handle.nonblock.load(Ordering::Relaxed)
    }

    fn caller(&self) -> Caller {
        sys::caller()
    }

    fn own_port(&self) -> u32 {
        sys::getpid()
    }

    #[inline]
    fn changed(&self) {
        standin::changed(self.fd, self.handle);
    }

    fn sweep(&self) -> bool {
        share::sweep(self.handle)
    }
}
