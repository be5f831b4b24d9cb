//! Netlink: messages written into one buffer, and a socket that sends them and reads the kernel's answers.
//!
//! The kernel handles a request while `sendmsg` runs, so that all answers are in the socket's buffer when it returns.
//! Nothing here waits.

pub use super::refusal::{Refusal, errno};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::netlink::SocketAddrNetlink;
use sealane_abi::netlink as nl;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use zerocopy::IntoBytes;
use zeroize::Zeroize;

/// An attribute that contains others.
const NLA_F_NESTED: u16 = 0x8000;

/// The number of times that a dump is tried when changes interrupt it.
const DUMPS: u32 = 16;

// Constants of rtnetlink that `libc` lacks for some C libraries (`linux/rtnetlink.h`, `linux/if_addr.h`).
pub(super) const RTA_VIA: u16 = 18;
pub(super) const RTA_ENCAP: u16 = 22;
pub(super) const RTAX_MTU: u16 = 2;
pub(super) const IFA_ADDRESS: u16 = 1;
/// The address of a device, where it differs from the one of its peer (`linux/if_addr.h`).
pub const IFA_LOCAL: u16 = 2;

/// The length of a socket's buffers, in bytes.
const BUFFER_LEN: i32 = 8 << 20;

/// The most bytes that one read returns. The longest message read is an NFQUEUE message with a packet of 64 KB; answers
/// to requests have the size of a page.
const ANSWER_LEN: usize = 64 << 10;

/// Messages for one `send`.
#[derive(Debug, Default, Clone)]
pub struct Messages {
    buf: Vec<u8>,
    count: u32,
}

impl Messages {
    /// An empty buffer.
    pub fn new() -> Self {
        Messages::default()
    }

    /// Appends a message: its fixed header `fixed` (padded to 4 bytes), then the attributes that `attributes` writes.
    pub fn push(&mut self, type_: u16, flags: u16, fixed: &[u8], attributes: impl FnOnce(&mut Attributes<'_>)) {
        let start = self.buf.len();
        self.buf.resize(start + nl::NLMSG_HDRLEN, 0);
        self.buf.extend_from_slice(fixed);
        self.buf.resize(nl::align(self.buf.len()), 0);
        attributes(&mut Attributes { buf: &mut self.buf });
        let header = nl::Nlmsghdr {
            nlmsg_len: (self.buf.len() - start) as u32,
            nlmsg_type: type_,
            nlmsg_flags: flags | nl::NLM_F_REQUEST,
            nlmsg_seq: self.count,
            nlmsg_pid: 0,
        };
        self.buf[start..start + nl::NLMSG_HDRLEN].copy_from_slice(header.as_bytes());
        self.count += 1;
    }

    /// Requests an acknowledgement of the message that begins at byte `at`.
    ///
    /// # Panics
    /// When no message begins there.
    pub fn acknowledge(&mut self, at: usize) {
        let flags = &mut self.buf[at + 6..at + 8];
        flags.copy_from_slice(&(u16::from_ne_bytes([flags[0], flags[1]]) | nl::NLM_F_ACK).to_ne_bytes());
    }

    /// The bytes to send.
    pub fn bytes(&self) -> &[u8] {
        &self.buf
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The number of messages.
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Removes all messages but keeps the memory.
    pub fn clear(&mut self) {
        self.buf.clear();
        self.count = 0;
    }
}

/// Writes the attributes of a message.
pub struct Attributes<'a> {
    buf: &'a mut Vec<u8>,
}

impl Attributes<'_> {
    /// Writes one attribute.
    pub fn put(&mut self, type_: u16, payload: &[u8]) {
        nl::push_attr(self.buf, type_, payload);
    }

    /// Writes bytes that are not an attribute: some families nest a fixed header.
    pub fn raw(&mut self, bytes: &[u8]) {
        self.buf.extend_from_slice(bytes);
        self.buf.resize(nl::align(self.buf.len()), 0);
    }

    /// Writes a number in network byte order, as in netfilter.
    pub fn be32(&mut self, type_: u16, value: u32) {
        self.put(type_, &value.to_be_bytes());
    }

