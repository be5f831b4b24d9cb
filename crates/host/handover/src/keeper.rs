//! The keeper of files of memory while no daemon runs.

use crate::holder::{self, Request, ask};
use crate::journal::Journal;
use parking_lot::Mutex;
use sealane_sys::process::{notify_with, take_kept_descriptors, this_program};
use sealane_sys::runtime;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::{debug, warn};

/// The longest time for the question whether a holder answers again that has not answered.
const AGAIN: Duration = Duration::from_millis(100);

/// Keeps files under names.
pub struct Keeper {
    place: Place,
    /// The files that are kept now, for a holder that has to be started again.
    files: Mutex<BTreeMap<String, OwnedFd>>,
}

enum Place {
    /// The service manager's descriptor store (`FileDescriptorStoreMax=`), with the names in it. It cannot replace a
    /// descriptor, so that a name there has the time of its journal's creation behind it, or the number of its socket.
    Manager(Mutex<Vec<(String, OwnedFd)>>),
    /// A process of ours.
    Holder(Holder),
}

/// A process of ours, as long as it answers.
struct Holder {
    folder: PathBuf,
    /// The longest time for one request.
    patience: Duration,
    /// Whether it did not answer the last time. Only [`Keeper::renew`] asks it then: others have locks that requests
    /// need.
    is_silent: AtomicBool,
}

impl Holder {
    fn new(folder: &Path) -> Self {
        Holder { folder: folder.to_owned(), patience: holder::PATIENCE, is_silent: AtomicBool::new(false) }
    }

    fn is_silent(&self) -> bool {
        self.is_silent.load(Ordering::Acquire)
    }

    /// Asks it.
    ///
    /// # Errors
    /// As [`ask`]; `TimedOut` if it did not answer the last time.
    fn ask(&self, request: &Request<'_>) -> io::Result<Option<OwnedFd>> {
        if self.is_silent() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the holder does not answer"));
        }
        self.ask_within(request, self.patience)
    }

    fn ask_within(&self, request: &Request<'_>, patience: Duration) -> io::Result<Option<OwnedFd>> {
        let answer = ask(&self.folder, request, patience);
        let is_silent = answer.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
        match (self.is_silent.swap(is_silent, Ordering::AcqRel), is_silent) {
            (false, true) => {
                warn!("the holder of what outlives the daemon does not answer: nothing is put there until it does")
            }
            (true, false) => warn!("the holder of what outlives the daemon does not keep anybody waiting any more"),
            _ => {}
        }
        answer
    }

    /// Starts it unless it is there.
    fn ensure(&self) -> io::Result<()> {
        // Of two daemons one starts it.
        let lock = self.folder.join("holder.lock");
        let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(lock)?;
        lock.lock()?;
        match self.ask(&Request::Ask) {
            Ok(_) => return Ok(()),
            Err(e) if is_missing(&e) => {}
            Err(e) => return Err(e),
        }
        let path = holder::path(&self.folder);
        runtime::remove(&path)?;
        let listener = UnixListener::bind(&path)?;
        let mut holder = Command::new(this_program())
            .arg("hold")
            .arg(&self.folder)
            .stdin(Stdio::from(OwnedFd::from(listener)))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        // It usually outlives us. Otherwise it must not stay a zombie.
        std::thread::Builder::new().name("sealane-holder".into()).spawn(move || holder.wait())?;
        self.ask(&Request::Ask).map(drop)
    }
}

impl Keeper {
    /// The keeper of a daemon with this runtime folder: the service manager if it keeps descriptors for this process
    /// (`$FDSTORE`), otherwise a holder, which is started with the first file.
    #[must_use]
    pub fn of_daemon(folder: &Path) -> Self {
        let room = std::env::var("FDSTORE").ok().and_then(|text| text.parse::<u32>().ok()).unwrap_or(0);
        let managed = room > 0 && std::env::var_os("NOTIFY_SOCKET").is_some();
        let place = if managed {
            Place::Manager(Mutex::new(take_kept_descriptors()))
        } else {
            Place::Holder(Holder::new(folder))
        };
        Keeper { place, files: Mutex::default() }
    }

    /// Whether the service manager keeps the files, so that they outlive this process only if the manager starts the next
    /// one.
    #[must_use]
    pub fn is_manager(&self) -> bool {
        matches!(self.place, Place::Manager(_))
    }

    /// The holder of a runtime folder, for another process than the daemon.
    #[must_use]
    pub fn of_folder(folder: &Path) -> Self {
        Keeper { place: Place::Holder(Holder::new(folder)), files: Mutex::default() }
    }

