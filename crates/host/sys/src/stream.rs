//! A key manager's TCP connection whose stream carries IKE and ESP (RFC 9329), the pair of sockets by which the key manager
//! has its messages, and waiting for many of them at a time.

use super::tcp_socket;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrUnix, sockopt};
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The most bytes that go out of one of a pair's sockets at once: a message of a stream (`MAX_ESPINTCP_MSG`).
const MESSAGE_LEN: usize = 65_533;
/// The bytes of a Unix socket's send buffer that the kernel keeps for itself, of a message (`unix_dgram_sendmsg`).
const KEPT: usize = 32;
/// The name of a program's end of a pair begins with it, in the abstract namespace. Behind it is a random number.
const NAME: &[u8] = b"sealane-espintcp-";

/// The ends of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ends {
    /// Ours.
    pub local: (IpAddr, u16),
    /// The peer's.
    pub remote: (IpAddr, u16),
}

/// A pair of sockets for whole messages: one for whoever has the connection, and the program's, in which writing waits only if
/// the program wants to.
///
/// # Errors
/// The kernel's.
pub fn pair(nonblocking: bool) -> io::Result<(OwnedFd, OwnedFd)> {
    let (ours, theirs, _) = super::peer::pair(nonblocking)?;
    // The kernel doubles it.
    sockopt::set_socket_send_buffer_size(&theirs, (MESSAGE_LEN + KEPT).div_ceil(2))?;
    let mut random = [0; 16];
    super::random::fill(&mut random);
    rustix::net::bind(&theirs, &SocketAddrUnix::new_abstract_name(&[NAME, &random].concat())?)?;
    Ok((ours, theirs))
}

/// Whether a socket is one that [`pair`] has made for a program: by its name, which any launcher knows.
#[must_use]
pub fn is_of_pair(socket: BorrowedFd<'_>) -> bool {
    let name = rustix::net::getsockname(socket).ok().and_then(|name| SocketAddrUnix::try_from(name).ok());
    name.is_some_and(|name| name.abstract_name().is_some_and(|name| name.starts_with(NAME)))
        && super::socket::int_option(socket, libc::SOL_SOCKET, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET)
}

/// The inode of a socket, by which the links in `/proc/PID/fd` name it.
///
/// # Errors
/// The kernel's.
pub fn inode(socket: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(rustix::fs::fstat(socket)?.st_ino)
}

/// The ends of a program's connection.
///
/// # Errors
/// `ENOTCONN` where it is no TCP connection, or is one no more.
pub fn ends(socket: BorrowedFd<'_>) -> io::Result<Ends> {
    let is_tcp = tcp_socket::kind(socket).is_some_and(|(_, protocol)| protocol == libc::IPPROTO_TCP);
    let both = tcp_socket::local(socket).zip(tcp_socket::peer(socket)).filter(|_| is_tcp);
    let (local, remote) = both.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOTCONN))?;
    let end = |at: SocketAddr| (at.ip().to_canonical(), at.port());
    Ok(Ends { local: end(local), remote: end(remote) })
}

/// Takes a program's connection: packets get this mark from now on, and small messages are not held back.
///
/// # Errors
/// The kernel's.
pub fn take(socket: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    super::usersock::set_mark(socket, mark)?;
    Ok(sockopt::set_tcp_nodelay(socket, true)?)
}

/// Reads without waiting. `None`: there is nothing now. 0: nothing comes any more.
///
/// # Errors
/// The connection's.
pub fn receive(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<Option<usize>> {
    match rustix::io::retry_on_intr(|| rustix::net::recv(socket, &mut *buf, RecvFlags::DONTWAIT)) {
        Ok((len, _)) => Ok(Some(len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e.into()),
    }
}

/// Writes as much of `parts` as there is room for, without waiting. Returns the bytes that were taken.
///
/// # Errors
/// The connection's.
pub fn send(socket: BorrowedFd<'_>, parts: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    match rustix::io::retry_on_intr(|| rustix::net::sendmsg(socket, parts, &mut control, flags)) {
        Err(Errno::AGAIN) => Ok(0),
        sent => Ok(sent?),
    }
}

/// Ends a connection, whoever has descriptors of it: what was written before is sent.
pub fn end(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Both);
}

/// Ends the sending direction of a connection.
pub fn end_sending(socket: BorrowedFd<'_>) {
    let _ = rustix::net::shutdown(socket, Shutdown::Write);
}

/// Whether the other end of a pair's socket writes no more.
#[must_use]
pub fn is_read_to_end(socket: BorrowedFd<'_>) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(socket, PollFlags::RDHUP)];
    poll(&mut fds, Some(&Timespec::default())).is_ok() && fds[0].revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
}

/// The events for which a descriptor is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interest {
    /// It can be read.
    pub read: bool,
    /// It can be written.
    pub write: bool,
}

/// Something that has come of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The name with which it is waited for.
    pub name: u64,
    /// It can be read, or its end is there.
    pub read: bool,
    /// It can be written.
    pub write: bool,
    /// Nobody has its other end any more.
    pub hung_up: bool,
}

/// Descriptors that are waited for. It is readable when one of them is ready.
#[derive(Debug)]
pub struct Waits(OwnedFd);

