//! The format of `nft list ruleset`, which most rule files have, too.

use super::rules::{DETAILS, DEVICE, EARLY, Effect, Finding, Hooks, INTERFACE, Leaving, MARK, Verdict, words};
use std::collections::BTreeMap;

/// The priority of the chain of the output hook that marks packets.
const MARKED: i32 = -150;

/// A statement: the head of a block, the end of one, or what stands in it.
struct Statement<'a> {
    words: Vec<&'a str>,
    /// The number by which commands name it (`nft -a`).
    handle: Option<&'a str>,
}

/// A rule and its place.
struct Rule<'a> {
    table: String,
    chain: &'a str,
    statement: Statement<'a>,
}

/// The tables that iptables has made, by the warnings of nft.
pub(super) fn of_iptables(warnings: &str) -> Vec<&str> {
    let lines = warnings.lines().filter_map(|line| line.strip_prefix("# Warning: table "));
    lines.filter_map(|line| Some(line.split_once(" is managed by iptables-nft")?.0)).collect()
}

/// Returns the number of rules in a text, and those that ask for IPsec, but for tables that are left to others.
pub(super) fn find(text: &str, others: &[&str]) -> (usize, Vec<Finding>) {
    let mut hooks: BTreeMap<String, Hooks> = BTreeMap::new();
    let mut rules: Vec<Rule<'_>> = Vec::new();
    let (mut table, mut chain) = (None::<String>, None::<&str>);
    for statement in statements(text) {
        match (&table, chain, &statement.words[..]) {
            (None, _, ["table", name @ .., "{"]) => table = Some(name.join(" ")),
            (Some(_), None, ["chain", name, "{"]) => chain = Some(name),
            (_, Some(_), ["}"]) => chain = None,
            (_, None, ["}"]) => table = None,
            (Some(table), Some(chain), ["type", _, "hook", hook, rest @ ..]) => {
                hooks.entry(table.clone()).or_default().base(chain, hook, is_early(rest));
            }
            (_, Some(_), ["policy" | "comment" | "device" | "devices" | "flags", ..]) => {}
            (Some(table), Some(chain), words) => {
                for pair in words.windows(2).filter(|pair| ["jump", "goto"].contains(&pair[0])) {
                    hooks.entry(table.clone()).or_default().jump(chain, pair[1].trim_end_matches(','));
                }
                if !others.contains(&table.as_str()) {
                    rules.push(Rule { table: table.clone(), chain, statement });
                }
            }
            _ => {}
        }
    }
    let finding = |Rule { table, chain, statement }: &Rule<'_>| {
        let leaving = hooks.get(table).map_or(Leaving::Device, |hooks| hooks.leaving(chain));
        let Verdict { effect, instead, notes } = judge(&statement.words, leaving)?;
        let handle = statement.handle.map_or(String::new(), |handle| format!(", handle {handle}"));
        let place = format!("nftables, table {table}, chain {chain}{handle}");
        Some(Finding { place, rule: statement.words.join(" "), effect, instead, notes })
    };
    (rules.len(), rules.iter().filter_map(finding).collect())
}

/// The statements of a text. Sets belong to theirs, on however many lines they are.
fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut all = Vec::new();
    let (mut current, mut open) = (Vec::new(), 0u32);
    let mut end = |words: &mut Vec<_>, handle| {
        let words = core::mem::take(words);
        if !words.is_empty() {
            all.push(Statement { words, handle });
        }
    };
    for line in text.lines() {
        let parts = words(line);
        let comment = parts.iter().position(|word| word.starts_with('#')).unwrap_or(parts.len());
        let (parts, comment) = parts.split_at(comment);
        for word in parts {
            match *word {
                "{" if open == 0 && matches!(current.first(), Some(&("table" | "chain"))) => {
                    current.push(*word);
                    end(&mut current, None);
                }
                "}" if open == 0 => {
                    end(&mut current, None);
                    end(&mut vec![*word], None);
                }
                word if open == 0 && word.ends_with(';') => {
                    current.extend(Some(word.trim_end_matches(';')).filter(|word| !word.is_empty()));
                    end(&mut current, None);
                }
                word => {
                    open = match word {
                        "{" => open + 1,
                        "}" => open - 1,
                        _ => open,
                    };
                    current.push(word);
                }
            }
        }
        if open == 0 {
            let handle = match comment {
                ["#", "handle", handle, ..] => Some(*handle),
                _ => None,
            };
            end(&mut current, handle);
        }
    }
    all
}

