//! `sealane tcp-ao ...` and `sealane check`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// TCP-AO (RFC 5925): what runs, and what a capture says.
#[derive(Debug, Subcommand)]
pub(crate) enum TcpAo {
    Show(Show),
}

/// Show peers, keys and counters of the running Sealane.
///
/// Asks every launcher ('sealane run') and daemon of this user; root sees all that root started. Shows for each socket
/// with keys its ends and state, the keys (never their secrets), which of them signs what we send (current) and which one
/// we ask the peer to use (rnext), counters, and the segment that was dropped last with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane tcp-ao show\n  sealane tcp-ao show 192.0.2.0/24 --json\n\n\
                        Exit status: 0 there is a socket to show; 1 there is none; 2 an instance does not answer.")]
pub(crate) struct Show {
    /// Only sockets whose peer, or one of whose keys' peers, lies in this prefix.
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Only the instance with this process id.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Show every key; otherwise the first 16 of a socket.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON: an array of snapshots, one for each instance.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print metrics in Prometheus' text format. With several instances, choose one with --pid.
    #[arg(long, conflicts_with_all = ["json", "all", "peer"])]
    pub(crate) metrics: bool,
}

/// Check a configuration of 'sealane daemon' and say what it means.
///
/// Names file, line and column of every mistake. Reads key files and checks their permissions as the daemon would, and
/// warns of what is seldom meant: chains that end or have gaps, chains that nobody uses. Secrets are never shown.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane check /etc/sealane/sealane.toml\n  sealane check sealane.toml --at \
                        2026-07-01T00:00:00Z\n\nExit status: 0 it can be used; 1 it has mistakes; 2 it cannot be read.")]
pub(crate) struct Check {
    /// The configuration.
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
    /// Say which keys are used at this time (RFC 3339) instead of now.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
