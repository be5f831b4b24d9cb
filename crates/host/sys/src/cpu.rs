//! CPUs of the machine, and CPU affinity and priority of threads.

use rustix::process::{getpriority_process, setpriority_process};
use std::{fs, io, thread};

/// Pins the calling thread to a CPU.
///
/// # Errors
/// The kernel's: `EINVAL` for a CPU that does not exist or that the process may not use.
pub fn stay_on(cpu: u32) -> io::Result<()> {
    // The largest set that a kernel may be built for; rustix's is for 1,024 CPUs.
    let mut set = [0u64; 8192 / BITS];
    let word = set.get_mut(cpu as usize / BITS).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (cpu as usize % BITS);
    // SAFETY: the set has this length and is only read.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Raises the calling thread's priority so that a program to which it has just given packets does not preempt it. The
/// program then finds more packets when it reads, as with the kernel's own IPsec. Has no effect without `CAP_SYS_NICE`
/// or an `RLIMIT_NICE` that allows it.
pub fn be_preferred() {
    const NICE: i32 = -5;
    // On Linux, `None` is the calling thread.
    if getpriority_process(None).is_ok_and(|nice| nice > NICE) {
        let _ = setpriority_process(None, NICE);
    }
}

const BITS: usize = u64::BITS as usize;

/// The CPUs that the calling thread may run on.
fn allowed() -> Option<[u64; 8192 / BITS]> {
    let mut set = [0u64; 8192 / BITS];
    // SAFETY: the set has this length and is writable.
    let r = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) };
    (r >= 0).then_some(set)
}

fn is_in(set: &[u64], cpu: u32) -> bool {
    set.get(cpu as usize / BITS).is_some_and(|word| word >> (cpu as usize % BITS) & 1 != 0)
}

/// Whether the calling thread may run on a CPU other than `cpu`; without `cpu`, whether it may run on more than one.
pub fn has_others(cpu: Option<u32>) -> bool {
    let Some(set) = allowed() else { return false };
    let all: u32 = set.iter().map(|word| word.count_ones()).sum();
    all > u32::from(cpu.is_none_or(|cpu| is_in(&set, cpu)))
}

/// The number of CPUs that the machine may have (`num_possible_cpus`), whatever the calling thread may run on.
pub fn possible() -> u32 {
    let list = fs::read_to_string("/sys/devices/system/cpu/possible").ok();
    let known = || thread::available_parallelism().map_or(1, |n| n.get() as u32);
    list.and_then(|list| listed(&list)).unwrap_or_else(known)
}

/// Whether a CPU is in a list as the kernel writes it: `0-3,8`.
pub fn is_listed(list: &str, cpu: u32) -> bool {
    ranges(list).flatten().any(|(first, last)| (first..=last).contains(&cpu))
}

/// The number of CPUs in a list.
fn listed(list: &str) -> Option<u32> {
    ranges(list).try_fold(0u32, |count, range| {
        let (first, last) = range?;
        count.checked_add(last.checked_sub(first)?)?.checked_add(1)
    })
}

/// The ranges of a list, each with its first and its last number.
fn ranges(list: &str) -> impl Iterator<Item = Option<(u32, u32)>> {
    list.trim().split(',').map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().ok().zip(last.parse().ok())
    })
}

/// The CPU with this number among those that the calling thread may run on; numbers wrap around.
pub fn nth(number: u32) -> Option<u32> {
    let set = allowed()?;
    let cpus = || (0..8192).filter(|cpu| is_in(&set, *cpu));
    cpus().cycle().nth(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        let lists = ["0", "0-1", "0-3,8-11", "0,2,5-5", "", "0-", "3-1", "0-4294967295", "x"];
        let lens = [Some(1), Some(2), Some(8), Some(3), None, None, None, None, None];
        assert_eq!(lists.map(listed), lens);
        assert!([0, 3, 8].into_iter().all(|n| is_listed("0-3,8\n", n)));
        assert!(![4, 7, 9].into_iter().any(|n| is_listed("0-3,8\n", n)));
        assert!(!is_listed("\n", 0));
    }

    #[test]
    fn a_thread_stays() {
        let all = possible();
        thread::spawn(move || {
            stay_on(0).expect("there is a first CPU");
            assert_eq!(rustix::thread::sched_getcpu(), 0);
            assert_eq!((nth(0), nth(1), nth(7)), (Some(0), Some(0), Some(0)));
            assert!(stay_on(8191).is_err() && stay_on(8192).is_err());
            assert!(!has_others(Some(0)) && !has_others(None) && has_others(Some(1)));
            assert_eq!(possible(), all, "whatever this thread may run on");
        })
        .join()
        .expect("it stays");
    }
}
