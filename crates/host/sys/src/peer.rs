//! Descriptors that a served program gets instead of sockets, and threads by their numbers.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, OFlags, SeekFrom, fcntl_setfl, fstat};
use rustix::io::{Errno, ReadWriteFlags};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair, sockopt};
use std::io::{self, IoSliceMut};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

/// A thread by its number, which may be another thread's by the time that something is asked about it
/// ([`super::thread::Thread`] is safe against that).
#[derive(Debug, Clone, Copy)]
pub struct Peer(pub u32);

impl Peer {
    /// The text of its /proc status.
    pub fn status(self) -> Option<String> {
        std::fs::read_to_string(format!("/proc/{}/status", self.0)).ok()
    }
}

/// The rest of the line in a /proc status that starts with `name`.
pub fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name))
}

/// The effective capabilities in a /proc status.
pub fn capabilities(status: &str) -> u64 {
    field(status, "CapEff:").and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0)
}

/// The ids by which the kernel decides what files and keys a thread may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ids {
    /// The user (`fsuid`).
    pub user: u32,
    /// The group (`fsgid`).
    pub group: u32,
    /// The supplementary groups, sorted.
    pub groups: Vec<u32>,
}

impl Ids {
    /// The ids in a /proc status.
    pub fn of(status: &str) -> Option<Self> {
        // Real, effective, saved, of the file system.
        let last = |name| field(status, name)?.split_whitespace().nth(3)?.parse().ok();
        let groups = field(status, "Groups:")?.split_whitespace().map(str::parse).collect::<Result<Vec<u32>, _>>();
        let mut ids = Ids { user: last("Uid:")?, group: last("Gid:")?, groups: groups.ok()? };
        ids.groups.sort_unstable();
        Some(ids)
    }
}

/// Whether a read of this file may depend on the process that makes it, whoever has opened it. True for everything but
/// files of file systems that hold them, and block devices: procfs and its like make up the text as it is read, by the
/// capabilities and the namespaces of the reader; FUSE tells its server who reads; a device's driver may ask.
pub fn depends_on_reader(file: BorrowedFd<'_>) -> bool {
    const MADE_UP: [u32; 16] = [
        0x9fa0,      // procfs
        0x6265_6572, // sysfs
        0x6462_6720, // debugfs
        0x7472_6163, // tracefs
        0x7363_6673, // securityfs
        0xf97c_ff8c, // selinuxfs
        0x4341_5d53, // smackfs
        0x0027_e0eb, // cgroup
        0x6367_7270, // cgroup2
        0x0765_5821, // resctrl
        0xcafe_4a11, // bpffs
        0x6265_6570, // configfs
        0x6165_676c, // pstore
        0xde5e_81e4, // efivarfs
        0x4249_4e4d, // binfmt_misc
        0x6573_5546, // FUSE
    ];
    let kind = fstat(file).map(|stat| FileType::from_raw_mode(stat.st_mode));
    match kind {
        Ok(FileType::RegularFile) => {
            rustix::fs::fstatfs(file).map_or(true, |held_by| MADE_UP.contains(&(held_by.f_type as u32)))
        }
        Ok(FileType::BlockDevice) => false,
        _ => true,
    }
}

/// A pair of connected sockets: ours, one to hand out, and the inode of the latter.
///
/// # Errors
/// The kernel's.
pub fn pair(nonblock: bool) -> io::Result<(OwnedFd, OwnedFd, u64)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    fcntl_setfl(&ours, OFlags::NONBLOCK)?;
    if nonblock {
        fcntl_setfl(&theirs, OFlags::NONBLOCK)?;
    }
    let inode = fstat(&theirs)?.st_ino;
    Ok((ours, theirs, inode))
}

/// Makes poll report `theirs` as `readable` and `writable`. `ours` is the other end.
pub fn show(ours: BorrowedFd<'_>, theirs: BorrowedFd<'_>, readable: bool, writable: bool) {
    let quiet = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut sink = [0u8; 4096];
    for fd in [theirs, ours] {
        while recv(fd, &mut sink, RecvFlags::DONTWAIT).is_ok() {}
    }
    let _ = sockopt::set_socket_send_buffer_size(theirs, if writable { 65536 } else { 2304 });
    if !writable {
        // These unread bytes fill the send buffer.
        let _ = send(theirs, &sink[..2000], quiet);
    }
    if readable {
        let _ = send(ours, &sink[..1], quiet);
    }
}

/// Whether all descriptors of the other end of `ours` have been closed.
pub fn hung_up(ours: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(ours, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::HUP)
}

/// Reads from a file at an offset, or from a pipe. Waits for it, as long as that takes.
///
/// # Errors
/// The kernel's.
pub fn pull(file: BorrowedFd<'_>, buf: &mut [u8], offset: Option<i64>) -> Result<usize, i32> {
    let n = match offset {
        Some(offset) => rustix::io::pread(file, buf, offset as u64),
        None => rustix::io::read(file, buf),
    };
    n.map_err(Errno::raw_os_error)
}

