//! Memory that is shared: with the kernel, and with other processes.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Memory that goes with its value.
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory, with no tie to a thread.
unsafe impl Send for Mapping {}
// SAFETY: it only says where it is.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps so many bytes of what the kernel shares by a descriptor, from an offset on.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn of(fd: &OwnedFd, offset: libc::off_t, len: usize) -> io::Result<Self> {
        Mapping::map(fd.as_raw_fd(), offset, len, libc::MAP_SHARED)
    }

    /// Maps so many bytes that nobody else has, of zero.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Mapping::map(-1, 0, len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS)
    }

    fn map(fd: RawFd, offset: libc::off_t, len: usize, flags: libc::c_int) -> io::Result<Self> {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, flags | libc::MAP_POPULATE);
        // SAFETY: a new mapping of this length.
        let start = unsafe { libc::mmap(core::ptr::null_mut(), len, prot, flags, fd, offset) };
        match NonNull::new(start.cast::<u8>()) {
            Some(at) if start != libc::MAP_FAILED => Ok(Mapping { start: at, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Its first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which what was made of it does not outlive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Words in a memory file of our own: nothing of it is left when we are gone, however we go.
pub struct SharedWords {
    file: File,
    words: &'static [AtomicU64],
}

impl SharedWords {
    /// `n` words of zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(n: usize) -> io::Result<Self> {
        let len = n * size_of::<AtomicU64>();
        // SAFETY: a C string; the descriptor is new and ours.
        let file = unsafe {
            let fd = libc::memfd_create(c"sealane-audit".as_ptr(), libc::MFD_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        file.set_len(len as u64)?;
        // SAFETY: a new mapping of a file that has this length and is never shrunk.
        let at = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, zeroed, of this length, and never unmapped: a launcher makes one.
        let words = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), n) };
        Ok(SharedWords { file, words })
    }

    /// The words.
    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Where other processes of this user can open it while we live.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}
