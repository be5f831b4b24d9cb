//! Words that change with packets, in the same file as a [journal](crate::journal).

use parking_lot::Mutex;
use sealane_sys::mapping::FileWords;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Words of an entry: one cache line.
pub const WORDS: usize = 8;

/// The offset of the first entry, behind any journal.
const AT: u64 = 1 << 40;
/// Entries that are mapped at once: 64 KiB.
const CHUNK: u32 = 1024;
/// More entries than there are ever states.
const MAX: u32 = 1 << 24;

/// The entries of one file.
pub struct Progress {
    file: File,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    chunks: Mutex<BTreeMap<u32, Arc<FileWords>>>,
    /// Entries that are free, and the number of those that were ever used.
    free: Mutex<(Vec<u32>, u32)>,
    /// Entries that were dropped, of which records may still speak.
    dropped: Mutex<Vec<u32>>,
    /// Whether entries keep their words when they are dropped.
    left: AtomicBool,
}

/// An entry. When it is dropped it stays as it is, until whoever writes the records says that none speaks of it
/// ([`Progress::free`]).
pub struct Entry {
    words: Arc<FileWords>,
    index: u32,
    shared: Arc<Shared>,
}

fn offset(chunk: u32) -> u64 {
    AT + u64::from(chunk) * u64::from(CHUNK) * (WORDS * 8) as u64
}

/// The words of an entry in its chunk.
fn of_chunk(words: &FileWords, index: u32) -> &[AtomicU64; WORDS] {
    let (entries, _) = words.as_chunks();
    &entries[(index % CHUNK) as usize]
}

impl Progress {
    /// The entries of a file of memory, all of them free.
    #[must_use]
    pub fn new(file: File) -> Self {
        Progress { file, shared: Arc::default() }
    }

    fn chunk(&self, chunk: u32) -> io::Result<Arc<FileWords>> {
        let mut chunks = self.shared.chunks.lock();
        if let Some(words) = chunks.get(&chunk) {
            return Ok(words.clone());
        }
        let words = Arc::new(FileWords::map(&self.file, offset(chunk), CHUNK as usize * WORDS)?);
        chunks.insert(chunk, words.clone());
        Ok(words)
    }

    /// Takes a free entry, whose words are zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self) -> io::Result<Entry> {
        let index = {
            let (free, used) = &mut *self.shared.free.lock();
            match free.pop() {
                Some(index) => index,
                None if *used == MAX => return Err(io::ErrorKind::StorageFull.into()),
                None => {
                    *used += 1;
                    *used - 1
                }
            }
        };
        match self.chunk(index / CHUNK) {
            Ok(words) => Ok(Entry { words, index, shared: self.shared.clone() }),
            Err(e) => {
                self.shared.free.lock().0.push(index);
                Err(e)
            }
        }
    }

    /// Takes the numbers of the entries that were dropped since the last time.
    #[must_use]
    pub fn take_dropped(&self) -> Vec<u32> {
        core::mem::take(&mut *self.shared.dropped.lock())
    }

    /// Zeroes entries that were dropped, and frees them: no record speaks of them any more. Whoever read a record with words of
    /// zeros, or of another, would take it for one that has seen no packets.
    pub fn free(&self, dropped: &[u32]) {
        for index in dropped {
            // They have been mapped since they were taken.
            if let Ok(words) = self.chunk(index / CHUNK) {
                of_chunk(&words, *index).iter().for_each(|word| word.store(0, Ordering::Release));
                self.shared.free.lock().0.push(*index);
            }
        }
    }

    /// Leaves the words to another process: from now on they are not used again.
    pub fn leave(&self) {
        self.shared.left.store(true, Ordering::Release);
    }

    /// The words of an entry, as another process left them.
    ///
    /// # Errors
    /// `InvalidInput` for a number that no entry has, otherwise the kernel's.
    pub fn read(&self, index: u32) -> io::Result<[u64; WORDS]> {
        if index >= MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let words = self.chunk(index / CHUNK)?;
        Ok(of_chunk(&words, index).each_ref().map(|word| word.load(Ordering::Acquire)))
    }
}

impl Entry {
    /// Its number in the file.
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Its words.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64; WORDS] {
        of_chunk(&self.words, self.index)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if self.shared.left.load(Ordering::Acquire) {
            return;
        }
        self.shared.dropped.lock().push(self.index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Journal;
    use sealane_sys::mapping::memory_file;

    #[test]
    fn another_reads_what_was_stored() {
        let file = memory_file("test").unwrap();
        let mut journal = Journal::create(file.try_clone().unwrap(), "tests 1", "", 0).unwrap();
        let progress = Progress::new(file.try_clone().unwrap());
        let entries: Vec<Entry> = (0..3000).map(|_| progress.take().unwrap()).collect();
        for entry in &entries {
            entry.words()[3].store(u64::from(entry.index()) + 5, Ordering::Release);
        }
        journal.put(1, b"beside them").unwrap();
        let other = Progress::new(file.try_clone().unwrap());
        assert_eq!(other.read(2999).unwrap(), [0, 0, 0, 3004, 0, 0, 0, 0]);
        assert_eq!(other.read(1024).unwrap()[3], 1029);
        drop(entries);
        // A record may still speak of it.
        assert_eq!(other.read(2999).unwrap(), [0, 0, 0, 3004, 0, 0, 0, 0]);
        assert_eq!(progress.take().unwrap().index(), 3000, "none is used again yet");
        let dropped = progress.take_dropped();
        assert_eq!(dropped.len(), 3001);
        progress.free(&dropped);
        assert_eq!(other.read(2999).unwrap(), [0; WORDS]);
        assert!(progress.take().unwrap().index() <= 3000, "freed ones are used again");
        assert_eq!(Journal::read(&file, "tests 1", "").unwrap().unwrap().records.len(), 1);
        assert!(other.read(MAX).is_err());
        progress.leave();
        let left = progress.take().unwrap();
        left.words()[0].store(11, Ordering::Release);
        let index = left.index();
        drop(left);
        assert_eq!(other.read(index).unwrap()[0], 11);
        let plain = File::open("/dev/null").unwrap();
        assert!(Progress::new(plain).take().is_err(), "a file that may shrink");
    }
}
