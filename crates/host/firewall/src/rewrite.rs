//! The matches of a rule that matter here, in either language, and the rule that says the same by interface or mark.

use crate::finding::Why;
use std::ops::Range;

/// The interface by which packets come from Sealane's tunnels and go into them.
pub const DEVICE: &str = "sealane-ipsec";

/// The direction of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    In,
    Out,
}

/// The packets for which a question about IPsec is answered with yes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sense {
    /// Those of tunnels.
    Tunnel,
    /// Those of one tunnel.
    OneTunnel,
    /// All others.
    Others,
    /// It depends on a map or a set.
    Looked,
}

/// A match of a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// IPsec.
    Ipsec(Way, Sense),
    /// The interface: `ours` if it may be one of Sealane's, `not` if all but these match.
    Interface { way: Way, not: bool, ours: bool },
    /// An interface by which the route back leads; `passes` if the rule is for packets that have one.
    ReversePath { passes: bool },
    /// The address at the other end of the way: the source of what comes in, the destination of what goes out.
    Address(Way),
}

/// A match, and its place among the words of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: Range<usize>,
    pub(crate) is: Match,
}

/// The place of a chain, as far as it decides how to tell packets that go into a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hook {
    /// Packets have their route: forward, postrouting.
    Routed,
    /// Output before Sealane has marked them (priority -99).
    BeforeMark,
    /// Output behind that, and chains that nobody knows the hook of: rules see the interface of the first route there, and
    /// the mark of ours.
    Marked,
}