impl AsFd for Waits {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn flags(interest: Interest) -> EventFlags {
    let mut flags = EventFlags::empty();
    flags.set(EventFlags::IN, interest.read);
    flags.set(EventFlags::OUT, interest.write);
    flags
}

impl Waits {
    /// Without any.
    ///
    /// # Errors
    /// The kernel's.
    pub fn new() -> io::Result<Self> {
        Ok(Waits(epoll::create(CreateFlags::CLOEXEC)?))
    }

    /// Waits for one more.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, fd: impl AsFd, name: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.0, fd, EventData::new_u64(name), flags(interest))?)
    }

    /// Waits for something else of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn change(&self, fd: impl AsFd, name: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.0, fd, EventData::new_u64(name), flags(interest))?)
    }

    /// Waits for it no more.
    pub fn remove(&self, fd: impl AsFd) {
        let _ = epoll::delete(&self.0, fd);
    }

    /// Those that are ready now, some of them if there are many.
    pub fn ready(&self, found: &mut Vec<Ready>) {
        let mut events = Vec::<Event>::with_capacity(64);
        let now = Timespec::default();
        if epoll::wait(&self.0, rustix::buffer::spare_capacity(&mut events), Some(&now)).is_err() {
            return;
        }
        found.extend(events.iter().map(|event| {
            let flags = event.flags;
            let over = flags.intersects(EventFlags::HUP | EventFlags::ERR);
            Ready {
                name: event.data.u64(),
                read: over || flags.contains(EventFlags::IN),
                write: flags.contains(EventFlags::OUT),
                hung_up: over,
            }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn say(socket: &impl AsFd, parts: [&[u8]; 2]) -> io::Result<usize> {
        send(socket.as_fd(), &parts.map(IoSlice::new))
    }

    #[test]
    fn messages_of_a_pair() {
        let (ours, theirs) = pair(true).unwrap();
        let mut buf = vec![0; 1 << 17];
        assert_eq!(receive(ours.as_fd(), &mut buf).unwrap(), None);
        assert!(is_of_pair(theirs.as_fd()) && !is_of_pair(TcpListener::bind("127.0.0.1:0").unwrap().as_fd()));
        // A pair of a program's own, with and without a name.
        let (own, named) = (super::super::peer::pair(true).unwrap().1, super::super::peer::pair(true).unwrap().1);
        let name = [&b"sealane-test-"[..], &std::process::id().to_ne_bytes()].concat();
        rustix::net::bind(&named, &SocketAddrUnix::new_abstract_name(&name).unwrap()).unwrap();
        assert!(!is_of_pair(own.as_fd()) && !is_of_pair(named.as_fd()) && !is_of_pair(ours.as_fd()));
        assert_ne!(inode(ours.as_fd()).unwrap(), inode(theirs.as_fd()).unwrap());
        let longest = vec![7; MESSAGE_LEN];
        assert_eq!(say(&theirs, [&longest[..3], &longest[3..]]).unwrap(), MESSAGE_LEN);
        assert_eq!(receive(ours.as_fd(), &mut buf).unwrap(), Some(MESSAGE_LEN));
        let too_long = say(&theirs, [&longest, &[0; 2]]).map_err(|e| e.raw_os_error());
        assert_eq!(too_long, Err(Some(libc::EMSGSIZE)));
        // A reader that does not read takes a bounded number of them.
        let taken = (0..1000).take_while(|_| say(&theirs, [b"a message", b""]).unwrap() > 0).count();
        assert!((10..200).contains(&taken), "{taken}");
        drop(theirs);
        assert_eq!(receive(ours.as_fd(), &mut buf).unwrap(), Some(9), "what was written is still there");
        assert!(is_read_to_end(ours.as_fd()));
    }

    #[test]
    fn a_connection_and_what_it_is_ready_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(ends(listener.as_fd()).map_err(|e| e.raw_os_error()), Err(Some(libc::ENOTCONN)));
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        // Marks are for those who administer the network.
        let taken = take(client.as_fd(), 0);
        assert!(taken.is_ok() || !rustix::process::geteuid().is_root(), "{taken:?}");
        let ends = ends(client.as_fd()).unwrap();
        let at = |address: SocketAddr| (address.ip(), address.port());
        assert_eq!(ends, Ends { local: at(server.peer_addr().unwrap()), remote: at(server.local_addr().unwrap()) });
        let (waits, read) = (Waits::new().unwrap(), Interest { read: true, write: false });
        waits.add(&client, 5, read).unwrap();
        let ready = |waits: &Waits| {
            let mut found = Vec::new();
            waits.ready(&mut found);
            found
        };
        assert_eq!(ready(&waits), []);
        waits.change(&client, 6, Interest { read: true, write: true }).unwrap();
        assert_eq!(ready(&waits), [Ready { name: 6, read: false, write: true, hung_up: false }]);
        waits.change(&client, 6, read).unwrap();
        assert_eq!(say(&server, [b"ab", b"c"]).unwrap(), 3);
        assert!(super::super::peer::readable(client.as_fd(), 5000));
        assert_eq!(ready(&waits), [Ready { name: 6, read: true, write: false, hung_up: false }]);
        waits.remove(&client);
        assert_eq!(ready(&waits), []);
        end(server.as_fd());
        assert_eq!(receive(client.as_fd(), &mut [0; 9]).unwrap(), Some(3));
        assert!(super::super::peer::readable(client.as_fd(), 5000));
        assert_eq!(receive(client.as_fd(), &mut [0; 9]).unwrap(), Some(0));
    }
}
