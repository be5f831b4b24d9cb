//! `sealane man` and `sealane completions`: generated from the definitions in `args`.

use crate::answer::Answer;
use crate::args::{Cli, Completions, Man};
use anyhow::{Context, Result};
use clap::CommandFactory;
use std::io::Write;

pub(crate) fn man(args: &Man) -> Result<Answer> {
    std::fs::create_dir_all(&args.dir).with_context(|| format!("cannot create the folder {}", args.dir.display()))?;
    clap_mangen::generate_to(Cli::command(), &args.dir)
        .with_context(|| format!("cannot write man pages to {}", args.dir.display()))?;
    Ok(Answer::Yes)
}

pub(crate) fn completions(args: &Completions, out: &mut impl Write) -> Result<Answer> {
    // The generator panics on a closed pipe, so it writes to memory first.
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "sealane", &mut text);
    out.write_all(&text)?;
    Ok(Answer::Yes)
}
