//! close, dup, fcntl, ioctl, and descriptors that travel in messages.

use super::hook::hook;
use super::settled;
use crate::arena::{self, Flying, MAX_FLYING};
use crate::borrow::{self, Borrow};
use crate::entry::{quietly, real};
use crate::share::Entered;
use crate::{table, user};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::Ordering::{AcqRel, Relaxed};
use libc::{FILE, msghdr};
use lock_api::RawMutex as _;
use sealane_abi::if_alg::Cmsgs;
use sealane_engine_alg::front;

/// `close(2)`. Out of our table first: the number may be another thread's the moment the kernel has closed it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close(fd: c_int) -> c_int {
    forget(fd);
    let resets = settled::resets(fd);
    let result = real!(close(fd: c_int) -> c_int);
    settled::closed(resets);
    result
}

/// Takes `fd` out of the table, whatever this thread is in the middle of.
fn forget(fd: c_int) {
    if table::ours(fd) && !quietly(|| table::remove(fd)) {
        table::abandon(fd);
    }
}

/// Takes all descriptors from `first` to `last` out of the table.
fn forget_range(first: c_uint, last: c_uint) {
    if table::active() && first <= last {
        table::in_range(first, last).for_each(forget);
    }
}

/// `close_range(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    const CLOEXEC: c_int = 4;
    if flags & CLOEXEC == 0 {
        forget_range(first, last);
    }
    real!(close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int)
}

/// `closefrom(3)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn closefrom(first: c_int) {
    forget_range(first.max(0) as c_uint, c_uint::MAX);
    // libc's returns nothing; what `real!` makes of that is not looked at.
    real!(closefrom(first: c_int) -> c_int);
}

/// `fclose(3)`, which closes by a call of its own.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fclose(file: *mut FILE) -> c_int {
    if table::active() && !file.is_null() {
        // SAFETY: the program's open file.
        forget(unsafe { libc::fileno(file) });
    }
    real!(fclose(file: *mut FILE) -> c_int)
}

/// After the kernel has made `new` another name for `old`: whatever `new` was before is forgotten.
fn after_dup(old: c_int, new: c_int) {
    if new < 0 || !(table::ours(old) || table::ours(new)) {
        return;
    }
    // Beyond the table, or from within, the new number is just a socket without a meaning.
    let ran = quietly(|| match table::borrow(old) {
        Some(handle) => {
            let _ = table::place(new, handle);
        }
        None => table::remove(new),
    });
    if !ran {
        table::abandon(new);
    }
}

/// `dup(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup(old: c_int) -> c_int {
    let new = real!(dup(old: c_int) -> c_int);
    after_dup(old, new);
    new
}

/// `dup2(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup2(old: c_int, new: c_int) -> c_int {
    let done = real!(dup2(old: c_int, new: c_int) -> c_int);
    if done >= 0 && old != new {
        after_dup(old, new);
    }
    done
}

/// `dup3(2)`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    let done = real!(dup3(old: c_int, new: c_int, flags: c_int) -> c_int);
    if done >= 0 {
        after_dup(old, new);
    }
    done
}

fn after_fcntl(fd: c_int, command: c_int, arg: usize, done: c_int) {
    if done < 0 {
        return;
    }
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => after_dup(fd, done),
        libc::F_SETFL if table::ours(fd) => {
            quietly(|| {
                if let Some(handle) = table::borrow(fd) {
                    let _entered = Entered::new(&handle);
                    handle.set_nonblock(arg as c_int & libc::O_NONBLOCK != 0);
                }
            });
        }
        _ => {}
    }
}

/// `fcntl(2)`. C calls it with two or three arguments; a register that was not set is not looked at.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
    let done = real!(fcntl(fd: c_int, command: c_int, arg: usize) -> c_int);
    after_fcntl(fd, command, arg, done);
    done
}

/// `fcntl(2)` as programs with 64-bit file offsets call it.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int {
    let done = real!(fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int);
    after_fcntl(fd, command, arg, done);
    done
}

hook! {
    /// `ioctl(2)`: neither AF_ALG nor NETLINK_CRYPTO has one of its own; the generic ones are the kernel's.
    fn ioctl(fd: c_int, request: usize, arg: usize) -> c_int, fd |h| {
        // The request is an unsigned int for the kernel; what C left in the upper half means nothing.
        let request = request & 0xffff_ffff;
        front::ioctl(h, request as u32)?;
        // SAFETY: the program's own call.
        let done = crate::sys::check(unsafe { crate::sys::raw!(libc::SYS_ioctl, fd, request, arg) })?;
        if request as u64 == libc::FIONBIO {
            // SAFETY: the kernel has just read it.
            h.handle().set_nonblock(unsafe { user::read(arg as *const c_int) }? != 0);
        }
        Ok(done as isize)
    };
}

