//! A file that shows that a daemon serves IPsec in a network namespace, and at which port if it is not the usual one; and files
//! with the patterns of namespaces that it is about to serve.
//!
//! The first one remains when the daemon dies. A launcher then refuses requests that would otherwise reach the kernel's own IPsec,
//! which does not have the SAs and policies in force.

use super::named_netns::Pattern;
use super::netns::{self, Netns, NetnsId};
use super::runtime;
use sealane_abi::sealane::XFRM_PORT;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The word before the port. No name of a device has a space in it.
const PORT: &str = "port ";

/// The file of a namespace that this daemon serves.
#[derive(Debug)]
pub struct Presence {
    path: PathBuf,
    port: u32,
}

/// The section of the configuration about IPsec.
pub const IPSEC: &str = "ipsec";
/// The section of the configuration about programs with TCP-AO.
pub const TCP_AO: &str = "tcp-ao";

/// The longest time for which programs wait for a daemon that is about to serve their namespace.
pub const PATIENCE: Duration = Duration::from_secs(3);

/// The file with the patterns of namespaces that are served as soon as they have a name. `section` is that of the configuration.
fn patterns_path(folder: &Path, section: &str) -> PathBuf {
    folder.join(format!("{section}-patterns"))
}

/// Tells launchers the patterns of the namespaces that the daemon serves; none, if it serves no patterns.
///
/// # Errors
/// The file system's, with the path.
pub fn set_patterns(folder: &Path, section: &str, patterns: &[String]) -> io::Result<()> {
    set_lines(&patterns_path(folder, section), patterns)
}

/// Rewrites a file of this boot with these lines, or removes it if there are none.
///
/// # Errors
/// The file system's, with the path.
fn set_lines(path: &Path, lines: &[String]) -> io::Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let done = if lines.is_empty() {
        runtime::remove(path)
    } else {
        fs::write(&new, format!("{}\n{}\n", boot(), lines.join("\n"))).and_then(|()| fs::rename(&new, path))
    };
    done.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// Whether a namespace has a name of such a pattern, so that a daemon serves it, or is about to.
pub fn is_expected(folders: &[PathBuf], section: &str, netns: NetnsId) -> bool {
    let texts = folders.iter().filter_map(|folder| fs::read_to_string(patterns_path(folder, section)).ok());
    let mut patterns = texts.filter_map(|text| of_boot(&text)).flatten();
    patterns.any(|pattern| Pattern::new(&pattern).find().iter().any(|named| named.id == netns))
}

/// Makes sure that nobody else with this folder serves a namespace, or takes its protection away, as long as the
/// returned file is open.
///
/// # Errors
/// `AddrInUse` when somebody does; otherwise the file system's or the kernel's.
pub fn claim(folder: &Path, netns: &Netns) -> io::Result<File> {
    let path = claim_path(folder, netns.cookie()?);
    let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => io::Error::new(io::ErrorKind::AddrInUse, "another daemon serves it"),
        TryLockError::Error(e) => e,
    })?;
    Ok(file)
}

fn claim_path(folder: &Path, cookie: u64) -> PathBuf {
    folder.join(format!("serves.{cookie}"))
}

/// The path of a namespace's file, by its cookie: unlike inodes, cookies are never reused.
fn path(folder: &Path, cookie: u64) -> PathBuf {
    folder.join(format!("xfrm.{cookie}"))
}

/// The kernel's id of this boot: cookies start over with each boot.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Presence {
    /// Writes the file of a daemon with this port.
    ///
    /// # Errors
    /// The file system's or the kernel's.
    pub fn write(folder: &Path, netns: &Netns, port: u32) -> io::Result<Presence> {
        let presence = Presence { path: path(folder, netns.cookie()?), port };
        presence.set_devices(&[])?;
        Ok(presence)
    }

    /// Rewrites the file with the names of the devices that programs may ask for. If there is no room for it the file of
    /// the daemon before stays, with its devices, unless that had another port: it matters most that there is one.
    ///
    /// # Errors
    /// The file system's, with the path.
    pub fn set_devices(&self, names: &[String]) -> io::Result<()> {
        let port = (self.port != XFRM_PORT).then(|| format!("{PORT}{}", self.port));
        let lines: Vec<String> = std::iter::once(boot()).chain(port).chain(names.iter().cloned()).collect();
        let text = lines.join("\n") + "\n";
        let before = fs::read_to_string(&self.path).unwrap_or_default();
        if before == text {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()));
        match written {
            Err(_) if of_boot(&before).is_some_and(|lines| port_in(&lines) == self.port) => {
                fs::remove_file(&new).or(Ok(()))
            }
            written => written.map_err(named),
        }
    }

    /// Removes the file: none of our SAs and policies is in force any more.
    pub fn remove(&self) {
        // It is no error if the file is gone already.
        let _ = fs::remove_file(&self.path);
    }

    /// Removes it, and that of [`claim`], which nobody needs any more: the namespace is about to end.
    pub fn forget(&self) {
        self.remove();
        if let (Some(folder), Some(cookie)) = (self.path.parent(), self.path.extension()) {
            // As above.
            let _ =
                cookie.to_str().and_then(|cookie| cookie.parse().ok()).map(|c| fs::remove_file(claim_path(folder, c)));
        }
    }

    /// Removes the file of a namespace whose daemon has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(folder: &Path, netns: &Netns) -> io::Result<()> {
        Presence { path: path(folder, netns.cookie()?), port: XFRM_PORT }.remove();
        Ok(())
    }
}

/// An xfrm interface that was moved to another namespace: that one's cookie, and the interface id.
pub type Moved = (u64, u32);

fn moved_path(folder: &Path, cookie: u64) -> PathBuf {
    folder.join(format!("moved.{cookie}"))
}

