//! A table of words in memory that other processes can map by a path.

use core::sync::atomic::AtomicU64;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// Words in a memory file of our own: nothing of it is left when we are gone, however we go.
pub(crate) struct SharedWords {
    file: File,
    words: &'static [AtomicU64],
}

impl SharedWords {
    /// `n` words of zero.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn new(n: usize) -> io::Result<Self> {
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
    pub(crate) fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// Where other processes of this user can open it while we live.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}
