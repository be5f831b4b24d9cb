//! The server of one launched program: its threads, and what calls share.

use super::engine::Engine;
use super::keys::Home;
use super::xfrm::sockets::Sockets;
use super::{caller, rights};
use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use parking_lot::{Mutex, RawMutex};
use sealane_crypto::home::KeyHome;
use sealane_engine_alg::{Errno, Event, Host, KeyringKey, Observer, System, front};
use sealane_sys::keys;
use sealane_sys::noted_calls::{Noted, NotedCalls};
use sealane_sys::peer;
use sealane_sys::seccomp::{Listener, Notification, Numbers};
use sealane_sys::sleep;
use sealane_sys::thread::{Span, Thread};
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tracing::warn;

/// The object behind a stand-in.
pub(crate) type Object = front::Object<RawMutex>;

/// The most threads that serve calls at the same time; a further call that waits fails with `ENOMEM`.
const MAX_THREADS: usize = 256;
/// The pause before calls are asked for again when that has failed.
const PAUSE: Duration = Duration::from_millis(100);
/// The most programs that are told of.
const MAX_TOLD: usize = 100;
/// The interval at which a waiting thread checks that its caller still waits.
pub(super) const LOOK_MS: u32 = 10;

/// One open socket of the program.
pub(crate) struct OpenSocket {
    pub(crate) object: Object,
    /// Our end of the pair.
    pub(crate) ours: OwnedFd,
    pub(crate) nonblock: AtomicBool,
    /// Whether its creator was privileged, by which the audit files its calls.
    pub(crate) privileged: bool,
    /// Whether poll can ever find it ready, and what it shows: readable, writable.
    pub(crate) pollable: bool,
    pub(crate) shown: Mutex<(bool, bool)>,
}

/// The server of one launched program and its descendants.
pub(crate) struct Server {
    /// Serves one call.
    answer: Answer,
    pub(crate) listener: Arc<Listener>,
    make: Box<dyn Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync>,
    system: OnceLock<Arc<System>>,
    /// The program's keys.
    pub(crate) home: Home,
    pub(crate) sockets: Mutex<HashMap<u64, Arc<OpenSocket>>>,
    /// Held while a number is chosen and filled.
    pub(crate) placing: Mutex<()>,
    pub(crate) numbers: Numbers,
    /// Sockets of NETLINK_XFRM.
    pub(crate) xfrm: Sockets,
    /// Whether programs may have sockets of NETLINK_ROUTE that are looked at.
    pub(super) routes: AtomicBool,
    /// The place for calls under way, which the guard reads, if there is one.
    noted: Option<Arc<NotedCalls>>,
    /// The engine of TCP-AO; none unless requested.
    pub(crate) tcp_ao: Option<Engine>,
    /// The programs whose users were told that something is not served to them, each with what it asked for.
    told: Mutex<HashSet<(PathBuf, &'static str)>>,
    idle: AtomicUsize,
    threads: AtomicUsize,
}

/// Serves one call of a thread.
pub(super) type Answer = fn(&Arc<Server>, &Notification, &Thread) -> Done;

/// The value that a call returns.
pub(super) type Done = Result<i64, Verdict>;

/// The reason why a call is not answered with a result.
pub(crate) enum Verdict {
    /// The kernel should do it itself.
    Pass,
    /// It has been answered already.
    Answered,
    /// It fails.
    Fail(i32),
}

impl From<i32> for Verdict {
    fn from(errno: i32) -> Self {
        Verdict::Fail(errno)
    }
}

impl From<Errno> for Verdict {
    fn from(errno: Errno) -> Self {
        Verdict::Fail(errno.number())
    }
}

thread_local! {
    /// Whether a signal took the call away, which the kernel then restarts or not as its handler wants.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
    /// The place in which the call that is being served is noted.
    static NOTED_AT: Cell<Option<usize>> = const { Cell::new(None) };
    /// Whether another launcher may have made the call before that is being served.
    static AGAIN: Cell<bool> = const { Cell::new(false) };
    /// Whether the maker of the socket that is being served was privileged.
    pub(crate) static PRIVILEGED: Cell<bool> = const { Cell::new(false) };
}

/// The kernel's own number for a call that a signal interrupted: it restarts it or makes it `EINTR`, by the handler.
const ERESTARTSYS: i32 = 512;

impl Server {
    /// A server for calls from `listener` on stand-ins of these numbers, each of which `answer` serves.
    pub(super) fn new(
        answer: Answer,
        listener: Listener,
        numbers: Numbers,
        tcp_ao: Option<Engine>,
        xfrm: Sockets,
        noted: Option<Arc<NotedCalls>>,
        home: Home,
        make: impl Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Server {
            answer,
            listener: Arc::new(listener),
            make: Box::new(make),
            system: OnceLock::new(),
            home,
            sockets: Mutex::default(),
            placing: Mutex::default(),
            xfrm,
            routes: AtomicBool::new(false),
            numbers,
            noted,
            tcp_ao,
            told: Mutex::default(),
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
        })
    }

