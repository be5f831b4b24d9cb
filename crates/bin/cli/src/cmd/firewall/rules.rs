//! Rules of firewalls, whatever program has written them.

use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The TUN device that packets come by which policies have opened, and to which those go that policies protect.
pub(super) const DEVICE: &str = sealane_config::DEVICE;

/// The bit of the mark that a packet has which policies protect, from the output hook's priority -150 on.
pub(super) const MARK: &str = "0x20000000";

/// A rule that asks whether a packet is IPsec's, of which the kernel knows nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    /// The place of the rule.
    pub(super) place: String,
    /// The rule.
    pub(super) rule: String,
    pub(super) effect: Effect,
    /// The rule that does the same here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) instead: Option<String>,
    /// The differences between the two.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) notes: Vec<&'static str>,
}

/// The effect of a rule's question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Effect {
    /// It asks for IPsec.
    NeverMatches,
    /// It asks for anything else.
    AlwaysMatches,
    /// It does one thing or another.
    Undecided,
}

impl Effect {
    /// The effect in words.
    pub(super) fn text(self) -> &'static str {
        match self {
            Effect::NeverMatches => "never matches",
            Effect::AlwaysMatches => "matches packets of tunnels, too",
            Effect::Undecided => "takes packets of tunnels for others",
        }
    }
}

/// The replacement of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Verdict {
    pub(super) effect: Effect,
    pub(super) instead: Option<String>,
    pub(super) notes: Vec<&'static str>,
}

/// The loss of a rule: ids of states, protocols, ends of tunnels.
pub(super) const DETAILS: &str = "states, ids and ends of tunnels cannot be told apart: name the networks behind the tunnel, or give the tunnel an \
     xfrm interface of its own";
/// The loss of a rule: an interface.
pub(super) const INTERFACE: &str = "the interface of the ESP packet is not asked for any more";
/// A rule that comes before the mark.
pub(super) const EARLY: &str =
    "packets get the mark by a chain of priority -150: rules of raw and mangle may come before it";
/// A rule that cannot be said in one.
pub(super) const TWO: &str =
    "it takes two rules: one before it for interface 'sealane-ipsec', and this one without its question about IPsec";

/// The hooks from which the chains of a table are reached.
#[derive(Default)]
pub(super) struct Hooks {
    /// The hook of each base chain, and whether its rules come before packets are marked.
    base: BTreeMap<String, (String, bool)>,
    /// The chains that a chain jumps to.
    jumps: BTreeMap<String, BTreeSet<String>>,
}

/// The way by which the rules of a chain recognise packets that policies protect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leaving {
    /// By the device that they go to.
    Device,
    /// By the mark, because the output hook has the device of the first route.
    Mark,
    /// By the mark, which others may have set later.
    EarlyMark,
}

impl Hooks {
    /// Notes a base chain.
    pub(super) fn base(&mut self, chain: &str, hook: &str, early: bool) {
        self.base.insert(chain.to_owned(), (hook.to_lowercase(), early));
    }

    /// Notes a jump.
    pub(super) fn jump(&mut self, from: &str, to: &str) {
        self.jumps.entry(from.to_owned()).or_default().insert(to.to_owned());
    }

    /// The way for the rules of a chain.
    pub(super) fn leaving(&self, chain: &str) -> Leaving {
        let outputs = self.base.iter().filter(|(_, (hook, _))| hook == "output");
        let reaching: Vec<bool> =
            outputs.filter(|(base, _)| self.reaches(base, chain)).map(|(_, (_, early))| *early).collect();
        match reaching[..] {
            [] => Leaving::Device,
            _ if reaching.contains(&true) => Leaving::EarlyMark,
            _ => Leaving::Mark,
        }
    }

    fn reaches(&self, from: &str, to: &str) -> bool {
        let (mut seen, mut next) = (BTreeSet::from([from]), vec![from]);
        while let Some(chain) = next.pop() {
            if chain == to {
                return true;
            }
            next.extend(self.jumps.get(chain).into_iter().flatten().map(String::as_str).filter(|c| seen.insert(c)));
        }
        false
    }
}

/// The words of a line; quotes belong to theirs.
pub(super) fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut start, mut quoted, mut escaped) = (None, false, false);
    for (at, c) in line.char_indices() {
        let ends = c.is_whitespace() && !quoted;
        match start {
            Some(from) if ends => {
                words.push(&line[from..at]);
                start = None;
            }
            None if !ends => start = Some(at),
            _ => {}
        }
        quoted ^= c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
    }
    words.extend(start.map(|from| &line[from..]));
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_quotes() {
        assert_eq!(words("  a \"b c\"d \t\"e \\\" f\" g"), ["a", "\"b c\"d", "\"e \\\" f\"", "g"]);
        assert_eq!(words("\"open ended"), ["\"open ended"]);
        assert!(words(" \t").is_empty());
    }

    #[test]
    fn chains_of_the_output_hook_see_the_mark_only() {
        let mut hooks = Hooks::default();
        hooks.base("out", "output", false);
        hooks.base("raw", "OUTPUT", true);
        hooks.base("in", "input", false);
        for (from, to) in [("out", "one"), ("one", "two"), ("two", "one"), ("raw", "three"), ("in", "four")] {
            hooks.jump(from, to);
        }
        let of = |chain| hooks.leaving(chain);
        assert_eq!(["out", "one", "two"].map(of), [Leaving::Mark; 3]);
        assert_eq!(["raw", "three"].map(of), [Leaving::EarlyMark; 2]);
        assert_eq!(["in", "four", "unknown"].map(of), [Leaving::Device; 3]);
    }
}
