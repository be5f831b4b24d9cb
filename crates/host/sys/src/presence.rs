//! A file that shows that a daemon serves IPsec in a network namespace.
//!
//! It remains when the daemon dies. A launcher then refuses requests that would otherwise reach the kernel's own IPsec,
//! which does not have the SAs and policies in force.

use super::netns::Netns;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file of a namespace that this daemon serves.
#[derive(Debug)]
pub struct Presence {
    path: PathBuf,
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
    /// Writes the file.
    ///
    /// # Errors
    /// The file system's or the kernel's.
    pub fn write(folder: &Path, netns: &Netns) -> io::Result<Presence> {
        let presence = Presence { path: path(folder, netns.cookie()?) };
        presence.set_devices(&[])?;
        Ok(presence)
    }

    /// Rewrites the file with the names of the devices that programs may ask for. If there is no room for it the file of
    /// the daemon before stays, with its devices: it matters most that there is one.
    ///
    /// # Errors
    /// The file system's, with the path.
    pub fn set_devices(&self, names: &[String]) -> io::Result<()> {
        let lines: Vec<String> = std::iter::once(boot()).chain(names.iter().cloned()).collect();
        let text = lines.join("\n") + "\n";
        let before = fs::read_to_string(&self.path).unwrap_or_default();
        if before == text {
            return Ok(());
        }
        let new = self.path.with_extension("new");
        let written = fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path));
        let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", self.path.display()));
        match written {
            Err(_) if before.lines().next() == Some(&*boot()) => fs::remove_file(&new).or(Ok(())),
            written => written.map_err(named),
        }
    }

    /// Removes the file: none of our SAs and policies is in force any more.
    pub fn remove(&self) {
        // It is no error if the file is gone already.
        let _ = fs::remove_file(&self.path);
    }

    /// Removes the file of a namespace whose daemon has ended.
    ///
    /// # Errors
    /// The kernel's.
    pub fn clear(folder: &Path, netns: &Netns) -> io::Result<()> {
        Presence { path: path(folder, netns.cookie()?) }.remove();
        Ok(())
    }
}

/// The devices of the daemon that serves, or served, a namespace, from its file in one of `folders`; `None` if there
/// was no daemon, or it ended in good order.
pub fn devices(folders: &[PathBuf], cookie: u64) -> Option<Vec<String>> {
    folders.iter().find_map(|folder| {
        let text = fs::read_to_string(path(folder, cookie)).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        (lines.next()? == boot()).then(|| lines.collect())
    })
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
    fn a_presence_is_one_namespace_s() {
        let Some(netns) = testing::namespace("sys::presence") else { return };
        let folder = std::env::temp_dir().join(format!("sealane-presence-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let presence = Presence::write(&folder, &netns).unwrap();
        let cookie = netns.cookie().unwrap();
        assert_ne!(cookie, Netns::current().and_then(|n| n.cookie()).unwrap());
        let text = fs::read_to_string(path(&folder, cookie)).unwrap();
        assert_eq!(text.trim(), boot());
        presence.set_devices(&["sealane0".into()]).unwrap();
        assert!(fs::read_to_string(path(&folder, cookie)).unwrap().ends_with("\nsealane0\n"));
        presence.remove();
        assert!(!path(&folder, cookie).exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
