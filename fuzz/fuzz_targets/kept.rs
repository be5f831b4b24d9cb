//! The files that a daemon takes over from the one before. The first byte of an input says what the rest is: 0, the bytes of a
//! journal; 1, changes of a journal, after which it has to read as they say, also with bytes of it changed; otherwise
//! records of states and policies, which an engine makes again or refuses: no panic, and what it has made can be recorded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto::Registry;
use sealane_engine_xfrm::{Now, Record, Recorder, Setup, Xfrm};
use sealane_handover::Journal;
use sealane_net_ipsec::progress::{Progress, Words};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, LazyLock};

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| Arc::new(sealane_fuzz::registry()));
const KIND: &str = "fuzzed 1";

fn file() -> File {
    sealane_sys::mapping::memory_file("fuzz").expect("memory")
}

/// Splits off a part whose length is in the first two bytes.
fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, tail) = rest.split_first_chunk::<2>()?;
    let (part, tail) = tail.split_at_checked(usize::from(u16::from_le_bytes(*len)).min(tail.len()))?;
    *rest = tail;
    Some(part)
}

fn changes(mut rest: &[u8]) {
    let mut journal = Journal::create(file(), KIND, "boot", 1).expect("a journal");
    let mut wanted = BTreeMap::new();
    let mut flips = Vec::new();
    while let Some(change) = part(&mut rest) {
        match change {
            [0, key, contents @ ..] => {
                journal.put(u64::from(*key), contents).expect("memory");
                wanted.insert(u64::from(*key), contents.to_vec());
            }
            [1, key, ..] => {
                journal.remove(u64::from(*key)).expect("memory");
                wanted.remove(&u64::from(*key));
            }
            [_, at @ ..] => flips.extend_from_slice(at),
            [] => {}
        }
    }
    let read = Journal::read(journal.file(), KIND, "boot").expect("undamaged").expect("of this boot");
    let read: BTreeMap<u64, Vec<u8>> = read.records.iter().map(|(key, contents)| (*key, contents.to_vec())).collect();
    assert_eq!(read, wanted);
    for flip in flips.chunks_exact(3) {
        let at = u64::from(u16::from_le_bytes([flip[0], flip[1]]));
        let _ = journal.file().write_all_at(&flip[2..], at);
    }
    let _ = Journal::read(journal.file(), KIND, "boot");
}

struct Counting(usize);

impl Recorder for Counting {
    fn words(&mut self) -> Option<Arc<dyn Words>> {
        None
    }

    fn put_state(&mut self, _: u64, record: &Record<'_>) {
        assert!(!record.request.is_empty());
        self.0 += 1;
    }

    fn remove_state(&mut self, _: u64) {}

    fn put_policy(&mut self, _: u64, record: &Record<'_>) {
        assert!(!record.request.is_empty());
        self.0 += 1;
    }

    fn remove_policy(&mut self, _: u64) {}
}

fn records(mut rest: &[u8]) {
    let random = |bytes: &mut [u8]| bytes.fill(7);
    let setup = Setup { registry: REGISTRY.clone(), random: Box::new(random), cpus: 2, numbers: None };
    let mut xfrm = Xfrm::new(setup);
    let now = Now { monotonic_ns: 0, wall_s: 1_800_000_000 };
    let mut made = 0;
    for _ in 0..32 {
        let Some(record) = part(&mut rest) else { break };
        let Some(([kind, top @ ..], request)) = record.split_first_chunk::<9>() else { break };
        made += usize::from(match kind % 3 {
            0 => xfrm.restore_policy(request, None, now).is_ok(),
            1 => xfrm.restore_state(request, None, None, now).is_ok(),
            _ => {
                let progress = Progress { top: u64::from_le_bytes(*top), bytes: 1, packets: 1, ..Progress::default() };
                xfrm.restore_state(request, None, Some(progress), now).is_ok()
            }
        });
    }
    let mut counting = Counting(0);
    xfrm.start_recording();
    xfrm.record(&mut counting);
    // The defaults are a record too.
    assert!(counting.0 <= made + 1, "{} of {made}", counting.0);
    xfrm.handle_timeout(Now { wall_s: now.wall_s + 1_000_000, ..now });
}

fuzz_target!(|input: &[u8]| match input {
    [0, bytes @ ..] => {
        let file = file();
        file.write_all_at(bytes, 0).expect("memory");
        let _ = Journal::read(&file, KIND, "boot");
        let _ = Journal::created_ns(&file);
    }
    [1, bytes @ ..] => changes(bytes),
    [_, bytes @ ..] => records(bytes),
    [] => {}
});
