//! Unix sockets.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// The user at the other end of a connection.
///
/// # Errors
/// The kernel's.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    // `struct ucred`. Its process is 0 outside our process namespace, for which rustix's type has no room.
    let [_process, user, _group]: [u32; 3] = super::option(stream.as_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED)?;
    Ok(user)
}
