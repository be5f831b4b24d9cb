//! The daemon's end of NETLINK_XFRM, over NETLINK_USERSOCK at the port [`XFRM_PORT`] of a network namespace, or at
//! another one where somebody has taken that.
//!
//! Requests are datagrams as for the kernel. Answers go to the client's port, events to the groups of NETLINK_XFRM.
//!
//! The kernel judges a client's rights: only a client with CAP_NET_ADMIN over the namespace can send to the same port of
//! NETLINK_GENERIC, and what arrives there may change the namespace. What arrives at the port of NETLINK_USERSOCK, to
//! which anybody can send, has no rights. Both sockets are the daemon's, so that nobody else gets requests with keys.

use parking_lot::RwLock;
use sealane_abi::netlink::answer::{AckOptions, ExtAck, ack};
use sealane_abi::netlink::{Message, Messages, NLMSG_MIN_TYPE};
use sealane_abi::sealane::{Question, XFRM_PORT, read_vouched, xfrm_port};
use sealane_abi::{Caller, Errno};
use sealane_admin::xfrm::is_daemon_at;
use sealane_engine_xfrm::{Notice, Replies, Sender};
use sealane_sys::life;
use sealane_sys::netns::Netns;
use sealane_sys::poll::{self, Waker};
use sealane_sys::random;
use sealane_sys::transient;
use sealane_sys::usersock;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tracing::{error, warn};
use zeroize::{Zeroize, Zeroizing};

/// The longest request in bytes. The kernel's limit is the sender's buffer, 208 KiB unless raised.
const MAX_REQUEST: usize = 1 << 20;
/// The most bytes of requests that may wait; a client that sends more waits.
const RECEIVE_BUFFER: i32 = 8 << 20;
/// The longest answer in bytes.
const SEND_BUFFER: i32 = 4 << 20;
/// The most bytes of answers that wait until their clients read, with the overhead of each. Most of them are dumps.
const MAX_WAITING: usize = 512 << 20;
/// The same limit for clients without rights, whose requests are all refused: they must not take the room of others.
const MAX_WAITING_UNPRIVILEGED: usize = 4 << 20;
/// The most such clients with answers waiting, each of which is polled again and again.
const MAX_UNPRIVILEGED: usize = 64;
/// The overhead of a waiting answer: its place in the list, and the allocator's share.
const KEPT_LEN: usize = 64;
/// The interval at which clients with answers waiting are tried again.
const RETRY: Duration = Duration::from_millis(1);
/// The longest time that a client may read nothing before its answers are dropped.
const PATIENCE: Duration = Duration::from_secs(30);
/// Acknowledgements are sent in full: the launcher removes the parts that a client's socket did not ask for.
const ACK: AckOptions = AckOptions { cap: false, ext: true };
/// The most requests of each socket that are served before events and timers have their turn.
const TURN: usize = 64;
/// The time that whoever has the usual port has to show that it is another daemon.
const WHO: Duration = Duration::from_secs(1);
/// The most ports that are tried until one is free.
const PORTS: usize = 64;
/// The most descriptors that are waited for.
const MAX_FDS: usize = 8;

/// The sockets of a namespace. Events can be sent from any thread.
#[derive(Debug)]
pub(crate) struct Socket {
    /// `None` once they have been closed.
    fds: RwLock<Option<Arc<Fds>>>,
}

#[derive(Debug)]
struct Fds {
    /// Requests with rights (NETLINK_GENERIC).
    guarded: OwnedFd,
    /// Requests without rights, answers and events (NETLINK_USERSOCK).
    open: OwnedFd,
    /// The port of both.
    port: u32,
}

impl Fds {
    /// Sockets of the calling thread's namespace at a port.
    fn at(port: u32) -> io::Result<Self> {
        // Clients look who has the port of NETLINK_USERSOCK. Whoever has it must have the other one already.
        let guarded = usersock::open_guarded()?;
        usersock::set_receive_buffer(guarded.as_fd(), RECEIVE_BUFFER)?;
        usersock::bind(guarded.as_fd(), port, 0)?;
        let open = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
        usersock::set_receive_buffer(open.as_fd(), RECEIVE_BUFFER)?;
        usersock::set_send_buffer(open.as_fd(), SEND_BUFFER)?;
        usersock::pass_credentials(open.as_fd())?;
        usersock::bind(open.as_fd(), port, 0)?;
        Ok(Fds { guarded, open, port })
    }

