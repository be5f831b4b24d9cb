//! Calls of TCP-AO by the engine of this process, or at a daemon, which may have to be waited for.

use crate::serve::engine::Engine;
use crate::serve::supervisor::{CallContext, MayBlock};
use sealane_sys::netns::Netns;
use sealane_sys::tcp_socket as sock;
use sealane_tcp_ao::calls::{Asked, Call, Family, Outcome};
use sealane_tcp_ao::remote::client::{LOOK, Pending};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

impl Engine {
    /// Makes a call on a socket. A daemon that is restarted is waited for, as long as the program waits.
    ///
    /// # Errors
    /// Those of [`CallContext::wait_until`], and `EBADF`.
    pub(in crate::serve) fn call(
        &self,
        call: &CallContext<'_>,
        (socket, family): (OwnedFd, Family),
        privileged: bool,
        asked: Asked,
    ) -> Result<Outcome, i32> {
        match self {
            Engine::Own(spaces) => Ok(spaces.call(Call { socket, family, privileged, asked })),
            Engine::Daemon(daemon, known) => {
                let cookie = sock::cookie(socket.as_fd()).map_err(|_| libc::EBADF)?;
                if matches!(asked, Asked::Connect(_)) && !known.has(cookie) {
                    return Ok(Outcome::Pass);
                }
                let sets = matches!(asked, Asked::Set { .. });
                let outcome = attempt(daemon.prepare(privileged, asked, call.is_made_again), socket.as_fd(), call)?;
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
    /// Those of [`CallContext::wait_until`], and `ENOENT` where TCP-AO is not served.
    pub(in crate::serve) fn netstat(
        &self,
        call: &CallContext<'_>,
        netns: Netns,
        own: bool,
        text: String,
    ) -> Result<String, i32> {
        match self {
            Engine::Own(spaces) => spaces.netstat(netns, &text, own).map_err(|_| libc::ENOENT),
            Engine::Daemon(daemon, _) => match attempt(daemon.prepare_netstat(text), netns.as_fd(), call)? {
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
    pub(in crate::serve) fn settle(
        &self,
        _: MayBlock<'_>,
        netns: impl FnOnce() -> Result<Netns, i32>,
    ) -> Result<(), i32> {
        match self {
            Engine::Own(spaces) => spaces.settle(),
            Engine::Daemon(daemon, _) => drop(daemon.prepare_settle().attempt(netns()?.as_fd())),
        }
        Ok(())
    }
}

/// Makes a call at a daemon. The first attempt, too, may take as long as a daemon that is stopped.
fn attempt(mut pending: Pending<'_>, about: BorrowedFd<'_>, call: &CallContext<'_>) -> Result<Outcome, i32> {
    let (mut outcome, mut tried) = (None, false);
    call.wait_until(|_| {
        if core::mem::replace(&mut tried, true) {
            std::thread::sleep(LOOK);
        }
        outcome = pending.attempt(about);
        outcome.is_some()
    })?;
    Ok(outcome.unwrap_or(Outcome::Fail(libc::ENETDOWN)))
}
