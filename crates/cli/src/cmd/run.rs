//! `sealane run`.

use crate::Answer;
use crate::args::{Intercept, Launch, Run};
use anyhow::{Context, Result};
use sealane_daemon::run::{self, Options};

pub(crate) fn run(args: &Run) -> Result<Answer> {
    let options = Options { tcp_ao: args.tcp_ao, ..options(&args.launch)? };
    anyhow::ensure!(
        !(options.tcp_ao && options.intercept == run::Intercept::Preload),
        "--tcp-ao with --intercept preload: socket options of TCP-AO are intercepted by seccomp only"
    );
    Ok(status(run::run(&options)))
}

/// What the launcher is told.
pub(crate) fn options(launch: &Launch) -> Result<Options> {
    let (program, args) = launch.program.split_first().context("a program is required")?;
    Ok(Options {
        program: program.clone(),
        args: args.to_vec(),
        profile: launch.profile,
        intercept: match launch.intercept {
            Intercept::Auto => run::Intercept::Auto,
            Intercept::Preload => run::Intercept::Preload,
            Intercept::Seccomp => run::Intercept::Seccomp,
        },
        ..Options::default()
    })
}

/// A program's exit status as ours.
pub(crate) fn status(status: i32) -> Answer {
    Answer::Status(u8::try_from(status & 0xff).expect("eight bits"))
}
