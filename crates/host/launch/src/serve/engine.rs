//! The engine that makes a program's calls of TCP-AO: one of this process, or a daemon's.

use parking_lot::Mutex;
use sealane_sys::netns::Netns;
use sealane_sys::tcp_socket as sock;
use sealane_tcp_ao::Spaces;
use sealane_tcp_ao::calls::{Asked, Call, Family, Outcome};
use sealane_tcp_ao::remote::client::{Daemon, LOOK, Pending};
use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

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

    fn add(&self, cookie: u64) {
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

    fn has(&self, cookie: u64) -> bool {
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

    /// Makes a call on a socket; `again` if it may have been made before. A daemon that is restarted is waited for by
    /// `wait`, as long as the program waits.
    ///
    /// # Errors
    /// Those of `wait`, and `EBADF`.
    pub(super) fn call(
        &self,
        wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), i32>,
        (socket, family): (OwnedFd, Family),
        privileged: bool,
        asked: Asked,
        again: bool,
    ) -> Result<Outcome, i32> {
        match self {
            Engine::Own(spaces) => Ok(spaces.call(Call { socket, family, privileged, asked })),
            Engine::Daemon(daemon, known) => {
                let cookie = sock::cookie(socket.as_fd()).map_err(|_| libc::EBADF)?;
                if matches!(asked, Asked::Connect(_)) && !known.has(cookie) {
                    return Ok(Outcome::Pass);
                }
                let sets = matches!(asked, Asked::Set { .. });
                let outcome = attempt(daemon.prepare(privileged, asked, again), socket.as_fd(), wait)?;
                if sets && matches!(outcome, Outcome::Done(_)) {
                    known.add(cookie);
                }
                Ok(outcome)
            }
        }
    }

    /// The text of a network namespace's /proc/net/netstat, with our counters; `own` if it is the program's.
    ///
    /// # Errors
    /// Those of `wait`, and `ENOENT` where TCP-AO is not served.
    pub(super) fn netstat(
        &self,
        wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), i32>,
        netns: Netns,
        own: bool,
        text: String,
    ) -> Result<String, i32> {
        match self {
            Engine::Own(spaces) => spaces.netstat(netns, &text, own).map_err(|_| libc::ENOENT),
            Engine::Daemon(daemon, _) => match attempt(daemon.prepare_netstat(text), netns.as_fd(), wait)? {
                Outcome::Done(answer) => {
                    let bytes = answer.last.map(|write| write.bytes.to_vec()).unwrap_or_default();
                    String::from_utf8(bytes).map_err(|_| libc::EIO)
                }
                Outcome::Fail(errno) => Err(errno),
                Outcome::Pass => Err(libc::ENOENT),
            },
        }
    }

    /// Waits until no segment is under way within this machine, as far as that does not take long. `netns` finds the program's
    /// network namespace. While a daemon is away no segment gets on.
    ///
    /// # Errors
    /// The error of `netns`.
    pub(super) fn settle(&self, netns: impl FnOnce() -> Result<Netns, i32>) -> Result<(), i32> {
        match self {
            Engine::Own(spaces) => spaces.settle(),
            Engine::Daemon(daemon, _) => drop(daemon.prepare_settle().attempt(netns()?.as_fd())),
        }
        Ok(())
    }
}

/// Makes a call at a daemon. The first attempt, too, may take as long as a daemon that is stopped.
fn attempt(
    mut pending: Pending<'_>,
    about: BorrowedFd<'_>,
    wait: impl FnOnce(&mut dyn FnMut() -> bool) -> Result<(), i32>,
) -> Result<Outcome, i32> {
    let (mut outcome, mut tried) = (None, false);
    wait(&mut || {
        if core::mem::replace(&mut tried, true) {
            std::thread::sleep(LOOK);
        }
        outcome = pending.attempt(about);
        outcome.is_some()
    })?;
    Ok(outcome.unwrap_or(Outcome::Fail(libc::ENETDOWN)))
}
