//! Handles, whose sockets count messages and nothing else.

use crate::atomic::{AtomicBool, AtomicU32};
use crate::home::Home;
use crate::lock::{Lock, RawLock};
use crate::tie::Tie;
use crate::{arena, share, sys, world};
use core::sync::atomic::Ordering::SeqCst;
use lock_api::RawMutex as _;
use sealane_engine_alg::image::{Malformed, Reader, Writer};

pub(crate) struct Handle {
    pub(crate) refs: AtomicU32,
    pub(crate) object: Contents,
    pub(crate) nonblock: AtomicBool,
    pub(crate) polled: AtomicBool,
    pub(crate) standin: Lock<Standin>,
    pub(crate) bounce: Lock<Vec<u8>>,
    pub(crate) home: Home,
    pub(crate) tie: Tie,
}

impl Handle {
    pub(crate) fn new() -> Handle {
        Handle {
            refs: AtomicU32::new(0),
            object: Contents(Object {
                present: AtomicBool::new(false),
                messages: AtomicU32::new(0),
                word: AtomicU32::new(1),
                shared: AtomicBool::new(false),
                lock: RawLock::INIT,
            }),
            nonblock: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            standin: Lock::new(Standin::default()),
            bounce: Lock::new(Vec::new()),
            home: Home::default(),
            tie: Tie::default(),
        }
    }

    pub(crate) fn object(&self) -> Option<&Object> {
        self.object.0.present.load(SeqCst).then_some(&self.object.0)
    }

    pub(crate) fn set_nonblock(&self, on: bool) {
        self.nonblock.store(on, SeqCst);
    }
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Standin {
    pub(crate) prepared: bool,
    pub(crate) shown: u32,
    pub(crate) cookie: [u8; 8],
}

/// Stands for the `UnsafeCell<Option<Object>>` of the real handle.
pub(crate) struct Contents(Object);

impl Contents {
    pub(crate) fn get(&self) -> *mut Contents {
        core::ptr::from_ref(self).cast_mut()
    }

    /// Opens a new socket.
    pub(crate) fn open(&self) {
        let Contents(object) = self;
        object.messages.store(0, SeqCst);
        object.shared.store(false, SeqCst);
        object.present.store(true, SeqCst);
    }

    pub(crate) fn take(&mut self) -> Option<Taken> {
        self.0.here().present.store(false, SeqCst);
        Some(Taken)
    }
}

/// The socket, which borrow.rs drops. As with the families below, there is nothing to do then.
pub(crate) struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {}
}

pub(crate) struct Object {
    present: AtomicBool,
    messages: AtomicU32,
    /// Changes with the number of messages.
    word: AtomicU32,
    shared: AtomicBool,
    /// As in the engine: held while the object changes, and not while a call sleeps.
    lock: RawLock,
}

impl Object {
    fn here(&self) -> &Object {
        world::must(self.present.look(), "uses a socket that is dropped");
        self
    }

    fn handle(&self) -> &'static Handle {
        arena::existing().and_then(|arena| arena.of(self)).expect("an object in a handle")
    }

    /// Whether other processes may have it.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(SeqCst)
    }

    pub(crate) fn leans(&self) -> bool {
        self.here().handle().home.parent.load(SeqCst) != 0
    }

    pub(crate) fn family(&self) -> Option<Family> {
        self.here();
        Some(Family)
    }

    pub(crate) fn share(&self, on: bool) {
        self.here().shared.store(on, SeqCst);
    }

    pub(crate) fn save(&self, image: &mut Writer) {
        image.number(u64::from(self.here().messages.load(SeqCst)));
    }

    pub(crate) fn load(&self, image: &mut Reader<'_>, _: &dyn Fn() -> bool) -> Result<(), Malformed> {
        self.here().messages.store(image.word()?, SeqCst);
        Ok(())
    }

    /// One more message.
    pub(crate) fn send(&self) {
        self.lock.lock();
        self.here().messages.fetch_add(1, SeqCst);
        self.word.fetch_add(1, SeqCst);
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
        sys::futex_wake(&self.word, i32::MAX);
    }

    /// Waits for a message and takes it.
    pub(crate) fn receive(&self, handle: &Handle) {
        self.lock.lock();
        loop {
            let messages = self.here().messages.load(SeqCst);
            if messages > 0 {
                self.messages.store(messages - 1, SeqCst);
                break;
            }
            let seen = self.word.load(SeqCst);
            // SAFETY: taken above.
            unsafe { self.lock.unlock() };
            crate::outside(handle, || {
                let _ = share::wait(handle, &self.word, seen);
            });
            self.lock.lock();
        }
        // SAFETY: taken above.
        unsafe { self.lock.unlock() };
    }
}

/// The transform of a socket.
pub(crate) struct Family;

impl Drop for Family {
    fn drop(&mut self) {}
}

impl Family {
    pub(crate) fn counts(&self) -> [u32; 2] {
        [1, 0]
    }

    pub(crate) fn set_others(&self, _: [u32; 2]) {}

    pub(crate) fn save(&self, _: &mut Writer) {}

    pub(crate) fn load(&self, _: &mut Reader<'_>) -> Result<(), Malformed> {
        Ok(())
    }
}