/// Whether a base chain may come before packets are marked: `priority raw`.
fn is_early(words: &[&str]) -> bool {
    let Some(at) = words.iter().position(|word| *word == "priority") else { return false };
    let number = |word: &str| match word {
        "raw" => Some(-300),
        "mangle" => Some(-150),
        "dstnat" => Some(-100),
        "filter" => Some(0),
        "security" => Some(50),
        "srcnat" => Some(100),
        word => word.parse().ok(),
    };
    let priority: Option<i32> = match words[at + 1..] {
        [base, "+", more, ..] => {
            number(base).zip(number(more)).and_then(|(base, more): (i32, i32)| base.checked_add(more))
        }
        [base, "-", less, ..] => {
            number(base).zip(number(less)).and_then(|(base, less): (i32, i32)| base.checked_sub(less))
        }
        [base, ..] => number(base),
        [] => None,
    };
    priority.is_none_or(|priority| priority <= MARKED)
}

/// A piece of a rule.
#[derive(Debug, Clone, Copy)]
enum Piece<'a> {
    Words(&'a [&'a str]),
    /// A question about IPsec, in one direction: for packets without it, and for details.
    Ask {
        outbound: bool,
        none: bool,
        details: bool,
    },
    /// A question about the interface of one direction: whether for any other, and its words.
    Interface {
        outbound: bool,
        other: bool,
        words: &'a [&'a str],
    },
}

/// Judges a rule; `None` if it does not ask for IPsec, or does the same here as on Linux.
fn judge(rule: &[&str], leaving: Leaving) -> Option<Verdict> {
    let Some(pieces) = pieces(rule) else {
        return Some(Verdict { effect: Effect::Undecided, instead: None, notes: Vec::new() });
    };
    let mut notes = Vec::new();
    let mut questions = [const { None }; 2];
    let mut effect = None;
    for (outbound, question) in [false, true].into_iter().zip(&mut questions) {
        let asks = |wanted: bool| {
            pieces
                .iter()
                .any(|p| matches!(p, Piece::Ask { outbound: o, none, .. } if *o == outbound && *none == wanted))
        };
        let none = match [asks(false), asks(true)] {
            [false, false] => continue,
            // Nothing is both.
            [true, true] => return Some(Verdict { effect: Effect::NeverMatches, instead: None, notes }),
            [_, none] => none,
        };
        let by_mark = outbound && leaving != Leaving::Device;
        let of_others = pieces.iter().any(|p| is_of_others(p, outbound));
        if leaving == Leaving::EarlyMark && by_mark {
            notes.push(EARLY);
        }
        // Packets of tunnels have another interface.
        if none && of_others && !by_mark {
            *question = Some(String::new());
            continue;
        }
        if of_others && !by_mark {
            notes.push(INTERFACE);
        }
        effect = if none { effect.or(Some(Effect::AlwaysMatches)) } else { Some(Effect::NeverMatches) };
        let name = if outbound { "oifname" } else { "iifname" };
        *question = Some(match (by_mark, none) {
            (true, true) => format!("meta mark & {MARK} == 0"),
            (true, false) => format!("meta mark & {MARK} == {MARK}"),
            (false, true) => format!("{name} != \"{DEVICE}\""),
            (false, false) => format!("{name} \"{DEVICE}\""),
        });
    }
    if pieces.iter().any(|p| matches!(p, Piece::Ask { details: true, .. })) {
        notes.push(DETAILS);
    }
    let mut out: Vec<String> = Vec::new();
    for piece in &pieces {
        match *piece {
            Piece::Words(words) => out.push(words.join(" ")),
            Piece::Ask { outbound, .. } => {
                out.extend(questions[usize::from(outbound)].take().filter(|text| !text.is_empty()));
            }
            // The question for IPsec has a device of its own.
            Piece::Interface { outbound, .. } if replaces(&pieces, outbound, leaving) => {}
            Piece::Interface { words, .. } => out.push(words.join(" ")),
        }
    }
    Some(Verdict { effect: effect?, instead: Some(out.join(" ")), notes })
}

