//! Detects when programs have closed a file, without holding it open.

use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

/// A set of open files, each with a name. The kernel removes a file as soon as no process has a descriptor of it.
///
/// This is an epoll set on which nobody waits: epoll does not hold files open.
#[derive(Debug)]
pub struct Watched(OwnedFd);

impl Watched {
    /// An empty set.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Watched(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Adds the file of `fd`. The caller must close its descriptor eventually.
    ///
    /// # Errors
    /// The kernel's: `ENOSPC` when there are too many.
    pub fn add(&self, fd: BorrowedFd<'_>, name: u64) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(name), EventFlags::empty())?)
    }

    /// The names of the files that are still open somewhere.
    ///
    /// # Errors
    /// When /proc is not there.
    pub fn alive(&self) -> io::Result<HashSet<u64>> {
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.0.as_raw_fd()))?;
        let name = |line: &str| {
            let mut words = line.strip_prefix("tfd:")?.split_whitespace().skip_while(|w| *w != "data:").skip(1);
            u64::from_str_radix(words.next()?, 16).ok()
        };
        Ok(text.lines().filter_map(name).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    #[test]
    fn a_file_is_there_as_long_as_anybody_has_it() {
        let watched = Watched::new().unwrap();
        let (a, b) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        let copy = a.try_clone().unwrap();
        watched.add(a.as_fd(), 7).unwrap();
        watched.add(b.as_fd(), u64::MAX).unwrap();
        drop(a);
        assert_eq!(watched.alive().unwrap(), HashSet::from([7, u64::MAX]));
        drop(copy);
        assert_eq!(watched.alive().unwrap(), HashSet::from([u64::MAX]));
    }
}
