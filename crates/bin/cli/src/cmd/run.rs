//! `sealane run`.

use crate::Answer;
use crate::args::{Intercept, Launch, Run, TcpAoPath};
use anyhow::{Context, Result};
use sealane_abi::admin::DataPath;
use sealane_launch::run::{self, Options};

pub(crate) fn run(args: &Run) -> Result<Answer> {
    let options = Options { tcp_ao: args.tcp_ao, data_path: data_path(args.tcp_ao_path)?, ..options(&args.launch)? };
    anyhow::ensure!(
        !(options.tcp_ao && options.intercept == run::Intercept::Preload),
        "--tcp-ao with --intercept preload: socket options of TCP-AO are intercepted by seccomp only"
    );
    Ok(status(run::run(&options)))
}

/// How segments may travel: as the option says, else as the environment does.
fn data_path(asked: Option<TcpAoPath>) -> Result<DataPath> {
    let named = match asked {
        Some(TcpAoPath::Auto) => return Ok(DataPath::Auto),
        Some(TcpAoPath::Queue) => return Ok(DataPath::Queue),
        None => std::env::var("SEALANE_TCP_AO_PATH").unwrap_or_default(),
    };
    match named.as_str() {
        "" => Ok(DataPath::default()),
        name => DataPath::named(name).with_context(|| format!("SEALANE_TCP_AO_PATH={name}: auto or queue")),
    }
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
