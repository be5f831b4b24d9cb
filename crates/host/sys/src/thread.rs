//! A thread of a served program while it waits in a call: its memory, descriptors and state.
//!
//! A thread's number may belong to another thread as soon as this one has died, so nothing is done by it that could
//! reach that other one. The rules are:
//!
//! - A handle is opened by the number, and only then the kernel is asked whether the call still waits. If it does, the
//!   thread has not died in between, so the handle is of that thread, and never becomes one of another.
//! - Memory is written, and descriptors are taken, by handles only.
//! - What is read by the number counts only if the call still waits afterwards.

mod replace;

use super::peer::{Peer, field};
use super::proc_folder::ProcFolder;
use super::seccomp::{Listener, Notification};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::cell::{Cell, OnceCell};
use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use zeroize::Zeroize;

pub use replace::Held;

/// The most pieces in one call.
const MAX_PIECES: usize = 1024;
/// `PIDFD_THREAD` (Linux 6.9): the handle is of one thread, not of its process.
const PIDFD_THREAD: PidfdFlags = PidfdFlags::from_bits_retain(libc::O_EXCL as u32);

/// The name of the initial user namespace: its number is the same in every kernel (`PROC_USER_INIT_INO`).
const INITIAL_USER_NAMESPACE: &[u8] = b"user:[4026531837]";

/// A piece of a thread's memory.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// Its address in the thread's memory.
    pub at: u64,
    /// Its length in bytes.
    pub len: usize,
}

/// A thread that waits for the answer to a notification. Handles on it are opened when they are first needed.
///
/// Every function fails, with `ESRCH` where it has an error, once the call no longer waits.
#[derive(Debug)]
pub struct Thread {
    listener: Arc<Listener>,
    notification: u64,
    tid: u32,
    /// Its folder in /proc.
    folder: OnceCell<OwnedFd>,
    memory: OnceCell<OwnedFd>,
    /// The list of its mappings.
    mappings: OnceCell<File>,
    /// Its pidfd, by which descriptors are taken.
    process: OnceCell<OwnedFd>,
    /// Whether that is one of its whole process, which goes on when the thread has ended.
    is_whole_process: Cell<bool>,
}

thread_local! {
    /// The last thread whose descriptors this thread has borrowed, by its number and its pidfd: most calls come from the same
    /// one. The number may be another thread's by now; the pidfd is of the one that had it, alive or not.
    static LAST: Cell<Option<(u32, OwnedFd)>> = const { Cell::new(None) };
}

impl Drop for Thread {
    fn drop(&mut self) {
        if let Some(process) = self.process.take()
            && !self.is_whole_process.get()
        {
            LAST.set(Some((self.tid, process)));
        }
    }
}

impl Thread {
    /// The thread that made a call.
    pub fn new(listener: Arc<Listener>, call: &Notification) -> Self {
        Thread {
            listener,
            notification: call.id,
            tid: call.tid,
            folder: OnceCell::new(),
            memory: OnceCell::new(),
            mappings: OnceCell::new(),
            process: OnceCell::new(),
            is_whole_process: Cell::new(false),
        }
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.tid
    }

    /// Whether its call still waits for an answer.
    pub fn waits(&self) -> bool {
        self.listener.valid(self.notification)
    }

    /// Asks something about it by its number. `None` if its call no longer waits: the answer may be about another
    /// thread then.
    pub fn ask<R>(&self, question: impl FnOnce(Peer) -> R) -> Option<R> {
        let answer = question(Peer(self.tid));
        self.waits().then_some(answer)
    }

