//! The keeper that has the program's keys, where [`crate::place`] says so.
//!
//! Connections belong to the process, and lie in the commons. A child makes others.

use crate::thread;
use core::ffi::c_int;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::path::PathBuf;

/// The lowest number of a connection's descriptor: above those that programs count on, and below those that the launcher watches
/// (`seccomp::Numbers`), whose calls would go a long way round.
const FIRST_DESCRIPTOR: c_int = 512;

/// The home of the program's keys, by the socket of its keeper.
pub(crate) fn home(path: PathBuf) -> KeeperHome {
    let manner = Manner {
        first_descriptor: FIRST_DESCRIPTOR,
        lasting: |f| {
            let _commons = thread::within(core::ptr::null_mut());
            f();
        },
        ..Manner::default()
    };
    KeeperHome::new(path, manner)
}
