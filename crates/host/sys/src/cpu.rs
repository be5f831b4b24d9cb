//! Which CPU a thread runs on.

use std::io;

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// The kernel's: `EINVAL` for one that there is not, or that the process may not use.
pub fn stay_on(cpu: u32) -> io::Result<()> {
    // As many as the kernel may be built for.
    let mut set = [0u64; 8192 / BITS];
    let word = set.get_mut(cpu as usize / BITS).ok_or(io::ErrorKind::InvalidInput)?;
    *word = 1 << (cpu as usize % BITS);
    // SAFETY: a set of the length told, which is only read.
    if unsafe { libc::sched_setaffinity(0, size_of_val(&set), set.as_ptr().cast()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Lets the calling thread go on where it would have to make way for a program that it has just given packets to, as the kernel's
/// own IPsec does, so that the program finds more when it reads. Without `CAP_SYS_NICE` or a limit (`RLIMIT_NICE`) that allows it
/// nothing changes.
pub fn be_preferred() {
    const NICE: i32 = -5;
    // SAFETY: plain values; 0 is the calling thread.
    unsafe {
        if libc::getpriority(libc::PRIO_PROCESS, 0) > NICE {
            libc::setpriority(libc::PRIO_PROCESS, 0, NICE);
        }
    }
}

const BITS: usize = u64::BITS as usize;

/// The CPUs that the calling thread may run on.
fn allowed() -> Option<[u64; 8192 / BITS]> {
    let mut set = [0u64; 8192 / BITS];
    // SAFETY: a set of the length told, which is written to.
    let r = unsafe { libc::sched_getaffinity(0, size_of_val(&set), set.as_mut_ptr().cast()) };
    (r >= 0).then_some(set)
}

fn is_in(set: &[u64], cpu: u32) -> bool {
    set.get(cpu as usize / BITS).is_some_and(|word| word >> (cpu as usize % BITS) & 1 != 0)
}

/// Whether the calling thread may run elsewhere than on a CPU; without one, whether it may run on more than one.
pub fn has_others(cpu: Option<u32>) -> bool {
    let Some(set) = allowed() else { return false };
    let all: u32 = set.iter().map(|word| word.count_ones()).sum();
    all > u32::from(cpu.is_none_or(|cpu| is_in(&set, cpu)))
}

/// Of the CPUs that the calling thread may run on, the one with this number, counted round and round.
pub fn nth(number: u32) -> Option<u32> {
    let set = allowed()?;
    let cpus = || (0..8192).filter(|cpu| is_in(&set, *cpu));
    cpus().cycle().nth(number as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays() {
        std::thread::spawn(|| {
            stay_on(0).expect("there is a first CPU");
            // SAFETY: nothing is passed.
            assert_eq!(unsafe { libc::sched_getcpu() }, 0);
            assert_eq!((nth(0), nth(1), nth(7)), (Some(0), Some(0), Some(0)));
            assert!(stay_on(8191).is_err() && stay_on(8192).is_err());
            assert!(!has_others(Some(0)) && !has_others(None) && has_others(Some(1)));
        })
        .join()
        .expect("it stays");
    }
}
