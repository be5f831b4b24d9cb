//! splice(2) and sendfile(2): the ends that they take, and the order in which the kernel finds mistakes.

use super::data::give;
use super::program::{Descriptor, Memory};
use crate::SendMsg;
use sealane_abi::Errno;
use sealane_abi::socket::MSG_MORE;

/// The flags of splice(2) that there are.
const KNOWN_FLAGS: u32 = 0xf;

/// One end of a splice, as its descriptor tells.
#[derive(Debug, Clone, Copy)]
pub struct SpliceEnd {
    /// Whether it is a pipe.
    pub is_pipe: bool,
    /// Whether it was opened for what happens to it: to be read from, or to be written to.
    pub is_open_for_it: bool,
    /// The address of an offset, 0 for none.
    pub offset: u64,
}

/// The direction of a splice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splice {
    /// From a pipe into the socket.
    FromPipe,
    /// From the socket into a pipe.
    ToPipe,
}

/// Checks that come before the descriptors are looked at. True: there is nothing to do.
///
/// # Errors
/// `EINVAL` for flags that do not exist.
pub fn splices_nothing(len: usize, flags: u32) -> Result<bool, Errno> {
    match len {
        0 => Ok(true),
        _ if flags & !KNOWN_FLAGS != 0 => Err(Errno::EINVAL),
        _ => Ok(false),
    }
}

/// A call that only pipes have, on a socket: `vmsplice` of `len` bytes, which says `EBADF` then, or `tee`, which says `EINVAL`.
///
/// # Errors
/// `EINVAL` for flags that do not exist, `refusal` if there is anything to do.
pub fn on_no_pipe(len: usize, flags: u32, refusal: Errno) -> Result<isize, Errno> {
    match len {
        _ if flags & !KNOWN_FLAGS != 0 => Err(Errno::EINVAL),
        0 => Ok(0),
        _ => Err(refusal),
    }
}

/// Checks a splice one end of which is a socket of ours, as `__do_splice` and `do_splice` do.
///
/// # Errors
/// `ESPIPE` for an offset in a pipe, `EFAULT` for an offset that cannot be read, `EBADF` for an end that is not open for
/// it, `EINVAL` for two sockets or files, an offset in the socket, and a length that is none.
pub fn splice<M: Memory>(memory: &M, from: SpliceEnd, to: SpliceEnd, len: usize) -> Result<Splice, M::Failure> {
    if [from, to].iter().any(|end| end.is_pipe && end.offset != 0) {
        return Err(Errno::ESPIPE.into());
    }
    for end in [to, from].iter().filter(|end| end.offset != 0) {
        memory.read::<8>(end.offset)?;
    }
    if !from.is_open_for_it || !to.is_open_for_it {
        return Err(Errno::EBADF.into());
    }
    match (from.is_pipe, to.is_pipe) {
        _ if from.offset != 0 || to.offset != 0 || len > isize::MAX as usize => Err(Errno::EINVAL.into()),
        (true, false) => Ok(Splice::FromPipe),
        (false, true) => Ok(Splice::ToPipe),
        _ => Err(Errno::EINVAL.into()),
    }
}

/// A file for sendfile(2), as its descriptor tells.
#[derive(Debug, Clone, Copy)]
pub struct SourceFile {
    /// Whether it was opened for reading.
    pub is_readable: bool,
    /// Its own position; `None` for pipes, sockets and others that have none.
    pub position: Option<i64>,
    /// Whether it is a directory.
    pub is_directory: bool,
}

/// The position from which sendfile reads `len` bytes of a file, given the program's `offset`, if there is one; checked as
/// `do_sendfile` does.
///
/// # Errors
/// `EBADF` for a file that is not open for reading, `ESPIPE` for an offset in one without positions, `EINVAL` for one
/// without an offset, a directory, and positions and lengths that are none.
pub fn sendfile(file: SourceFile, offset: Option<i64>, len: usize) -> Result<i64, Errno> {
    if !file.is_readable {
        return Err(Errno::EBADF);
    }
    if offset.is_some() && file.position.is_none() {
        return Err(Errno::ESPIPE);
    }
    let at = offset.or(file.position).ok_or(Errno::EINVAL)?;
    let end = i64::try_from(len).ok().and_then(|len| at.checked_add(len));
    if at < 0 || end.is_none() || file.is_directory && len > 0 {
        return Err(Errno::EINVAL);
    }
    Ok(at)
}

/// Sends at most `len` bytes of a file from a position on, in pieces that fit into `buffer`, which `read` fills from the position
/// that it gets. Returns the number of bytes that the socket has taken.
///
/// # Errors
/// Those of `read` and of [`give`], unless something has been sent.
pub fn send_file<D: Descriptor>(
    d: &D,
    begin: i64,
    len: usize,
    buffer: &mut [u8],
    mut read: impl FnMut(&mut [u8], i64) -> Result<usize, D::Failure>,
) -> Result<usize, D::Failure> {
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(buffer.len());
        let n = match read(&mut buffer[..piece], begin + done as i64) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        };
        let flags = if done + n < len { MSG_MORE } else { 0 };
        match give(d, SendMsg { data: &[&buffer[..n]], flags, spliced: true, ..SendMsg::default() }) {
            Ok(sent) => {
                done += sent;
                if sent < n {
                    break;
                }
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
    }
    Ok(done)
}
