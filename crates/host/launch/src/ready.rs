//! Whether a program may run: the place of its keys can be had, and is the same for all of its processes.

use crate::keys::{Keys, guarded_memory};
use crate::serve::Keeper;
use sealane_crypto::home::KeepError;
use std::path::Path;
use tracing::{error, warn};

/// Makes sure that the place of keys is there, without which nothing of the program is to run, and that all of the program's keys are in
/// it. Otherwise it tells why not.
pub(crate) fn is_ready(keys: &Keys) -> bool {
    agrees(keys)
        && match keys {
            Keys::Process => true,
            Keys::Guarded { is_strict } => is_guarded(*is_strict),
            Keys::Keeper(path) => is_reached(path),
        }
}

/// Of two launchers the outer one serves programs that the library does not reach.
fn agrees(keys: &Keys) -> bool {
    let why = match Keys::around_us() {
        Ok(None) => return true,
        Ok(Some(outer)) if outer == *keys => return true,
        Ok(Some(Keys::Process)) => "the `sealane run` around it has keys in the process".to_owned(),
        Ok(Some(outer @ Keys::Guarded { .. })) => {
            format!("the `sealane run` around it has keys in guarded memory (--keys {})", outer.place().name())
        }
        Ok(Some(Keys::Keeper(path))) => {
            format!("the `sealane run` around it has keys in the keeper at {}", path.display())
        }
        Err(e) => format!("the `sealane run` around it does not say where its keys are: {e}"),
    };
    error!("the program does not run: it would have keys in two places: {why}");
    false
}

/// Makes sure that there is guarded memory here, which is what the program finds, too, and says what that lacks.
fn is_guarded(is_strict: bool) -> bool {
    let lacks = match guarded_memory() {
        Ok(lacks) => lacks,
        Err(e) => {
            error!(error = %e, "the program does not run: there is no guarded memory: {e}");
            return false;
        }
    };
    for lack in lacks {
        match is_strict {
            true => error!("the program does not run: guarded memory lacks something: {lack}"),
            false => warn!("--keys guarded: {lack}"),
        }
    }
    !is_strict || lacks.is_empty()
}

/// Makes sure that the keeper of the program's keys is there.
fn is_reached(path: &Path) -> bool {
    let keeper = path.display();
    if path.to_str().is_none() {
        error!(%keeper, "{keeper}: the path of a keeper's socket has to be UTF-8");
        return false;
    }
    let reached = Keeper::new(path, &[]).reach();
    let tell =
        |e: &KeepError| error!(%keeper, error = %e, "the program does not run: no keeper of keys at {keeper}: {e}");
    reached.inspect_err(tell).is_ok()
}
