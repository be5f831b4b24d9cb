//! The server of one launched program: what its calls share.

use super::engine::Engine;
use super::keys::Home;
use super::xfrm::sockets::Sockets;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use parking_lot::{Mutex, RawMutex};
use sealane_crypto::home::KeyHome;
use sealane_engine_alg::{Errno, Host, System, front};
use sealane_sys::peer;
use sealane_sys::seccomp::Numbers;
use sealane_sys::sleep;
use sealane_sys::thread::Thread;
use std::collections::{HashMap, HashSet};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The object behind a stand-in.
pub(crate) type Object = front::Object<RawMutex>;

/// The most programs that are told of.
const MAX_TOLD: usize = 100;
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
    /// The engine of TCP-AO; none unless requested.
    pub(crate) tcp_ao: Option<Engine>,
    /// The counters of an audit, if there is one.
    pub(super) audit: Option<&'static [AtomicU64]>,
    /// The programs whose users were told that something is not served to them, each with what it asked for.
    told: Mutex<HashSet<(PathBuf, &'static str)>>,
}

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

impl Server {
    /// A server of stand-ins of these numbers, which makes its system by `make`.
    pub(super) fn new(
        numbers: Numbers,
        tcp_ao: Option<Engine>,
        xfrm: Sockets,
        audit: Option<&'static [AtomicU64]>,
        home: Home,
        make: impl Fn(Arc<dyn Host>) -> Arc<System> + Send + Sync + 'static,
    ) -> Arc<Self> {
        Arc::new(Server {
            make: Box::new(make),
            system: OnceLock::new(),
            home,
            sockets: Mutex::default(),
            placing: Mutex::default(),
            xfrm,
            routes: AtomicBool::new(false),
            numbers,
            tcp_ao,
            audit,
            told: Mutex::default(),
        })
    }

    /// Serves sockets of NETLINK_XFRM, too, that the program has from the launcher before.
    pub(crate) fn adopt_sockets(&self) {
        self.xfrm.adopt_any();
        self.routes.store(true, Ordering::Release);
    }

    /// The system, made at the first socket.
    ///
    /// # Errors
    /// `ENOMEM` where there is no place for keys.
    pub(crate) fn system(&self) -> Result<&Arc<System>, i32> {
        self.home.prepare()?;
        Ok(self.system.get_or_init(|| (self.make)(Arc::new(LauncherHost { home: self.home.clone() }))))
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

    /// Whether calls on this number come to us.
    pub(super) fn watches(&self, fd: u32) -> bool {
        self.numbers.contains(fd)
    }

    /// Whether the user is to be told that a program is refused `what` it asks for, once.
    pub(super) fn is_news(&self, program: &Path, what: &'static str) -> bool {
        let mut told = self.told.lock();
        told.len() < MAX_TOLD && told.insert((program.to_owned(), what))
    }
}

/// The engine's host in the launcher.
struct LauncherHost {
    home: Home,
}

impl Host for LauncherHost {
    fn wake(&self, word: &AtomicU32) {
        sleep::wake(word);
    }

    fn admits_name(&self, name: &str) -> bool {
        self.home.keeper().is_some_and(|keeper| keeper.admits(name))
    }

    fn keys_are_guarded(&self) -> bool {
        self.home.is_guarded()
    }

    fn key_home(&self) -> Option<&dyn KeyHome> {
        self.home.keeper().map(|keeper| &keeper.home as &dyn KeyHome)
    }
}
