//! Records in a file, by keys. A process that ends in the middle of a change leaves the record as it was before or as
//! it is after the change.
//!
//! ```text
//!  header (128 bytes)   magic, kind of the journal, boot, time of creation, checksum
//!  record (64 n bytes)  header (48 bytes): live or free, capacity, length, key, number of the change, checksums
//!                       contents
//!  ...
//!  end                  a header of zeros
//! ```
//! A record is written before its header says that it is live, and replaced by a later record with the same key. Freed
//! space is wiped, and used again by records that fit.

use rustix::fs::{SeekFrom, seek};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use zeroize::Zeroizing;

const MAGIC: [u8; 16] = *b"sealane journal1";
const HEADER_LEN: usize = 128;
const KIND_LEN: usize = 32;
const BOOT_LEN: usize = 40;
const RECORD_HEADER_LEN: usize = 48;
/// Records begin at multiples of this, so that a header never crosses a page.
const UNIT: usize = 64;

/// The largest contents of a record.
pub const MAX_LEN: usize = 1 << 20;

const LIVE: u32 = 1;
const FREE: u32 = 2;

/// The space of a record in the file.
#[derive(Debug, Clone, Copy)]
struct Place {
    at: u64,
    /// Length in bytes, with the header.
    capacity: u32,
}

/// A journal that is written. It has no `Debug`, because its records may hold keys.
pub struct Journal {
    file: File,
    end: u64,
    live: HashMap<u64, Place>,
    /// Free places by capacity.
    free: BTreeMap<u32, Vec<u64>>,
    changes: u64,
}

/// The records that were read, by key.
pub struct Records {
    /// When the journal was created, in nanoseconds since boot.
    pub created_ns: u64,
    /// Contents by key.
    pub records: BTreeMap<u64, Zeroizing<Vec<u8>>>,
}

fn damaged(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("damaged: {what}"))
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("in the header"))
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("in the header"))
}

/// The header of a record.
struct Head {
    state: u32,
    capacity: u32,
    len: u32,
    key: u64,
    change: u64,
    /// Checksum of the contents.
    sum: u32,
}