/// Notes for the next daemon which xfrm interfaces of a namespace are in others. The words of devices there about themselves
/// do not count: who administers them could have packets sealed by the policies of this one.
///
/// # Errors
/// The file system's, with the path.
pub fn set_moved(folder: &Path, cookie: u64, list: &[Moved]) -> io::Result<()> {
    let lines: Vec<String> = list.iter().map(|(place, if_id)| format!("{place} {if_id}")).collect();
    set_lines(&moved_path(folder, cookie), &lines)
}

/// Those that a daemon has noted last.
pub fn moved(folder: &Path, cookie: u64) -> Vec<Moved> {
    let lines = fs::read_to_string(moved_path(folder, cookie)).ok().and_then(|text| of_boot(&text));
    let read =
        |line: String| line.split_once(' ').and_then(|(place, id)| Some((place.parse().ok()?, id.parse().ok()?)));
    lines.into_iter().flatten().filter_map(read).collect()
}

/// The devices of the daemon that serves, or served, a namespace, from its file in one of `folders`; `None` if there
/// was no daemon, or it ended in good order.
pub fn devices(folders: &[PathBuf], cookie: u64) -> Option<Vec<String>> {
    let mut lines = read(folders, cookie)?;
    lines.retain(|line| !line.starts_with(PORT));
    Some(lines)
}

/// The port of the daemon that serves, or served, the namespace of a socket, as far as files of this user and of root
/// tell.
pub fn port(socket: BorrowedFd<'_>) -> u32 {
    let lines = netns::cookie(socket).ok().and_then(|cookie| read(&runtime::folders(), cookie));
    lines.map_or(XFRM_PORT, |lines| port_in(&lines))
}

/// The lines of a namespace's file in one of `folders`, behind the first.
fn read(folders: &[PathBuf], cookie: u64) -> Option<Vec<String>> {
    folders.iter().find_map(|folder| of_boot(&fs::read_to_string(path(folder, cookie)).ok()?))
}

/// The lines behind the first, if that says that they were written in this boot.
fn of_boot(text: &str) -> Option<Vec<String>> {
    let mut lines = text.lines().map(str::to_owned);
    (lines.next()? == boot()).then(|| lines.collect())
}

fn port_in(lines: &[String]) -> u32 {
    lines.iter().find_map(|line| line.strip_prefix(PORT)?.parse().ok()).unwrap_or(XFRM_PORT)
}

/// Whether one of `folders` has a file of any namespace.
pub fn any(folders: &[PathBuf]) -> bool {
    let ours = |e: fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(b"xfrm.");
    folders.iter().any(|folder| fs::read_dir(folder).is_ok_and(|list| list.flatten().any(ours)))
}

#[cfg(test)]
mod tests {
    use super::super::testing;
    use super::*;

    #[test]
    fn patterns_are_those_of_a_service() {
        let Some(netns) = testing::namespace("sys::presence::patterns") else { return };
        let folder = std::env::temp_dir().join(format!("sealane-patterns-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let file = folder.join("blue");
        fs::write(&file, "").expect("a file");
        let mounted = testing::Mounted::new(&netns, &file);
        let (folders, id) = ([folder.clone()], netns.id().expect("an id"));
        let expected = || [IPSEC, TCP_AO].map(|section| is_expected(&folders, section, id));
        let set = |section, name: &str| {
            let pattern = format!("{}/{name}", folder.display());
            set_patterns(&folder, section, &[pattern]).expect("a file");
        };
        assert_eq!(expected(), [false, false]);
        set(TCP_AO, "b*");
        set(IPSEC, "c*");
        assert_eq!(expected(), [false, true]);
        set(IPSEC, "?lue");
        set_patterns(&folder, TCP_AO, &[]).expect("it can be removed");
        assert_eq!(expected(), [true, false]);
        drop(mounted);
        assert_eq!(expected(), [false, false]);
        fs::remove_dir_all(&folder).expect("it was there");
    }

    #[test]
    fn a_presence_is_one_namespace_s() {
        let Some(netns) = testing::namespace("sys::presence") else { return };
        let folder = std::env::temp_dir().join(format!("sealane-presence-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let claimed = claim(&folder, &netns).unwrap();
        assert_eq!(claim(&folder, &netns).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(claimed);
        claim(&folder, &netns).unwrap();
        let presence = Presence::write(&folder, &netns, XFRM_PORT).unwrap();
        let cookie = netns.cookie().unwrap();
        assert_ne!(cookie, Netns::current().and_then(|n| n.cookie()).unwrap());
        let text = fs::read_to_string(path(&folder, cookie)).unwrap();
        assert_eq!(text.trim(), boot());
        presence.set_devices(&["sealane0".into()]).unwrap();
        assert!(fs::read_to_string(path(&folder, cookie)).unwrap().ends_with("\nsealane0\n"));
        // Another port is a line of its own.
        let folders = [folder.clone()];
        let port = || port_in(&read(&folders, cookie).unwrap());
        assert_eq!((port(), devices(&folders, cookie)), (XFRM_PORT, Some(vec!["sealane0".to_owned()])));
        let presence = Presence { port: 7000, ..presence };
        presence.set_devices(&["sealane1".into()]).unwrap();
        assert_eq!((port(), devices(&folders, cookie)), (7000, Some(vec!["sealane1".to_owned()])));
        presence.remove();
        assert!(!path(&folder, cookie).exists());
        for list in [&[][..], &[(7, 42)], &[(7, 42), (u64::MAX, 1)], &[]] {
            set_moved(&folder, cookie, list).unwrap();
            assert_eq!((moved(&folder, cookie), any(&folders)), (list.to_vec(), false));
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
