//! The daemon of a program's network namespace, new sockets, and options of other sockets that concern IPsec.

use super::sockets::{Daemon, XfrmSocket};
use crate::serve::server::{Done, Verdict};
use crate::serve::supervisor::{CallContext, MayBlock};
use parking_lot::Mutex;
use sealane_abi::netlink::{NLM_F_ACK, NLM_F_REQUEST, NLMSG_NOOP, answer};
use sealane_abi::sealane::{Question, XFRM_PORT, vouched};
use sealane_abi::socket::{NAT_T, UDP_ENCAP};
use sealane_abi::xfrm::{UserpolicyInfo, XFRM_POLICY_ALLOW, XFRM_POLICY_IN, XFRM_POLICY_OUT};
use sealane_sys::marks::Bits;
use sealane_sys::netns::{self, Netns};
use sealane_sys::peer::readable;
use sealane_sys::rights;
use sealane_sys::thread::{Span, Thread};
use sealane_sys::{presence, process, runtime, stream, tcp_socket, usersock};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;

/// The longest time in which a daemon that has ended may be followed by another one. Programs wait for it, so that they
/// do not notice a restart.
pub(super) const RESTART: Duration = Duration::from_secs(3);

/// The time that a daemon has to identify itself.
const PATIENCE_MS: i32 = 2000;
/// The time that it has to make an xfrm interface.
const CHANGE_MS: i32 = 30_000;
/// Whether frames of a user are the daemon's: root's, or our own user's.
pub(super) fn trusted(uid: u32) -> bool {
    uid == 0 || uid == process::effective_user()
}

/// Asks for the daemon of the calling thread's network namespace. None: there is no daemon.
///
/// # Errors
/// `PermissionDenied` when whoever has it is not to be told keys; otherwise the kernel's.
fn find_daemon(may_block: MayBlock<'_>) -> io::Result<Option<Daemon>> {
    Ok(meet(may_block)?.map(|(_, daemon)| daemon))
}

/// [`find_daemon`], with the socket by which it was asked. Where we have rights it is asked by the way that only who has them
/// can take: anybody may fill the other one.
fn meet(may_block: MayBlock<'_>) -> io::Result<Option<(OwnedFd, Daemon)>> {
    match usersock::open_guarded().and_then(|guarded| probe(may_block, Some(guarded.as_fd()))) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => probe(may_block, None),
        met => met,
    }
}

