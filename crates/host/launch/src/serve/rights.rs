//! The rights of callers. The kernel decides by those of the thread that makes a call; the launcher, which makes it in the
//! thread's place with rights of its own, has to ask.

use sealane_engine_alg::Caller;
use sealane_sys::peer::{self, Ids, Peer};
use sealane_sys::thread::Thread;

/// The privileges of a peer: the kernel's crypto API asks for capabilities in the initial user namespace (`capable`).
pub(super) fn caller(peer: &Thread) -> Caller {
    Caller { privileged: is_capable(peer) && peer.is_in_initial_user_namespace() }
}

/// Whether a peer has CAP_NET_ADMIN or CAP_SYS_ADMIN in its own user namespace.
pub(super) fn is_capable(peer: &Thread) -> bool {
    const NET_ADMIN_OR_SYS_ADMIN: u64 = 1 << 12 | 1 << 21;
    peer.status().is_some_and(|s| peer::capabilities(&s) & NET_ADMIN_OR_SYS_ADMIN != 0)
}

/// The ids of a peer where they are not the launcher's.
///
/// # Errors
/// `EACCES` when they cannot be told.
pub(super) fn other_ids(peer: &Thread) -> Result<Option<Ids>, i32> {
    let theirs = peer.status().as_deref().and_then(Ids::of).ok_or(libc::EACCES)?;
    let same = ours().as_deref().and_then(Ids::of).as_ref() == Some(&theirs);
    Ok(if same { None } else { Some(theirs) })
}

/// Whether a peer may do all that the launcher may: it has the same ids and every capability, in the same user namespace.
pub(super) fn are_as_ours(peer: &Thread) -> bool {
    let (Some(theirs), Some(ours)) = (peer.status(), ours()) else { return false };
    let missing = peer::capabilities(&ours) & !peer::capabilities(&theirs);
    Ids::of(&theirs) == Ids::of(&ours) && missing == 0 && peer.shares_namespace("user")
}

/// The text of the launcher's own /proc status.
fn ours() -> Option<String> {
    Peer(std::process::id()).status()
}
