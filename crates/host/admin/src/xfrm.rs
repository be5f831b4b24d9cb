//! The client of the IPsec daemon of a network namespace, which uses its netlink port without a launcher.

use sealane_abi::admin::ipsec::Status;
use sealane_abi::netlink::{Message, Messages, NLMSG_DONE, NLMSG_ERROR};
use sealane_abi::sealane::{Question, vouched};
use sealane_abi::xfrm::XfrmMessage;
use sealane_sys::netns::Netns;
use sealane_sys::{link, peer, presence, process, usersock};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The time limit of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The maximum length of a frame of the daemon in bytes.
const MAX_FRAME: usize = 4 << 20;

/// The refusal of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The error number.
    pub errno: i32,
    /// The text of the extended acknowledgement.
    pub text: Option<String>,
    /// Whether it ended a dump.
    pub dump: bool,
}

/// A socket that is connected to the port of a daemon.
#[derive(Debug)]
pub struct Client {
    /// For answers, and for requests if we have no rights.
    fd: OwnedFd,
    /// For requests.
    guarded: OwnedFd,
    /// The port of the daemon.
    daemon: u32,
    /// The header of requests names this port for answers.
    port: u32,
    seq: u32,
}

impl Client {
    /// Connects to the daemon of the current network namespace, or of the one with this name or path. `groups` is the
    /// mask of the multicast groups of XFRM to receive events of.
    ///
    /// # Errors
    /// `ConnectionRefused` if no daemon serves the namespace; otherwise the kernel's.
    pub fn connect(netns: Option<&str>, groups: u32) -> io::Result<Client> {
        within(netns, || {
            let fd = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
            let daemon = presence::port(fd.as_fd());
            Client::meet(fd, daemon, groups, PATIENCE)
        })
    }

    /// Connects a socket to the daemon at a port, which has so much time to show who it is.
    fn meet(fd: OwnedFd, daemon: u32, groups: u32, patience: Duration) -> io::Result<Client> {
        usersock::pass_credentials(fd.as_fd())?;
        usersock::set_receive_buffer(fd.as_fd(), 8 << 20)?;
        usersock::bind(fd.as_fd(), 0, groups)?;
        usersock::connect(fd.as_fd(), daemon)?;
        let port = usersock::port(fd.as_fd())?;
        let mut client = Client { fd, guarded: usersock::open_guarded()?, daemon, port, seq: 0 };
        // By the answer the kernel tells who serves the port, before a key is sent there.
        let flags = sealane_abi::netlink::NLM_F_REQUEST | sealane_abi::netlink::NLM_F_ACK;
        let hello = sealane_abi::netlink::answer::message(sealane_abi::netlink::NLMSG_NOOP, flags, 0, 0, &[]);
        client.send(&hello, patience)?;
        client.frame(Some(patience), |_| true)?;
        Ok(client)
    }

