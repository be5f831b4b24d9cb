//! How far two CPUs are from each other, for bench/ipsec_offload.py: nanoseconds in which a cache line goes to the other one
//! and back.
//!
//! `cpu-distance CPU CPU`. Virtual CPUs move: whether two of them share a last level cache at this moment only a measurement
//! says. The least of many short series is printed, which whoever else runs on the two does not lengthen.

use std::error::Error;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

/// Series, and trips in each: some 40 us, less than a slice of the scheduler.
const SERIES: u32 = 25;
const TRIPS: u32 = 200;

/// A counter with a cache line of its own, and the one beside it that is fetched with it.
#[repr(align(128))]
struct Line(AtomicU32);

fn main() -> Result<(), Box<dyn Error>> {
    let cpus: Vec<usize> = std::env::args().skip(1).map(|a| a.parse()).collect::<Result<_, _>>()?;
    let [here, there] = cpus[..] else { return Err("see the top of bench/src/bin/cpu-distance.rs".into()) };
    if here == there {
        return Err("two CPUs are needed".into());
    }
    stay_on(here)?;
    let line = Line(AtomicU32::new(0));
    let least = std::thread::scope(|scope| -> io::Result<f64> {
        let other = scope.spawn(|| {
            let stays = stay_on(there);
            // Odd numbers are from here, even ones are answers.
            for odd in (1..2 * SERIES * TRIPS).step_by(2) {
                wait(&line, odd);
                line.0.store(odd + 1, Release);
            }
            stays
        });
        let mut least = f64::INFINITY;
        for series in 0..SERIES {
            let from = Instant::now();
            for trip in 0..TRIPS {
                let odd = 2 * (series * TRIPS + trip) + 1;
                line.0.store(odd, Release);
                wait(&line, odd + 1);
            }
            least = least.min(from.elapsed().as_nanos() as f64 / f64::from(TRIPS));
        }
        other.join().unwrap_or_else(|_| Err(io::Error::other("the other thread ended")))?;
        Ok(least)
    })?;
    println!("{least:.0}");
    Ok(())
}

fn wait(line: &Line, until: u32) {
    while line.0.load(Acquire) != until {}
}

/// Keeps the calling thread on a CPU.
fn stay_on(cpu: usize) -> io::Result<()> {
    // SAFETY: all-zero is a valid set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    if cpu >= 8 * size_of_val(&set) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: a live set, and a CPU that it has room for.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: a set of the length told, which is only read; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), &raw const set) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
