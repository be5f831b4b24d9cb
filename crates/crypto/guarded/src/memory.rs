//! One piece of guarded memory, and what the kernel does for it.

use crate::cells::{CELL_LEN, Cells};
use crate::lock::{Bolt, Lock, Opening, Pages, allocate_key, bits, free_key};
use crate::wipe::wipe;
use core::alloc::Layout;
use core::fmt;
use core::mem::discriminant;
use core::ptr::{self, NonNull};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const PAGE: usize = 4096;
/// The least memory, in bytes.
const LEAST: usize = 64 << 10;
/// The first pages, which are there from the beginning: enough for a program that goes into a sandbox with a few keys.
const EAGER: usize = LEAST / PAGE;

/// The memory that is wanted.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Its length in bytes; it is rounded up to whole pages, and to 64 KiB at least.
    pub len: usize,
    /// Whether less will do. If so, memory is taken as keys are made, all but the first 64 KiB, by one system call for each page; and
    /// RLIMIT_MEMLOCK may end it earlier. Otherwise all of it is taken at once.
    pub or_less: bool,
    /// The lock.
    pub lock: Lock,
    /// Runs a function whose allocations have to last as long as the process, where the process has memory that does not.
    pub lasting: fn(&mut dyn FnMut()),
}

impl Default for Plan {
    /// At most half of the 8 MiB that RLIMIT_MEMLOCK usually is.
    fn default() -> Self {
        Plan { len: 4 << 20, or_less: true, lock: Lock::ProtectionKey, lasting: |f| f() }
    }
}

impl Plan {
    /// The most that [`Self::by_limit`] asks for, in bytes.
    const MOST: usize = 32 << 20;

    /// Memory in a program of somebody else's: half of what RLIMIT_MEMLOCK lets it have, because it may want some itself, and 32 MiB at
    /// most.
    #[must_use]
    pub fn by_limit() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: it writes a struct of ours.
        let known = unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) } == 0;
        let half = usize::try_from(limit.rlim_cur / 2).unwrap_or(usize::MAX);
        Plan { len: if known { half.min(Self::MOST) } else { Plan::default().len }, ..Plan::default() }
    }
}

/// Something that keeps keys from readers, and is not there. Each has a text that says which readers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// memfd_secret, with its error.
    Secret(i32),
    /// Memory that is not swapped, with the error of `mlock`. Memory of memfd_secret never is.
    Locked(i32),
    /// A protection key, with the error of `pkey_alloc`.
    ProtectionKey(i32),
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, errno) = match self {
            Lack::Secret(errno @ libc::ENOSYS) => (
                "no memfd_secret in this kernel (before Linux 6.5 it needs secretmem.enable=1 on the kernel's command line): \
                 /proc/PID/mem, process_vm_readv and ptrace can read keys",
                errno,
            ),
            Lack::Secret(errno) => ("no memfd_secret: /proc/PID/mem, process_vm_readv and ptrace can read keys", errno),
            Lack::Locked(errno) => ("no locked memory (RLIMIT_MEMLOCK): keys can get into swap", errno),
            Lack::ProtectionKey(errno) => {
                ("no protection key in this CPU or kernel: an over-read of the program can see keys", errno)
            }
        };
        write!(f, "{what} ({})", io::Error::from_raw_os_error(*errno))
    }
}

/// There is no room in guarded memory. Nothing is put elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl fmt::Display for NoRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("guarded memory is full")
    }
}

impl core::error::Error for NoRoom {}

/// Guarded memory.
pub struct Memory {
    plan: Plan,
    /// A page that nobody can read, the memory, and another such page.
    mapping: Mapping,
    len: usize,
    /// 1, on a page that a child has as zeros.
    marker: Mapping,
    cells: Cells,
    /// The pages that the kernel has given already.
    touched: Box<[AtomicBool]>,
    bolt: Bolt,
    lacks: Vec<Lack>,
}

/// Pages of our own, which are unmapped when it is dropped.
struct Mapping {
    at: *mut u8,
    len: usize,
}

// SAFETY: addresses; who reads through them does it under the rules of `Memory`.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// The number of an error of a system call.
fn number(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(libc::EIO)
}

fn checked(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Mapping {
    fn new(len: usize, protection: i32) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(Mapping { at: at.cast(), len }) }
    }

    /// Advice about a part of it.
    fn advise(&self, offset: usize, len: usize, advice: i32) -> io::Result<()> {
        debug_assert!(offset + len <= self.len);
        // SAFETY: a part of this mapping.
        checked(unsafe { libc::madvise(self.at.add(offset).cast(), len, advice) })
    }

    /// Has a file's pages, or new ones, in the place of a part of it, for reading and writing.
    fn replace(&self, offset: usize, len: usize, file: Option<&OwnedFd>) -> io::Result<()> {
        debug_assert!(offset + len <= self.len);
        let (flags, fd) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a part of this mapping, in which nobody has anything.
        let at = unsafe { libc::mmap(self.at.add(offset).cast(), len, protection, flags | libc::MAP_FIXED, fd, 0) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours. In a child a part of it is not there, or by now is somebody else's: `Memory` forgets it then.
        unsafe { libc::munmap(self.at.cast(), self.len) };
    }
}

