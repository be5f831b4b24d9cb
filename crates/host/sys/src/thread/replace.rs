//! Puts another file in the place of a socket of a thread that waits in a call: under all numbers by which the thread has it,
//! and in the epoll sets that watch it there.

use super::Thread;
use crate::peer::field;
use rustix::fs::{Dir, OFlags};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// The link of an epoll set in `/proc/PID/fd`.
const EPOLL: &str = "anon_inode:[eventpoll]";

/// A descriptor of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Held {
    /// Its number.
    pub fd: u32,
    /// Whether it is closed by exec.
    pub cloexec: bool,
}

/// A descriptor that an epoll set watches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Watch {
    /// Its number.
    fd: u32,
    events: u32,
    data: u64,
    inode: u64,
}

impl Watch {
    /// Reads a line of an epoll set's `fdinfo` (`ep_show_fdinfo`).
    fn read(line: &str) -> Option<Self> {
        let rest = line.strip_prefix("tfd:")?;
        let word = |name: &str| rest.split_once(name)?.1.split_whitespace().next();
        let hex = |name: &str| u64::from_str_radix(word(name)?, 16).ok();
        Some(Watch {
            fd: rest.split_whitespace().next()?.parse().ok()?,
            events: hex("events:")? as u32,
            data: hex("data:")?,
            inode: hex("ino:")?,
        })
    }
}

impl Thread {
    /// The descriptors that it has of the socket with an inode.
    ///
    /// # Errors
    /// `ESRCH` when its call no longer waits; otherwise the kernel's.
    pub fn descriptors_of(&self, inode: u64) -> Result<Vec<Held>, i32> {
        let mut all = Vec::new();
        for fd in self.numbers(&format!("socket:[{inode}]"))? {
            let flags = self.line(fd, "flags:").and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
            let flags = flags.ok_or(libc::ESRCH)?;
            all.push(Held { fd, cloexec: flags & libc::O_CLOEXEC as u32 != 0 });
        }
        if self.waits() { Ok(all) } else { Err(libc::ESRCH) }
    }

    /// Has its epoll sets watch `new` wherever they watch the socket `old` now, whose inode is `inode`, by the same number, for
    /// the same events and with the same data. The thread is to have `new` by these numbers.
    ///
    /// # Errors
    /// `ESRCH` when its call no longer waits; otherwise the kernel's.
    pub fn watch_instead(&self, old: BorrowedFd<'_>, inode: u64, new: BorrowedFd<'_>) -> Result<(), i32> {
        for set in self.numbers(EPOLL)? {
            let text = self.text(&format!("fdinfo/{set}")).unwrap_or_default();
            let watches: Vec<Watch> = String::from_utf8_lossy(&text)
                .lines()
                .filter_map(Watch::read)
                .filter(|watch| watch.inode == inode)
                .collect();
            if watches.is_empty() {
                continue;
            }
            let set = self.borrow(set)?;
            let moved = in_table_of_its_own(|| watches.iter().try_for_each(|watch| move_watch(&set, watch, old, new)));
            moved.map_err(|e| e.raw_os_error().unwrap_or(libc::EIO))?;
        }
        Ok(())
    }

    /// The numbers of its descriptors whose link has this text.
    fn numbers(&self, wanted: &str) -> Result<Vec<u32>, i32> {
        let folder = self.open("fd", OFlags::RDONLY | OFlags::DIRECTORY)?;
        let errno = rustix::io::Errno::raw_os_error;
        let mut found = Vec::new();
        for entry in Dir::read_from(&folder).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let link = rustix::fs::readlinkat(&folder, entry.file_name(), [0; 64]);
            if link.is_ok_and(|link| link.to_bytes() == wanted.as_bytes()) {
                found.extend(entry.file_name().to_str().ok().and_then(|name| name.parse::<u32>().ok()));
            }
        }
        Ok(found)
    }

    /// The rest of a line of a descriptor's `fdinfo`.
    fn line(&self, fd: u32, name: &str) -> Option<String> {
        let text = String::from_utf8(self.text(&format!("fdinfo/{fd}"))?).ok()?;
        field(&text, name).map(str::to_owned)
    }
}

