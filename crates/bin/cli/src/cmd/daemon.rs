//! `sealane daemon`, `sealane tcp-ao clear` and `sealane xfrm clear`: start the daemon, and take the protection away that it
//! leaves behind.

use crate::answer::Answer;
use crate::args::{Clear, Daemon, Hold};
use anyhow::{Result, anyhow};
use sealane_daemon as host;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;

pub(crate) fn daemon(args: &Daemon) -> Result<Answer> {
    host::run(&args.config)?;
    Ok(Answer::Yes)
}

/// `sealane hold`, which only a daemon starts.
pub(crate) fn hold(args: &Hold) -> Result<Answer> {
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?;
    host::hold(UnixListener::from(listener), &args.folder)?;
    Ok(Answer::Yes)
}

pub(crate) fn clear_tcp_ao(args: &Clear) -> Result<Answer> {
    cleared(host::clear_tcp_ao(args.netns.as_deref()))
}

/// `sealane xfrm clear`.
pub(crate) fn clear_ipsec(netns: Option<&str>) -> Result<Answer> {
    cleared(host::clear_ipsec(netns))
}

fn cleared(done: Result<(), host::Error>) -> Result<Answer> {
    match done {
        Ok(()) => Ok(Answer::Yes),
        Err(e) => Err(match &e {
            host::Error::System(_, io) if io.kind() == ErrorKind::AddrInUse => {
                anyhow!("{e}: 'sealane daemon' serves this network namespace: stop it first")
            }
            host::Error::System(_, io) if io.kind() == ErrorKind::PermissionDenied => {
                anyhow!("{e}: a running instance of Sealane owns them, or CAP_NET_ADMIN is missing")
            }
            _ => e.into(),
        }),
    }
}
