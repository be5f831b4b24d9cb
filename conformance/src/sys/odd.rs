//! `io_submit`, and calls with wild pointers.

use super::{Ret, iovecs, msghdr, ret};
use crate::plan::Fault;
use std::ffi::c_void;
use std::ptr;
use std::sync::Mutex;

/// One operation of `io_submit`, for [`aio`].
#[derive(Debug)]
pub enum Iocb<'a> {
    /// A buffer that is read or written.
    Flat(u16, &'a mut [u8]),
    /// Consecutive pieces of a buffer; their lengths add up to its length.
    Pieces(u16, &'a mut [u8], &'a [usize]),
    /// A buffer of a given length at a wild address.
    Wild(u16, usize, usize),
    /// An operation that is itself at a wild address.
    Nowhere(usize),
}

/// `struct iocb` of `linux/aio_abi.h`.
#[repr(C)]
struct Raw {
    data: u64,
    key: [u32; 2],
    opcode: u16,
    priority: i16,
    fd: i32,
    buf: u64,
    len: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: i32,
}

/// The AIO context, and the process that it belongs to.
static CONTEXT: Mutex<(u32, usize)> = Mutex::new((0, 0));

/// Returns this process's AIO context, which is made once: giving one back takes the kernel longer than an operation.
fn context() -> Result<usize, i32> {
    let mut known = CONTEXT.lock().expect("nobody panics with it");
    let own = std::process::id();
    if known.0 != own {
        let mut context = 0usize;
        // SAFETY: a word for the context's number.
        ret(unsafe { libc::syscall(libc::SYS_io_setup, 4, &raw mut context) })?;
        *known = (own, context);
    }
    Ok(known.1)
}

fn forget_context() {
    *CONTEXT.lock().expect("nobody panics with it") = (0, 0);
}

/// Submits one operation that carries `data` and waits for its end. Returns the event: its `data` and its result.
///
/// # Errors
/// The errno of `io_submit` itself; `ETIMEDOUT` when no event came.
pub fn aio(fd: i32, operation: Iocb<'_>, offset: i64, resfd: Option<i32>) -> Result<(u64, Ret), i32> {
    let mut vecs = Vec::new();
    let mut elsewhere = None;
    let (opcode, buf, len) = match operation {
        Iocb::Flat(opcode, data) => (opcode, data.as_mut_ptr() as u64, data.len()),
        Iocb::Pieces(opcode, data, pieces) => {
            vecs = iovecs(data.as_mut_ptr(), data.len(), pieces);
            (opcode, vecs.as_ptr() as u64, vecs.len())
        }
        Iocb::Wild(opcode, at, len) => (opcode, at as u64, len),
        Iocb::Nowhere(at) => {
            elsewhere = Some(at as *const Raw);
            (0, 0, 0)
        }
    };
    let raw = Raw {
        data: 7,
        key: [0; 2],
        opcode,
        priority: 0,
        fd,
        buf,
        len: len as u64,
        offset,
        reserved: 0,
        flags: u32::from(resfd.is_some()),
        resfd: resfd.unwrap_or(0),
    };
    let list = [elsewhere.unwrap_or(&raw const raw)];
    let context = context()?;
    let mut event = [0u64; 4];
    let patience = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: an array of one pointer, to `raw` or to nowhere, which the kernel refuses. What `raw` points to is nowhere
    // too, or outlives the operation: either its event has come, or `io_destroy` waits for it. Room for one event, and
    // a timespec.
    let (submitted, waited) = unsafe {
        let submitted = ret(libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()));
        let waited = match submitted {
            Ok(_) => libc::syscall(libc::SYS_io_getevents, context, 1, 1, event.as_mut_ptr(), &raw const patience),
            Err(_) => 0,
        };
        if submitted.is_ok() && waited != 1 {
            libc::syscall(libc::SYS_io_destroy, context);
            forget_context();
        }
        (submitted, waited)
    };
    drop(vecs);
    submitted?;
    if waited != 1 {
        return Err(libc::ETIMEDOUT);
    }
    let result = event[2].cast_signed();
    Ok((event[0], if result < 0 { Err(-result as i32) } else { Ok(result) }))
}

