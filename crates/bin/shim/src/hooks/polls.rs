//! poll, select, epoll: the stand-ins answer natively once they have been told to.

use crate::entry::{quietly, real};
use crate::share::Entered;
use crate::standin::watch;
use crate::sys::raw;
use crate::{table, user};
use core::ffi::{c_int, c_ulong, c_void};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

/// Notes that `fd` is polled.
pub(crate) fn note(fd: c_int) {
    if table::ours(fd) {
        quietly(|| {
            if let Some(handle) = table::borrow(fd) {
                let _entered = Entered::new(&handle);
                watch(fd, &handle);
            }
        });
    }
}

/// Notes the descriptors of a poll.
///
/// # Safety
/// `fds` has `n` entries, or leads nowhere.
pub(crate) unsafe fn note_poll(fds: *const pollfd, n: nfds_t) {
    if table::active() && !is_refused(n) {
        for i in 0..n as usize {
            // SAFETY: the caller's array, which may be nowhere: libc and the kernel have the last word on that.
            match unsafe { user::read(fds.wrapping_add(i)) } {
                Ok(entry) => note(entry.fd),
                Err(_) => return,
            }
        }
    }
}

/// Whether a poll has more entries than this process may have descriptors: the kernel reads none of them then.
fn is_refused(n: nfds_t) -> bool {
    // No lower limit is usual, and asking for it would cost each call.
    if n <= 1024 {
        return false;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a valid pointer.
    let got = unsafe { raw!(libc::SYS_prlimit64, 0, libc::RLIMIT_NOFILE, 0, &raw mut limit) };
    got == 0 && n > limit.rlim_cur
}

/// Notes the descriptors of a select.
///
/// # Safety
/// The sets are null, hold `n` bits, or lead nowhere.
pub(crate) unsafe fn note_select(n: c_int, sets: [*const fd_set; 3]) {
    if !table::active() || n <= 0 {
        return;
    }
    let bits = c_ulong::BITS as usize;
    for fd in table::in_range(0, n as u32 - 1) {
        let (word, bit) = (fd as usize / bits, fd as usize % bits);
        let wanted = |set: &*const fd_set| {
            let word = set.cast::<c_ulong>().wrapping_add(word);
            // SAFETY: the caller's sets have a bit for every descriptor below `n`.
            !set.is_null() && unsafe { user::read(word) }.is_ok_and(|bits| bits & (1 << bit) != 0)
        };
        if sets.iter().any(wanted) {
            note(fd);
        }
    }
}

/// Interposes a libc function that waits: what it will wait for is noted first, and libc's own does the rest.
macro_rules! noted {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),* $(,)?) -> c_int, $note:expr;)+) => {$(
        $(#[$doc])*
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C-unwind" fn $name($($arg: $ty),*) -> c_int {
            // SAFETY: the program's own array or sets; where libc has been told their size, it checks that next.
            #[allow(unused_unsafe, reason = "epoll_ctl has neither")]
            unsafe { $note };
            real!($name($($arg: $ty),*) -> c_int)
        }
    )+};
}

/// As many entries of a poll as `room` bytes hold.
fn fortified(n: nfds_t, room: usize) -> nfds_t {
    n.min((room / size_of::<pollfd>()) as nfds_t)
}

noted! {
    /// `poll(2)`.
    fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int, note_poll(fds, n);
    /// `__poll_chk`: poll(2) as _FORTIFY_SOURCE calls it.
    fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: usize) -> c_int, note_poll(fds, fortified(n, room));
    /// `ppoll(2)`.
    fn ppoll(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int, note_poll(fds, n);
    /// `__ppoll_chk`: ppoll(2) as _FORTIFY_SOURCE calls it.
    fn __ppoll_chk(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int,
        note_poll(fds, fortified(n, room));
    /// `select(2)`.
    fn select(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int,
        note_select(n, [read, write, except]);
    /// `pselect(2)`.
    fn pselect(
        n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int, note_select(n, [read, write, except]);
    /// `epoll_ctl(2)`.
    fn epoll_ctl(epoll: c_int, command: c_int, fd: c_int, event: *mut epoll_event) -> c_int, note(fd);
}

/// Notes the descriptor array of a raw poll.
///
/// # Safety
/// As for [`note_poll`].
pub(crate) unsafe fn note_raw_poll(fds: usize, n: usize) {
    // SAFETY: the caller's.
    unsafe { note_poll((fds as *const c_void).cast(), n as nfds_t) }
}
