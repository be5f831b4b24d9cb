//! The matches of a rule.

use crate::rewrite::{Match, Part, Sense, Way, is_ours};

/// The right side of a match.
struct Relation<'w, 'a> {
    /// Whether the operator says "not".
    not: bool,
    /// The values; none in a map, in a concatenation, and without a value.
    values: Option<&'w [&'a str]>,
    /// The index of the word behind it.
    end: usize,
}

/// Reads the right side of a match at `at`.
fn relation<'w, 'a>(words: &'w [&'a str], at: usize) -> Relation<'w, 'a> {
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    let (not, known, value) = match word(at) {
        "!=" | "ne" => (true, true, at + 1),
        "==" | "eq" => (false, true, at + 1),
        "vmap" | "map" | "." => (false, false, at + 1),
        operator if operator.starts_with(['<', '>']) => (false, false, at + 1),
        _ => (false, true, at),
    };
    let end = if word(value) == "{" { brace_end(words, value) } else { (value + 1).min(words.len()) };
    let inner = if word(value) == "{" { value + 1..end.saturating_sub(1).max(value + 1) } else { value..end };
    let values = words.get(inner).filter(|values| known && !values.is_empty());
    Relation { not, values, end }
}

/// The index behind the brace that closes the one at `at`.
fn brace_end(words: &[&str], at: usize) -> usize {
    let mut depth = 0_usize;
    for (i, word) in words.iter().enumerate().skip(at) {
        match *word {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return i + 1;
        }
    }
    words.len()
}

/// A question with the answers `exists` and `missing`.
fn sense(relation: &Relation<'_, '_>) -> Sense {
    match (relation.values, relation.not) {
        (Some(["exists" | "1" | "true"]), false) | (Some(["missing" | "0" | "false"]), true) => Sense::Tunnel,
        (Some(["missing" | "0" | "false"]), false) | (Some(["exists" | "1" | "true"]), true) => Sense::Others,
        _ => Sense::Looked,
    }
}

/// The matches of a rule that matter here, in their order and without overlaps.
pub(super) fn of(words: &[&str], devices: &[String]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let concatenated = at > 0 && words[at - 1] == ".";
        let found = match words[at..] {
            ["meta", "ipsec" | "secpath", ..] => Some(exists(words, at + 2, Way::In, concatenated)),
            ["rt", "ipsec", ..] => Some(exists(words, at + 2, Way::Out, concatenated)),
            ["ipsec", way @ ("in" | "out"), ..] => Some(state(words, at + 2, way, concatenated)),
            ["meta", "iif" | "iifname", ..] => interface(words, at + 2, Way::In, devices),
            ["iif" | "iifname", ..] => interface(words, at + 1, Way::In, devices),
            ["meta", "oif" | "oifname", ..] => interface(words, at + 2, Way::Out, devices),
            ["oif" | "oifname", ..] => interface(words, at + 1, Way::Out, devices),
            ["ip" | "ip6", "saddr", ..] => Some((Match::Address(Way::In), at + 2)),
            ["ip" | "ip6", "daddr", ..] => Some((Match::Address(Way::Out), at + 2)),
            ["fib", ..] => fib(words, at + 1, &mut at),
            _ => None,
        };
        match found {
            Some((is, end)) if !(concatenated && matches!(is, Match::Interface { .. })) => {
                parts.push(Part { at: at..end, is });
                at = end;
            }
            _ => at += 1,
        }
    }
    parts
}

fn exists(words: &[&str], at: usize, way: Way, concatenated: bool) -> (Match, usize) {
    let relation = relation(words, at);
    let sense = if concatenated { Sense::Looked } else { sense(&relation) };
    (Match::Ipsec(way, sense), relation.end)
}

/// Reads `ipsec in spnum 1 reqid 7`, whose first two words are before `at`. Whatever it asks, it does not match without a
/// state.
fn state(words: &[&str], mut at: usize, way: &str, concatenated: bool) -> (Match, usize) {
    if words.get(at) == Some(&"spnum") {
        at += 2;
    }
    let rest = words.get(at..).unwrap_or_default();
    at += if matches!(rest.first(), Some(&("ip" | "ip6"))) { 2 } else { 1 };
    let at = at.min(words.len());
    let relation = relation(words, at);
    let sense = if concatenated || relation.values.is_none() { Sense::Looked } else { Sense::OneTunnel };
    (Match::Ipsec(if way == "in" { Way::In } else { Way::Out }, sense), relation.end)
}

/// Reads what is behind `iifname`. A map says nothing about the rule.
fn interface(words: &[&str], at: usize, way: Way, devices: &[String]) -> Option<(Match, usize)> {
    let relation = relation(words, at);
    let values = relation.values?;
    let ours = values.iter().any(|value| is_ours(value.trim_matches('"'), '*', devices));
    Some((Match::Interface { way, not: relation.not, ours }, relation.end))
}

/// Reads `fib saddr . mark . iif oif missing` behind its first word. Others of its questions are skipped: `skip` is where
/// reading goes on behind their keys.
fn fib(words: &[&str], mut at: usize, skip: &mut usize) -> Option<(Match, usize)> {
    let (mut source, mut device) = (false, false);
    loop {
        match words.get(at) {
            Some(&"saddr") => source = true,
            Some(&"iif") => device = true,
            Some(_) => {}
            None => return None,
        }
        at += 1;
        if words.get(at) != Some(&".") {
            break;
        }
        at += 1;
    }
    let by_device = source && device && matches!(words.get(at), Some(&("oif" | "oifname")));
    let relation = relation(words, at + 1);
    let passes = match sense(&relation) {
        _ if !by_device => None,
        Sense::Tunnel => Some(true),
        Sense::Others => Some(false),
        _ => None,
    };
    if passes.is_none() {
        // Its `iif` and `oif` are no matches of the rule.
        *skip = at.min(words.len() - 1);
    }
    passes.map(|passes| (Match::ReversePath { passes }, relation.end))
}
