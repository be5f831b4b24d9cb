//! Asynchronous I/O on our descriptors (libaio's functions, and the calls by number): operations complete before
//! `io_submit` returns, as they do on Linux 7.3, and their events wait for `io_getevents`.

use crate::entry::guarded;
use crate::program::LocalDescriptor;
use crate::record::AioQueue;
use crate::sys::{check, errno, raw, returned, set_errno};
use crate::user;
use crate::{table, thread};
use core::ffi::{c_int, c_long, c_void};
use libc::timespec;
use sealane_engine_alg::{SendMsg, front};
use std::collections::VecDeque;
use std::io::Write as _;

/// `struct iocb` of `linux/aio_abi.h`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Iocb {
    data: u64,
    key: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: c_int,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    eventfd: c_int,
}

const _: () = assert!(size_of::<Iocb>() == 64);

const PREAD: u16 = 0;
const PWRITE: u16 = 1;
const PREADV: u16 = 7;
const PWRITEV: u16 = 8;
const FLAG_RESFD: u32 = 1;
/// The most events that wait in one context.
const MAX_EVENTS: usize = 65536;

/// Runs `f` on the queue of `context`, made when the kernel knows the context.
fn with_queue<T>(context: usize, f: impl FnOnce(&mut VecDeque<[u64; 4]>) -> T) -> Result<T, i32> {
    // Events belong to the process.
    let _commons = thread::within(core::ptr::null_mut());
    let mut queues = table::aio().ok_or(libc::EINVAL)?.lock();
    if let Some(queue) = queues.iter_mut().find(|q| q.context == context) {
        return Ok(f(&mut queue.done));
    }
    // Submitting nothing asks whether the context is there.
    let nothing: [usize; 1] = [0];
    // SAFETY: an array that is not read.
    check(unsafe { raw!(libc::SYS_io_submit, context, 0, nothing.as_ptr()) })?;
    queues.push(AioQueue { context, done: VecDeque::new() });
    Ok(f(&mut queues.last_mut().expect("just pushed").done))
}

/// Whether `fd` can be told of a completion.
///
/// # Errors
/// `EBADF`, `EINVAL` for anything but an eventfd.
fn check_eventfd(fd: c_int) -> Result<(), i32> {
    // SAFETY: plain values.
    check(unsafe { raw!(libc::SYS_fcntl, fd, libc::F_GETFD) })?;
    let mut path = [0u8; 32];
    let mut target = [0u8; 32];
    // Longer than "/proc/self/fd/" and ten digits.
    let _ = write!(&mut path[..31], "/proc/self/fd/{fd}");
    let (at, room) = (target.as_mut_ptr(), target.len());
    // SAFETY: a path with its zero, and a buffer of its length.
    match check(unsafe { raw!(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), at, room) }) {
        Ok(n) if &target[..n] != b"anon_inode:[eventfd]" => Err(libc::EINVAL),
        // Without /proc it cannot be told.
        _ => Ok(()),
    }
}

/// Runs one operation on a descriptor of ours and queues its event. The checks and their order are `fs/aio.c`'s: what
/// it returns fails io_submit, what comes later stands in the event.
unsafe fn run(context: usize, at: *const c_void, iocb: &Iocb) -> Result<(), i32> {
    if iocb.reserved != 0 || iocb.len > isize::MAX as u64 {
        return Err(libc::EINVAL);
    }
    let room = with_queue(context, |q| q.len() < MAX_EVENTS)?;
    if !room {
        return Err(libc::EAGAIN);
    }
    let h = &table::borrow(iocb.fd).ok_or(libc::EBADF)?;
    // SAFETY: the program's own call.
    let here = &unsafe { LocalDescriptor::new(iocb.fd, h) };
    if iocb.flags & FLAG_RESFD != 0 {
        check_eventfd(iocb.eventfd)?;
    }
    let (buf, len) = (iocb.buf as usize as *mut c_void, iocb.len as usize);
    let seekable = |len: usize| {
        if iocb.offset.checked_add(len as i64).is_none_or(|end| end < 0) || iocb.offset < 0 {
            Err(libc::EINVAL)
        } else {
            Ok(iocb.offset == 0)
        }
    };
    // SAFETY: the program's buffers.
    let done = unsafe {
        match iocb.opcode {
            PREAD | PREADV => {
                let mut data = match iocb.opcode {
                    PREAD => user::Pieces::<&mut [u8]>::flat(buf, len)?,
                    _ => user::scatter(buf.cast(), len, libc::EINVAL)?,
                };
                if seekable(data.len())? {
                    let unwritable = data.absent;
                    front::recv_pieces(here, data.as_mut(), unwritable).map(|got| got.len)
                } else {
                    Err(libc::ESPIPE)
                }
            }
            PWRITE | PWRITEV => {
                let mut data = match iocb.opcode {
                    PWRITE => user::Pieces::<&[u8]>::flat(buf, len)?,
                    _ => user::gather(buf.cast(), len, libc::EINVAL)?,
                };
                if seekable(data.len())? {
                    let unreadable = data.absent;
                    front::give(here, SendMsg { data: data.as_mut(), unreadable, ..SendMsg::default() })
                } else {
                    Err(libc::ESPIPE)
                }
            }
            _ => return Err(libc::EINVAL),
        }
    };
    let result = match done {
        Ok(n) => n as i64,
        Err(errno) => -i64::from(errno),
    };
    with_queue(context, |q| q.push_back([iocb.data, at as u64, result as u64, 0]))?;
    if iocb.flags & FLAG_RESFD != 0 {
        let one = 1u64;
        // SAFETY: eight bytes to the program's eventfd.
        unsafe { raw!(libc::SYS_write, iocb.eventfd, &raw const one, 8) };
    }
    Ok(())
}

