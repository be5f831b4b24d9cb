//! The arguments of `sealane tcp-ao ...`, `sealane daemon` and `sealane check`.

use super::rust_log::RUST_LOG;
use clap::{Args, Subcommand, ValueHint};
use std::path::PathBuf;

/// Inspect TCP-AO (RFC 5925) of running instances and of packet captures.
#[derive(Debug, Subcommand)]
pub(crate) enum TcpAo {
    Show(Show),
    Verify(Verify),
    Sign(Sign),
    Clear(Clear),
}

/// Show peers, keys and counters of the running Sealane.
///
/// Queries every launcher ('sealane run') and daemon of this user; root sees those that root has started. For each
/// socket with keys it shows the addresses and the state, the keys without their secrets, the key that signs sent
/// segments (current) and the one that the peer is asked to use (rnext), the counters, and the last dropped segment
/// with the reason.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane tcp-ao show\n  sealane tcp-ao show 192.0.2.0/24 --json\n\n\
                        Exit status: 0 at least one socket has keys; 1 there is none; 2 an instance does not answer.")]
pub(crate) struct Show {
    /// Show only sockets with a peer in this prefix, and listeners with a key for a peer in it.
    #[arg(value_name = "PEER")]
    pub(crate) peer: Option<String>,
    /// Query only the instance with this process id.
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,
    /// Show all keys of each socket instead of the first 16.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON: an array with one snapshot for each instance.
    #[arg(long)]
    pub(crate) json: bool,
    /// Print the metrics in Prometheus' text format. If several instances run, select one with --pid.
    #[arg(long, conflicts_with_all = ["json", "all", "peer"])]
    pub(crate) metrics: bool,
}

/// Run the daemon: TCP-AO for programs that do not know it, and IPsec in place of the kernel's.
///
/// TCP-AO: every segment to or from a configured peer is signed and verified, or dropped. This also holds while the daemon
/// starts, after a crash and after it has been stopped, until 'sealane tcp-ao clear' removes the rules. Connections
/// survive a restart of the daemon.
///
/// IPsec: in every network namespace listed in the section 'ipsec' the daemon takes the place of the kernel's XFRM. Key
/// managers and 'ip xfrm' talk to it when they are started by 'sealane run'; 'sealane xfrm' talks to it directly. The
/// daemon seals and opens the packets, and makes the offload devices, xfrm interfaces and gateways of the
/// configuration. Traffic covered by a policy is not sent unencrypted while the daemon runs, after it has been stopped or
/// killed, and whatever others do to routes and marks; 'sealane xfrm clear' ends that. docs/security.md lists the exceptions.
///
/// SIGHUP makes the daemon read its configuration again; if that contains errors, nothing changes. Metrics for Prometheus
/// are served at the address that 'metrics' sets in the section 'daemon'. The daemon needs CAP_NET_ADMIN and CAP_NET_RAW, CAP_BPF for
/// fast paths and several workers, and CAP_SYS_ADMIN for other network namespaces.
#[derive(Debug, Args)]
#[command(after_help = format!(
    "Examples:\n  sealane check /etc/sealane/sealane.toml\n  sealane daemon --config \
     /etc/sealane/sealane.toml\n\n{RUST_LOG}\n\nExit status: 0 it ended on SIGTERM or SIGINT; 2 it could not start."
))]
pub(crate) struct Daemon {
    /// The configuration file.
    #[arg(long, value_name = "CONFIG", default_value = "/etc/sealane/sealane.toml", value_hint = ValueHint::FilePath)]
    pub(crate) config: PathBuf,
}

/// Take away the protection of TCP-AO that an ended instance of Sealane has left behind.
///
/// Segments of protected peers then pass unsigned. The command is refused while an instance runs. IPsec has a command of its
/// own, 'sealane xfrm clear'.
#[derive(Debug, Args)]
pub(crate) struct Clear {
    /// The network namespace, as a name in /run/netns or a path. The default is the current one.
    #[arg(long, value_name = "NETNS")]
    pub(crate) netns: Option<String>,
}

/// Check a configuration of 'sealane daemon', or the rules of a firewall.
///
/// Every error of a configuration is reported with its file, line and column. Key files are read and their permissions are
/// checked as the daemon does it. Probable mistakes cause warnings: key chains that end, have gaps or are not used. Secrets
/// are never shown.
///
/// With --firewall it finds rules that ask the kernel whether a packet came through a tunnel or goes into one, or by which
/// way the route back leads ('meta ipsec', 'rt ipsec', 'ipsec in', '-m policy', 'fib saddr . iif', '-m rpfilter'). The
/// kernel does not know Sealane's tunnels, so that such rules accept or drop other packets than they are meant for. For each
/// it tells the place, the reason, and the rule to write instead.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sealane check /etc/sealane/sealane.toml\n  sealane check sealane.toml --at \
                        2026-07-01T00:00:00Z\n  sealane check --firewall\n  sealane check --firewall /etc/nftables.conf\n\n\
                        Exit status: 0 it is valid; 1 it contains errors; 2 it cannot be read. With --firewall: 0 there is no \
                        such rule; 1 there is one; 2 not everything could be looked at.")]
