//! splice, vmsplice, tee and sendfile on AF_ALG sockets: the bytes are copied, as Linux 7.3 copies them.

use super::hook::hook;
use crate::entry::{guarded, real};
use crate::handle::Handle;
use crate::program::{LocalDescriptor, address};
use crate::sys::{check, raw};
use crate::table;
use core::ffi::{c_int, c_uint};
use sealane_engine_alg::front::{self, SourceFile, Splice, SpliceEnd};
use sealane_engine_alg::{Errno, SendMsg};

const MSG_MORE: u32 = libc::MSG_MORE as u32;
const SPLICE_F_NONBLOCK: c_uint = 2;
const SPLICE_F_MORE: c_uint = 4;
/// The most that one pass moves: the pages that the kernel gathers for one send.
const PASS: usize = 16 * 4096;

/// The number of bytes in a pipe.
fn waiting(pipe: c_int) -> usize {
    let mut n: c_int = 0;
    // SAFETY: a valid pointer.
    match check(unsafe { raw!(libc::SYS_ioctl, pipe, libc::FIONREAD, &raw mut n) }) {
        Ok(_) => n.max(0) as usize,
        Err(_) => 0,
    }
}

/// The buffer of a socket for spliced bytes, which nobody waits for: another call at the same time makes its own.
struct Bounce<'a>(&'a Handle, Vec<u8>);

impl<'a> Bounce<'a> {
    fn take(handle: &'a Handle) -> Self {
        let mut bytes = core::mem::take(&mut *handle.bounce.lock());
        bytes.resize(PASS, 0);
        Bounce(handle, bytes)
    }
}

impl Drop for Bounce<'_> {
    fn drop(&mut self) {
        let mut bytes = core::mem::take(&mut self.1);
        let mut place = self.0.bounce.lock();
        core::mem::swap(&mut *place, &mut bytes);
        zeroize::Zeroize::zeroize(&mut bytes);
    }
}

impl core::ops::Deref for Bounce<'_> {
    type Target = Vec<u8>;
    fn deref(&self) -> &Vec<u8> {
        &self.1
    }
}

impl core::ops::DerefMut for Bounce<'_> {
    fn deref_mut(&mut self) -> &mut Vec<u8> {
        &mut self.1
    }
}

/// Reads from a pipe into `buf`, without waiting if `nonblock`.
fn drain(pipe: c_int, buf: &mut [u8], nonblock: bool) -> Result<usize, i32> {
    if nonblock && waiting(pipe) == 0 {
        // Nothing there: only poll can tell an empty pipe from one without writers.
        let mut fds = libc::pollfd { fd: pipe, events: libc::POLLIN, revents: 0 };
        // SAFETY: one entry.
        let ready = unsafe { raw!(libc::SYS_poll, &raw mut fds, 1, 0) };
        if ready <= 0 {
            return Err(libc::EAGAIN);
        }
    }
    // SAFETY: the buffer is writable.
    check(unsafe { raw!(libc::SYS_read, pipe, buf.as_mut_ptr(), buf.len()) })
}

/// Puts bytes that could not be sent back into a pipe that was emptied.
fn put_back(pipe_read: c_int, bytes: &[u8]) {
    if waiting(pipe_read) != 0 {
        return;
    }
    // The read end opens for writing through /proc.
    let Ok(path) = std::ffi::CString::new(format!("/proc/self/fd/{pipe_read}")) else { return };
    let flags = libc::O_WRONLY | libc::O_NONBLOCK | libc::O_CLOEXEC;
    // SAFETY: a C string; the bytes are readable.
    unsafe {
        if let Ok(fd) = check(raw!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0)) {
            raw!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len());
            raw!(libc::SYS_close, fd);
        }
    }
}

