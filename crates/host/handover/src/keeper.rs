//! The keeper of files of memory while no daemon runs.

use crate::holder::{self, Request, ask};
use crate::journal::Journal;
use parking_lot::Mutex;
use sealane_sys::process::{notify_with, take_kept_descriptors, this_program};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tracing::{debug, warn};

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
    /// A process of ours, found in this folder.
    Holder(PathBuf),
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
            Place::Holder(folder.to_owned())
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
        Keeper { place: Place::Holder(folder.to_owned()), files: Mutex::default() }
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
            Place::Holder(folder) => ask(folder, &Request::Take(name)),
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
            Place::Holder(folder) => {
                let put = || ensure(folder).and_then(|()| ask(folder, &Request::Put(name, &kept)));
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
            Place::Holder(folder) => match ask(folder, &Request::Remove(name)) {
                Err(e) if !is_missing(&e) => Err(e),
                _ => Ok(()),
            },
        }
    }

    /// Starts a holder again that somebody has ended, and gives it all files.
    pub fn renew(&self) {
        let Place::Holder(folder) = &self.place else { return };
        let files = self.files.lock();
        if files.is_empty() || !ask(folder, &Request::Ask).is_err_and(|e| is_missing(&e)) {
            return;
        }
        let done = ensure(folder)
            .and_then(|()| files.iter().try_for_each(|(name, file)| ask(folder, &Request::Put(name, file)).map(drop)));
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

/// Starts the holder of a folder unless there is one.
fn ensure(folder: &Path) -> io::Result<()> {
    // Of two daemons one starts it.
    let lock =
        OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(folder.join("holder.lock"))?;
    lock.lock()?;
    match ask(folder, &Request::Ask) {
        Ok(_) => return Ok(()),
        Err(e) if is_missing(&e) => {}
        Err(e) => return Err(e),
    }
    let path = holder::path(folder);
    if let Err(e) = fs::remove_file(&path)
        && e.kind() != io::ErrorKind::NotFound
    {
        return Err(e);
    }
    let listener = UnixListener::bind(&path)?;
    let mut holder = Command::new(this_program())
        .arg("hold")
        .arg(folder)
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    // It usually outlives us. Otherwise it must not stay a zombie.
    std::thread::Builder::new().name("sealane-holder".into()).spawn(move || holder.wait())?;
    ask(folder, &Request::Ask).map(drop)
}