pub(crate) struct Check {
    /// The configuration file.
    #[arg(value_name = "CONFIG", value_hint = ValueHint::FilePath, required_unless_present = "firewall")]
    pub(crate) config: Option<PathBuf>,
    /// Check the rules of a firewall instead: those of nftables, iptables or firewalld in these files.
    ///
    /// Without files: those in force in this network namespace, by 'nft', 'iptables-save' and 'ip6tables-save', and the
    /// files in /etc from which nftables, iptables, ufw and firewalld load theirs.
    #[arg(long, value_name = "FILE", num_args = 0.., conflicts_with_all = ["config", "at"], value_hint = ValueHint::FilePath)]
    pub(crate) firewall: Option<Vec<PathBuf>>,
    /// Show the keys in use at this time (RFC 3339) instead of now.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Verify every TCP segment of a capture (pcap or pcapng).
///
/// Reports for each segment whether its TCP-AO MAC is correct. If it is not, the report has the reason for which the
/// receiver drops the segment and, if the cause can be found, a hint: options covered by one end only, key ids that do
/// not match, a different algorithm, a newline at the end of a secret, an MSS changed on the way, and others. Captures
/// of Ethernet, VLANs, Linux cooked sockets, loopback and raw IP are supported. If the handshake of a connection is not
/// in the capture, its initial sequence numbers have to be given.
#[derive(Debug, Args)]
#[command(
    after_help = "The keys file is a configuration of 'sealane daemon', or contains only keys:\n\n  [[key]]\n  send-id = 61    # \
                        KeyID sent by one end\n  recv-id = 84    # KeyID sent by the other end\n  algorithm = \"hmac(sha1)\"\n  secret = \
                        \"testvector\"   # or { hex | base64 | file = \"...\" }\n  prefix = \"192.0.2.1\"   # the peer; \
                        optional\n\nOnly the owner may have access to a file with secrets (mode 0600). The file can also contain \
                        the initial sequence numbers of connections:\n\n  [[connection]]\n  client = \"192.0.2.1:40000\"\n  server = \
                        \"192.0.2.2:179\"\n  client-isn = 0xfbfbab5a\n  server-isn = 0x11c14261\n\nExamples:\n  sealane tcp-ao \
                        verify session.pcapng --keys keys.toml\n  tcpdump -w - port 179 | sealane tcp-ao verify - --keys \
                        keys.toml --failed\n\nExit status: 0 all protected segments are correct, and there is at least one; 1 \
                        some are wrong or could not be checked; 2 an error (unreadable files, wrong arguments)."
)]
pub(crate) struct Verify {
    /// The capture file; '-' is standard input.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: PathBuf,
    /// The file with the keys.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keys: PathBuf,
    /// Initial sequence numbers of a connection, as ADDR:PORT,ADDR:PORT=ISN,ISN; may be repeated.
    #[arg(long, value_name = "ENDS=ISNS")]
    pub(crate) isn: Vec<String>,
    /// Show only segments that are wrong or could not be checked.
    #[arg(long)]
    pub(crate) failed: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Sign the TCP segments of a capture.
///
/// Writes a pcap file in which every segment that matches a key carries a TCP-AO option. This is useful for tests, and
/// to see what a protected connection looks like. Existing TCP-AO options are replaced; frames without a matching key
/// are copied. If the time of a segment lies in the lifetimes of several keys, the last of these keys in the file signs
/// it.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  sealane tcp-ao sign plain.pcap --keys keys.toml -o signed.pcap\n\nExit status: 0 all segments \
                        with a key are signed; 1 some could not be signed and were copied; 2 an error (unreadable files, wrong \
                        arguments)."
)]
pub(crate) struct Sign {
    /// The capture file; '-' is standard input.
    #[arg(value_name = "CAPTURE", value_hint = ValueHint::FilePath)]
    pub(crate) capture: PathBuf,
    /// The file with the keys, as for 'sealane tcp-ao verify'.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) keys: PathBuf,
    /// The file to write; '-' is standard output.
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Initial sequence numbers of a connection, as ADDR:PORT,ADDR:PORT=ISN,ISN; may be repeated.
    #[arg(long, value_name = "ENDS=ISNS")]
    pub(crate) isn: Vec<String>,
}
