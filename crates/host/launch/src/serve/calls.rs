//! One call of a served program, from its numbers to the engine and back.

use super::rights::{self, caller};
use super::server::{Done, Object, OpenSocket, Verdict};
use super::supervisor::{CallContext, LOOK_MS};
use super::{foreign, route, tcp_ao, xfrm};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use parking_lot::{Mutex, RawMutex};
use sealane_abi::sealane::KEYS_QUERY;
use sealane_abi::socket::{MSG_MORE, SOCK_TYPE_MASK};
use sealane_crypto::home::KeepError;
use sealane_engine_alg::audit::Counters;
use sealane_engine_alg::front::{self, Buffers, Descriptor, Memory, SourceFile, Splice, SpliceEnd};
use sealane_engine_alg::{Caller, Errno, Event, KeyringKey, Observer, PollMask, Received, SendMsg, Task};
use sealane_sys::thread::Span;
use sealane_sys::{keys, peer, sleep};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use zeroize::Zeroizing;

/// The most bytes that one call moves: a longer one is served in part, which the interface allows.
const MAX_BYTES: usize = 16 << 20;

/// Does a call, by the interface that it is about.
pub(super) fn dispatch(call: &CallContext<'_>) -> Done {
    let (server, n) = (call.server, call.n);
    // Its numbers mean other calls.
    if let Some(foreign) = n.foreign() {
        return foreign::refuse(call, foreign);
    }
    if let Some(engine) = &server.tcp_ao
        && tcp_ao::is_tcp_ao_call(n)
        && !(n.nr == libc::SYS_connect && server.watches(n.args[0] as u32))
    {
        return tcp_ao::perform(call, engine);
    }
    if n.nr == libc::SYS_getsockopt && (n.int(1), n.int(2)) == KEYS_QUERY {
        return call.answer_text(server.home.told().ok_or(libc::ENOENT)?);
    }
    if let Some(done) = xfrm::perform(call) {
        return done;
    }
    if let Some(done) = route::perform(call) {
        return done;
    }
    perform(call)
}

/// Performs a call if it is about AF_ALG or NETLINK_CRYPTO; the kernel does any other.
fn perform(call: &CallContext<'_>) -> Done {
    let (server, n) = (call.server, call.n);
    if n.nr == libc::SYS_socket {
        may_ask_keeper(call)?;
        return AlgCall { call }.socket();
    }
    let fd = n.args[0] as u32;
    let Some(entry) = server.find(call.peer, fd) else {
        if n.nr == libc::SYS_splice
            && let Some(to) = server.find(call.peer, n.args[2] as u32)
        {
            return AlgCall { call }.splice(&RemoteDescriptor::new(call, &to, n.args[2] as u32)?);
        }
        return Err(Verdict::Pass);
    };
    AlgCall { call }.make(&RemoteDescriptor::new(call, &entry, fd)?)
}

/// Makes sure that other calls are served while this one waits for the keeper.
fn may_ask_keeper(call: &CallContext<'_>) -> Result<(), i32> {
    if call.server.home.keeper().is_some() { call.may_block().map(drop) } else { Ok(()) }
}

/// One call.
struct AlgCall<'a> {
    call: &'a CallContext<'a>,
}

/// A count of bytes or messages as a call returns it.
fn count(done: Result<usize, Verdict>) -> Done {
    done.map(|n| n as i64)
}