/// Moves up to `len` bytes from a pipe into a socket.
fn from_pipe(pipe: c_int, here: &LocalDescriptor<'_>, mut len: usize, flags: c_uint) -> Result<isize, i32> {
    let mut bounce = Bounce::take(here.handle());
    let mut done = 0;
    while len > 0 {
        let want = len.min(PASS);
        let nonblock = flags & SPLICE_F_NONBLOCK != 0 || done > 0;
        let n = match here.outside(|| drain(pipe, &mut bounce[..want], nonblock)) {
            Ok(0) => break,
            Ok(n) => n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        let rest = len - n;
        let more = flags & SPLICE_F_MORE != 0 || (rest > 0 && waiting(pipe) > 0);
        let flags = if more { MSG_MORE } else { 0 };
        let msg = SendMsg { data: &[&bounce[..n]], control: &[], flags, spliced: true, ..SendMsg::default() };
        match front::give(here, msg) {
            Ok(sent) if sent == n => {
                done += n;
                len = rest;
            }
            Ok(sent) => {
                put_back(pipe, &bounce[sent..n]);
                done += sent;
                break;
            }
            Err(errno) => {
                put_back(pipe, &bounce[..n]);
                if done == 0 {
                    return Err(errno);
                }
                break;
            }
        }
    }
    Ok(done as isize)
}

/// Receives up to `len` bytes, as far as the pipe has room, into a pipe.
fn to_pipe(here: &LocalDescriptor<'_>, pipe: c_int, len: usize, flags: c_uint) -> Result<isize, i32> {
    here.outside(|| wait_for_room(pipe, flags & SPLICE_F_NONBLOCK != 0 || status(pipe)? & libc::O_NONBLOCK != 0))?;
    // SAFETY: plain values.
    let size = check(unsafe { raw!(libc::SYS_fcntl, pipe, libc::F_GETPIPE_SZ, 0) })?;
    let len = len.min(PASS).min(size.saturating_sub(waiting(pipe)));
    if len == 0 {
        return Ok(0);
    }
    let mut bounce = Bounce::take(here.handle());
    let got = front::take(here, &mut [&mut bounce[..len]], 0, 0)?.len;
    // The pipe may be full all the same: pieces that share no page leave room that nothing fits into.
    // SAFETY: the buffer is readable.
    here.outside(|| check(unsafe { raw!(libc::SYS_write, pipe, bounce.as_ptr(), got) })).map(|n| n as isize)
}

/// Waits until a pipe has room: what was received from the socket cannot be given back.
fn wait_for_room(pipe: c_int, nonblock: bool) -> Result<(), i32> {
    let poll = |timeout: c_int| {
        let mut fds = libc::pollfd { fd: pipe, events: libc::POLLOUT, revents: 0 };
        // SAFETY: one entry.
        check(unsafe { raw!(libc::SYS_poll, &raw mut fds, 1, timeout) }).map(|_| fds.revents)
    };
    let mut seen = poll(0)?;
    if seen == 0 && !nonblock {
        // A handler with SA_RESTART ends a poll, and no splice. One from a file with nothing in it waits for room, and puts
        // nothing there.
        let name = c"sealane".as_ptr();
        // SAFETY: a C string.
        seen = match check(unsafe { raw!(libc::SYS_memfd_create, name, libc::MFD_CLOEXEC) }) {
            Ok(empty) => {
                // SAFETY: plain values; there are no offsets.
                let waited = check(unsafe { raw!(libc::SYS_splice, empty, 0, pipe, 0, 1, 0) });
                crate::sys::close(empty as c_int);
                return waited.map(drop);
            }
            Err(_) => poll(-1)?,
        };
    }
    if seen & libc::POLLERR != 0 {
        // SAFETY: plain values.
        unsafe { raw!(libc::SYS_tgkill, raw!(libc::SYS_getpid), raw!(libc::SYS_gettid), libc::SIGPIPE) };
        return Err(libc::EPIPE);
    }
    if seen == 0 { Err(libc::EAGAIN) } else { Ok(()) }
}

/// `splice(2)`: into an AF_ALG socket, or what it gives into a pipe.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    len: usize,
    flags: c_uint,
) -> isize {
    if table::ours(to) || table::ours(from) {
        return guarded(|| {
            if front::splices_nothing(len, flags)? {
                return Ok(0);
            }
            let ours = if table::ours(from) { from } else { to };
            let handle = table::borrow(ours).ok_or(libc::EBADF)?;
            // SAFETY: the program's own call.
            let here = unsafe { LocalDescriptor::new(ours, &handle) };
            let from_end = end(from, libc::O_WRONLY, address(from_at))?;
            match front::splice(&here, from_end, end(to, libc::O_RDONLY, address(to_at))?, len)? {
                Splice::FromPipe => from_pipe(from, &here, len.min(crate::user::MAX_BYTES), flags),
                Splice::ToPipe => to_pipe(&here, to, len, flags),
            }
        });
    }
    real!(splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint) -> isize)
}

