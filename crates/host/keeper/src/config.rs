//! The configuration of a keeper.

use crate::seal::{MAX_PASSPHRASE_LEN, Protection};
use sealane_keeper_client::client::{SOCKET, read_secret};
use sealane_keeper_client::key::Listed;
use serde::Deserialize;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// The longest configuration, in bytes.
const MAX_LEN: u64 = 1024 * 1024;

/// A configuration.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The socket for clients.
    #[serde(default = "socket")]
    pub socket: PathBuf,
    /// The folder of the keys; without one they are in memory only.
    pub store: Option<PathBuf>,
    /// The file with the passphrase of the store, without the newline at its end.
    pub passphrase_file: Option<PathBuf>,
    /// The credential of the service manager with the passphrase of the store, without the newline at its end.
    pub passphrase_credential: Option<String>,
    /// The credential of the service manager with random bytes that protect the store.
    pub credential: Option<String>,
    /// Users, by number, that may make and administer all keys; 0 if none is given.
    #[serde(default = "root")]
    pub admin_users: Vec<u32>,
    /// Groups, by number, whose members may.
    #[serde(default)]
    pub admin_groups: Vec<u32>,
    /// Whether keys of programs are taken.
    #[serde(default = "yes")]
    pub wrapped_keys: bool,
    /// Users, by number, whose programs may give their keys; all if neither users nor groups are given.
    pub wrapped_key_users: Option<Vec<u32>>,
    /// Groups, by number, whose members' programs may.
    pub wrapped_key_groups: Option<Vec<u32>>,
    /// The most clients at a time.
    #[serde(default = "clients")]
    pub clients: usize,
    /// The most clients of one user at a time.
    #[serde(default = "clients_per_user")]
    pub clients_per_user: usize,
}

fn socket() -> PathBuf {
    SOCKET.into()
}

fn root() -> Vec<u32> {
    vec![0]
}

fn yes() -> bool {
    true
}

fn clients() -> usize {
    1024
}

fn clients_per_user() -> usize {
    256
}

/// The reason why a configuration cannot be used.
#[derive(Debug)]
pub struct ConfigError {
    file: PathBuf,
    what: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.what)
    }
}

impl std::error::Error for ConfigError {}

fn error(file: &Path, what: impl fmt::Display) -> ConfigError {
    ConfigError { file: file.to_owned(), what: what.to_string() }
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// [`ConfigError`], with the line of a mistake.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_LEN).read_to_string(&mut text));
        read.map_err(|e| error(path, e))?;
        Config::parse(&text).map_err(|e| error(path, e))
    }

    /// Reads a text.
    ///
    /// # Errors
    /// The mistake, with its line where it has one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Config = toml::from_str(text).map_err(|e| e.to_string())?;
        let secrets =
            [config.passphrase_file.is_some(), config.passphrase_credential.is_some(), config.credential.is_some()];
        match (config.store.is_some(), secrets.into_iter().filter(|given| *given).count()) {
            (true, 1) | (false, 0) => {}
            (true, _) => {
                let text = "'store' needs one of 'passphrase-file', 'passphrase-credential' and 'credential'";
                return Err(text.to_owned());
            }
            (false, _) => return Err("there is a secret for a store, and no 'store'".to_owned()),
        }
        let has_users = config.wrapped_key_users.is_some() || config.wrapped_key_groups.is_some();
        if has_users && !config.wrapped_keys {
            return Err("there are users or groups for wrapped keys, and 'wrapped-keys' is false".to_owned());
        }
        if !(1..=16_384).contains(&config.clients) || !(1..=config.clients).contains(&config.clients_per_user) {
            return Err("'clients' is from 1 to 16384, and 'clients-per-user' no larger".to_owned());
        }
        Ok(config)
    }

    /// The protection of the store; `None` without a store.
    ///
    /// # Errors
    /// [`ConfigError`], if the file or credential cannot be read.
    pub fn protection(&self) -> Result<Option<Protection>, ConfigError> {
        if let Some(file) = &self.passphrase_file {
            return Ok(Some(Protection::Passphrase(line(secret(file)?))));
        }
        if let Some(name) = &self.passphrase_credential {
            return Ok(Some(Protection::Passphrase(line(secret(&credential(name)?)?))));
        }
        self.credential.as_ref().map(|name| Ok(Protection::Credential(secret(&credential(name)?)?))).transpose()
    }

    /// The users and groups that may make and administer all keys.
    #[must_use]
    pub fn admins(&self) -> Listed {
        Listed { users: self.admin_users.clone(), groups: self.admin_groups.clone() }
    }

    /// The users and groups whose programs may give their keys; `None` for all.
    #[must_use]
    pub fn wrapping_users(&self) -> Option<Listed> {
        if self.wrapped_key_users.is_none() && self.wrapped_key_groups.is_none() {
            return None;
        }
        let list = |ids: &Option<Vec<u32>>| ids.clone().unwrap_or_default();
        Some(Listed { users: list(&self.wrapped_key_users), groups: list(&self.wrapped_key_groups) })
    }
}

