//! The arguments of `sealane xfrm ...`.

use clap::{ArgAction, Args};
use std::ffi::OsString;

/// The text below the options: the grammar, examples and the exit status. Its lines fit into 100 columns.
const HELP: &str = "\
Options stand before the object. Objects and their commands:
  state    add, update, allocspi, delete, get, list, deleteall, flush, count
  policy   add, update, delete, get, list, deleteall, flush, count, set, setdefault, getdefault
  monitor  [nokeys] [all | acquire | expire | SA | policy | aevent | mapping | migrate | report]...
  show     [interval SECONDS] [--json]: states with their rates and devices; offload devices, xfrm
           interfaces and gateways with their counters; dropped packets by reason; whether the
           kernel has the rules of nftables that all of these ask for
  clear    takes away the policies, rules and routes that an ended daemon has left: what they
           covered then passes unencrypted; refused while a daemon runs

state add, state update:
  src A dst B proto esp|ah|comp spi N [mode M] [reqid N] [seq N] [enc NAME KEY] [auth NAME KEY]
  [auth-trunc NAME KEY BITS] [aead NAME KEY BITS] [comp NAME] [replay-window N] [replay-seq N]
  [replay-oseq N] [flag F] [extra-flag F] [limit WHAT N] [sel SELECTOR]
  [encap TYPE SPORT DPORT ADDR] [mark N [mask N]] [output-mark N [mask N]] [if_id N] [tfcpad N]
  [dir in|out] [offload [crypto|packet] dev DEV dir in|out]

policy add, policy update:
  dir in|out|fwd SELECTOR [ptype T] [action A] [priority N] [flag F] [limit WHAT N]
  [mark N [mask N]] [if_id N] [offload packet dev DEV]
  [tmpl src A dst B proto P [spi N] [mode M] [reqid N] [level L]]...

Examples:
  sealane xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 0x1000 reqid 1 mode tunnel \\
      replay-window 128 aead 'rfc4106(gcm(aes))' @/etc/sealane/out.key 128
  sealane xfrm monitor acquire expire
  sealane xfrm show --json

Exit status: 0 success; 1 the daemon refused a dump; 2 any other refusal or error.";

/// Manage the IPsec states and policies of the daemon, with the grammar of 'ip xfrm'.
///
/// Talks to the daemon that serves IPsec in this network namespace; neither 'sealane run' nor iproute2 is needed. The
/// output is that of 'ip xfrm', with times in UTC. A KEY is hexadecimal digits after 0x, the bytes of a word, or @FILE
/// for the content of a file in one of these forms. Prefer @FILE: all users can see a key on the command line in the
/// list of processes. Needs CAP_NET_ADMIN.
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub(crate) struct Xfrm {
    /// Print counters and limits; if given twice, hash tables as well.
    #[arg(short = 's', long, action = ArgAction::Count)]
    pub(crate) statistics: u8,
    /// Accepted for compatibility with 'ip'; has no effect.
    #[arg(short = 'd', long, hide = true)]
    pub(crate) details: bool,
    /// Print each object on one line.
    #[arg(short = 'o', long)]
    pub(crate) oneline: bool,
    /// Print JSON ('show' only, where it may also follow).
    #[arg(long)]
    pub(crate) json: bool,
    /// Use IPv4 only.
    #[arg(short = '4', conflicts_with = "v6")]
    pub(crate) v4: bool,
    /// Use IPv6 only.
    #[arg(short = '6')]
    pub(crate) v6: bool,
    /// The network namespace, as a name in /run/netns or a path. The default is the current one.
    #[arg(short = 'n', long, value_name = "NETNS")]
    pub(crate) netns: Option<String>,
    /// The object (state, policy, monitor, show or clear), the command and its arguments.
    #[arg(value_name = "WORD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}