    /// Sockets of the calling thread's namespace, at the usual port if it is free: anybody may have taken it.
    fn open() -> io::Result<Self> {
        let drawn = || {
            let mut bytes = [0; 4];
            random::fill(&mut bytes);
            xfrm_port(u32::from_ne_bytes(bytes))
        };
        let is_taken = |fds: &io::Result<Fds>| fds.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse);
        let usual = Fds::at(XFRM_PORT);
        if !is_taken(&usual) {
            return usual;
        }
        if is_daemon_at(XFRM_PORT, WHO) {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another daemon serves it"));
        }
        let free = core::iter::repeat_with(drawn).take(PORTS).map(Fds::at).find(|fds| !is_taken(fds));
        free.unwrap_or_else(|| Err(io::ErrorKind::AddrInUse.into()))
    }
}

impl Socket {
    /// Opens the sockets of a namespace.
    ///
    /// # Errors
    /// `AddrInUse` when another daemon serves it; otherwise the kernel's.
    pub(crate) fn open(netns: &Netns) -> io::Result<Self> {
        let fds = netns.run(Fds::open)?;
        Ok(Socket { fds: RwLock::new(Some(Arc::new(fds))) })
    }

    /// Their port; `None` once they have been closed.
    pub(crate) fn port(&self) -> Option<u32> {
        self.fds.read().as_ref().map(|fds| fds.port)
    }

    /// Closes them as soon as no [`Server`] uses them. Later requests are refused; the launcher answers those that are
    /// waiting.
    pub(crate) fn close(&self) {
        *self.fds.write() = None;
    }

    /// Sends events to listeners. A listener without room misses them, and its socket reports that, as with the kernel.
    pub(crate) fn publish(&self, events: &[Notice]) {
        let Some(fds) = self.fds.read().clone() else { return };
        for event in events {
            if let Err(e) = usersock::publish(fds.open.as_fd(), event.group, &event.bytes) {
                let (group, len) = (event.group, event.bytes.len());
                error!(group, error = %e, "xfrm: an event of {len} bytes is lost: {e}");
            }
        }
    }
}

/// Answers that their client has no room for yet.
struct Waiting {
    datagrams: VecDeque<Zeroizing<Vec<u8>>>,
    since: Instant,
    privileged: bool,
}

/// The number of clients with answers waiting, and the bytes of these answers.
#[derive(Default)]
struct WaitingTotals {
    askers: usize,
    len: usize,
}

/// Serves a [`Socket`], in one thread.
pub(crate) struct Server<'a> {
    socket: &'a Socket,
    fds: Arc<Fds>,
    waiting: HashMap<u32, Waiting>,
    /// Of clients without rights, and of those with rights.
    kept: [WaitingTotals; 2],
    /// Whether it has been told that one of root's programs asks without rights.
    warned: bool,
    buf: Vec<u8>,
}

impl<'a> Server<'a> {
    /// Starts without clients. `None` when the socket has been closed.
    pub(crate) fn new(socket: &'a Socket) -> Option<Self> {
        Some(Server {
            socket,
            fds: socket.fds.read().clone()?,
            waiting: HashMap::new(),
            kept: Default::default(),
            warned: false,
            buf: vec![0; MAX_REQUEST],
        })
    }

