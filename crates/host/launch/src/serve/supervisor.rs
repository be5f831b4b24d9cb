//! The supervisor of one launched program (seccomp_unotify(2)): threads that receive notifications of its calls and answer them,
//! and the context of a call meanwhile.
//!
//! Threads receive in turn. One that may have to wait makes sure that another is listening ([`CallContext::may_block`]).

use super::server::{Done, Server, Verdict};
use core::cell::Cell;
use core::marker::PhantomData;
use core::sync::atomic::{AtomicUsize, Ordering};
use sealane_sys::noted_calls::{Noted, NotedCalls};
use sealane_sys::seccomp::{Listener, Notification, Numbers};
use sealane_sys::thread::{Span, Thread};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;
use tracing::warn;

/// The most threads that answer calls at the same time; a further call that waits fails with `ENOMEM`.
const MAX_THREADS: usize = 256;
/// The pause before calls are asked for again when that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The interval at which a waiting thread checks that its caller still waits.
pub(super) const LOOK_MS: u32 = 10;

/// The kernel's own number for a call that a signal interrupted: it restarts it or makes it `EINTR`, by the handler.
const ERESTARTSYS: i32 = 512;

/// Does a call, by the interface that it is about.
pub(super) type Dispatch = fn(&CallContext<'_>) -> Done;

/// The threads that receive and answer the calls of one launched program and its descendants.
pub(crate) struct Supervisor {
    pub(crate) listener: Arc<Listener>,
    pub(crate) server: Arc<Server>,
    dispatch: Dispatch,
    /// The place for calls under way, which the guard reads, if there is one.
    noted: Option<Arc<NotedCalls>>,
    idle: AtomicUsize,
    threads: AtomicUsize,
}

impl Supervisor {
    /// A supervisor of the calls from `listener`, each of which `dispatch` has done by `server`.
    pub(super) fn new(
        listener: Listener,
        server: Arc<Server>,
        dispatch: Dispatch,
        noted: Option<Arc<NotedCalls>>,
    ) -> Arc<Self> {
        Arc::new(Supervisor {
            listener: Arc::new(listener),
            server,
            dispatch,
            noted,
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
        })
    }

    /// Starts to receive, in threads of its own.
    pub(crate) fn start(self: &Arc<Self>) {
        self.start_thread();
    }

    /// Answers a call that the launcher before had received, in a thread of its own.
    pub(crate) fn answer_again(self: &Arc<Self>, call: Notification) {
        let supervisor = self.clone();
        let answer = move || {
            let noted = supervisor.noted.as_ref().map(|noted| noted.note(&call));
            supervisor.answer(&call, noted, true);
        };
        if let Err(e) = std::thread::Builder::new().name("sealane-serve".into()).spawn(answer) {
            warn!(error = %e, "a call of the program: {e}");
            self.listener.answer(call.id, Err(libc::EINTR));
        }
    }

    /// Starts one more thread, unless there are too many. Returns whether there is one now.
    fn start_thread(self: &Arc<Self>) -> bool {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.idle.fetch_add(1, Ordering::Relaxed);
        let supervisor = self.clone();
        let started = std::thread::Builder::new().name("sealane-serve".into()).spawn(move || supervisor.receive());
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
        started.is_ok()
    }

    /// Receives calls, and answers each of them, as long as that is wanted.
    fn receive(self: Arc<Self>) {
        loop {
            // A call is noted as it is received: a launcher may be killed at any instruction.
            let noted = self.noted.as_ref().map(|noted| noted.reserve());
            let next = noted.as_ref().map_or_else(|| self.listener.next(), |noted| noted.next(&self.listener));
            let call = match next {
                Ok(Some(call)) => call,
                Ok(None) => break,
                Err(e) if matches!(e.raw_os_error(), Some(libc::EBADF | libc::EINVAL | libc::ENOTTY)) => break,
                // Without this thread the program's calls would wait for ever.
                Err(e) => {
                    warn!(error = %e, "the program's calls: {e}");
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.answer(&call, noted, false);
            // Threads that were started for waiters go when enough others listen.
            if self.idle.fetch_add(1, Ordering::Relaxed) >= 2 {
                break;
            }
        }
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    /// Has a call done, and answers it. `again`: another launcher may have done it before.
    fn answer(self: &Arc<Self>, n: &Notification, noted: Option<Noted<'_>>, again: bool) {
        let peer = &Thread::new(self.listener.clone(), n);
        let call = CallContext {
            server: &self.server,
            peer,
            n,
            supervisor: self,
            noted: noted.as_ref(),
            is_made_again: again,
            is_interrupted: Cell::new(false),
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.dispatch)(&call)));
        match done {
            Ok(Ok(value)) => {
                call.note_result(value);
                self.listener.answer(n.id, Ok(value));
            }
            Ok(Err(Verdict::Pass)) => self.listener.pass(n.id),
            Ok(Err(Verdict::Answered)) => {}
            Ok(Err(Verdict::Fail(libc::EINTR))) if call.is_interrupted.get() => {
                self.listener.answer(n.id, Err(ERESTARTSYS));
            }
            Ok(Err(Verdict::Fail(errno))) => self.listener.answer(n.id, Err(errno)),
            // The panic itself has been reported with our name.
            Err(_) => self.listener.answer(n.id, Err(libc::EIO)),
        }
    }
}

/// One call, from its notification to its answer. Every layer is given it, and blocks only by [`Self::may_block`] and
/// [`Self::wait_until`].
pub(super) struct CallContext<'a> {
    pub(super) server: &'a Arc<Server>,
    /// The thread that waits for the answer.
    pub(super) peer: &'a Thread,
    pub(super) n: &'a Notification,
    supervisor: &'a Arc<Supervisor>,
    /// The place in which the call is noted.
    noted: Option<&'a Noted<'a>>,
    /// Whether another launcher may have made the call before.
    pub(super) is_made_again: bool,
    /// Whether a signal took the call away, which the kernel then restarts or not as its handler wants.
    is_interrupted: Cell<bool>,
}

/// A proof that another thread listens while this one waits for a daemon, a keeper or a file. Functions that may take long ask for
/// it.
#[derive(Clone, Copy)]
pub(super) struct MayBlock<'a>(PhantomData<&'a ()>);

