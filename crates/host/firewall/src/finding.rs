//! The outcome of an examination.

use std::fmt;

/// The reason why a rule does not do what it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It never matches packets that came through a tunnel.
    NeverIn,
    /// It never matches packets that go into a tunnel.
    NeverOut,
    /// It is meant for other packets only, and matches those that came through a tunnel, too.
    AlwaysIn,
    /// It is meant for other packets only, and matches those that go into a tunnel, too.
    AlwaysOut,
    /// It asks for the route back of packets that came through a tunnel: that leads by another interface.
    ReversePath,
}

impl Why {
    /// Its name in JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Why::NeverIn => "never-in",
            Why::NeverOut => "never-out",
            Why::AlwaysIn => "always-in",
            Why::AlwaysOut => "always-out",
            Why::ReversePath => "reverse-path",
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Why::NeverIn => "it never matches what came through a tunnel: the kernel does not know Sealane's states",
            Why::NeverOut => "it never matches what goes into a tunnel: the kernel does not know Sealane's policies",
            Why::AlwaysIn => "it matches what came through a tunnel, too: the kernel does not know Sealane's states",
            Why::AlwaysOut => "it matches what goes into a tunnel, too: the kernel does not know Sealane's policies",
            Why::ReversePath => {
                "it takes what came through a tunnel for forged: the route back does not lead by Sealane's interface"
            }
        })
    }
}

/// A rule that asks the kernel's IPsec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The line where the rule begins, from 1.
    pub line: usize,
    /// Its table: with the family in nftables, such as `inet filter`; the name alone in iptables.
    pub table: String,
    /// Its chain.
    pub chain: String,
    /// Its handle, where `nft -a` has printed it.
    pub handle: Option<u64>,
    /// The rule, in one line.
    pub rule: String,
    /// The reasons, at least one.
    pub whys: Vec<Why>,
    /// The rules to write in its place, in their order; `NETWORKS` stands for the networks behind the tunnel. Empty where
    /// no rule of this chain can say it, or it takes more than another match.
    pub instead: Vec<String>,
}

/// The findings in a text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// In the order of the text.
    pub findings: Vec<Finding>,
    /// Files that the text includes, with the lines where it does. They have not been looked at.
    pub includes: Vec<(usize, String)>,
}

/// A text that is no firewall's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// The line, from 1.
    pub line: usize,
    /// The mistake.
    pub what: &'static str,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Unreadable {}
