//! Compares advice with measurements of all that may be advised, for random workloads.

use super::cost;
use super::question::{Interface, Question, Sizes};
use super::rank::{Means, Ranked, advise, rank};
use serde::Serialize;
use std::time::Duration;

/// Choices that the table has so many times above its best are not measured: no table is wrong by that much.
const HOPELESS: f64 = 3.0;

/// The most choices that are measured for a workload: the front by the table.
const MOST: usize = 24;

/// Time for each choice, length and direction.
const EACH: Duration = Duration::from_millis(25);

/// One workload: what was advised, and what the measured best would have been.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checked {
    /// The workload.
    pub question: Question,
    /// Choices that were measured.
    pub measured: usize,
    /// The measured best.
    pub best: String,
    /// Its time, in nanoseconds a packet.
    pub best_ns: f64,
    /// The advice by the table alone.
    pub by_table: String,
    /// Its measured time, as a multiple of the best.
    pub by_table_ratio: f64,
    /// The advice with the front measured.
    pub advised: String,
    /// Its measured time, as a multiple of the best.
    pub advised_ratio: f64,
}

/// Random numbers that are the same for the same seed (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// From `low` to `high`, evenly by the logarithm.
    fn log(&mut self, low: f64, high: f64) -> f64 {
        let part = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        low * (high / low).powf(part)
    }
}

/// A workload that somebody might have.
fn workload(random: &mut Random) -> Question {
    let interface = random.pick(&[
        Interface::TcpAo,
        Interface::TcpAo,
        Interface::Ipsec,
        Interface::Ipsec,
        Interface::AfAlgMac,
        Interface::AfAlgAead,
        Interface::AfAlgCipher,
        Interface::AfAlgHash,
    ]);
    let sizes = 1 + random.below(3);
    let sizes: Vec<usize> = (0..sizes).map(|_| random.log(60.0, 9000.0) as usize).collect();
    Question {
        interface,
        sizes: Sizes::of(sizes).expect("there is a length"),
        packets_per_s: random.log(100.0, 5e6),
        sessions: random.log(1.0, 1000.0) as u32,
        strength_bits: if interface == Interface::TcpAo {
            random.pick(&[96, 128])
        } else {
            random.pick(&[96, 128, 128])
        },
        // Without nonces there is no cipher of packets, and then nothing to compare.
        nonces: true,
        order: random.below(4) != 0,
        encryption: random.below(4) != 0,
        max_icv_bits: random.pick(&[None, None, Some(128)]),
    }
}

/// Checks the advice for `count` workloads that follow from `seed`; `each` is told of every one as it is done. Workloads for which there is
/// no choice are passed over.
pub fn check(count: usize, seed: u64, means: &Means<'_>, mut each: impl FnMut(&Checked)) -> Vec<Checked> {
    let mut random = Random(seed);
    let mut done = Vec::new();
    let mut tries = 0;
    while done.len() < count && tries < 20 * count {
        tries += 1;
        let question = workload(&mut random);
        if let Some(checked) = one(&question, means) {
            each(&checked);
            done.push(checked);
        }
    }
    done
}

fn one(question: &Question, means: &Means<'_>) -> Option<Checked> {
    let label = |r: &Ranked| (r.candidate.name.clone(), r.candidate.key_bytes.clone());
    // Parts that the table does not have are measured for both, as they are without `--no-measure`.
    let (ranked, _) = rank(question, means, means.measure);
    let by_table = label(ranked.first()?);
    let advice = advise(question, means);
    let first = advice.choices.first()?;
    let advised = (first.name.clone(), first.key_bytes.clone());
    let near = ranked.iter().filter(|r| r.cost.ns <= HOPELESS * ranked[0].cost.ns);
    let mut rivals: Vec<&Ranked> = near.take(MOST).collect();
    for wanted in [&by_table, &advised] {
        if !rivals.iter().any(|r| label(r) == *wanted) {
            rivals.extend(ranked.iter().find(|r| label(r) == *wanted));
        }
    }
    let parts: Vec<_> = rivals.iter().map(|r| r.candidate.measurable(means.registry)).collect();
    (means.progress)(&format!("measuring {} choices", parts.len()));
    let costs = cost::measure_lists(&parts, &question.sizes, question.burst(), EACH);
    let measured: Vec<_> = rivals.iter().zip(costs).filter_map(|(r, cost)| Some((label(r), cost?.ns))).collect();
    let (best, best_ns) = measured.iter().min_by(|a, b| a.1.total_cmp(&b.1))?.clone();
    let ratio = |wanted| measured.iter().find(|(name, _)| name == wanted).map(|(_, ns)| ns / best_ns);
    let text = |(name, keys): &(String, Vec<usize>)| match &keys[..] {
        [] => name.clone(),
        _ => format!("{name} {keys:?}"),
    };
    Some(Checked {
        question: question.clone(),
        measured: measured.len(),
        best: text(&best),
        best_ns,
        by_table_ratio: ratio(&by_table)?,
        by_table: text(&by_table),
        advised_ratio: ratio(&advised)?,
        advised: text(&advised),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_same_seed_gives_the_same_workloads_and_all_interfaces_occur() {
        let of = |seed| {
            let mut random = Random(seed);
            (0..50).map(|_| workload(&mut random)).collect::<Vec<_>>()
        };
        assert_eq!(of(16), of(16));
        assert_ne!(of(16), of(17));
        let interfaces: HashSet<String> = of(16).iter().map(|q| format!("{:?}", q.interface)).collect();
        assert_eq!(interfaces.len(), 6);
        for question in of(16) {
            assert!(question.sizes.iter().all(|size| (60..=9000).contains(&size.bytes)), "{question:?}");
            assert!((100.0..=5e6).contains(&question.packets_per_s) && question.sessions >= 1, "{question:?}");
        }
    }
}