impl CallContext<'_> {
    /// Makes sure that another thread receives calls while this one may wait for something.
    ///
    /// # Errors
    /// `ENOMEM` when too many wait.
    pub(super) fn may_block(&self) -> Result<MayBlock<'_>, i32> {
        let is_alone = self.supervisor.idle.load(Ordering::Relaxed) == 0;
        if is_alone && !self.supervisor.start_thread() { Err(libc::ENOMEM) } else { Ok(MayBlock(PhantomData)) }
    }

    /// Waits for what `done` looks for, each time for a little, as long as the caller waits. The call may go on to block.
    ///
    /// # Errors
    /// `EINTR` when the caller has gone or been interrupted, `ENOMEM` when too many wait.
    pub(super) fn wait_until(&self, mut done: impl FnMut(MayBlock<'_>) -> bool) -> Result<MayBlock<'_>, i32> {
        let may_block = self.may_block()?;
        while !done(may_block) {
            if !self.peer.waits() {
                return Err(libc::EINTR);
            }
            // Only then: another thread would be left with ERESTARTSYS itself.
            if self.peer.interrupted() {
                self.is_interrupted.set(true);
                return Err(libc::EINTR);
            }
        }
        Ok(may_block)
    }

    /// Ends the call with `EINTR` if it was interrupted, even if the signal's handler has SA_RESTART.
    pub(super) fn not_restarted(&self) {
        self.is_interrupted.set(false);
    }

    /// Notes the result, before something is done that cannot be done again.
    pub(super) fn note_result(&self, value: i64) {
        if let Some(noted) = self.noted {
            noted.result(value);
        }
    }

    /// Makes sure that the caller still waits, before anything is changed for good.
    ///
    /// # Errors
    /// The end of the call.
    pub(super) fn check_waiting(&self) -> Result<(), Verdict> {
        if self.peer.waits() { Ok(()) } else { Err(Verdict::Answered) }
    }

    /// Puts `fd` at this number of the program's, in the place of what is there.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn install(&self, fd: BorrowedFd<'_>, number: u32, cloexec: bool) -> io::Result<()> {
        self.supervisor.listener.install(self.n.id, fd, number, cloexec, false)
    }

    /// Puts `fd` at the first free of these numbers, and answers the call with it.
    pub(super) fn place(&self, fd: BorrowedFd<'_>, cloexec: bool, mut numbers: impl Iterator<Item = u32>) -> Done {
        let _placing = self.server.placing.lock();
        let new = numbers.find(|&n| !self.peer.has(n)).ok_or(libc::EMFILE)?;
        // One step is faster, but it is not to be interrupted.
        let answers = self.noted.is_none();
        match self.supervisor.listener.install(self.n.id, fd, new, cloexec, answers) {
            Ok(()) if answers => Err(Verdict::Answered),
            Ok(()) => Ok(new.into()),
            // The program lowered its limit below our range.
            Err(e) if e.raw_os_error() == Some(libc::EBADF) => Err(libc::EMFILE.into()),
            Err(e) => Err(e.raw_os_error().unwrap_or(libc::EIO).into()),
        }
    }

    /// The numbers of our ranges that a fcntl(F_DUPFD) may give: those from its argument on, and the low range first.
    ///
    /// # Errors
    /// `EINVAL` for an argument that is no number of a descriptor.
    pub(super) fn numbers_from(&self) -> Result<impl Iterator<Item = u32> + use<>, i32> {
        let lowest = self.n.args[2] as u32;
        if self.peer.descriptor_limit().is_some_and(|limit| u64::from(lowest) >= limit) {
            return Err(libc::EINVAL);
        }
        let Numbers { high, low } = self.server.numbers.clone();
        Ok(low.chain(high).filter(move |n| *n >= lowest))
    }

    /// Answers a `getsockopt` of the preloaded library, which asks for a text so.
    pub(super) fn answer_text(&self, text: &str) -> Done {
        let (peer, n) = (self.peer, self.n);
        let room = u32::from_ne_bytes(peer.bytes::<4>(n.args[4])?) as usize;
        if text.len() > room {
            return Err(libc::ENOBUFS.into());
        }
        peer.write(&[Span { at: n.args[3], len: text.len() }], text.as_bytes())?;
        peer.write(&[Span { at: n.args[4], len: 4 }], &(text.len() as u32).to_ne_bytes())?;
        Ok(0)
    }

    /// Tells the user, once for each program and for `what` it asks for, why it is refused and what to do.
    pub(super) fn tell_of_program(&self, what: &'static str, sentence: &str) {
        let exe = self.peer.ask(|peer| std::fs::read_link(format!("/proc/{}/exe", peer.0)));
        let Some(Ok(path)) = exe else { return };
        if !self.server.is_news(&path, what) {
            return;
        }
        let (program, pid) = (path.display(), self.peer.process().unwrap_or(self.n.tid));
        warn!(%program, pid, "{program} (process {pid}) {sentence}");
    }
}
