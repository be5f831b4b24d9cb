//! Descriptors to wait for, each registered with the source that it stands for.

use arrayvec::ArrayVec;
use sealane_sys::poll::ready;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// A table of at most `N` descriptors. Further ones are not waited for.
pub(crate) struct PollTable<'f, S, const N: usize> {
    sources: ArrayVec<S, N>,
    fds: ArrayVec<BorrowedFd<'f>, N>,
}

impl<'f, S, const N: usize> PollTable<'f, S, N> {
    /// An empty table.
    pub(crate) fn new() -> Self {
        PollTable { sources: ArrayVec::new(), fds: ArrayVec::new() }
    }

    /// Registers a descriptor.
    pub(crate) fn add(&mut self, source: S, fd: BorrowedFd<'f>) {
        if !self.fds.is_full() {
            self.sources.push(source);
            self.fds.push(fd);
        }
    }

    /// Waits at most this long until one of them can be read. Returns those that can, in the order in which they were
    /// registered.
    pub(crate) fn wait(self, timeout: Duration) -> ArrayVec<S, N> {
        let readable = ready::<N>(self.fds.into_iter(), timeout);
        self.sources.into_iter().zip(readable).filter_map(|(source, readable)| readable.then_some(source)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::poll::Waker;
    use std::os::fd::AsFd;

    #[test]
    fn readable_ones_are_told_by_what_they_stand_for() {
        let wakers = [(); 3].map(|()| Waker::new().expect("a descriptor"));
        let woken = |most: usize| {
            let mut table: PollTable<'_, char, 2> = PollTable::new();
            "abc".chars().zip(&wakers).take(most).for_each(|(name, waker)| table.add(name, waker.as_fd()));
            table.wait(Duration::ZERO).into_iter().collect::<String>()
        };
        assert_eq!(woken(2), "");
        wakers[1].wake();
        wakers[2].wake();
        assert_eq!(woken(3), "b", "there is room for two");
        wakers[0].wake();
        assert_eq!(woken(3), "ab");
    }
}