/// The file of a credential (systemd.exec(5)).
fn credential(name: &str) -> Result<PathBuf, ConfigError> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return Err(error(Path::new(name), "it is no name of a credential"));
    }
    let folder = std::env::var_os("CREDENTIALS_DIRECTORY");
    let folder = folder.ok_or_else(|| error(Path::new(name), "the service manager has given no credentials"))?;
    Ok(Path::new(&folder).join(name))
}

/// The secret of the store, from a file.
fn secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, ConfigError> {
    read_secret(path, MAX_PASSPHRASE_LEN + 2).map_err(|e| error(path, e))
}

fn line(mut secret: Zeroizing<Vec<u8>>) -> Zeroizing<Vec<u8>> {
    if secret.last() == Some(&b'\n') {
        secret.pop();
    }
    secret
}

/// Whether others than its owner can read a file.
///
/// # Errors
/// The file system's.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    Ok(fs::metadata(path)?.mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_has_one_secret() {
        assert!(Config::parse("").is_ok_and(|config| config.store.is_none() && config.admin_users == [0]));
        assert!(Config::parse("store = '/s'\npassphrase-file = '/p'").is_ok());
        assert!(Config::parse("store = '/s'\ncredential = 'c'").is_ok());
        for wrong in ["store = '/s'", "store = '/s'\npassphrase-file = '/p'\ncredential = 'c'", "credential = 'c'"] {
            assert!(Config::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_its_line() {
        let wrong = Config::parse("socket = '/s'\nsokcet = '/t'").unwrap_err();
        assert!(wrong.contains("line 2") && wrong.contains("sokcet"), "{wrong}");
        for wrong in ["clients = 0", "clients = 5", "clients = 20000", "clients-per-user = 0"] {
            assert!(Config::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_of_programs_are_everybodys_some_users_or_nobodys() {
        let users = |text: &str| Config::parse(text).map(|config| (config.wrapped_keys, config.wrapping_users()));
        let listed = |users: &[u32], groups: &[u32]| Some(Listed { users: users.to_vec(), groups: groups.to_vec() });
        assert_eq!(users(""), Ok((true, None)));
        assert_eq!(users("wrapped-keys = false"), Ok((false, None)));
        assert_eq!(users("wrapped-key-users = []"), Ok((true, listed(&[], &[]))));
        assert_eq!(users("wrapped-key-users = [1]\nwrapped-key-groups = [2]"), Ok((true, listed(&[1], &[2]))));
        assert!(users("wrapped-keys = false\nwrapped-key-users = [1]").is_err());
    }

    #[test]
    fn a_name_of_a_credential_is_no_path() {
        for wrong in ["", "..", "a/b", "/a"] {
            assert!(credential(wrong).is_err(), "{wrong}");
        }
    }
}
