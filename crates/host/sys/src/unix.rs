//! Unix sockets.

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recvmsg, sendmsg, socket_with,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

/// The user at the other end of a connection.
///
/// # Errors
/// The kernel's.
pub fn peer_user(socket: &impl AsFd) -> io::Result<u32> {
    let [_process, user, _group] = credentials(socket.as_fd())?;
    Ok(user)
}

/// The process at the other end of a connection, while it waits for our answer; `None` outside our process namespace.
///
/// # Errors
/// The kernel's.
pub fn peer_process(stream: &UnixStream) -> io::Result<Option<u32>> {
    let [process, ..] = credentials(stream.as_fd())?;
    Ok((process > 0).then_some(process))
}

/// The `struct ucred` of the other end. Its process is 0 outside our process namespace, for which rustix's type has no room.
fn credentials(socket: BorrowedFd<'_>) -> io::Result<[u32; 3]> {
    super::socket::option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED)
}

/// The process, the effective user and all groups at the other end of a connection, as they were when it was made
/// (`SO_PEERCRED`, `SO_PEERGROUPS`).
///
/// # Errors
/// The kernel's; `InvalidData` with more than 256 groups.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<(u32, u32, Vec<u32>)> {
    const MOST: usize = 256;
    let [process, user, group] = credentials(socket)?;
    let mut groups = [0u32; MOST];
    let mut len = size_of_val(&groups) as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes of a local, and the length.
    let r = unsafe {
        let groups = groups.as_mut_ptr().cast();
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERGROUPS, groups, &raw mut len)
    };
    if r < 0 {
        let error = io::Error::last_os_error();
        return Err(if error.raw_os_error() == Some(libc::ERANGE) {
            io::Error::new(io::ErrorKind::InvalidData, "it has more than 256 groups")
        } else {
            error
        });
    }
    let mut all: Vec<u32> = groups[..(len as usize / size_of::<u32>()).min(MOST)].to_vec();
    all.push(group);
    Ok((process, user, all))
}

/// Listens on a socket of packets in the file system, close-on-exec and without waiting. Everybody may connect: who may do what
/// is the listener's to say.
///
/// # Errors
/// The kernel's.
pub fn listen_for_packets(path: &Path) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    rustix::net::listen(&socket, 128)?;
    Ok(socket)
}

/// Accepts a connection, which is close-on-exec and does not wait.
///
/// # Errors
/// `WouldBlock` if there is none; otherwise the kernel's.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?)
}

/// Connects to a socket of packets. Calls on it wait for the other end, at most for `patience`.
///
/// # Errors
/// The kernel's.
pub fn connect_for_packets(path: &Path, patience: Duration) -> io::Result<OwnedFd> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    // The first also counts for connecting.
    for timeout in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, timeout, Some(patience))?;
    }
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Changes how long calls on a socket wait for what comes.
///
/// # Errors
/// The kernel's.
pub fn wait_at_most(socket: BorrowedFd<'_>, patience: Duration) -> io::Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    Ok(set_socket_timeout(socket, Timeout::Recv, Some(patience))?)
}

/// Sends a packet. For a long one the socket gets room ([`make_room`]).
///
/// # Errors
/// `WouldBlock` if the other end does not read; otherwise the kernel's.
pub fn send_packet(socket: BorrowedFd<'_>, packet: &[u8]) -> io::Result<()> {
    let send = || rustix::net::send(socket, packet, SendFlags::NOSIGNAL).map(drop).map_err(io::Error::from);
    match send() {
        Err(e) if e.raw_os_error() == Some(libc::EMSGSIZE) => make_room(socket, packet.len()).and_then(|()| send()),
        done => done,
    }
}

/// Makes a socket's buffer large enough for a packet of so many bytes, as far as the machine's `net.core.wmem_max` allows.
///
/// # Errors
/// `EMSGSIZE` if it does not; otherwise the kernel's.
pub fn make_room(socket: BorrowedFd<'_>, len: usize) -> io::Result<()> {
    use rustix::net::sockopt::{set_socket_send_buffer_size, socket_send_buffer_size};
    /// The bytes of the buffer that are no packet's (`unix_dgram_sendmsg`).
    const OWN: usize = 32;
    // The kernel doubles what it is told.
    set_socket_send_buffer_size(socket, len.div_ceil(2) + OWN)?;
    if socket_send_buffer_size(socket)? < len + OWN {
        return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
    }
    Ok(())
}

