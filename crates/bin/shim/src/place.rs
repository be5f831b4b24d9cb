//! The place of the program's keys: this process, its guarded memory, or a keeper.
//!
//! The environment of the moment in which the program began says so (SEALANE_KEYS, SEALANE_KEEPER), or else the launcher, whom a
//! program asks that was started without it. Where neither says that keys may be in ordinary memory there are no sockets: keys never
//! come to be there because an environment was lost.

use crate::launcher::ask;
use crate::{environment, sys};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};
use sealane_abi::sealane::{KEYS_QUERY, KeyPlace, Told};
use sealane_keeper_client::client;
use std::path::PathBuf;

/// The place of keys.
pub(crate) enum Place {
    /// Ordinary memory of this process.
    Process,
    /// Guarded memory of this process, in a program that is not to have any other with `is_strict`.
    Guarded {
        /// Whether nothing of it may be lacking.
        is_strict: bool,
    },
    /// The keeper that listens here.
    Keeper(PathBuf),
}

/// The place of the program's keys.
///
/// # Errors
/// `EINVAL` for a value of SEALANE_KEYS that has no meaning, `EACCES` where nobody says where keys are to be, or a program with more
/// rights than its caller would give them away; the launcher's where it cannot say.
pub(crate) fn of_keys() -> Result<Place, i32> {
    let found = find()?;
    // It is not for its caller to say where its keys go, and they are not to stay here either. Its own memory is no other place.
    if matches!(found, Place::Keeper(_)) && sys::is_privileged() {
        complain("keys are to be in a keeper, and this program has more rights than its caller: no sockets of AF_ALG");
        return Err(libc::EACCES);
    }
    Ok(found)
}

fn find() -> Result<Place, i32> {
    let taken = environment::taken();
    let place = match taken.keys() {
        None => None,
        Some(text) => Some(KeyPlace::named(text).ok_or_else(|| {
            let names = KeyPlace::ALL.map(KeyPlace::name);
            complain(&format!("SEALANE_KEYS: none of {}; there are no sockets of AF_ALG", names.join(", ")));
            libc::EINVAL
        })?),
    };
    match (place, taken.keeper()) {
        (Some(KeyPlace::Keeper), Some(path)) => return Ok(Place::Keeper(path.into())),
        (Some(KeyPlace::Keeper) | None, _) => {}
        (Some(place), _) => return Ok(known(place)),
    }
    match ask(c_int::MAX, KEYS_QUERY) {
        Ok(Told::Text(text)) => {
            let text = String::from_utf8(text).map_err(|_| libc::EINVAL)?;
            Ok(match (KeyPlace::named(&text), place) {
                (None, _) => Place::Keeper(text.into()),
                (Some(place), None) => known(place),
                // The program asks for a keeper, and not for what its launcher has.
                (Some(_), Some(_)) => Place::Keeper(client::SOCKET.into()),
            })
        }
        Ok(_) if place.is_some() => Ok(Place::Keeper(client::SOCKET.into())),
        Ok(Told::Nothing) => Ok(Place::Process),
        // Its environment was not made for it.
        Ok(Told::Nobody) if sys::is_privileged() => Ok(Place::Process),
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

/// A place that needs no path, or has the usual one.
fn known(place: KeyPlace) -> Place {
    match place {
        KeyPlace::Process => Place::Process,
        KeyPlace::Guarded => Place::Guarded { is_strict: false },
        KeyPlace::GuardedStrict => Place::Guarded { is_strict: true },
        KeyPlace::Keeper => Place::Keeper(client::SOCKET.into()),
    }
}

/// Says once what is wrong.
pub(crate) fn complain(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        sys::complain(format_args!("{what}"));
    }
}
