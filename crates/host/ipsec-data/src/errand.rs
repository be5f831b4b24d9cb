//! Something that a thread of its own does whenever it is asked to, with a pause after each time: whoever asks does not wait until
//! it is done, and however often they ask, the thread is not busy all the time.

use parking_lot::{Condvar, Mutex, MutexGuard};
use sealane_sys::life;
use std::time::{Duration, Instant};

/// The orders of a thread.
#[derive(Debug, Default)]
struct Orders {
    asked: bool,
    ended: bool,
}

/// Work of a thread of its own, for others to ask for without waiting.
#[derive(Debug, Default)]
pub struct Errand {
    orders: Mutex<Orders>,
    told: Condvar,
}

impl Errand {
    /// Has it done soon.
    pub fn ask(&self) {
        if !core::mem::replace(&mut self.orders.lock().asked, true) {
            self.told.notify_one();
        }
    }

    /// Has its thread end.
    pub fn end(&self) {
        self.orders.lock().ended = true;
        self.told.notify_one();
    }

    /// Does it whenever somebody has asked, until the end. The pause after each time is by how long that took.
    pub fn work(&self, pause: impl Fn(Duration) -> Duration, mut act: impl FnMut()) {
        let mut orders = self.orders.lock();
        while !orders.ended {
            if !core::mem::take(&mut orders.asked) {
                let _wait = life::wait();
                self.told.wait(&mut orders);
                continue;
            }
            let start = Instant::now();
            MutexGuard::unlocked(&mut orders, &mut act);
            let until = Instant::now() + pause(start.elapsed());
            let _wait = life::wait();
            while !orders.ended && !self.told.wait_until(&mut orders, until).timed_out() {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn whoever_asks_is_served_until_the_end() {
        let (errand, (done, times)) = (Errand::default(), mpsc::channel());
        std::thread::scope(|scope| {
            errand.ask();
            let thread = scope.spawn(|| errand.work(|_| Duration::ZERO, || done.send(()).expect("it is read")));
            for _ in 0..3 {
                times.recv().expect("it is done");
                errand.ask();
            }
            times.recv().expect("and once more");
            assert!(times.try_recv().is_err(), "not without being asked");
            errand.end();
            thread.join().expect("it ends");
            errand.ask();
            errand.work(|_| Duration::ZERO, || unreachable!("nothing is done after the end"));
        });
    }

    #[test]
    fn the_end_comes_in_a_pause() {
        let (errand, (done, times)) = (Errand::default(), mpsc::channel());
        std::thread::scope(|scope| {
            errand.ask();
            scope.spawn(|| errand.work(|_| Duration::from_secs(3600), || done.send(()).expect("it is read")));
            times.recv().expect("it is done");
            errand.end();
        });
    }
}
