//! Whoever listens at the socket of a keeper.

use sealane_sys::unix;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Makes sure that whoever listens is the keeper: root, our own user, or the owner of the folder that the socket is in. In a folder
/// where others may make files one of them could listen while no keeper runs, and would be given keys.
///
/// # Errors
/// `PermissionDenied` if it is somebody else; otherwise the kernel's.
pub(crate) fn check(path: &Path, socket: &impl AsFd, own: u32) -> io::Result<()> {
    let user = unix::peer_user(socket)?;
    if user == 0 || user == own {
        return Ok(());
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if user == rustix::fs::stat(folder)?.st_uid {
        return Ok(());
    }
    let text = format!("user {user} listens there, who is not the owner of {}", folder.display());
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