    /// Writes a number in host byte order, as in rtnetlink.
    pub fn u32(&mut self, type_: u16, value: u32) {
        self.put(type_, &value.to_ne_bytes());
    }

    /// Writes an address of 4 or 16 bytes.
    pub fn ip(&mut self, type_: u16, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => self.put(type_, &v4.octets()),
            IpAddr::V6(v6) => self.put(type_, &v6.octets()),
        }
    }

    /// Writes a string with its terminating zero.
    pub fn str(&mut self, type_: u16, value: &str) {
        let at = self.buf.len();
        self.put(type_, value.as_bytes());
        // The zero counts towards the length; it fits into the padding or takes another word.
        let len = nl::NLA_HDRLEN + value.len() + 1;
        self.buf.resize(at + nl::align(len), 0);
        self.buf[at..at + 2].copy_from_slice(&(len as u16).to_ne_bytes());
    }

    /// Writes an attribute that contains the attributes that `inner` writes.
    ///
    /// # Panics
    /// When these are longer than 65,535 bytes.
    pub fn nest(&mut self, type_: u16, inner: impl FnOnce(&mut Attributes<'_>)) {
        let at = self.buf.len();
        self.put(type_ | NLA_F_NESTED, &[]);
        inner(&mut Attributes { buf: self.buf });
        let len = u16::try_from(self.buf.len() - at).expect("lists are cut before they grow too long");
        self.buf[at..at + 2].copy_from_slice(&len.to_ne_bytes());
    }
}

/// The address in an attribute; `None` if its length matches no family.
pub(super) fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// The family of an address, as in fixed headers.
pub(super) fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { libc::AF_INET as u8 } else { libc::AF_INET6 as u8 }
}

/// A netlink socket in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    buf: Vec<u8>,
}

impl Socket {
    /// Opens and binds a socket.
    ///
    /// # Errors
    /// The kernel's; `EPROTONOSUPPORT` where it lacks the protocol.
    pub fn open(protocol: i32) -> io::Result<Self> {
        let fd = super::socket::open(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        // Port 0: the kernel assigns one.
        rustix::net::bind(&fd, &SocketAddrNetlink::new(0, 0))?;
        let socket = Socket { fd, buf: vec![0; ANSWER_LEN] };
        // Explanations of errors, and acknowledgements without the request: both are optional features of newer
        // kernels.
        let _ = socket.set(libc::SOL_NETLINK, libc::NETLINK_EXT_ACK, 1);
        let _ = socket.set(libc::SOL_NETLINK, libc::NETLINK_CAP_ACK, 1);
        // All answers to a batch of thousands of elements wait in the first of these buffers. Who may not change rules, as
        // CAP_NET_ADMIN lets, has less to ask, and gets as much as `net.core.rmem_max` allows.
        for (beyond, within) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
            match socket.set(libc::SOL_SOCKET, beyond, BUFFER_LEN) {
                Err(e) if errno(&e) == Some(libc::EPERM) => socket.set(libc::SOL_SOCKET, within, BUFFER_LEN)?,
                done => done?,
            }
        }
        Ok(socket)
    }

    /// Takes over a socket of another process, which ended or shares it. Answers that nobody has read are dropped.
    ///
    /// # Errors
    /// The kernel's; `InvalidInput` for anything but a netlink socket that is bound.
    pub fn adopt(fd: OwnedFd) -> io::Result<Self> {
        if SocketAddrNetlink::try_from(rustix::net::getsockname(&fd)?).is_ok_and(|name| name.pid() != 0) {
            let mut socket = Socket { fd, buf: vec![0; ANSWER_LEN] };
            // A read fails once where answers were lost.
            let mut lost = 2;
            while lost > 0 {
                match socket.read() {
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(socket),
                    Err(_) => lost -= 1,
                }
            }
        }
        Err(io::ErrorKind::InvalidInput.into())
    }

