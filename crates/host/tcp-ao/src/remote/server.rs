//! The daemon's end: a thread for each launcher.

use super::path;
use super::wire::{self, HEAD_LEN, Request};
use crate::calls::{self, Call, Outcome};
use crate::space::Spaces;
use sealane_engine_ao::{Answer, Write};
use sealane_sys::life::{self, Kind};
use sealane_sys::netns::Netns;
use sealane_sys::{process, transient, unix};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tracing::{debug, warn};
use zeroize::Zeroizing;

/// The most launchers that are served at once.
const MAX_LAUNCHERS: usize = 1024;
/// The time in which the rest of a request has to follow its first byte.
const PATIENCE: Duration = Duration::from_secs(5);
/// The name of the threads.
const THREAD: &str = "sealane-calls";

/// The sockets for launchers of the daemon's own user and of root, one for each network namespace whose programs are served.
/// Several daemons may share a runtime folder: launchers find theirs by the name.
pub struct Launchers {
    folder: PathBuf,
    spaces: Arc<Spaces>,
    /// By the cookie of the network namespace.
    listeners: BTreeMap<u64, Arc<UnixListener>>,
}

impl Launchers {
    /// No sockets yet. They will be in the daemon's runtime folder.
    #[must_use]
    pub fn new(folder: &Path, spaces: Arc<Spaces>) -> Launchers {
        Launchers { folder: folder.to_owned(), spaces, listeners: BTreeMap::new() }
    }

    /// From here on the launchers of these network namespaces find this daemon instead of the one before, and others that
    /// did no longer. The sockets live as long as the process, and their names longer: launchers wait for the next daemon.
    ///
    /// # Errors
    /// The kernel's.
    pub fn find(&mut self, cookies: &BTreeSet<u64>) -> io::Result<()> {
        let gone = self.listeners.extract_if(.., |cookie, _| !cookies.contains(cookie));
        for (cookie, listener) in gone {
            super::forget(&self.folder, cookie);
            // Its thread ends.
            let _ = unix::end_listener(&listener);
        }
        for cookie in cookies {
            if self.listeners.contains_key(cookie) {
                continue;
            }
            // Another daemon may start at the same time, and an earlier process with the same id may have left this behind.
            let new = self.folder.join(format!("{}.launchers", std::process::id()));
            let _ = fs::remove_file(&new);
            let listener = Arc::new(UnixListener::bind(&new)?);
            fs::set_permissions(&new, fs::Permissions::from_mode(0o600))?;
            // Whatever fails here is tried again, and each thread would stay.
            fs::rename(&new, path(&self.folder, *cookie))?;
            listen(listener.clone(), self.spaces.clone())?;
            self.listeners.insert(*cookie, listener);
        }
        Ok(())
    }
}

/// Starts the thread that accepts connections, until the socket is shut down.
fn listen(listener: Arc<UnixListener>, spaces: Arc<Spaces>) -> io::Result<()> {
    let served = Arc::new(AtomicUsize::new(0));
    std::thread::Builder::new().name(THREAD.into()).spawn(move || {
        let _alive = life::begin(THREAD, Kind::Control);
        loop {
            let wait = life::wait();
            let stream = listener.accept();
            drop(wait);
            if stream.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::EINVAL)) {
                return;
            }
            let started = stream.and_then(|(stream, _)| {
                if served.fetch_add(1, Ordering::Relaxed) >= MAX_LAUNCHERS {
                    served.fetch_sub(1, Ordering::Relaxed);
                    warn!(launchers = MAX_LAUNCHERS, "TCP-AO: another launcher: there are {MAX_LAUNCHERS} already");
                    return Ok(());
                }
                let (spaces, served) = (spaces.clone(), served.clone());
                let place = Place(served);
                std::thread::Builder::new().name(THREAD.into()).spawn(move || {
                    let (_place, _alive) = (place, life::begin(THREAD, Kind::Control));
                    if let Err(e) = serve(&stream, &spaces) {
                        debug!(error = %e, "TCP-AO: a launcher: {e}");
                    }
                })?;
                Ok(())
            });
            if let Err(e) = started {
                // The process is probably out of descriptors or threads, which takes time to change.
                transient::count(&e);
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    })?;
    Ok(())
}

/// One of the launchers that are served.
struct Place(Arc<AtomicUsize>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a launcher until it ends.
fn serve(stream: &UnixStream, spaces: &Spaces) -> io::Result<()> {
    let user = unix::peer_user(stream)?;
    if user != 0 && user != process::effective_user() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    stream.set_write_timeout(Some(PATIENCE))?;
    loop {
        let mut head = [0; HEAD_LEN];
        stream.set_read_timeout(None)?;
        let wait = life::wait();
        let (len, descriptor) = unix::receive_with(stream, &mut head)?;
        drop(wait);
        if len == 0 {
            return Ok(());
        }
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut from = stream;
        from.read_exact(&mut head[len..])?;
        let mut body = Zeroizing::new(vec![0; wire::request_len(&head)?]);
        from.read_exact(&mut body)?;
        let request = Request::decode(&head, body)?;
        let outcome = answer(spaces, request, descriptor);
        from.write_all(&wire::encode_answer(&outcome))?;
    }
}

/// Serves one request. The program's descriptor is closed before its call is answered.
fn answer(spaces: &Spaces, request: Request, descriptor: Option<OwnedFd>) -> Outcome {
    let Some(descriptor) = descriptor else { return Outcome::Fail(libc::EBADF) };
    match request {
        Request::Serves => match spaces.serves_programs(Netns::from(descriptor)) {
            true => Outcome::Done(Answer::default()),
            false => Outcome::Fail(libc::ENOPROTOOPT),
        },
        Request::Settle => {
            spaces.settle();
            Outcome::Done(Answer::default())
        }
        Request::Call { privileged, asked } => match calls::family(descriptor.as_fd()) {
            Some(family) => spaces.call(Call { socket: descriptor, family, privileged, asked }),
            None => Outcome::Pass,
        },
        Request::Netstat(text) => match spaces.netstat(Netns::from(descriptor), &text, false) {
            Ok(text) => {
                let last = Write { offset: 0, bytes: Zeroizing::new(text.into_bytes()) };
                Outcome::Done(Answer { last: Some(last), ..Answer::default() })
            }
            Err(_) => Outcome::Fail(libc::ENOENT),
        },
    }
}
