//! `sealane daemon`, `sealane tcp-ao clear` and `sealane xfrm clear`: start the daemon, and take the protection away that it
//! leaves behind.

use crate::answer::Answer;
use crate::args::{Clear, Daemon};
use anyhow::{Result, anyhow};
use sealane_daemon as host;
use std::io::ErrorKind;

pub(crate) fn daemon(args: &Daemon) -> Result<Answer> {
    host::run(&args.config)?;
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
