//! Sending: a datagram goes to the daemon's port, whatever the program calls it.
//!
//! The kernel serves a request while `sendmsg` runs, and programs rely on finding the answer when the call returns; so
//! the call waits until the answer is there, or the daemon has ended or started again.

use super::link::may_administer;
use super::{Done, XfrmCall};
use crate::serve::server::Verdict;
use crate::serve::supervisor::MayBlock;
use sealane_abi::netlink::{Messages, NLM_F_ACK, NLM_F_DUMP, SockaddrNl};
use sealane_abi::sealane::vouched;
use sealane_abi::xfrm;
use sealane_sys::peer::readable;
use sealane_sys::thread::{Span, Thread};
use sealane_sys::usersock;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use zerocopy::FromBytes;
use zeroize::Zeroizing;

/// The longest datagram; the kernel's limit is the socket's send buffer, and it checks it.
const MAX_REQUEST: usize = 16 << 20;
/// The longest time for which a daemon's receive buffer may stay full.
const BUSY: Duration = Duration::from_secs(30);
/// The wait for an answer, in milliseconds, between two checks that the daemon is still there.
const ANSWER_MS: i32 = 200;
/// The most such checks: half a minute. Time by a clock does not count: a machine that was suspended may have lost its daemon
/// meanwhile, and with it the answer.
const CHECKS: u32 = 150;
/// The time until a daemon that is late with its answer is asked again whether it is there.
const HELLO: Duration = Duration::from_secs(1);
/// The part of a socket's send buffer that a datagram cannot have (`netlink_sendmsg`).
const RESERVED: usize = 32;
const MSGHDR: usize = 56;

