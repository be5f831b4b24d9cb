//! poll, select, epoll: the stand-ins answer natively once they have been told to.

use crate::entry::{quietly, real};
use crate::standin::watch;
use crate::table;
use core::ffi::{c_int, c_ulong, c_void};
use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, timespec, timeval};

/// Notes that `fd` is polled.
pub(crate) fn note(fd: c_int) {
    if table::ours(fd) {
        quietly(|| {
            if let Some(handle) = table::borrow(fd) {
                watch(fd, &handle);
            }
        });
    }
}

/// Notes the descriptors of a poll.
///
/// # Safety
/// `fds` has `n` entries.
pub(crate) unsafe fn note_poll(fds: *const pollfd, n: nfds_t) {
    if table::active() && !fds.is_null() {
        for i in 0..n as usize {
            // SAFETY: the caller's array.
            note(unsafe { (*fds.add(i)).fd });
        }
    }
}

/// Notes the descriptors of a select.
///
/// # Safety
/// The sets are null or hold `n` bits.
pub(crate) unsafe fn note_select(n: c_int, sets: [*const fd_set; 3]) {
    if !table::active() || n <= 0 {
        return;
    }
    let bits = c_ulong::BITS as usize;
    for fd in table::in_range(0, n as u32 - 1) {
        let (word, bit) = (fd as usize / bits, fd as usize % bits);
        // SAFETY: the caller's sets have a bit for every descriptor below `n`.
        let wanted =
            |set: &*const fd_set| !set.is_null() && unsafe { *set.cast::<c_ulong>().add(word) } & (1 << bit) != 0;
        if sets.iter().any(wanted) {
            note(fd);
        }
    }
}

/// `poll(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int {
    // SAFETY: the program's array.
    unsafe { note_poll(fds, n) };
    real!(poll(fds: *mut pollfd, n: nfds_t, timeout: c_int) -> c_int)
}

/// `__poll_chk`: poll(2) as _FORTIFY_SOURCE calls it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: usize) -> c_int {
    // SAFETY: the program's array; libc checks its size next.
    unsafe { note_poll(fds, n.min((room / size_of::<pollfd>()) as nfds_t)) };
    real!(__poll_chk(fds: *mut pollfd, n: nfds_t, timeout: c_int, room: usize) -> c_int)
}

/// `ppoll(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn ppoll(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's array.
    unsafe { note_poll(fds, n) };
    real!(ppoll(fds: *mut pollfd, n: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int)
}

/// `__ppoll_chk`: ppoll(2) as _FORTIFY_SOURCE calls it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn __ppoll_chk(
    fds: *mut pollfd,
    n: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    room: usize,
) -> c_int {
    // SAFETY: the program's array; libc checks its size next.
    unsafe { note_poll(fds, n.min((room / size_of::<pollfd>()) as nfds_t)) };
    real!(__ppoll_chk(
        fds: *mut pollfd,
        n: nfds_t,
        timeout: *const timespec,
        mask: *const sigset_t,
        room: usize,
    ) -> c_int)
}

/// `select(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn select(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *mut timeval,
) -> c_int {
    // SAFETY: the program's sets.
    unsafe { note_select(n, [read, write, except]) };
    real!(select(n: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int)
}

/// `pselect(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn pselect(
    n: c_int,
    read: *mut fd_set,
    write: *mut fd_set,
    except: *mut fd_set,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    // SAFETY: the program's sets.
    unsafe { note_select(n, [read, write, except]) };
    real!(pselect(
        n: c_int,
        read: *mut fd_set,
        write: *mut fd_set,
        except: *mut fd_set,
        timeout: *const timespec,
        mask: *const sigset_t,
    ) -> c_int)
}

/// `epoll_ctl(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn epoll_ctl(
    epoll: c_int,
    command: c_int,
    fd: c_int,
    event: *mut epoll_event,
) -> c_int {
    note(fd);
    real!(epoll_ctl(epoll: c_int, command: c_int, fd: c_int, event: *mut epoll_event) -> c_int)
}

/// Notes the descriptor array of a raw poll.
///
/// # Safety
/// As for [`note_poll`].
pub(crate) unsafe fn note_raw_poll(fds: usize, n: usize) {
    // SAFETY: the caller's.
    unsafe { note_poll((fds as *const c_void).cast(), n as nfds_t) }
}