/// [`find_daemon`], with the socket by which it was asked. With `guarded`, the daemon is asked by that socket.
fn probe(_: MayBlock<'_>, guarded: Option<BorrowedFd<'_>>) -> io::Result<Option<(OwnedFd, Daemon)>> {
    let probe = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
    usersock::pass_credentials(probe.as_fd())?;
    let port = presence::port(probe.as_fd());
    // From now on nobody else's frames get here.
    usersock::connect(probe.as_fd(), port)?;
    let hello = answer::message(NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 0, 0, &[]);
    match say(probe.as_fd(), port, guarded, &hello) {
        Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => return Ok(None),
        sent => sent?,
    }
    if !readable(probe.as_fd(), PATIENCE_MS) {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let frame = usersock::receive(probe.as_fd(), &mut [0; 64], 0)?;
    match frame.sender {
        Some(sender) if frame.port == port && trusted(sender.uid) => {
            let process = process::Watch::new(sender.pid);
            if sender.pid != 0 && process.is_none() {
                // It has ended.
                return Ok(None);
            }
            Ok(Some((probe, Daemon { port, process, seen: Instant::now() })))
        }
        _ => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Sends a message to the daemon's port, by the socket `guarded` if there is one. Answers go to the port of `answers`.
fn say(answers: BorrowedFd<'_>, port: u32, guarded: Option<BorrowedFd<'_>>, message: &[u8]) -> io::Result<()> {
    match guarded {
        Some(guarded) => {
            let header = vouched(usersock::port(answers)?, message.len());
            usersock::send_guarded(guarded, port, [&header, message])
        }
        None => usersock::send(answers, port, message),
    }
    .map(drop)
}

/// Waits until the daemon has done all that it was asked for in a peer's namespace so far: it answers in order what comes
/// by the same way.
pub(super) fn wait_for_daemon(may_block: MayBlock<'_>, peer: &Thread, guarded: Option<BorrowedFd<'_>>) {
    // Whatever is wrong, the request has been sent.
    let _ = peer_netns(peer).and_then(|netns| within(&netns, || probe(may_block, guarded)));
}

/// The devices of the daemon that serves, or served, a namespace; none where there was no daemon, or it ended in good
/// order.
pub(super) fn devices(cookie: u64) -> Option<Vec<String>> {
    presence::devices(&runtime::folders(), cookie)
}

/// The server of NETLINK_XFRM in a namespace.
enum Served {
    /// A daemon.
    Daemon(Daemon),
    /// None, but there was one, and what it had in force may still be wanted.
    Died,
    /// None.
    Nobody,
}

/// The server of NETLINK_XFRM in the calling thread's namespace.
fn served(may_block: MayBlock<'_>) -> io::Result<Served> {
    let found = find_daemon(may_block);
    if let Ok(Some(daemon)) = found {
        return Ok(Served::Daemon(daemon));
    }
    let socket = usersock::open(libc::SOCK_RAW, 0)?;
    if netns::cookie(socket.as_fd()).is_ok_and(|cookie| devices(cookie).is_some()) {
        // Its port may be somebody else's now.
        return Ok(Served::Died);
    }
    found.map(|_| Served::Nobody)
}

/// Whether a daemon serves a namespace, or did and has died.
///
/// # Errors
/// The kernel's, or those of asking a daemon.
pub(in crate::serve) fn is_served(may_block: MayBlock<'_>, netns: &Netns) -> io::Result<bool> {
    within(netns, || Ok(!matches!(served(may_block)?, Served::Nobody)))
}

/// Whether it is worth going into a peer's namespace: it is ours, somebody has the daemon's usual port there, or some
/// daemon left a mark.
fn may_have_daemon(peer: &Thread, netns: &Netns) -> bool {
    // The table of ports has a line for each socket of any program there.
    let same = Netns::current().and_then(|ours| Ok(ours.id()? == netns.id()?));
    if same.unwrap_or(false) {
        return true;
    }
    let has_port = peer.ask(rights::ports).is_some_and(|ports| ports.is_ok_and(|ports| ports.contains(&XFRM_PORT)));
    has_port || presence::any(&runtime::folders())
}

fn peer_netns(peer: &Thread) -> io::Result<Netns> {
    peer.namespace("net").map(Netns::from).map_err(io::Error::from_raw_os_error)
}

/// Ends a call on NETLINK_XFRM in a peer's namespace unless a daemon serves it there, or did and has died.
///
/// # Errors
/// The end of the call, by the rule for namespaces without a daemon, or because a daemon cannot be asked.
pub(in crate::serve) fn only_served(call: &CallContext<'_>) -> Result<(), Verdict> {
    let Ok(netns) = peer_netns(call.peer) else { return Err(unserved(call, None)) };
    let may_block = may_meet_daemon(call, &netns)?;
    let is_served = is_served(may_block, &netns).map_err(|e| refused(&e))?;
    if is_served { Ok(()) } else { Err(unserved(call, Some(&netns))) }
}

/// Has others served meanwhile, because the daemon of a namespace may be slow to answer, or still to come: one that serves by a
/// pattern does so a moment after the namespace has got its name.
///
/// # Errors
/// The end of the call, if no daemon serves it.
fn may_meet_daemon<'a>(call: &'a CallContext<'_>, netns: &Netns) -> Result<MayBlock<'a>, Verdict> {
    let is_expected = netns.id().is_ok_and(|id| presence::is_expected(&runtime::folders(), presence::IPSEC, id));
    if !is_expected && !may_have_daemon(call.peer, netns) {
        return Err(unserved(call, Some(netns)));
    }
    if !is_expected {
        return Ok(call.may_block()?);
    }
    let cookie = netns.cookie().map_err(|e| refused(&e))?;
    let until = Instant::now() + presence::PATIENCE;
    Ok(call.wait_until(|_| devices(cookie).is_some() || Instant::now() >= until)?)
}

/// The end of a call where no daemon serves.
fn unserved(call: &CallContext<'_>, netns: Option<&Netns>) -> Verdict {
    call.server.xfrm.unserved.refusal(netns).map_or(Verdict::Pass, Verdict::Fail)
}

/// Whether a caller has CAP_NET_ADMIN over a namespace.
pub(in crate::serve) fn may_administer(peer: &Thread, netns: &Netns) -> bool {
    peer.ask(|peer| rights::net_admin(peer, netns.as_fd())).unwrap_or(false)
}

/// Runs something in a namespace: here, where it is our own.
pub(in crate::serve) fn within<T: Send>(netns: &Netns, f: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    if Netns::current()?.id()? == netns.id()? { f() } else { netns.run(f) }
}

fn refused(e: &io::Error) -> Verdict {
    Verdict::Fail(match e.kind() {
        // Keys are told to nobody else, nor does the kernel's own IPsec take what was meant for a daemon.
        io::ErrorKind::PermissionDenied => libc::EACCES,
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => libc::ECONNREFUSED,
        _ => e.raw_os_error().unwrap_or(libc::EIO),
    })
}

/// Gives the program a descriptor of a socket, by preference one that `select` can have.
pub(in crate::serve) fn place(call: &CallContext<'_>, fd: BorrowedFd<'_>, cloexec: bool) -> Done {
    let numbers = &call.server.numbers;
    call.place(fd, cloexec, numbers.low.clone().chain(numbers.high.clone()))
}

/// `socket(PF_KEY, ...)`: refused as by a kernel without `CONFIG_NET_KEY`, because the kernel's own IPsec would take policies
/// by it whose states it may refuse. Where no daemon serves, the rule for NETLINK_XFRM decides.
pub(in crate::serve) fn refuse_pf_key(call: &CallContext<'_>) -> Done {
    // A program with more rights than its user is left alone.
    if call.peer.secure() {
        return Err(Verdict::Pass);
    }
    match only_served(call) {
        Ok(()) | Err(Verdict::Fail(_)) => {}
        other => return other.map(|()| 0),
    }
    let sentence = "asks for PF_KEY, which is not served: it is refused; use a key manager that speaks NETLINK_XFRM, as \
                    strongSwan and libreswan do";
    call.tell_of_program("PF_KEY", sentence);
    Err(libc::EAFNOSUPPORT.into())
}

/// `socket(AF_NETLINK, ..., NETLINK_XFRM)`.
pub(super) fn socket(call: &CallContext<'_>) -> Done {
    const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    if call.peer.secure() {
        return Err(Verdict::Pass);
    }
    let type_ = call.n.args[1] as i32;
    if !matches!(type_ & !FLAGS, libc::SOCK_RAW | libc::SOCK_DGRAM) {
        return Err(Verdict::Pass);
    }
    let netns = match peer_netns(call.peer) {
        Ok(netns) => netns,
        // The caller is gone, and its user not to be told of anything.
        Err(_) if !call.peer.waits() => return Err(Verdict::Answered),
        Err(_) => return Err(unserved(call, None)),
    };
    let may_block = may_meet_daemon(call, &netns)?;
    let made = within(&netns, || {
        let daemon = match served(may_block)? {
            Served::Nobody => return Ok(None),
            Served::Died => None,
            Served::Daemon(daemon) => Some(daemon),
        };
        let socket = usersock::open(type_ & !FLAGS, type_ & libc::SOCK_NONBLOCK)?;
        usersock::pass_credentials(socket.as_fd())?;
        Ok(Some((socket, usersock::open_guarded()?, daemon)))
    });
    let Some((socket, guarded, daemon)) = made.map_err(|e| refused(&e))? else {
        return Err(unserved(call, Some(&netns)));
    };
    let entry = XfrmSocket::new(may_administer(call.peer, &netns), guarded, daemon);
    call.server.xfrm.add(&socket, entry)?;
    place(call, socket.as_fd(), type_ & libc::SOCK_CLOEXEC != 0)
}

/// Takes over a socket that another launcher made for the program: like all of them it receives credentials, which
/// programs do not ask for on sockets of NETLINK_USERSOCK of their own.
pub(super) fn adopt(call: &CallContext<'_>, socket: &OwnedFd) -> Option<Arc<XfrmSocket>> {
    let server = call.server;
    if !server.xfrm.adopts() || !usersock::is_one(socket.as_fd()) || !usersock::passes_credentials(socket.as_fd()) {
        return None;
    }
    let netns = Netns::of_socket(socket.as_fd()).ok()?;
    let guarded = within(&netns, usersock::open_guarded).ok()?;
    // Whoever made it is not known; who uses it now is judged at each request.
    let entry = XfrmSocket::new(may_administer(call.peer, &netns), guarded, None);
    server.xfrm.add(socket, entry).ok()?;
    server.xfrm.find(socket)
}

impl XfrmSocket {
    fn new(maker_may: bool, guarded: OwnedFd, daemon: Option<Daemon>) -> Self {
        let (passes_credentials, bound) = (AtomicBool::new(false), AtomicBool::new(false));
        XfrmSocket {
            maker_may,
            passes_credentials,
            bound,
            guarded,
            receiving: Mutex::default(),
            daemon: Mutex::new(daemon),
        }
    }

    /// Makes sure that the daemon is there and is who it says. Returns its port.
    ///
    /// # Errors
    /// `ECONNREFUSED` when there is none now.
    pub(super) fn check_daemon(&self, may_block: MayBlock<'_>, socket: BorrowedFd<'_>) -> Result<u32, Verdict> {
        let mut daemon = self.daemon.lock();
        if let Some(daemon) = daemon.as_ref().filter(|daemon| daemon.is_current()) {
            return Ok(daemon.port);
        }
        *daemon = None;
        let netns = Netns::of_socket(socket).map_err(|e| refused(&e))?;
        let found = within(&netns, || find_daemon(may_block)).map_err(|e| refused(&e))?.ok_or(libc::ECONNREFUSED)?;
        let port = daemon.insert(found).port;
        // A socket that is connected to the kernel hears from this daemon alone.
        if ![0, port].contains(&usersock::connected(socket).map_err(|e| refused(&e))?) {
            usersock::connect(socket, port).map_err(|e| refused(&e))?;
        }
        Ok(port)
    }

    /// Whether the daemon that was met still lives.
    pub(super) fn lives(&self) -> bool {
        let lives = |daemon: &Daemon| daemon.process.as_ref().is_none_or(process::Watch::lives);
        self.daemon.lock().as_ref().is_some_and(lives)
    }

    /// Asks the daemon that is there now for an acknowledgement. It comes after the answers to all that the same daemon
    /// was asked before by the same way.
    ///
    /// # Errors
    /// `ECONNREFUSED` when there is none; otherwise the kernel's.
    pub(super) fn say_hello(&self, socket: BorrowedFd<'_>, guarded: Option<BorrowedFd<'_>>) -> io::Result<OwnedFd> {
        let hello = answer::message(NLMSG_NOOP, NLM_F_REQUEST | NLM_F_ACK, 0, 0, &[]);
        let ask = || {
            let probe = usersock::open(libc::SOCK_RAW, libc::SOCK_NONBLOCK)?;
            let port = presence::port(probe.as_fd());
            usersock::connect(probe.as_fd(), port)?;
            say(probe.as_fd(), port, guarded, &hello)?;
            Ok(probe)
        };
        Netns::of_socket(socket).and_then(|netns| within(&netns, ask))
    }
}

/// Asks the daemon of the calling thread's namespace. `guarded` is a socket for questions that only who has rights may
/// ask, and `words` go with it. None: there is no daemon, or it does not know the question.
fn ask(
    may_block: MayBlock<'_>,
    question: Question,
    words: &str,
    guarded: Option<BorrowedFd<'_>>,
) -> io::Result<Option<String>> {
    let Some((socket, daemon)) = meet(may_block)? else { return Ok(None) };
    let message = answer::message(question.kind(), NLM_F_REQUEST, 0, 0, words.as_bytes());
    say(socket.as_fd(), daemon.port, guarded, &message)?;
    readable(socket.as_fd(), if question == Question::Interface { CHANGE_MS } else { PATIENCE_MS });
    let mut bytes = vec![0; 16 << 10];
    let frame = usersock::receive(socket.as_fd(), &mut bytes, 0)?;
    bytes.truncate(frame.len);
    Ok(question.text(&bytes).map(str::to_owned))
}

/// The text of /proc/net/xfrm_stat, for the preloaded library: of this thread (0), of this process (-1), or of a process by
/// its number, as it names it for /proc.
pub(super) fn counters(call: &CallContext<'_>) -> Done {
    let may_block = call.may_block()?;
    let netns = call.peer.proc_folder(call.n.args[0] as i32).and_then(|folder| folder.netns());
    let none = |_| Verdict::Fail(libc::ENOENT);
    let text = netns.and_then(|netns| within(&netns, || ask(may_block, Question::Stat, "", None)));
    let text = text.map_err(none)?.ok_or(libc::ENOENT)?;
    call.answer_text(&text)
}

/// [`is_served`] of the namespace of a peer's socket. If it is, the call may go on to block.
pub(super) fn is_socket_served<'a>(call: &'a CallContext<'_>, netns: &Netns) -> Result<Option<MayBlock<'a>>, Verdict> {
    if !may_have_daemon(call.peer, netns) {
        return Ok(None);
    }
    let may_block = call.may_block()?;
    Ok(is_served(may_block, netns).unwrap_or(false).then_some(may_block))
}

/// `UDP_ENCAP`, `IP_XFRM_POLICY` and `IPV6_XFRM_POLICY`, where a daemon stands for the kernel's IPsec.
pub(super) fn option(call: &CallContext<'_>) -> Done {
    let (peer, n) = (call.peer, call.n);
    if peer.secure() {
        return Err(Verdict::Pass);
    }
    let Ok(fd) = peer.borrow(n.args[0] as u32) else { return Err(Verdict::Pass) };
    let Ok(netns) = Netns::of_socket(fd.as_fd()) else { return Err(Verdict::Pass) };
    let Some(may_block) = is_socket_served(call, &netns)? else { return Err(Verdict::Pass) };
    call.check_waiting()?;
    if n.args[2] as i32 == UDP_ENCAP { encap(call, may_block, &fd, &netns) } else { policy(call, &fd, &netns) }
}

/// `bind` of a key manager's socket to the port that IKE shares with ESP: the daemon has it, too, and may be there
/// first.
pub(super) fn bind(call: &CallContext<'_>) {
    let (peer, n) = (call.peer, call.n);
    let Ok([family, port]) = peer.bytes::<4>(n.args[1]).map(|b| [[b[0], b[1]], [b[2], b[3]]]) else { return };
    let inet = matches!(i32::from(u16::from_ne_bytes(family)), libc::AF_INET | libc::AF_INET6);
    if !inet || u16::from_be_bytes(port) != NAT_T || peer.secure() {
        return;
    }
    let Ok(fd) = peer.borrow(n.args[0] as u32) else { return };
    let udp = tcp_socket::kind(fd.as_fd()).is_some_and(|k| k.1 == libc::IPPROTO_UDP);
    if udp
        && let Ok(may_block) = call.may_block()
        && let Ok(netns) = Netns::of_socket(fd.as_fd())
        && may_have_daemon(peer, &netns)
        && let Ok(Served::Daemon(_)) = within(&netns, || served(may_block))
        && peer.waits()
    {
        // Without it the kernel tells the program that the port is taken.
        let _ = usersock::share_port(fd.as_fd());
    }
}

/// ESP in UDP: the daemon takes what is ESP from the port, if it may bind beside. When the program goes on it does so.
fn encap(call: &CallContext<'_>, may_block: MayBlock<'_>, fd: &OwnedFd, netns: &Netns) -> Done {
    let (peer, n) = (call.peer, call.n);
    const UDP_ENCAP_ESPINUDP: i32 = 2;
    if (n.args[4] as i32) < 4 {
        return Err(libc::EINVAL.into());
    }
    let kind = i32::from_ne_bytes(peer.bytes(n.args[3])?);
    if !matches!(kind, 0 | UDP_ENCAP_ESPINUDP) || tcp_socket::kind(fd.as_fd()).is_none_or(|k| k.1 != libc::IPPROTO_UDP)
    {
        return Err(Verdict::Pass);
    }
    usersock::share_port(fd.as_fd()).map_err(|e| e.raw_os_error().unwrap_or(libc::EINVAL))?;
    // Where there is no daemon for a moment, the next one looks at the ports when it starts.
    let _ =
        within(netns, || ask(may_block, Question::Ports, "", usersock::open_guarded().ok().as_ref().map(AsFd::as_fd)));
    Ok(0)
}

/// A policy of a socket: key managers except their own packets from policies so.
fn policy(call: &CallContext<'_>, fd: &OwnedFd, netns: &Netns) -> Done {
    let (peer, n) = (call.peer, call.n);
    if !may_administer(peer, netns) {
        return Err(libc::EPERM.into());
    }
    let (at, len) = (n.args[3], n.args[4] as i32);
    if at == 0 && len == 0 {
        // Takes both policies away.
        if !stream::is_of_pair(fd.as_fd()) {
            usersock::set_mark(fd.as_fd(), 0).map_err(errno)?;
        }
        return Ok(0);
    }
    if !(1..=4096).contains(&len) {
        return Err(libc::EMSGSIZE.into());
    }
    let mut bytes = vec![0; len as usize];
    peer.read(&[Span { at, len: bytes.len() }], &mut bytes)?;
    let Ok((policy, templates)) = UserpolicyInfo::read_from_prefix(&bytes) else { return Err(libc::EINVAL.into()) };
    let direction = match policy.dir {
        XFRM_POLICY_IN => Bits::PROGRAM_IN,
        XFRM_POLICY_OUT => Bits::PROGRAM_OUT,
        _ => return Err(libc::EINVAL.into()),
    };
    if policy.action != XFRM_POLICY_ALLOW || !templates.is_empty() {
        // A socket's own protection is not ours to give: refused rather than sent in clear.
        return Err(libc::EOPNOTSUPP.into());
    }
    if stream::is_of_pair(fd.as_fd()) {
        // It stands for a connection of the daemon's, whose packets no policy covers.
        return Ok(0);
    }
    let exempt = exempt_mark(call, netns)?;
    let mark = usersock::mark(fd.as_fd()).map_err(errno)?;
    let directions = Bits::PROGRAM_IN | Bits::PROGRAM_OUT;
    let before = if mark & !directions == exempt { mark & directions } else { 0 };
    usersock::set_mark(fd.as_fd(), exempt | before | direction).map_err(errno)?;
    Ok(0)
}

/// The mark of sockets that no policy covers.
fn exempt_mark(call: &CallContext<'_>, netns: &Netns) -> Result<u32, Verdict> {
    let mark = ask_with_rights(call, netns, Question::ExemptMark, "")?;
    // The daemon tells it only to those who may change policies.
    Ok(mark.parse::<u32>().map_err(|_| libc::EPERM)?)
}

/// Asks the daemon of a namespace by the way that needs rights. Where it has ended, the next one is waited for.
///
/// # Errors
/// `ECONNREFUSED` when there is none.
pub(in crate::serve) fn ask_with_rights(
    call: &CallContext<'_>,
    netns: &Netns,
    question: Question,
    words: &str,
) -> Result<String, Verdict> {
    let (start, mut answer) = (Instant::now(), Ok(None));
    call.wait_until(|may_block| {
        answer = within(netns, || ask(may_block, question, words, Some(usersock::open_guarded()?.as_fd())));
        let done = !matches!(answer, Ok(None)) || start.elapsed() >= RESTART;
        if !done {
            std::thread::sleep(Duration::from_millis(10));
        }
        done
    })?;
    Ok(answer.map_err(|e| refused(&e))?.ok_or(libc::ECONNREFUSED)?)
}

/// Opens a socket in a peer's network namespace by `open`, if a daemon serves that, or did and has died, and the peer may
/// administer it.
pub(in crate::serve) fn open_where_served(
    call: &CallContext<'_>,
    open: impl FnOnce() -> io::Result<OwnedFd> + Send,
) -> Option<OwnedFd> {
    let netns = peer_netns(call.peer).ok()?;
    if !may_have_daemon(call.peer, &netns) || !may_administer(call.peer, &netns) {
        return None;
    }
    let may_block = call.may_block().ok()?;
    let opened = within(&netns, || Ok(if matches!(served(may_block)?, Served::Nobody) { None } else { Some(open()?) }));
    opened.ok().flatten()
}

fn errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EPERM)
}
