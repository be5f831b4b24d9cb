//! Errors of the kernel that pass by themselves: out of memory, of descriptors, or of room in a buffer.
//!
//! A call that fails with one is tried again, or its packet is lost as if a queue had been full. Each is counted here,
//! for all threads of the process.

use super::refusal::errno;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// The errors with their names.
const ERRORS: [(i32, &str); 4] =
    [(libc::ENOBUFS, "ENOBUFS"), (libc::ENOMEM, "ENOMEM"), (libc::EMFILE, "EMFILE"), (libc::ENFILE, "ENFILE")];

static COUNTS: [AtomicU64; ERRORS.len()] = [const { AtomicU64::new(0) }; ERRORS.len()];

/// Whether an error passes by itself.
pub fn is(error: &io::Error) -> bool {
    place(error).is_some()
}

/// Counts an error if it passes by itself. Returns whether it does.
pub fn count(error: &io::Error) -> bool {
    place(error).map(|at| COUNTS[at].fetch_add(1, Ordering::Relaxed)).is_some()
}

/// Counts the error of a result, and returns the result.
///
/// # Errors
/// Those of the result.
pub fn counted<T>(result: io::Result<T>) -> io::Result<T> {
    result.inspect_err(|e| {
        count(e);
    })
}

/// The names of all such errors, with the number of each so far.
pub fn counts() -> impl Iterator<Item = (&'static str, u64)> {
    ERRORS.iter().zip(&COUNTS).map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
}

fn place(error: &io::Error) -> Option<usize> {
    let errno = errno(error)?;
    ERRORS.iter().position(|(number, _)| *number == errno)
}

#[cfg(test)]
mod tests {
    use super::super::refusal::Refusal;
    use super::*;

    #[test]
    fn they_are_counted_by_name() {
        let of = |name| counts().find(|(other, _)| *other == name).map_or(0, |(_, count)| count);
        let before = of("ENFILE");
        assert!(count(&io::Error::from_raw_os_error(libc::ENFILE)));
        // In an answer of netlink, too.
        let refusal = Refusal { message: 0, errno: libc::ENFILE, hint: String::new() };
        assert!(counted(Err::<(), _>(refusal.into())).is_err());
        assert_eq!(of("ENFILE"), before + 2);
        for errno in [libc::EPERM, libc::EAGAIN, libc::ENODEV, libc::EBADFD] {
            assert!(!count(&io::Error::from_raw_os_error(errno)));
        }
        assert!(!is(&io::Error::other("what")));
    }
}
