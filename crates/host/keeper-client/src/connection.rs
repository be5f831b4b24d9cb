//! A connection to a keeper in a process that is somebody else's: its socket, which the program may close or take into a child, and
//! the shared memory beside it.

use crate::client::{ClientError, PATIENCE, receive_reply};
use crate::codec::{Malformed, Wiped, Writer};
use crate::lane::{Front, Lane, LaneReply};
use crate::limits::{MAX_STEPS, MAX_TEXTS_LEN, PART_LEN, SLOT_LEN, SLOTS, TEXTS_AT};
use crate::listener;
use crate::message::{Answer, Code, Operation, Refusal, Reply, Request};
use crate::reference::Reference;
use crate::text::{NotDone, Outcome, Step, StepsReply, front_len, write_request};
use inout::InOutBuf;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use sealane_crypto::OpError;
use sealane_crypto::wipe::wipe;
use sealane_sys::{forks, unix};
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// The bytes of a reply that are read without taking memory: enough for eight tags of 32 bytes, or twenty IVs.
const SHORT_REPLY_LEN: usize = 512;
/// The lowest number of a descriptor: those below are the program's standard ones, even where it runs without them.
const FIRST: i32 = 3;

/// The way in which a program uses a keeper.
#[derive(Debug, Clone, Copy)]
pub struct Manner {
    /// The time that a request may take in all.
    pub patience: Duration,
    /// The lowest number of a descriptor, where the program's limit admits it, so that those which the program expects stay free.
    pub first_descriptor: i32,
    /// Makes what outlives a request, where the program's memory is divided among those that use it: `f` does, and it takes memory
    /// that belongs to none of them.
    pub lasting: fn(f: &mut dyn FnMut()),
    /// Connect at once. The program may not be able to connect later, so that no connection that can be used is given up.
    pub connects_at_load: bool,
    /// Is told of each request that fails, in the thread that made it: an operation of the crypto core that fails says no more than that.
    pub failed: fn(&ClientError),
}