    /// Waits for requests, at most for `timeout` or until `waker` is woken or one of `others` can be read, and answers them
    /// by `call`.
    pub(crate) fn serve_once(
        &mut self,
        timeout: Duration,
        waker: &Waker,
        others: &[BorrowedFd<'_>],
        mut call: impl FnMut(&[u8], Sender) -> Replies,
    ) {
        let timeout = if self.waiting.is_empty() { timeout } else { timeout.min(RETRY) };
        let fds = [self.fds.guarded.as_fd(), self.fds.open.as_fd(), waker.as_fd()];
        let ready = poll::ready::<MAX_FDS>(fds.into_iter().chain(others.iter().copied()), timeout);
        if ready[2] {
            waker.drain();
        }
        for privileged in [true, false] {
            if ready[usize::from(!privileged)] {
                for _ in 0..TURN {
                    match self.request(privileged, &mut call) {
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                        // A full buffer: the sender has been told.
                        Err(_) => {}
                        Ok(()) => life::beat(),
                    }
                }
            }
        }
        self.send_waiting();
    }

    /// Receives a request from the socket for clients with rights or from the other one, and answers it.
    fn request(&mut self, privileged: bool, call: &mut impl FnMut(&[u8], Sender) -> Replies) -> io::Result<()> {
        let fd = if privileged { self.fds.guarded.as_fd() } else { self.fds.open.as_fd() };
        let frame = usersock::receive(fd, &mut self.buf, 0)?;
        let complete = frame.len <= self.buf.len();
        let bytes = &mut self.buf[..frame.len.min(MAX_REQUEST)];
        // Datagrams to groups are no requests, and neither are those of the kernel.
        let request = Some((frame.port, &*bytes)).filter(|_| complete && frame.groups == 0 && frame.port != 0);
        let request = if privileged { request.and_then(|(_, bytes)| read_vouched(bytes)) } else { request };
        if !privileged
            && !self.warned
            && let Some(sender) = frame.sender.filter(|sender| sender.uid == 0)
            && request.is_some_and(|(_, bytes)| is_xfrm(bytes))
        {
            self.warned = true;
            let pid = sender.pid;
            warn!(
                pid,
                "xfrm: process {pid} asks without CAP_NET_ADMIN, or it is a launcher of an older version: what runs under it has to be \
                 started again"
            );
        }
        let answered = request.filter(|(port, _)| ![0, self.fds.port].contains(port)).map(|(port, request)| {
            let from = Sender { port, caller: Caller { privileged }, ack: ACK };
            (port, call(request, from))
        });
        // There may be keys in the request.
        bytes.zeroize();
        if let Some((port, replies)) = answered {
            self.socket.publish(&replies.events);
            for datagram in replies.unicast {
                self.answer(port, privileged, datagram);
            }
        }
        Ok(())
    }

    /// Sends an answer, or queues it behind those that wait.
    fn answer(&mut self, port: u32, privileged: bool, datagram: Zeroizing<Vec<u8>>) {
        if !self.waiting.contains_key(&port) {
            match usersock::send(self.fds.open.as_fd(), port, &datagram) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock || transient::count(&e) => {}
                // A client that is gone needs no answer.
                _ => return,
            }
        }
        // The first client that waits at this port decides whether the room of clients with rights is taken.
        let known = self.waiting.get(&port).map(|waiting| waiting.privileged);
        let privileged = known.unwrap_or(privileged);
        let kept = &mut self.kept[usize::from(privileged)];
        let (most, askers) =
            if privileged { (MAX_WAITING, usize::MAX) } else { (MAX_WAITING_UNPRIVILEGED, MAX_UNPRIVILEGED) };
        let len = kept_len(&datagram);
        if kept.len + len > most || known.is_none() && kept.askers >= askers {
            return;
        }
        kept.len += len;
        kept.askers += usize::from(known.is_none());
        let new = || Waiting { datagrams: VecDeque::new(), since: Instant::now(), privileged };
        self.waiting.entry(port).or_insert_with(new).datagrams.push_back(datagram);
    }

