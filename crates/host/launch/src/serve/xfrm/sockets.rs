//! The sockets of NETLINK_XFRM that programs have, each with the daemon that it speaks to.

use super::unserved::Unserved;
use parking_lot::Mutex;
use sealane_sys::gone::Watched;
use sealane_sys::{process, tcp_socket, usersock};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The time for which a daemon is trusted whose process cannot be watched, because it is outside our process namespace.
const UNSEEN: Duration = Duration::from_secs(1);

/// A daemon that has shown who it is.
pub(super) struct Daemon {
    pub(super) port: u32,
    pub(super) process: Option<process::Watch>,
    pub(super) seen: Instant,
}

impl Daemon {
    /// Whether it is still the same.
    pub(super) fn is_current(&self) -> bool {
        match &self.process {
            Some(process) => process.lives(),
            None => self.seen.elapsed() < UNSEEN,
        }
    }
}

/// Looks for closed sockets when there are this many, or twice as many as last time.
const FIRST_SWEEP: usize = 64;

/// One socket of a program.
pub(super) struct XfrmSocket {
    /// Whether its maker might administer the network namespace: the kernel wants that of makers as well as of senders.
    pub(super) maker_may: bool,
    /// `SO_PASSCRED` as the program has set it; the socket itself always has it.
    pub(super) passes_credentials: AtomicBool,
    /// Whether it is known to have a port.
    pub(super) bound: AtomicBool,
    /// A socket of ours in the same network namespace, for requests that need rights.
    pub(super) guarded: OwnedFd,
    /// Held while a frame is looked at and taken.
    pub(super) receiving: Mutex<()>,
    /// The daemon, as far as it has shown who it is.
    pub(super) daemon: Mutex<Option<Daemon>>,
}

/// All sockets of programs that we serve, by their cookies.
pub(crate) struct Sockets {
    /// The rule for those that programs open where no daemon serves.
    pub(super) unserved: Unserved,
    by_cookie: Mutex<HashMap<u64, Arc<XfrmSocket>>>,
    watched: OnceLock<Watched>,
    /// Whether sockets may be a program's that another launcher made.
    adopts: AtomicBool,
}

impl Sockets {
    /// No sockets. With `by_kernel`, those that programs open where no daemon serves are the kernel's own.
    pub(crate) fn new(by_kernel: bool) -> Self {
        Sockets {
            unserved: Unserved::new(by_kernel),
            by_cookie: Mutex::default(),
            watched: OnceLock::new(),
            adopts: AtomicBool::new(false),
        }
    }

    pub(super) fn add(&self, socket: &OwnedFd, entry: XfrmSocket) -> Result<u64, i32> {
        let errno = |e: std::io::Error| e.raw_os_error().unwrap_or(libc::EIO);
        let watched = match self.watched.get() {
            Some(watched) => watched,
            None => {
                let new = Watched::new().map_err(errno)?;
                self.watched.get_or_init(|| new)
            }
        };
        let cookie = tcp_socket::cookie(socket.as_fd()).map_err(errno)?;
        let mut sockets = self.by_cookie.lock();
        if sockets.len() >= FIRST_SWEEP && sockets.len().is_power_of_two() {
            let alive = watched.alive().map_err(errno)?;
            sockets.retain(|cookie, _| alive.contains(cookie));
        }
        watched.add(socket.as_fd(), cookie).map_err(errno)?;
        sockets.insert(cookie, Arc::new(entry));
        Ok(cookie)
    }

    pub(super) fn find(&self, socket: &OwnedFd) -> Option<Arc<XfrmSocket>> {
        if !usersock::is_one(socket.as_fd()) {
            return None;
        }
        let cookie = tcp_socket::cookie(socket.as_fd()).ok()?;
        self.by_cookie.lock().get(&cookie).cloned()
    }

    /// Whether no socket can be one of ours.
    pub(super) fn is_empty(&self) -> bool {
        !self.adopts() && self.by_cookie.lock().is_empty()
    }

    /// From now on sockets may be a program's that another launcher made.
    pub(crate) fn adopt_any(&self) {
        self.adopts.store(true, Ordering::Release);
    }

    /// Whether sockets may be a program's that another launcher made.
    pub(super) fn adopts(&self) -> bool {
        self.adopts.load(Ordering::Acquire)
    }
}