/// Makes a call with one wild pointer.
///
/// # Errors
/// The errno.
pub fn fault(fd: i32, what: Fault, at: usize) -> Ret {
    let wild = at as *mut c_void;
    let (good_len, bad_len) = match what {
        Fault::Writev { good, bad }
        | Fault::Sendmsg { good, bad, .. }
        | Fault::SendControl { good, bad, .. }
        | Fault::Readv { good, bad }
        | Fault::Recvmsg { good, bad } => (good, bad),
        _ => (0, 0),
    };
    let mut room = vec![0x5au8; good_len];
    let mut pieces = [
        libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: good_len },
        libc::iovec { iov_base: wild, iov_len: bad_len },
    ];
    let iov = pieces.as_mut_ptr();
    let dontwait = libc::MSG_DONTWAIT;
    let mut word = [0i32; 1];
    // SAFETY: every pointer is to a live local of the length that goes with it, or to where no program has memory, which
    // the kernel refuses. What the calls write lies in `room` and `word`.
    unsafe {
        let n = match what {
            Fault::Send { bad, flags } => libc::send(fd, wild, bad, flags | dontwait) as i64,
            Fault::Write { bad } => libc::write(fd, wild, bad) as i64,
            Fault::Writev { .. } => libc::writev(fd, iov, 2) as i64,
            Fault::WriteArray => libc::writev(fd, wild.cast(), 1) as i64,
            Fault::Sendmsg { flags, .. } => {
                let msg = msghdr(&mut pieces, ptr::null_mut(), 0);
                libc::sendmsg(fd, &raw const msg, flags | dontwait) as i64
            }
            Fault::SendControl { flags, .. } => {
                let msg = msghdr(&mut pieces[..1], wild.cast(), bad_len);
                libc::sendmsg(fd, &raw const msg, flags | dontwait) as i64
            }
            Fault::SendHeader => libc::sendmsg(fd, wild.cast(), dontwait) as i64,
            Fault::Recv { bad } => libc::recv(fd, wild, bad, dontwait) as i64,
            Fault::Read { bad } => libc::read(fd, wild, bad) as i64,
            Fault::Readv { .. } => libc::readv(fd, iov, 2) as i64,
            Fault::Recvmsg { .. } => {
                let mut msg = msghdr(&mut pieces, ptr::null_mut(), 0);
                libc::recvmsg(fd, &raw mut msg, dontwait) as i64
            }
            Fault::RecvHeader => libc::recvmsg(fd, wild.cast(), dontwait) as i64,
            Fault::Bind { bad } => libc::bind(fd, wild.cast(), bad as u32).into(),
            Fault::Setsockopt { name, bad } => libc::setsockopt(fd, 279, name, wild, bad as u32).into(),
            Fault::Getsockopt => {
                let mut len = 4;
                libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, wild, &raw mut len).into()
            }
            Fault::GetsockoptLen => {
                libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, word.as_mut_ptr().cast(), wild.cast()).into()
            }
            Fault::AcceptLen => libc::accept4(fd, word.as_mut_ptr().cast(), wild.cast(), libc::SOCK_NONBLOCK).into(),
            Fault::AioRead { .. } | Fault::AioWrite { .. } | Fault::Iocb => {
                let operation = match what {
                    Fault::AioRead { bad } => Iocb::Wild(0, at, bad),
                    Fault::AioWrite { bad } => Iocb::Wild(1, at, bad),
                    _ => Iocb::Nowhere(at),
                };
                return aio(fd, operation, 0, None).and_then(|(_, result)| result);
            }
        };
        ret(n)
    }
}