impl Head {
    fn bytes(&self) -> [u8; RECORD_HEADER_LEN] {
        let mut bytes = [0; RECORD_HEADER_LEN];
        for (at, word) in [(0, self.state), (4, self.capacity), (8, self.len), (12, self.sum)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[16..24].copy_from_slice(&self.key.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.change.to_le_bytes());
        let sum = crc32fast::hash(&bytes[..32]);
        bytes[32..36].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn read(bytes: &[u8; RECORD_HEADER_LEN]) -> Option<Head> {
        let head = Head {
            state: word(bytes, 0),
            capacity: word(bytes, 4),
            len: word(bytes, 8),
            sum: word(bytes, 12),
            key: long(bytes, 16),
            change: long(bytes, 24),
        };
        let capacity = head.capacity as usize;
        let fits = capacity.is_multiple_of(UNIT) && head.len as usize + RECORD_HEADER_LEN <= capacity;
        let whole = head.bytes() == *bytes && fits && matches!(head.state, LIVE | FREE);
        whole.then_some(head)
    }
}

/// Writes a text into a field, cut to its length.
fn field(to: &mut [u8], text: &str) {
    let len = text.len().min(to.len());
    to[..len].copy_from_slice(&text.as_bytes()[..len]);
}

impl Journal {
    /// Begins a journal in an empty file. `kind` says what its records are, and has a version.
    ///
    /// # Errors
    /// The file system's.
    pub fn create(file: File, kind: &str, boot: &str, now_ns: u64) -> io::Result<Self> {
        let mut header = [0; HEADER_LEN];
        header[..16].copy_from_slice(&MAGIC);
        field(&mut header[16..16 + KIND_LEN], kind);
        field(&mut header[48..48 + BOOT_LEN], boot);
        header[88..96].copy_from_slice(&now_ns.to_le_bytes());
        let sum = crc32fast::hash(&header[..96]);
        header[96..100].copy_from_slice(&sum.to_le_bytes());
        file.write_all_at(&header, 0)?;
        let (live, free) = (HashMap::new(), BTreeMap::new());
        Ok(Journal { file, end: HEADER_LEN as u64, live, free, changes: 0 })
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Adds a record, or replaces the one with this key.
    ///
    /// # Errors
    /// The file system's: the record is as it was.
    pub fn put(&mut self, key: u64, contents: &[u8]) -> io::Result<()> {
        if contents.len() > MAX_LEN {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let wanted = (RECORD_HEADER_LEN + contents.len()).next_multiple_of(UNIT) as u32;
        let place = self.place(wanted);
        self.changes += 1;
        let head = Head {
            state: LIVE,
            capacity: place.capacity,
            len: contents.len() as u32,
            key,
            change: self.changes,
            sum: crc32fast::hash(contents),
        };
        // The space of a record is there as a whole before its header is.
        let mut space = Zeroizing::new(vec![0; place.capacity as usize - RECORD_HEADER_LEN]);
        space[..contents.len()].copy_from_slice(contents);
        let written = self
            .file
            .write_all_at(&space, place.at + RECORD_HEADER_LEN as u64)
            .and_then(|()| self.file.write_all_at(&head.bytes(), place.at));
        if let Err(e) = written {
            if place.at < self.end {
                self.free.entry(place.capacity).or_default().push(place.at);
            }
            return Err(e);
        }
        self.end = self.end.max(place.at + u64::from(place.capacity));
        match self.live.insert(key, place) {
            Some(before) => self.release(before),
            None => Ok(()),
        }
    }

    /// Removes a record and wipes its contents.
    ///
    /// # Errors
    /// The file system's: the record may still be there.
    pub fn remove(&mut self, key: u64) -> io::Result<()> {
        self.live.remove(&key).map_or(Ok(()), |place| self.release(place))
    }

    /// A free place of at least this capacity that is not much larger, or a new one at the end.
    fn place(&mut self, wanted: u32) -> Place {
        let class = self.free.range(wanted..=wanted.saturating_mul(2)).find(|(_, places)| !places.is_empty());
        if let Some(capacity) = class.map(|(capacity, _)| *capacity)
            && let Some(at) = self.free.get_mut(&capacity).and_then(Vec::pop)
        {
            return Place { at, capacity };
        }
        Place { at: self.end, capacity: wanted }
    }

    fn release(&mut self, place: Place) -> io::Result<()> {
        let head = Head { state: FREE, capacity: place.capacity, len: 0, key: 0, change: 0, sum: 0 };
        self.file.write_all_at(&head.bytes(), place.at)?;
        self.free.entry(place.capacity).or_default().push(place.at);
        let zeros = vec![0; place.capacity as usize - RECORD_HEADER_LEN];
        self.file.write_all_at(&zeros, place.at + RECORD_HEADER_LEN as u64)
    }

    /// Reads a journal of this kind and of this boot; `None` for one of another boot.
    ///
    /// # Errors
    /// The file system's; `InvalidData` for another kind, and for a record that is damaged.
    pub fn read(file: &File, kind: &str, boot: &str) -> io::Result<Option<Records>> {
        let bytes = contents(file)?;
        let header: &[u8; HEADER_LEN] = bytes.first_chunk().ok_or_else(|| damaged("cut short"))?;
        if header[..16] != MAGIC || crc32fast::hash(&header[..96]) != word(header, 96) {
            return Err(damaged("its header"));
        }
        let text = |at: usize, len: usize| {
            let field = &header[at..at + len];
            core::str::from_utf8(field).unwrap_or_default().trim_end_matches('\0')
        };
        if text(16, KIND_LEN) != kind {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("of another kind than '{kind}'")));
        }
        if text(48, BOOT_LEN) != boot {
            return Ok(None);
        }
        let mut found: BTreeMap<u64, (u64, Zeroizing<Vec<u8>>)> = BTreeMap::new();
        let mut rest = &bytes[HEADER_LEN..];
        while let Some(head) = rest.first_chunk::<RECORD_HEADER_LEN>() {
            if head.iter().all(|byte| *byte == 0) {
                break;
            }
            let head = Head::read(head).ok_or_else(|| damaged("the header of a record"))?;
            let record = rest.get(..head.capacity as usize).ok_or_else(|| damaged("a record is cut short"))?;
            rest = &rest[record.len()..];
            let contents = &record[RECORD_HEADER_LEN..][..head.len as usize];
            if head.state == FREE || found.get(&head.key).is_some_and(|(change, _)| *change > head.change) {
                continue;
            }
            if crc32fast::hash(contents) != head.sum {
                return Err(damaged("the contents of a record"));
            }
            found.insert(head.key, (head.change, Zeroizing::new(contents.to_vec())));
        }
        let records = found.into_iter().map(|(key, (_, contents))| (key, contents)).collect();
        Ok(Some(Records { created_ns: long(header, 88), records }))
    }

    /// When a journal was created, in nanoseconds since boot; `None` if it is none.
    #[must_use]
    pub fn created_ns(file: &File) -> Option<u64> {
        let mut header = [0; HEADER_LEN];
        file.read_exact_at(&mut header, 0).ok()?;
        (header[..16] == MAGIC && crc32fast::hash(&header[..96]) == word(&header, 96)).then(|| long(&header, 88))
    }

    /// Overwrites a journal with zeros.
    ///
    /// # Errors
    /// The file system's.
    pub fn wipe(file: &File) -> io::Result<()> {
        let zeros = [0; 1 << 12];
        let len = used_len(file)?;
        let mut at = 0;
        while at < len {
            let n = (len - at).min(zeros.len() as u64);
            file.write_all_at(&zeros[..n as usize], at)?;
            at += n;
        }
        Ok(())
    }
}

/// The length of the part before the first hole: files with [progress](crate::progress) have that far behind it.
fn used_len(file: &File) -> io::Result<u64> {
    let len = file.metadata()?.len();
    if len == 0 {
        return Ok(0);
    }
    // On file systems that do not know holes, the end of the file is the first one.
    Ok(seek(file, SeekFrom::Hole(0)).unwrap_or(len).min(len))
}

fn contents(file: &File) -> io::Result<Zeroizing<Vec<u8>>> {
    let len = usize::try_from(used_len(file)?).map_err(io::Error::other)?;
    let mut bytes = Zeroizing::new(vec![0; len]);
    file.read_exact_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::mapping::memory_file;

    fn journal() -> Journal {
        Journal::create(memory_file("test").unwrap(), "tests 1", "this boot", 7).unwrap()
    }

    fn read(file: &File) -> Vec<(u64, Vec<u8>)> {
        let read = Journal::read(file, "tests 1", "this boot").unwrap().expect("of this boot");
        assert_eq!(read.created_ns, 7);
        read.records.iter().map(|(key, contents)| (*key, contents.to_vec())).collect()
    }

    /// The file's bytes, in another file.
    fn copy(bytes: &[u8]) -> File {
        let file = memory_file("copy").unwrap();
        file.write_all_at(bytes, 0).unwrap();
        file
    }

    #[test]
    fn records_are_read_as_they_were_put() {
        let mut journal = journal();
        assert_eq!(read(journal.file()), []);
        journal.put(2, b"two").unwrap();
        journal.put(1, &[9; 200]).unwrap();
        journal.put(3, b"").unwrap();
        journal.put(2, b"two again").unwrap();
        journal.remove(3).unwrap();
        journal.remove(77).unwrap();
        assert_eq!(read(journal.file()), [(1, vec![9; 200]), (2, b"two again".to_vec())]);
        assert!(journal.put(4, &vec![0; MAX_LEN + 1]).is_err());
    }

    /// Daemons of other versions read this file. A change of its layout needs another [`MAGIC`].
    #[test]
    fn the_file_is_as_other_versions_read_it() {
        let mut journal = journal();
        journal.put(0x0102_0304_0506_0708, b"contents").unwrap();
        let bytes = contents(journal.file()).unwrap();
        let mut header = b"sealane journal1tests 1".to_vec();
        header.resize(48, 0);
        header.extend_from_slice(b"this boot");
        header.resize(88, 0);
        header.extend_from_slice(&7u64.to_le_bytes());
        header.extend_from_slice(&crc32fast::hash(&header).to_le_bytes());
        header.resize(128, 0);
        // Live, 64 bytes, 8 of them contents and their checksum; key, change, checksum.
        let mut record: Vec<u8> = [1u32, 64, 8, crc32fast::hash(b"contents")].map(u32::to_le_bytes).concat();
        record.extend_from_slice(&[8, 7, 6, 5, 4, 3, 2, 1, 1, 0, 0, 0, 0, 0, 0, 0]);
        record.extend_from_slice(&crc32fast::hash(&record).to_le_bytes());
        record.resize(48, 0);
        record.extend_from_slice(b"contents");
        record.resize(64, 0);
        assert_eq!(bytes[..192], [header, record].concat());
    }

    #[test]
    fn freed_space_is_wiped_and_used_again() {
        let mut journal = journal();
        for round in 0..1000u64 {
            journal.put(round % 7, format!("the secret of round {round:5}").as_bytes()).unwrap();
        }
        assert!(journal.end < 2048, "{}", journal.end);
        for key in 0..7 {
            journal.remove(key).unwrap();
        }
        assert_eq!(read(journal.file()), []);
        let all = contents(journal.file()).unwrap();
        assert!(!all.windows(6).any(|window| window == b"secret"));
        journal.put(1, b"a secret").unwrap();
        Journal::wipe(journal.file()).unwrap();
        assert!(contents(journal.file()).unwrap().iter().all(|byte| *byte == 0));
    }

    /// Whatever prefix of the writes of a change has been done, the record is the old one or the new one.
    #[test]
    fn a_change_is_done_or_not() {
        let mut journal = journal();
        journal.put(1, b"first").unwrap();
        journal.put(2, b"other").unwrap();
        let before = contents(journal.file()).unwrap();
        journal.put(1, b"second").unwrap();
        let after = contents(journal.file()).unwrap();
        // In the order of writing: contents of the new record, its header, the header of the old one, its contents.
        let (old, new) = (HEADER_LEN, HEADER_LEN + 2 * UNIT);
        let writes = [
            (new + RECORD_HEADER_LEN, UNIT - RECORD_HEADER_LEN),
            (new, RECORD_HEADER_LEN),
            (old, RECORD_HEADER_LEN),
            (old + RECORD_HEADER_LEN, UNIT - RECORD_HEADER_LEN),
        ];
        let mut now = before.to_vec();
        now.resize(after.len(), 0);
        let mut seen = Vec::new();
        for (at, len) in writes {
            now[at..at + len].copy_from_slice(&after[at..at + len]);
            let records = read(&copy(&now));
            assert_eq!(records[1], (2, b"other".to_vec()));
            seen.push(String::from_utf8(records[0].1.clone()).unwrap());
        }
        assert_eq!(seen, ["first", "second", "second", "second"]);
        assert_eq!(&*now, &*after.to_vec());
    }

    #[test]
    fn what_is_damaged_is_refused() {
        let mut journal = journal();
        journal.put(1, b"some contents").unwrap();
        let whole = contents(journal.file()).unwrap();
        let used = HEADER_LEN + RECORD_HEADER_LEN + 13;
        for at in (0..100).chain(HEADER_LEN..HEADER_LEN + 36).chain(HEADER_LEN + RECORD_HEADER_LEN..used) {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 1;
            assert!(Journal::read(&copy(&bytes), "tests 1", "this boot").is_err(), "byte {at}");
        }
        let other = Journal::read(journal.file(), "tests 2", "this boot").map(|_| ()).unwrap_err();
        assert_eq!(other.to_string(), "of another kind than 'tests 2'");
        assert!(Journal::read(journal.file(), "tests 1", "another boot").unwrap().is_none());
        assert!(Journal::read(&memory_file("empty").unwrap(), "tests 1", "this boot").is_err());
    }
}
