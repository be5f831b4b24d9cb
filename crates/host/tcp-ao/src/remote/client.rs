//! The launcher's end. A daemon that is restarted is waited for.

use super::path;
use super::wire::{self, HEAD_LEN, Request};
use crate::calls::{Asked, Outcome};
use parking_lot::Mutex;
use sealane_abi::tcp;
use sealane_sys::netns::Netns;
use sealane_sys::presence;
use sealane_sys::unix;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// The longest time in which a daemon answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// The time for which a daemon that is gone is waited for; then calls fail until it is back.
const RETURN: Duration = Duration::from_secs(10);

/// The interval at which a daemon that is away is looked for.
pub const LOOK: Duration = Duration::from_millis(10);

/// The daemon that serves TCP-AO for the programs of this launcher.
pub struct Daemon {
    path: PathBuf,
    /// One call at a time: the daemon takes them in turn anyway.
    link: Mutex<Link>,
}

#[derive(Default)]
struct Link {
    stream: Option<UnixStream>,
    /// When the daemon was first found gone.
    gone: Option<Instant>,
}

/// A call that is under way, until it is answered.
pub struct Pending<'a> {
    daemon: &'a Daemon,
    bytes: Zeroizing<Vec<u8>>,
    /// The option that is set: it may have been set already if the answer was lost.
    sets: Option<i32>,
    sent_before: bool,
}

impl Daemon {
    /// The daemon of a runtime folder, if it serves programs of this process's network namespace. One that is restarted is
    /// waited for, and so is one that is about to serve the namespace because of its name.
    #[must_use]
    pub fn of(folder: &Path) -> Option<Daemon> {
        let here = Netns::current().ok()?;
        let id = here.id().ok()?;
        let daemon = Daemon { path: path(folder, here.cookie().ok()?), link: Mutex::default() };
        let (asked, request) = (Instant::now(), Request::Serves.encode());
        let served = loop {
            match daemon.exchange(&request, here.as_fd(), &mut false) {
                Ok(served) => break served,
                // There is no daemon for us yet.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let is_expected = || presence::is_expected(&[folder.to_owned()], presence::TCP_AO, id);
                    if asked.elapsed() > presence::PATIENCE || !is_expected() {
                        return None;
                    }
                    std::thread::sleep(LOOK);
                }
                // Nor will there be one.
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => return None,
                Err(_) if asked.elapsed() > RETURN => return None,
                Err(_) => std::thread::sleep(LOOK),
            }
        };
        // Another process may make the calls.
        daemon.link.lock().stream = None;
        matches!(served, Outcome::Done(_)).then_some(daemon)
    }

    /// Prepares a call; `again` if it may have been made before.
    #[must_use]
    pub fn prepare(&self, privileged: bool, asked: Asked, again: bool) -> Pending<'_> {
        let sets = match &asked {
            Asked::Set { name, .. } => Some(*name),
            _ => None,
        };
        Pending { daemon: self, bytes: Request::Call { privileged, asked }.encode(), sets, sent_before: again }
    }

    /// Prepares the question for the counters of a network namespace, whose /proc/net/netstat is `text`.
    #[must_use]
    pub fn prepare_netstat(&self, text: String) -> Pending<'_> {
        Pending { daemon: self, bytes: Request::Netstat(text).encode(), sets: None, sent_before: false }
    }

    /// Prepares the request to wait until no segment is under way.
    #[must_use]
    pub fn prepare_settle(&self) -> Pending<'_> {
        Pending { daemon: self, bytes: Request::Settle.encode(), sets: None, sent_before: false }
    }

    /// Sends a request and returns its answer. `sent` becomes true as soon as the daemon may have got the request.
    fn exchange(&self, request: &[u8], about: BorrowedFd<'_>, sent: &mut bool) -> io::Result<Outcome> {
        let mut link = self.link.lock();
        if link.stream.is_none() {
            let stream = UnixStream::connect(&self.path)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            link.stream = Some(stream);
        }
        let Some(stream) = &link.stream else { return Err(io::ErrorKind::NotConnected.into()) };
        let done = exchange(stream, request, about, sent);
        if done.is_err() {
            link.stream = None;
        } else {
            link.gone = None;
        }
        done
    }

    /// Whether the daemon has been gone for too long to be waited for.
    fn is_given_up(&self) -> bool {
        self.link.lock().gone.get_or_insert_with(Instant::now).elapsed() > RETURN
    }
}

impl Pending<'_> {
    /// Tries to make the call. `None` if there is no daemon now, and it is worth to try again in a while.
    pub fn attempt(&mut self, about: BorrowedFd<'_>) -> Option<Outcome> {
        let mut sent = false;
        match self.daemon.exchange(&self.bytes, about, &mut sent) {
            Ok(outcome) => Some(self.judge(outcome)),
            Err(e) if e.kind() == io::ErrorKind::InvalidData => Some(Outcome::Fail(libc::EPROTO)),
            Err(_) => {
                self.sent_before |= sent;
                self.daemon.is_given_up().then_some(Outcome::Fail(libc::ENETDOWN))
            }
        }
    }

    /// An earlier attempt may have been successful without an answer: then this one finds its effect.
    fn judge(&self, outcome: Outcome) -> Outcome {
        match (self.sets.filter(|_| self.sent_before), &outcome) {
            (Some(tcp::TCP_AO_ADD_KEY), Outcome::Fail(libc::EEXIST))
            | (Some(tcp::TCP_AO_DEL_KEY), Outcome::Fail(libc::ENOENT)) => {
                Outcome::Done(sealane_engine_ao::Answer::default())
            }
            _ => outcome,
        }
    }
}

fn exchange(stream: &UnixStream, request: &[u8], about: BorrowedFd<'_>, sent: &mut bool) -> io::Result<Outcome> {
    let count = unix::send_with(stream, request, Some(about))?;
    *sent = true;
    let mut stream = stream;
    stream.write_all(&request[count..])?;
    let mut head = [0; HEAD_LEN];
    stream.read_exact(&mut head)?;
    let mut body = Zeroizing::new(vec![0; wire::answer_len(&head)?]);
    stream.read_exact(&mut body)?;
    wire::decode_answer(&head, &body)
}