    fn send_waiting(&mut self) {
        let (fd, kept) = (self.fds.open.as_fd(), &mut self.kept);
        self.waiting.retain(|port, waiting| {
            let kept = &mut kept[usize::from(waiting.privileged)];
            while let Some(datagram) = waiting.datagrams.front() {
                match usersock::send(fd, *port, datagram) {
                    Ok(_) => {
                        waiting.since = Instant::now();
                        kept.len -= kept_len(datagram);
                        waiting.datagrams.pop_front();
                    }
                    Err(e)
                        if (e.kind() == io::ErrorKind::WouldBlock || transient::count(&e))
                            && waiting.since.elapsed() < PATIENCE =>
                    {
                        return true;
                    }
                    Err(_) => break,
                }
            }
            kept.len -= waiting.datagrams.iter().map(kept_len).sum::<usize>();
            kept.askers -= 1;
            false
        });
    }
}

/// The answer to a datagram that cannot be served now. Its sender must not believe that its policies are in force.
pub(crate) fn refuse(datagram: &[u8], from: Sender) -> Replies {
    let ack = |m: Message<'_>| Zeroizing::new(ack(&m, from.port, Err(Errno::ENOBUFS), from.ack, &ExtAck::default()));
    Replies { unicast: Messages::new(datagram).map(ack).collect(), events: Vec::new() }
}

/// Whether a datagram is a request of NETLINK_XFRM: no [question](sealane_abi::sealane::Question) of Sealane's own, nor one
/// whether a daemon is there, which is a message without effect.
fn is_xfrm(datagram: &[u8]) -> bool {
    let message = Messages::new(datagram).next();
    let is_question = |kind| Question::ALL.iter().any(|question| question.kind() == kind);
    message.is_some_and(|m| m.header.nlmsg_type >= NLMSG_MIN_TYPE && !is_question(m.header.nlmsg_type))
}