impl AlgCall<'_> {
    /// Makes a call on one of our sockets.
    fn make(&self, d: &RemoteDescriptor<'_>) -> Done {
        let (n, size, zero) = (self.call.n, |len: u64| len as usize, |()| 0);
        match n.nr {
            libc::SYS_bind => front::bind(d, n.arg(1), n.arg(2) as u32).map(zero),
            libc::SYS_accept => self.accept(d, 0),
            libc::SYS_accept4 => self.accept(d, n.int(3)),
            libc::SYS_setsockopt => front::setsockopt(d, n.int(1), n.int(2), n.arg(3), n.arg(4) as u32).map(zero),
            libc::SYS_getsockopt => front::getsockopt(d, n.int(1), n.int(2), n.arg(3), n.arg(4)).map(zero),
            libc::SYS_getsockname => front::getsockname(d, n.arg(1), n.arg(2)).map(zero),
            libc::SYS_getpeername => front::getpeername(d, n.arg(1), n.arg(2)).map(zero),
            libc::SYS_connect => front::connect(d, n.arg(1), n.arg(2) as u32).map(zero),
            libc::SYS_listen | libc::SYS_shutdown => Err(libc::EOPNOTSUPP.into()),
            libc::SYS_sendto => {
                let (flags, addr_len) = (n.int(3) as u32, n.arg(5) as u32);
                count(front::sendto(d, n.arg(1), size(n.arg(2)), flags, n.arg(4), addr_len))
            }
            libc::SYS_write => count(front::send(d, n.arg(1), size(n.arg(2)), 0)),
            libc::SYS_writev => count(front::writev(d, n.arg(1), n.arg(2))),
            libc::SYS_pwritev2 => count(front::pwritev2(d, n.arg(1), n.arg(2), n.arg(3) as i64)),
            libc::SYS_sendmsg => count(front::sendmsg(d, n.arg(1), n.int(2) as u32)),
            libc::SYS_sendmmsg => count(front::sendmmsg(d, n.arg(1), n.arg(2) as u32, n.int(3) as u32)),
            libc::SYS_recvfrom => {
                let flags = n.int(3) as u32;
                count(front::recvfrom(d, n.arg(1), size(n.arg(2)), flags, n.arg(4), n.arg(5)))
            }
            libc::SYS_read => count(front::read(d, n.arg(1), size(n.arg(2)))),
            libc::SYS_readv => count(front::readv(d, n.arg(1), n.arg(2))),
            libc::SYS_preadv2 => count(front::preadv2(d, n.arg(1), n.arg(2), n.arg(3) as i64)),
            libc::SYS_recvmsg => count(front::recvmsg(d, n.arg(1), n.int(2) as u32)),
            libc::SYS_recvmmsg => count(front::recvmmsg(d, n.arg(1), n.arg(2) as u32, n.int(3) as u32)),
            libc::SYS_sendfile => self.sendfile(d),
            libc::SYS_splice => self.splice(d),
            libc::SYS_dup => self.place(self.call.peer.borrow(d.fd)?.as_fd(), false),
            libc::SYS_fcntl => self.fcntl(d),
            libc::SYS_ioctl => self.ioctl(d),
            // dup2 and dup3: inside the watched range the kernel's own does; outside we would lose sight of it.
            _ if self.call.server.watches(self.call.n.arg(1) as u32) => Err(Verdict::Pass),
            _ => Err(libc::EMFILE.into()),
        }
    }

    fn socket(&self) -> Done {
        // A program with more rights than its user is left alone.
        if self.call.peer.secure() {
            return Err(Verdict::Pass);
        }
        let (domain, type_, protocol) = (self.call.n.int(0), self.call.n.int(1), self.call.n.int(2));
        let privileged = caller(self.call.peer).privileged;
        let object = front::socket::<_, Verdict>(domain, type_, protocol, || Ok(self.call.server.system()?.clone()))?;
        self.publish(object, type_ & !SOCK_TYPE_MASK, privileged)
    }

    /// Gives the caller a stand-in for `object`, whose creator was privileged or not.
    fn publish(&self, object: Object, flags: i32, privileged: bool) -> Done {
        self.call.server.sweep();
        let nonblock = flags & libc::SOCK_NONBLOCK != 0;
        let io = |e: std::io::Error| Verdict::Fail(e.raw_os_error().unwrap_or(libc::EIO));
        let (ours, theirs, inode) = peer::pair(nonblock).map_err(io)?;
        let pollable = object.is_pollable();
        let shown = if pollable { halves(object.poll()) } else { (false, false) };
        peer::show(ours.as_fd(), theirs.as_fd(), shown.0, shown.1);
        let entry = OpenSocket {
            object,
            ours,
            nonblock: AtomicBool::new(nonblock),
            privileged,
            pollable,
            shown: Mutex::new(shown),
        };
        self.call.server.sockets.lock().insert(inode, Arc::new(entry));
        self.place(theirs.as_fd(), flags & libc::SOCK_CLOEXEC != 0).inspect_err(|e| {
            if !matches!(e, Verdict::Answered) {
                self.call.server.sockets.lock().remove(&inode);
            }
        })
    }

    fn place(&self, fd: BorrowedFd<'_>, cloexec: bool) -> Done {
        self.call.place(fd, cloexec, self.call.server.numbers.high.clone())
    }

    fn accept(&self, d: &RemoteDescriptor<'_>, flags: i32) -> Done {
        self.publish(front::accept(d, self.call.n.arg(1) != 0, flags)?, flags, d.entry.privileged)
    }

    fn sendfile(&self, d: &RemoteDescriptor<'_>) -> Done {
        let given = match self.call.n.arg(2) {
            0 => None,
            at => Some(i64::from_ne_bytes(self.call.peer.bytes(at)?)),
        };
        let file = self.call.peer.borrow(self.call.n.arg(1) as u32)?;
        let source = SourceFile {
            is_readable: peer::opened_for(file.as_fd()).reading,
            position: peer::position(file.as_fd()),
            is_directory: peer::is_directory(file.as_fd()),
        };
        let begin = front::sendfile(source, given, self.call.n.arg(3) as usize)?;
        // We read it, with rights that the program may have given up.
        if peer::depends_on_reader(file.as_fd()) && !rights::are_as_ours(self.call.peer) {
            return Err(libc::EINVAL.into());
        }
        let total = (self.call.n.arg(3) as usize).min(MAX_BYTES);
        let mut data = Zeroizing::new(vec![0; total.min(1 << 16)]);
        let read = |piece: &mut [u8], at| match self.pull(file.as_fd(), piece, Some(at)) {
            // Some files say that they have a position (eventfd).
            Err(libc::ESPIPE) if given.is_none() => Err(Verdict::Fail(libc::EINVAL)),
            read => Ok(read?),
        };
        let done = front::send_file(d, begin, total, &mut data, read)?;
        let end = begin + done as i64;
        match given {
            None => peer::set_position(file.as_fd(), end),
            Some(_) => self.call.peer.write(&[Span { at: self.call.n.arg(2), len: 8 }], &end.to_ne_bytes())?,
        }
        Ok(done as i64)
    }

    /// Reads from a file of the program's, which may be slow: other calls go on meanwhile.
    fn pull(&self, file: BorrowedFd<'_>, buf: &mut [u8], offset: Option<i64>) -> Result<usize, i32> {
        loop {
            if let Some(n) = peer::pull_at_once(file, buf, offset)? {
                return Ok(n);
            }
            if peer::never_waits(file) {
                return peer::pull(file, buf, offset);
            }
            if peer::readable(file, 0) {
                // It is there, or a file that does not tell: a disk's, a network's, a program's (FUSE).
                self.call.may_block()?;
                return peer::pull(file, buf, offset);
            }
            self.call.wait_until(|_| peer::readable(file, LOOK_MS as i32))?;
        }
    }

    /// `splice(2)`, one end of which is a socket of ours.
    fn splice(&self, d: &RemoteDescriptor<'_>) -> Done {
        const NONBLOCK: u32 = 2;
        let (len, flags) = (self.call.n.arg(4) as usize, self.call.n.int(5) as u32);
        if front::splices_nothing(len, flags)? {
            return Ok(0);
        }
        let [from, to] =
            [self.call.peer.borrow(self.call.n.arg(0) as u32)?, self.call.peer.borrow(self.call.n.arg(2) as u32)?];
        let [reads, writes] = [peer::opened_for(from.as_fd()), peer::opened_for(to.as_fd())];
        if reads.nothing || writes.nothing {
            return Err(libc::EBADF.into());
        }
        let end = |file: &OwnedFd, is_open_for_it, offset| SpliceEnd {
            is_pipe: peer::is_pipe(file.as_fd()),
            is_open_for_it,
            offset,
        };
        let from_end = end(&from, reads.reading, self.call.n.arg(1));
        match front::splice(d, from_end, end(&to, writes.writing, self.call.n.arg(3)), len)? {
            Splice::FromPipe => {
                let nonblock = flags & NONBLOCK != 0 || peer::never_waits(from.as_fd());
                self.splice_in(d, from.as_fd(), len, nonblock)
            }
            Splice::ToPipe => {
                let nonblock = flags & NONBLOCK != 0 || peer::never_waits(to.as_fd());
                self.splice_out(d, to.as_fd(), len, nonblock)
            }
        }
    }

    /// Moves bytes from a pipe into the socket.
    fn splice_in(&self, d: &RemoteDescriptor<'_>, pipe: BorrowedFd<'_>, len: usize, nonblock: bool) -> Done {
        const MORE: u64 = 4;
        let total = len.min(1 << 20);
        self.wait_for_pipe(nonblock, |ms| peer::readable(pipe, ms))?;
        let mut data = Zeroizing::new(vec![0; total]);
        let n = self.pull(pipe, &mut data, None)?;
        let more = self.call.n.arg(5) & MORE != 0 || (n < total && peer::readable(pipe, 0));
        let flags = if more { MSG_MORE } else { 0 };
        count(front::give(d, SendMsg { data: &[&data[..n]], flags, spliced: true, ..SendMsg::default() }))
    }

    /// Moves what the socket gives into a pipe, once that has room: what was received cannot be given back.
    fn splice_out(&self, d: &RemoteDescriptor<'_>, pipe: BorrowedFd<'_>, len: usize, nonblock: bool) -> Done {
        self.wait_for_pipe(nonblock, |ms| peer::writable(pipe, ms))?;
        if !peer::has_reader(pipe) {
            return Err(libc::EPIPE.into());
        }
        let room = peer::pipe_room(pipe)?.min(len).min(1 << 16);
        let mut data = Zeroizing::new(vec![0; room]);
        // Others may fill the pipe first.
        self.call.may_block()?;
        let got = front::take(d, &mut [&mut data], 0, 0)?;
        Ok(peer::push(pipe, &data[..got.len.min(room)])? as i64)
    }

    /// Waits until a pipe is `ready` within some milliseconds.
    fn wait_for_pipe(&self, nonblock: bool, ready: impl Fn(i32) -> bool) -> Result<(), Verdict> {
        match ready(0) {
            true => Ok(()),
            false if nonblock => Err(libc::EAGAIN.into()),
            false => Ok(self.call.wait_until(|_| ready(LOOK_MS as i32)).map(drop)?),
        }
    }

    fn fcntl(&self, d: &RemoteDescriptor<'_>) -> Done {
        match self.call.n.int(1) {
            command @ (libc::F_DUPFD | libc::F_DUPFD_CLOEXEC) => {
                let numbers = self.call.numbers_from()?;
                let high = numbers.filter(|n| self.call.server.numbers.high.contains(n));
                let theirs = self.call.peer.borrow(d.fd)?;
                self.call.place(theirs.as_fd(), command == libc::F_DUPFD_CLOEXEC, high)
            }
            libc::F_SETFL => {
                d.entry.nonblock.store(self.call.n.int(2) & libc::O_NONBLOCK != 0, Ordering::Relaxed);
                Err(Verdict::Pass)
            }
            _ => Err(Verdict::Pass),
        }
    }

    fn ioctl(&self, d: &RemoteDescriptor<'_>) -> Done {
        let request = self.call.n.arg(1) as u32;
        front::ioctl(d, request)?;
        if u64::from(request) == libc::FIONBIO {
            let on = i32::from_ne_bytes(self.call.peer.bytes(self.call.n.arg(2))?);
            d.entry.nonblock.store(on != 0, Ordering::Relaxed);
        }
        Err(Verdict::Pass)
    }
}

