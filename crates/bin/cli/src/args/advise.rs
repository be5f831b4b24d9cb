//! The arguments of `sealane advise`.

use clap::{Args, ValueEnum, value_parser};

/// Rank the algorithms for packets by what they cost on this machine.
///
/// Says for each choice of TCP-AO, IPsec or AF_ALG what a packet costs, how many CPUs are busy with it at the rate, how strong it is, and
/// why; and what is left out, and why. Nothing below --strength is recommended.
///
/// Costs come from the table of 'sealane crypto calibrate'; what it does not have, and the first five choices, are measured now, which
/// takes some seconds.
#[derive(Debug, Args)]
#[command(
    after_help = "Strength is the smaller one of the key's length and the MAC's in bits, less what the construction loses: it loses \
                  nothing as long as a day of one key at this rate leaves an attacker a chance of at most 2^-32. \
                  docs/performance.md tells how the chance is counted.\n\nExamples:\n  \
                  sealane advise --for tcp-ao --size 64,1420 --rate 100k --sessions 500\n  \
                  sealane advise --for ipsec --size traffic.pcap --rate 10Gbit --json\n  sealane advise --for af-alg --what mac --size 256 \
                  --no-measure\n\nExit status: 0 there is a choice; 1 there is none; 2 an error."
)]
pub(crate) struct Advise {
    /// The interface that protects the packets.
    #[arg(long = "for", value_enum, value_name = "INTERFACE", required_unless_present = "check")]
    pub(crate) interface: Option<For>,
    /// The kind of algorithm, of AF_ALG.
    #[arg(long, value_enum, value_name = "WHAT", required_if_eq("interface", "af-alg"))]
    pub(crate) what: Option<What>,
    /// The lengths of packets in bytes, separated by commas, or a capture (pcap, pcapng) that has them.
    ///
    /// For TCP-AO and IPsec these are lengths of IP packets before they are protected, for AF_ALG lengths of messages. Of a capture, IP
    /// packets count, for TCP-AO those with TCP.
    #[arg(long, value_name = "BYTES,...|FILE", default_value = "1420")]
    pub(crate) size: String,
    /// Traffic in one direction: packets a second (100000, 100k, 2.5M) or bits a second (500Mbit, 10Gbit).
    #[arg(long, value_name = "RATE", default_value = "100k")]
    pub(crate) rate: String,
    /// The number of connections, pairs of SAs or sockets, which share the traffic evenly, each under keys of its own.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u32).range(1..))]
    pub(crate) sessions: u32,
    /// The least strength in bits. The default is 96 for TCP-AO, the length of its usual MACs, and otherwise 128.
    #[arg(long, value_name = "BITS", value_parser = value_parser!(u32).range(1..=256))]
    pub(crate) strength: Option<u32>,
    /// No number can be had that never comes twice under a key: a restored snapshot, say, or several senders under one key.
    #[arg(long)]
    pub(crate) no_nonces: bool,
    /// Packets come out of order or get lost, so that the ends cannot count them.
    #[arg(long)]
    pub(crate) no_order: bool,
    /// Integrity alone will do, of IPsec: AH and ESP without encryption are choices, too.
    #[arg(long)]
    pub(crate) no_encryption: bool,
    /// The longest MAC or ICV that may be added to a packet, in bits.
    #[arg(long, value_name = "BITS", value_parser = value_parser!(u32).range(32..))]
    pub(crate) at_most_icv: Option<u32>,
    /// Measure nothing: take costs from the table alone, and leave out what it does not have.
    #[arg(long)]
    pub(crate) no_measure: bool,
    /// Show all choices, and not only the first twelve.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
    /// Compare the advice with measurements of what may be advised, for N random workloads.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) check: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum For {
    /// A MAC in each segment (RFC 5925).
    TcpAo,
    /// ESP, and AH with --no-encryption.
    Ipsec,
    /// Messages of a program, with --what.
    AfAlg,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum What {
    /// A MAC of each message.
    Mac,
    /// Encryption without integrity.
    Cipher,
    /// Authenticated encryption.
    Aead,
    /// A hash without a key.
    Hash,
}
