//! Which CPU a thread runs on.

use std::io;

/// Keeps the calling thread on a CPU.
///
/// # Errors
/// The kernel's: `EINVAL` for one that there is not, or that the process may not use.
pub(crate) fn stay_on(cpu: u32) -> io::Result<()> {
    const BITS: usize = u64::BITS as usize;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_stays() {
        std::thread::spawn(|| {
            stay_on(0).expect("there is a first CPU");
            // SAFETY: nothing is passed.
            assert_eq!(unsafe { libc::sched_getcpu() }, 0);
            assert!(stay_on(8191).is_err() && stay_on(8192).is_err());
        })
        .join()
        .expect("it stays");
    }
}
