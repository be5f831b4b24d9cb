//! Unix sockets.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

/// The user at the other end of a connection.
///
/// # Errors
/// The kernel's.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of_val(&credentials) as libc::socklen_t;
    // SAFETY: the option is a ucred, and `len` is the room for it.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &mut len,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(credentials.uid) }
}