impl Default for Manner {
    fn default() -> Self {
        Manner {
            patience: PATIENCE,
            first_descriptor: FIRST,
            lasting: |f| f(),
            connects_at_load: false,
            failed: |_| {},
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
    /// Tells a child by vfork from its parent.
    id: i32,
    /// Its number ([`forks::process`]).
    of: u64,
    user: u32,
    group: u32,
}

impl Process {
    pub(crate) fn this() -> Self {
        Process {
            id: rustix::process::getpid().as_raw_pid(),
            of: forks::process(),
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
        }
    }
}

/// A failure of a request.
pub(crate) enum Trouble {
    Refused(Refusal),
    /// The connection is of no use any more, and whether the request was served is not known.
    Io(io::Error),
    /// As [`Trouble::Io`], and the text of the request may be lost: it cannot be made again.
    Lost(io::Error),
}

impl From<io::Error> for Trouble {
    fn from(e: io::Error) -> Self {
        Trouble::Io(e)
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "it does not answer in time")
}

/// The time until a moment.
fn until(end: Instant) -> io::Result<Duration> {
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
    fn open(path: &Path, manner: &Manner, end: Instant) -> io::Result<Self> {
        let address = SocketAddrUnix::new(path)?;
        let process = Process::this();
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
        listener::check(path, &socket, process.user)?;
        let identity = identity(&socket)?;
        Ok(Socket { socket: Some(socket), identity, process })
    }

    /// Whether it is of this process as it is now, and not of its parent or its former user.
    fn is_of_this_process(&self) -> bool {
        self.process == Process::this()
    }

    /// The same, as far as that is to be told for each request through shared memory: the user may change at any time, and the process
    /// by a fork only. A child by vfork counts as its parent, whose memory it has: the socket tells it apart if it has to be used.
    fn is_of_this_user(&self) -> bool {
        let Process { of, user, group, .. } = self.process;
        forks::process() == of
            && rustix::process::geteuid().as_raw() == user
            && rustix::process::getegid().as_raw() == group
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
    fn wait(&self, what: PollFlags, end: Instant) -> io::Result<()> {
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

    fn send(&self, packet: &[u8], end: Instant) -> io::Result<()> {
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
    fn receive(&self, packet: &mut [u8], end: Instant) -> io::Result<usize> {
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
    /// Connects.
    pub(crate) fn open(path: &Path, manner: &Manner, end: Instant) -> Result<Self, Trouble> {
        let socket = Socket::open(path, manner, end)?;
        // Shared memory takes calls that a program which cannot connect later may not make either.
        let fast = if manner.connects_at_load { Fast::None } else { Fast::After(BEFORE_LANE) };
        Ok(Connection { socket, next: 1, fast })
    }

    /// Whether it may be used: it is open, and neither another process's nor another user's.
    pub(crate) fn is_usable(&self) -> bool {
        match &self.fast {
            // The descriptor is looked at before it is used. If the program has closed it, the keeper has to be told of each request.
            Fast::Lane(lane) => lane.is_open() && self.socket.is_of_this_user(),
            Fast::After(_) | Fast::None => self.socket.get().is_ok(),
        }
    }

    /// Whether frequent requests go through shared memory.
    pub(crate) fn shares_memory(&self) -> bool {
        matches!(self.fast, Fast::Lane(_))
    }

    /// Whether it was made for the request that it has just had.
    pub(crate) fn was_new(&self) -> bool {
        self.next == 2
    }

    /// Asks, and waits for the answer. After [`Trouble::Io`] the connection is of no use any more.
    pub(crate) fn ask(&mut self, request: &mut Request, end: Instant) -> Result<Answer, Trouble> {
        if request.operation.is_frequent() {
            self.look_for_lane(end)?;
        }
        self.ask_as_it_is(request, end)
    }

    /// The same, without asking for shared memory.
    fn ask_as_it_is(&mut self, request: &mut Request, end: Instant) -> Result<Answer, Trouble> {
        request.id = self.next;
        self.next += 1;
        let reply_len = request.operation.reply_len();
        if let Fast::Lane(lane) = &mut self.fast
            && request.operation.is_frequent()
        {
            let message = request.encode();
            if message.len().max(reply_len) <= SLOT_LEN {
                let reply = lane.exchange(|| self.socket.get(), &[&message], end)?;
                return read_whole(request.id, &reply, reply_len);
            }
        }
        let sent = self.socket.send(&request.encode(), end);
        let mut bytes = Wiped::from(vec![0u8; reply_len]);
        let len = receive_reply(sent, || self.socket.receive(&mut bytes, end))?;
        answer(request.id, &bytes[..len])
    }

    /// Computes on texts, those that are not `done` yet. After [`Trouble::Io`] and [`Trouble::Lost`] the connection is of no use any
    /// more. Of a text without an outcome nothing was written, but for [`Trouble::Lost`].
    ///
    /// It is an error only if all are refused. Otherwise those that are count as failed, and the first of their refusals is in `refused`,
    /// which may have one already. A keeper that has no room for a connection has looked at none of them.
    pub(crate) fn compute(
        &mut self,
        key: &Reference,
        ops: &mut [StepOp<'_>],
        refused: &mut Option<Refusal>,
        end: Instant,
    ) -> Result<(), Trouble> {
        self.look_for_lane(end)?;
        let mut whole = None;
        let mut at = 0;
        while at < ops.len() {
            let rest = &mut ops[at..];
            if rest[0].done.is_some() {
                at += 1;
                continue;
            }
            let len = if matches!(self.fast, Fast::Lane(_)) { fitting(key, rest) } else { 0 };
            let done = match len {
                0 => self.compute_alone(key, &mut rest[0], end),
                len => self.compute_in_slot(key, &mut rest[..len], refused, end),
            };
            match done {
                Ok(()) => {}
                Err(Trouble::Refused(refusal)) if refusal.code != Code::Busy => whole = Some(whole.unwrap_or(refusal)),
                Err(other) => return Err(other),
            }
            at += len.max(1);
        }
        match whole {
            Some(refusal) if ops.iter().all(|op| op.done.is_none()) => return Err(Trouble::Refused(refusal)),
            whole => *refused = refused.take().or(whole),
        }
        ops.iter_mut().for_each(|op| op.done = Some(op.done.take().unwrap_or(Err(OpError::Driver))));
        Ok(())
    }

    /// Computes on a text by a message of its own.
    fn compute_alone(&mut self, key: &Reference, op: &mut StepOp<'_>, end: Instant) -> Result<(), Trouble> {
        let text = Wiped::from(op.text.pieces().collect::<Vec<_>>().concat());
        let mut request = Request { id: 0, operation: Operation::of_step(key.key.clone(), &op.step, text) };
        let outcome = |iv: &[u8], tag: &[u8]| {
            let outcome = Outcome::of(iv, tag).filter(|_| op.step.has(iv, tag));
            outcome.ok_or_else(|| invalid("its reply has an IV or tag of another length"))
        };
        op.done = Some(match (self.ask_as_it_is(&mut request, end)?, &mut op.text) {
            (Answer::Computed { iv, text, tag, .. }, Text::Changed(data)) if text.len() == data.len() => {
                let outcome = outcome(&iv, &tag)?;
                data.get_out().copy_from_slice(&text);
                Ok(outcome)
            }
            (Answer::Tag { tag, .. }, Text::Read(_)) => Ok(outcome(&[], &tag)?),
            (Answer::Failed(error), _) => Err(error),
            _ => return Err(invalid("its reply is to something else")),
        });
        Ok(())
    }

    fn compute_in_slot(
        &mut self,
        key: &Reference,
        ops: &mut [StepOp<'_>],
        refused: &mut Option<Refusal>,
        end: Instant,
    ) -> Result<(), Trouble> {
        let Fast::Lane(lane) = &mut self.fast else { return Err(invalid("there is no slot")) };
        let (id, socket) = (self.next, || self.socket.get());
        self.next += 1;
        if let [StepOp { step, text: Text::Changed(data), done }] = ops
            && data.len() > PART_LEN
        {
            let (mut taken, steps) = (0, [(*step, data.len())]);
            let write = |to: &mut Writer<Front<'_>>| write_request(to, id, &key.bytes, steps.into_iter());
            let reply = lane.exchange_text(socket, write, data, &mut taken, end);
            let read = reply.map_err(Trouble::Io).and_then(|reply| {
                let mut outcome = None;
                read_front(id, &reply, refused, core::iter::once((*step, &mut outcome)))?;
                if let Some(Ok(_)) = outcome {
                    reply.read_text(taken, &mut data.get_out()[taken..]).map_err(Trouble::Lost)?;
                }
                *done = outcome;
                Ok(())
            });
            return match read {
                // In place a part is written over the text of the request.
                Err(Trouble::Io(e)) if taken > 0 => Err(Trouble::Lost(e)),
                Err(Trouble::Refused(refusal)) if taken > 0 => {
                    refused.get_or_insert(refusal);
                    *done = Some(Err(OpError::Driver));
                    Ok(())
                }
                read => read,
            };
        }
        let steps = || ops.iter().map(|op| (op.step, op.text.len()));
        let write = |to: &mut Writer<Front<'_>>| write_request(to, id, &key.bytes, steps());
        let texts = ops.iter().flat_map(|op| op.text.pieces());
        let reply = lane.exchange_texts(socket, write, texts, end)?;
        // No text is written before the whole reply is read.
        if let Err(trouble) = read_front(id, &reply, refused, ops.iter_mut().map(|op| (op.step, &mut op.done))) {
            ops.iter_mut().for_each(|op| op.done = None);
            return Err(trouble);
        }
        let mut at = 0;
        for i in 0..ops.len() {
            let StepOp { text, done, .. } = &mut ops[i];
            let len = text.len();
            if let (Text::Changed(data), Some(Ok(_))) = (text, done) {
                // In place it is written over the text of the request.
                if let Err(e) = reply.read_text(at, data.get_out()) {
                    ops[i..].iter_mut().for_each(|op| op.done = None);
                    return Err(Trouble::Lost(e));
                }
            }
            at += len;
        }
        Ok(())
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
            match unix::receive_with(self.socket.get().map_err(io::Error::from)?, &mut bytes) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                received => break received?,
            }
        };
        if len == 0 {
            return Err(Trouble::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        match (answer(request.id, &bytes[..len]), memory) {
            (Ok(Answer::Slots { count, room }), Some(memory)) => {
                // One of another build may use them otherwise, and the socket is for all.
                if (count as usize, room as usize) == (SLOTS, SLOT_LEN)
                    && let Ok(lane) = Lane::new(&memory)
                {
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

/// A text of a computation.
pub enum Text<'a> {
    /// Of a cipher or AEAD.
    Changed(InOutBuf<'a, 'a, u8>),
    /// Of a MAC, in pieces.
    Read(&'a [&'a [u8]]),
}

impl Text<'_> {
    fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// The text before the computation.
    fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let (one, some) = match self {
            Text::Changed(data) => (Some(data.get_in()), &[][..]),
            Text::Read(pieces) => (None, *pieces),
        };
        one.into_iter().chain(some.iter().copied())
    }
}

/// A computation on a text.
pub struct StepOp<'a> {
    /// The computation.
    pub step: Step<'a>,
    /// Its text.
    pub text: Text<'a>,
    /// The outcome beside its text, or the crypto core's failure; `None` before.
    pub done: Option<Result<Outcome, OpError>>,
}

impl<'a> StepOp<'a> {
    /// A computation that is to be done.
    #[must_use]
    pub fn new(step: Step<'a>, text: Text<'a>) -> Self {
        StepOp { step, text, done: None }
    }
}

/// The number of operations that go together through a slot, which are not done yet.
fn fitting(key: &Reference, ops: &[StepOp<'_>]) -> usize {
    let (mut front, mut texts) = (front_len(&key.bytes), 0);
    let fits = |op: &&StepOp<'_>| {
        front += op.step.front_len();
        texts += op.text.len();
        op.done.is_none() && front <= TEXTS_AT && texts <= MAX_TEXTS_LEN
    };
    ops.iter().take(MAX_STEPS).take_while(fits).count()
}

fn invalid(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Trouble {
    Trouble::Io(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Reads the outcomes of steps, as a reply in shared memory has them around its texts, into their places. The first of those that are
/// refused is in `refused`, unless it has one already.
fn read_front<'a>(
    id: u64,
    reply: &LaneReply<'_>,
    refused: &mut Option<Refusal>,
    steps: impl Iterator<Item = (Step<'a>, &'a mut Option<Result<Outcome, OpError>>)>,
) -> Result<(), Trouble> {
    let (mut short, mut long, len) = ([0; SHORT_REPLY_LEN], None, reply.whole_len());
    let bytes = match short.get_mut(..len) {
        Some(short) => short,
        None if len <= TEXTS_AT => long.insert(Wiped::from(vec![0; len])),
        None => return Err(invalid("its reply is too long")),
    };
    let read = reply.read(0, bytes).map_err(Trouble::Io).and_then(|()| read_outcomes(id, bytes, refused, steps));
    // A MAC may be somebody's key.
    wipe(bytes);
    read
}

/// The same from the bytes of the reply.
fn read_outcomes<'a>(
    id: u64,
    bytes: &[u8],
    refused: &mut Option<Refusal>,
    steps: impl Iterator<Item = (Step<'a>, &'a mut Option<Result<Outcome, OpError>>)>,
) -> Result<(), Trouble> {
    let malformed = |e: Malformed| invalid(format!("its reply is {e}"));
    let Some(mut done) = StepsReply::of(bytes).map_err(malformed)? else {
        return match answer(id, bytes) {
            Ok(_) => Err(invalid("its reply is to something else")),
            Err(trouble) => Err(trouble),
        };
    };
    if done.id != id {
        return Err(invalid("its reply is to another request"));
    }
    let mut first = None;
    for (step, place) in steps {
        *place = Some(match done.next().map_err(malformed)? {
            Some(Ok(outcome)) if step.has(&outcome.iv, &outcome.tag) => Ok(outcome),
            Some(Ok(_)) => return Err(invalid("its reply has an IV or tag of another length")),
            Some(Err(NotDone::Failed(error))) => Err(error),
            Some(Err(NotDone::Refused(code))) => {
                first.get_or_insert(code);
                Err(OpError::Driver)
            }
            None => return Err(invalid("its reply has fewer outcomes than the request had steps")),
        });
    }
    if done.next().map_err(malformed)?.is_some() {
        return Err(invalid("its reply has more outcomes than the request had steps"));
    }
    if let Some(code) = first {
        refused.get_or_insert_with(|| Refusal { code, text: format!("the keeper refuses it: {}", code.name()) });
    }
    Ok(())
}

/// The answer in a reply in shared memory, of at most `max` bytes.
fn read_whole(id: u64, reply: &LaneReply<'_>, max: usize) -> Result<Answer, Trouble> {
    if reply.whole_len() > max {
        return Err(invalid("its reply is too long"));
    }
    let mut bytes = Wiped::from(vec![0; reply.whole_len()]);
    reply.read(0, &mut bytes)?;
    answer(id, &bytes)
}

/// The answer in a reply to the request of this id.
fn answer(id: u64, reply: &[u8]) -> Result<Answer, Trouble> {
    match Reply::answer_to(id, reply) {
        Ok(Answer::Refused(refusal)) => Err(Trouble::Refused(refusal)),
        Ok(answer) => Ok(answer),
        Err(e) => Err(invalid(format!("its reply is {e}"))),
    }
}
