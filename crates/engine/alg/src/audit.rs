//! The counters of `sealane audit`: a table of words that several processes may share.
//!
//! One row for each (type, name, privileged). Rows are claimed by compare-exchange and never given back; everything in
//! them is an atomic, so that a mapped file serves as the table.

use crate::host::{Call, Event};
use core::sync::atomic::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use sealane_crypto::Kind;

/// Rows in a table. When all are taken, further algorithms are counted in the last one, under the name of its first
/// user.
pub const ROWS: usize = 512;
/// Words in a row.
const ROW: usize = 48;
/// Words in a table.
pub const WORDS: usize = ROWS * ROW;

const STATE: usize = 0;
const KEY: usize = 1;
const NAME: usize = 2;
const DRIVER: usize = 18;
const COUNTS: usize = 34;
const TEXT_LEN: usize = 16 * 8;

const EMPTY: u64 = 0;
const CLAIMED: u64 = 1;
const READY: u64 = 2;

/// A table in place.
#[derive(Clone, Copy)]
pub struct Counters<'a>(&'a [AtomicU64]);

/// The counters of one algorithm.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// `hash`, `skcipher`, `aead`, `rng`, or `?` for a type that does not exist.
    pub kind: String,
    /// Algorithm as the program named it.
    pub name: String,
    /// The driver that served it, empty where none did.
    pub driver: String,
    /// Whether the caller had CAP_NET_ADMIN or CAP_SYS_ADMIN.
    pub privileged: bool,
    /// Calls of bind.
    pub binds: u64,
    /// Keys and seeds set.
    pub keys: u64,
    /// Operations accepted.
    pub accepts: u64,
    /// Sends.
    pub sends: u64,
    /// Receives.
    pub recvs: u64,
    /// Bytes sent.
    pub bytes_in: u64,
    /// Bytes received.
    pub bytes_out: u64,
    /// Calls that failed.
    pub errors: u64,
}

impl<'a> Counters<'a> {
    /// The table in `words`, all zero at first.
    ///
    /// # Panics
    /// When there are fewer than [`WORDS`].
    #[must_use]
    pub fn new(words: &'a [AtomicU64]) -> Self {
        Counters(&words[..WORDS])
    }

    /// Counts one call.
    pub fn count(&self, event: &Event<'_>, privileged: bool) {
        let kind = event.kind.map_or(0, |k| k as u64 + 1);
        let row = self.row(kind | u64::from(privileged) << 8, event.name);
        let add = |i: usize, n: u64| row[COUNTS + i].fetch_add(n, Relaxed);
        let (call, bytes) = match event.call {
            Call::Bind => (0, None),
            Call::SetKey => (1, None),
            Call::Accept => (2, None),
            Call::Send => (3, Some(5)),
            Call::Recv => (4, Some(6)),
        };
        add(call, 1);
        if let Some(bytes) = bytes {
            add(bytes, event.bytes as u64);
        }
        if event.errno.is_some() {
            add(7, 1);
        }
        if !event.driver.is_empty() && row[DRIVER].load(Relaxed) == 0 {
            put(&row[DRIVER..], event.driver);
        }
    }

    fn row(&self, key: u64, name: &str) -> &'a [AtomicU64] {
        // FNV-1a: any spread will do.
        let hash =
            name.bytes().fold(0xcbf2_9ce4_8422_2325 ^ key, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        for probe in 0..ROWS {
            let at = (hash as usize).wrapping_add(probe) % ROWS * ROW;
            let row = &self.0[at..at + ROW];
            if row[STATE].compare_exchange(EMPTY, CLAIMED, AcqRel, Acquire).is_ok() {
                row[KEY].store(key, Relaxed);
                put(&row[NAME..], name);
                row[STATE].store(READY, Release);
                return row;
            }
            // A row that is being written belongs to nobody we know yet; at worst one name gets two rows, which
            // `usage` adds up.
            if row[STATE].load(Acquire) == READY && row[KEY].load(Relaxed) == key && is(&row[NAME..], name) {
                return row;
            }
        }
        &self.0[WORDS - ROW..]
    }

