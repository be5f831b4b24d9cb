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
    /// All threads of the process, and those of another one, by its number: one that serves this one. Once that has ended, its time
    /// counts as nothing.
    ProcessAnd(u32),
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
    /// Median of the rounds' CPU times, nanoseconds.
    pub median_cpu_ns: f64,
    /// The least CPU time of a round, nanoseconds.
    pub min_cpu_ns: f64,
    /// The most CPU time of a round, nanoseconds.
    pub max_cpu_ns: f64,
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
    let mut cpu = vec![Vec::with_capacity(rounds as usize); rivals.len()];
    for _ in 0..rounds {
        for (i, rival) in rivals.iter_mut().enumerate() {
            let before = cpu_time(cpu_of);
            let (took, ticks) = time(rival, calls[i]);
            let n = calls[i] as f64;
            cpu[i].push(cpu_time(cpu_of).saturating_sub(before).as_nanos() as f64 / n);
            samples[i].push((took.as_nanos() as f64 / n, ticks as f64 / n));
        }
    }
    let figures = |(i, mut s): (usize, Vec<(f64, f64)>)| {
        s.sort_by(|a, b| a.0.total_cmp(&b.0));
        let (median_ns, median_ticks) = s[s.len() / 2];
        let cpu = &mut cpu[i];
        cpu.sort_by(f64::total_cmp);
        Figures {
            median_ns,
            min_ns: s[0].0,
            max_ns: s[s.len() - 1].0,
            median_ticks,
            cpu_ns: cpu.iter().sum::<f64>() / cpu.len() as f64,
            median_cpu_ns: cpu[cpu.len() / 2],
            min_cpu_ns: cpu[0],
            max_cpu_ns: cpu[cpu.len() - 1],
            calls: calls[i] * u64::from(rounds),
        }
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
    match of {
        CpuOf::Thread => clock_time(libc::CLOCK_THREAD_CPUTIME_ID),
        CpuOf::Process => clock_time(libc::CLOCK_PROCESS_CPUTIME_ID),
        CpuOf::ProcessAnd(pid) => clock_time(libc::CLOCK_PROCESS_CPUTIME_ID) + process_time(pid),
    }
}

/// The CPU time of another process; nothing where there is none.
#[must_use]
pub fn process_time(pid: u32) -> Duration {
    let mut clock = 0;
    // SAFETY: the pointer is to a live clock id.
    let found = unsafe { libc::clock_getcpuclockid(pid.cast_signed(), &raw mut clock) } == 0;
    if found { clock_time(clock) } else { Duration::ZERO }
}

/// The time of a clock; nothing if there is no such clock.
fn clock_time(clock: libc::clockid_t) -> Duration {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(clock, &raw mut t) };
    Duration::new(t.tv_sec.unsigned_abs(), u32::try_from(t.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_time_of_the_other_process_counts() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        // A call lasts until the child has had so much of a CPU, however long that takes.
        let share = Duration::from_millis(2);
        let call = |(): &mut ()| {
            let end = process_time(pid) + share;
            while process_time(pid) < end {
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        let figures = in_turns(&mut [()], call, CpuOf::ProcessAnd(pid), Duration::from_micros(10), 3)[0];
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(figures.min_cpu_ns >= share.as_nanos() as f64, "{figures:?}");
        assert_eq!(process_time(pid), Duration::ZERO, "it has ended");
        assert!(cpu_time(CpuOf::ProcessAnd(pid)) >= cpu_time(CpuOf::Thread), "our own time still counts");
    }
}
