//! One call of a served program, from its numbers to the engine and back.

use super::{CryptoUser, Entry, Object, PRIVILEGED, Server, Socket, Verdict, caller, tcp_ao, xfrm};
use core::sync::atomic::{AtomicBool, Ordering};
use parking_lot::Mutex;
use sealane_crypto::Kind;
use sealane_engine_alg::{Errno, PollMask, SendMsg, is_device_ioctl, is_generic_ioctl};
use sealane_sys::peer::{self, Peer, Span};
use sealane_sys::seccomp::Notification;
use std::os::fd::AsFd;
use std::sync::Arc;

const AF_ALG: i32 = libc::AF_ALG;
const FLAGS: i32 = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
const TYPE: i32 = 0xf;
/// The most bytes that one call moves: a longer one is served in part, which the interface allows.
const MAX_BYTES: usize = 16 << 20;
const MSG_MORE: u32 = libc::MSG_MORE as u32;
const MSG_DONTWAIT: u32 = libc::MSG_DONTWAIT as u32;
/// `struct msghdr` on 64-bit machines.
const MSGHDR: usize = 56;
const MMSGHDR: u64 = 64;

type Done = Result<i64, Verdict>;

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(*bytes[at..].first_chunk().expect("inside the structure"))
}

/// A call in the hands of one thread.
struct Call<'a> {
    server: &'a Arc<Server>,
    peer: Peer,
    n: &'a Notification,
}

/// Serves one call.
pub(super) fn serve(server: &Arc<Server>, n: &Notification) -> Done {
    if let Some(spaces) = &server.tcp_ao
        && tcp_ao::concerns(n)
        && !(n.nr == libc::SYS_connect && server.watches(n.args[0] as u32))
    {
        return tcp_ao::serve(server, spaces, n);
    }
    if let Some(done) = xfrm::serve(server, n) {
        return done;
    }
    let call = Call { server, peer: Peer(n.tid), n };
    if n.nr == libc::SYS_socket {
        return call.socket();
    }
    let fd = n.args[0] as u32;
    let Some(entry) = server.find(call.peer, fd) else {
        if n.nr == libc::SYS_splice
            && let Some(to) = server.find(call.peer, n.args[2] as u32)
        {
            PRIVILEGED.set(to.privileged);
            return call.splice(&to);
        }
        return Err(Verdict::Pass);
    };
    call.on(&entry, fd)
}

/// Answers a `getsockopt` of the preloaded library, which asks for a text so.
pub(super) fn tell_text(peer: Peer, n: &Notification, text: &str) -> Done {
    let room = u32::from_ne_bytes(peer.bytes::<4>(n.args[4])?) as usize;
    if text.len() > room {
        return Err(libc::ENOBUFS.into());
    }
    peer.write(&[Span { at: n.args[3], len: text.len() }], text.as_bytes())?;
    peer.write(&[Span { at: n.args[4], len: 4 }], &(text.len() as u32).to_ne_bytes())?;
    Ok(0)
}