/// Whether a piece asks for an interface that is not the one of tunnels.
fn is_of_others(piece: &Piece<'_>, direction: bool) -> bool {
    let is_device = |words: &[&str]| words.iter().any(|word| word.trim_matches(['"', ',']) == DEVICE);
    matches!(piece, Piece::Interface { outbound, other: false, words } if *outbound == direction && !is_device(words))
}

/// Whether the question for IPsec in this direction replaces that for an interface.
fn replaces(pieces: &[Piece<'_>], direction: bool, leaving: Leaving) -> bool {
    let by_mark = direction && leaving != Leaving::Device;
    let asks = |p: &Piece<'_>| matches!(p, Piece::Ask { outbound, none: false, .. } if *outbound == direction);
    !by_mark && pieces.iter().any(asks)
}

/// The pieces of a rule; `None` if it asks for IPsec in another way.
fn pieces<'a>(mut rule: &'a [&'a str]) -> Option<Vec<Piece<'a>>> {
    let mut pieces = Vec::new();
    while !rule.is_empty() {
        let (piece, len) = piece(rule)?;
        pieces.push(piece);
        rule = rule.get(len..).unwrap_or_default();
    }
    Some(pieces)
}

/// The first piece, and its number of words.
fn piece<'a>(words: &'a [&'a str]) -> Option<(Piece<'a>, usize)> {
    Some(match words {
        ["counter", "packets", _, "bytes", _, ..] => (Piece::Words(&words[..1]), 5),
        ["jump" | "goto", _, ..] => (Piece::Words(&words[..2]), 2),
        ["meta", "ipsec" | "secpath", rest @ ..] => asked(false, rest, 2)?,
        ["rt", "ipsec", rest @ ..] => asked(true, rest, 2)?,
        ["ipsec", way @ ("in" | "out"), rest @ ..] => {
            let ask = Piece::Ask { outbound: *way == "out", none: false, details: true };
            (ask, 2 + details(rest)?)
        }
        ["ipsec" | "secpath", ..] => return None,
        ["meta", name, rest @ ..] if is_interface(name) => interface(words, name, rest, 2),
        [name, rest @ ..] if is_interface(name) => interface(words, name, rest, 1),
        _ => (Piece::Words(&words[..1]), 1),
    })
}

fn is_interface(name: &str) -> bool {
    ["iif", "iifname", "oif", "oifname"].contains(&name)
}

/// A question for IPsec whose answer follows.
fn asked<'a>(outbound: bool, rest: &[&str], before: usize) -> Option<(Piece<'a>, usize)> {
    let (operator, rest) = operator(rest);
    let missing = match *rest.first()? {
        "exists" | "1" => false,
        "missing" | "0" => true,
        _ => return None,
    };
    let none = missing != (operator == Some("!="));
    Some((Piece::Ask { outbound, none, details: false }, before + usize::from(operator.is_some()) + 1))
}

/// The number of words of a question for details: `spnum 1 ip saddr != 192.0.2.1`.
fn details(words: &[&str]) -> Option<usize> {
    let rest = match words {
        ["spnum", _, rest @ ..] => rest,
        rest => rest,
    };
    let rest = match rest {
        ["ip" | "ip6", rest @ ..] => rest,
        rest => rest,
    };
    let ["reqid" | "spi" | "saddr" | "daddr", rest @ ..] = rest else { return None };
    let (_, rest) = operator(rest);
    Some(words.len() - rest.len() + value(rest)?)
}

/// A question for an interface; other words if it is a part of something else.
fn interface<'a>(words: &'a [&'a str], name: &str, rest: &[&str], before: usize) -> (Piece<'a>, usize) {
    let (operator, rest) = operator(rest);
    match value(rest) {
        Some(len) => {
            let all = before + usize::from(operator.is_some()) + len;
            let (outbound, other) = (name.starts_with('o'), operator == Some("!="));
            (Piece::Interface { outbound, other, words: &words[..all] }, all)
        }
        None => (Piece::Words(&words[..before]), before),
    }
}

/// Splits an operator off.
fn operator<'a, 'b>(words: &'b [&'a str]) -> (Option<&'a str>, &'b [&'a str]) {
    match words {
        [operator @ ("==" | "!=" | "<" | ">" | "<=" | ">="), rest @ ..] => (Some(operator), rest),
        rest => (None, rest),
    }
}

/// The number of words of a value or a set; `None` if there is something else.
fn value(words: &[&str]) -> Option<usize> {
    match *words.first()? {
        "." | "vmap" | "map" => None,
        "{" => Some(words.iter().position(|word| *word == "}")? + 1),
        _ => Some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `nft -a list ruleset` of nftables 1.0.6, with a chain `own` that the output hook jumps to.
    fn listed(chain: &str, rule: &str) -> Vec<Finding> {
        let text = format!(
            "table inet t {{ # handle 3\n\tset some {{ # handle 9\n\t\ttype ipv4_addr\n\t\telements = {{ 192.0.2.1,\n\
             \t\t\t     192.0.2.2 }}\n\t}}\n\n\tchain c {{ # handle 1\n\t\ttype filter hook input priority filter; policy accept;\n\t}}\n\n\
             \tchain o {{ # handle 2\n\t\ttype filter hook output priority filter + 10; policy accept;\n\
             \t\tjump own # handle 7\n\t}}\n\tchain r {{ # handle 3\n\t\ttype filter hook output priority -160; policy accept;\n\t}}\n}}\n\
             table ip u {{\n\tchain {chain} {{\n\t}}\n}}\ntable inet t {{\n\tchain {chain} {{\n\t\t{rule} # handle 8\n\t}}\n}}\n"
        );
        let (rules, found) = find(&text, &[]);
        assert_eq!(rules, 2, "{text}");
        found
    }

    #[test]
    fn questions_and_what_to_write() {
        use Effect::{AlwaysMatches, NeverMatches};
        let one = |chain: &str, rule: &str, effect: Effect, instead: &str, notes: &[&'static str]| {
            let found = listed(chain, rule).pop().unwrap_or_else(|| panic!("{rule}: not found"));
            assert_eq!(
                (found.place.as_str(), found.rule.as_str()),
                (&*format!("nftables, table inet t, chain {chain}, handle 8"), rule)
            );
            assert_eq!(
                (found.effect, found.instead.as_deref(), &*found.notes),
                (effect, Some(instead), notes),
                "{rule}"
            );
        };
        one("c", "meta ipsec exists accept", NeverMatches, "iifname \"sealane-ipsec\" accept", &[]);
        one("c", "meta secpath missing drop", AlwaysMatches, "iifname != \"sealane-ipsec\" drop", &[]);
        one("c", "meta ipsec != exists drop", AlwaysMatches, "iifname != \"sealane-ipsec\" drop", &[]);
        one(
            "c",
            "tcp dport { 22, 80 } iifname \"eth0\" meta ipsec exists counter packets 3 bytes 4 accept comment \"meta ipsec exists\"",
            NeverMatches,
            "tcp dport { 22, 80 } iifname \"sealane-ipsec\" counter accept comment \"meta ipsec exists\"",
            &[INTERFACE],
        );
        one(
            "c",
            "iif != \"lo\" ipsec in spnum 1 ip saddr != { 192.0.2.1, 192.0.2.7 } accept",
            NeverMatches,
            "iifname \"sealane-ipsec\" accept",
            &[DETAILS],
        );
        one(
            "c",
            "iifname != \"lo\" meta ipsec missing drop",
            AlwaysMatches,
            "iifname != \"lo\" iifname != \"sealane-ipsec\" drop",
            &[],
        );
        // Chains of the output hook have the device of the first route.
        one(
            "own",
            "oifname \"eth0\" rt ipsec exists accept",
            NeverMatches,
            "oifname \"eth0\" meta mark & 0x20000000 == 0x20000000 accept",
            &[],
        );
        one("r", "rt ipsec missing drop", AlwaysMatches, "meta mark & 0x20000000 == 0 drop", &[EARLY]);
        one("other", "ipsec out reqid 1-5 accept", NeverMatches, "oifname \"sealane-ipsec\" accept", &[DETAILS]);
    }

    #[test]
    fn others_are_left_alone() {
        for rule in [
            "iifname \"eth0\" meta ipsec missing drop",
            "iifname { \"eth0\", \"eth1\" } meta ipsec missing drop",
            "ip protocol esp accept comment \"ipsec\"",
            "jump ipsec",
            "ip saddr @ipsec accept",
            "iifname vmap { \"eth0\" : drop, \"eth1\" : jump ipsec }",
        ] {
            assert_eq!(listed("c", rule), [], "{rule}");
        }
    }

    #[test]
    fn questions_of_other_forms_are_shown() {
        for rule in [
            "meta ipsec vmap { missing : drop, exists : accept }",
            "iifname . meta ipsec { \"eth0\" . exists } accept",
            "ipsec in reqid . ip saddr { 1 . 192.0.2.1 } accept",
            "ipsec in reqid",
        ] {
            let found = listed("c", rule);
            assert_eq!(found.iter().map(|f| (f.effect, &f.instead)).collect::<Vec<_>>(), [(Effect::Undecided, &None)]);
        }
    }

    #[test]
    fn files_as_people_write_them() {
        let text = "#!/usr/sbin/nft -f\nflush ruleset # meta ipsec exists\ntable inet t { chain c { type filter hook input priority 0; policy drop;\n\
                    tcp dport {\n22, # meta ipsec exists\n80 } meta ipsec exists accept; jump x; }\n chain x { meta ipsec missing drop } }\n\
                    table ip u {\n}\n";
        let (rules, found) = find(text, &[]);
        let found: Vec<_> = found.iter().map(|f| (&*f.place, f.instead.as_deref().unwrap_or_default())).collect();
        let wanted = [
            ("nftables, table inet t, chain c", "tcp dport { 22, 80 } iifname \"sealane-ipsec\" accept"),
            ("nftables, table inet t, chain x", "iifname != \"sealane-ipsec\" drop"),
        ];
        assert_eq!((rules, &found[..]), (3, &wanted[..]));
    }

    #[test]
    fn tables_of_iptables_are_left_to_iptables_save() {
        let warnings = "# Warning: table ip filter is managed by iptables-nft, do not touch!\nanother line\n";
        let text = "table ip filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy accept;\n\
                    \t\tmeta secpath missing counter packets 0 bytes 0 drop\n\t}\n}\n\
                    table ip mine {\n\tchain INPUT {\n\t\tmeta ipsec exists accept\n\t}\n}\n";
        assert_eq!(find(text, &[]).1.len(), 2);
        assert_eq!(find(text, &of_iptables(warnings)).1.len(), 1);
    }

    #[test]
    fn any_text_is_read() {
        for text in [
            "}",
            "}}}",
            "table",
            "table inet t {",
            "table t {\nchain c {\n}\n}\n}\n}",
            "table t {\nchain c {\ntype x hook",
            "table t {\nchain c {\nmeta ipsec\nipsec in\nipsec in reqid {\n",
            "table t {\nchain c {\niifname\niifname !=\nrt ipsec ==\n",
        ] {
            let _ = find(text, &[]);
        }
    }
}
