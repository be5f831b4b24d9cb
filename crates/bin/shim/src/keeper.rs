//! The keeper that has the program's keys, where they are not to stay in the program.
//!
//! The environment says so (SEALANE_KEYS, SEALANE_KEEPER), or else the launcher, whom a program asks that has lost its environment:
//! keys never come to be in the process because of that.
//!
//! Connections belong to the process, and lie in the commons. A child makes others.

use crate::launcher::asked;
use crate::{sys, table, thread};
use core::ffi::c_int;
use sealane_abi::sealane::KEYS_QUERY;
use sealane_keeper_client::client;
use sealane_keeper_client::home::KeeperHome;
use sealane_keeper_client::pool::Manner;
use std::path::PathBuf;

/// The lowest number of a connection's descriptor: above those that programs count on, and below those that the launcher watches
/// (`seccomp::Numbers`), whose calls would go a long way round.
const FIRST_DESCRIPTOR: c_int = 512;

/// The socket of the keeper; none where keys stay in this process.
///
/// # Errors
/// `EINVAL` for a value of SEALANE_KEYS that has no meaning.
pub(crate) fn socket() -> Result<Option<PathBuf>, i32> {
    // It is not for its caller to say where its keys go.
    if sys::is_privileged() {
        return Ok(None);
    }
    match sys::env(c"SEALANE_KEYS") {
        Some("keeper") => Ok(Some(sys::env(c"SEALANE_KEEPER").map_or_else(|| client::SOCKET.into(), PathBuf::from))),
        None | Some("process") => {
            let path = asked(c_int::MAX, KEYS_QUERY);
            Ok(path.map(|path| PathBuf::from(String::from_utf8_lossy(&path).into_owned())))
        }
        Some(_) => {
            sys::complain(format_args!("SEALANE_KEYS: neither 'process' nor 'keeper'; there are no sockets of AF_ALG"));
            Err(libc::EINVAL)
        }
    }
}

/// The home of the program's keys.
///
/// # Errors
/// As for [`socket`].
pub(crate) fn home() -> Result<Option<KeeperHome>, i32> {
    let manner = Manner {
        generation: table::generation,
        first_descriptor: FIRST_DESCRIPTOR,
        lasting: |f| {
            let _commons = thread::within(core::ptr::null_mut());
            f();
        },
        ..Manner::default()
    };
    Ok(socket()?.map(|path| KeeperHome::new(path, manner)))
}
