//! Reasons for which the rules of policies drop packets.

use super::wanted::Then;
use crate::rule::Rule;

/// Reasons for which the rules drop unprotected packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A policy requires protection.
    Template,
    /// A policy blocks.
    Block,
    /// There is no policy, and the default blocks.
    Rest,
    /// A packet that a policy protects or blocks was about to leave by another device than ours.
    Escape,
    /// A policy keeps a packet of this host from leaving.
    OutBlock,
    /// The same where there is no policy, and the default blocks.
    OutRest,
}

impl Refused {
    /// All reasons.
    pub const ALL: [Refused; 6] =
        [Refused::Template, Refused::Block, Refused::Rest, Refused::Escape, Refused::OutBlock, Refused::OutRest];

    /// The reasons for packets to this host, with chains that exempt ESP in UDP on ports other than the IKE daemon's.
    pub(super) const INPUT: [(Refused, &'static str); 3] =
        [(Refused::Template, "input-template"), (Refused::Block, "input-block"), (Refused::Rest, "input-rest")];

    /// The chain for packets to this host.
    pub(super) fn input(self) -> &'static str {
        Refused::INPUT.iter().find(|(why, _)| *why == self).map_or(self.chain(), |(_, name)| name)
    }

    /// The chain that counts and drops packets.
    pub(super) fn chain(self) -> &'static str {
        match self {
            Refused::Template => "refused-template",
            Refused::Block => "refused-block",
            Refused::Rest => "refused-rest",
            Refused::Escape => "refused-escape",
            Refused::OutBlock => "out-block",
            Refused::OutRest => "out-rest",
        }
    }
}

/// The end of rules of policies that let no unprotected packet pass, by the chains of their reasons.
pub(super) fn refusing(chain: fn(Refused) -> &'static str) -> impl Fn(Then) -> Rule {
    move |then| match then {
        Then::Pass => Rule::new().accept(),
        Then::Protect(_) => Rule::new().jump(chain(Refused::Template)),
        Then::Block => Rule::new().jump(chain(Refused::Block)),
    }
}