/// A descriptor of the program in the hands of one call.
struct RemoteDescriptor<'a> {
    call: &'a CallContext<'a>,
    entry: &'a OpenSocket,
    fd: u32,
    audit: Option<AuditObserver>,
}

impl<'a> RemoteDescriptor<'a> {
    /// The descriptor `fd`, which stands for `entry`. A call on it may have to wait for the keeper.
    ///
    /// # Errors
    /// `ENOMEM` when too many wait.
    fn new(call: &'a CallContext<'a>, entry: &'a OpenSocket, fd: u32) -> Result<Self, i32> {
        may_ask_keeper(call)?;
        let audit = call.server.audit.map(|words| AuditObserver { words, privileged: entry.privileged });
        Ok(RemoteDescriptor { call, entry, fd, audit })
    }

    /// The pieces of the program's memory, and the bytes in all that one call moves.
    fn spans(&self, buffers: Buffers) -> Result<(Vec<Span>, usize), Verdict> {
        let spans = match buffers {
            Buffers::One { at, len } => vec![Span { at, len }],
            Buffers::Vector { at, count, too_many } => self.call.peer.spans(at, count, too_many.number())?,
        };
        let total = spans.iter().fold(0usize, |sum, s| sum.saturating_add(s.len)).min(MAX_BYTES);
        Ok((spans, total))
    }
}