    /// The handle in `cell`, opened by the thread's number if it is not there yet.
    fn handle<'c, T>(&self, cell: &'c OnceCell<T>, open: impl FnOnce() -> rustix::io::Result<T>) -> Result<&'c T, i32> {
        if let Some(handle) = cell.get() {
            return Ok(handle);
        }
        let handle = open().map_err(Errno::raw_os_error)?;
        // Asked after the handle was opened: it is this thread's, and not that of a later one with its number.
        if !self.waits() {
            return Err(libc::ESRCH);
        }
        Ok(cell.get_or_init(|| handle))
    }

    fn folder(&self) -> Result<&OwnedFd, i32> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.handle(&self.folder, || rustix::fs::open(format!("/proc/{}", self.tid), flags, Mode::empty()))
    }

    /// Opens a file of its folder in /proc. It is no other thread's: the folder is of this one.
    fn open(&self, name: &str, flags: OFlags) -> Result<OwnedFd, i32> {
        let opened = rustix::fs::openat(self.folder()?, name, flags | OFlags::CLOEXEC, Mode::empty());
        opened.map_err(Errno::raw_os_error)
    }

    fn text(&self, name: &str) -> Option<Vec<u8>> {
        let mut text = Vec::with_capacity(2048);
        File::from(self.open(name, OFlags::RDONLY).ok()?).read_to_end(&mut text).ok()?;
        Some(text)
    }

    /// Reads the pieces in order into `buf`, which has their total length.
    ///
    /// # Errors
    /// `EFAULT` when any of it cannot be read.
    pub fn read(&self, spans: &[Span], buf: &mut [u8]) -> Result<(), i32> {
        let mut left = buf.len();
        let mut remote = Vec::with_capacity(spans.len());
        for span in spans {
            let n = span.len.min(left);
            left -= n;
            if n > 0 {
                remote.push(libc::iovec { iov_base: span.at as usize as *mut _, iov_len: n });
            }
        }
        let (mut rest, mut whole) = (&mut *buf, true);
        for part in remote.chunks(MAX_PIECES) {
            let want: usize = part.iter().map(|v| v.iov_len).sum();
            let (now, later) = rest.split_at_mut(want);
            rest = later;
            let local = libc::iovec { iov_base: now.as_mut_ptr().cast(), iov_len: want };
            // SAFETY: the local piece is `now`; the others are addresses in the thread's memory.
            let n = unsafe { libc::process_vm_readv(self.tid as i32, &local, 1, part.as_ptr(), part.len() as u64, 0) };
            whole &= n == want as isize;
            if !whole {
                break;
            }
        }
        // It was read by the number.
        if !self.waits() {
            buf.zeroize();
            return Err(libc::ESRCH);
        }
        if whole { Ok(()) } else { Err(libc::EFAULT) }
    }

    /// Writes `buf` over the pieces in order, until it ends.
    ///
    /// # Errors
    /// `EFAULT` when any of it cannot be written.
    pub fn write(&self, spans: &[Span], buf: &[u8]) -> Result<(), i32> {
        let mut rest = buf;
        for span in spans {
            let (now, later) = rest.split_at(span.len.min(rest.len()));
            rest = later;
            self.write_at(span.at, now)?;
        }
        Ok(())
    }

    fn write_at(&self, at: u64, mut bytes: &[u8]) -> Result<(), i32> {
        if bytes.is_empty() {
            return Ok(());
        }
        let memory = match self.memory.get() {
            Some(memory) => memory,
            None => {
                let opened = self.open("mem", OFlags::RDWR)?;
                self.memory.get_or_init(|| opened)
            }
        };
        // By this descriptor, memory is written as a debugger does, even where the program itself may not.
        self.check_writable(at, bytes.len() as u64)?;
        let mut at = at;
        while !bytes.is_empty() {
            match rustix::io::pwrite(memory, bytes, at) {
                // The memory is no longer there: the process has ended.
                Ok(0) => return Err(libc::ESRCH),
                Ok(n) => {
                    at += n as u64;
                    bytes = &bytes[n..];
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(libc::EFAULT),
            }
        }
        Ok(())
    }

    /// Checks that the program may write to all of this memory.
    fn check_writable(&self, at: u64, len: u64) -> Result<(), i32> {
        let end = at.checked_add(len).ok_or(libc::EFAULT)?;
        let mappings = match self.mappings.get() {
            Some(mappings) => mappings,
            None => {
                let opened = File::from(self.open("maps", OFlags::RDONLY)?);
                self.mappings.get_or_init(|| opened)
            }
        };
        let mut at = at;
        while at < end {
            match writable_until(mappings, at) {
                Ok(until) => at = until,
                Err(libc::ENOTTY) => {
                    let text = self.text("maps").ok_or(libc::EFAULT)?;
                    return if covers(&text, at, end) { Ok(()) } else { Err(libc::EFAULT) };
                }
                Err(_) => return Err(libc::EFAULT),
            }
        }
        Ok(())
    }

    /// Reads `N` bytes at `at`.
    ///
    /// # Errors
    /// `EFAULT` when they cannot be read.
    pub fn bytes<const N: usize>(&self, at: u64) -> Result<[u8; N], i32> {
        let mut buf = [0; N];
        self.read(&[Span { at, len: N }], &mut buf)?;
        Ok(buf)
    }

    /// Reads the `n` descriptions of pieces (`struct iovec`) at `at`. Fails with `too_many` for more than 1,024.
    ///
    /// # Errors
    /// `EFAULT`, `EINVAL` for an impossible length.
    pub fn spans(&self, at: u64, n: u64, too_many: i32) -> Result<Vec<Span>, i32> {
        let n = usize::try_from(n).ok().filter(|n| *n <= MAX_PIECES).ok_or(too_many)?;
        let mut raw = vec![0; n * 16];
        self.read(&[Span { at, len: raw.len() }], &mut raw)?;
        let words = raw.as_chunks::<8>().0.iter().map(|word| u64::from_ne_bytes(*word)).collect::<Vec<_>>();
        let spans: Vec<_> = words.as_chunks().0.iter().map(|&[at, len]| Span { at, len: len as usize }).collect();
        if spans.iter().any(|s| s.len > isize::MAX as usize) { Err(libc::EINVAL) } else { Ok(spans) }
    }

    /// The inode of its socket `fd`; `None` for other files.
    pub fn socket_inode(&self, fd: u32) -> Option<u64> {
        let link = link(self.folder().ok()?, &format!("fd/{fd}")).ok()?;
        link.to_str().ok()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    }

    /// Whether it has a descriptor `fd`.
    pub fn has(&self, fd: u32) -> bool {
        let flags = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        self.folder().is_ok_and(|folder| rustix::fs::statat(folder, format!("fd/{fd}"), flags).is_ok())
    }

    /// The text of its /proc status.
    pub fn status(&self) -> Option<String> {
        String::from_utf8(self.text("status")?).ok()
    }

    /// The id of its process.
    pub fn process(&self) -> Option<u32> {
        self.status().as_deref().and_then(|s| field(s, "Tgid:")).and_then(|t| t.trim().parse().ok())
    }

    /// The id of its process as the process itself sees it.
    pub fn process_in_its_own_namespace(&self) -> Option<u32> {
        self.status()
            .as_deref()
            .and_then(|s| field(s, "NStgid:"))
            .and_then(|t| t.split_whitespace().last()?.parse().ok())
    }

    /// Opens the folder in /proc of itself (`whose` is 0), of its process (negative), or of the process of this number as it
    /// sees it: its /proc may be that of a PID namespace of its own.
    ///
    /// # Errors
    /// The kernel's: `ENOENT` where its /proc has no such process.
    pub fn proc_folder(&self, whose: i32) -> std::io::Result<ProcFolder> {
        let errno = std::io::Error::from_raw_os_error;
        if let Some(pid) = u32::try_from(whose).ok().filter(|pid| *pid > 0) {
            let root = self.open("root", OFlags::PATH | OFlags::DIRECTORY).map_err(errno)?;
            return ProcFolder::below(&root, pid);
        }
        let folder = self.folder().map_err(errno)?;
        if whose == 0 {
            return Ok(ProcFolder::own(folder.try_clone()?));
        }
        let process = self.process().ok_or_else(|| errno(libc::ESRCH))?;
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = self.ask(|_| rustix::fs::open(format!("/proc/{process}"), flags, Mode::empty()));
        Ok(ProcFolder::own(opened.ok_or_else(|| errno(libc::ESRCH))??))
    }

    /// Opens one of its namespaces, such as `net`.
    ///
    /// # Errors
    /// The kernel's.
    pub fn namespace(&self, kind: &str) -> Result<OwnedFd, i32> {
        self.open(&format!("ns/{kind}"), OFlags::RDONLY)
    }

    /// Whether it is in the namespace of this kind that this process is in. True where the kernel has none of the kind.
    pub fn shares_namespace(&self, kind: &str) -> bool {
        let ours = rustix::fs::readlink(format!("/proc/self/ns/{kind}"), [0; 64]);
        match (self.folder().and_then(|folder| link(folder, &format!("ns/{kind}"))), ours) {
            (Ok(theirs), Ok(ours)) => theirs == ours,
            (Err(libc::ENOENT), Err(Errno::NOENT)) => true,
            _ => false,
        }
    }

    /// Whether it is in the initial user namespace. True where the kernel has no others.
    pub fn is_in_initial_user_namespace(&self) -> bool {
        match self.folder().and_then(|folder| link(folder, "ns/user")) {
            Ok(name) => name.as_bytes() == INITIAL_USER_NAMESPACE,
            Err(errno) => errno == libc::ENOENT,
        }
    }

    /// Duplicates its descriptor `fd` into this process.
    ///
    /// # Errors
    /// `EBADF`, or the kernel's error.
    pub fn borrow(&self, fd: u32) -> Result<OwnedFd, i32> {
        let borrow = |of: &OwnedFd| pidfd_getfd(of, fd as i32, PidfdGetfdFlags::empty()).map_err(Errno::raw_os_error);
        if self.process.get().is_none()
            && let Some(last) = LAST.take().filter(|last| last.0 == self.tid)
        {
            match borrow(&last.1) {
                // That one has ended: this is another thread with its number.
                Err(libc::ESRCH) => {}
                done => {
                    LAST.set(Some(last));
                    // The number may be another file's by now, if the call was interrupted.
                    return if self.waits() { done } else { Err(libc::ESRCH) };
                }
            }
        }
        let pid = |id: u32| Pid::from_raw(id as i32).ok_or(Errno::SRCH);
        let process = self.handle(&self.process, || match pidfd_open(pid(self.tid)?, PIDFD_THREAD) {
            // Before Linux 6.9 there are handles of whole processes only.
            Err(Errno::INVAL) => {
                self.is_whole_process.set(true);
                pidfd_open(pid(self.process().ok_or(Errno::SRCH)?)?, PidfdFlags::empty())
            }
            opened => opened,
        })?;
        borrow(process)
    }

    /// The soft limit of its descriptors' numbers.
    pub fn descriptor_limit(&self) -> Option<u64> {
        let text = self.text("limits")?;
        let line = field(core::str::from_utf8(&text).ok()?, "Max open files")?;
        match line.split_whitespace().next()? {
            "unlimited" => Some(u64::MAX),
            number => number.parse().ok(),
        }
    }

    /// Whether it runs with more privileges than its user (AT_SECURE); such programs are not served. A process that we
    /// may not inspect counts as one.
    pub fn secure(&self) -> bool {
        self.text("auxv").is_none_or(|auxv| is_secure(&auxv))
    }

    /// Whether the kernel has woken it to take a signal, or to stop: its call is to be interrupted then, and otherwise not. A
    /// thread whose call has been received goes back to sleep, but from then on wakes up for deadly signals only
    /// (`seccomp_do_user_notification`), and its state tells of that.
    pub fn interrupted(&self) -> bool {
        self.status().as_deref().and_then(|s| field(s, "State:")).is_some_and(|state| state.trim().starts_with('D'))
    }
}

