//! Looks for the sockets of key managers, in a thread of its own: the table that tells of them has a line for each socket of
//! any user of the namespace, and neither packets nor requests of others wait until it is read.

use super::groups::Groups;
use parking_lot::{Condvar, Mutex};
use sealane_sys::{life, udp_table};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tracing::debug;

/// The least time between two looks.
const LOOK: Duration = Duration::from_millis(20);
/// The pause after a look, in the time that it took.
const PAUSE: u32 = 19;

/// The orders of the thread, and what it has to say.
#[derive(Default)]
pub(crate) struct Looker {
    asked: Mutex<bool>,
    woken: Condvar,
    /// One look at a time: the places of sockets are followed from one to the next.
    looks: Mutex<()>,
    has_looked: AtomicBool,
}

impl Looker {
    /// Has it look soon.
    pub(crate) fn ask(&self) {
        if !core::mem::replace(&mut *self.asked.lock(), true) {
            self.woken.notify_one();
        }
    }

    /// Whether it has looked since the last call.
    pub(crate) fn has_looked(&self) -> bool {
        self.has_looked.swap(false, Ordering::AcqRel)
    }

    /// Waits until it is to look; returns whether it is.
    fn wait(&self, stop: &AtomicBool) -> bool {
        let mut asked = self.asked.lock();
        while !*asked && !stop.load(Ordering::Acquire) {
            let _wait = life::wait();
            self.woken.wait(&mut asked);
        }
        core::mem::take(&mut *asked) && !stop.load(Ordering::Acquire)
    }

    /// Waits for a time, unless it is to end.
    fn pause(&self, stop: &AtomicBool, time: Duration) {
        let until = Instant::now() + time;
        let mut asked = self.asked.lock();
        let _wait = life::wait();
        while !stop.load(Ordering::Acquire) && !self.woken.wait_until(&mut asked, until).timed_out() {}
    }

    /// Wakes it, to end.
    pub(crate) fn wake(&self) {
        // It is not between its look at the order to stop and its wait.
        drop(self.asked.lock());
        self.woken.notify_one();
    }

    /// Looks for sockets of key managers in the calling thread's namespace. Ours beside them send with this mark.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn look(&self, groups: &Mutex<Groups>, mark: u32) -> io::Result<()> {
        let _one = self.looks.lock();
        let table = udp_table::read()?;
        groups.lock().look(mark, table)?;
        self.has_looked.store(true, Ordering::Release);
        Ok(())
    }

    /// Has `look` look whenever it is asked to, but not all the time, until it is to `stop`.
    pub(crate) fn work(&self, stop: &AtomicBool, look: impl Fn() -> io::Result<()>) {
        while self.wait(stop) {
            let start = Instant::now();
            if let Err(e) = look() {
                debug!("xfrm: sockets of key managers: {e}");
            }
            self.pause(stop, LOOK.max(start.elapsed() * PAUSE));
        }
    }
}
