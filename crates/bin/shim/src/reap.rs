//! Records of processes that are gone: a killed process closes its descriptors without telling us.

use crate::arena;
use crate::sys::{self, check, raw};
use crate::table::{self, Process};

/// Reads a small file of /proc into `buf`; the part that was read.
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
            let tail = kept.min(64);
            buf.copy_within(kept - tail.., 0);
            kept = tail;
        }
    }
    sys::close(fd);
    Some(&buf[..kept])
}

/// A path under /proc/PID.
fn proc_path(pid: u32, leaf: &str) -> [u8; 48] {
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

/// Whether the process still maps our arena: after an exec it does not, and its descriptors were closed or are no
/// longer reachable for us.
fn maps_arena(pid: u32) -> bool {
    let path = proc_path(pid, "maps");
    let Ok(path) = core::ffi::CStr::from_bytes_until_nul(&path) else { return true };
    let mut wanted = [b'0'; 16];
    let mut rest = arena::address();
    let mut n = wanted.len();
    while rest != 0 {
        n -= 1;
        wanted[n] = b"0123456789abcdef"[rest % 16];
        rest /= 16;
    }
    let wanted = &wanted[n..];
    let mut found = false;
    let mut buf = [0u8; 4096];
    let readable = slurp(path, &mut buf, |part| {
        found |= part.windows(wanted.len()).any(|w| w == wanted);
        !found
    });
    found || readable.is_none()
}

fn gone(record: &Process) -> bool {
    match record.pid() {
        // A fork that failed, or a child that has not run yet: ten seconds are enough to tell.
        0 => record.age_s() > 10,
        pid => match started(pid) {
            None => !sys::alive(pid) || check_proc(),
            Some(t) => (record.started() != 0 && t != record.started()) || !maps_arena(pid),
        },
    }
}

/// Whether /proc can be read at all; without it a missing process is not proof.
fn check_proc() -> bool {
    started(sys::getpid()).is_some()
}

/// Buries the records of processes that are gone. Returns whether there were any.
pub(crate) fn reap() -> bool {
    let Some(arena) = arena::existing() else { return false };
    let mut dead = [core::ptr::null_mut(); 64];
    let mut n = 0;
    arena.processes.lock().retain(|&record| {
        // SAFETY: records on the list are alive; only this function takes them off.
        let bury = n < dead.len() && !table::is_own(record) && gone(unsafe { &*record });
        if bury {
            dead[n] = record;
            n += 1;
        }
        !bury
    });
    for &record in &dead[..n] {
        // SAFETY: the process is gone and the record off the list.
        unsafe { Process::bury(record) };
    }
    n > 0
}