    /// Returns the file of a name; `None` if nobody keeps it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self, name: &str) -> io::Result<Option<File>> {
        let found = match &self.place {
            Place::Manager(kept) => {
                let kept = kept.lock();
                let files = kept.iter().filter(|(full, _)| base(full) == name);
                // There are two if a daemon ended while it replaced a file.
                let files = files.filter_map(|(_, file)| Some(File::from(file.try_clone().ok()?)));
                return Ok(files.max_by_key(Journal::created_ns));
            }
            Place::Holder(holder) => holder.ask(&Request::Take(name)),
        };
        match found {
            Ok(file) => Ok(file.map(File::from)),
            Err(e) if is_missing(&e) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Keeps the file of a journal under a name, instead of the one that had it.
    ///
    /// # Errors
    /// The kernel's: nothing has changed.
    pub fn put(&self, name: &str, file: &File) -> io::Result<()> {
        let kept = OwnedFd::from(file.try_clone()?);
        match &self.place {
            Place::Manager(names) => {
                let full = format!(
                    "{name}.{:x}",
                    Journal::created_ns(file).map_or_else(|| file.metadata().map(|m| m.ino()), Ok)?
                );
                notify_with(&format!("FDSTORE=1\nFDPOLL=0\nFDNAME={full}"), Some(file.as_fd()))?;
                let mut names = names.lock();
                let (before, others) = core::mem::take(&mut *names)
                    .into_iter()
                    .partition(|(other, _)| base(other) == name && *other != full);
                let before: Vec<(String, OwnedFd)> = before;
                *names = others;
                names.push((full, file.try_clone()?.into()));
                for (old, _) in before {
                    notify_with(&format!("FDSTOREREMOVE=1\nFDNAME={old}"), None)?;
                }
            }
            Place::Holder(holder) => {
                let put = || holder.ensure().and_then(|()| holder.ask(&Request::Put(name, &kept)));
                // One that has nothing ends after a while, perhaps in between.
                put().or_else(|e| if is_missing(&e) { put() } else { Err(e) })?;
            }
        }
        self.files.lock().insert(name.to_owned(), kept);
        Ok(())
    }

    /// Keeps the file of a name no longer. It is not wiped.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        self.files.lock().remove(name);
        match &self.place {
            Place::Manager(names) => {
                let mut names = names.lock();
                for (full, _) in names.iter().filter(|(full, _)| base(full) == name) {
                    notify_with(&format!("FDSTOREREMOVE=1\nFDNAME={full}"), None)?;
                }
                names.retain(|(full, _)| base(full) != name);
                Ok(())
            }
            Place::Holder(holder) => match holder.ask(&Request::Remove(name)) {
                Err(e) if !is_missing(&e) => Err(e),
                _ => Ok(()),
            },
        }
    }

    /// Starts a holder again that somebody has ended, and gives it all files. To be called every second, without a lock
    /// that others need: a holder that does not answer is waited for here.
    pub fn renew(&self) {
        let Place::Holder(holder) = &self.place else { return };
        let is_silent = holder.is_silent();
        if !is_silent && self.files.lock().is_empty() {
            return;
        }
        let answer = holder.ask_within(&Request::Ask, if is_silent { AGAIN } else { holder.patience });
        if !answer.is_err_and(|e| is_missing(&e)) {
            return;
        }
        let files = self.files.lock();
        let put = |(name, file): (&String, &OwnedFd)| holder.ask(&Request::Put(name, file)).map(drop);
        let done = holder.ensure().and_then(|()| files.iter().try_for_each(put));
        match done {
            Ok(()) => warn!("the holder of what outlives the daemon had ended, and is there again"),
            Err(e) => debug!(error = %e, "the holder cannot be started: {e}"),
        }
    }
}

/// The name of a file in the store of a service manager, without the time of its creation.
fn base(full: &str) -> &str {
    full.rsplit_once('.').map_or(full, |(name, _)| name)
}

/// Whether there is nobody who could keep anything, or who keeps this.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_sys::mapping::memory_file;
    use sealane_sys::unix::{end_listener, receive_with, send_with};
    use std::fs;

    /// A holder that is stopped is waited for once. From then on nobody waits for it who may have a lock, until it
    /// answers.
    #[test]
    fn a_stopped_holder_is_waited_for_once() {
        let folder = std::env::temp_dir().join(format!("sealane-keeper-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let listener = UnixListener::bind(holder::path(&folder)).unwrap();
        // There is room for one connection.
        rustix::net::listen(&listener, 0).unwrap();
        let holder = Holder { patience: Duration::from_millis(10), ..Holder::new(&folder) };
        let mut keeper = Keeper { place: Place::Holder(holder), files: Mutex::default() };
        let Place::Holder(holder) = &keeper.place else { unreachable!() };
        let file = memory_file("test").unwrap();
        let done = [keeper.take("x").map(drop), keeper.put("x", &file), keeper.remove("x"), keeper.take("x").map(drop)];
        let (waited, refused) = (Err(io::ErrorKind::WouldBlock), Err(io::ErrorKind::TimedOut));
        assert_eq!(done.map(|done| done.map_err(|e| e.kind())), [waited, refused, refused, refused]);
        keeper.renew();
        assert!(holder.is_silent());
        listener.set_nonblocking(true).unwrap();
        assert_eq!(core::iter::from_fn(|| listener.accept().ok()).count(), 1);
        // It goes on.
        listener.set_nonblocking(false).unwrap();
        let ending = listener.try_clone().unwrap();
        let answering = std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let _ = receive_with(&stream, &mut [0; holder::FRAME_LEN]);
                let _ = send_with(&stream, &[holder::DONE], None);
            }
        });
        while holder.is_silent() {
            keeper.renew();
        }
        let Place::Holder(holder) = &mut keeper.place else { unreachable!() };
        holder.patience = holder::PATIENCE;
        keeper.put("x", &file).unwrap();
        assert_eq!(keeper.files.lock().len(), 1);
        end_listener(&ending).unwrap();
        answering.join().unwrap();
        fs::remove_dir_all(&folder).unwrap();
    }
}