/// The bytes that a waiting answer takes.
fn kept_len(datagram: &Zeroizing<Vec<u8>>) -> usize {
    datagram.len() + KEPT_LEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_are_requests_of_ipsec() {
        let header = |kind: u16| [&16u32.to_ne_bytes()[..], &kind.to_ne_bytes(), &[0; 10]].concat();
        let get_sadinfo = NLMSG_MIN_TYPE + 13;
        assert!(is_xfrm(&header(get_sadinfo)));
        assert!(!is_xfrm(&header(sealane_abi::netlink::NLMSG_NOOP)), "is a daemon there?");
        assert!(!is_xfrm(&header(Question::ALL[0].kind())));
        assert!(!is_xfrm(&[]));
    }
    use sealane_abi::sealane::{is_xfrm_port, vouched};
    use sealane_sys::testing;
    use sealane_sys::usersock::Frame;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;

    /// A socket of a client in a namespace.
    fn client(netns: &Netns, groups: u32) -> OwnedFd {
        netns
            .run(|| {
                let fd = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
                usersock::bind(fd.as_fd(), 0, groups)?;
                usersock::pass_credentials(fd.as_fd())?;
                Ok(fd)
            })
            .expect("a client")
    }

    /// Asks for a client, with our rights.
    fn ask(netns: &Netns, client: &OwnedFd, request: &[u8]) {
        let header = vouched(usersock::port(client.as_fd()).expect("a name"), request.len());
        let guarded = netns.run(usersock::open_guarded).expect("a socket");
        usersock::send_guarded(guarded.as_fd(), XFRM_PORT, [&header, request]).expect("a request");
    }

    fn read(fd: &OwnedFd) -> (Frame, Vec<u8>) {
        assert!(sealane_sys::peer::readable(fd.as_fd(), 5000), "an answer");
        let mut buf = vec![0; 1 << 17];
        let frame = usersock::receive(fd.as_fd(), &mut buf, 0).expect("a frame");
        buf.truncate(frame.len);
        (frame, buf)
    }

    /// Runs `test` beside a server that answers with `call`.
    fn served(netns: &Netns, call: impl Fn(&[u8], Sender) -> Replies + Sync, test: impl FnOnce(&Socket)) {
        let socket = Socket::open(netns).expect("the port");
        let (stop, waker) = (AtomicBool::new(false), Waker::new().expect("a waker"));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut server = Server::new(&socket).expect("it is open");
                while !stop.load(Ordering::Acquire) {
                    server.serve_once(Duration::from_secs(1), &waker, &[], &call);
                }
            });
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&socket)));
            stop.store(true, Ordering::Release);
            waker.wake();
            if let Err(panic) = done {
                std::panic::resume_unwind(panic);
            }
        });
    }

    #[test]
    fn answers_go_to_the_asker_and_events_to_the_groups() {
        let Some(netns) = testing::namespace("xfrm::socket") else { return };
        let echo = |request: &[u8], from: Sender| Replies {
            unicast: vec![
                Zeroizing::new([request, &[u8::from(from.caller.privileged)]].concat()),
                Zeroizing::new(vec![2]),
            ],
            events: vec![Notice { group: 3, bytes: Zeroizing::new(request.to_vec()) }],
        };
        served(&netns, echo, |socket| {
            let (asker, listener, other) = (client(&netns, 0), client(&netns, 1 << 2), client(&netns, 1 << 3));
            ask(&netns, &asker, b"hello");
            let (frame, bytes) = read(&asker);
            assert_eq!((frame.port, &bytes[..]), (XFRM_PORT, &b"hello\x01"[..]), "privileged, as we are");
            assert_eq!(read(&asker).1, [2]);
            let (frame, bytes) = read(&listener);
            assert_eq!((frame.groups, &bytes[..]), (1 << 2, &b"hello"[..]));
            // By the way that is open to everybody there are no rights, whoever uses it.
            usersock::send(asker.as_fd(), XFRM_PORT, b"hello").expect("a request");
            assert_eq!(read(&asker).1, b"hello\x00");
            socket.publish(&[Notice { group: 4, bytes: Zeroizing::new(vec![7]) }]);
            assert_eq!(read(&other).1, [7]);
            assert!(!sealane_sys::peer::readable(other.as_fd(), 0));
            assert_eq!(Socket::open(&netns).expect_err("taken").kind(), io::ErrorKind::AddrInUse);
        });
    }

    /// Anybody may have the usual port, of either protocol.
    #[test]
    fn another_port_serves_where_the_usual_one_is_taken() {
        for guarded in [false, true] {
            let Some(netns) = testing::namespace("xfrm::socket::port") else { return };
            let open = || if guarded { usersock::open_guarded() } else { usersock::open(libc::SOCK_RAW, 0) };
            let stranger = netns.run(open).expect("a socket");
            usersock::bind(stranger.as_fd(), XFRM_PORT, 0).expect("the port");
            let port = Socket::open(&netns).expect("another port").port().expect("it is open");
            assert!(port != XFRM_PORT && is_xfrm_port(port), "{port:#x}");
            drop(stranger);
            assert_eq!(Socket::open(&netns).expect("the usual one").port(), Some(XFRM_PORT));
        }
    }

    #[test]
    fn requests_without_a_header_or_for_no_client_are_dropped() {
        let Some(netns) = testing::namespace("xfrm::socket") else { return };
        let socket = Socket::open(&netns).expect("the port");
        let mut server = Server::new(&socket).expect("it is open");
        let waker = Waker::new().expect("a waker");
        let guarded = netns.run(usersock::open_guarded).expect("a socket");
        let send = |head: &[u8], rest: &[u8]| {
            usersock::send_guarded(guarded.as_fd(), XFRM_PORT, [head, rest]).expect("sent");
        };
        send(b"hello", b"");
        send(&vouched(0, 5), b"hello");
        send(&vouched(XFRM_PORT, 5), b"hello");
        send(&vouched(7, 5), b"hell");
        send(&vouched(7, 5), b"hello");
        let mut asked = Vec::new();
        server.serve_once(Duration::from_secs(5), &waker, &[], |request, from| {
            asked.push((from.port, request.to_vec()));
            Replies::default()
        });
        assert_eq!(asked, [(7, b"hello".to_vec())]);
    }

    #[test]
    fn a_launcher_of_an_older_version_is_told_of_once() {
        let Some(netns) = testing::namespace("xfrm::socket") else { return };
        let socket = Socket::open(&netns).expect("the port");
        let mut server = Server::new(&socket).expect("it is open");
        let waker = Waker::new().expect("a waker");
        let asker = client(&netns, 0);
        let mut warned_by = |type_: u16| {
            let mut request = [0; 16];
            request[0] = 16;
            request[4..6].copy_from_slice(&type_.to_ne_bytes());
            usersock::send(asker.as_fd(), XFRM_PORT, &request).expect("a request");
            server.serve_once(Duration::from_secs(5), &waker, &[], |_, _| Replies::default());
            server.warned
        };
        assert!(!warned_by(Question::Stat.kind()), "everybody may ask this");
        assert!(warned_by(sealane_abi::xfrm::XFRM_MSG_GETSA));
        // By the guarded way it has rights.
        let mut server = Server::new(&socket).expect("it is open");
        ask(&netns, &asker, &[16, 0, 0, 0, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        server.serve_once(Duration::from_secs(5), &waker, &[], |_, _| Replies::default());
        assert!(!server.warned);
    }

    #[test]
    fn an_asker_that_does_not_read_gets_everything_later() {
        let Some(netns) = testing::namespace("xfrm::socket") else { return };
        let dump = |_: &[u8], _: Sender| Replies {
            unicast: (0..2000u32).map(|n| Zeroizing::new([&n.to_ne_bytes()[..], &[0; 4000]].concat())).collect(),
            events: Vec::new(),
        };
        let (send, receive) = mpsc::channel();
        served(&netns, dump, |_| {
            let (slow, quick) = (client(&netns, 0), client(&netns, 0));
            ask(&netns, &slow, b"x");
            read(&slow);
            // Other clients do not wait for it.
            ask(&netns, &quick, b"x");
            for n in 0..2000u32 {
                assert_eq!(read(&quick).1[..4], n.to_ne_bytes());
            }
            for n in 1..2000u32 {
                assert_eq!(read(&slow).1[..4], n.to_ne_bytes());
            }
            send.send(()).expect("a receiver");
        });
        receive.recv().expect("it came to its end");
    }

    #[test]
    fn who_has_no_rights_takes_no_room_from_others() {
        let Some(netns) = testing::namespace("xfrm::socket") else { return };
        let dump = |request: &[u8], from: Sender| Replies {
            unicast: match from.caller.privileged {
                true => (0..2000u32).map(|n| Zeroizing::new([&n.to_ne_bytes()[..], &[0; 4000]].concat())).collect(),
                false => vec![Zeroizing::new(request.repeat(2)); 64],
            },
            events: Vec::new(),
        };
        let socket = Socket::open(&netns).expect("the port");
        let mut server = Server::new(&socket).expect("it is open");
        let waker = Waker::new().expect("a waker");
        let strangers: Vec<OwnedFd> = (0..2 * MAX_UNPRIVILEGED).map(|_| client(&netns, 0)).collect();
        for round in 0..4 {
            for stranger in &strangers {
                usersock::send(stranger.as_fd(), XFRM_PORT, &[round; 30_000]).expect("a request");
                server.serve_once(Duration::from_secs(1), &waker, &[], dump);
            }
        }
        let [unprivileged, privileged] = &server.kept;
        assert!((1..=MAX_UNPRIVILEGED).contains(&unprivileged.askers), "{}", unprivileged.askers);
        assert!(unprivileged.len <= MAX_WAITING_UNPRIVILEGED && unprivileged.len > 2 << 20, "{}", unprivileged.len);
        assert_eq!((privileged.askers, privileged.len), (0, 0));
        // Root has room.
        let root = client(&netns, 0);
        ask(&netns, &root, b"x");
        for n in 0..2000u32 {
            while !sealane_sys::peer::readable(root.as_fd(), 0) {
                server.serve_once(Duration::from_millis(10), &waker, &[], dump);
            }
            assert_eq!(read(&root).1[..4], n.to_ne_bytes());
        }
        // Clients that are gone are forgotten.
        drop((strangers, root));
        server.send_waiting();
        let rest = server.kept.iter().map(|kept| (kept.askers, kept.len));
        assert!(rest.eq([(0, 0), (0, 0)]) && server.waiting.is_empty());
    }
}
