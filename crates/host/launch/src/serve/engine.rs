//! The engine that makes a program's calls of TCP-AO: one of this process, or a daemon's.

use parking_lot::Mutex;
use sealane_tcp_ao::Spaces;
use sealane_tcp_ao::remote::client::Daemon;
use std::collections::HashSet;

/// The maker of a program's calls.
pub(crate) enum Engine {
    /// This process.
    Own(Box<Spaces>),
    /// A daemon.
    Daemon(Daemon, KnownSockets),
}

/// The sockets of which the daemon knows, by their cookies: connect() of others need not be asked about.
pub(crate) struct KnownSockets(Mutex<Option<HashSet<u64>>>);

/// The most sockets that are remembered. Above that the daemon is asked about all.
const MAX_KNOWN: usize = 1 << 16;

impl KnownSockets {
    /// No sockets are known.
    pub(crate) fn none() -> Self {
        KnownSockets(Mutex::new(Some(HashSet::new())))
    }

    /// Any socket may be known, because another process has served the program before.
    pub(crate) fn any() -> Self {
        KnownSockets(Mutex::new(None))
    }

    /// From now on the daemon knows of this socket.
    pub(super) fn add(&self, cookie: u64) {
        let mut known = self.0.lock();
        if let Some(list) = known.as_mut() {
            list.insert(cookie);
        }
        if known.as_ref().is_some_and(|list| list.len() > MAX_KNOWN) {
            *known = None;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.lock().as_ref().is_some_and(HashSet::is_empty)
    }

    /// Whether the daemon may know of this socket.
    pub(super) fn has(&self, cookie: u64) -> bool {
        self.0.lock().as_ref().is_none_or(|list| list.contains(&cookie))
    }
}

impl Engine {
    /// The engine of this process.
    pub(crate) fn own(&self) -> Option<&Spaces> {
        match self {
            Engine::Own(spaces) => Some(spaces),
            Engine::Daemon(..) => None,
        }
    }

    /// Whether no socket has keys, so that connect() is the kernel's alone.
    pub(super) fn is_unused(&self) -> bool {
        match self {
            Engine::Own(spaces) => spaces.is_empty(),
            Engine::Daemon(_, known) => known.is_empty(),
        }
    }
}
