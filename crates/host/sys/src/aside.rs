//! Jobs that a thread cannot wait for.
//!
//! To open or close the ring of a device or a TAP device, the kernel waits until no CPU uses what was there before
//! (`synchronize_rcu`). On a machine whose CPUs are all busy that takes seconds. A worker has such a job done aside, and takes up
//! its result when it next asks.

use crate::transient;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle, Result};

/// A job, with where its result goes.
type Job = Box<dyn FnOnce() + Send>;

/// The jobs of one owner, done one after the other by a thread in the network namespace and with the rights that its maker had.
/// Dropping this waits for all of them: nothing that they have opened outlives the owner.
///
/// The thread lives as long as the owner. One for each job would need memory at a time when there may be none, and a thread of
/// the standard library that gets no stack for its signals ends the process.
#[derive(Debug)]
pub struct Aside<K, T> {
    /// `None` from the end on.
    jobs: Option<Sender<Job>>,
    tell: Sender<(K, Result<T>)>,
    told: Receiver<(K, Result<T>)>,
    /// The keys of jobs whose results are not told.
    running: Vec<K>,
    /// Results that are told and not taken.
    done: Vec<(K, Result<T>)>,
    thread: Option<JoinHandle<()>>,
}

impl<K: Clone + PartialEq + Send + 'static, T: Send + 'static> Aside<K, T> {
    /// Starts the thread, without jobs. `name` is its name: at most 15 bytes.
    ///
    /// # Errors
    /// The kernel's, if there can be no thread.
    pub fn new(name: &'static str) -> io::Result<Self> {
        let (jobs, orders) = channel::<Job>();
        let work = move || orders.iter().for_each(|job| job());
        let thread = Some(transient::counted(Builder::new().name(name.into()).spawn(work))?);
        let (tell, told) = channel();
        Ok(Aside { jobs: Some(jobs), tell, told, running: Vec::new(), done: Vec::new(), thread })
    }

    /// Has the thread do a job, after those before it. Its result is taken by this key.
    pub fn start(&mut self, key: K, job: impl FnOnce() -> T + Send + 'static) {
        self.running.push(key.clone());
        let tell = self.tell.clone();
        self.order(move || {
            let result = catch_unwind(AssertUnwindSafe(job));
            // Nobody takes the result of a job whose owner ends.
            drop(tell.send((key, result)));
        });
    }

    /// Has the thread drop this, after the jobs before.
    pub fn close(&mut self, this: impl Send + 'static) {
        // A panic has been told by the thread.
        self.order(move || drop(catch_unwind(AssertUnwindSafe(|| drop(this)))));
    }

    fn order(&self, job: impl FnOnce() + Send + 'static) {
        if let Some(jobs) = &self.jobs {
            jobs.send(Box::new(job)).expect("the thread lives as long as this");
        }
    }

    /// The number of jobs that were started and whose results are not taken.
    #[must_use]
    pub fn len(&self) -> usize {
        self.running.len() + self.done.len()
    }

    /// Whether all results are taken.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether there is a job of this key, under way or done.
    #[must_use]
    pub fn has(&self, key: &K) -> bool {
        self.running.iter().chain(self.done.iter().map(|(of, _)| of)).any(|of| of == key)
    }

    /// Takes the result of a job that is done.
    ///
    /// # Panics
    /// If the job did.
    pub fn take(&mut self, key: &K) -> Option<T> {
        self.listen();
        let at = self.done.iter().position(|(of, _)| of == key)?;
        Some(or_panic(self.done.swap_remove(at).1))
    }

    /// Takes the results of all jobs that are done.
    ///
    /// # Panics
    /// If a job did.
    pub fn take_all(&mut self) -> Vec<(K, T)> {
        self.listen();
        self.done.drain(..).map(|(key, result)| (key, or_panic(result))).collect()
    }

    fn listen(&mut self) {
        for (key, result) in self.told.try_iter() {
            if let Some(at) = self.running.iter().position(|of| *of == key) {
                self.running.swap_remove(at);
            }
            self.done.push((key, result));
        }
    }
}

fn or_panic<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|panic| resume_unwind(panic))
}

impl<K, T> Drop for Aside<K, T> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // The panic of a job has been told by its thread.
        self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

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
        let mut aside = Aside::new("test").expect("a thread");
        let (tell, told) = channel();
        aside.start(1, move || told.recv());
        aside.start(2, || Ok(2));
        assert!(aside.has(&1) && aside.has(&2) && !aside.has(&3) && aside.len() == 2);
        assert!(aside.take(&1).is_none() && aside.take_all().is_empty(), "it waits");
        tell.send(1).expect("a job that waits");
        assert_eq!(taken(&mut aside, 2), Ok(2));
        assert!(aside.has(&1) && !aside.has(&2) && aside.len() == 1);
        assert_eq!(aside.take_all(), [(1, Ok(1))]);
        assert!(aside.is_empty() && aside.take(&1).is_none());
    }

    #[test]
    fn what_is_closed_is_gone_with_the_owner() {
        let mut aside = Aside::<u8, ()>::new("test").expect("a thread");
        let held = Arc::new(());
        for _ in 0..3 {
            aside.close(Arc::clone(&held));
        }
        drop(aside);
        assert_eq!(Arc::strong_count(&held), 1);
    }

    #[test]
    fn a_panic_is_the_owners() {
        let mut aside = Aside::<u8, ()>::new("test").expect("a thread");
        aside.start(1, || panic!("as it should"));
        aside.start(2, || ());
        let panic = catch_unwind(AssertUnwindSafe(|| taken(&mut aside, 1)));
        assert_eq!(panic.expect_err("a panic").downcast_ref(), Some(&"as it should"));
        // Those behind it are done.
        taken(&mut aside, 2);
    }
}
