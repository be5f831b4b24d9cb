//! The locks of guarded memory.
//!
//! A protection key (PKU; `pkeys(7)`) closes memory for one thread by a register of the CPU, PKRU, which `WRPKRU` writes in about 25
//! cycles. A new thread has its creator's; the kernel closes all keys for a signal handler, and restores what was there when it
//! returns.

use core::arch::asm;
use std::io;
use std::sync::Mutex;

/// The kind of lock that is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// A protection key, where CPU and kernel have one.
    ProtectionKey,
    /// None, as on a machine without protection keys.
    None,
    /// `mprotect`, which closes memory for all threads at once and takes a system call: for tests of what opens the memory, on machines
    /// without protection keys.
    Mprotect,
}

/// A lock.
pub(crate) enum Bolt {
    None,
    /// The bits of PKRU that close it.
    ProtectionKey(u32),
    Mprotect(Pages),
}

/// The bits of PKRU that close memory of a key: no access, no writes.
pub(crate) fn bits(key: u32) -> u32 {
    0b11 << (2 * key)
}

fn read_pkru() -> u32 {
    let pkru;
    // SAFETY: the caller has a protection key, so the CPU has the instruction.
    unsafe { asm!("rdpkru", in("ecx") 0, out("eax") pkru, out("edx") _, options(nomem, nostack, preserves_flags)) };
    pkru
}

/// It says nothing about memory to the compiler, so that no access is moved across.
fn write_pkru(pkru: u32) {
    // SAFETY: as above; memory of other keys stays as it is.
    unsafe { asm!("wrpkru", in("eax") pkru, in("ecx") 0, in("edx") 0, options(nostack, preserves_flags)) };
}

/// A protection key of this process, which closes memory for this thread from now on.
///
/// # Errors
/// `pkey_alloc`'s: `ENOSPC` also where the CPU has none, `EINVAL`, `ENOSYS`.
pub(crate) fn allocate_key() -> io::Result<u32> {
    /// PKEY_DISABLE_ACCESS (`asm-generic/mman-common.h`).
    const DISABLE_ACCESS: libc::c_ulong = 1;
    // SAFETY: no pointers.
    let key = unsafe { libc::syscall(libc::SYS_pkey_alloc, 0, DISABLE_ACCESS) };
    u32::try_from(key).map_err(|_| io::Error::last_os_error())
}

/// Gives a key back.
pub(crate) fn free_key(bits: u32) {
    // SAFETY: the key is ours, and no memory has it any more.
    unsafe { libc::syscall(libc::SYS_pkey_free, bits.trailing_zeros() / 2) };
}

/// Pages that `mprotect` closes.
pub(crate) struct Pages {
    at: *mut libc::c_void,
    len: usize,
    /// Threads that have them open.
    openers: Mutex<usize>,
}

// SAFETY: an address, which is not read here.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Pages {
    /// Closes pages of the caller's.
    pub(crate) fn close(at: *mut u8, len: usize) -> io::Result<Self> {
        let pages = Pages { at: at.cast(), len, openers: Mutex::new(0) };
        pages.protect(libc::PROT_NONE)?;
        Ok(pages)
    }

    fn protect(&self, as_what: i32) -> io::Result<()> {
        // SAFETY: the pages are the caller's; who has references into them has opened them.
        match unsafe { libc::mprotect(self.at, self.len, as_what) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn enter(&self) {
        let mut openers = self.openers.lock().expect("nobody panics with it");
        if *openers == 0 {
            self.protect(libc::PROT_READ | libc::PROT_WRITE).expect("pages that were open before");
        }
        *openers += 1;
    }

    fn leave(&self) {
        let mut openers = self.openers.lock().expect("nobody panics with it");
        *openers -= 1;
        if *openers == 0 {
            self.protect(libc::PROT_NONE).expect("closing is always allowed");
        }
    }
}

/// Something that was opened, and has to be closed again.
pub(crate) enum Opening<'a> {
    Nothing,
    /// The bits of PKRU that close it. Others may have changed meanwhile.
    Pkru(u32),
    Mprotect(&'a Pages),
}

impl Bolt {
    /// Opens it for this thread.
    #[inline]
    pub(crate) fn open(&self) -> Opening<'_> {
        match self {
            Bolt::None => Opening::Nothing,
            Bolt::ProtectionKey(bits) => {
                let pkru = read_pkru();
                if pkru & bits == 0 {
                    return Opening::Nothing;
                }
                write_pkru(pkru & !bits);
                Opening::Pkru(*bits)
            }
            Bolt::Mprotect(pages) => {
                pages.enter();
                Opening::Mprotect(pages)
            }
        }
    }
}

impl Opening<'_> {
    #[inline]
    pub(crate) fn close(&self) {
        match self {
            Opening::Nothing => {}
            Opening::Pkru(bits) => write_pkru(read_pkru() | bits),
            Opening::Mprotect(pages) => pages.leave(),
        }
    }
}
