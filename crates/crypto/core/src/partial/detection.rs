//! Altered blocks that go unnoticed: counted, with intervals, and by the formula (1 - f)^m. For tests and reports, not for packets.

use super::{BLOCK_LEN, Fraction, PartialAlg};
use crate::error::OpError;

/// The blocks of the body that are altered at most: those of a payload of 1,420 bytes.
pub const BLOCKS: usize = 88;
/// The packets of one key.
const KEY_PACKETS: u64 = 1000;

/// The fractions of which a part is left out.
pub const PARTS: [Fraction; 3] = [Fraction::Half, Fraction::Quarter, Fraction::Eighth];

/// Numbers that are the same in every run (splitmix64).
struct Random(u64);

impl Random {
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        (self.draw() % end as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.draw() as u8).collect()
    }
}

/// The confidence of an interval.
#[derive(Debug, Clone, Copy)]
pub struct Level {
    /// The probability of being outside of it.
    pub outside: f64,
    /// The standard deviations from the middle to its ends.
    pub z: f64,
}

impl Level {
    /// 99 %.
    pub const P99: Level = Level { outside: 0.01, z: 2.575_829 };
}

/// So many altered blocks, how often they went unnoticed, and how often they should.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    /// The fraction that is covered.
    pub fraction: Fraction,
    /// Altered blocks, m.
    pub altered: usize,
    /// Packets.
    pub trials: u64,
    /// Packets of which no altered block was covered.
    pub escaped: u64,
    /// The probability of that: (1 - f)^m.
    pub formula: f64,
}

impl Point {
    /// The interval of Wilson for the probability.
    #[must_use]
    pub fn interval(&self, level: Level) -> [f64; 2] {
        let (n, p, z) = (self.trials as f64, self.escaped as f64 / self.trials as f64, level.z);
        let (middle, half) = (p + z * z / (2.0 * n), z * (p * (1.0 - p) / n + z * z / (4.0 * n * n)).sqrt());
        [middle - half, middle + half].map(|bound| (bound / (1.0 + z * z / n)).max(0.0))
    }

    /// Whether the formula is within the interval of what was counted: Wilson's, and the exact one where so few are expected that
    /// Wilson's is none.
    #[must_use]
    pub fn is_within(&self, level: Level) -> bool {
        if self.expected() > 50.0 {
            let [low, high] = self.interval(level);
            return low <= self.formula && self.formula <= high;
        }
        let fewer = self.escaped.checked_sub(1).map_or(0.0, |fewer| at_most(fewer, self.trials, self.formula));
        let so_few = at_most(self.escaped, self.trials, self.formula);
        so_few > level.outside / 2.0 && 1.0 - fewer > level.outside / 2.0
    }

    /// The packets that go unnoticed by the formula.
    #[must_use]
    pub fn expected(&self) -> f64 {
        self.trials as f64 * self.formula
    }
}

/// The probability that at most `hits` of `trials` come true.
fn at_most(hits: u64, trials: u64, p: f64) -> f64 {
    let mut term = (trials as f64 * (-p).ln_1p()).exp();
    let mut sum = term;
    for i in 0..hits {
        term *= (trials - i) as f64 / (i + 1) as f64 * p / (1.0 - p);
        sum += term;
    }
    sum
}

/// The number of packets of `trials` in which an attacker who alters m blocks goes unnoticed, for each m from 1. The blocks are chosen at
/// random; m + 1 of them are m and another one, so that a packet counts for each m. Selections alone are made, no MAC.
///
/// # Errors
/// The cipher's, [`OpError::Driver`].
pub fn escapes(alg: &PartialAlg, trials: u64, seed: u64) -> Result<[u64; BLOCKS], OpError> {
    let mut random = Random(seed);
    let mut first_found = [0u64; BLOCKS + 1];
    for from in (0..trials).step_by(KEY_PACKETS as usize) {
        let tfm = alg.key(&random.bytes(16), b"spi.").map_err(|_| OpError::Driver)?;
        for trial in from..trials.min(from + KEY_PACKETS) {
            let selection = tfm.selection(trial, BLOCKS * BLOCK_LEN)?;
            let mut order: [usize; BLOCKS] = core::array::from_fn(|block| block);
            let found = (0..BLOCKS).find(|at| {
                order.swap(*at, at + random.below(BLOCKS - at));
                selection.covers(order[*at])
            });
            first_found[found.unwrap_or(BLOCKS)] += 1;
        }
    }
    let mut left = trials;
    Ok(core::array::from_fn(|at| {
        left -= first_found[at];
        left
    }))
}

/// A point for each number of altered blocks, with the formula beside what was counted. The numbers are the same in every run and on every
/// machine.
///
/// # Errors
/// As for [`escapes`].
pub fn points(alg: &PartialAlg, trials: u64, seed: u64) -> Result<Vec<Point>, OpError> {
    let fraction = alg.info().fraction;
    let point = |(altered, escaped): (usize, u64)| {
        let formula = (1.0 - fraction.share()).powi(altered as i32);
        Point { fraction, altered, trials, escaped, formula }
    };
    Ok((1..).zip(escapes(alg, trials, seed)?).map(point).collect())
}
