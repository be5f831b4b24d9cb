//! The way to a keeper from inside a process that is somebody else's.
//!
//! A request has a connection for itself, and leaves it for the next one. So no thread gets the reply of another one, and none
//! waits for another one, except inside the keeper. All that the program may do to us meanwhile is expected: it forks, it has
//! signals, it closes all descriptors and opens its own under our numbers.

use crate::client::{ClientError, PATIENCE};
use crate::codec::{Malformed, Wiped};
use crate::lane::{Lane, LaneReply};
use crate::message::{Answer, Code, Operation, Refusal, Reply, Request};
use crate::reference::KeyRef;
use crate::text::{MAX_HEAD_LEN, MAX_TAIL_LEN, ReplyHead, Step, read_tail, request_around};
use inout::InOutBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use sealane_crypto::OpError;
use sealane_sys::unix;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

/// The time that a program may take longer to load us where it asks for a connection then.
const PATIENCE_AT_LOAD: Duration = Duration::from_secs(2);
/// The time in which nobody asks a keeper that has not served a request in time.
const REST: Duration = Duration::from_secs(2);
/// The connections that may wait for the next request.
const PLACES: usize = 4;
/// The first pause before a keeper that has no room for another connection is asked again, and the longest: each is twice the one
/// before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));
/// The lowest number of a descriptor: those below are the program's standard ones, even where it runs without them.
const FIRST: i32 = 3;

/// The way in which a program uses a keeper.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// Tells a child from its parent: a number that no other process in the line of this one's parents has, and that stays the same
    /// here. Where it cannot be had the ids of processes have to do, and it is always the same.
    pub generation: fn() -> u32,
    /// The time that a request may take in all.
    pub patience: Duration,
    /// The lowest number of a descriptor, where the program's limit admits it, so that those which the program expects stay free.
    pub first_descriptor: i32,
    /// Makes what outlives a request, where the program's memory is divided among those that use it: `f` does, and it takes memory
    /// that belongs to none of them.
    pub lasting: fn(f: &mut dyn FnMut()),
    /// Connect at once. The program may not be able to connect later, so that no connection that can be used is given up.
    pub connects_at_load: bool,
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            generation: || 0,
            patience: PATIENCE,
            first_descriptor: FIRST,
            lasting: |f| f(),
            connects_at_load: false,
        }
    }
}

/// A process as the keeper saw it when it connected.
///
/// The keeper takes the user and the groups of that moment for the client's (`SO_PEERCRED`), and not those of a request. So a
/// program that has changed its user needs another connection: with its former rights it could neither do what its new user may,
/// nor be kept from what only the former one may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    /// Tells a child from its parent if the kernel does not tell of forks.
    id: i32,
    /// Changes with each fork.
    generation: u32,
    user: u32,
    group: u32,
}