    /// The counters so far, by type and name.
    #[must_use]
    pub fn usage(&self) -> Vec<Usage> {
        let mut all: Vec<Usage> = Vec::new();
        for row in self.0.chunks_exact(ROW).filter(|row| row[STATE].load(Acquire) == READY) {
            let key = row[KEY].load(Relaxed);
            let kind = match (key & 0xff).checked_sub(1) {
                Some(k) => KINDS.iter().find(|kind| **kind as u64 == k).map_or("?", |kind| kind.name()),
                None => "?",
            };
            let count = |i: usize| row[COUNTS + i].load(Relaxed);
            let one = Usage {
                kind: kind.to_owned(),
                name: text(&row[NAME..]),
                driver: text(&row[DRIVER..]),
                privileged: key >> 8 & 1 != 0,
                binds: count(0),
                keys: count(1),
                accepts: count(2),
                sends: count(3),
                recvs: count(4),
                bytes_in: count(5),
                bytes_out: count(6),
                errors: count(7),
            };
            match all.iter_mut().find(|u| u.kind == one.kind && u.name == one.name && u.privileged == one.privileged) {
                Some(known) => known.add(one),
                None => all.push(one),
            }
        }
        all.sort_by(|a, b| (&a.kind, &a.name, a.privileged).cmp(&(&b.kind, &b.name, b.privileged)));
        all
    }
}

impl Usage {
    fn add(&mut self, other: Usage) {
        if self.driver.is_empty() {
            self.driver = other.driver;
        }
        self.binds += other.binds;
        self.keys += other.keys;
        self.accepts += other.accepts;
        self.sends += other.sends;
        self.recvs += other.recvs;
        self.bytes_in += other.bytes_in;
        self.bytes_out += other.bytes_out;
        self.errors += other.errors;
    }
}

const KINDS: [Kind; 4] = [Kind::Hash, Kind::Skcipher, Kind::Aead, Kind::Rng];

/// Stores a name, cut to [`TEXT_LEN`] bytes, zero-padded.
fn put(words: &[AtomicU64], name: &str) {
    let mut bytes = [0; TEXT_LEN];
    let n = name.len().min(TEXT_LEN);
    bytes[..n].copy_from_slice(&name.as_bytes()[..n]);
    for (word, part) in words.iter().zip(bytes.chunks_exact(8)) {
        word.store(u64::from_le_bytes(*part.first_chunk().expect("a chunk of 8 bytes")), Relaxed);
    }
}

fn bytes(words: &[AtomicU64]) -> [u8; TEXT_LEN] {
    let mut bytes = [0; TEXT_LEN];
    for (word, part) in words.iter().zip(bytes.chunks_exact_mut(8)) {
        part.copy_from_slice(&word.load(Relaxed).to_le_bytes());
    }
    bytes
}

fn is(words: &[AtomicU64], name: &str) -> bool {
    let n = name.len().min(TEXT_LEN);
    let stored = bytes(words);
    stored[..n] == name.as_bytes()[..n] && stored[n..].iter().all(|b| *b == 0)
}

fn text(words: &[AtomicU64]) -> String {
    let stored = bytes(words);
    let len = stored.iter().position(|b| *b == 0).unwrap_or(TEXT_LEN);
    String::from_utf8_lossy(&stored[..len]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event<'a>(call: Call, name: &'a str, bytes: usize) -> Event<'a> {
        Event { call, kind: Some(Kind::Hash), name, driver: "", bytes, errno: None }
    }

    #[test]
    fn counts_by_name_and_privilege() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::new(&words);
        counters.count(&event(Call::Bind, "sha256", 0), false);
        counters.count(&Event { driver: "sha256-portable", ..event(Call::Send, "sha256", 7) }, false);
        counters.count(&event(Call::Send, "sha256", 5), true);
        counters.count(&event(Call::Bind, "sha25", 0), false);
        let usage = counters.usage();
        let seen: Vec<_> =
            usage.iter().map(|u| (&*u.name, u.privileged, u.binds, u.sends, u.bytes_in, &*u.driver)).collect();
        assert_eq!(
            seen,
            [
                ("sha25", false, 1, 0, 0, ""),
                ("sha256", false, 1, 1, 7, "sha256-portable"),
                ("sha256", true, 0, 1, 5, "")
            ]
        );
    }

    #[test]
    fn more_names_than_rows_are_still_counted() {
        let words: Vec<AtomicU64> = (0..WORDS).map(|_| AtomicU64::new(0)).collect();
        let counters = Counters::new(&words);
        for i in 0..ROWS + 9 {
            counters.count(&event(Call::Bind, &format!("alg{i}"), 0), false);
        }
        assert_eq!(counters.usage().iter().map(|u| u.binds).sum::<u64>(), (ROWS + 9) as u64);
    }
}
