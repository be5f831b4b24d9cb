//! Reading the files of a machine, some of which only root may read.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The longest text that is read, in bytes: the `modules.dep` of a distribution has less than 2 MiB.
const MAX_LEN: u64 = 16 << 20;

/// The folders of systemd's files and of those in its manner, in the order of their rank.
const RANKS: [&str; 5] = ["/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib"];

/// The files below a root, which is another one than `/` in tests only.
pub(crate) struct Files<'a> {
    root: &'a Path,
    unseen: RefCell<Vec<String>>,
}

impl<'a> Files<'a> {
    pub(crate) fn new(root: &'a Path) -> Self {
        Files { root, unseen: RefCell::default() }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.at(path).exists()
    }

    pub(crate) fn is_file(&self, path: &str) -> bool {
        self.at(path).is_file()
    }

    /// The text of a file, with what is no UTF-8 replaced. `None` if there is no file, or it could not be read: that is
    /// noted.
    pub(crate) fn text(&self, path: &str) -> Option<String> {
        let at = self.at(path);
        let read = || -> io::Result<String> {
            // Whatever else has the name, such as a pipe or the link to /dev/null that hides a file, has no text.
            if !fs::metadata(&at)?.is_file() {
                return Ok(String::new());
            }
            lossy(File::open(&at)?)
        };
        match read() {
            Ok(text) => Some(text),
            Err(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => None,
            Err(e) => {
                self.note(path, &e);
                None
            }
        }
    }

    /// The text of a file that gzip has compressed.
    pub(crate) fn unpacked(&self, path: &str) -> Option<String> {
        let at = self.at(path);
        if !at.exists() {
            return None;
        }
        let run = || -> io::Result<String> {
            let mut gzip = Command::new("gzip")
                .arg("-dc")
                .stdin(File::open(&at)?)
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()?;
            let text = gzip.stdout.take().map_or_else(|| Ok(String::new()), lossy);
            let status = gzip.wait()?;
            if status.success() { text } else { Err(io::Error::other(format!("gzip: {status}"))) }
        };
        run().map_err(|e| self.note(path, &e)).ok()
    }

    /// The files that end in `suffix` in the folder `name` of each rank, sorted by name. A file hides those with its
    /// name in folders of lower rank.
    pub(crate) fn overlay(&self, name: &str, suffix: &str) -> Vec<String> {
        let mut by_name = BTreeMap::new();
        for rank in RANKS {
            let folder = format!("{rank}/{name}");
            let entries = match fs::read_dir(self.at(&folder)) {
                Ok(entries) => entries,
                Err(e) => {
                    if e.kind() == io::ErrorKind::PermissionDenied {
                        self.note(&folder, &e);
                    }
                    continue;
                }
            };
            for file in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
                if file.ends_with(suffix) {
                    let path = format!("{folder}/{file}");
                    by_name.entry(file).or_insert(path);
                }
            }
        }
        by_name.into_values().collect()
    }

    /// The units of services, by paths: without those that are masked, and without other names of the same unit.
    pub(crate) fn services(&self) -> Vec<String> {
        let mut paths = self.overlay("systemd/system", ".service");
        paths.retain(|path| {
            let is_it = |target: &Path| target.file_name() == Path::new(path).file_name();
            self.is_file(path) && fs::read_link(self.at(path)).map_or(true, |target| is_it(&target))
        });
        paths
    }

    fn note(&self, path: &str, error: &io::Error) {
        self.unseen.borrow_mut().push(format!("{path}: {error}"));
    }

    /// The paths that could not be read, with the reasons.
    pub(crate) fn into_unseen(self) -> Vec<String> {
        self.unseen.into_inner()
    }
}

fn lossy(from: impl Read) -> io::Result<String> {
    let mut bytes = Vec::new();
    from.take(MAX_LEN).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