impl Memory for RemoteDescriptor<'_> {
    type Failure = Verdict;

    const MAX_INPUT: usize = 1 << 20;

    fn read<const N: usize>(&self, at: u64) -> Result<[u8; N], Verdict> {
        Ok(self.call.peer.bytes(at)?)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> Result<(), Verdict> {
        Ok(self.call.peer.write(&[Span { at, len: bytes.len() }], bytes)?)
    }

    fn input<R>(&self, at: u64, len: usize, then: impl FnOnce(&[u8]) -> R) -> Result<R, Verdict> {
        let mut bytes = Zeroizing::new(vec![0; len]);
        self.call.peer.read(&[Span { at, len }], &mut bytes)?;
        Ok(then(&bytes))
    }

    fn gather<R>(&self, from: Buffers, then: impl FnOnce(&[&[u8]], usize) -> Result<R, Verdict>) -> Result<R, Verdict> {
        let (spans, total) = self.spans(from)?;
        let mut data = Zeroizing::new(vec![0; total]);
        // The socket's own errors come first; bytes before the fault are not sent (LIMITATIONS.md).
        match self.call.peer.read(&spans, &mut data) {
            Err(libc::EFAULT) => then(&[&[]], total),
            read => {
                read?;
                then(&[&data], 0)
            }
        }
    }

    fn scatter(
        &self,
        to: Buffers,
        then: impl FnOnce(&mut [&mut [u8]], usize) -> Result<Received, Verdict>,
    ) -> Result<Received, Verdict> {
        let (spans, room) = self.spans(to)?;
        let mut data = Zeroizing::new(vec![0; room]);
        let got = then(&mut [&mut data], 0)?;
        self.call.peer.write(&spans, &data[..got.len.min(room)])?;
        Ok(got)
    }
}