/// A file that only this process can map, and the kernel itself does not.
fn secret_file(len: usize) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_secret, libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the system call has just returned this descriptor, and nothing else owns it.
    let file = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: no pointers.
    checked(unsafe { libc::ftruncate(file.as_raw_fd(), len as libc::off_t) })?;
    Ok(file)
}

impl Memory {
    /// The plan that it was made by.
    pub(crate) fn plan(&self) -> Plan {
        self.plan
    }

    pub(crate) fn make(plan: Plan) -> io::Result<Self> {
        let bits = match plan.lock {
            Lock::ProtectionKey => allocate_key().map(bits),
            Lock::None | Lock::Mprotect => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        };
        let made = Memory::with_key(plan, bits.as_ref().copied().map_err(number));
        if let (Err(_), Ok(bits)) = (&made, bits) {
            free_key(bits);
        }
        made
    }

    /// Memory for a child of the process that has this one. The child has its parent's protection key.
    pub(crate) fn again(&self) -> io::Result<Self> {
        let lack =
            self.lacks.iter().find_map(|lack| if let Lack::ProtectionKey(errno) = lack { Some(*errno) } else { None });
        let bits = match self.bolt {
            Bolt::ProtectionKey(bits) => Ok(bits),
            Bolt::None | Bolt::Mprotect(_) => Err(lack.unwrap_or(libc::EOPNOTSUPP)),
        };
        let made = Memory::with_key(self.plan, bits)?;
        // Nobody would hear of it.
        let is_weaker =
            made.lacks.iter().any(|lack| !self.lacks.iter().any(|known| discriminant(known) == discriminant(lack)));
        if is_weaker { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(made) }
    }

    /// Gives back memory that was not needed, and then its protection key.
    pub(crate) fn end(self) {
        let bits = if let Bolt::ProtectionKey(bits) = self.bolt { Some(bits) } else { None };
        drop(self);
        bits.into_iter().for_each(free_key);
    }

    fn with_key(plan: Plan, bits: Result<u32, i32>) -> io::Result<Self> {
        let mut len = plan.len.max(LEAST).next_multiple_of(PAGE);
        loop {
            match Memory::of_len(plan, len, bits) {
                Err(error) if plan.or_less && len > LEAST && error.raw_os_error() == Some(libc::EAGAIN) => {
                    len = (len / 2).max(LEAST).next_multiple_of(PAGE);
                }
                made => return made,
            }
        }
    }

    fn of_len(plan: Plan, len: usize, bits: Result<u32, i32>) -> io::Result<Self> {
        let marker = Mapping::new(PAGE, libc::PROT_READ | libc::PROT_WRITE)?;
        marker.advise(0, PAGE, libc::MADV_WIPEONFORK)?;
        let mapping = Mapping::new(len + 2 * PAGE, libc::PROT_NONE)?;
        let mut lacks = Vec::new();
        match secret_file(len) {
            Ok(file) => mapping.replace(PAGE, len, Some(&file))?,
            // A kernel without it, or a sandbox. Others pass, such as too many open files.
            Err(error) if !matches!(number(&error), libc::ENOSYS | libc::EPERM) => return Err(error),
            Err(error) => {
                lacks.push(Lack::Secret(number(&error)));
                mapping.replace(PAGE, len, None)?;
                // SAFETY: a part of the mapping.
                if unsafe { libc::mlock(mapping.at.add(PAGE).cast(), len) } != 0 {
                    let errno = number(&io::Error::last_os_error());
                    if plan.or_less && len > LEAST {
                        return Err(io::Error::from_raw_os_error(libc::EAGAIN));
                    }
                    lacks.push(Lack::Locked(errno));
                }
            }
        }
        mapping.advise(PAGE, len, libc::MADV_DONTDUMP)?;
        mapping.advise(PAGE, len, libc::MADV_DONTFORK)?;
        // SAFETY: a part of the mapping.
        let at = unsafe { mapping.at.add(PAGE) };
        let bolt = match (plan.lock, bits) {
            (Lock::Mprotect, _) => Bolt::Mprotect(Pages::close(at, len)?),
            (_, Ok(bits)) => {
                let key = bits.trailing_zeros() / 2;
                let protection = libc::PROT_READ | libc::PROT_WRITE;
                // SAFETY: a part of the mapping, with the protection that it has, and a key of ours.
                if unsafe { libc::syscall(libc::SYS_pkey_mprotect, at, len, protection, key) } != 0 {
                    return Err(io::Error::last_os_error());
                }
                Bolt::ProtectionKey(bits)
            }
            (_, Err(errno)) => {
                lacks.push(Lack::ProtectionKey(errno));
                Bolt::None
            }
        };
        let touched = (0..len / PAGE).map(|_| AtomicBool::new(false)).collect();
        let memory = Memory { plan, mapping, len, marker, cells: Cells::new(len), touched, bolt, lacks };
        let eager = if plan.or_less { EAGER } else { len / PAGE };
        let had = {
            let opening = memory.bolt.open();
            let had = (0..eager).take_while(|page| memory.touch(page * PAGE, PAGE)).count();
            opening.close();
            had
        };
        if had == 0 || had < eager && !plan.or_less {
            return Err(io::Error::from_raw_os_error(libc::EAGAIN));
        }
        memory.mark().store(1, Ordering::Release);
        Ok(memory)
    }

