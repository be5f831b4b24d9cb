//! Calls on TCP sockets, with memory whose end a test chooses.

use super::{Ret, ret};
use std::ptr;

/// Memory that ends at an inaccessible page.
pub struct Guarded {
    start: *mut u8,
    /// Accessible length in bytes.
    size: usize,
}

impl Guarded {
    /// Maps at least `size` bytes.
    ///
    /// # Panics
    /// When the mapping fails.
    #[must_use]
    pub fn new(size: usize) -> Self {
        // SAFETY: no pointers.
        let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).expect("a page has a size");
        let size = size.next_multiple_of(page);
        let (both, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, wherever there is room.
        let start = unsafe { libc::mmap(ptr::null_mut(), size + page, both, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "no memory");
        let start = start.cast::<u8>();
        // SAFETY: the last page of the mapping just made.
        let r = unsafe { libc::mprotect(start.add(size).cast(), page, libc::PROT_NONE) };
        assert_eq!(r, 0, "a page can be closed");
        Guarded { start, size }
    }

    /// Returns the start of the last `len` bytes.
    fn at(&self, len: usize) -> *mut u8 {
        assert!(len <= self.size);
        // SAFETY: `len` is at most the size, so this lies inside the mapping.
        unsafe { self.start.add(self.size - len) }
    }

    /// Copies `bytes` to the end.
    fn place(&mut self, bytes: &[u8]) -> *mut u8 {
        let at = self.at(bytes.len());
        // SAFETY: `at` is followed by exactly that many bytes, which nothing else refers to.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len()) };
        at
    }

    /// `setsockopt` at level `IPPROTO_TCP` with `bytes` at the end of memory, for any `len`.
    ///
    /// # Errors
    /// The errno.
    pub fn setsockopt(&mut self, fd: i32, name: i32, bytes: &[u8], len: i32) -> Ret {
        let at = self.place(bytes);
        // SAFETY: the kernel reads accessible memory only; an early end is what the tests want.
        ret(i64::from(unsafe { libc::setsockopt(fd, libc::IPPROTO_TCP, name, at.cast(), len as u32) }))
    }

    /// `getsockopt` with `bytes` as input and output; returns the length.
    ///
    /// # Errors
    /// The errno; the bytes may have changed all the same.
    pub fn getsockopt(&mut self, fd: i32, name: i32, bytes: &mut [u8], len: i32) -> Ret {
        let at = self.place(bytes);
        let mut len = len as u32;
        // SAFETY: the kernel writes from `at` on, in steps shorter than a page (the plans see to that), so that it stops at
        // the closed page behind this mapping at the latest.
        let r = unsafe { libc::getsockopt(fd, libc::IPPROTO_TCP, name, at.cast(), &raw mut len) };
        // SAFETY: `at` is followed by exactly that many bytes.
        unsafe { ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len()) };
        ret(i64::from(r)).map(|_| i64::from(len))
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        // SAFETY: made by `mmap` with one page more, and nothing refers to it any longer.
        unsafe { libc::munmap(self.start.cast(), self.size + 1) };
    }
}

/// Opens a TCP socket that does not block.
///
/// # Errors
/// The errno.
pub fn tcp_socket(v6: bool) -> Ret {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    // SAFETY: no pointers.
    ret(i64::from(unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0) }))
}

/// `listen`
///
/// # Errors
/// The errno.
pub fn listen(fd: i32, backlog: i32) -> Ret {
    // SAFETY: no pointers.
    ret(i64::from(unsafe { libc::listen(fd, backlog) }))
}

/// Drops all capabilities or takes them back, by the effective user, which the effective set follows.
pub fn as_root(on: bool) {
    // SAFETY: no pointers.
    unsafe { libc::seteuid(if on { 0 } else { 65534 }) };
}
