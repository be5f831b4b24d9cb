//! Calls of programs in another process: launchers make them at the daemon, which has the engine and the keys, so that
//! programs do not lose their keys with their launcher, and several launchers share one engine.
//!
//! ```text
//! program ─ seccomp ─▶ launcher ─ tcp-ao-COOKIE.sock: the call's bytes, the socket itself ─▶ daemon: Spaces::call
//! ```
//!
//! - [`wire`]: requests and answers as bytes;
//! - [`client`]: the launcher's end, which waits for a daemon that comes back;
//! - [`server`]: the daemon's end.

pub mod client;
pub mod server;
pub mod wire;

use std::path::{Path, PathBuf};

/// Removes the name for a network namespace that a daemon left, so that launchers do not wait for it.
pub(crate) fn forget(folder: &Path, cookie: u64) {
    // It is no error if there was none.
    let _ = std::fs::remove_file(path(folder, cookie));
}

/// The path by which launchers in the network namespace with this cookie find its daemon in a runtime folder.
fn path(folder: &Path, cookie: u64) -> PathBuf {
    folder.join(format!("tcp-ao-{cookie}.sock"))
}
