//! Rivals in turns: a round each, again and again, so that a slow moment of the machine meets all of them.

use std::time::{Duration, Instant};

/// The figures of one rival.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Median of the rounds, nanoseconds a call.
    pub median_ns: f64,
    /// Fastest round.
    pub min_ns: f64,
    /// Slowest round.
    pub max_ns: f64,
    /// CPU time of the process (user and system, all threads) for each call, nanoseconds.
    pub cpu_ns: f64,
}

/// Calls each of `rivals` over and over; `budget` is for each rival in all.
pub fn in_turns(rivals: &mut [&mut dyn FnMut()], budget: Duration, rounds: u32) -> Vec<Figures> {
    let slice = budget / rounds;
    let calls: Vec<u64> = rivals
        .iter_mut()
        .map(|f| {
            let mut n = 1u64;
            loop {
                let took = time(f, n);
                if took >= slice / 4 {
                    break ((n as f64 * slice.as_secs_f64() / took.as_secs_f64()) as u64).max(1);
                }
                n *= 2;
            }
        })
        .collect();
    let mut samples = vec![Vec::new(); rivals.len()];
    let mut cpu = vec![Duration::ZERO; rivals.len()];
    for _ in 0..rounds {
        for (i, f) in rivals.iter_mut().enumerate() {
            let before = process_cpu();
            samples[i].push(time(f, calls[i]).as_nanos() as f64 / calls[i] as f64);
            cpu[i] += process_cpu().saturating_sub(before);
        }
    }
    samples
        .into_iter()
        .enumerate()
        .map(|(i, mut s)| {
            s.sort_by(f64::total_cmp);
            Figures {
                median_ns: s[s.len() / 2],
                min_ns: s[0],
                max_ns: s[s.len() - 1],
                cpu_ns: cpu[i].as_nanos() as f64 / (calls[i] * u64::from(rounds)) as f64,
            }
        })
        .collect()
}

fn time(f: &mut dyn FnMut(), calls: u64) -> Duration {
    let start = Instant::now();
    for _ in 0..calls {
        f();
    }
    start.elapsed()
}

fn process_cpu() -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}
