//! The places of guarded memory: cells of one cache line, each with a bit that says whether it is taken. The bits lie outside, in
//! ordinary memory, so that the memory need not be opened for them; there is no lock, which a thread might hold at a fork.

use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The bytes of a cell.
pub(crate) const CELL_LEN: usize = 64;
/// The cells of a word.
const WORD: usize = u64::BITS as usize;

/// Cells, each of which is taken or free.
pub(crate) struct Cells {
    taken: Box<[AtomicU64]>,
    /// The word at which the next search begins.
    hint: AtomicUsize,
}

/// The first of `count` bits in a row that are set in `free`.
fn run(free: u64, count: usize) -> Option<usize> {
    let (mut starts, mut len) = (free, 1);
    while len < count {
        let step = len.min(count - len);
        starts &= starts >> step;
        len += step;
    }
    (starts != 0).then(|| starts.trailing_zeros() as usize)
}

/// `count` bits from bit `at` on; `at + count` is at most 64.
fn mask(at: usize, count: usize) -> u64 {
    u64::MAX >> (WORD - count) << at
}

impl Cells {
    /// Free cells for `len` bytes, which are whole words of cells.
    pub(crate) fn new(len: usize) -> Self {
        let words = len / (CELL_LEN * WORD);
        Cells { taken: (0..words).map(|_| AtomicU64::new(0)).collect(), hint: AtomicUsize::new(0) }
    }

    /// The number of cells that are taken.
    pub(crate) fn used(&self) -> usize {
        self.taken.iter().map(|word| word.load(Ordering::Acquire).count_ones() as usize).sum()
    }

    /// Takes cells for `len` bytes; returns the offset of the first one in bytes.
    pub(crate) fn take(&self, len: usize) -> Option<usize> {
        self.take_from(self.hint.load(Ordering::Relaxed), len)
    }

    /// The same, as far in front as there is room.
    pub(crate) fn take_first(&self, len: usize) -> Option<usize> {
        self.take_from(0, len)
    }

    fn take_from(&self, first: usize, len: usize) -> Option<usize> {
        let count = len.div_ceil(CELL_LEN).max(1);
        let words = self.taken.len();
        for at in (first..words).chain(0..first) {
            let found =
                if count <= WORD { self.take_within(at, count) } else { self.take_words(at, count.div_ceil(WORD)) };
            if let Some(bit) = found {
                self.hint.store(at, Ordering::Relaxed);
                return Some((at * WORD + bit) * CELL_LEN);
            }
        }
        None
    }

    fn take_within(&self, at: usize, count: usize) -> Option<usize> {
        let word = &self.taken[at];
        let mut seen = word.load(Ordering::Relaxed);
        loop {
            let bit = run(!seen, count)?;
            match word.compare_exchange_weak(seen, seen | mask(bit, count), Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return Some(bit),
                Err(now) => seen = now,
            }
        }
    }

    fn take_words(&self, at: usize, count: usize) -> Option<usize> {
        let words = self.taken.get(at..)?.get(..count)?;
        let take = |word: &AtomicU64| word.compare_exchange(0, u64::MAX, Ordering::Acquire, Ordering::Relaxed).is_ok();
        let got = words.iter().take_while(|word| take(word)).count();
        if got == count {
            return Some(0);
        }
        words[..got].iter().for_each(|word| word.store(0, Ordering::Release));
        None
    }

    /// Takes back the cells of `len` bytes at an offset.
    pub(crate) fn give(&self, offset: usize, len: usize) {
        let (at, count) = (offset / CELL_LEN, len.div_ceil(CELL_LEN).max(1));
        if count <= WORD {
            self.taken[at / WORD].fetch_and(!mask(at % WORD, count), Ordering::Release);
            // Pages that are in use are used before others, each of which takes a system call and locked memory.
            self.hint.fetch_min(at / WORD, Ordering::Relaxed);
        } else {
            self.taken[at / WORD..][..count.div_ceil(WORD)].iter().for_each(|word| word.store(0, Ordering::Release));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_bits() {
        assert_eq!(run(0, 1), None);
        assert_eq!(run(u64::MAX, 64), Some(0));
        assert_eq!(run(u64::MAX << 1, 64), None);
        assert_eq!(run(0b0110_1110, 3), Some(1));
        assert_eq!(run(0b0110_1111 << 57, 4), Some(57));
        assert_eq!(run(0b0110_1110, 4), None);
        for (at, count) in [(0, 64), (0, 1), (63, 1), (13, 51), (5, 7)] {
            assert_eq!(run(mask(at, count), count), Some(at), "{count} at {at}");
            assert_eq!(mask(at, count).count_ones() as usize, count);
        }
    }

    #[test]
    fn places_do_not_overlap_and_are_found_again() {
        let len = 64 << 10;
        let cells = Cells::new(len);
        let mut held: Vec<(usize, usize)> = Vec::new();
        let mut random = 7u32;
        let mut next = |below: usize| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 8) as usize % below
        };
        let (mut full, mut whole) = (0, 0);
        for _ in 0..20_000 {
            if next(3) > 0 {
                let len = if next(10) == 0 { next(9000) } else { next(700) };
                match cells.take(len) {
                    None => full += 1,
                    Some(at) => {
                        let end = at + len.max(1);
                        assert!(at % CELL_LEN == 0 && end <= 64 << 10, "{len} at {at}");
                        assert!(held.iter().all(|(a, l)| end <= *a || a + (*l).max(1) <= at), "{len} at {at}");
                        whole += usize::from(len > CELL_LEN * WORD);
                        held.push((at, len));
                    }
                }
            } else if !held.is_empty() {
                let (at, len) = held.swap_remove(next(held.len()));
                cells.give(at, len);
            }
        }
        assert!(full > 0 && whole > 0, "{full} {whole}");
        held.into_iter().for_each(|(at, len)| cells.give(at, len));
        assert_eq!(cells.used(), 0);
        assert_eq!(cells.take(len), Some(0));
        assert_eq!(cells.take(1), None);
    }

    #[test]
    fn few_places_stay_in_front_however_often_they_are_taken_anew() {
        let cells = Cells::new(256 << 10);
        let mut held: Vec<usize> = (0..16).map(|_| cells.take(1024).expect("room")).collect();
        for i in 0..1000 {
            cells.give(held[i % 16], 1024);
            held[i % 16] = cells.take(1024).expect("room");
        }
        assert!(held.iter().all(|at| *at < 20 << 10), "{held:?}");
    }

    #[test]
    fn threads_take_and_give() {
        let cells = Cells::new(256 << 10);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let cells = &cells;
                scope.spawn(move || {
                    for i in 0..5000 {
                        let len = (i * 37 + thread * 911) % 5000;
                        let at = cells.take(len).expect("there is room for four");
                        cells.give(at, len);
                    }
                });
            }
        });
        assert_eq!(cells.used(), 0);
    }
}