/// One end of a splice, which one that was opened in the mode `unfit` is not open for.
fn end(fd: c_int, unfit: c_int, offset: u64) -> Result<SpliceEnd, i32> {
    let is_open_for_it = status(fd)? & libc::O_ACCMODE != unfit;
    Ok(SpliceEnd { is_pipe: mode(fd)? == libc::S_IFIFO, is_open_for_it, offset })
}

/// The status flags of an open file.
///
/// # Errors
/// `EBADF`, also for a file that was opened with `O_PATH`, as calls that read or write say.
fn status(fd: c_int) -> Result<c_int, i32> {
    // SAFETY: plain values.
    let flags = check(unsafe { raw!(libc::SYS_fcntl, fd, libc::F_GETFL, 0) })? as c_int;
    if flags & libc::O_PATH != 0 { Err(libc::EBADF) } else { Ok(flags) }
}

/// The kind of a file.
fn mode(fd: c_int) -> Result<libc::mode_t, i32> {
    // SAFETY: all zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a valid pointer.
    check(unsafe { raw!(libc::SYS_fstat, fd, &raw mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT)
}

/// Moves a file's bytes into a socket.
fn from_file(file: c_int, at: *mut i64, here: &LocalDescriptor<'_>, len: usize) -> Result<isize, i32> {
    // SAFETY: the program's offset.
    let given = if at.is_null() { None } else { Some(unsafe { crate::user::read(at) }?) };
    let source = SourceFile {
        is_readable: status(file)? & libc::O_ACCMODE != libc::O_WRONLY,
        // SAFETY: plain values.
        position: check(unsafe { raw!(libc::SYS_lseek, file, 0, libc::SEEK_CUR) }).ok().map(|at| at as i64),
        is_directory: mode(file)? == libc::S_IFDIR,
    };
    let begin = front::sendfile(source, given, len)?;
    let mut bounce = Bounce::take(here.handle());
    let read = |piece: &mut [u8], at: i64| {
        // SAFETY: the piece is writable.
        let read = || check(unsafe { raw!(libc::SYS_pread64, file, piece.as_mut_ptr(), piece.len(), at) });
        // Some files say that they have a position (eventfd).
        here.outside(read).map_err(|errno| if errno == libc::ESPIPE && given.is_none() { libc::EINVAL } else { errno })
    };
    let done = front::send_file(here, begin, len.min(crate::user::MAX_BYTES), &mut bounce, read)?;
    let end = begin + done as i64;
    if given.is_some() {
        // SAFETY: the program's offset.
        unsafe { crate::user::write(at, end) }?;
    } else {
        // SAFETY: plain values.
        unsafe { raw!(libc::SYS_lseek, file, end, libc::SEEK_SET) };
    }
    Ok(done as isize)
}

hook! {
    /// `sendfile(2)`.
    fn sendfile(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize, to |h| {
        from_file(from, at, h, len)
    };
    /// `sendfile(2)` as programs with 64-bit file offsets call it.
    fn sendfile64(to: c_int, from: c_int, at: *mut i64, len: usize) -> isize, to |h| {
        from_file(from, at, h, len)
    };
    /// `vmsplice(2)`: an AF_ALG socket is no pipe.
    fn vmsplice(fd: c_int, iov: *const libc::iovec, n: usize, flags: c_uint) -> isize, fd |h| {
        let _ = h;
        front::on_no_pipe(0, flags, Errno::EBADF)?;
        // SAFETY: the program's own array.
        let len = unsafe { crate::user::gather(iov, n, libc::EINVAL) }?.len();
        Ok(front::on_no_pipe(len, flags, Errno::EBADF)?)
    };
    /// `tee(2)`: an AF_ALG socket is no pipe.
    fn tee(from: c_int, to: c_int, len: usize, flags: c_uint) -> isize, to |h| {
        let _ = (h, from);
        Ok(front::on_no_pipe(len, flags, Errno::EINVAL)?)
    };
}
