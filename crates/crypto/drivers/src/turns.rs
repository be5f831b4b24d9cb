//! Measures rivals in turns, a round each, so that a slow moment of the machine affects all of them.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// The scope of CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CpuOf {
    /// The calling thread.
    Thread,
    /// All threads of the process.
    Process,
}

/// The figures of one rival, for each call.
#[derive(Debug, Clone, Copy)]
pub struct Figures {
    /// Median of the rounds, nanoseconds.
    pub median_ns: f64,
    /// Fastest round, nanoseconds.
    pub min_ns: f64,
    /// Slowest round, nanoseconds.
    pub max_ns: f64,
    /// Time-stamp counter ticks in the median round; 0 where there is no counter.
    pub median_ticks: f64,
    /// CPU time (user and system) over all rounds, nanoseconds.
    pub cpu_ns: f64,
    /// Calls measured in all.
    pub calls: u64,
}

/// Runs `call` on each of `rivals` repeatedly, in `rounds` rounds of `budget / rounds` for every rival.
pub fn in_turns<R>(
    rivals: &mut [R],
    mut call: impl FnMut(&mut R),
    cpu_of: CpuOf,
    budget: Duration,
    rounds: u32,
) -> Vec<Figures> {
    let mut time = |rival: &mut R, calls: u64| {
        let start = Instant::now();
        let ticks = ticks();
        for _ in 0..calls {
            call(black_box(&mut *rival));
        }
        (start.elapsed(), self::ticks().wrapping_sub(ticks))
    };
    let slice = budget / rounds;
    let mut calls = Vec::with_capacity(rivals.len());
    for rival in rivals.iter_mut() {
        // Warm up, and count the calls that fit into a slice.
        let mut n = 1u64;
        loop {
            let took = time(rival, n).0;
            if took >= slice / 4 || took >= Duration::from_millis(50) {
                let each = took.as_secs_f64() / n as f64;
                calls.push(((slice.as_secs_f64() / each) as u64).max(1));
                break;
            }
            n *= 2;
        }
    }
    let mut samples = vec![Vec::with_capacity(rounds as usize); rivals.len()];
    let mut cpu = vec![Duration::ZERO; rivals.len()];
    for _ in 0..rounds {
        for (i, rival) in rivals.iter_mut().enumerate() {
            let before = cpu_time(cpu_of);
            let (took, ticks) = time(rival, calls[i]);
            cpu[i] += cpu_time(cpu_of).saturating_sub(before);
            samples[i].push((took.as_nanos() as f64 / calls[i] as f64, ticks as f64 / calls[i] as f64));
        }
    }
    let figures = |(i, mut s): (usize, Vec<(f64, f64)>)| {
        s.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (median_ns, median_ticks) = s[s.len() / 2];
        let calls = calls[i] * u64::from(rounds);
        let cpu_ns = cpu[i].as_nanos() as f64 / calls as f64;
        Figures { median_ns, min_ns: s[0].0, max_ns: s[s.len() - 1].0, median_ticks, cpu_ns, calls }
    };
    samples.into_iter().enumerate().map(figures).collect()
}

/// The time-stamp counter; 0 where there is none.
#[must_use]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: RDTSC reads a counter; every x86-64 CPU that runs Linux lets user space do so unless PR_SET_TSC forbids
    // it.
    unsafe {
        core::arch::x86_64::_rdtsc()
    }
    #[cfg(not(target_arch = "x86_64"))]
    0
}

fn cpu_time(of: CpuOf) -> Duration {
    let clock = match of {
        CpuOf::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
        CpuOf::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
    };
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}
