//! `sealane xfrm ...`.

use clap::{ArgAction, Args};
use std::ffi::OsString;

/// States and policies of IPsec, in the grammar of 'ip xfrm', asked of the daemon.
///
/// Speaks to the daemon that serves IPsec in this network namespace, without a launcher and without iproute2. What it
/// prints is what 'ip xfrm' prints; times are UTC. A key is hexadecimal behind 0x, the bytes of a word, or the content of a
/// file behind @, which other users do not see in the list of processes. Needs CAP_NET_ADMIN.
#[derive(Debug, Args)]
#[command(
    after_help = "state:   add, update  src A dst B proto esp|ah|comp spi N [mode M] [reqid N] [seq N] [enc NAME KEY] [auth NAME \
                        KEY] [auth-trunc NAME KEY BITS] [aead NAME KEY BITS] [comp NAME] [replay-window N] [replay-seq N] \
                        [replay-oseq N] [flag F] [extra-flag F] [limit WHAT N] [sel SELECTOR] [encap TYPE SPORT DPORT ADDR] [mark N \
                        [mask N]] [output-mark N [mask N]] [if_id N] [tfcpad N] [dir in|out] [offload [crypto|packet] dev DEV dir in|out]\n\
                        \x20        allocspi, delete, get, list, deleteall, flush, count\n\
                        policy:  add, update  dir in|out|fwd SELECTOR [ptype T] [action A] [priority N] [flag F] [limit WHAT N] [mark N \
                        [mask N]] [if_id N] [offload packet dev DEV] [tmpl src A dst B proto P [spi N] [mode M] [reqid N] [level L]]...\n\
                        \x20        delete, get, list, deleteall, flush, count, set, setdefault, getdefault\n\
                        monitor: [nokeys] [all | acquire | expire | SA | policy | aevent | mapping | migrate | report]...\n\
                        show:    [interval SECONDS]: states with their rates and devices, the offload devices with what they\n\
                        \x20        count, packets dropped with the reasons\n\n\
                        Exit status: 0 done; 1 a list was refused; 2 refused otherwise, or not understood."
)]
pub(crate) struct Xfrm {
    /// Print more, twice more still: counters, limits, tables.
    #[arg(short = 's', long, action = ArgAction::Count)]
    pub(crate) statistics: u8,
    /// Taken for the sake of scripts.
    #[arg(short = 'd', long, hide = true)]
    pub(crate) details: bool,
    /// Print each object on one line.
    #[arg(short = 'o', long)]
    pub(crate) oneline: bool,
    /// With 'show': print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Only IPv4.
    #[arg(short = '4', conflicts_with = "v6")]
    pub(crate) v4: bool,
    /// Only IPv6.
    #[arg(short = '6')]
    pub(crate) v6: bool,
    /// The network namespace, by name or path; without it the one of this process.
    #[arg(short = 'n', long, value_name = "NETNS")]
    pub(crate) netns: Option<String>,
    /// What to do: state, policy, monitor or show, and what follows.
    #[arg(value_name = "WORD", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}