/// Whether an auxiliary vector says AT_SECURE. Its words are as long as the program's pointers.
fn is_secure(auxv: &[u8]) -> bool {
    const AT_SECURE: u64 = 23;
    let mut entries = auxv.as_chunks::<16>().0.iter().map(|entry| {
        let [kind, value] = [&entry[..8], &entry[8..]].map(|word| word.try_into().map_or(0, u64::from_ne_bytes));
        (kind, value)
    });
    // No kind is that large: the word is a short kind with its value.
    if entries.clone().all(|(kind, _)| kind <= u64::from(u32::MAX)) {
        return entries.any(|(kind, value)| kind == AT_SECURE && value != 0);
    }
    let words = auxv.as_chunks::<4>().0.iter().map(|word| u32::from_ne_bytes(*word)).collect::<Vec<_>>();
    words.as_chunks().0.iter().any(|&[kind, value]| u64::from(kind) == AT_SECURE && value != 0)
}

/// The text of a link in a folder.
fn link(folder: &OwnedFd, name: &str) -> Result<CString, i32> {
    rustix::fs::readlinkat(folder, name, [0; 64]).map_err(Errno::raw_os_error)
}

/// `struct procmap_query` of `linux/fs.h` (Linux 6.11).
#[repr(C)]
#[derive(Default)]
struct MappingQuery {
    size: u64,
    query_flags: u64,
    query_addr: u64,
    vma_start: u64,
    vma_end: u64,
    vma_flags: u64,
    vma_page_size: u64,
    vma_offset: u64,
    inode: u64,
    dev_major: u32,
    dev_minor: u32,
    vma_name_size: u32,
    build_id_size: u32,
    vma_name_addr: u64,
    build_id_addr: u64,
}