    /// Starts serving, in threads of its own.
    pub(crate) fn start(self: &Arc<Self>) {
        self.start_thread();
    }

    /// Serves a call that the launcher before had received, in a thread of its own.
    pub(crate) fn serve_again(self: &Arc<Self>, call: Notification) {
        let server = self.clone();
        let serve = move || {
            // This thread serves no other call.
            AGAIN.set(true);
            server.serve(&call, server.noted.as_ref().map(|noted| noted.note(&call)));
        };
        if let Err(e) = std::thread::Builder::new().name("sealane-serve".into()).spawn(serve) {
            warn!(error = %e, "a call of the program: {e}");
            self.listener.answer(call.id, Err(libc::EINTR));
        }
    }

    /// Serves sockets of NETLINK_XFRM, too, that the program has from the launcher before.
    pub(crate) fn adopt_sockets(&self) {
        self.xfrm.adopt_any();
        self.routes.store(true, Ordering::Release);
    }

    /// Starts one more thread, unless there are too many. Returns whether there is one now.
    fn start_thread(self: &Arc<Self>) -> bool {
        if self.threads.fetch_add(1, Ordering::Relaxed) >= MAX_THREADS {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.idle.fetch_add(1, Ordering::Relaxed);
        let server = self.clone();
        let started = std::thread::Builder::new().name("sealane-serve".into()).spawn(move || server.work());
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            self.idle.fetch_sub(1, Ordering::Relaxed);
        }
        started.is_ok()
    }

