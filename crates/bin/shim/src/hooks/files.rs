//! Files of /proc that tell what we serve: /proc/crypto, the counters of TCP-AO in /proc/net/netstat, those of IPsec in
//! /proc/net/xfrm_stat. They are opened by the functions here, and the last one, which a kernel may lack, is looked for by others.

use super::aside::stands_aside;
use super::fds;
use crate::entry::{guarded, real};
use crate::launcher::asked;
use crate::sys::{check, errno, raw, set_errno};
use crate::system;
use core::ffi::{CStr, c_char, c_int, c_uint};
use libc::FILE;
use sealane_abi::sealane::{NETSTAT_QUERY, XFRM_STAT_QUERY};

/// A file whose text is ours.
#[derive(Clone, Copy)]
enum ServedFile {
    /// /proc/crypto.
    Crypto,
    /// net/netstat of a thread's network namespace: of this thread (0), of this process (-1), or of the process named.
    Netstat(c_int),
    /// net/xfrm_stat, of the same.
    XfrmStat(c_int),
}

/// Identifies a path as one of the files that this library serves.
///
/// # Safety
/// The program's C string, or null.
unsafe fn ours(path: *const c_char) -> Option<ServedFile> {
    if path.is_null() {
        return None;
    }
    // SAFETY: not null.
    let rest = unsafe { CStr::from_ptr(path) }.to_bytes().strip_prefix(b"/proc/")?;
    if rest == b"crypto" {
        return (!stands_aside()).then_some(ServedFile::Crypto);
    }
    let (whose, file) = match rest.strip_prefix(b"net/") {
        Some(file) => (-1, file),
        None => {
            let at = rest.windows(5).position(|w| w == b"/net/")?;
            let whose = match &rest[..at] {
                b"self" => -1,
                b"thread-self" => 0,
                pid => core::str::from_utf8(pid).ok()?.parse().ok().filter(|pid| *pid > 0)?,
            };
            (whose, &rest[at + 5..])
        }
    };
    match file {
        b"netstat" => Some(ServedFile::Netstat(whose)),
        b"xfrm_stat" => Some(ServedFile::XfrmStat(whose)),
        _ => None,
    }
}

/// A file with the text, as the flags of open(2) want it. `None`: the kernel's own will do.
fn listing(which: ServedFile, flags: c_int) -> Option<Result<isize, i32>> {
    let text = match which {
        ServedFile::Crypto if flags & libc::O_ACCMODE != libc::O_RDONLY => return Some(Err(libc::EACCES)),
        ServedFile::Crypto => system::get().map(|s| sealane_engine_alg::proc_crypto(&s).into_bytes()),
        ServedFile::Netstat(_) | ServedFile::XfrmStat(_) if flags & libc::O_ACCMODE != libc::O_RDONLY => return None,
        ServedFile::Netstat(whose) => Ok(asked(whose, (libc::IPPROTO_TCP, NETSTAT_QUERY))?),
        ServedFile::XfrmStat(whose) => Ok(asked(whose, XFRM_STAT_QUERY)?),
    };
    Some(text.and_then(|text| memory_file(&text, flags & libc::O_CLOEXEC != 0)))
}

/// A read-only file in memory.
fn memory_file(text: &[u8], cloexec: bool) -> Result<isize, i32> {
    let memfd_flags: c_uint = libc::MFD_ALLOW_SEALING | if cloexec { libc::MFD_CLOEXEC } else { 0 };
    // SAFETY: a C string; the text's bytes; plain values.
    unsafe {
        let fd = check(raw!(libc::SYS_memfd_create, c"sealane".as_ptr(), memfd_flags))?;
        let mut rest = text;
        while let Ok(n @ 1..) = check(raw!(libc::SYS_write, fd, rest.as_ptr(), rest.len())) {
            rest = &rest[n..];
        }
        raw!(libc::SYS_lseek, fd, 0, libc::SEEK_SET);
        let seals = libc::F_SEAL_WRITE | libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        raw!(libc::SYS_fcntl, fd, libc::F_ADD_SEALS, seals);
        Ok(fd as isize)
    }
}

/// Opens a file of ours: its descriptor, or -1 with errno. `None`: the kernel's own file is to be opened.
///
/// # Safety
/// The program's C string, or null.
unsafe fn open_ours(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let which = unsafe { ours(path) }?;
    let mut served = true;
    let fd = guarded(|| {
        listing(which, flags).unwrap_or_else(|| {
            served = false;
            Ok(-1)
        })
    });
    served.then_some(fd as c_int)
}

macro_rules! opens {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*), $path:ident, $flags:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program's path.
            if let Some(fd) = unsafe { open_ours($path, $flags) } {
                return fd;
            }
            let fd = real!($name($($arg: $ty),*) -> c_int);
            fds::fresh(fd);
            fd
        }
    )+};
}

opens! {
    /// `open(2)`.
    fn open(path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `open(2)` as programs with 64-bit file offsets call it.
    fn open64(path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `openat(2)`.
    fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `openat(2)` as programs with 64-bit file offsets call it.
    fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: c_uint), path, flags;
    /// `__open_2`: open(2) as _FORTIFY_SOURCE calls it.
    fn __open_2(path: *const c_char, flags: c_int), path, flags;
    /// `__open64_2`: open(2) as _FORTIFY_SOURCE calls it.
    fn __open64_2(path: *const c_char, flags: c_int), path, flags;
    /// `__openat_2`: openat(2) as _FORTIFY_SOURCE calls it.
    fn __openat_2(dir: c_int, path: *const c_char, flags: c_int), path, flags;
    /// `__openat64_2`: openat(2) as _FORTIFY_SOURCE calls it.
    fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int), path, flags;
}