    fn send(&mut self, bytes: &[u8], patience: Duration) -> io::Result<()> {
        let start = Instant::now();
        let header = vouched(self.port, bytes.len());
        loop {
            let sent = match usersock::send_guarded(self.guarded.as_fd(), self.daemon, [&header, bytes]) {
                // The daemon refuses what comes by the other way.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                    usersock::send(self.fd.as_fd(), self.daemon, bytes)
                }
                sent => sent,
            };
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && start.elapsed() < patience => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                sent => return sent.map(drop),
            }
        }
    }

    /// The next frame of the daemon that is `wanted`. The argument tells whether the frame is unicast.
    fn frame(&mut self, patience: Option<Duration>, wanted: impl Fn(bool) -> bool) -> io::Result<Zeroizing<Vec<u8>>> {
        let until = patience.map(|p| Instant::now() + p);
        let mut bytes = Zeroizing::new(vec![0; 32 << 10]);
        loop {
            if until.is_some_and(|t| Instant::now() >= t) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            peer::readable(self.fd.as_fd(), 1000);
            let frame = match usersock::receive(self.fd.as_fd(), &mut bytes, libc::MSG_PEEK) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                frame => frame?,
            };
            if frame.len > bytes.len() && frame.len <= MAX_FRAME {
                bytes = Zeroizing::new(vec![0; frame.len]);
                continue;
            }
            usersock::receive(self.fd.as_fd(), &mut [], 0)?;
            let uid = frame.sender.map(|s| s.uid);
            let ours = frame.port == self.daemon && uid.is_some_and(|u| u == 0 || u == process::effective_user());
            if ours && frame.len <= bytes.len() && wanted(frame.groups == 0) {
                bytes.truncate(frame.len);
                return Ok(bytes);
            }
            if frame.port == self.daemon && !ours && frame.groups == 0 {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
        }
    }

    /// Sends a request and passes each message of the answer to `each`. `NLM_F_REQUEST` is added to `flags`. Without
    /// `NLM_F_DUMP` and `NLM_F_ACK` the answer is one message.
    ///
    /// # Errors
    /// Those of the system. A refusal of the daemon is the inner result.
    pub fn ask(
        &mut self,
        request: &XfrmMessage,
        flags: u16,
        mut each: impl FnMut(&Message<'_>),
    ) -> io::Result<Result<(), Refusal>> {
        self.seq += 1;
        self.send(&request.encode(flags | sealane_abi::netlink::NLM_F_REQUEST, self.seq, 0), PATIENCE)?;
        let many = flags & (sealane_abi::netlink::NLM_F_DUMP | sealane_abi::netlink::NLM_F_ACK) != 0;
        loop {
            let frame = self.frame(Some(PATIENCE), |unicast| unicast)?;
            for message in Messages::new(&frame).filter(|m| m.header.nlmsg_seq == self.seq) {
                match message.header.nlmsg_type {
                    NLMSG_ERROR | NLMSG_DONE => return Ok(outcome(&message)),
                    _ => each(&message),
                }
                if !many {
                    return Ok(Ok(()));
                }
            }
        }
    }

    /// The status of IPsec in the network namespace of the daemon.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if the answer is not a status.
    pub fn status(&mut self) -> io::Result<Status> {
        Ok(serde_json::from_str(&self.text(Question::Status)?)?)
    }

    /// The answer to a question: a text.
    ///
    /// # Errors
    /// Those of the system; `InvalidData` if something else is answered.
    pub fn text(&mut self, question: Question) -> io::Result<String> {
        let flags = sealane_abi::netlink::NLM_F_REQUEST;
        self.send(&sealane_abi::netlink::answer::message(question.kind(), flags, 0, 0, &[]), PATIENCE)?;
        let answer = self.frame(Some(PATIENCE), |unicast| unicast)?;
        let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the daemon answers something else");
        question.text(&answer).map(str::to_owned).ok_or_else(invalid)
    }

    /// Waits for the next event and passes its messages to `each`.
    ///
    /// # Errors
    /// Those of the system; `ENOBUFS` if events were lost. More events can follow.
    pub fn event(&mut self, each: impl FnMut(Message<'_>)) -> io::Result<()> {
        let frame = self.frame(None, |unicast| !unicast)?;
        Messages::new(&frame).for_each(each);
        Ok(())
    }
}

/// Whether a daemon has a port in the calling thread's network namespace, and says so within this time: it is no other
/// program.
#[must_use]
pub fn is_daemon_at(port: u32, patience: Duration) -> bool {
    let socket = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK);
    socket.and_then(|fd| Client::meet(fd, port, 0, patience)).is_ok()
}

/// The result in an acknowledgement or in the last message of a dump.
fn outcome(message: &Message<'_>) -> Result<(), Refusal> {
    let errno = message.payload.first_chunk().map_or(0, |b| -i32::from_ne_bytes(*b));
    let text = || sealane_abi::netlink::answer::text(message).map(str::to_owned);
    if errno == 0 {
        Ok(())
    } else {
        Err(Refusal { errno, text: text(), dump: message.header.nlmsg_type == NLMSG_DONE })
    }
}

/// Runs `f` in a namespace. The current one needs no privileges.
fn within<T: Send>(netns: Option<&str>, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    match netns {
        None => f(),
        Some(_) => Netns::named(netns)?.run(f),
    }
}

/// The index of an interface in a network namespace.
///
/// # Errors
/// The kernel's: `NotFound` if there is no interface of this name.
pub fn interface_index(netns: Option<&str>, name: &str) -> io::Result<u32> {
    within(netns, || link::index(name))
}

/// The names of the interfaces in a network namespace by index.
///
/// # Errors
/// The kernel's.
pub fn interface_names(netns: Option<&str>) -> io::Result<std::collections::HashMap<u32, String>> {
    within(netns, || {
        let text = std::fs::read_to_string("/proc/thread-self/net/dev")?;
        let names = text.lines().skip(2).filter_map(|l| l.split_once(':').map(|(n, _)| n.trim().to_owned()));
        Ok(names.filter_map(|n| link::index(&n).ok().map(|i| (i, n))).collect())
    })
}
