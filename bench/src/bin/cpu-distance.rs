//! Measures the distance of two CPUs for bench/ipsec_offload.py: the nanoseconds in which a cache line travels to the
//! other CPU and back.
//!
//! `cpu-distance CPU CPU`. Virtual CPUs move, so only a measurement shows whether two of them share a last level cache
//! now. It prints the least of many short series, which other work on the two CPUs does not lengthen.

use std::error::Error;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;

/// Number of series, and of round trips in each: about 40 us, less than a time slice of the scheduler.
const SERIES: u32 = 25;
const TRIPS: u32 = 200;

/// A counter in its own pair of cache lines, because the adjacent line is fetched with it.
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
            // This side writes odd numbers, the other one even ones.
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

/// Pins the calling thread to a CPU.
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
