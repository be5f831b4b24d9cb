//! `sealane daemon` and `sealane tcp-ao clear`: start the daemon, and remove the rules it leaves behind.

use crate::answer::Answer;
use crate::args::{Clear, Daemon};
use anyhow::Result;
use sealane_daemon as host;

pub(crate) fn daemon(args: &Daemon) -> Result<Answer> {
    host::run(&args.config, |told| eprintln!("sealane: {told}"))?;
    Ok(Answer::Yes)
}

pub(crate) fn clear(args: &Clear) -> Result<Answer> {
    host::clear(args.netns.as_deref())?;
    Ok(Answer::Yes)
}
