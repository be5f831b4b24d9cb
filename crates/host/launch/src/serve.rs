//! The engine in the launcher, for programs that no preloaded library reaches: static and Go executables, inline system
//! calls.
//!
//! A seccomp filter hands us their `socket(AF_ALG)`. They get one end of a socket pair, placed in a range of descriptor
//! numbers that the filter watches; it is recognised by its inode, so that fork and dup share it as they should. Our
//! end reports when the last descriptor of theirs is closed.
//!
//! NETLINK_XFRM is served by a daemon, if one serves the program's network namespace (`xfrm`).
//!
//! Threads take calls from the listener in turn. One that has to wait makes sure that another is listening.

mod calls;
mod tcp_ao;
pub(crate) mod xfrm;

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use parking_lot::{Mutex, RawMutex};
use sealane_engine_alg::{Caller, Errno, Event, Host, Observer, System, front};
use sealane_sys::peer::{self, Peer};
use sealane_sys::seccomp::{Listener, Notification, Numbers};
use sealane_sys::sleep;
use sealane_tcp_ao::Spaces;
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use zeroize::Zeroizing;

/// The object behind a stand-in.
pub(crate) type Object = front::Object<RawMutex>;

/// The most threads that serve calls at the same time; a further call that waits fails with `ENOMEM`.
const MAX_THREADS: usize = 256;
/// The interval at which a waiting thread checks that its caller still waits.
const LOOK_MS: u32 = 10;

/// One open socket of the program.
pub(crate) struct Entry {
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
    pub(crate) listener: Listener,
    make: Box<dyn Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync>,
    system: OnceLock<Arc<System>>,
    pub(crate) sockets: Mutex<HashMap<u64, Arc<Entry>>>,
    /// Held while a number is chosen and filled.
    pub(crate) placing: Mutex<()>,
    pub(crate) numbers: Numbers,
    /// Sockets of NETLINK_XFRM.
    pub(crate) xfrm: xfrm::Sockets,
    /// The namespaces in which TCP-AO is served; none unless requested.
    pub(crate) tcp_ao: Option<Spaces>,
    idle: AtomicUsize,
    threads: AtomicUsize,
}

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
    /// The call that this thread serves, for the engine's host to look at while it waits.
    static CURRENT: Cell<Option<(u64, u32)>> = const { Cell::new(None) };
    /// Whether a signal took the call away, which the kernel then restarts or not as its handler wants.
    static INTERRUPTED: Cell<bool> = const { Cell::new(false) };
    /// Whether the maker of the socket that is being served was privileged.
    pub(crate) static PRIVILEGED: Cell<bool> = const { Cell::new(false) };
}

/// The kernel's own number for a call that a signal interrupted: it restarts it or makes it `EINTR`, by the handler.
const ERESTARTSYS: i32 = 512;

impl Server {
    /// A server for calls from `listener` on stand-ins of these numbers.
    pub(crate) fn new(
        listener: Listener,
        numbers: Numbers,
        tcp_ao: Option<Spaces>,
        make: impl Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Server {
            listener,
            make: Box::new(make),
            system: OnceLock::new(),
            sockets: Mutex::default(),
            placing: Mutex::default(),
            xfrm: xfrm::Sockets::default(),
            numbers,
            tcp_ao,
            idle: AtomicUsize::new(0),
            threads: AtomicUsize::new(0),
        })
    }

    /// Starts serving, in threads of its own.
    pub(crate) fn start(self: &Arc<Self>) {
        self.another();
    }

    /// Starts one more thread, unless there are too many. Returns whether there is one now.
    fn another(self: &Arc<Self>) -> bool {
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
        while let Ok(Some(call)) = self.listener.next() {
            self.idle.fetch_sub(1, Ordering::Relaxed);
            self.serve(&call);
            // Threads that were started for waiters go when enough others listen.
            if self.idle.fetch_add(1, Ordering::Relaxed) >= 2 {
                break;
            }
        }
        self.idle.fetch_sub(1, Ordering::Relaxed);
        self.threads.fetch_sub(1, Ordering::Relaxed);
    }

    fn serve(self: &Arc<Self>, call: &Notification) {
        CURRENT.set(Some((call.id, call.tid)));
        INTERRUPTED.set(false);
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| calls::serve(self, call)));
        CURRENT.set(None);
        match done {
            Ok(Ok(value)) => self.listener.answer(call.id, Ok(value)),
            Ok(Err(Verdict::Pass)) => self.listener.pass(call.id),
            Ok(Err(Verdict::Answered)) => {}
            Ok(Err(Verdict::Fail(libc::EINTR))) if INTERRUPTED.get() => self.listener.answer(call.id, Err(ERESTARTSYS)),
            Ok(Err(Verdict::Fail(errno))) => self.listener.answer(call.id, Err(errno)),
            // The panic itself has been reported with our name.
            Err(_) => self.listener.answer(call.id, Err(libc::EIO)),
        }
    }

    /// The system, made at the first socket.
    pub(crate) fn system(self: &Arc<Self>) -> &Arc<System> {
        self.system.get_or_init(|| (self.make)(Arc::new(Waiter { server: Arc::downgrade(self) })))
    }

    /// The socket behind descriptor `fd` of `peer`.
    pub(crate) fn find(&self, peer: Peer, fd: u32) -> Option<Arc<Entry>> {
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

    /// Waits a little for what `done` looks for, as long as the caller waits. The thread that waits is replaced.
    ///
    /// # Errors
    /// `EINTR` when the caller has gone or been interrupted, `ENOMEM` when too many wait.
    pub(crate) fn wait_until(self: &Arc<Self>, mut done: impl FnMut() -> bool) -> Result<(), i32> {
        if self.idle.load(Ordering::Relaxed) == 0 && !self.another() {
            return Err(libc::ENOMEM);
        }
        let mut shared_before = false;
        while !done() {
            let Some((id, tid)) = CURRENT.get() else { return Err(libc::EINTR) };
            if !self.listener.valid(id) {
                return Err(libc::EINTR);
            }
            // A signal for the whole process goes to another thread if one can take it; only one that stays is ours.
            match Peer(tid).signalled() {
                Some(own) if own || shared_before => {
                    INTERRUPTED.set(true);
                    return Err(libc::EINTR);
                }
                shared => shared_before = shared.is_some(),
            }
        }
        Ok(())
    }
}

/// Ends the interrupted call that this thread serves with `EINTR`, even if its handler has SA_RESTART.
pub(crate) fn not_restarted() {
    INTERRUPTED.set(false);
}

/// The privileges of a peer, from its capabilities.
pub(crate) fn caller(peer: Peer) -> Caller {
    const NET_ADMIN_OR_SYS_ADMIN: u64 = 1 << 12 | 1 << 21;
    let privileged = peer.status().is_some_and(|s| peer::capabilities(&s) & NET_ADMIN_OR_SYS_ADMIN != 0);
    Caller { privileged }
}

/// The engine's host in the launcher.
struct Waiter {
    server: std::sync::Weak<Server>,
}

impl Host for Waiter {
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

    fn key_payload(&self, serial: i32) -> Result<Zeroizing<Vec<u8>>, Errno> {
        sealane_sys::keys::payload(serial).map_err(|e| Errno::new(e).unwrap_or(Errno::EIO))
    }
}

/// Counts for the audit, with the privilege of the caller that is being served.
pub(crate) struct Counting(pub(crate) &'static [core::sync::atomic::AtomicU64]);

impl Observer for Counting {
    fn event(&self, event: &Event<'_>) {
        sealane_engine_alg::audit::Counters::new(self.0).count(event, PRIVILEGED.get());
    }
}
