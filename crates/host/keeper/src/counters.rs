//! Counters of what has gone through the versions of keys.
//!
//! A key's file has them as they are *written ahead*: so much counts as used after a crash. A keeper that ends in order leaves a file
//! with the counters as they stand. The next one reads it, removes it, and goes on with what was written ahead: nothing has to be
//! written again at the first use of each key.

use sealane_keeper_client::codec::{Malformed, Reader, Wiped, Writer};
use sealane_keeper_client::key::{MAX_NAME_LEN, Name};
use std::collections::HashMap;

/// Bytes and operations that have gone through a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Used {
    /// Bytes.
    pub bytes: u64,
    /// Operations.
    pub operations: u64,
}

/// The counters of a version when a keeper ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The key.
    pub name: Name,
    /// The number of the version.
    pub version: u32,
    /// As they stood.
    pub used: Used,
    /// As the key's file had them. Where it has others by now, a keeper has used the key since, and `used` is too low.
    pub written: Used,
}

impl Used {
    fn write(self, to: &mut Writer) {
        to.u64(self.bytes);
        to.u64(self.operations);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(Used { bytes: from.u64("bytes")?, operations: from.u64("operations")? })
    }
}

/// The bytes of a file of counters, before it is sealed.
pub(crate) fn encode(entries: &[Entry]) -> Wiped {
    let mut to = Writer::new();
    for entry in entries {
        to.bytes(entry.name.as_str().as_bytes());
        to.u32(entry.version);
        entry.used.write(&mut to);
        entry.written.write(&mut to);
    }
    to.done()
}

/// Reads such bytes.
///
/// # Errors
/// [`Malformed`].
pub fn decode(bytes: &[u8]) -> Result<Vec<Entry>, Malformed> {
    let mut from = Reader::new(bytes);
    let mut entries = Vec::new();
    while from.left() > 0 {
        let name = Name::new(from.text(MAX_NAME_LEN, "name")?).ok_or(Malformed("name"))?;
        let version = from.u32("version")?;
        entries.push(Entry { name, version, used: Used::read(&mut from)?, written: Used::read(&mut from)? });
    }
    Ok(entries)
}

/// Counters that are known exactly.
#[derive(Default)]
pub(crate) struct Counters(HashMap<(Name, u32), Used>);

impl Counters {
    pub(crate) fn of(&self, name: &Name, version: u32) -> Option<Used> {
        self.0.get(&(name.clone(), version)).copied()
    }

    pub(crate) fn forget(&mut self, name: &Name, version: u32) {
        self.0.remove(&(name.clone(), version));
    }

    pub(crate) fn set(&mut self, name: &Name, version: u32, used: Used) {
        self.0.insert((name.clone(), version), used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_come_back_and_shorter_ones_do_not() {
        let entry = |name: &str, version| Entry {
            name: Name::new(name).unwrap(),
            version,
            used: Used { bytes: 1, operations: 2 },
            written: Used { bytes: u64::MAX, operations: 4 },
        };
        let entries = [entry("a", 1), entry("a", 2), entry("b.c", u32::MAX)];
        let bytes = encode(&entries);
        assert_eq!(decode(&bytes).unwrap(), entries);
        let whole = |len: &usize| decode(&bytes[..*len]).is_ok();
        assert_eq!((0..=bytes.len()).filter(whole).count(), 4, "after each of them, and before the first");
        assert!(decode(&encode(&[])).unwrap().is_empty());
    }
}