impl Call<'_> {
    fn on(&self, entry: &Arc<Entry>, fd: u32) -> Done {
        PRIVILEGED.set(entry.privileged);
        match self.n.nr {
            libc::SYS_bind => self.bind(entry),
            libc::SYS_accept => self.accept(entry, 0),
            libc::SYS_accept4 => self.accept(entry, self.n.int(3)),
            libc::SYS_setsockopt => self.setsockopt(entry),
            libc::SYS_getsockopt => self.getsockopt(entry),
            libc::SYS_getsockname => self.name(entry, true),
            libc::SYS_getpeername => self.name(entry, false),
            libc::SYS_connect if matches!(entry.object, Object::Netlink(_)) => Ok(0),
            libc::SYS_listen | libc::SYS_connect | libc::SYS_shutdown => Err(libc::EOPNOTSUPP.into()),
            libc::SYS_sendto | libc::SYS_write => {
                let span = [Span { at: self.n.arg(1), len: self.n.arg(2) as usize }];
                let flags = if self.n.nr == libc::SYS_write { 0 } else { self.n.int(3) as u32 };
                self.send(entry, fd, &span, 0..0, flags)
            }
            libc::SYS_writev | libc::SYS_pwritev2 => {
                self.positioned(libc::SYS_pwritev2)?;
                let spans = self.spans(self.n.arg(1), self.n.arg(2), libc::EINVAL)?;
                if spans.iter().all(|s| s.len == 0) {
                    return Ok(0);
                }
                self.send(entry, fd, &spans, 0..0, 0)
            }
            libc::SYS_sendmsg => self.sendmsg(entry, fd, self.n.arg(1), self.n.int(2) as u32),
            libc::SYS_sendmmsg => self.many(|at| self.sendmsg(entry, fd, at, self.n.int(3) as u32)),
            libc::SYS_recvfrom | libc::SYS_read => {
                let span = [Span { at: self.n.arg(1), len: self.n.arg(2) as usize }];
                let flags = if self.n.nr == libc::SYS_read { 0 } else { self.n.int(3) as u32 };
                if self.n.nr == libc::SYS_read && span[0].len == 0 {
                    // Reads of nothing, and vectors of nothing in either direction, do not reach the socket.
                    return Ok(0);
                }
                let (len, _) = self.recv(entry, fd, &span, flags)?;
                if self.n.nr == libc::SYS_recvfrom && self.n.arg(4) != 0 {
                    self.name_out(&sender(entry), self.n.arg(4), self.n.arg(5))?;
                }
                Ok(len)
            }
            libc::SYS_readv | libc::SYS_preadv2 => {
                self.positioned(libc::SYS_preadv2)?;
                let spans = self.spans(self.n.arg(1), self.n.arg(2), libc::EINVAL)?;
                if spans.iter().all(|s| s.len == 0) {
                    return Ok(0);
                }
                self.recv(entry, fd, &spans, 0).map(|(len, _)| len)
            }
            libc::SYS_recvmsg => self.recvmsg(entry, fd, self.n.arg(1), self.n.int(2) as u32),
            libc::SYS_recvmmsg => self.many(|at| self.recvmsg(entry, fd, at, self.n.int(3) as u32)),
            libc::SYS_sendfile => self.sendfile(entry, fd),
            libc::SYS_splice => match self.server.find(self.peer, self.n.arg(2) as u32) {
                Some(to) => self.splice(&to),
                None => self.splice_out(entry, fd),
            },
            libc::SYS_dup => self.dup(fd, false),
            libc::SYS_fcntl => self.fcntl(entry, fd),
            libc::SYS_ioctl => self.ioctl(entry),
            // dup2 and dup3: inside the watched range the kernel's own does; outside we would lose sight of it.
            _ if self.server.watches(self.n.arg(1) as u32) => Err(Verdict::Pass),
            _ => Err(libc::EMFILE.into()),
        }
    }

    fn socket(&self) -> Done {
        // A program with more rights than its user is left alone.
        if self.peer.secure() {
            return Err(Verdict::Pass);
        }
        let (domain, type_, protocol) = (self.n.int(0), self.n.int(1), self.n.int(2));
        if type_ & !(TYPE | FLAGS) != 0 {
            return Err(libc::EINVAL.into());
        }
        PRIVILEGED.set(caller(self.peer).privileged);
        let system = self.server.system();
        let object = if domain == AF_ALG {
            Object::Alg(Socket::create(system, type_ & TYPE, protocol)?)
        } else {
            Object::Netlink(CryptoUser::create(system, type_ & TYPE, protocol)?)
        };
        let lively = matches!(object, Object::Netlink(_));
        self.publish(object, lively, type_ & FLAGS)
    }

    /// Gives the caller a stand-in for `object`.
    fn publish(&self, object: Object, lively: bool, flags: i32) -> Done {
        self.server.sweep();
        let nonblock = flags & libc::SOCK_NONBLOCK != 0;
        let io = |e: std::io::Error| Verdict::Fail(e.raw_os_error().unwrap_or(libc::EIO));
        let (ours, theirs, inode) = peer::pair(nonblock).map_err(io)?;
        let shown = match &object {
            _ if !lively => (false, false),
            Object::Alg(socket) => halves(socket.poll()),
            Object::Netlink(socket) => halves(socket.poll()),
        };
        peer::show(ours.as_fd(), theirs.as_fd(), shown.0, shown.1);
        let entry = Entry {
            object,
            ours,
            nonblock: AtomicBool::new(nonblock),
            privileged: PRIVILEGED.get(),
            lively,
            shown: Mutex::new(shown),
        };
        self.server.sockets.lock().insert(inode, Arc::new(entry));
        self.place(theirs.as_fd(), flags & libc::SOCK_CLOEXEC != 0).inspect_err(|e| {
            if !matches!(e, Verdict::Answered) {
                self.server.sockets.lock().remove(&inode);
            }
        })
    }

    fn place(&self, fd: std::os::fd::BorrowedFd<'_>, cloexec: bool) -> Done {
        self.server.place(self.n, fd, cloexec, self.server.numbers.high.clone())
    }

    fn address(&self) -> Result<Vec<u8>, Verdict> {
        let len = self.n.int(2);
        if !(0..=128).contains(&len) {
            return Err(libc::EINVAL.into());
        }
        let mut addr = vec![0; len as usize];
        self.peer.read(&[Span { at: self.n.arg(1), len: addr.len() }], &mut addr)?;
        Ok(addr)
    }

    fn bind(&self, entry: &Entry) -> Done {
        let addr = self.address()?;
        match &entry.object {
            Object::Alg(socket) => self.swept(|| socket.bind(&addr, caller(self.peer)))?,
            Object::Netlink(socket) => {
                let port = addr.get(4..8).and_then(|p| p.first_chunk()).ok_or(libc::EINVAL)?;
                socket.set_port(self.port(u32::from_ne_bytes(*port)));
            }
        }
        Ok(0)
    }

    /// The port that a netlink socket gets when it asks for any.
    fn port(&self, port: u32) -> u32 {
        if port == 0 { self.peer.0 } else { port }
    }

    fn accept(&self, entry: &Entry, flags: i32) -> Done {
        let Object::Alg(socket) = &entry.object else { return Err(libc::EOPNOTSUPP.into()) };
        if flags & !FLAGS != 0 {
            return Err(libc::EINVAL.into());
        }
        let op = socket.accept()?;
        if self.n.arg(1) != 0 {
            // The new socket has no name, which the kernel finds out too late.
            return Err(libc::ECONNABORTED.into());
        }
        let lively = matches!(op.kind(), Some(Kind::Skcipher | Kind::Aead));
        self.publish(Object::Alg(op), lively, flags)
    }

    fn setsockopt(&self, entry: &Entry) -> Done {
        let (level, name, at) = (self.n.int(1), self.n.int(2), self.n.arg(3));
        let len = usize::try_from(self.n.int(4)).map_err(|_| libc::EINVAL)?;
        let mut val = zeroize::Zeroizing::new(Vec::new());
        let val = if at == 0 {
            None
        } else {
            // Anything longer is refused by its length alone.
            val.resize(len.min(1 << 20), 0);
            self.peer.read(&[Span { at, len: val.len() }], &mut val)?;
            Some(&val[..])
        };
        let caller = caller(self.peer);
        let once = || match &entry.object {
            Object::Alg(socket) => socket.setsockopt(level, name, val, len, caller),
            Object::Netlink(socket) => socket.setsockopt(level, name, val, len, caller),
        };
        self.swept(once)?;
        Ok(0)
    }

    /// A call that operations that nobody has any more may have kept from its socket.
    fn swept(&self, once: impl Fn() -> Result<(), Errno>) -> Result<(), Errno> {
        match once() {
            Err(Errno::EBUSY) if self.server.sweep() => once(),
            done => done,
        }
    }

    fn getsockopt(&self, entry: &Entry) -> Done {
        let room = i32::from_ne_bytes(self.peer.bytes(self.n.arg(4))?);
        let room = usize::try_from(room).map_err(|_| libc::EINVAL)?;
        let mut out = vec![0; room.min(4096)];
        let n = match &entry.object {
            Object::Alg(socket) => socket.getsockopt(self.n.int(1), self.n.int(2), &mut out)?,
            Object::Netlink(socket) => socket.getsockopt(self.n.int(1), self.n.int(2), &mut out)?,
        };
        self.peer.write(&[Span { at: self.n.arg(3), len: n }], &out[..n])?;
        self.peer.write(&[Span { at: self.n.arg(4), len: 4 }], &(n as u32).to_ne_bytes())?;
        Ok(0)
    }

    fn name(&self, entry: &Entry, own: bool) -> Done {
        let Object::Netlink(socket) = &entry.object else { return Err(libc::EOPNOTSUPP.into()) };
        let mut name = kernel_name();
        if own {
            name[4..8].copy_from_slice(&socket.port().to_ne_bytes());
        }
        self.name_out(&name, self.n.arg(1), self.n.arg(2))?;
        Ok(0)
    }

    fn name_out(&self, name: &[u8], addr: u64, len: u64) -> Result<(), Verdict> {
        let room = i32::from_ne_bytes(self.peer.bytes(len)?);
        let n = usize::try_from(room).map_err(|_| libc::EINVAL)?.min(name.len());
        self.peer.write(&[Span { at: addr, len: n }], &name[..n])?;
        self.peer.write(&[Span { at: len, len: 4 }], &(name.len() as u32).to_ne_bytes())?;
        Ok(())
    }

    /// Whether positioned vector I/O asks for the current position.
    fn positioned(&self, nr: i64) -> Result<(), Verdict> {
        if self.n.nr == nr && self.n.arg(3) as i64 != -1 { Err(libc::ESPIPE.into()) } else { Ok(()) }
    }

    fn spans(&self, at: u64, n: u64, too_many: i32) -> Result<Vec<Span>, Verdict> {
        Ok(self.peer.spans(at, n, too_many)?)
    }

    fn dontwait(&self, entry: &Entry) -> u32 {
        if entry.nonblock.load(Ordering::Relaxed) { MSG_DONTWAIT } else { 0 }
    }

    fn send(&self, entry: &Entry, fd: u32, spans: &[Span], control: core::ops::Range<u64>, flags: u32) -> Done {
        let total = spans.iter().fold(0usize, |sum, s| sum.saturating_add(s.len)).min(MAX_BYTES);
        let mut data = zeroize::Zeroizing::new(vec![0; total]);
        // The socket's own errors come first; what could be read before the fault is not sent (LIMITATIONS.md).
        let unreadable = match self.peer.read(spans, &mut data) {
            Err(libc::EFAULT) => total,
            read => read.map(|()| 0)?,
        };
        let len = (control.end - control.start) as usize;
        let mut cmsgs = zeroize::Zeroizing::new(vec![0; len]);
        self.peer.read(&[Span { at: control.start, len }], &mut cmsgs)?;
        self.server.still(self.n)?;
        let flags = flags | self.dontwait(entry);
        let text = if unreadable > 0 { &[][..] } else { &data };
        self.give(entry, fd, &SendMsg { data: &[text], unreadable, control: &cmsgs, flags, spliced: false })
    }

    fn give(&self, entry: &Entry, fd: u32, msg: &SendMsg<'_>) -> Done {
        let sent = match &entry.object {
            Object::Alg(socket) => socket.sendmsg(msg),
            Object::Netlink(socket) => {
                if socket.port() == 0 {
                    socket.set_port(self.port(0));
                }
                if msg.unreadable > 0 {
                    return Err(libc::EFAULT.into());
                }
                socket.send(msg.data.first().copied().unwrap_or_default(), caller(self.peer))
            }
        };
        self.changed(entry, fd);
        Ok(sent? as i64)
    }

    fn recv(&self, entry: &Entry, fd: u32, spans: &[Span], flags: u32) -> Result<(i64, u32), Verdict> {
        let room = spans.iter().fold(0usize, |sum, s| sum.saturating_add(s.len)).min(MAX_BYTES);
        let mut data = zeroize::Zeroizing::new(vec![0; room]);
        let flags = flags | self.dontwait(entry);
        self.server.still(self.n)?;
        let got = match &entry.object {
            Object::Alg(socket) => socket.recvmsg(&mut [&mut data], flags),
            Object::Netlink(socket) => socket.recv(&mut data, flags),
        };
        self.changed(entry, fd);
        let got = got?;
        self.peer.write(spans, &data[..got.len.min(room)])?;
        Ok((got.len as i64, got.flags))
    }

    fn sendmsg(&self, entry: &Entry, fd: u32, at: u64, flags: u32) -> Done {
        let msg: [u8; MSGHDR] = self.peer.bytes(at)?;
        let spans = self.spans(word(&msg, 16), word(&msg, 24), libc::EMSGSIZE)?;
        let (control, len) = (word(&msg, 32), word(&msg, 40));
        if len > 1 << 20 {
            return Err(libc::ENOBUFS.into());
        }
        self.send(entry, fd, &spans, control..control.saturating_add(len), flags)
    }

    fn recvmsg(&self, entry: &Entry, fd: u32, at: u64, flags: u32) -> Done {
        let mut msg: [u8; MSGHDR] = self.peer.bytes(at)?;
        let spans = self.spans(word(&msg, 16), word(&msg, 24), libc::EMSGSIZE)?;
        let (len, out_flags) = self.recv(entry, fd, &spans, flags)?;
        let name = word(&msg, 0);
        if name != 0 {
            let from = sender(entry);
            let room = u32::from_ne_bytes(*msg[8..].first_chunk().expect("inside the structure")) as usize;
            let n = room.min(from.len());
            self.peer.write(&[Span { at: name, len: n }], &from[..n])?;
            msg[8..12].copy_from_slice(&(from.len() as u32).to_ne_bytes());
        }
        msg[40..48].fill(0);
        msg[48..52].copy_from_slice(&out_flags.to_ne_bytes());
        self.peer.write(&[Span { at, len: msg.len() }], &msg)?;
        Ok(len)
    }

    /// sendmmsg and recvmmsg: how many went, or the error of the first.
    fn many(&self, each: impl Fn(u64) -> Done) -> Done {
        let n = u64::from(self.n.arg(2) as u32).min(1024);
        for i in 0..n {
            let at = self.n.arg(1) + i * MMSGHDR;
            match each(at) {
                Ok(len) => self.peer.write(&[Span { at: at + MSGHDR as u64, len: 4 }], &(len as u32).to_ne_bytes())?,
                Err(Verdict::Fail(_)) if i > 0 => return Ok(i as i64),
                Err(e) => return Err(e),
            }
        }
        Ok(n as i64)
    }

    fn sendfile(&self, entry: &Entry, fd: u32) -> Done {
        let file = self.peer.borrow(self.n.arg(1) as u32)?;
        let mut offset = match self.n.arg(2) {
            0 => None,
            at => Some(i64::from_ne_bytes(self.peer.bytes(at)?)),
        };
        let total = (self.n.arg(3) as usize).min(MAX_BYTES);
        let mut data = zeroize::Zeroizing::new(vec![0; total.min(1 << 16)]);
        let mut done = 0;
        while done < total {
            let want = (total - done).min(data.len());
            let n = match peer::pull(file.as_fd(), &mut data[..want], offset) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if done == 0 => return Err(e.into()),
                Err(_) => break,
            };
            let more = if done + n < total { MSG_MORE } else { 0 };
            let msg = SendMsg {
                data: &[&data[..n]],
                control: &[],
                flags: self.dontwait(entry) | more,
                spliced: true,
                ..SendMsg::default()
            };
            match self.give(entry, fd, &msg) {
                Ok(sent) => {
                    done += sent as usize;
                    offset = offset.map(|o| o + sent);
                    if (sent as usize) < n {
                        break;
                    }
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        if let Some(offset) = offset {
            self.peer.write(&[Span { at: self.n.arg(2), len: 8 }], &offset.to_ne_bytes())?;
        }
        Ok(done as i64)
    }

    fn splice(&self, to: &Entry) -> Done {
        const NONBLOCK: u64 = 2;
        const MORE: u64 = 4;
        if self.n.arg(1) != 0 || self.n.arg(3) != 0 {
            return Err(libc::ESPIPE.into());
        }
        let total = (self.n.arg(4) as usize).min(1 << 20);
        if total == 0 {
            return Ok(0);
        }
        let pipe = self.peer.borrow(self.n.arg(0) as u32)?;
        if self.n.arg(5) & NONBLOCK != 0 {
            if !peer::readable(pipe.as_fd(), 0) {
                return Err(libc::EAGAIN.into());
            }
        } else {
            self.server.wait_until(|| peer::readable(pipe.as_fd(), super::LOOK_MS as i32))?;
        }
        let mut data = zeroize::Zeroizing::new(vec![0; total]);
        let n = peer::pull(pipe.as_fd(), &mut data, None)?;
        let more = self.n.arg(5) & MORE != 0 || (n < total && peer::readable(pipe.as_fd(), 0));
        let flags = self.dontwait(to) | if more { MSG_MORE } else { 0 };
        self.give(
            to,
            self.n.arg(2) as u32,
            &SendMsg { data: &[&data[..n]], control: &[], flags, spliced: true, ..SendMsg::default() },
        )
    }

    fn splice_out(&self, entry: &Entry, fd: u32) -> Done {
        if self.n.arg(1) != 0 || self.n.arg(3) != 0 {
            return Err(libc::ESPIPE.into());
        }
        let pipe = self.peer.borrow(self.n.arg(2) as u32)?;
        let room = peer::pipe_room(pipe.as_fd())?.min(self.n.arg(4) as usize).min(1 << 16);
        let mut data = zeroize::Zeroizing::new(vec![0; room]);
        let got = match &entry.object {
            Object::Alg(socket) => socket.recvmsg(&mut [&mut data], self.dontwait(entry))?,
            Object::Netlink(socket) => socket.recv(&mut data, self.dontwait(entry))?,
        };
        self.changed(entry, fd);
        Ok(peer::push(pipe.as_fd(), &data[..got.len.min(room)])? as i64)
    }

    fn dup(&self, fd: u32, cloexec: bool) -> Done {
        let theirs = self.peer.borrow(fd)?;
        self.place(theirs.as_fd(), cloexec)
    }

    fn fcntl(&self, entry: &Entry, fd: u32) -> Done {
        match self.n.int(1) {
            libc::F_DUPFD => self.dup(fd, false),
            libc::F_DUPFD_CLOEXEC => self.dup(fd, true),
            libc::F_SETFL => {
                entry.nonblock.store(self.n.int(2) & libc::O_NONBLOCK != 0, Ordering::Relaxed);
                Err(Verdict::Pass)
            }
            _ => Err(Verdict::Pass),
        }
    }

    fn ioctl(&self, entry: &Entry) -> Done {
        let request = self.n.arg(1) as u32;
        match entry.object {
            _ if u64::from(request) == libc::FIONBIO => {
                let on = i32::from_ne_bytes(self.peer.bytes(self.n.arg(2))?);
                entry.nonblock.store(on != 0, Ordering::Relaxed);
                Err(Verdict::Pass)
            }
            _ if is_generic_ioctl(request) => Err(Verdict::Pass),
            Object::Alg(_) => Err(libc::EOPNOTSUPP.into()),
            Object::Netlink(_) if is_device_ioctl(request) => Err(Verdict::Pass),
            Object::Netlink(_) => Err(libc::ENOTTY.into()),
        }
    }

    /// Makes poll see what the engine says now.
    fn changed(&self, entry: &Entry, fd: u32) {
        if !entry.lively {
            return;
        }
        let now = match &entry.object {
            Object::Alg(socket) => halves(socket.poll()),
            Object::Netlink(socket) => halves(socket.poll()),
        };
        let mut shown = entry.shown.lock();
        if *shown != now
            && let Ok(theirs) = self.peer.borrow(fd)
        {
            peer::show(entry.ours.as_fd(), theirs.as_fd(), now.0, now.1);
            *shown = now;
        }
    }
}

impl Server {
    /// Whether the caller still waits, before anything is changed for good.
    pub(super) fn still(&self, n: &Notification) -> Result<(), Verdict> {
        if self.listener.valid(n.id) { Ok(()) } else { Err(Verdict::Answered) }
    }

    /// Puts `fd` at the first free of these numbers, and answers the call with it.
    pub(super) fn place(
        &self,
        n: &Notification,
        fd: std::os::fd::BorrowedFd<'_>,
        cloexec: bool,
        mut numbers: impl Iterator<Item = u32>,
    ) -> Done {
        let _placing = self.placing.lock();
        let peer = Peer(n.tid);
        let new = numbers.find(|&n| !peer.has(n)).ok_or(libc::EMFILE)?;
        match self.listener.hand_over(n.id, fd, new, cloexec) {
            Ok(()) => Err(Verdict::Answered),
            // The program lowered its limit below our range.
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Err(libc::EMFILE.into()),
            Err(e) => Err(e.raw_os_error().unwrap_or(libc::EIO).into()),
        }
    }

    /// Whether calls on this number come to us.
    pub(super) fn watches(&self, fd: u32) -> bool {
        self.numbers.contains(fd)
    }
}

fn halves(mask: PollMask) -> (bool, bool) {
    (mask.any(PollMask::IN), mask.any(PollMask::OUT))
}

/// The netlink address of the kernel.
fn kernel_name() -> [u8; 12] {
    let mut name = [0; 12];
    name[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    name
}

/// Who sent what is received: nobody, or the kernel.
fn sender(entry: &Entry) -> Vec<u8> {
    match entry.object {
        Object::Alg(_) => Vec::new(),
        Object::Netlink(_) => kernel_name().to_vec(),
    }
}