    /// Has the kernel give the pages of a place that nobody uses yet, which is open. Returns whether it did.
    ///
    /// Later kernels (Linux 6.12.117) count a page against RLIMIT_MEMLOCK when it is first used, not when it is mapped, and add up all
    /// processes of a user, root too: beyond the limit a process that touches one gets SIGBUS, and a system call that writes there EFAULT.
    fn touch(&self, offset: usize, len: usize) -> bool {
        (offset / PAGE..(offset + len).div_ceil(PAGE)).all(|page| {
            self.touched[page].load(Ordering::Relaxed) || {
                // A place has a cell at least on each page that it is on.
                let at = self.at().wrapping_add(offset.max(page * PAGE));
                // SAFETY: the kernel checks the address, which is of the caller's place.
                let had = unsafe { libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC, at) } == 0;
                if had {
                    // SAFETY: the kernel has just written there.
                    unsafe { wipe(at, size_of::<libc::timespec>()) };
                    self.touched[page].store(true, Ordering::Relaxed);
                }
                had
            }
        })
    }

    #[inline]
    fn mark(&self) -> &AtomicU32 {
        // SAFETY: a page of ours, zeros at first, which is mapped in children, too.
        unsafe { &*self.marker.at.cast::<AtomicU32>() }
    }

    /// Whether it is memory of this process, not of its parent.
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.mark().load(Ordering::Acquire) != 0
    }

    /// Its length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no keys.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used() == 0
    }

    /// The bytes that are taken.
    #[must_use]
    pub fn used(&self) -> usize {
        self.cells.used() * CELL_LEN
    }

    /// The first address of it.
    #[must_use]
    pub fn address(&self) -> usize {
        self.at() as usize
    }

    /// The protections that it does not have.
    #[must_use]
    pub fn lacks(&self) -> &[Lack] {
        &self.lacks
    }

    fn at(&self) -> *mut u8 {
        self.mapping.at.wrapping_add(PAGE)
    }

    /// Whether an address is in it.
    pub(crate) fn has(&self, at: *const u8) -> bool {
        (at as usize).wrapping_sub(self.at() as usize) < self.len
    }

    /// Opens it for this thread.
    #[inline]
    pub(crate) fn open(&self) -> Opening<'_> {
        if self.is_here() { self.bolt.open() } else { Opening::Nothing }
    }

    /// Takes a place for a layout, whose bytes are zeros.
    pub(crate) fn take(&self, layout: Layout) -> Option<NonNull<u8>> {
        if layout.align() > CELL_LEN {
            return None;
        }
        let len = layout.size();
        let had = |offset: &usize| {
            let opening = self.open();
            let had = self.touch(*offset, len);
            opening.close();
            if !had {
                self.cells.give(*offset, len);
            }
            had
        };
        // Where the kernel gives no more pages there may be room on those that it gave.
        let offset = self.cells.take(len).filter(had).or_else(|| self.cells.take_first(len).filter(had))?;
        NonNull::new(self.at().wrapping_add(offset))
    }

    /// Wipes a place and takes it back.
    ///
    /// # Safety
    /// It is of [`Self::take`] for this layout, and nobody uses it any more.
    pub(crate) unsafe fn give(&self, at: NonNull<u8>, layout: Layout) {
        let opening = self.open();
        // SAFETY: the caller's place, open.
        unsafe { wipe(at.as_ptr(), layout.size()) };
        opening.close();
        self.cells.give(at.as_ptr() as usize - self.at() as usize, layout.size());
    }
}