/// The end of the writable mapping at an address, by the list of mappings of its process.
///
/// # Errors
/// `ENOTTY` where the kernel cannot be asked so, `ENOENT` where no such mapping is there.
fn writable_until(mappings: &File, at: u64) -> Result<u64, i32> {
    const WRITABLE: u64 = 2;
    const PROCMAP_QUERY: libc::Ioctl =
        (3 << 30 | (size_of::<MappingQuery>() as u64) << 16 | (b'f' as u64) << 8 | 17) as libc::Ioctl;
    let size = size_of::<MappingQuery>() as u64;
    let mut query = MappingQuery { size, query_flags: WRITABLE, query_addr: at, ..MappingQuery::default() };
    // SAFETY: the structure that the request is about, with its size.
    let r = unsafe { libc::ioctl(mappings.as_raw_fd(), PROCMAP_QUERY, &raw mut query) };
    if r < 0 {
        return Err(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EFAULT));
    }
    if query.vma_end > at { Ok(query.vma_end) } else { Err(libc::ENOENT) }
}

/// Whether writable mappings in the text of /proc/PID/maps cover all of `at..end`.
fn covers(maps: &[u8], mut at: u64, end: u64) -> bool {
    for line in maps.split(|b| *b == b'\n') {
        let mut words = line.split(|b| *b == b' ').map(|word| core::str::from_utf8(word).unwrap_or_default());
        let (Some(range), Some(may)) = (words.next(), words.next()) else { continue };
        let Some((from, to)) = range.split_once('-') else { continue };
        let number = |text| u64::from_str_radix(text, 16);
        let (Ok(from), Ok(to)) = (number(from), number(to)) else { continue };
        if (from..to).contains(&at) && may.as_bytes().get(1) == Some(&b'w') {
            at = to;
        }
        if at >= end {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
