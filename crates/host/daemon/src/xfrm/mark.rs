//! The file that says that a network namespace's IPsec is a daemon's, and stays when that dies: a launcher then refuses what
//! would otherwise reach the kernel's own IPsec, which knows nothing of the states and policies that are in force.

use crate::admin;
use crate::transport::netns::Netns;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A file of ours.
#[derive(Debug)]
pub(crate) struct Mark {
    path: PathBuf,
}

/// The file for a namespace, by its cookie: unlike inodes the kernel gives no cookie twice.
fn path(folder: &Path, cookie: u64) -> PathBuf {
    folder.join(format!("xfrm.{cookie}"))
}

/// This boot, by the kernel's name for it: cookies begin anew with each.
fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
}

impl Mark {
    /// Writes it.
    ///
    /// # Errors
    /// The file system's, the kernel's.
    pub(crate) fn write(folder: &Path, netns: &Netns) -> io::Result<Mark> {
        let mark = Mark { path: path(folder, netns.cookie()?) };
        mark.set_devices(&[])?;
        Ok(mark)
    }

    /// Writes it anew, with the names of devices that programs may ask for.
    ///
    /// # Errors
    /// The file system's.
    pub(crate) fn set_devices(&self, names: &[String]) -> io::Result<()> {
        let new = self.path.with_extension("new");
        let lines: Vec<String> = std::iter::once(boot()).chain(names.iter().cloned()).collect();
        fs::write(&new, lines.join("\n") + "\n")?;
        fs::rename(&new, &self.path)
    }

    /// Takes it away: nothing of ours is in force any more.
    pub(crate) fn remove(&self) {
        // A file that is gone is what is wanted.
        let _ = fs::remove_file(&self.path);
    }
}

/// The devices of the daemon that serves, or served, a namespace; none where there was none, or it ended in good order.
pub(crate) fn devices(cookie: u64) -> Option<Vec<String>> {
    let folders = admin::runtime_folder().into_iter().chain([PathBuf::from("/run/sealane")]);
    folders.into_iter().find_map(|folder| {
        let text = fs::read_to_string(path(&folder, cookie)).ok()?;
        let mut lines = text.lines().map(str::to_owned);
        (lines.next()? == boot()).then(|| lines.collect())
    })
}

/// Whether there is a file for any namespace.
pub(crate) fn any(folder: &Path) -> bool {
    let ours = |e: fs::DirEntry| e.file_name().as_encoded_bytes().starts_with(b"xfrm.");
    fs::read_dir(folder).is_ok_and(|list| list.flatten().any(ours))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::testing;

    #[test]
    fn a_mark_is_one_namespace_s() {
        let Some(netns) = testing::namespace("xfrm::mark") else { return };
        let folder = std::env::temp_dir().join(format!("sealane-mark-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let mark = Mark::write(&folder, &netns).unwrap();
        let cookie = netns.cookie().unwrap();
        assert_ne!(cookie, Netns::current().and_then(|n| n.cookie()).unwrap());
        let text = fs::read_to_string(path(&folder, cookie)).unwrap();
        assert_eq!(text.trim(), boot());
        mark.set_devices(&["sealane0".into()]).unwrap();
        assert!(fs::read_to_string(path(&folder, cookie)).unwrap().ends_with("\nsealane0\n"));
        mark.remove();
        assert!(!path(&folder, cookie).exists());
        fs::remove_dir_all(&folder).unwrap();
    }
}
