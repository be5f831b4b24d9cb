//! The keeper that has the program's keys, where they are not to stay in the program.
//!
//! The environment of the moment in which the program began says so (SEALANE_KEYS, SEALANE_KEEPER), or else the launcher, whom a
//! program asks that was started without it. Where neither says that keys stay in the process there are no sockets: keys never come
//! to be here because an environment was lost.
//!
//! Connections belong to the process, and lie in the commons. A child makes others.

use crate::launcher::ask;
use crate::{environment, sys, table, thread};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use sealane_abi::sealane::{KEYS_QUERY, KeyPlace, Told};
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
/// `EINVAL` for a value of SEALANE_KEYS that has no meaning, `EACCES` where nobody says where keys are to be, or a program with more
/// rights than its caller would give them away; the launcher's where it cannot say.
pub(crate) fn socket() -> Result<Option<PathBuf>, i32> {
    let found = place()?;
    // It is not for its caller to say where its keys go, and they are not to stay here either.
    if found.is_some() && sys::is_privileged() {
        complain("keys are to be in a keeper, and this program has more rights than its caller: no sockets of AF_ALG");
        return Err(libc::EACCES);
    }
    Ok(found)
}

fn place() -> Result<Option<PathBuf>, i32> {
    let taken = environment::taken();
    let place = match taken.keys() {
        None => None,
        Some(text) => Some(KeyPlace::named(text).ok_or_else(|| {
            complain("SEALANE_KEYS: neither 'process' nor 'keeper'; there are no sockets of AF_ALG");
            libc::EINVAL
        })?),
    };
    match (place, taken.keeper()) {
        (Some(KeyPlace::Process), _) => return Ok(None),
        (Some(KeyPlace::Keeper), Some(path)) => return Ok(Some(path.into())),
        _ => {}
    }
    match ask(c_int::MAX, KEYS_QUERY) {
        Ok(Told::Text(path)) => String::from_utf8(path).map(|path| Some(path.into())).map_err(|_| libc::EINVAL),
        Ok(_) if place.is_some() => Ok(Some(client::SOCKET.into())),
        Ok(Told::Nothing) => Ok(None),
        // Its environment was not made for it.
        Ok(Told::Nobody) if sys::is_privileged() => Ok(None),
        Ok(Told::Nobody) => {
            complain(
                "SEALANE_KEYS is not set, and no `sealane run` says where keys are to be: there are no sockets of AF_ALG \
                 (SEALANE_KEYS=process: in this process)",
            );
            Err(libc::EACCES)
        }
        Err(errno) => {
            complain("`sealane run` does not say where keys are to be: there are no sockets of AF_ALG");
            Err(errno)
        }
    }
}

/// Says once what is wrong.
fn complain(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(format_args!("{what}"));
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
