//! The folder for sockets and state of running instances: /run/sealane for root, $XDG_RUNTIME_DIR/sealane for others.

use super::process;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The runtime folder of this user; `None` if there is no place for one.
#[must_use]
pub fn folder() -> Option<PathBuf> {
    if let Some(folder) = std::env::var_os("SEALANE_RUNTIME_DIR") {
        return Some(folder.into());
    }
    if process::effective_user() == 0 {
        return Some("/run/sealane".into());
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|v| !v.is_empty())?;
    Some(Path::new(&base).join("sealane"))
}

/// The folders in which a daemon may have registered: this user's and root's.
pub fn folders() -> Vec<PathBuf> {
    folder().into_iter().chain([PathBuf::from("/run/sealane")]).collect()
}

/// Removes a file, if it is there.
///
/// # Errors
/// The file system's.
pub fn remove(file: &Path) -> io::Result<()> {
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Creates a folder that only this user can change, unless it exists.
///
/// # Errors
/// `PermissionDenied` when it belongs to another user or others can change it; otherwise the file system's.
pub fn make_private(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
        _ => {}
    }
    let meta = fs::symlink_metadata(folder)?;
    let ours = meta.uid() == process::effective_user();
    if !meta.is_dir() || !ours || meta.mode() & 0o022 != 0 {
        let what = format!("{} is not a folder that only we can change", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    Ok(())
}