/// Words of a language, those of a match and those of its opposite.
pub(crate) struct Words {
    pub(crate) in_by: [&'static str; 2],
    pub(crate) out_by: [&'static str; 2],
    pub(crate) marked: [&'static str; 2],
    /// The other end's networks: sources, destinations.
    pub(crate) networks: [&'static str; 2],
    /// Whether a rule can have several matches of one interface.
    pub(crate) several_interfaces: bool,
}

/// The words of one rule, and the matches among them.
pub(crate) struct Rule<'a> {
    pub(crate) words: &'a [&'a str],
    pub(crate) parts: Vec<Part>,
    pub(crate) hook: Hook,
    pub(crate) language: &'a Words,
}

impl Rule<'_> {
    fn any(&self, wanted: impl Fn(Match) -> bool) -> bool {
        self.parts.iter().any(|part| wanted(part.is))
    }

    /// Whether the interface says that packets of tunnels do not match.
    fn excludes(&self, way: Way) -> bool {
        let tells = way == Way::In || self.hook == Hook::Routed;
        tells && self.any(|m| matches!(m, Match::Interface { way: w, not, ours } if w == way && not == ours))
    }

    /// Whether a match asks for packets of tunnels.
    fn asks(&self, way: Way) -> bool {
        self.any(|m| matches!(m, Match::Ipsec(w, Sense::Tunnel | Sense::OneTunnel) if w == way))
    }

    /// The reasons of a finding; none if the rule does what it is for.
    pub(crate) fn whys(&self) -> Vec<Why> {
        let mut whys = Vec::new();
        for part in &self.parts {
            let why = match part.is {
                Match::Ipsec(Way::In, Sense::Others) if !self.excludes(Way::In) => Why::AlwaysIn,
                Match::Ipsec(Way::Out, Sense::Others) if !self.excludes(Way::Out) => Why::AlwaysOut,
                Match::ReversePath { .. } if !self.excludes(Way::In) => Why::ReversePath,
                Match::Ipsec(_, Sense::Others) => continue,
                Match::Ipsec(Way::In, _) => Why::NeverIn,
                Match::Ipsec(Way::Out, _) => Why::NeverOut,
                _ => continue,
            };
            if !whys.contains(&why) {
                whys.push(why);
            }
        }
        whys
    }

    /// Whether the rule would have to except our interface beside others that it names, and cannot.
    fn names_too_many(&self, way: Way, whys: &[Why]) -> bool {
        let excepts = whys.iter().any(|why| match why {
            Why::AlwaysIn | Why::ReversePath => way == Way::In,
            Why::AlwaysOut => way == Way::Out && self.hook == Hook::Routed,
            Why::NeverIn | Why::NeverOut => false,
        });
        let several = self.language.several_interfaces;
        excepts && self.any(|m| matches!(m, Match::Interface { way: w, ours, .. } if w == way && (ours || !several)))
    }

    /// The rules to write in its place, word by word.
    pub(crate) fn instead(&self) -> Vec<Vec<&str>> {
        let looked = self.any(|m| matches!(m, Match::Ipsec(_, Sense::Looked)));
        let out = self.any(|m| matches!(m, Match::Ipsec(Way::Out, _)));
        let whys = self.whys();
        if looked
            || out && self.hook == Hook::BeforeMark
            || self.names_too_many(Way::In, &whys)
            || self.names_too_many(Way::Out, &whys)
        {
            return Vec::new();
        }
        if whys.contains(&Why::ReversePath) && self.any(|m| m == Match::ReversePath { passes: true }) {
            return vec![self.rewritten(), self.words.to_vec()];
        }
        vec![self.rewritten()]
    }

    fn rewritten(&self) -> Vec<&str> {
        let mut words = Vec::with_capacity(self.words.len());
        let (mut next, mut said) = (0, Vec::new());
        for part in &self.parts {
            words.extend(&self.words[next..part.at.start]);
            next = part.at.end;
            match self.replacement(part.is) {
                Some(new) => {
                    let new = new.into_iter().filter(|word| !said.contains(word)).collect::<Vec<_>>();
                    words.extend(&new);
                    said.extend(new);
                }
                None => words.extend(&self.words[part.at.clone()]),
            }
            if part.is == (Match::ReversePath { passes: false }) {
                words.extend(&self.words[part.at.clone()]);
            }
        }
        words.extend(&self.words[next..]);
        words
    }

    /// The words for a match in the new rule, none of which is said twice; none if the match stays as it is.
    fn replacement(&self, of: Match) -> Option<Vec<&'static str>> {
        let language = self.language;
        let by_device = |way| way == Way::In || self.hook == Hook::Routed;
        let named = |way| self.any(|m| matches!(m, Match::Interface { way: w, not: false, ours: true } if w == way));
        match of {
            Match::Ipsec(way, Sense::Others) if self.excludes(way) => None,
            Match::Ipsec(way, sense) => {
                let pair = match (way, by_device(way)) {
                    (Way::In, _) => language.in_by,
                    (Way::Out, true) => language.out_by,
                    (Way::Out, false) => language.marked,
                };
                let is_ours = sense != Sense::Others;
                let mut new = Vec::new();
                if !(is_ours && named(way)) {
                    new.push(pair[usize::from(!is_ours)]);
                }
                if sense == Sense::OneTunnel && !self.any(|m| m == Match::Address(way)) {
                    new.push(language.networks[usize::from(way == Way::Out)]);
                }
                Some(new)
            }
            Match::ReversePath { .. } if self.excludes(Way::In) => None,
            Match::ReversePath { passes } => Some(vec![language.in_by[usize::from(!passes)]]),
            Match::Interface { way, ours: false, .. } if self.asks(way) && by_device(way) => Some(Vec::new()),
            Match::Interface { .. } | Match::Address(_) => None,
        }
    }
}

/// Whether the name of an interface in a rule, which ends with `any` if it stands for all that begin so, may be one of ours.
pub(crate) fn is_ours(name: &str, any: char, devices: &[String]) -> bool {
    let mut all = std::iter::once(DEVICE).chain(devices.iter().map(String::as_str));
    match name.strip_suffix(any) {
        Some(begin) => all.any(|device| device.starts_with(begin)),
        None => all.any(|device| device == name),
    }
}
