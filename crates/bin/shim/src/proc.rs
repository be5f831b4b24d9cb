//! Small files of /proc, read without allocation.

use crate::sys::{self, check, raw};

/// Reads a small file of /proc into `buf` and returns the part that was read.
pub(crate) fn slurp<'a>(
    path: &core::ffi::CStr,
    buf: &'a mut [u8],
    mut each: impl FnMut(&[u8]) -> bool,
) -> Option<&'a [u8]> {
    // SAFETY: a C string.
    let fd =
        check(unsafe { raw!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC, 0) })
            .ok()? as i32;
    let mut kept = 0;
    // SAFETY: the rest of the buffer is writable.
    while let Ok(n) = check(unsafe { raw!(libc::SYS_read, fd, buf.as_mut_ptr().add(kept), buf.len() - kept) }) {
        kept += n;
        if n == 0 || !each(&buf[..kept]) {
            break;
        }
        if kept == buf.len() {
            // Keep a tail, so that a line across two reads is still seen whole.
            let tail = kept.min(128);
            buf.copy_within(kept - tail.., 0);
            kept = tail;
        }
    }
    sys::close(fd);
    Some(&buf[..kept])
}

/// A path under /proc/PID.
pub(crate) fn proc_path(pid: u32, leaf: &str) -> [u8; 48] {
    let mut path = [0u8; 48];
    let mut at = 0;
    let mut put = |s: &[u8]| {
        path[at..at + s.len()].copy_from_slice(s);
        at += s.len();
    };
    let mut digits = [0u8; 10];
    let mut n = digits.len();
    let mut rest = pid;
    loop {
        n -= 1;
        digits[n] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    put(b"/proc/");
    put(&digits[n..]);
    put(b"/");
    put(leaf.as_bytes());
    path
}

/// When process `pid` started, in clock ticks since boot; none when it is gone or a zombie.
pub(crate) fn started(pid: u32) -> Option<u64> {
    let path = proc_path(pid, "stat");
    let path = core::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let mut buf = [0u8; 1024];
    let stat = slurp(path, &mut buf, |_| true)?;
    // The second field is the command in parentheses, which may itself hold anything.
    let after = &stat[stat.iter().rposition(|&b| b == b')')? + 1..];
    let mut fields = core::str::from_utf8(after).ok()?.split_ascii_whitespace();
    if matches!(fields.next(), None | Some("Z" | "X")) {
        return None;
    }
    // State is field 3, the start time field 22.
    fields.nth(18)?.parse().ok()
}

/// The inode of the shared memory that process `pid` has mapped from address `at` on; `None` when its map cannot be read,
/// 0 when there is none.
fn inode_at(pid: u32, at: usize) -> Option<u64> {
    let path = proc_path(pid, "maps");
    let path = core::ffi::CStr::from_bytes_until_nul(&path).ok()?;
    let mut wanted = *b"0000000000000000-";
    let mut rest = at;
    let mut n = wanted.len() - 1;
    while rest != 0 {
        n -= 1;
        wanted[n] = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    let wanted = &wanted[n..];
    let mut inode = 0;
    let mut buf = [0u8; 4096];
    slurp(path, &mut buf, |part| {
        let starts = |at: &usize| {
            part[*at..].starts_with(wanted) && at.checked_sub(1).is_none_or(|before| part[before] == b'\n')
        };
        if let Some(at) = (0..part.len()).find(starts) {
            // START-END PERMISSIONS OFFSET DEVICE INODE NAME; without the space behind it the number may go on.
            let mut fields = part[at..].split(|&b| b == b' ');
            if let (Some(number), Some(_)) = (fields.nth(4), fields.next()) {
                inode = core::str::from_utf8(number).ok().and_then(|n| n.parse().ok()).unwrap_or(0);
            }
        }
        inode == 0
    })?;
    Some(inode)
}

/// Whether process or thread `pid` has the shared memory that we have from address `at` on: after an exec it does not,
/// nor after it has given it back. True where it cannot be told.
pub(crate) fn maps_too(pid: u32, at: usize) -> bool {
    match (inode_at(pid, at), inode_at(sys::getpid(), at)) {
        (Some(other), Some(own)) => other == own,
        _ => true,
    }
}
