//! The place of a program's keys.

use sealane_abi::sealane::{KEYS_QUERY, KeyPlace, Told};
use sealane_guarded::{Lack, Plan, establish};
use sealane_sys::seccomp::ask_launcher;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The place where a program's keys of AF_ALG are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Keys {
    /// The process that computes: the program's own, or the launcher.
    #[default]
    Process,
    /// Guarded memory of that process.
    Guarded {
        /// Whether nothing may be lacking of what guards it.
        is_strict: bool,
    },
    /// The keeper that answers at this socket, an absolute path.
    Keeper(PathBuf),
}

impl Keys {
    /// The place in the `sealane run` that this process runs under, if it does: programs that the library does not serve have
    /// their keys there.
    ///
    /// # Errors
    /// When it does not say.
    pub fn around_us() -> io::Result<Option<Self>> {
        Ok(match ask_launcher(KEYS_QUERY)? {
            Told::Nobody => None,
            Told::Nothing => Some(Keys::Process),
            Told::Text(text) => Some(match core::str::from_utf8(&text).ok().and_then(KeyPlace::named) {
                Some(place @ (KeyPlace::Guarded | KeyPlace::GuardedStrict)) => {
                    Keys::Guarded { is_strict: place == KeyPlace::GuardedStrict }
                }
                _ => Keys::Keeper(OsString::from_vec(text).into()),
            }),
        })
    }

    pub(crate) fn place(&self) -> KeyPlace {
        match self {
            Keys::Process => KeyPlace::Process,
            Keys::Guarded { is_strict: false } => KeyPlace::Guarded,
            Keys::Guarded { is_strict: true } => KeyPlace::GuardedStrict,
            Keys::Keeper(_) => KeyPlace::Keeper,
        }
    }

    /// The answer to a process that asks for the place; none where it is the process itself.
    pub(crate) fn told(&self) -> Option<&str> {
        match self {
            Keys::Process => None,
            Keys::Guarded { .. } => Some(self.place().name()),
            Keys::Keeper(path) => path.to_str(),
        }
    }

    /// Words for a program's keys that are not in this place, after the name of the program; empty where that is no matter.
    pub(crate) fn not_kept(&self) -> &'static str {
        match self {
            Keys::Process => "",
            Keys::Guarded { .. } => "its keys are not in guarded memory",
            Keys::Keeper(_) => "its keys are not in the keeper",
        }
    }

    /// The same behind a comma, at the end of a warning that a program is not served.
    pub(crate) fn and_not_kept(&self) -> String {
        let words = self.not_kept();
        if words.is_empty() { String::new() } else { format!(", and {words}") }
    }
}

/// Gives this process guarded memory, for programs that the library does not reach; returns what it lacks.
///
/// # Errors
/// There is none.
pub(crate) fn guarded_memory() -> io::Result<&'static [Lack]> {
    Ok(establish(Plan::by_limit())?.lacks())
}
