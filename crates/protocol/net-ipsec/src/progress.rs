//! The progress of an association, noted where it outlives this process: another process goes on from there with the
//! same keys, accepts no packet a second time, and knows what has been used of the limits.

use core::sync::atomic::{AtomicU64, Ordering};

/// Words in memory that outlives this process.
pub trait Words: Send + Sync {
    /// Their number, by which they are found again.
    fn index(&self) -> u32;

    /// The words.
    fn words(&self) -> &[AtomicU64; 8];
}

/// The progress of an association.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// The highest number received.
    pub top: u64,
    /// Bytes used.
    pub bytes: u64,
    /// Packets used.
    pub packets: u64,
    /// When the first packet came, in seconds of wall time; 0 before it.
    pub use_time_s: u64,
    /// When the last packet came.
    pub last_used_s: u64,
}

impl Progress {
    /// Notes it.
    #[inline]
    pub(crate) fn store(self, words: &[AtomicU64; 8]) {
        // The window first: whoever goes on must not accept what was accepted here.
        let now = [self.top, self.bytes, self.packets, self.use_time_s, self.last_used_s];
        words.iter().zip(now).for_each(|(word, now)| word.store(now, Ordering::Release));
    }

    /// Reads the progress from the words in which it was noted.
    #[must_use]
    pub fn of(words: [u64; 8]) -> Self {
        let [top, bytes, packets, use_time_s, last_used_s, ..] = words;
        Progress { top, bytes, packets, use_time_s, last_used_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daemons of other versions read these words. A change needs another version of the states' journal
    /// (`ipsec::control::kept`).
    #[test]
    fn words_are_as_other_versions_read_them() {
        let noted = Progress { top: 1, bytes: 2, packets: 3, use_time_s: 4, last_used_s: 5 };
        let words = <[AtomicU64; 8]>::default();
        noted.store(&words);
        let words = words.map(AtomicU64::into_inner);
        assert_eq!(words, [1, 2, 3, 4, 5, 0, 0, 0]);
        assert_eq!(Progress::of(words), noted);
    }
}