    fn work(self: Arc<Self>) {
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
            self.serve(&call, noted);
            // Threads that were started for waiters go when enough others listen.
            if self.idle.fetch_add(1, Ordering::Relaxed) >= 2 {
                break;
            }
        }
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    fn serve(self: &Arc<Self>, call: &Notification, noted: Option<Noted<'_>>) {
        NOTED_AT.set(noted.as_ref().and_then(Noted::place));
        let caller = Rc::new(Thread::new(self.listener.clone(), call));
        caller::set(Some(caller.clone()));
        INTERRUPTED.set(false);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (self.answer)(self, call, &caller)));
        caller::set(None);
        match done {
            Ok(Ok(value)) => {
                noted.iter().for_each(|noted| noted.result(value));
                self.listener.answer(call.id, Ok(value));
            }
            Ok(Err(Verdict::Pass)) => self.listener.pass(call.id),
            Ok(Err(Verdict::Answered)) => {}
            Ok(Err(Verdict::Fail(libc::EINTR))) if INTERRUPTED.get() => self.listener.answer(call.id, Err(ERESTARTSYS)),
            Ok(Err(Verdict::Fail(errno))) => self.listener.answer(call.id, Err(errno)),
            // The panic itself has been reported with our name.
            Err(_) => self.listener.answer(call.id, Err(libc::EIO)),
        }
    }

    /// The system, made at the first socket.
    ///
    /// # Errors
    /// `ENOMEM` where there is no place for keys.
    pub(crate) fn system(self: &Arc<Self>) -> Result<&Arc<System>, i32> {
        self.home.prepare()?;
        Ok(self.system.get_or_init(|| {
            (self.make)(Arc::new(LauncherHost { server: Arc::downgrade(self), home: self.home.clone() }))
        }))
    }

    /// The socket behind descriptor `fd` of `peer`.
    pub(crate) fn find(&self, peer: &Thread, fd: u32) -> Option<Arc<OpenSocket>> {
        self.sockets.lock().get(&peer.socket_inode(fd)?).cloned()
    }

    /// Forgets sockets that nobody has any more. Returns whether there were any.
    pub(crate) fn sweep(&self) -> bool {
        let mut gone = Vec::new();
        self.sockets.lock().retain(|_, entry| {
            let over = peer::hung_up(entry.ours.as_fd());
            if over {
                gone.push(entry.clone());
            }
            !over
        });
        !gone.is_empty()
    }

    /// Makes sure that another thread takes calls while this one may wait for something.
    ///
    /// # Errors
    /// `ENOMEM` when too many wait.
    pub(super) fn leave_listening(self: &Arc<Self>) -> Result<(), i32> {
        if self.idle.load(Ordering::Relaxed) == 0 && !self.start_thread() { Err(libc::ENOMEM) } else { Ok(()) }
    }

    /// Waits a little for what `done` looks for, as long as the caller waits. The thread that waits is replaced.
    ///
    /// # Errors
    /// `EINTR` when the caller has gone or been interrupted, `ENOMEM` when too many wait.
    pub(crate) fn wait_until(self: &Arc<Self>, mut done: impl FnMut() -> bool) -> Result<(), i32> {
        self.leave_listening()?;
        while !done() {
            let Some(caller) = caller::current() else { return Err(libc::EINTR) };
            if !caller.waits() {
                return Err(libc::EINTR);
            }
            // Only then: another thread would be left with ERESTARTSYS itself.
            if caller.interrupted() {
                INTERRUPTED.set(true);
                return Err(libc::EINTR);
            }
        }
        Ok(())
    }

    /// Notes the result of the call that this thread serves, before something is done that cannot be done again.
    pub(super) fn note_result(&self, value: i64) {
        if let (Some(noted), Some(place)) = (&self.noted, NOTED_AT.get()) {
            noted.note_result(place, value);
        }
    }

    /// Whether the caller still waits, before anything is changed for good.
    pub(super) fn check_waiting(&self, n: &Notification) -> Result<(), Verdict> {
        if self.listener.valid(n.id) { Ok(()) } else { Err(Verdict::Answered) }
    }

    /// Puts `fd` at the first free of these numbers, and answers the call with it.
    pub(super) fn place(
        &self,
        n: &Notification,
        peer: &Thread,
        fd: BorrowedFd<'_>,
        cloexec: bool,
        mut numbers: impl Iterator<Item = u32>,
    ) -> Done {
        let _placing = self.placing.lock();
        let new = numbers.find(|&n| !peer.has(n)).ok_or(libc::EMFILE)?;
        // One step is faster, but it is not to be interrupted.
        let answers = self.noted.is_none();
        match self.listener.install(n.id, fd, new, cloexec, answers) {
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
    pub(super) fn numbers_from(
        &self,
        n: &Notification,
        peer: &Thread,
    ) -> Result<impl Iterator<Item = u32> + use<>, i32> {
        let lowest = n.args[2] as u32;
        if peer.descriptor_limit().is_some_and(|limit| u64::from(lowest) >= limit) {
            return Err(libc::EINVAL);
        }
        let Numbers { high, low } = self.numbers.clone();
        Ok(low.chain(high).filter(move |n| *n >= lowest))
    }

    /// Whether calls on this number come to us.
    pub(super) fn watches(&self, fd: u32) -> bool {
        self.numbers.contains(fd)
    }

    /// Tells the user, once for each program and for `what` it asks for, why it is refused and what to do.
    pub(super) fn tell_of_program(&self, what: &'static str, n: &Notification, peer: &Thread, sentence: &str) {
        let Some(Ok(path)) = peer.ask(|peer| std::fs::read_link(format!("/proc/{}/exe", peer.0))) else { return };
        let mut told = self.told.lock();
        if told.len() >= MAX_TOLD || !told.insert((path.clone(), what)) {
            return;
        }
        let (program, pid) = (path.display(), peer.process().unwrap_or(n.tid));
        warn!(%program, pid, "{program} (process {pid}) {sentence}");
    }
}

/// Answers a `getsockopt` of the preloaded library, which asks for a text so.
pub(super) fn tell_text(peer: &Thread, n: &Notification, text: &str) -> Done {
    let room = u32::from_ne_bytes(peer.bytes::<4>(n.args[4])?) as usize;
    if text.len() > room {
        return Err(libc::ENOBUFS.into());
    }
    peer.write(&[Span { at: n.args[3], len: text.len() }], text.as_bytes())?;
    peer.write(&[Span { at: n.args[4], len: 4 }], &(text.len() as u32).to_ne_bytes())?;
    Ok(0)
}

/// Whether another launcher may have made the call before that this thread serves.
pub(super) fn is_made_again() -> bool {
    AGAIN.get()
}

/// Ends the interrupted call that this thread serves with `EINTR`, even if its handler has SA_RESTART.
pub(crate) fn not_restarted() {
    INTERRUPTED.set(false);
}

/// The engine's host in the launcher.
struct LauncherHost {
    server: std::sync::Weak<Server>,
    home: Home,
}

impl Host for LauncherHost {
    fn wait(&self, word: &AtomicU32, seen: u32) -> Result<(), Errno> {
        let server = self.server.upgrade().ok_or(Errno::EINTR)?;
        let changed = || {
            // A time-out or an early wake-up: the word decides.
            let _ = sleep::wait(word, seen, LOOK_MS);
            word.load(Ordering::Acquire) != seen
        };
        server.wait_until(changed).map_err(|e| Errno::new(e).unwrap_or(Errno::EINTR))
    }

    fn wake(&self, word: &AtomicU32) {
        sleep::wake(word);
    }

    fn keyring_key(&self, serial: i32, names: bool) -> Result<KeyringKey, Errno> {
        let errno = |e| Errno::new(e).unwrap_or(Errno::EIO);
        let caller = caller::current().ok_or(Errno::EACCES)?;
        let ids = rights::other_ids(&caller).map_err(errno)?;
        if names && let Some(named) = KeyringKey::named_by(&keys::description(serial, ids.as_ref()).map_err(errno)?) {
            return Ok(named);
        }
        keys::payload(serial, ids.as_ref()).map(KeyringKey::Payload).map_err(errno)
    }

    fn admits_name(&self, name: &str) -> bool {
        self.home.keeper().is_some_and(|keeper| keeper.admits(name))
    }

    fn keys_are_guarded(&self) -> bool {
        self.home.is_guarded()
    }

    fn key_home(&self) -> Option<&dyn KeyHome> {
        self.home.keeper().map(|keeper| keeper as &dyn KeyHome)
    }
}

/// Counts for the audit, with the privilege of the caller that is being served.
pub(crate) struct AuditObserver(pub(crate) &'static [core::sync::atomic::AtomicU64]);

impl Observer for AuditObserver {
    fn event(&self, event: &Event<'_>) {
        sealane_engine_alg::audit::Counters::new(self.0).count(event, PRIVILEGED.get());
    }
}