/// Runs `f` in a thread that has a copy of this process's table of descriptors. All that it opens there is closed with it.
fn in_table_of_its_own(f: impl FnOnce() -> io::Result<()> + Send) -> io::Result<()> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("sealane-table".into()).spawn_scoped(scope, || {
            // SAFETY: the thread has a table of its own from here to its end, in which nothing of this process's is closed that
            // anybody else uses.
            if unsafe { libc::unshare(libc::CLONE_FILES) } < 0 {
                return Err(io::Error::last_os_error());
            }
            f()
        });
        crate::transient::counted(thread)?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Moves one watch. An epoll set knows a file by the number, too, under which whoever adds it has it, so that both have to be
/// there under the program's number for a moment.
fn move_watch(set: &OwnedFd, watch: &Watch, old: BorrowedFd<'_>, new: BorrowedFd<'_>) -> io::Result<()> {
    let number = RawFd::try_from(watch.fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let checked = |r: i32| if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r) };
    // Whatever has the number here gives way.
    let above = |fd: RawFd| {
        // SAFETY: no memory is involved. The copies live as long as this thread.
        checked(unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, number + 1) })
    };
    let (set, old, new) = (above(set.as_raw_fd())?, above(old.as_raw_fd())?, above(new.as_raw_fd())?);
    let mut event = libc::epoll_event { events: watch.events, u64: watch.data };
    // SAFETY: the kernel reads a local value. The table of descriptors is this thread's alone.
    unsafe {
        checked(libc::dup2(old, number))?;
        checked(libc::epoll_ctl(set, libc::EPOLL_CTL_DEL, number, core::ptr::null_mut()))?;
        checked(libc::dup2(new, number))?;
        checked(libc::epoll_ctl(set, libc::EPOLL_CTL_ADD, number, &raw mut event))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
    use std::os::fd::{AsFd, FromRawFd};

    #[test]
    fn a_line_of_an_epoll_set() {
        let line = "tfd:       17 events:       19 data: ffffffff00000011  pos:0 ino:3e7 sdev:9";
        let watch = Watch { fd: 17, events: 0x19, data: 0xffff_ffff_0000_0011, inode: 999 };
        assert_eq!(Watch::read(line), Some(watch));
        assert_eq!(Watch::read("flags:\t02"), None);
    }

    /// A set watches a socket by its number; afterwards it watches another one by the same, and neither the old one nor any
    /// descriptor of this process is touched.
    #[test]
    fn a_watch_goes_to_another_file() {
        let set = epoll::create(CreateFlags::CLOEXEC).unwrap();
        let (old, _old_peer, inode) = crate::peer::pair(true).unwrap();
        let (new, new_peer, _) = crate::peer::pair(true).unwrap();
        epoll::add(&set, &old, EventData::new_u64(77), EventFlags::IN).unwrap();
        let info = || std::fs::read_to_string(format!("/proc/self/fdinfo/{}", set.as_raw_fd())).unwrap();
        let watch = info().lines().find_map(Watch::read).unwrap();
        assert_ne!(watch.inode, inode, "the other end's");
        in_table_of_its_own(|| move_watch(&set, &watch, old.as_fd(), new.as_fd())).unwrap();
        let number = old.as_raw_fd();
        assert_eq!(info().lines().filter_map(Watch::read).count(), 1);
        rustix::io::write(&new_peer, b"here").unwrap();
        let mut events = Vec::with_capacity(4);
        epoll::wait(&set, rustix::buffer::spare_capacity(&mut events), None).unwrap();
        let [event] = events[..] else { panic!("one event") };
        assert_eq!((event.data.u64(), event.flags), (77, EventFlags::IN));
        assert_eq!(crate::stream::receive(new.as_fd(), &mut [0; 9]).unwrap(), Some(4));
        // It is under the old one's number that the set knows it.
        in_table_of_its_own(|| {
            // SAFETY: a copy, in a table of this thread's own.
            let copy = unsafe { OwnedFd::from_raw_fd(libc::dup2(new.as_raw_fd(), number)) };
            Ok(epoll::delete(&set, &copy)?)
        })
        .unwrap();
        assert_eq!(info().lines().filter_map(Watch::read).count(), 0);
    }
}
