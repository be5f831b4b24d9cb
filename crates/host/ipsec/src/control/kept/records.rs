//! Records of policies and states as a journal has them, and the changes that make them.

use sealane_engine_xfrm::{Record, Recorder};
use sealane_handover::Journal;
use sealane_handover::progress::{Entry, Progress};
use sealane_net_ipsec::progress::Words;
use sealane_sys::link;
use sealane_sys::netns::Netns;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use tracing::{debug, warn};
use zeroize::Zeroizing;

/// The kinds of journals, with the versions of their records.
pub(super) const POLICIES: &str = "ipsec policies 2";
pub(super) const STATES: &str = "ipsec states 1";

/// Changes to write, collected while the engine is locked.
#[derive(Default)]
pub(crate) struct Batch {
    pub(super) policies: Changes,
    pub(super) states: Changes,
    /// Entries of progress that no state uses any more: their records are gone, or go with this batch.
    pub(super) dropped: Vec<u32>,
}

/// Changes of one journal in their order, by keys: a record to put, or `None` to remove the one that is there.
type Changes = Vec<(u64, Option<Zeroizing<Vec<u8>>>)>;

fn write(journal: &mut Journal, (key, record): &(u64, Option<Zeroizing<Vec<u8>>>)) -> io::Result<()> {
    match record {
        Some(record) => journal.put(*key, record),
        None => journal.remove(*key),
    }
}

impl Batch {
    /// Writes the changes of policies, until one fails.
    ///
    /// # Errors
    /// The file system's.
    pub(super) fn write_policies(&self, journal: &mut Journal) -> io::Result<()> {
        self.policies.iter().try_for_each(|change| write(journal, change))
    }

    /// Writes the changes of states that can be written.
    ///
    /// # Errors
    /// The last one of the file system.
    pub(super) fn write_states(&self, journal: &mut Journal) -> io::Result<()> {
        let failed = self.states.iter().filter_map(|change| write(journal, change).err());
        // The next daemon lacks such a state: packets of its peer are dropped then.
        failed.inspect(|e| warn!(error = %e, "xfrm: a state would not survive us: {e}")).last().map_or(Ok(()), Err)
    }
}

/// An entry of progress as the engine uses it.
struct EntryWords(Entry);

impl Words for EntryWords {
    fn index(&self) -> u32 {
        self.0.index()
    }

    fn words(&self) -> &[AtomicU64; 8] {
        self.0.words()
    }
}

/// Collects the changes of an engine.
pub(super) struct Collector<'a> {
    batch: &'a mut Batch,
    progress: Option<&'a Progress>,
    netns: &'a Netns,
    /// Names of devices that were looked up.
    names: HashMap<i32, Option<String>>,
}

impl<'a> Collector<'a> {
    /// One for a batch. `progress` is the place of the words of states, if there is one.
    pub(super) fn of(batch: &'a mut Batch, progress: Option<&'a Progress>, netns: &'a Netns) -> Self {
        Collector { batch, progress, netns, names: HashMap::new() }
    }

    fn record(&mut self, record: &Record<'_>) -> Zeroizing<Vec<u8>> {
        let netns = self.netns;
        let device = record.device.map(|of| {
            let name = self.names.entry(of.ifindex).or_insert_with(|| {
                let index = u32::try_from(of.ifindex).ok()?;
                netns.run(|| link::name(index)).ok()
            });
            (name.clone().unwrap_or_default(), of.flags)
        });
        encode(device.as_ref().map(|(name, flags)| (&**name, *flags)), record.progress, record.request)
    }
}

impl Recorder for Collector<'_> {
    fn words(&mut self) -> Option<Arc<dyn Words>> {
        let entry = self.progress?.take().inspect_err(|e| debug!(error = %e, "xfrm: no memory for progress: {e}"));
        Some(Arc::new(EntryWords(entry.ok()?)))
    }

    fn put_state(&mut self, key: u64, record: &Record<'_>) {
        let record = self.record(record);
        self.batch.states.push((key, Some(record)));
    }

    fn remove_state(&mut self, key: u64) {
        self.batch.states.push((key, None));
    }

    fn put_policy(&mut self, key: u64, record: &Record<'_>) {
        let record = self.record(record);
        self.batch.policies.push((key, Some(record)));
    }

    fn remove_policy(&mut self, key: u64) {
        self.batch.policies.push((key, None));
    }
}

/// A record of a journal: device (length of its name, name, flags), number of the progress, request.
pub(super) fn encode(device: Option<(&str, u8)>, progress: Option<u32>, request: &[u8]) -> Zeroizing<Vec<u8>> {
    let (name, flags) = device.unwrap_or_default();
    let name = &name.as_bytes()[..name.len().min(u8::MAX.into())];
    let mut bytes = Zeroizing::new(Vec::with_capacity(7 + name.len() + request.len()));
    bytes.extend_from_slice(&[u8::from(device.is_some()), name.len() as u8]);
    bytes.extend_from_slice(name);
    bytes.push(flags);
    bytes.extend_from_slice(&progress.unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(request);
    bytes
}

/// A record as it was encoded.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Decoded<'a> {
    pub(super) device: Option<(&'a str, u8)>,
    pub(super) progress: Option<u32>,
    pub(super) request: &'a [u8],
}

pub(super) fn decode(bytes: &[u8]) -> Option<Decoded<'_>> {
    let ([has_device, len], rest) = bytes.split_first_chunk()?;
    let (name, rest) = rest.split_at_checked(usize::from(*len))?;
    let ([flags], rest) = rest.split_first_chunk()?;
    let (progress, request) = rest.split_first_chunk()?;
    let progress = Some(u32::from_le_bytes(*progress)).filter(|index| *index != u32::MAX);
    let device = match has_device {
        0 => None,
        _ => Some((core::str::from_utf8(name).ok()?, *flags)),
    };
    Some(Decoded { device, progress, request })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Daemons of other versions read these records. A change of their layout needs other versions in [`POLICIES`] and
    /// [`STATES`]. The requests in them are pinned by the engine's tests.
    #[test]
    fn records_are_as_other_versions_read_them() {
        assert_eq!((POLICIES, STATES), ("ipsec policies 2", "ipsec states 1"));
        let record = encode(Some(("sealane0", 3)), Some(0x0102_0304), b"request");
        assert_eq!(&record[..], b"\x01\x08sealane0\x03\x04\x03\x02\x01request");
        assert_eq!(&encode(None, None, b"request")[..], b"\0\0\0\xff\xff\xff\xffrequest");
    }

    #[test]
    fn a_record_is_decoded_as_it_was_encoded() {
        for (device, progress) in [(None, None), (Some(("sealane0", 3)), Some(7)), (Some(("", 0)), None)] {
            let bytes = encode(device, progress, b"request");
            assert_eq!(decode(&bytes), Some(Decoded { device, progress, request: b"request" }));
            for len in 0..bytes.len() - b"request".len() {
                assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
            }
        }
    }
}