impl XfrmCall<'_> {
    pub(super) fn send_plain(&self) -> Done {
        match self.call.n.nr {
            libc::SYS_sendto => {
                self.check_destination(self.call.n.arg(4), self.call.n.int(5) as u32)?;
                self.send(&[Span { at: self.call.n.arg(1), len: self.call.n.arg(2) as usize }], self.call.n.int(3))
            }
            libc::SYS_write => self.send(&[Span { at: self.call.n.arg(1), len: self.call.n.arg(2) as usize }], 0),
            _ if self.call.n.nr == libc::SYS_pwritev2 && self.call.n.arg(3) as i64 != -1 => Err(libc::ESPIPE.into()),
            _ => {
                let spans = self.call.peer.spans(self.call.n.arg(1), self.call.n.arg(2), libc::EINVAL)?;
                if spans.iter().all(|s| s.len == 0) { Ok(0) } else { self.send(&spans, 0) }
            }
        }
    }

    pub(super) fn sendmsg(&self, at: u64, flags: i32) -> Done {
        let msg: [u8; MSGHDR] = self.call.peer.bytes(at)?;
        let word = |at: usize| u64::from_ne_bytes(*msg[at..].first_chunk().expect("inside the structure"));
        let spans = self.call.peer.spans(word(16), word(24), libc::EMSGSIZE)?;
        // Credentials are all that could be in control messages, and the daemon does not ask for them.
        self.check_destination(word(0), word(8) as u32)?;
        self.send(&spans, flags)
    }

    pub(super) fn sendmmsg(&self) -> Done {
        let n = u64::from(self.call.n.arg(2) as u32).min(1024);
        for i in 0..n {
            let at = self.call.n.arg(1) + i * 64;
            match self.sendmsg(at, self.call.n.int(3)) {
                Ok(len) => {
                    self.call.peer.write(&[Span { at: at + MSGHDR as u64, len: 4 }], &(len as u32).to_ne_bytes())?;
                }
                Err(Verdict::Fail(_)) if i > 0 => return Ok(i as i64),
                Err(e) => return Err(e),
            }
        }
        Ok(n as i64)
    }

    /// The kernel's checks of an address; other programs' ports are nobody's here.
    fn check_destination(&self, at: u64, len: u32) -> Result<(), Verdict> {
        if at == 0 || len == 0 {
            return Ok(());
        }
        if (len as usize) < size_of::<SockaddrNl>() {
            return Err(libc::EINVAL.into());
        }
        let bytes: [u8; size_of::<SockaddrNl>()] = self.call.peer.bytes(at)?;
        let to = SockaddrNl::read_from_bytes(&bytes).map_err(|_| libc::EINVAL)?;
        if i32::from(to.nl_family) != libc::AF_NETLINK {
            return Err(libc::EINVAL.into());
        }
        if to.nl_pid == 0 && to.nl_groups == 0 {
            return Ok(());
        }
        if !self.is_permitted() {
            return Err(libc::EPERM.into());
        }
        Err(libc::ECONNREFUSED.into())
    }

    /// Whether the program may ask for anything: its socket's maker could, and itself can.
    fn is_permitted(&self) -> bool {
        let netns = || sealane_sys::netns::Netns::of_socket(self.fd.as_fd());
        self.entry.maker_may && netns().is_ok_and(|netns| may_administer(self.call.peer, &netns))
    }

    fn send(&self, spans: &[Span], flags: i32) -> Done {
        if flags & libc::MSG_OOB != 0 {
            return Err(libc::EOPNOTSUPP.into());
        }
        let total = spans.iter().fold(0usize, |sum, s| sum.saturating_add(s.len));
        if total == 0 {
            return Err(libc::ENODATA.into());
        }
        if total > MAX_REQUEST {
            return Err(libc::EMSGSIZE.into());
        }
        let mut data = Zeroizing::new(vec![0; total]);
        self.call.peer.read(spans, &mut data)?;
        self.ensure_port()?;
        let may_block = self.call.may_block()?;
        let daemon = self.await_daemon(may_block)?;
        let fd = self.fd.as_fd();
        // We vouch for the program's rights: the kernel lets us only if we have them, too.
        let mut guarded = self.is_permitted().then(|| self.entry.guarded.as_fd());
        let header = vouched(usersock::port(fd).map_err(errno)?, total);
        if guarded.is_some() && usersock::send_buffer(fd).is_some_and(|room| total > room.saturating_sub(RESERVED)) {
            return Err(libc::EMSGSIZE.into());
        }
        self.call.check_waiting()?;
        let waits = expects_answer(&data) && !readable(fd, 0);
        let start = Instant::now();
        let mut sent = Err(io::ErrorKind::WouldBlock.into());
        self.call.wait_until(|_| {
            sent = match guarded {
                Some(guarded) => usersock::send_guarded(guarded, daemon, [&header, &data]),
                None => usersock::send(fd, daemon, &data),
            };
            let refused = sent.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EPERM));
            if refused && guarded.take().is_some() {
                // The daemon refuses what comes by the other way, as the kernel refuses what lacks rights.
                return false;
            }
            let full = sent.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock) && start.elapsed() < BUSY;
            if full {
                std::thread::sleep(Duration::from_millis(1));
            }
            !full
        })?;
        sent.map_err(|e| match e.raw_os_error() {
            // Nobody is to be told to try again who was told that it had been sent by the kernel.
            Some(libc::EAGAIN) => libc::ECONNREFUSED,
            errno => errno.unwrap_or(libc::EIO),
        })?;
        if waits {
            self.await_answer(may_block, guarded)?;
        } else if !expects_answer(&data) {
            // The kernel would have done it by now.
            super::link::wait_for_daemon(may_block, self.call.peer, guarded);
        }
        Ok(total as i64)
    }

    /// Waits for a daemon where there was one. Returns its port.
    ///
    /// # Errors
    /// `ECONNREFUSED` when none has come.
    fn await_daemon(&self, may_block: MayBlock<'_>) -> Result<u32, Verdict> {
        let fd = self.fd.as_fd();
        let mut found = self.entry.check_daemon(may_block, fd);
        // Somebody else may have the port of one that has ended.
        let is_missing =
            |found: &Result<u32, Verdict>| matches!(found, Err(Verdict::Fail(libc::ECONNREFUSED | libc::EACCES)));
        if !is_missing(&found) {
            return found;
        }
        self.call.check_waiting()?;
        let start = Instant::now();
        self.call.wait_until(|may_block| {
            std::thread::sleep(Duration::from_millis(10));
            found = self.entry.check_daemon(may_block, fd);
            !is_missing(&found) || start.elapsed() >= super::link::RESTART
        })?;
        found
    }

    /// Waits for the answer to what has just been sent.
    ///
    /// # Errors
    /// `ECONNREFUSED` when there will be none.
    fn await_answer(&self, _: MayBlock<'_>, guarded: Option<BorrowedFd<'_>>) -> Result<(), Verdict> {
        let fd = self.fd.as_fd();
        if readable(fd, ANSWER_MS) {
            return Ok(());
        }
        let (mut checks, mut gone) = (0, false);
        let mut hello: Option<(OwnedFd, Instant)> = None;
        let done = self.call.wait_until(|_| {
            // A daemon that has started again has not seen the request: it answers what came later.
            let answered = hello.as_ref().is_some_and(|(hello, _)| readable(hello.as_fd(), 0));
            if answered || !self.entry.lives() {
                gone = true;
            } else if hello.as_ref().is_none_or(|(_, at)| at.elapsed() >= HELLO) {
                match self.entry.say_hello(fd, guarded) {
                    Err(e) if e.raw_os_error() == Some(libc::ECONNREFUSED) => gone = true,
                    said => hello = said.ok().map(|said| (said, Instant::now())),
                }
            }
            checks += 1;
            gone || readable(fd, ANSWER_MS) || checks >= CHECKS
        });
        if done.is_err() {
            // It has been sent, whatever comes between.
            self.call.not_restarted();
        }
        // Its last words count.
        if gone && !readable(fd, 0) { Err(libc::ECONNREFUSED.into()) } else { Ok(()) }
    }

    /// Gives the socket the port that it would get from the kernel when it sends before it is bound: that of the
    /// process, or any.
    pub(super) fn ensure_port(&self) -> Result<(), Verdict> {
        let fd = self.fd.as_fd();
        if !self.entry.bound.load(Ordering::Relaxed) {
            // A launcher that was killed here may have left it with the name of a port that it was refused.
            if !usersock::has_port(fd).map_err(errno)? {
                bind_like_kernel(self.call.peer, fd, 0)?;
            }
            self.entry.bound.store(true, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// Binds a peer's socket to the port that it would get from the kernel, and to groups.
pub(in crate::serve) fn bind_like_kernel(peer: &Thread, fd: BorrowedFd<'_>, groups: u32) -> Result<(), Verdict> {
    let mut port = peer.process_in_its_own_namespace().unwrap_or(0);
    for turn in 1..64u32 {
        match usersock::bind(fd, port, groups) {
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => {
                // As the kernel: somewhere among the negative numbers.
                let mixed = port.wrapping_add(turn).wrapping_mul(0x9e37_79b9);
                port = 0x8000_0000 | mixed >> 1;
            }
            // Another thread was first.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            done => return Ok(done.map_err(errno)?),
        }
    }
    Err(libc::EADDRINUSE.into())
}

fn errno(e: io::Error) -> i32 {
    e.raw_os_error().unwrap_or(libc::EIO)
}

/// Whether a datagram will be answered even when all goes well.
fn expects_answer(data: &[u8]) -> bool {
    Messages::new(data).any(|m| {
        let question = matches!(
            m.header.nlmsg_type,
            xfrm::XFRM_MSG_GETSA
                | xfrm::XFRM_MSG_GETPOLICY
                | xfrm::XFRM_MSG_ALLOCSPI
                | xfrm::XFRM_MSG_GETAE
                | xfrm::XFRM_MSG_GETSADINFO
                | xfrm::XFRM_MSG_GETSPDINFO
                | xfrm::XFRM_MSG_GETDEFAULT
        );
        question || m.header.nlmsg_flags & (NLM_F_ACK | NLM_F_DUMP) != 0
    })
}
