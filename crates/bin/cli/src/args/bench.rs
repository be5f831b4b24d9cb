//! The arguments of `sealane bench`.

use clap::{Args, Subcommand, ValueHint};
use sealane_report::parts::child::Inner;
use std::path::PathBuf;

/// Measure what each way to authenticate and encrypt packets costs on this machine, and write a report.
///
/// Writes index.html, one file that needs no network, and data.json into a folder, and prints a summary. Each part stands beside figures
/// that were published for other machines; a part that cannot run here says why. No part needs privileges, but some measure more with
/// them. Ctrl-C ends the run after the row that is being measured, and what was measured is kept; a second one ends it at once.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:\n  sealane bench --quick\n  sealane bench --only openssl-speed,drivers --out /tmp/report\n  sealane bench \
                  compare before/data.json after/data.json\n\nExit status: 0 measured; 2 an error; 130 ended by Ctrl-C (143 by SIGTERM), with \
                  what was measured until then."
)]
pub(crate) struct Bench {
    #[command(subcommand)]
    pub(crate) command: Option<BenchCommand>,
    /// Take less than two minutes: for a first look, with fewer and shorter rounds.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measure these parts only, as --list names them.
    #[arg(long, value_name = "ID,...", value_delimiter = ',')]
    pub(crate) only: Vec<String>,
    /// Leave these parts out.
    #[arg(long, value_name = "ID,...", value_delimiter = ',', conflicts_with = "only")]
    pub(crate) skip: Vec<String>,
    /// The folder to write to. It is made if it does not exist; a report that it has is replaced.
    #[arg(long, value_name = "FOLDER", default_value = "report", value_hint = ValueHint::DirPath)]
    pub(crate) out: PathBuf,
    /// List the parts, and measure nothing.
    #[arg(long, conflicts_with_all = ["only", "skip", "out", "quick"])]
    pub(crate) list: bool,
    /// Measure for the process that started this one, and print rows as JSON.
    #[arg(long, hide = true, value_name = "WHAT", value_parser = inner)]
    pub(crate) inner: Option<Inner>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BenchCommand {
    Compare(Compare),
}

/// Show what changed between two reports beyond noise.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  sealane bench compare before/data.json after/data.json\n\nExit status: 0 nothing is worse; 1 something \
                        is worse; 2 an error."
)]
pub(crate) struct Compare {
    /// The data.json of the earlier report.
    #[arg(value_name = "A.json", value_hint = ValueHint::FilePath)]
    pub(crate) before: PathBuf,
    /// The data.json of the later report.
    #[arg(value_name = "B.json", value_hint = ValueHint::FilePath)]
    pub(crate) after: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

fn inner(name: &str) -> Result<Inner, String> {
    Inner::named(name).ok_or_else(|| "there is no such measurement".to_owned())
}
