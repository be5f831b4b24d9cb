//! The way to a keeper from inside a process that is somebody else's.
//!
//! A request has a connection for itself, and leaves it for the next one. So no thread gets the reply of another one, and none
//! waits for another one, except inside the keeper. All that the program may do to us meanwhile is expected: it forks, it has
//! signals, it closes all descriptors and opens its own under our numbers.

use crate::client::ClientError;
use crate::connection::{Connection, Process, StepOp, Trouble};
use crate::message::{Answer, Code, MAX_LONG_TEXT_LEN, Operation, Refusal, Request};
use crate::reference::Reference;
use sealane_crypto::OpError;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, TryLockError};
use std::time::{Duration, Instant};

pub use crate::connection::Manner;

/// The time that a program may take longer to load us where it asks for a connection then.
const PATIENCE_AT_LOAD: Duration = Duration::from_secs(2);
/// The time in which nobody asks a keeper that has not served a request in time.
const REST: Duration = Duration::from_secs(2);
/// The time in which a keeper answers at once.
const AT_ONCE: Duration = Duration::from_millis(200);
/// The connections that may wait for the next request.
const PLACES: usize = 4;
/// The first pause before a keeper that has no room for another connection is asked again, and the longest: each is twice the one
/// before.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(200));

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
        Process::this()
    }

    /// Whether this process may not be able to make other connections: none that can be used is given up.
    pub(crate) fn keeps_connections(&self) -> bool {
        self.manner.connects_at_load
    }

    /// Whether a connection that waits has shared memory with the keeper.
    pub(crate) fn shares_memory(&self) -> bool {
        self.at_places(|place| place.as_ref().filter(|connection| connection.shares_memory()).map(drop)).is_some()
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
        self.at_places(|place| place.take().filter(|connection| connection.is_usable()))
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
        self.ask_until(operation, Instant::now() + self.manner.patience)
    }

    /// Asks the keeper as [`Self::ask`] does, until this moment at most: several requests may have a time for all of them.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn ask_until(&self, operation: Operation, end: Instant) -> Result<Answer, ClientError> {
        self.request(operation, Instant::now(), end).map_err(|trouble| self.error(trouble))
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

    /// Has the keeper forget a message, if it answers at once; nobody is told what it says. Returns whether the connection can be used.
    pub(crate) fn forget(&self, connection: &mut Connection, stream: u32) -> bool {
        let now = Instant::now();
        if !self.rest.is_over(now) {
            return false;
        }
        let mut request = Request { id: 0, operation: Operation::StreamForget { stream } };
        // A refusal says that it has forgotten it already.
        matches!(self.noted(connection.ask(&mut request, now + AT_ONCE)), Ok(_) | Err(Trouble::Refused(_)))
    }

    fn error(&self, trouble: Trouble) -> ClientError {
        let error = match trouble {
            Trouble::Refused(refusal) => ClientError::Refused(refusal),
            Trouble::Io(e) | Trouble::Lost(e) => ClientError::Io(self.path.clone(), e),
        };
        (self.manner.failed)(&error);
        error
    }

    /// The failure of a text that is longer than the keeper takes one of this algorithm.
    pub(crate) fn too_long(&self, algorithm: &str) -> OpError {
        let text = format!("the keeper takes texts of {algorithm} of up to {MAX_LONG_TEXT_LEN} bytes");
        self.error(Trouble::Refused(Refusal { code: Code::Parameter, text }));
        OpError::Driver
    }

    /// The failure of a message that the keeper holds no more, or holds for another process.
    pub(crate) fn lost(&self, why: &'static str) -> OpError {
        self.error(Trouble::Io(io::Error::other(why)));
        OpError::Driver
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
            Err(Trouble::Io(e) | Trouble::Lost(e)) if e.kind() == io::ErrorKind::TimedOut => {
                self.rest.begin(Instant::now());
            }
            // A keeper that answers does not hang.
            Ok(_) | Err(Trouble::Refused(_)) => self.rest.end(),
            Err(Trouble::Io(_) | Trouble::Lost(_)) => {}
        }
        done
    }

    /// Computes on texts by one key, each of which is `done` then. The request may be served twice, as with [`Self::ask`]. A text without
    /// an outcome is as it was, unless its computation ends while the text is read back: the keeper goes away or does not answer in time,
    /// the key is revoked, the program closes the connection or changes its user.
    ///
    /// # Errors
    /// [`ClientError`]: texts that are not `done` were not computed; [`ClientError::Refused`] if none was. If some texts were refused beside
    /// others, the manner is told of the first refusal.
    pub fn compute(&self, key: &Reference, ops: &mut [StepOp<'_>]) -> Result<(), ClientError> {
        let now = Instant::now();
        let end = now + self.manner.patience;
        let mut refused = None;
        let compute = || self.exchange_by(false, end, |connection| connection.compute(key, ops, &mut refused, end));
        let done = self.watched(now, compute);
        let goes_on = refused.as_ref().is_none_or(|refusal| self.has_rights(refusal));
        if let Some(refusal) = refused {
            self.error(Trouble::Refused(refusal));
        }
        let ((), connection) = done.map_err(|trouble| self.error(trouble))?;
        if goes_on {
            self.leave(connection);
        }
        Ok(())
    }

    /// Whether a connection goes on after a refusal. The groups of the program may have changed since it connected: otherwise the next
    /// request connects again, if it may.
    fn has_rights(&self, refusal: &Refusal) -> bool {
        self.manner.connects_at_load || !matches!(refusal.code, Code::Denied | Code::NoKey)
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
                    if self.has_rights(&refusal) && !(is_loading && connection.was_new()) {
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
    use crate::client::PATIENCE;
    use crate::codec::Writer;
    use crate::connection::Text;
    use crate::limits::{MAX_STEPS, PART_LEN, SLOT_LEN, SLOTS, TEXTS_AT};
    use crate::message::{MAX_MESSAGE_LEN, Reply};
    use crate::reference::KeyRef;
    use crate::text::{NotDone, Outcome, Step, StepsRequest, write_reply};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
    use sealane_crypto::skcipher::Direction;
    use sealane_sys::slots::Slots;
    use sealane_sys::unix;
    use std::os::fd::{AsFd, OwnedFd};
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
                Err(Trouble::Io(e) | Trouble::Lost(e)) => panic!("{e}"),
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
                Err(Trouble::Io(e) | Trouble::Lost(e)) => assert_eq!(e.kind(), io::ErrorKind::NotFound, "{e}"),
                Err(Trouble::Refused(refusal)) => panic!("{refusal}"),
                Ok(_) => panic!("it is served"),
            }
        });
    }

    #[test]
    fn a_request_whose_text_is_lost_is_made_once_and_tells_nothing_of_others() {
        let fake = Fake::new("lost");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let (now, mut asked) = (Instant::now(), 0);
        let done = keeper.watched(now, || {
            keeper.exchange_by(false, now + HOUR, |_| {
                asked += 1;
                Err::<(), _>(Trouble::Lost(io::ErrorKind::ConnectionReset.into()))
            })
        });
        assert!(matches!(done, Err(Trouble::Lost(_))));
        assert!(asked == 1 && keeper.rest.is_over(now));
    }

    #[test]
    fn a_text_of_which_a_part_was_taken_is_not_computed_again() {
        const LEN: usize = 2 * PART_LEN;
        let fake = Fake::new("part");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let key = Reference::from(KeyRef::Wrapped(vec![1]));
        let serve = || {
            let client = rustix::net::accept(&fake.listener).unwrap();
            let mut bytes = vec![0; MAX_MESSAGE_LEN];
            // The first one comes over the socket.
            let text = vec![7; LEN].into();
            let computed = Answer::Computed { version: 0, iv: vec![3; 16], text, tag: vec![] };
            let (len, _) = rustix::net::recv(&client, &mut bytes[..], RecvFlags::empty()).unwrap();
            let reply = Reply { id: Request::id_of(&bytes[..len]), answer: computed }.encode();
            rustix::net::send(&client, &reply, SendFlags::NOSIGNAL).unwrap();
            let mut slots = give(&client, SLOT_LEN);
            while !slots.has_request(0) || slots.written(0) < LEN {
                std::thread::yield_now();
            }
            slots.put(0, TEXTS_AT, &[9; PART_LEN]);
            slots.publish(0, PART_LEN);
            // The client wipes what it has taken. Then the memory is taken back.
            let mut last = [9];
            while last != [0] {
                assert!(slots.part(0, TEXTS_AT + PART_LEN - 1, &mut last));
                std::thread::yield_now();
            }
            drop(slots.memory());
            client
        };
        std::thread::scope(|scope| {
            let served = scope.spawn(serve);
            let mut text = vec![1; LEN];
            let mut compute = || {
                let step = Step::Cipher { direction: Direction::Encrypt, iv: &[2; 16] };
                keeper.compute(&key, &mut [StepOp::new(step, Text::Changed((&mut text[..]).into()))])
            };
            assert!(compute().is_ok());
            assert!(matches!(compute(), Err(ClientError::Io(..))));
            assert!(text[..PART_LEN] == [9; PART_LEN] && text[PART_LEN..] == [7; PART_LEN]);
            // Nobody has asked again.
            let _client = served.join().unwrap();
            let mut fds = [PollFd::new(&fake.listener, PollFlags::IN)];
            assert_eq!(poll(&mut fds, Some(&Timespec::default())), Ok(0));
        });
    }

    /// Serves a request over a socket: a MAC.
    fn sign(client: &OwnedFd) {
        let mut bytes = vec![0; MAX_MESSAGE_LEN];
        let (len, _) = rustix::net::recv(client, &mut bytes[..], RecvFlags::empty()).unwrap();
        let Request { id, operation } = Request::decode(&bytes[..len]).unwrap();
        assert!(matches!(operation, Operation::MacBy { .. }), "{}", operation.name());
        let reply = Reply { id, answer: Answer::Tag { version: 0, tag: vec![5; 32] } }.encode();
        rustix::net::send(client, &reply, SendFlags::NOSIGNAL).unwrap();
    }

    /// Gives slots of this length to the client that asks for them.
    fn give(client: &OwnedFd, room: usize) -> Slots {
        let mut bytes = vec![0; MAX_MESSAGE_LEN];
        let (len, _) = rustix::net::recv(client, &mut bytes[..], RecvFlags::empty()).unwrap();
        let (slots, file) = Slots::new(SLOTS, room).unwrap();
        let answer = Answer::Slots { count: SLOTS as u32, room: room as u32 };
        let reply = Reply { id: Request::id_of(&bytes[..len]), answer }.encode();
        unix::send_with(client.as_fd(), &reply, Some(file.as_fd())).unwrap();
        slots
    }

    /// Waits for a request of as many steps as there are outcomes, does something before its client goes on, and replies.
    fn reply_in_slot(slots: &Slots, done: &[Result<Outcome, NotDone>], before: impl FnOnce()) {
        while !slots.has_request(0) {
            std::thread::yield_now();
        }
        let mut front = vec![0; TEXTS_AT];
        let len = slots.request(0, &mut front).unwrap();
        let request = StepsRequest::of(&front[..len]).unwrap();
        assert_eq!(request.steps.len(), done.len());
        let mut reply = Writer::new();
        write_reply(&mut reply, request.id, 0, done.iter());
        before();
        slots.reply(0, &[&reply.done()]);
    }

    fn macs(count: usize) -> Vec<StepOp<'static>> {
        (0..count).map(|_| StepOp::new(Step::Mac, Text::Read(&[b"text"]))).collect()
    }

    fn is_signed(op: &StepOp<'_>) -> bool {
        op.done.as_ref().is_some_and(|done| done.as_ref().is_ok_and(|outcome| outcome.tag[..] == [5; 32]))
    }

    #[test]
    fn a_busy_keeper_is_asked_again_for_several_texts_as_for_one() {
        let fake = Fake::new("several");
        let keeper = Pool::new(fake.path.clone(), Manner { patience: HOUR, ..Manner::default() });
        let key = Reference::from(KeyRef::Wrapped(vec![1]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let busy = rustix::net::accept(&fake.listener).unwrap();
                let refusal = Refusal { code: Code::Busy, text: "too many clients".to_owned() };
                let reply = Reply { id: 0, answer: Answer::Refused(refusal) }.encode();
                rustix::net::send(&busy, &reply, SendFlags::NOSIGNAL).unwrap();
                drop(busy);
                let client = rustix::net::accept(&fake.listener).unwrap();
                (0..3).for_each(|_| sign(&client));
            });
            let mut ops = macs(3);
            assert!(keeper.compute(&key, &mut ops).is_ok() && ops.iter().all(is_signed));
        });
    }

    #[test]
    fn texts_that_were_computed_before_the_keeper_went_are_done() {
        let fake = Fake::new("went");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let key = Reference::from(KeyRef::Wrapped(vec![1]));
        let serve = || {
            let client = rustix::net::accept(&fake.listener).unwrap();
            // The first one comes over the socket.
            sign(&client);
            let mut slots = give(&client, SLOT_LEN);
            let done = vec![Ok(Outcome::of(&[], &[5; 32]).unwrap()); MAX_STEPS];
            // Nobody is there from here on.
            reply_in_slot(&slots, &done, || std::fs::remove_file(&fake.path).unwrap());
            while !slots.has_request(0) {
                std::thread::yield_now();
            }
            drop((slots.memory(), client));
        };
        std::thread::scope(|scope| {
            scope.spawn(serve);
            assert!(keeper.compute(&key, &mut macs(1)).is_ok());
            let mut ops = macs(MAX_STEPS + 8);
            assert!(matches!(keeper.compute(&key, &mut ops), Err(ClientError::Io(..))));
            let (first, rest) = ops.split_at(MAX_STEPS);
            assert!(first.iter().all(is_signed) && rest.iter().all(|op| op.done.is_none()));
        });
    }

    #[test]
    fn a_reply_that_is_wrong_in_the_middle_has_no_outcomes() {
        let fake = Fake::new("middle");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let key = Reference::from(KeyRef::Wrapped(vec![1]));
        std::thread::scope(|scope| {
            let served = scope.spawn(|| {
                let client = rustix::net::accept(&fake.listener).unwrap();
                sign(&client);
                let slots = give(&client, SLOT_LEN);
                // A MAC has no IV that continues its text.
                let done = [&[][..], &[1; 16]].map(|iv| Ok(Outcome::of(iv, &[5; 32]).unwrap()));
                reply_in_slot(&slots, &done, || std::fs::remove_file(&fake.path).unwrap());
                // The client reads it while it is open.
                (client, slots)
            });
            assert!(keeper.compute(&key, &mut macs(1)).is_ok());
            let mut ops = macs(2);
            assert!(matches!(keeper.compute(&key, &mut ops), Err(ClientError::Io(..))));
            assert!(ops.iter().all(|op| op.done.is_none()));
            drop(served.join());
        });
    }

    #[test]
    fn slots_of_another_length_are_not_used() {
        let fake = Fake::new("another");
        let keeper = Pool::new(fake.path.clone(), Manner::default());
        let key = Reference::from(KeyRef::Wrapped(vec![1]));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let client = rustix::net::accept(&fake.listener).unwrap();
                sign(&client);
                let _slots = give(&client, SLOT_LEN - 4096);
                (0..2).for_each(|_| sign(&client));
            });
            for _ in 0..3 {
                assert!(keeper.compute(&key, &mut macs(1)).is_ok());
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
            Err(Trouble::Io(e) | Trouble::Lost(e)) => panic!("{e}"),
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