impl Task for RemoteDescriptor<'_> {
    fn wait(&self, word: &AtomicU32, seen: u32) -> Result<(), Errno> {
        let waited = self.call.wait_until(|_| {
            // A time-out or an early wake-up: the word decides.
            let _ = sleep::wait(word, seen, LOOK_MS);
            word.load(Ordering::Acquire) != seen
        });
        waited.map(drop).map_err(|e| Errno::new(e).unwrap_or(Errno::EINTR))
    }

    fn keyring_key(&self, serial: i32, names: bool) -> Result<KeyringKey, Errno> {
        let errno = |e| Errno::new(e).unwrap_or(Errno::EIO);
        let ids = rights::other_ids(self.call.peer).map_err(errno)?;
        if names && let Some(named) = KeyringKey::named_by(&keys::description(serial, ids.as_ref()).map_err(errno)?) {
            return Ok(named);
        }
        keys::payload(serial, ids.as_ref()).map(KeyringKey::Payload).map_err(errno)
    }

    fn may_use_home(&self) -> Result<(), KeepError> {
        match rights::other_ids(self.call.peer) {
            Ok(None) => Ok(()),
            _ => Err(KeepError::Denied("the caller is not of the launcher's user and groups".to_owned())),
        }
    }

    fn observer(&self) -> Option<&dyn Observer> {
        self.audit.as_ref().map(|observer| observer as &dyn Observer)
    }
}

/// Counts for the audit.
struct AuditObserver {
    words: &'static [AtomicU64],
    /// Whether the socket's creator was privileged, by which the audit files its calls.
    privileged: bool,
}

impl Observer for AuditObserver {
    fn event(&self, event: &Event<'_>) {
        Counters::new(self.words).count(event, self.privileged);
    }
}

impl Descriptor for RemoteDescriptor<'_> {
    type Lock = RawMutex;

    fn task(&self) -> &dyn Task {
        self
    }

    fn object(&self) -> &Object {
        &self.entry.object
    }

    fn is_nonblocking(&self) -> bool {
        self.entry.nonblock.load(Ordering::Relaxed)
    }

    fn caller(&self) -> Caller {
        caller(self.call.peer)
    }

    fn own_port(&self) -> u32 {
        self.call.peer.id()
    }

    fn begin(&self) -> Result<(), Verdict> {
        self.call.check_waiting()
    }

    fn changed(&self) {
        if !self.entry.pollable {
            return;
        }
        let now = halves(self.entry.object.poll());
        let mut shown = self.entry.shown.lock();
        if *shown != now
            && let Ok(theirs) = self.call.peer.borrow(self.fd)
        {
            peer::show(self.entry.ours.as_fd(), theirs.as_fd(), now.0, now.1);
            *shown = now;
        }
    }

    fn sweep(&self) -> bool {
        self.call.server.sweep()
    }

    fn ends_call(failure: &Verdict) -> bool {
        !matches!(failure, Verdict::Fail(_))
    }
}

fn halves(mask: PollMask) -> (bool, bool) {
    (mask.any(PollMask::IN), mask.any(PollMask::OUT))
}
