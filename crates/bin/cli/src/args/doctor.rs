//! `sealane doctor` and `sealane adopt`.

use clap::{Args, ValueEnum, ValueHint};
use sealane_doctor::Need;
use std::path::PathBuf;

/// Say what this machine has, blocks and lacks, and what is in the way of Sealane.
///
/// Looks at modules of the kernel, the daemon and its configuration, known programs and their units, and settings of the network.
/// It asks and reads, and changes nothing. Problems are things that are installed or configured and do not work; each comes
/// with the commands that help.
#[derive(Debug, Args)]
#[command(after_help = "Exit status: 0 there is no problem; 1 there are problems; 2 an error.")]
pub(crate) struct Doctor {
    /// Print JSON: the facts, and the findings with names that stay.
    #[arg(long)]
    pub(crate) json: bool,
    /// The daemon's configuration.
    #[arg(long, value_name = "CONFIG", default_value = "/etc/sealane/sealane.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

/// Put units of systemd under 'sealane run', by a drop-in.
///
/// The drop-in repeats the commands of the unit, as they are now, under 'sealane run', and starts the unit after the daemon. The
/// unit is not restarted. 'sealane doctor' says when a unit has changed, so that it has to be adopted again.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sealane adopt strongswan && systemctl restart strongswan\n  sealane adopt --undo strongswan\n\n\
                        Exit status: 0 done; 2 an error."
)]
pub(crate) struct Adopt {
    /// The units, such as 'strongswan'; without any, those that are adopted are listed.
    pub(crate) units: Vec<String>,
    /// The interface that the program needs, for units that are not known.
    #[arg(long, value_enum)]
    pub(crate) service: Option<Service>,
    /// Remove the drop-in.
    #[arg(long)]
    pub(crate) undo: bool,
    /// With --undo: of all units that are adopted.
    #[arg(long, requires = "undo", conflicts_with = "units")]
    pub(crate) all: bool,
    /// Print the drop-in, and write nothing.
    #[arg(long, conflicts_with = "undo")]
    pub(crate) dry_run: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum Service {
    /// NETLINK_XFRM, by the daemon.
    Ipsec,
    /// The socket options of TCP-AO.
    TcpAo,
    /// TCP-AO by keys of the daemon's configuration.
    Peers,
    /// AF_ALG.
    AfAlg,
}

impl From<Service> for Need {
    fn from(service: Service) -> Need {
        match service {
            Service::Ipsec => Need::Ipsec,
            Service::TcpAo => Need::TcpAo,
            Service::Peers => Need::Peers,
            Service::AfAlg => Need::AfAlg,
        }
    }
}