impl Process {
    fn this(generation: fn() -> u32) -> Self {
        Process {
            id: rustix::process::getpid().as_raw_pid(),
            generation: generation(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }
}

/// A failure of a request.
enum Trouble {
    Refused(Refusal),
    /// The connection is of no use any more, and whether the request was served is not known.
    Io(io::Error),
}

impl From<Errno> for Trouble {
    fn from(errno: Errno) -> Self {
        Trouble::Io(errno.into())
    }
}

fn late() -> Trouble {
    Trouble::Io(io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time"))
}

/// The time until a moment.
fn until(end: Instant) -> Result<Duration, Trouble> {
    let left = end.saturating_duration_since(Instant::now());
    // The kernel counts microseconds, and takes 0 for no limit.
    if left < Duration::from_micros(1) { Err(late()) } else { Ok(left) }
}

/// A connection of one process.
pub struct Connection {
    socket: Socket,
    next: u64,
    fast: Fast,
}

/// The socket of a connection, in a process whose program may close it.
struct Socket {
    generation: fn() -> u32,
    /// `None` only while it is dropped.
    socket: Option<OwnedFd>,
    /// Device and inode of the socket. No other file of the system has both while this one is open.
    identity: (u64, u64),
    process: Process,
}

/// The way of frequent requests over a connection.
enum Fast {
    /// So many go over the socket before memory is asked for.
    After(u32),
    /// Shared memory.
    Lane(Lane),
    /// The socket.
    None,
}

/// Frequent requests before memory is asked for: programs with one do not need it.
const BEFORE_LANE: u32 = 1;
/// Those before it is asked for again, where all memory was taken.
const BEFORE_NEXT_TRY: u32 = 1000;
/// The longest reply that refuses.
const MAX_REFUSAL_LEN: usize = 4096;

impl Drop for Socket {
    fn drop(&mut self) {
        let is_ours = self.is_open();
        if let Some(socket) = self.socket.take()
            && !is_ours
        {
            // The program has closed it, and may have opened a file of its own under this number.
            let _ = socket.into_raw_fd();
        }
    }
}

fn identity(socket: &OwnedFd) -> Result<(u64, u64), Errno> {
    let stat = rustix::fs::fstat(socket)?;
    Ok((stat.st_dev, stat.st_ino))
}

impl Socket {
    fn open(path: &Path, manner: &Manner, end: Instant) -> Result<Self, Trouble> {
        let generation = manner.generation;
        let address = SocketAddrUnix::new(path)?;
        let process = Process::this(generation);
        let mut socket =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        if socket.as_raw_fd() < manner.first_descriptor
            && let Ok(higher) = rustix::io::fcntl_dupfd_cloexec(&socket, manner.first_descriptor)
        {
            socket = higher;
        }
        if socket.as_raw_fd() < FIRST {
            socket = rustix::io::fcntl_dupfd_cloexec(&socket, FIRST)?;
        }
        // The time also counts for connecting, which waits where the keeper has not accepted those before.
        loop {
            set_socket_timeout(&socket, Timeout::Send, Some(until(end)?))?;
            match rustix::net::connect(&socket, &address) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(late()),
                Err(errno) => return Err(errno.into()),
            }
        }
        let identity = identity(&socket)?;
        Ok(Socket { generation, socket: Some(socket), identity, process })
    }

    /// Whether it is of this process as it is now, and not of its parent or its former user.
    fn is_of_this_process(&self) -> bool {
        self.process == Process::this(self.generation)
    }

    /// Whether the descriptor still is the socket that was made: not one that the program has closed, nor one of the program's.
    fn is_open(&self) -> bool {
        self.socket.as_ref().is_some_and(|socket| identity(socket) == Ok(self.identity))
    }

    /// The socket, if it may be used: it is open, and neither another process's nor another user's.
    fn get(&self) -> Result<&OwnedFd, Errno> {
        let socket = self.socket.as_ref().filter(|_| self.is_of_this_process() && self.is_open());
        socket.ok_or(Errno::BADF)
    }

    /// Waits until the socket can be read or written, however many signals come.
    fn wait(&self, what: PollFlags, end: Instant) -> Result<(), Trouble> {
        loop {
            let left = Timespec::try_from(until(end)?).map_err(|_| late())?;
            let mut fds = [PollFd::from_borrowed_fd(self.get()?.as_fd(), what)];
            match poll(&mut fds, Some(&left)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    fn send(&self, packet: &[u8], end: Instant) -> Result<(), Trouble> {
        loop {
            match rustix::net::send(self.get()?, packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, end)?,
                // A long one, for which the socket may not have room as the kernel makes it.
                Err(Errno::MSGSIZE) if unix::make_room(self.get()?.as_fd(), packet.len()).is_ok() => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Receives a packet, and returns its length: 0 at the end of the connection.
    fn receive(&self, packet: &mut [u8], end: Instant) -> Result<usize, Trouble> {
        loop {
            match rustix::net::recv(self.get()?, &mut *packet, RecvFlags::DONTWAIT) {
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::IN, end)?,
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Connection {
    fn open(path: &Path, manner: &Manner, end: Instant) -> Result<Self, Trouble> {
        let socket = Socket::open(path, manner, end)?;
        // Shared memory takes calls that a program which cannot connect later may not make either.
        let fast = if manner.connects_at_load { Fast::None } else { Fast::After(BEFORE_LANE) };
        Ok(Connection { socket, next: 1, fast })
    }

    /// Whether it was made for the request that it has just had.
    fn was_new(&self) -> bool {
        self.next == 2
    }

    /// Asks, and waits for the answer. After [`Trouble::Io`] the connection is of no use any more.
    fn ask(&mut self, request: &mut Request, end: Instant) -> Result<Answer, Trouble> {
        if request.operation.is_frequent() {
            self.look_for_lane(end)?;
        }
        request.id = self.next;
        self.next += 1;
        let reply_len = request.operation.reply_len();
        if let Fast::Lane(lane) = &mut self.fast
            && request.operation.is_frequent()
        {
            let message = request.encode();
            if message.len().max(reply_len) <= lane.room() {
                let reply = lane.exchange(|| self.socket.get(), &[&message], end).map_err(Trouble::Io)?;
                return read_whole(request.id, &reply, reply_len);
            }
        }
        // If the keeper refuses the connection and closes it, its reason can still be read.
        let sent = self.socket.send(&request.encode(), end);
        let mut bytes = Wiped::from(vec![0u8; reply_len]);
        let mut received = self.socket.receive(&mut bytes, end);
        if matches!(&received, Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::ConnectionReset) {
            // It has not read the request. What it said before it closed comes behind this error.
            received = self.socket.receive(&mut bytes, end);
        }
        let len = match (received, sent) {
            (Ok(len), _) if len > 0 => len,
            (_, Err(trouble)) | (Err(trouble), _) => return Err(trouble),
            (Ok(_), Ok(())) => return Err(Trouble::Io(io::ErrorKind::UnexpectedEof.into())),
        };
        answer(request.id, &bytes[..len])
    }

    /// Computes on a text: the IV that continues it, and the tag. After [`Trouble::Io`] the connection is of no use any more. Without an
    /// output nothing was written.
    fn compute(
        &mut self,
        key: &KeyRef,
        step: &Step<'_>,
        data: &mut InOutBuf<'_, '_, u8>,
        end: Instant,
    ) -> Result<Result<Outcome, OpError>, Trouble> {
        self.look_for_lane(end)?;
        let len = data.len();
        if let Fast::Lane(lane) = &mut self.fast {
            let id = self.next;
            let (head, tail) = request_around(id, key, step, len);
            if head.len() + len + tail.len() <= lane.room() && MAX_HEAD_LEN + len + MAX_TAIL_LEN <= lane.room() {
                self.next += 1;
                let request = [&head[..], data.get_in(), &tail];
                let reply = lane.exchange(|| self.socket.get(), &request, end).map_err(Trouble::Io)?;
                return read_computed(id, step, &reply, data);
            }
        }
        let mut request = Request { id: 0, operation: Operation::of_step(key.clone(), step, data.get_in()) };
        outcome(self.ask(&mut request, end)?, step, data)
    }

    /// Asks for shared memory, if many requests come. Where there is none they go on over the socket.
    fn look_for_lane(&mut self, end: Instant) -> Result<(), Trouble> {
        match &mut self.fast {
            Fast::After(0) => self.fast = Fast::None,
            Fast::After(left) => {
                *left -= 1;
                return Ok(());
            }
            Fast::Lane(_) | Fast::None => return Ok(()),
        }
        let request = Request { id: self.next, operation: Operation::Slots };
        self.next += 1;
        self.socket.send(&request.encode(), end)?;
        self.socket.wait(PollFlags::IN, end)?;
        let mut bytes = vec![0u8; request.operation.reply_len()];
        let (len, memory) = loop {
            match unix::receive_with(self.socket.get()?, &mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                received => break received.map_err(Trouble::Io)?,
            }
        };
        if len == 0 {
            return Err(Trouble::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        match (answer(request.id, &bytes[..len]), memory) {
            (Ok(Answer::Slots { count, room }), Some(memory)) => {
                if let Ok(lane) = Lane::new(&memory, count, room) {
                    self.fast = Fast::Lane(lane);
                }
                Ok(())
            }
            (Err(Trouble::Refused(refusal)), _) if refusal.code == Code::Busy => {
                self.fast = Fast::After(BEFORE_NEXT_TRY);
                Ok(())
            }
            (Ok(_) | Err(Trouble::Refused(_)), _) => Ok(()),
            (Err(trouble), _) => Err(trouble),
        }
    }
}

/// The outcome of a computation beside its text: the IV that continues it, and the tag.
type Outcome = (Vec<u8>, Vec<u8>);

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Trouble {
    Trouble::Io(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// The outcome in an answer, whose text is written.
fn outcome(
    answer: Answer,
    step: &Step<'_>,
    data: &mut InOutBuf<'_, '_, u8>,
) -> Result<Result<Outcome, OpError>, Trouble> {
    match answer {
        Answer::Computed { iv, text, tag, .. } if text.len() == data.len() && step.has(&iv, &tag) => {
            data.get_out().copy_from_slice(&text);
            Ok(Ok((iv, tag)))
        }
        Answer::Failed(error) => Ok(Err(error)),
        _ => Err(invalid("its reply is to something else")),
    }
}

/// The answer in a reply in shared memory, of at most `max` bytes.
fn read_whole(id: u64, reply: &LaneReply<'_>, max: usize) -> Result<Answer, Trouble> {
    if reply.len() > max {
        return Err(invalid("its reply is too long"));
    }
    let mut bytes = Wiped::from(vec![0; reply.len()]);
    reply.read(0, &mut bytes).map_err(Trouble::Io)?;
    answer(id, &bytes)
}

/// The outcome in a reply in shared memory, whose text is written.
fn read_computed(
    id: u64,
    step: &Step<'_>,
    reply: &LaneReply<'_>,
    data: &mut InOutBuf<'_, '_, u8>,
) -> Result<Result<Outcome, OpError>, Trouble> {
    let malformed = |e: Malformed| invalid(format!("its reply is {e}"));
    let mut start = [0; MAX_HEAD_LEN];
    let start = &mut start[..reply.len().min(MAX_HEAD_LEN)];
    reply.read(0, start).map_err(Trouble::Io)?;
    let Some(head) = ReplyHead::of(start).map_err(malformed)? else {
        return outcome(read_whole(id, reply, data.len() + MAX_REFUSAL_LEN)?, step, data);
    };
    if head.id != id || head.text_len != data.len() {
        return Err(invalid("its reply is to another request"));
    }
    let tail_at = head.text_at + head.text_len;
    let mut tail = [0; MAX_TAIL_LEN];
    let Some(tail) = reply.len().checked_sub(tail_at).and_then(|len| tail.get_mut(..len)) else {
        return Err(invalid("its reply has another length than it says"));
    };
    reply.read(tail_at, tail).map_err(Trouble::Io)?;
    let tag = read_tail(tail).map_err(malformed)?.to_vec();
    if !step.has(head.iv, &tag) {
        return Err(invalid("its reply has an IV or tag of another length"));
    }
    // If this fails the text may be lost, and the request is not made again.
    let lost = |e: io::Error| Trouble::Io(io::Error::new(io::ErrorKind::TimedOut, e));
    reply.read(head.text_at, data.get_out()).map_err(lost)?;
    Ok(Ok((head.iv.to_vec(), tag)))
}

/// The answer in a reply to the request of this id.
fn answer(id: u64, reply: &[u8]) -> Result<Answer, Trouble> {
    match Reply::answer_to(id, reply) {
        Ok(Answer::Refused(refusal)) => Err(Trouble::Refused(refusal)),
        Ok(answer) => Ok(answer),
        Err(e) => Err(Trouble::Io(io::Error::new(io::ErrorKind::InvalidData, format!("its reply is {e}")))),
    }
}

/// The time in which a keeper is not asked, because it has not served a request in time.
///
/// A program with one thread for all of its clients stands still while a request waits. If each of them waited for a keeper that
/// hangs, the program would serve nobody, also by keys that are in files.
struct Rest {
    since: Instant,
    /// Its end, in milliseconds from `since`.
    until_ms: AtomicU64,
}

impl Rest {
    fn new() -> Self {
        Rest { since: Instant::now(), until_ms: AtomicU64::new(0) }
    }

    fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.since).as_millis()).unwrap_or(u64::MAX)
    }

    fn begin(&self, now: Instant) {
        self.until_ms.store(self.ms(now + REST), Ordering::Relaxed);
    }

    fn end(&self) {
        self.until_ms.store(0, Ordering::Relaxed);
    }

    fn is_over(&self, now: Instant) -> bool {
        self.ms(now) >= self.until_ms.load(Ordering::Relaxed)
    }
}

/// A keeper, as this process reaches it.
pub struct Pool {
    path: PathBuf,
    manner: Manner,
    rest: Rest,
    /// Connections that wait for the next request. A place that somebody else has is passed over, never waited for: it may be
    /// held by a thread that this process has not, because it is a child.
    places: [Mutex<Option<Connection>>; PLACES],
}

impl Pool {
    /// Connects now if the program's manner is to. If that fails the first request tries again.
    #[must_use]
    pub fn new(path: PathBuf, manner: Manner) -> Self {
        let pool = Pool { path, manner, rest: Rest::new(), places: Default::default() };
        if manner.connects_at_load
            && let Ok(connection) = pool.connect(Instant::now() + PATIENCE_AT_LOAD)
        {
            pool.leave(connection);
        }
        pool
    }

    fn connect(&self, end: Instant) -> Result<Connection, Trouble> {
        Connection::open(&self.path, &self.manner, end)
    }

    /// This process as it is now.
    #[must_use]
    pub fn process(&self) -> Process {
        Process::this(self.manner.generation)
    }

    /// Runs `f` on the places that are free, until it has a result.
    fn at_places<T>(&self, mut f: impl FnMut(&mut Option<Connection>) -> Option<T>) -> Option<T> {
        self.places.iter().find_map(|place| match place.try_lock() {
            Ok(mut place) => f(&mut place),
            Err(TryLockError::Poisoned(place)) => f(&mut place.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        })
    }

    /// A connection that waits. One that cannot be used any more is closed, as far as it is ours to close.
    fn waiting(&self) -> Option<Connection> {
        self.at_places(|place| place.take().filter(|connection| connection.socket.get().is_ok()))
    }

    /// Makes what outlives the request, and its user.
    pub(crate) fn lasting<T>(&self, make: impl FnOnce() -> T) -> T {
        let (mut make, mut made) = (Some(make), None);
        (self.manner.lasting)(&mut || made = make.take().map(|make| make()));
        made.expect("a manner makes it")
    }

    /// Leaves a connection for the next request.
    pub fn leave(&self, connection: Connection) {
        let mut connection = Some(connection);
        self.at_places(|place| {
            if place.is_none() {
                *place = connection.take();
            }
            connection.is_none().then_some(())
        });
    }

    /// Asks the keeper. The request may be served twice, when the keeper ends in the middle of it.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask(&self, operation: Operation) -> Result<Answer, ClientError> {
        let now = Instant::now();
        self.request(operation, now, now + self.manner.patience).map_err(|trouble| self.error(trouble))
    }

    /// Asks the keeper for what it holds for one connection, and returns that too. Its owner [leaves](Self::leave) it when the keeper
    /// holds nothing for it any more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn begin(&self, operation: Operation) -> Result<(Answer, Connection), ClientError> {
        let now = Instant::now();
        let begun = self.watched(now, || self.exchange(operation, now + self.manner.patience));
        begun.map_err(|trouble| self.error(trouble))
    }

    /// Asks over a connection, and no other, also while the keeper is left alone because of another one: what it holds for this one
    /// would be lost. After [`ClientError::Io`] it is of no use any more.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn go_on(&self, connection: &mut Connection, operation: Operation) -> Result<Answer, ClientError> {
        let mut request = Request { id: 0, operation };
        let done = self.noted(connection.ask(&mut request, Instant::now() + self.manner.patience));
        done.map_err(|trouble| self.error(trouble))
    }

    fn error(&self, trouble: Trouble) -> ClientError {
        match trouble {
            Trouble::Refused(refusal) => ClientError::Refused(refusal),
            Trouble::Io(e) => ClientError::Io(self.path.clone(), e),
        }
    }

    /// Asks the keeper, if it is not to be left alone `now`.
    fn request(&self, operation: Operation, now: Instant, end: Instant) -> Result<Answer, Trouble> {
        // Daemons load keys with all their rights, before they give them up.
        let is_loading = operation.is_loading() && !self.manner.connects_at_load;
        let (answer, connection) = self.watched(now, || self.exchange(operation, end))?;
        if !(is_loading && connection.was_new()) {
            self.leave(connection);
        }
        Ok(answer)
    }

    /// Asks by `ask`, if the keeper is not to be left alone `now`, and notes whether it hangs.
    fn watched<T>(&self, now: Instant, ask: impl FnOnce() -> Result<T, Trouble>) -> Result<T, Trouble> {
        if !self.rest.is_over(now) {
            let text = "it has not served a request in time a moment ago";
            return Err(Trouble::Io(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        self.noted(ask())
    }

    /// Notes whether the keeper hangs, by the result of a request.
    fn noted<T>(&self, done: Result<T, Trouble>) -> Result<T, Trouble> {
        match &done {
            Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::TimedOut => self.rest.begin(Instant::now()),
            // A keeper that answers does not hang.
            Ok(_) | Err(Trouble::Refused(_)) => self.rest.end(),
            Err(Trouble::Io(_)) => {}
        }
        done
    }

    /// Computes on a text: the IV that continues it, and the tag. The request may be served twice, as with [`Self::ask`]. Without an
    /// output nothing was written.
    ///
    /// # Errors
    /// [`ClientError`]; within it the crypto core's.
    pub fn compute(
        &self,
        key: &KeyRef,
        step: &Step<'_>,
        mut data: InOutBuf<'_, '_, u8>,
    ) -> Result<Result<(Vec<u8>, Vec<u8>), OpError>, ClientError> {
        let now = Instant::now();
        let end = now + self.manner.patience;
        let compute = || self.exchange_by(false, end, |connection| connection.compute(key, step, &mut data, end));
        let (done, connection) = self.watched(now, compute).map_err(|trouble| self.error(trouble))?;
        self.leave(connection);
        Ok(done)
    }

    fn exchange(&self, operation: Operation, end: Instant) -> Result<(Answer, Connection), Trouble> {
        let is_loading = operation.is_loading() && !self.manner.connects_at_load;
        let mut request = Request { id: 0, operation };
        self.exchange_by(is_loading, end, |connection| connection.ask(&mut request, end))
    }

    fn exchange_by<T>(
        &self,
        is_loading: bool,
        end: Instant,
        mut ask: impl FnMut(&mut Connection) -> Result<T, Trouble>,
    ) -> Result<(T, Connection), Trouble> {
        let (mut has_failed, mut busy, mut pause) = (false, None, PAUSES.0);
        // Where it had no room before, the time has ended because of that. Any other failure is one of its own.
        let failed = |busy: Option<Refusal>, trouble| match (busy, trouble) {
            (Some(refusal), Trouble::Io(e)) if e.kind() == io::ErrorKind::TimedOut => Err(Trouble::Refused(refusal)),
            (_, trouble) => Err(trouble),
        };
        loop {
            let waiting = if has_failed { None } else { self.waiting() };
            let mut connection = match waiting.map_or_else(|| self.connect(end), Ok) {
                Ok(connection) => connection,
                Err(trouble) => return failed(busy, trouble),
            };
            match ask(&mut connection) {
                Ok(answer) => return Ok((answer, connection)),
                // Other processes, or threads of this one, have requests on all the connections that it gives to a user.
                Err(Trouble::Refused(refusal)) if refusal.code == Code::Busy => {
                    if end.saturating_duration_since(Instant::now()) <= pause {
                        return Err(Trouble::Refused(refusal));
                    }
                    std::thread::sleep(pause);
                    (busy, pause) = (Some(refusal), (2 * pause).min(PAUSES.1));
                }
                Err(Trouble::Refused(refusal)) => {
                    // The groups of the program may have changed since it connected: the next request connects again, if it may.
                    let has_rights =
                        self.manner.connects_at_load || !matches!(refusal.code, Code::Denied | Code::NoKey);
                    if has_rights && !(is_loading && connection.was_new()) {
                        self.leave(connection);
                    }
                    return Err(Trouble::Refused(refusal));
                }
                // The keeper may have started again since the last request, or now, or given this place to another client. The
                // next one gets a second chance, no third.
                Err(Trouble::Io(e)) if !has_failed && e.kind() != io::ErrorKind::TimedOut => has_failed = true,
                Err(trouble) => return failed(busy, trouble),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::MAX_MESSAGE_LEN;
    use std::sync::atomic::{AtomicBool, AtomicUsize};

    /// A keeper that answers each request with [`Answer::Version`], or refuses the connection while it is busy.
    struct Fake {
        path: PathBuf,
        listener: OwnedFd,
        is_busy: AtomicBool,
        /// Connections with a request.
        served: AtomicUsize,
    }

    impl Fake {
        fn new(test: &str) -> Self {
            let path = std::env::temp_dir().join(format!("sealane-fake-{test}-{}", std::process::id()));
            let _ = std::fs::remove_file(&path);
            let kind = SocketType::SEQPACKET;
            let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
            rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
            rustix::net::listen(&listener, 16).unwrap();
            Fake { path, listener, is_busy: AtomicBool::new(false), served: AtomicUsize::new(0) }
        }

        /// Serves one request of each connection, until one has none.
        fn serve(&self, busy: usize) {
            loop {
                let client = rustix::net::accept(&self.listener).unwrap();
                let mut bytes = vec![0; MAX_MESSAGE_LEN];
                let (len, _) = rustix::net::recv(&client, &mut bytes[..], RecvFlags::empty()).unwrap();
                if len == 0 {
                    return;
                }
                let count = self.served.fetch_add(1, Ordering::Relaxed);
                let reply = if count < busy || self.is_busy.load(Ordering::Relaxed) {
                    let refusal = Refusal { code: Code::Busy, text: "too many clients".to_owned() };
                    Reply { id: 0, answer: Answer::Refused(refusal) }
                } else {
                    Reply { id: Request::decode(&bytes[..len]).unwrap().id, answer: Answer::Version(7) }
                };
                // One that has waited for long has gone.
                let _ = rustix::net::send(&client, &reply.encode(), SendFlags::NOSIGNAL);
            }
        }

        /// Ends `serve`.
        fn end(&self) {
            drop(Connection::open(&self.path, &Manner::default(), Instant::now() + PATIENCE));
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.path);
        }
    }

    const HOUR: Duration = Duration::from_secs(3600);

    fn ask(keeper: &Pool, now: Instant, end: Instant) -> Result<Answer, Trouble> {
        keeper.request(Operation::List { after: None }, now, end)
    }

    #[test]
    fn a_busy_keeper_is_asked_again_until_there_is_no_time() {
        let fake = Fake::new("busy");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        std::thread::scope(|scope| {
            scope.spawn(|| fake.serve(3));
            let now = Instant::now();
            assert!(matches!(ask(&keeper, now, now + HOUR), Ok(Answer::Version(7))));
            assert_eq!(fake.served.load(Ordering::Relaxed), 4);
            fake.is_busy.store(true, Ordering::Relaxed);
            let late = ask(&keeper, now, Instant::now() + Duration::from_secs(1));
            match late {
                Err(Trouble::Refused(refusal)) => assert_eq!(refusal.code, Code::Busy),
                Err(Trouble::Io(e)) => panic!("{e}"),
                Ok(_) => panic!("it is served"),
            }
            // It does not hang: others are served at once.
            fake.is_busy.store(false, Ordering::Relaxed);
            assert!(matches!(ask(&keeper, now, now + HOUR), Ok(Answer::Version(7))));
            fake.end();
        });
    }

    #[test]
    fn a_keeper_that_has_gone_is_not_told_as_busy() {
        let fake = Fake::new("gone");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = rustix::net::accept(&fake.listener).unwrap();
                rustix::net::recv(&client, &mut [0; 1][..], RecvFlags::empty()).unwrap();
                // Nobody is there when it asks again.
                std::fs::remove_file(&fake.path).unwrap();
                let refusal = Refusal { code: Code::Busy, text: "too many clients".to_owned() };
                let reply = Reply { id: 0, answer: Answer::Refused(refusal) };
                rustix::net::send(&client, &reply.encode(), SendFlags::NOSIGNAL).unwrap();
            });
            let now = Instant::now();
            match ask(&keeper, now, now + HOUR) {
                Err(Trouble::Io(e)) => assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}"),
                Err(Trouble::Refused(refusal)) => panic!("{refusal}"),
                Ok(_) => panic!("it is served"),
            }
        });
    }

    #[test]
    fn a_keeper_that_hangs_is_left_alone_for_a_while() {
        let fake = Fake::new("hangs");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let now = Instant::now();
        let text = |asked: Result<Answer, Trouble>| match asked {
            Err(Trouble::Io(e)) if e.kind() == io::ErrorKind::TimedOut => e.to_string(),
            Err(Trouble::Io(e)) => panic!("{e}"),
            Err(Trouble::Refused(refusal)) => panic!("{refusal}"),
            Ok(_) => panic!("it is served"),
        };
        assert_eq!(text(ask(&keeper, now, now + Duration::from_millis(50))), "it does not answer in time");
        // At once: there would be an hour.
        assert_eq!(text(ask(&keeper, now, now + HOUR)), "it has not served a request in time a moment ago");
        // A connection for which it holds something goes on, and shows that it does not hang any more.
        std::thread::scope(|scope| {
            scope.spawn(|| fake.serve(0));
            let Ok(mut connection) = keeper.connect(now + HOUR) else { panic!("not connected") };
            assert!(!keeper.rest.is_over(Instant::now()), "the rest has ended before anything was asked");
            let list = Operation::List { after: None };
            assert!(matches!(keeper.go_on(&mut connection, list), Ok(Answer::Version(7))));
            assert!(matches!(ask(&keeper, now, now + HOUR), Ok(Answer::Version(7))));
            fake.end();
        });
        keeper.rest.begin(Instant::now());
        std::thread::scope(|scope| {
            scope.spawn(|| fake.serve(0));
            let later = Instant::now() + REST;
            assert!(matches!(ask(&keeper, later, later + HOUR), Ok(Answer::Version(7))));
            fake.end();
        });
    }
}