    /// Sets an option whose value is an integer.
    ///
    /// # Errors
    /// The kernel's.
    pub fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        super::socket::set_option(self.fd.as_fd(), level, option, &value)
    }

    /// Joins a multicast group.
    ///
    /// # Errors
    /// The kernel's.
    pub fn join(&self, group: u32) -> io::Result<()> {
        self.set(libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group as i32)
    }

    /// Receives only the datagrams that a filter keeps, from now on.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn keep_only(&self, filter: &[libc::sock_filter]) -> io::Result<()> {
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
        super::socket::set_option(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
    }

    /// The port that the kernel assigned to this socket; notifications carry it if this socket caused the change.
    ///
    /// # Errors
    /// The kernel's.
    pub fn port(&self) -> io::Result<u32> {
        Ok(SocketAddrNetlink::try_from(rustix::net::getsockname(&self.fd)?)?.pid())
    }

    /// Sends messages without reading answers.
    ///
    /// # Errors
    /// The kernel's.
    pub fn send(&self, messages: &Messages) -> io::Result<()> {
        self.send_bytes(messages.bytes())
    }

    /// Sends messages, of which at least the last one requests an acknowledgement.
    ///
    /// # Errors
    /// The first refusal, as a [`Refusal`]; `ENODATA` when the kernel did not answer.
    pub fn transact(&mut self, messages: &Messages) -> io::Result<()> {
        self.request(messages, |_| {})
    }

    /// Sends one request or dump and hands every message of the answer to `each`.
    ///
    /// # Errors
    /// As [`Socket::transact`], also where a dump ended early; `EINTR` when the dumped data changed meanwhile.
    pub fn request(&mut self, messages: &Messages, each: impl FnMut(&nl::Message<'_>)) -> io::Result<()> {
        if messages.is_empty() { Ok(()) } else { self.exchange(messages.bytes(), each) }
    }

    /// Sends a dump whose messages `each` collects; starts over when the dumped data changed meanwhile.
    ///
    /// # Errors
    /// As [`Socket::request`], when it keeps changing.
    pub fn dump<T: Default>(
        &mut self,
        messages: &Messages,
        mut each: impl FnMut(&mut T, &nl::Message<'_>),
    ) -> io::Result<T> {
        whole(|all| self.request(messages, |message| each(all, message)))
    }

    /// Like [`Socket::request`], for messages that somebody else encoded.
    ///
    /// # Errors
    /// As [`Socket::request`].
    pub fn exchange(&mut self, messages: &[u8], mut each: impl FnMut(&nl::Message<'_>)) -> io::Result<()> {
        self.send_bytes(messages)?;
        let mut answer = Answer::default();
        while let Some(n) = self.read()? {
            answer.read(&self.buf[..n], &mut each);
            if answer.done {
                break;
            }
        }
        answer.outcome()
    }

    /// Sends encoded messages. A transaction is one piece, however many rules it has: the buffer grows with it.
    fn send_bytes(&self, messages: &[u8]) -> io::Result<()> {
        let sent = super::socket::send(self.fd.as_fd(), messages);
        if !sent.as_ref().is_err_and(|e| errno(e) == Some(libc::EMSGSIZE)) {
            return sent.map(drop);
        }
        // The kernel doubles this, and keeps some of it for itself.
        let room = i32::try_from(messages.len()).unwrap_or(i32::MAX);
        let again = self.set(libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, room);
        again.and_then(|()| super::socket::send(self.fd.as_fd(), messages)).map(drop).map_err(|e| {
            io::Error::new(e.kind(), format!("{} bytes in one message to the kernel: {e}", messages.len()))
        })
    }

    /// Hands pending multicast messages to `each`. Does not wait.
    ///
    /// # Errors
    /// `ENOBUFS` when some messages were lost.
    pub fn receive(&mut self, mut each: impl FnMut(&nl::Message<'_>)) -> io::Result<()> {
        while let Some(n) = self.read()? {
            for message in nl::Messages::new(&self.buf[..n]) {
                each(&message);
            }
        }
        Ok(())
    }

    /// Wipes the buffer: it may contain keys.
    pub fn wipe(&mut self) {
        // On the slice: zeroizing a vector would empty it.
        self.buf[..].zeroize();
    }

    /// Reads one datagram; `None` when there is none.
    fn read(&mut self) -> io::Result<Option<usize>> {
        loop {
            match rustix::net::recv(&self.fd, &mut self.buf[..], RecvFlags::DONTWAIT) {
                Ok((n, _)) => return Ok(Some(n)),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return super::transient::counted(Err(error.into())),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Repeats a dump until one is not interrupted, at most [`DUMPS`] times.
fn whole<T: Default>(mut dump: impl FnMut(&mut T) -> io::Result<()>) -> io::Result<T> {
    let mut rest = DUMPS;
    loop {
        let mut all = T::default();
        rest -= 1;
        match dump(&mut all) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted && rest > 0 => {}
            done => return done.map(|()| all),
        }
    }
}

/// The state of an answer while it is read.
#[derive(Debug, Default)]
struct Answer {
    refused: Option<Refusal>,
    /// Whether any message has arrived.
    any: bool,
    /// Whether the dumped data changed meanwhile.
    interrupted: bool,
    /// Whether a dump has ended.
    done: bool,
}

impl Answer {
    /// Reads a datagram of the answer, and hands messages other than outcomes to `each`.
    fn read(&mut self, datagram: &[u8], mut each: impl FnMut(&nl::Message<'_>)) {
        for message in nl::Messages::new(datagram) {
            self.any = true;
            self.interrupted |= message.header.nlmsg_flags & nl::NLM_F_DUMP_INTR != 0;
            match message.header.nlmsg_type {
                nl::NLMSG_ERROR | nl::NLMSG_DONE => {
                    self.done |= message.header.nlmsg_type == nl::NLMSG_DONE;
                    let earlier = |r: &Refusal| self.refused.as_ref().is_none_or(|known| r.message < known.message);
                    if let Some(refusal) = refusal(&message).filter(earlier) {
                        self.refused = Some(refusal);
                    }
                }
                nl::NLMSG_NOOP => {}
                _ => each(&message),
            }
        }
    }

    fn outcome(self) -> io::Result<()> {
        match self.refused {
            Some(refusal) => Err(refusal.into()),
            None if !self.any => Err(io::Error::from_raw_os_error(libc::ENODATA)),
            None if self.interrupted => Err(io::Error::from_raw_os_error(libc::EINTR)),
            None => Ok(()),
        }
    }
}

/// The refusal in an `NLMSG_ERROR` or `NLMSG_DONE`; `None` for an acknowledgement and the end of a whole dump.
fn refusal(message: &nl::Message<'_>) -> Option<Refusal> {
    let (code, rest) = message.payload.split_first_chunk::<4>()?;
    let errno = i32::from_ne_bytes(*code).checked_neg().filter(|&e| e > 0)?;
    // An error contains the header of the message that it refers to.
    let about = match message.header.nlmsg_type {
        nl::NLMSG_ERROR => <nl::Nlmsghdr as zerocopy::FromBytes>::read_from_prefix(rest).ok()?.0,
        _ => message.header,
    };
    let hint = nl::answer::text(message).unwrap_or_default().to_owned();
    Some(Refusal { message: about.nlmsg_seq, errno, hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_read_back_as_written() {
        let mut messages = Messages::new();
        messages.push(7, nl::NLM_F_ACK, &[1, 2, 3], |a| {
            a.be32(1, 0x0102_0304);
            a.str(2, "abc");
            a.str(3, "abcd");
            a.nest(4, |a| a.u32(5, 9));
            a.ip(6, IpAddr::from([192, 0, 2, 1]));
            a.ip(7, IpAddr::from([7; 16]));
        });
        messages.push(8, 0, &[], |_| {});
        let read: Vec<_> = nl::Messages::new(messages.bytes()).collect();
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].header.nlmsg_type, read[0].header.nlmsg_seq), (7, 0));
        assert_eq!((read[1].header.nlmsg_type, read[1].header.nlmsg_seq), (8, 1));
        assert_eq!(&read[0].payload[..4], [1, 2, 3, 0]);
        let attributes: Vec<_> = nl::Attrs::new(&read[0].payload[4..]).collect();
        assert_eq!(attributes[0].payload, [1, 2, 3, 4]);
        assert_eq!(attributes[1].payload, b"abc\0");
        assert_eq!(attributes[2].payload, b"abcd\0");
        assert_eq!(attributes[3].type_, 4);
        assert_eq!(nl::Attrs::new(attributes[3].payload).next().expect("nested").payload, 9u32.to_ne_bytes());
        assert_eq!(ip(attributes[4].payload), Some([192, 0, 2, 1].into()));
        assert_eq!(ip(attributes[5].payload), Some([7; 16].into()));
        assert_eq!((ip(&[1, 2, 3]), ip(&[])), (None, None));
    }

    #[test]
    fn a_refusal_tells_which_message_and_why() {
        // A device that does not exist; rtnetlink answers unprivileged users too.
        let mut socket = Socket::open(libc::NETLINK_ROUTE).expect("a socket");
        let mut messages = Messages::new();
        let fixed = [0u8; 16];
        messages.push(libc::RTM_GETLINK, nl::NLM_F_ACK, &fixed, |a| a.str(libc::IFLA_IFNAME, "no-such-link"));
        let error = socket.transact(&messages).expect_err("refused");
        assert_eq!(errno(&error), Some(libc::ENODEV), "{error}");
    }

    #[test]
    fn an_answer_is_what_the_kernel_said() {
        use nl::answer::{AckOptions, ExtAck, done, message};
        use sealane_abi::Errno;
        let item = || message(0x10, nl::NLM_F_MULTI, 0, 0, b"item");
        let end =
            |flags, outcome| done(0, 0, flags, outcome, AckOptions { ext: true, cap: true }, &ExtAck::text("why"));
        let read = |datagrams: &[Vec<u8>]| {
            let (mut answer, mut items) = (Answer::default(), 0);
            datagrams.iter().for_each(|datagram| answer.read(datagram, |_| items += 1));
            (answer.done, items, answer.outcome().map_err(|e| (errno(&e), e.to_string())))
        };
        assert_eq!(read(&[[item(), item()].concat(), end(0, Ok(()))]), (true, 2, Ok(())));
        assert_eq!(read(&[item()]), (false, 1, Ok(())), "more is to come");
        // A dump that ended early, after some items.
        let (ended, items, outcome) = read(&[[item(), end(0, Err(Errno::ENOENT))].concat()]);
        let (number, text) = outcome.expect_err("the rest is missing");
        assert_eq!((ended, items, number), (true, 1, Some(libc::ENOENT)));
        assert!(text.ends_with(": why"), "{text}");
        // A dump that was interrupted, whichever message says so.
        let mut told = item();
        told[6] |= nl::NLM_F_DUMP_INTR as u8;
        for datagram in [[told, end(0, Ok(()))].concat(), end(nl::NLM_F_DUMP_INTR, Ok(()))] {
            assert_eq!(read(&[datagram]).2.expect_err("it may be wrong").0, Some(libc::EINTR));
        }
        assert_eq!(read(&[]).2.expect_err("nobody answered").0, Some(libc::ENODATA));
    }

    #[test]
    fn an_interrupted_dump_is_begun_anew() {
        let mut times = 0;
        let mut dump = |interrupted: u32, all: &mut Vec<u32>| {
            times += 1;
            all.push(times);
            let error = if times <= interrupted { libc::EINTR } else { libc::ENOENT };
            if times == interrupted + 1 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
        };
        assert_eq!(whole(|all| dump(2, all)).expect("the third one is whole"), [3]);
        assert_eq!(whole(|all| dump(0, all)).expect_err("not interrupted").raw_os_error(), Some(libc::ENOENT));
        let endless = whole(|all| dump(u32::MAX - 1, all)).expect_err("it goes on changing");
        assert_eq!((endless.raw_os_error(), times), (Some(libc::EINTR), 4 + DUMPS));
    }

    #[test]
    fn dumps_are_read_to_their_end() {
        let mut socket = Socket::open(libc::NETLINK_ROUTE).expect("a socket");
        let mut messages = Messages::new();
        messages.push(libc::RTM_GETLINK, nl::NLM_F_DUMP, &[0; 16], |_| {});
        let mut names = 0;
        socket.request(&messages, |m| names += usize::from(m.header.nlmsg_type == libc::RTM_NEWLINK)).expect("a dump");
        assert!(names >= 1, "there is always lo");
    }
}