/// The identity of a descriptor's socket: its device and its inode. `None` for all other files: a peer may choose theirs,
/// but no inode on the device of the kernel's sockets.
fn identity(fd: c_int) -> Option<(u64, u64)> {
    // SAFETY: all zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a valid pointer.
    crate::sys::check(unsafe { crate::sys::raw!(libc::SYS_fstat, fd, &raw mut stat) }).ok()?;
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some((stat.st_dev, stat.st_ino))
}

/// Every descriptor in the SCM_RIGHTS control messages of `msg`; none where there is no memory. The kernel refuses, or has
/// cut off, what stands behind a message that is longer than what holds it.
///
/// # Safety
/// A message that the kernel has read, or is about to; its control messages must be readable while `'a` lasts.
unsafe fn rights<'a>(msg: *const msghdr) -> impl Iterator<Item = c_int> + 'a {
    // SAFETY: the program's message, which may be nowhere: the kernel has the last word on that.
    let control = unsafe { user::read(msg).and_then(|m| user::control(&m)) }.unwrap_or_default();
    Cmsgs::new(control)
        .map_while(Result::ok)
        .filter(|cmsg| cmsg.level == libc::SOL_SOCKET && cmsg.type_ == libc::SCM_RIGHTS)
        .flat_map(|cmsg| cmsg.data.as_chunks().0)
        .map(|fd| c_int::from_ne_bytes(*fd))
}

/// Notes which of our handles a message is about to carry.
///
/// # Safety
/// `msg` is a message for sendmsg(2).
pub(crate) unsafe fn note_sent_handles(msg: *const msghdr) {
    // SAFETY: the caller's.
    let mut fds = unsafe { rights(msg) }.peekable();
    if fds.peek().is_none() {
        return;
    }
    let Some(arena) = arena::existing() else { return };
    quietly(|| {
        for fd in fds {
            let (Some(handle), Some((device, inode))) = (table::borrow(fd), identity(fd)) else { continue };
            arena.boarding.lock();
            let place = arena.next_flying.fetch_add(1, Relaxed) as usize % MAX_FLYING;
            let place = &arena.flying[place];
            place.device.store(device, Relaxed);
            place.inode.store(inode, Relaxed);
            let lost = place.handle.swap(handle.into_raw(), AcqRel);
            // SAFETY: locked above, and the reference that the place had.
            unsafe {
                arena.boarding.unlock();
                if !lost.is_null() {
                    borrow::release(lost);
                }
            }
        }
    });
}

/// Recognises the handles that a message has brought.
///
/// # Safety
/// `msg` is a message that recvmsg(2) has filled in.
pub(crate) unsafe fn recognise_received_handles(msg: *const msghdr) {
    // SAFETY: the caller's.
    let mut fds = unsafe { rights(msg) }.peekable();
    if fds.peek().is_none() {
        return;
    }
    let Some(arena) = arena::existing() else { return };
    quietly(|| {
        for fd in fds {
            table::remove(fd);
            let Some(id) = identity(fd) else { continue };
            let is_it = |place: &&Flying| (place.device.load(Relaxed), place.inode.load(Relaxed)) == id;
            arena.boarding.lock();
            let found = arena
                .flying
                .iter()
                .filter(|place| !place.handle.load(Relaxed).is_null())
                .find(is_it)
                .map(|place| place.handle.swap(core::ptr::null_mut(), AcqRel));
            // SAFETY: locked above.
            unsafe { arena.boarding.unlock() };
            // One that another process has sent may be an open file that this one has, too.
            let known = || table::in_range(0, u32::MAX).find(|known| identity(*known) == Some(id));
            // SAFETY: the reference that the place had.
            let found = found.map(|handle| unsafe { Borrow::from_raw(handle) });
            if let Some(handle) = found.or_else(|| table::borrow(known()?)) {
                // Beyond the table it is just a socket without a meaning.
                let _ = table::place(fd, handle);
            }
        }
    });
}

/// A descriptor that the kernel has just handed out for something else cannot be ours any more.
pub(crate) fn fresh(fd: c_int) {
    forget(fd);
}
