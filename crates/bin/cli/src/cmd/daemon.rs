//! `sealane daemon` and `sealane tcp-ao clear`: start the daemon, and remove the rules it leaves behind.

use crate::answer::Answer;
use crate::args::{Clear, Daemon};
use anyhow::{Result, anyhow};
use sealane_daemon as host;
use std::io::ErrorKind;

pub(crate) fn daemon(args: &Daemon) -> Result<Answer> {
    host::run(&args.config)?;
    Ok(Answer::Yes)
}

pub(crate) fn clear(args: &Clear) -> Result<Answer> {
    host::clear(args.netns.as_deref()).map_err(|e| match &e {
        host::Error::System(_, io) if io.kind() == ErrorKind::PermissionDenied => {
            anyhow!("{e}: a running instance of Sealane owns them, or CAP_NET_ADMIN is missing")
        }
        _ => e.into(),
    })?;
    Ok(Answer::Yes)
}
