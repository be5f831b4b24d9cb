//! `sealane tcp-ao ...` and `sealane check`.

use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// TCP-AO (RFC 5925): what runs, and what a capture says.
#[derive(Debug, Subcommand)]
pub(crate) enum TcpAo {
    Show(Show),
    Verify(Verify),
    Sign(Sign),
    Clear(Clear),
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

/// Protect TCP connections of programs that know nothing of TCP-AO, as a configuration says.
///
/// Every segment to or from a configured peer is signed and verified, or dropped: also while the daemon starts, after a
/// crash and when it has been stopped, until 'sealane tcp-ao clear'. Connections go on when it comes back. SIGHUP makes it
/// read the configuration again; one with mistakes changes nothing. Needs CAP_NET_ADMIN and CAP_NET_RAW, and CAP_SYS_ADMIN
/// for peers in other network namespaces.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane check /etc/sealane/sealane.toml\n  sealane daemon --config \
                        /etc/sealane/sealane.toml\n\nExit status: 0 it was told to end; 2 it could not start.")]
pub(crate) struct Daemon {
    /// The configuration.
    #[arg(long, value_name = "CONFIG", default_value = "/etc/sealane/sealane.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

/// Take the rules of a daemon away that has ended: what was protected passes in clear.
///
/// Refuses while a running Sealane owns the rules.
#[derive(Debug, Args)]
pub(crate) struct Clear {
    /// The network namespace: a name in /run/netns, or a path. Default: this one.
    #[arg(long, value_name = "NETNS")]
    pub(crate) netns: Option<String>,
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

/// Verify every TCP segment of a capture (pcap or pcapng).
///
/// Says of each segment whether its TCP-AO signature is right, and if not why: the reason for which the receiver has to drop
/// it, and a hint where one is found (options covered on one side only, ids that do not match, another algorithm, a
/// secret with a new line, an MSS that was changed on the way, ...). Ethernet, VLAN, Linux cooked, loopback and raw IP
/// captures are understood. A connection whose handshake is not in the capture needs its initial sequence numbers.
#[derive(Debug, Args)]
#[command(
    after_help = "The keys file is a configuration of 'sealane daemon', or has just keys:\n\n  [[key]]\n  send-id = 61    # \
                        KeyID of the one end\n  recv-id = 84    # and of the other\n  algorithm = \"hmac(sha1)\"\n  secret = \
                        \"testvector\"   # or { hex | base64 | file = \"...\" }\n  prefix = \"192.0.2.1\"   # the other end; \
                        may be left out\n\nA file with secrets has to be its owner's alone (mode 0600). A connection's numbers \
                        can stand there too:\n\n  [[connection]]\n  client = \"192.0.2.1:40000\"\n  server = \
                        \"192.0.2.2:179\"\n  client-isn = 0xfbfbab5a\n  server-isn = 0x11c14261\n\nExamples:\n  sealane tcp-ao \
                        verify session.pcapng --keys keys.toml\n  tcpdump -w - port 179 | sealane tcp-ao verify - --keys \
                        keys.toml --failed\n\nExit status: 0 every protected segment verifies, and there is one; 1 some do \
                        not, or could not be checked; 2 the question could not be asked."
)]
pub(crate) struct Verify {
    /// The capture; '-' for standard input.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: PathBuf,
    /// The keys.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keys: PathBuf,
    /// Initial sequence numbers of a connection, as ADDR:PORT,ADDR:PORT=ISN,ISN; may be given more than once.
    #[arg(long, value_name = "ENDS=ISNS")]
    pub(crate) isn: Vec<String>,
    /// Only show segments that do not verify.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sign the TCP segments of a capture.
///
/// Writes a pcap file in which each segment between the ends of a key carries its TCP-AO option: for tests, and to see what
/// a connection would look like. A signature that was there is replaced. Frames that no key is for are copied. Of several
/// keys, the one listed last signs whose lifetime the segment falls into.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  sealane tcp-ao sign plain.pcap --keys keys.toml -o signed.pcap\n\nExit status: 0 everything \
                        that has a key is signed; 1 some segments could not be, and stand there as they were; 2 the question \
                        could not be asked."
)]
pub(crate) struct Sign {
    /// The capture; '-' for standard input.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: PathBuf,
    /// The keys: see 'sealane tcp-ao verify'.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keys: PathBuf,
    /// Where to write; '-' for standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Initial sequence numbers of a connection, as ADDR:PORT,ADDR:PORT=ISN,ISN; may be given more than once.
    #[arg(long, value_name = "ENDS=ISNS")]
    pub(crate) isn: Vec<String>,
}
