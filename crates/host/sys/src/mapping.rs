//! Memory mappings, shared with the kernel or with other processes.

use core::ptr::NonNull;
use core::sync::atomic::AtomicU64;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

/// A mapping that is unmapped when dropped.
pub struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is not tied to a thread.
unsafe impl Send for Mapping {}
// SAFETY: a shared reference gives only the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes at `offset` of what the kernel shares through a descriptor.
    ///
    /// # Errors
    /// The kernel's.
    pub fn of(fd: &OwnedFd, offset: libc::off_t, len: usize) -> io::Result<Self> {
        Mapping::map(fd.as_raw_fd(), offset, len, libc::MAP_SHARED)
    }

    /// Maps `len` private bytes of zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn anonymous(len: usize) -> io::Result<Self> {
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

    /// The address of the first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// The length in bytes, which is not zero.
    #[expect(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this is our own mapping, and nothing made from it outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Words in a memory file, which vanishes when this process ends, even by a crash.
pub struct SharedWords {
    file: File,
    words: &'static [AtomicU64],
}

impl SharedWords {
    /// Creates `n` words of zero.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new(n: usize) -> io::Result<Self> {
        let len = n * size_of::<AtomicU64>();
        let file = File::from(memfd_create(c"sealane-audit", MemfdFlags::CLOEXEC)?);
        file.set_len(len as u64)?;
        // SAFETY: a new mapping of a file that has this length and is never shrunk.
        let at = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(core::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: page-aligned, zeroed, of this length, and never unmapped: a launcher creates only one.
        let words = unsafe { core::slice::from_raw_parts(at.cast::<AtomicU64>(), n) };
        Ok(SharedWords { file, words })
    }

    /// The words.
    pub fn words(&self) -> &'static [AtomicU64] {
        self.words
    }

    /// The path at which other processes of this user can open the file while this process lives.
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd())
    }
}

/// Creates an empty file in memory that can grow and never shrinks.
///
/// # Errors
/// The kernel's.
pub fn memory_file(name: &str) -> io::Result<File> {
    let file = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file.into())
}

/// Words in a part of a file of [`memory_file`], which may outlive this process.
pub struct FileWords {
    mapping: Mapping,
}

impl FileWords {
    /// Maps `n` words at `offset`, a multiple of the page size. The file grows if it is shorter.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` for a file that may shrink.
    pub fn map(file: &File, offset: u64, n: usize) -> io::Result<Self> {
        let len = n * size_of::<AtomicU64>();
        let end = offset.checked_add(len as u64).ok_or(io::ErrorKind::InvalidInput)?;
        if !fcntl_get_seals(file)?.contains(SealFlags::SHRINK) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if file.metadata()?.len() < end {
            file.set_len(end)?;
        }
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        let mapping = Mapping::map(file.as_raw_fd(), offset, len, libc::MAP_SHARED)?;
        Ok(FileWords { mapping })
    }
}

impl core::ops::Deref for FileWords {
    type Target = [AtomicU64];

    fn deref(&self) -> &[AtomicU64] {
        let n = self.mapping.len() / size_of::<AtomicU64>();
        // SAFETY: page-aligned memory of this length, mapped as long as `self` lives. The file cannot shrink, so that
        // every page is there, and other processes that have it mapped use atomic words, too.
        unsafe { core::slice::from_raw_parts(self.mapping.start().as_ptr().cast::<AtomicU64>(), n) }
    }
}
