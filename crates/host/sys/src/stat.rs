//! The answers of stat(2) and statx(2) about a file, as the bytes that the kernel writes.

use std::ffi::CStr;
use std::io;

/// `struct stat` of this architecture.
pub type Stat = [u8; size_of::<libc::stat>()];
/// `struct statx`.
pub type Statx = [u8; size_of::<libc::statx>()];

/// Asks for the attributes of a file.
///
/// # Errors
/// The kernel's.
pub fn stat(path: &CStr) -> io::Result<Stat> {
    let mut stat = [0; size_of::<libc::stat>()];
    // SAFETY: a C string, and room for what the kernel writes.
    let r = unsafe { libc::syscall(libc::SYS_newfstatat, libc::AT_FDCWD, path.as_ptr(), stat.as_mut_ptr(), 0) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(stat) }
}

/// Asks for these attributes of a file, with the flags of statx(2).
///
/// # Errors
/// The kernel's: `EINVAL` for flags or a mask that it does not have.
pub fn statx(path: &CStr, flags: i32, mask: u32) -> io::Result<Statx> {
    let mut statx = [0; size_of::<libc::statx>()];
    // SAFETY: a C string, and room for what the kernel writes.
    let r = unsafe { libc::syscall(libc::SYS_statx, libc::AT_FDCWD, path.as_ptr(), flags, mask, statx.as_mut_ptr()) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(statx) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_file() {
        let stat = stat(c"/proc/self/status").unwrap();
        let at = core::mem::offset_of!(libc::stat, st_mode);
        let mode = u32::from_ne_bytes(stat[at..at + 4].try_into().unwrap());
        assert_eq!(mode, libc::S_IFREG | 0o444);
        let statx = statx(c"/proc/self/status", 0, libc::STATX_MODE).unwrap();
        let at = core::mem::offset_of!(libc::statx, stx_mode);
        let mode = u16::from_ne_bytes(statx[at..at + 2].try_into().unwrap());
        assert_eq!(u32::from(mode), libc::S_IFREG | 0o444);
    }
}
