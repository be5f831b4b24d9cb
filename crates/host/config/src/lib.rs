//! The configuration of `sealane daemon`: the peers that it protects with TCP-AO, their keys and the validity of these;
//! and the network namespaces in which it serves IPsec.
//!
//! `etc/sealane.toml` is a commented example. [`Config::parse`] is pure except for reading key files, which goes
//! through a function argument; [`Config::load`] reads real files. The module [`schedule`] selects the key of a chain
//! for a given time.
#![forbid(unsafe_code)]

mod ipsec;
mod keys;
mod keys_file;
mod namespaces;
mod parse;
mod peer;
mod schedule;
mod secret;
mod section;
mod settings;
mod time;

pub use ipsec::{
    DEVICE, DeviceKind, Gateway, Incoming, Ipsec, IptfsRate, MAX_WORKERS, OffloadDevice, PARTIAL_MACS_RISK,
    XfrmInterface,
};
pub use keys::{Key, KeyChain, WhenExpired};
pub use keys_file::{KeysFile, Known};
pub use namespaces::Namespaces;
pub use peer::{Flow, Peer, Ports, Prefix};
pub use secret::{MAX_KEY_LEN, ReadKeyFile, Secret, read_private};
pub use section::Mistake;
pub use settings::{Config, Daemon};
pub use time::{Window, parse_time, rfc3339};

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest configuration in bytes: 100,000 keys need about 20 MiB.
const MAX_LEN: u64 = 64 << 20;

/// The reason why a configuration cannot be used.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read, or must not be used.
    Read(PathBuf, io::Error),
    /// The configuration has mistakes, listed in the order of the text.
    Mistakes(PathBuf, Vec<Mistake>),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::Read(path, e) => write!(f, "{}: {e}", path.display()),
            LoadError::Mistakes(path, list) => {
                for (i, mistake) in list.iter().enumerate() {
                    let end = if i + 1 < list.len() { "\n" } else { "" };
                    write!(f, "{}:{mistake}{end}", path.display())?;
                }
                Ok(())
            }
        }
    }
}

impl std::error::Error for LoadError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            LoadError::Read(_, e) => Some(e),
            LoadError::Mistakes(..) => None,
        }
    }
}

impl Config {
    /// Reads the configuration in `path` and its key files. Relative key files are relative to its folder.
    ///
    /// # Errors
    /// [`LoadError`]. A file that contains a secret and that others can read is an error.
    pub fn load(path: &Path) -> Result<Config, LoadError> {
        load(path, parse::config)
    }

    /// Parses `text`. Key files are read with `read`.
    ///
    /// # Errors
    /// Every mistake, in the order of the text.
    pub fn parse(text: &str, read: ReadKeyFile<'_>) -> Result<Config, Vec<Mistake>> {
        parse::config(text, read).map(|(config, _)| config)
    }
}

/// Reads a document and its key files. If it contains a secret itself, its file must be private.
fn load<T>(
    path: &Path,
    parse: impl FnOnce(&str, ReadKeyFile<'_>) -> Result<(T, Option<usize>), Vec<Mistake>>,
) -> Result<T, LoadError> {
    let unread = |e| LoadError::Read(path.to_owned(), e);
    let mut file = File::open(path).map_err(unread)?;
    let text = text(&mut file).map_err(unread)?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let result = parse(&text, &mut |key: &Path| secret::key_file(folder, key));
    let (value, inline) = result.map_err(|list| LoadError::Mistakes(path.to_owned(), list))?;
    if let Some(line) = inline {
        secret::check_private(&file).map_err(|e| {
            let what = format!("the file has a secret here, and {e}");
            LoadError::Mistakes(path.to_owned(), vec![Mistake { line, column: 1, what }])
        })?;
    }
    Ok(value)
}

fn text(file: &mut File) -> io::Result<Zeroizing<String>> {
    use std::io::Read;
    // The length of a file is known. Anything else (a pipe) makes the buffer grow, in steps that leave few copies of
    // secrets behind.
    let len = file.metadata()?.len().min(MAX_LEN);
    let mut bytes = Zeroizing::new(Vec::with_capacity(usize::try_from(len).unwrap_or(0) + (64 << 10)));
    file.take(MAX_LEN + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_LEN {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("it has more than {MAX_LEN} bytes")));
    }
    let text = str::from_utf8(&bytes).map_err(|e| {
        let line = section::place(&String::from_utf8_lossy(&bytes), e.valid_up_to()).0;
        io::Error::new(io::ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })?;
    Ok(Zeroizing::new(text.to_owned()))
}

#[cfg(test)]
mod tests;