/// A stdio file with a text of ours, as fopen(3) opens it. `None`: the kernel's own file is to be opened.
///
/// # Safety
/// The program's strings.
unsafe fn stream(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    // SAFETY: the caller's promise.
    let mode = unsafe {
        if mode.is_null() || *mode != b'r' as c_char {
            return None;
        }
        CStr::from_ptr(mode).to_bytes()
    };
    let flags = if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    // SAFETY: the program's path; our descriptor, handed over.
    unsafe {
        let fd = open_ours(path, flags)?;
        Some(if fd < 0 { core::ptr::null_mut() } else { libc::fdopen(fd, c"r".as_ptr()) })
    }
}

macro_rules! streams {
    ($($(#[$doc:meta])* fn $name:ident;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            // SAFETY: the program's strings.
            if let Some(file) = unsafe { stream(path, mode) } {
                return file;
            }
            real!($name(path: *const c_char, mode: *const c_char) -> *mut FILE)
        }
    )+};
}

streams! {
    /// `fopen(3)`.
    fn fopen;
    /// `fopen(3)` as programs with 64-bit file offsets call it.
    fn fopen64;
}

/// The attributes of /proc/net/xfrm_stat, as procfs gives them.
fn attributes() -> libc::stat {
    // SAFETY: all-zero is valid.
    let mut attributes: libc::stat = unsafe { core::mem::zeroed() };
    (attributes.st_mode, attributes.st_nlink, attributes.st_blksize) = (libc::S_IFREG | READABLE, 1, 1024);
    attributes
}

/// The permissions of the same file.
const READABLE: libc::mode_t = 0o444;

/// Whether a call has failed because the kernel does not have a file of IPsec's that the launcher serves: one without
/// CONFIG_XFRM_STATISTICS, where key managers look for it to know whether there is IPsec.
///
/// # Safety
/// The program's C string, or null.
unsafe fn lacks_served(done: c_int, path: *const c_char) -> bool {
    let is_missing = done < 0 && errno() == libc::ENOENT;
    // SAFETY: the caller's promise.
    let Some(ServedFile::XfrmStat(whose)) = is_missing.then(|| unsafe { ours(path) }).flatten() else { return false };
    let is_served = guarded(|| Ok(isize::from(asked(whose, XFRM_STAT_QUERY).is_some()))) > 0;
    if !is_served {
        set_errno(libc::ENOENT);
    }
    is_served
}

macro_rules! stats {
    ($($(#[$doc:meta])* fn $name:ident($($before:ident: $ty:ty),*; $($after:ident: $of:ty),*);)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($before: $ty,)* path: *const c_char, to: *mut libc::stat $(, $after: $of)*
        ) -> c_int {
            let done =
                real!($name($($before: $ty,)* path: *const c_char, to: *mut libc::stat $(, $after: $of)*) -> c_int);
            // SAFETY: the program's path, and its room for the answer.
            unsafe {
                if to.is_null() || !lacks_served(done, path) {
                    return done;
                }
                to.write(attributes());
            }
            0
        }
    )+};
}

stats! {
    /// `stat(2)`.
    fn stat(;);
    /// `stat(2)` as programs with 64-bit file offsets call it.
    fn stat64(;);
    /// `lstat(2)`.
    fn lstat(;);
    /// `lstat(2)` as programs with 64-bit file offsets call it.
    fn lstat64(;);
    /// `fstatat(2)`.
    fn fstatat(dir: c_int; flags: c_int);
    /// `fstatat(2)` as programs with 64-bit file offsets call it.
    fn fstatat64(dir: c_int; flags: c_int);
}

/// `statx(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    to: *mut libc::statx,
) -> c_int {
    let done = real!(statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, to: *mut libc::statx) -> c_int);
    // SAFETY: the program's path, and its room for the answer; all-zero is valid.
    unsafe {
        if to.is_null() || !lacks_served(done, path) {
            return done;
        }
        let mut told: libc::statx = core::mem::zeroed();
        told.stx_mask = libc::STATX_BASIC_STATS;
        (told.stx_mode, told.stx_nlink, told.stx_blksize) = ((libc::S_IFREG | READABLE) as u16, 1, 1024);
        to.write(told);
    }
    0
}

macro_rules! accesses {
    ($($(#[$doc:meta])* fn $name:ident($($before:ident: $ty:ty),*; $($after:ident: $of:ty),*);)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name(
            $($before: $ty,)* path: *const c_char, mode: c_int $(, $after: $of)*
        ) -> c_int {
            let done = real!($name($($before: $ty,)* path: *const c_char, mode: c_int $(, $after: $of)*) -> c_int);
            // SAFETY: the program's path.
            if !unsafe { lacks_served(done, path) } {
                return done;
            }
            if mode & !libc::R_OK == 0 {
                return 0;
            }
            set_errno(libc::EACCES);
            -1
        }
    )+};
}

accesses! {
    /// `access(2)`.
    fn access(;);
    /// `eaccess(3)`.
    fn eaccess(;);
    /// `euidaccess(3)`.
    fn euidaccess(;);
    /// `faccessat(2)`.
    fn faccessat(dir: c_int; flags: c_int);
}
