//! Files that stand for `/proc/sys/net/core/xfrm_*` of a network namespace where the kernel does not have them: programs
//! read and write them as the kernel's, and the daemon looks at them.
//!
//! They are in the runtime folder, by the namespace's cookie, and go with the mark of its daemon (`presence`).

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

/// Every setting (`net/xfrm/xfrm_sysctl.c`), with the value that it has at first.
pub const SETTINGS: [(&str, u32); 4] =
    [("acq_expires", 30), ("aevent_etime", 10), ("aevent_rseqth", 2), ("larval_drop", 1)];

/// The kernel's own file of a setting of the calling thread's namespace.
#[must_use]
pub fn of_kernel(name: &str) -> PathBuf {
    PathBuf::from(format!("/proc/sys/net/core/xfrm_{name}"))
}

fn path(folder: &Path, cookie: u64, name: &str) -> PathBuf {
    folder.join(format!("xfrm_{name}.{cookie}"))
}

/// Creates the files of a namespace. With `keep`, those of the daemon before keep their values.
///
/// # Errors
/// The file system's.
pub fn create(folder: &Path, cookie: u64, keep: bool) -> io::Result<()> {
    for (name, value) in SETTINGS {
        let path = path(folder, cookie, name);
        if !keep || !path.exists() {
            fs::write(path, format!("{value}\n"))?;
        }
    }
    Ok(())
}

/// Removes the files of a namespace, if they are there.
pub(super) fn remove(folder: &Path, cookie: u64) {
    for (name, _) in SETTINGS {
        let _ = fs::remove_file(path(folder, cookie, name));
    }
}

/// Opens the file that stands for a setting of a namespace, in the first of `folders` that has it. Without `read`,
/// what is written replaces the value.
///
/// # Errors
/// The file system's; `NotFound` when no daemon serves the namespace.
pub fn open(folders: &[PathBuf], cookie: u64, name: &str, read: bool, write: bool) -> io::Result<File> {
    let mut opened = Err(io::ErrorKind::NotFound.into());
    for folder in folders {
        opened = OpenOptions::new().read(read).write(write).truncate(write && !read).open(path(folder, cookie, name));
        if !matches!(&opened, Err(e) if e.kind() == io::ErrorKind::NotFound) {
            break;
        }
    }
    opened
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    #[test]
    fn values_stay_until_they_are_removed() {
        let folder = std::env::temp_dir().join(format!("sealane-settings-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let folders = [folder.join("other"), folder.clone()];
        let value = |cookie| {
            let mut text = String::new();
            open(&folders, cookie, "acq_expires", true, false)?.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        assert_eq!(value(7).unwrap_err().kind(), io::ErrorKind::NotFound);
        create(&folder, 7, true).unwrap();
        create(&folder, 8, false).unwrap();
        assert_eq!(value(7).unwrap(), "30\n");
        open(&folders, 7, "acq_expires", false, true).unwrap().write_all(b"5\n").unwrap();
        create(&folder, 7, true).unwrap();
        assert_eq!((value(7).unwrap(), value(8).unwrap()), ("5\n".into(), "30\n".into()));
        create(&folder, 7, false).unwrap();
        assert_eq!(value(7).unwrap(), "30\n");
        remove(&folder, 7);
        remove(&folder, 8);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(&folder).unwrap();
    }
}
