//! Jobs that a thread cannot wait for.
//!
//! To open or close the ring of a device or a TAP device, the kernel waits until no CPU uses what was there before
//! (`synchronize_rcu`). On a machine whose CPUs are all busy that takes seconds. A worker has such a job done aside, and takes up
//! its result when it next asks.

use std::io;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread::{Builder, JoinHandle};

#[derive(Debug)]
struct Job<K, T> {
    key: K,
    result: Receiver<T>,
    thread: JoinHandle<()>,
}

/// The jobs of one owner, each in a thread of its own, in the owner's network namespace and with its rights. Dropping this waits
/// for all of them: nothing that they have opened outlives the owner.
#[derive(Debug)]
pub struct Aside<K, T> {
    name: &'static str,
    jobs: Vec<Job<K, T>>,
    /// Threads whose results are taken, and those that have none.
    ending: Vec<JoinHandle<()>>,
}

impl<K: PartialEq, T: Send + 'static> Aside<K, T> {
    /// Starts without jobs. `name` is that of their threads: at most 15 bytes.
    #[must_use]
    pub fn new(name: &'static str) -> Self {
        Aside { name, jobs: Vec::new(), ending: Vec::new() }
    }

    /// Starts a job. Its result is taken by this key.
    ///
    /// # Errors
    /// The kernel's, if there can be no thread; the job and what it owns are dropped.
    pub fn start(&mut self, key: K, job: impl FnOnce() -> T + Send + 'static) -> io::Result<()> {
        let (tell, result) = channel();
        // Nobody takes the result of a job whose owner ends.
        let thread = self.spawn(move || drop(tell.send(job())))?;
        self.jobs.push(Job { key, result, thread });
        Ok(())
    }

    /// Has a thread drop this. If there can be no thread, it is dropped here.
    pub fn close(&mut self, this: impl Send + 'static) {
        self.ending.retain(|thread| !thread.is_finished());
        if let Ok(thread) = self.spawn(move || drop(this)) {
            self.ending.push(thread);
        }
    }

    fn spawn(&self, job: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
        Builder::new().name(self.name.into()).spawn(job)
    }

    /// The number of jobs that were started and whose results are not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Whether all results are taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Whether there is a job of this key, under way or done.
    #[must_use]
    pub fn has(&self, key: &K) -> bool {
        self.jobs.iter().any(|job| job.key == *key)
    }

    /// Takes the result of a job that is done.
    ///
    /// # Panics
    /// If the job did.
    pub fn take(&mut self, key: &K) -> Option<T> {
        let at = self.jobs.iter().position(|job| job.key == *key)?;
        self.take_at(at).map(|(_, result)| result)
    }

    /// Takes the results of all jobs that are done.
    ///
    /// # Panics
    /// If a job did.
    pub fn take_all(&mut self) -> Vec<(K, T)> {
        // From the end on, because what is taken is replaced by the last one.
        (0..self.jobs.len()).rev().filter_map(|at| self.take_at(at)).collect()
    }

    fn take_at(&mut self, at: usize) -> Option<(K, T)> {
        match self.jobs[at].result.try_recv() {
            Err(TryRecvError::Empty) => None,
            Ok(result) => {
                // It ends without being waited for.
                let Job { key, thread, .. } = self.jobs.swap_remove(at);
                self.ending.push(thread);
                Some((key, result))
            }
            Err(TryRecvError::Disconnected) => match self.jobs.swap_remove(at).thread.join() {
                Err(panic) => std::panic::resume_unwind(panic),
                Ok(()) => unreachable!("a job that returns tells its result"),
            },
        }
    }
}

impl<K, T> Drop for Aside<K, T> {
    fn drop(&mut self) {
        // The panic of a job has been told by its own thread.
        for thread in self.jobs.drain(..).map(|job| job.thread).chain(self.ending.drain(..)) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    /// Waits until a job is done.
    fn taken<T: Send + 'static>(aside: &mut Aside<u8, T>, key: u8) -> T {
        loop {
            if let Some(result) = aside.take(&key) {
                return result;
            }
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_result_is_taken_once_and_only_when_it_is_there() {
        let mut aside = Aside::new("test");
        let (tell, told) = channel();
        aside.start(1, move || told.recv()).expect("a thread");
        aside.start(2, || Ok(2)).expect("a thread");
        assert_eq!(taken(&mut aside, 2), Ok(2));
        assert!(aside.has(&1) && !aside.has(&2) && aside.len() == 1);
        assert!(aside.take(&1).is_none() && aside.take_all().is_empty(), "it waits");
        tell.send(1).expect("a job that waits");
        assert_eq!(taken(&mut aside, 1), Ok(1));
        assert!(aside.is_empty() && aside.take(&1).is_none());
    }

    #[test]
    fn what_is_closed_is_gone_with_the_owner() {
        let mut aside = Aside::<u8, ()>::new("test");
        let held = Arc::new(());
        for _ in 0..3 {
            aside.close(Arc::clone(&held));
        }
        drop(aside);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_panic_is_the_owners() {
        let mut aside = Aside::<u8, ()>::new("test");
        aside.start(1, || panic!("as it should")).expect("a thread");
        let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| taken(&mut aside, 1)));
        assert_eq!(panic.expect_err("a panic").downcast_ref(), Some(&"as it should"));
    }
}
