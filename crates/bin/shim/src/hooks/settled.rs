//! Segments of TCP-AO pass the launcher or the daemon. In the kernel's own TCP a handshake between two sockets of one machine is
//! over when connect(2) returns, and the peer of a connection that close(2) resets knows it then. Programs that take this for
//! granted would wait too short here, above all on a busy machine: so both wait until no segment is under way.

use crate::sys::{check, errno, raw, set_errno};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use sealane_abi::sealane::SETTLED_QUERY;
use sealane_abi::tcp::TCP_AO_ADD_KEY;

/// Whether this process, or one that it was forked from, has set a key.
static HAS_KEYS: AtomicBool = AtomicBool::new(false);

/// The program has set an option of a socket, with this result.
pub(super) fn option_set(level: c_int, name: c_int, result: c_int) {
    if result == 0 && level == libc::IPPROTO_TCP && name == TCP_AO_ADD_KEY {
        HAS_KEYS.store(true, Ordering::Relaxed);
    }
}

/// connect(2) has returned this.
pub(super) fn connected(result: c_int) {
    if result < 0 && HAS_KEYS.load(Ordering::Relaxed) && errno() == libc::EINPROGRESS {
        settle();
        set_errno(libc::EINPROGRESS);
    }
}

/// Whether close(2) of a socket resets its connection: SO_LINGER says so.
pub(super) fn resets(fd: c_int) -> bool {
    if !HAS_KEYS.load(Ordering::Relaxed) {
        return false;
    }
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut len = size_of::<libc::linger>() as u32;
    // SAFETY: room of that length.
    let r = unsafe { raw!(libc::SYS_getsockopt, fd, libc::SOL_SOCKET, libc::SO_LINGER, &raw mut linger, &raw mut len) };
    check(r).is_ok() && linger.l_onoff != 0 && linger.l_linger == 0
}

/// close(2) of such a socket has returned.
pub(super) fn closed(resets: bool) {
    if resets {
        let before = errno();
        settle();
        set_errno(before);
    }
}

/// Waits until no segment is under way. Without a launcher the kernel refuses the question.
fn settle() {
    let mut len = 0u32;
    // SAFETY: a length of nothing.
    unsafe {
        raw!(libc::SYS_getsockopt, -1i32, libc::IPPROTO_TCP, SETTLED_QUERY, core::ptr::null::<u8>(), &raw mut len);
    }
}
