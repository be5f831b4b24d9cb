//! splice, vmsplice, tee and sendfile into AF_ALG sockets: the bytes are copied, as Linux 7.3 copies them.

use super::hook::hook;
use crate::entry::{guarded, real};
use crate::handle::Handle;
use crate::program::LocalDescriptor;
use crate::sys::{check, raw};
use crate::table;
use core::ffi::{c_int, c_uint};
use sealane_engine_alg::{SendMsg, front};

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
fn to_pipe(here: &LocalDescriptor<'_>, pipe: c_int, len: usize) -> Result<isize, i32> {
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
    if table::ours(to) {
        return guarded(|| {
            let handle = table::borrow(to).ok_or(libc::EBADF)?;
            if flags & !0xf != 0 {
                return Err(libc::EINVAL);
            }
            if len == 0 {
                return Ok(0);
            }
            if !from_at.is_null() || !to_at.is_null() {
                return Err(libc::ESPIPE);
            }
            if table::ours(from) || !is_pipe(from)? {
                return Err(libc::EINVAL);
            }
            // SAFETY: the program's own call.
            let here = unsafe { LocalDescriptor::new(to, &handle) };
            from_pipe(from, &here, len.min(crate::user::MAX_BYTES), flags)
        });
    }
    if table::ours(from) {
        return guarded(|| {
            let handle = table::borrow(from).ok_or(libc::EBADF)?;
            if !from_at.is_null() || !to_at.is_null() {
                return Err(libc::ESPIPE);
            }
            if flags & !0xf != 0 || !is_pipe(to)? {
                return Err(libc::EINVAL);
            }
            // SAFETY: the program's own call.
            let here = unsafe { LocalDescriptor::new(from, &handle) };
            to_pipe(&here, to, len)
        });
    }
    real!(splice(from: c_int, from_at: *mut i64, to: c_int, to_at: *mut i64, len: usize, flags: c_uint) -> isize)
}

fn is_pipe(fd: c_int) -> Result<bool, i32> {
    // SAFETY: all zero is a valid stat.
    let mut stat: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: a valid pointer.
    check(unsafe { raw!(libc::SYS_fstat, fd, &raw mut stat) })?;
    Ok(stat.st_mode & libc::S_IFMT == libc::S_IFIFO)
}

/// Moves a file's bytes into a socket.
fn from_file(file: c_int, at: *mut i64, here: &LocalDescriptor<'_>, len: usize) -> Result<isize, i32> {
    let mut bounce = Bounce::take(here.handle());
    // SAFETY: the program's offset.
    let mut offset = if at.is_null() { None } else { Some(unsafe { crate::user::read(at) }?) };
    let len = len.min(crate::user::MAX_BYTES);
    let mut done = 0;
    while done < len {
        let want = (len - done).min(PASS);
        let got = here.outside(|| {
            // SAFETY: the buffer is writable.
            check(unsafe {
                match offset {
                    Some(o) => raw!(libc::SYS_pread64, file, bounce.as_mut_ptr(), want, o),
                    None => raw!(libc::SYS_read, file, bounce.as_mut_ptr(), want),
                }
            })
        });
        let n = match got {
            Ok(0) => break,
            Ok(n) => n,
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        };
        let more = if done + n < len { MSG_MORE } else { 0 };
        let msg = SendMsg { data: &[&bounce[..n]], control: &[], flags: more, spliced: true, ..SendMsg::default() };
        let sent = match front::give(here, msg) {
            Ok(sent) => sent,
            Err(errno) => {
                unread(file, offset, n);
                if done == 0 {
                    return Err(errno);
                }
                break;
            }
        };
        if sent < n {
            unread(file, offset, n - sent);
        }
        done += sent;
        offset = offset.map(|o| o + sent as i64);
        if sent < n {
            break;
        }
    }
    if let Some(o) = offset {
        // SAFETY: the program's offset.
        unsafe { crate::user::write(at, o) }?;
    }
    Ok(done as isize)
}

/// Moves a file's own position back over what was read but not sent.
fn unread(file: c_int, offset: Option<i64>, n: usize) {
    if offset.is_none() {
        // SAFETY: plain values.
        unsafe { raw!(libc::SYS_lseek, file, -(n as i64), libc::SEEK_CUR) };
    }
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
        let _ = (h, iov, n, flags);
        Err(libc::EBADF)
    };
    /// `tee(2)`: an AF_ALG socket is no pipe.
    fn tee(from: c_int, to: c_int, len: usize, flags: c_uint) -> isize, to |h| {
        let _ = (h, from, len, flags);
        Err(libc::EINVAL)
    };
}