/// Whether most of a socket's buffer is free: the other end has taken what was sent, but for a quarter of the buffer.
///
/// # Errors
/// The kernel's.
pub fn is_writable(socket: BorrowedFd<'_>) -> io::Result<bool> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::OUT)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    Ok(poll(&mut fds, Some(&now))? > 0)
}

/// Receives a packet, and returns its length: 0 at the end of the connection. What does not fit is lost. Descriptors that came
/// with it are closed.
///
/// # Errors
/// `WouldBlock` if there is none; otherwise the kernel's.
pub fn receive_packet(socket: BorrowedFd<'_>, packet: &mut [u8]) -> io::Result<usize> {
    Ok(rustix::io::read(socket, packet)?)
}

/// Whether a packet waits to be received, or the end of the connection ([`receive_packet`] returns it as 0): its length, of which
/// nothing is taken.
///
/// # Errors
/// `WouldBlock` if there is neither; otherwise the kernel's.
pub fn peek_packet(socket: BorrowedFd<'_>) -> io::Result<usize> {
    let flags = RecvFlags::PEEK | RecvFlags::TRUNC | RecvFlags::DONTWAIT;
    let (_, len) = rustix::net::recv(socket, &mut [0u8; 1][..], flags)?;
    Ok(len)
}

/// Ends a listener: whoever accepts its connections gets `EINVAL`, also who waits for one now.
///
/// # Errors
/// The kernel's.
pub fn end_listener(listener: &UnixListener) -> io::Result<()> {
    Ok(rustix::net::shutdown(listener, rustix::net::Shutdown::Both)?)
}

/// Listens by an abstract name that nobody else has, in the calling thread's network namespace. Returns the name, too.
///
/// # Errors
/// The kernel's.
pub fn listen_by_new_name() -> io::Result<(UnixListener, String)> {
    let mut random = [0; 16];
    super::random::fill(&mut random);
    let name: String = ["sealane-".to_owned()].into_iter().chain(random.map(|byte| format!("{byte:02x}"))).collect();
    Ok((UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?, name))
}

/// Connects to whoever listens by an abstract name in the calling thread's network namespace, without waiting: the name is
/// somebody else's choice, who need not accept anything. The connection does not wait either.
///
/// # Errors
/// `EAGAIN` where too many wait for the listener; otherwise the kernel's.
pub fn connect_to_name(name: &str) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, &SocketAddrUnix::new_abstract_name(name.as_bytes())?)?;
    Ok(socket.into())
}

/// Sends bytes, and a descriptor with them. Returns how many bytes were sent.
///
/// # Errors
/// The kernel's.
pub fn send_with(socket: impl AsFd, bytes: &[u8], descriptor: Option<BorrowedFd<'_>>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.into_iter().collect();
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL)?)
}

/// Receives bytes, and the descriptor that came with them, close-on-exec. Returns how many bytes came.
///
/// # Errors
/// The kernel's.
pub fn receive_with(socket: impl AsFd, bytes: &mut [u8]) -> io::Result<(usize, Option<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(socket, &mut [IoSliceMut::new(bytes)], &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptor = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((received.bytes, descriptor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_waits_for_a_listener_that_accepts_nothing() {
        let (listener, name) = listen_by_new_name().unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let made = [0; 3].map(|_| connect_to_name(&name).map_err(|e| e.raw_os_error()));
        assert!(made[0].is_ok());
        assert_eq!(made[2].as_ref().err(), Some(&Some(libc::EAGAIN)));
    }

    #[test]
    fn a_listener_that_is_ended_wakes_who_waits() {
        let path = std::env::temp_dir().join(format!("sealane-unix-ended-{}", std::process::id()));
        let listener = UnixListener::bind(&path).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| listener.accept().map(drop).map_err(|e| e.raw_os_error()));
            std::thread::sleep(Duration::from_millis(20));
            end_listener(&listener).unwrap();
            assert_eq!(waiting.join().unwrap(), Err(Some(libc::EINVAL)));
        });
        assert_eq!(listener.accept().map(drop).map_err(|e| e.raw_os_error()), Err(Some(libc::EINVAL)));
        std::fs::remove_file(path).unwrap();
    }
}