/// `io_submit`: how many went, or the error of the first.
unsafe fn submit(context: usize, n: c_long, iocbs: *const *const Iocb) -> Result<isize, i32> {
    if n < 0 {
        return Err(libc::EINVAL);
    }
    for i in 0..n as usize {
        // SAFETY: the program's array.
        let done = unsafe {
            user::read(iocbs.wrapping_add(i)).and_then(|at| {
                let iocb = user::read(at)?;
                if table::ours(iocb.fd) {
                    run(context, at.cast(), &iocb)
                } else {
                    check(raw!(libc::SYS_io_submit, context, 1, iocbs.wrapping_add(i))).map(drop)
                }
            })
        };
        match done {
            Ok(()) => {}
            Err(errno) if i == 0 => return Err(errno),
            Err(_) => return Ok(i as isize),
        }
    }
    Ok(n as isize)
}

/// Takes up to `room` events of ours.
fn collect(context: usize, room: usize, events: *mut [u64; 4]) -> Result<usize, i32> {
    let Some(queues) = table::aio() else { return Ok(0) };
    let mut queues = queues.lock();
    let Some(queue) = queues.iter_mut().find(|q| q.context == context) else { return Ok(0) };
    let mut n = 0;
    while n < room
        && let Some(event) = queue.done.pop_front()
    {
        // SAFETY: the program's array has `room` entries.
        unsafe { user::write(events.wrapping_add(n), event) }?;
        n += 1;
    }
    Ok(n)
}

/// `io_getevents` and `io_pgetevents`: ours first, the kernel's for the rest.
unsafe fn events(
    number: i64,
    context: usize,
    range: [c_long; 2],
    out: *mut [u64; 4],
    timeout: *const timespec,
    sigmask: usize,
) -> Result<isize, i32> {
    let [min, max] = range;
    if min < 0 || max < min {
        return Err(libc::EINVAL);
    }
    let ours = collect(context, max as usize, out)? as c_long;
    if ours == max && max > 0 {
        return Ok(ours as isize);
    }
    let now = timespec { tv_sec: 0, tv_nsec: 0 };
    let timeout = if ours > 0 && ours >= min { &raw const now } else { timeout };
    let rest = out.wrapping_add(ours as usize);
    // SAFETY: the program's array and pointers.
    match check(unsafe { raw!(number, context, (min - ours).max(0), max - ours, rest, timeout, sigmask) }) {
        Ok(n) => Ok(ours as isize + n as isize),
        Err(_) if ours > 0 => Ok(ours as isize),
        Err(errno) => Err(errno),
    }
}

/// Whether any of the operations is on a descriptor of ours.
unsafe fn has_ours(n: c_long, iocbs: *const *const Iocb) -> bool {
    // SAFETY: the program's array.
    table::active()
        && (0..n.max(0) as usize).any(|i| unsafe {
            user::read(iocbs.wrapping_add(i)).and_then(|at| user::read(at)).is_ok_and(|iocb| table::ours(iocb.fd))
        })
}

/// `SYS_io_submit`.
pub(crate) unsafe fn sys_submit(context: usize, n: c_long, iocbs: usize) -> isize {
    let iocbs = iocbs as *const *const Iocb;
    // SAFETY: the program's array.
    unsafe {
        if has_ours(n, iocbs) {
            return guarded(|| submit(context, n, iocbs));
        }
        returned(raw!(libc::SYS_io_submit, context, n, iocbs))
    }
}

/// `SYS_io_getevents` and `SYS_io_pgetevents`.
pub(crate) unsafe fn sys_events(
    number: i64,
    context: usize,
    range: [c_long; 2],
    out: usize,
    timeout: usize,
    sigmask: usize,
) -> isize {
    let mut pending = false;
    if table::active() {
        crate::entry::quietly(|| {
            pending = table::aio().is_some_and(|q| q.lock().iter().any(|q| q.context == context && !q.done.is_empty()));
        });
    }
    // SAFETY: the program's array and pointers.
    unsafe {
        if pending {
            return guarded(|| events(number, context, range, out as *mut _, timeout as *const _, sigmask));
        }
        returned(raw!(number, context, range[0], range[1], out, timeout, sigmask))
    }
}

/// `SYS_io_destroy`.
pub(crate) fn sys_destroy(context: usize) -> isize {
    if table::active()
        && let Some(queues) = table::aio()
    {
        crate::entry::quietly(|| queues.lock().retain(|q| q.context != context));
    }
    // SAFETY: a plain value.
    returned(unsafe { raw!(libc::SYS_io_destroy, context) })
}

/// libaio returns the error itself and leaves errno alone.
fn libaio(f: impl FnOnce() -> isize) -> c_int {
    let before = errno();
    let done = f();
    let result = if done < 0 { -errno() } else { done as c_int };
    set_errno(before);
    result
}

/// libaio's `io_submit`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_submit(context: usize, n: c_long, iocbs: usize) -> c_int {
    // SAFETY: the program's array.
    libaio(|| unsafe { sys_submit(context, n, iocbs) })
}

/// libaio's `io_getevents`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_getevents(
    context: usize,
    min: c_long,
    max: c_long,
    out: usize,
    timeout: usize,
) -> c_int {
    // SAFETY: the program's array.
    libaio(|| unsafe { sys_events(libc::SYS_io_getevents, context, [min, max], out, timeout, 0) })
}

/// libaio's `io_destroy`.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn io_destroy(context: usize) -> c_int {
    libaio(|| sys_destroy(context))
}