/// As [`pull`], if that needs no waiting. `None` if it does, or may.
///
/// # Errors
/// The kernel's.
pub fn pull_at_once(file: BorrowedFd<'_>, buf: &mut [u8], offset: Option<i64>) -> Result<Option<usize>, i32> {
    // An offset of -1 is the file's own position.
    let offset = offset.map_or(u64::MAX, |offset| offset as u64);
    match rustix::io::preadv2(file, &mut [IoSliceMut::new(buf)], offset, ReadWriteFlags::NOWAIT) {
        Ok(n) => Ok(Some(n)),
        // Not every kind of file can be asked so.
        Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::SPIPE | Errno::INVAL | Errno::NOSYS) => Ok(None),
        Err(e) => Err(e.raw_os_error()),
    }
}

/// Whether a read of this file fails rather than waits (`O_NONBLOCK`).
pub fn never_waits(file: BorrowedFd<'_>) -> bool {
    rustix::fs::fcntl_getfl(file).is_ok_and(|flags| flags.contains(OFlags::NONBLOCK))
}

/// The number of bytes that a pipe has room for.
///
/// # Errors
/// `EINVAL` for a descriptor that is not a pipe.
pub fn pipe_room(pipe: BorrowedFd<'_>) -> Result<usize, i32> {
    let held = rustix::io::ioctl_fionread(pipe).unwrap_or(0) as usize;
    rustix::pipe::fcntl_getpipe_size(pipe).map(|size| size.saturating_sub(held)).map_err(|_| libc::EINVAL)
}

/// Whether a file is a pipe, with a name or without.
pub fn is_pipe(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Fifo)
}

/// Whether a file is a directory.
pub fn is_directory(file: BorrowedFd<'_>) -> bool {
    fstat(file).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// The position of a file; `None` for one that has none, such as a pipe or a socket.
pub fn position(file: BorrowedFd<'_>) -> Option<i64> {
    rustix::fs::seek(file, SeekFrom::Current(0)).ok().map(|at| at as i64)
}

/// Moves the position of a file.
pub fn set_position(file: BorrowedFd<'_>, at: i64) {
    // One that has a position can be moved.
    let _ = rustix::fs::seek(file, SeekFrom::Start(at as u64));
}

/// The uses of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenedFor {
    /// It was opened for reading.
    pub reading: bool,
    /// It was opened for writing.
    pub writing: bool,
    /// It was opened with `O_PATH`: for calls that read or write it is not there.
    pub nothing: bool,
}

/// The uses of a descriptor, by the mode in which it was opened.
pub fn opened_for(file: BorrowedFd<'_>) -> OpenedFor {
    let flags = rustix::fs::fcntl_getfl(file).unwrap_or(OFlags::PATH);
    let (mode, nothing) = (flags & OFlags::RWMODE, flags.contains(OFlags::PATH));
    OpenedFor { reading: !nothing && mode != OFlags::WRONLY, writing: !nothing && mode != OFlags::RDONLY, nothing }
}

/// Writes to a pipe.
///
/// # Errors
/// The kernel's.
pub fn push(pipe: BorrowedFd<'_>, buf: &[u8]) -> Result<usize, i32> {
    rustix::io::write(pipe, buf).map_err(Errno::raw_os_error)
}

/// Whether a pipe has data, or no writer any more, within `ms` milliseconds.
pub fn readable(pipe: BorrowedFd<'_>, ms: i32) -> bool {
    ready(pipe, PollFlags::IN, ms)
}

/// Whether anybody has the reading end of a pipe, given the writing end.
pub fn has_reader(pipe: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(pipe, PollFlags::OUT)];
    !(poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().contains(PollFlags::ERR))
}

/// Whether a pipe has room, or no reader any more, within `ms` milliseconds.
pub fn writable(pipe: BorrowedFd<'_>, ms: i32) -> bool {
    ready(pipe, PollFlags::OUT, ms)
}

fn ready(pipe: BorrowedFd<'_>, what: PollFlags, ms: i32) -> bool {
    // A negative time is no limit, as for poll(2).
    let timeout = u64::try_from(ms).ok().and_then(|ms| Timespec::try_from(Duration::from_millis(ms)).ok());
    poll(&mut [PollFd::from_borrowed_fd(pipe, what)], timeout.as_ref()).is_ok_and(|n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn ids_of_a_status() {
        let status = "Name:\tx\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t30 4 \nCapEff:\t0\n";
        assert_eq!(Ids::of(status), Some(Ids { user: 4, group: 8, groups: vec![4, 30] }));
        let ours = Peer(std::process::id()).status().as_deref().and_then(Ids::of).expect("procfs");
        assert_eq!(ours.user, rustix::process::geteuid().as_raw());
        assert_eq!(Ids::of("Name:\tx\n"), None);
    }

    #[test]
    fn files_whose_text_depends_on_the_reader() {
        let depends = |path: &str| depends_on_reader(std::fs::File::open(path).expect(path).as_fd());
        assert!(depends("/proc/self/stat") && depends("/proc/cpuinfo") && depends("/dev/zero") && depends("/"));
        assert!(!depends(&std::env::current_exe().expect("a path").to_string_lossy()));
    }
}
