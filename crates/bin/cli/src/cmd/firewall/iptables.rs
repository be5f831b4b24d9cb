//! The format of `iptables-save`, which `iptables-restore` and the rule files of ufw have, too.

use super::rules::{DETAILS, DEVICE, EARLY, Effect, Finding, Hooks, INTERFACE, Leaving, MARK, TWO, Verdict, words};
use std::collections::BTreeMap;

/// The base chains, by the names of their hooks.
const BASE: [&str; 5] = ["PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"];

/// The tables whose OUTPUT may come before packets are marked.
const EARLY_TABLES: [&str; 2] = ["raw", "mangle"];

/// Returns the number of rules in a text, and those that ask for IPsec. `by` is the program that they are for.
pub(super) fn find(text: &str, by: &str) -> (usize, Vec<Finding>) {
    let mut tables: BTreeMap<&str, Hooks> = BTreeMap::new();
    let mut rules = Vec::new();
    let mut table = "filter";
    for line in text.lines().map(str::trim) {
        if let Some(name) = line.strip_prefix('*') {
            table = name;
        }
        let mut words = words(line);
        // Counters.
        if words.first().is_some_and(|word| word.starts_with('[')) {
            words.remove(0);
        }
        if let [command, chain, ..] = words[..]
            && ["-A", "-I", "--append", "--insert"].contains(&command)
        {
            rules.push((table, chain, words));
        }
    }
    for (table, chain, words) in &rules {
        let hooks = tables.entry(table).or_insert_with(|| {
            let mut hooks = Hooks::default();
            BASE.into_iter().for_each(|base| hooks.base(base, base, EARLY_TABLES.contains(table)));
            hooks
        });
        for pair in words.windows(2).filter(|pair| ["-j", "-g", "--jump", "--goto"].contains(&pair[0])) {
            hooks.jump(chain, pair[1]);
        }
    }
    let finding = |(table, chain, words): &(&str, &str, Vec<&str>)| {
        let leaving = tables.get(table).map_or(Leaving::Device, |hooks| hooks.leaving(chain));
        let Verdict { effect, instead, notes } = judge(words, leaving)?;
        let place = format!("{by}, table {table}, chain {chain}");
        Some(Finding { place, rule: words.join(" "), effect, instead, notes })
    };
    (rules.len(), rules.iter().filter_map(finding).collect())
}

/// The question of a rule: the match `policy`.
#[derive(Default)]
struct Policy {
    there: bool,
    outbound: bool,
    none: bool,
    details: bool,
}

/// Judges a rule; `None` if it does not ask for IPsec, or does the same here as on Linux.
fn judge(rule: &[&str], leaving: Leaving) -> Option<Verdict> {
    let mut policy = Policy::default();
    // The rule without its question, and its interface in each direction: whether it is any other, and its name.
    let (mut rest, mut interfaces) = (Vec::new(), [None; 2]);
    let (mut at, mut current) = (0, "");
    while let Some(word) = rule.get(at) {
        let negated = *word == "!";
        let (option, value) = (rule.get(at + usize::from(negated)).copied(), at + usize::from(negated) + 1);
        let text = rule.get(value).copied().unwrap_or_default();
        let mut until = value + 1;
        match option.unwrap_or_default() {
            "-m" | "--match" => {
                current = text;
                if current == "policy" {
                    policy.there = true;
                } else {
                    rest.extend_from_slice(rule.get(at..until)?);
                }
            }
            "--dir" => policy.outbound = text == "out",
            "--pol" => policy.none = text == "none",
            "--strict" | "--next" => (policy.details, until) = (true, value),
            "--reqid" | "--tunnel-src" | "--tunnel-dst" => policy.details = true,
            "--spi" | "--proto" | "--mode" if current == "policy" => policy.details = true,
            "-i" | "--in-interface" => interfaces[0] = Some((negated, text)),
            "-o" | "--out-interface" => interfaces[1] = Some((negated, text)),
            _ => {
                until = at + 1;
                rest.push(word);
            }
        }
        at = until;
    }
    if !policy.there {
        return None;
    }
    let which = usize::from(policy.outbound);
    let by_mark = policy.outbound && leaving != Leaving::Device;
    let (mut notes, mut one_rule) = (Vec::new(), true);
    if leaving == Leaving::EarlyMark && by_mark {
        notes.push(EARLY);
    }
    if !by_mark {
        match interfaces[which] {
            // Packets of tunnels have another interface.
            Some((false, name)) if policy.none && name != DEVICE && name != "+" => return None,
            Some(_) if policy.none => one_rule = false,
            Some((false, name)) if name != DEVICE => notes.push(INTERFACE),
            _ => {}
        }
        interfaces[which] = Some((policy.none, DEVICE));
    }
    if policy.details {
        notes.push(DETAILS);
    }
    if !one_rule {
        notes.push(TWO);
    }
    let mut question = Vec::new();
    for (option, interface) in ["-i", "-o"].into_iter().zip(interfaces) {
        let Some((negated, name)) = interface else { continue };
        question.extend(negated.then_some("!"));
        question.extend([option, name]);
    }
    let value = format!("{MARK}/{MARK}");
    if by_mark {
        question.extend(["-m", "mark"]);
        question.extend(policy.none.then_some("!"));
        question.extend(["--mark", &value]);
    }
    // A rule that is inserted may have a number.
    let numbered = rest.get(2).is_some_and(|word| word.parse::<u32>().is_ok());
    let (head, tail) = rest.split_at_checked(2 + usize::from(numbered))?;
    let effect = if policy.none { Effect::AlwaysMatches } else { Effect::NeverMatches };
    let instead = one_rule.then(|| [head, &question, tail].concat().join(" "));
    Some(Verdict { effect, instead, notes })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict about a rule in a table, with a chain `own` that OUTPUT jumps to.
    fn verdict(table: &str, rule: &str) -> Option<(Effect, Option<String>, Vec<&'static str>)> {
        let text = format!("*{table}\n:INPUT DROP [0:0]\n-A OUTPUT -j own\n{rule}\nCOMMIT\n");
        let (rules, found) = find(&text, "iptables");
        assert_eq!(rules, 2);
        found.into_iter().next().map(|f| (f.effect, f.instead, f.notes))
    }

    #[test]
    fn rules_of_key_managers_and_guides() {
        use Effect::{AlwaysMatches, NeverMatches};
        let one = |table: &str, rule: &str, effect: Effect, instead: Option<&str>, notes: &[&'static str]| {
            let wanted = Some((effect, instead.map(str::to_owned), notes.to_vec()));
            assert_eq!(verdict(table, rule), wanted, "{rule}");
        };
        // strongSwan's updown script, as iptables-save of 1.8.9 prints its rules.
        one(
            "filter",
            "[3:180] -A FORWARD -s 10.2.0.0/16 -d 10.1.0.0/16 -i eth0 -m policy --dir in --pol ipsec --reqid 1 --proto esp -j ACCEPT",
            NeverMatches,
            Some("-A FORWARD -i sealane-ipsec -s 10.2.0.0/16 -d 10.1.0.0/16 -j ACCEPT"),
            &[INTERFACE, DETAILS],
        );
        one(
            "filter",
            "-A OUTPUT -d 10.2.0.0/16 -o eth0 -m policy --dir out --pol ipsec --reqid 1 --proto esp -j ACCEPT",
            NeverMatches,
            Some("-A OUTPUT -o eth0 -m mark --mark 0x20000000/0x20000000 -d 10.2.0.0/16 -j ACCEPT"),
            &[DETAILS],
        );
        // ufw's before.rules in many guides.
        one(
            "filter",
            "-A ufw-before-forward --match policy --pol ipsec --dir in --proto esp -s 10.10.10.10/24 -j ACCEPT",
            NeverMatches,
            Some("-A ufw-before-forward -i sealane-ipsec -s 10.10.10.10/24 -j ACCEPT"),
            &[DETAILS],
        );
        one(
            "nat",
            "-I POSTROUTING 1 -s 10.0.0.0/8 -m policy --dir out --pol ipsec -j ACCEPT",
            NeverMatches,
            Some("-I POSTROUTING 1 -o sealane-ipsec -s 10.0.0.0/8 -j ACCEPT"),
            &[],
        );
        // Chains of the output hook have the device of the first route.
        one(
            "mangle",
            "-A own -m policy --dir out --pol none -m statistic --mode random --probability 0.5 -j DROP",
            AlwaysMatches,
            Some("-A own -m mark ! --mark 0x20000000/0x20000000 -m statistic --mode random --probability 0.5 -j DROP"),
            &[EARLY],
        );
        one(
            "filter",
            "-A INPUT -p tcp -m tcp --dport 22 -m policy --dir in --pol none -m comment --comment \"-i eth0 --pol none\" -j DROP",
            AlwaysMatches,
            Some(
                "-A INPUT ! -i sealane-ipsec -p tcp -m tcp --dport 22 -m comment --comment \"-i eth0 --pol none\" -j DROP",
            ),
            &[],
        );
        one("filter", "-A INPUT ! -i lo -m policy --dir in --pol none -j DROP", AlwaysMatches, None, &[TWO]);
        one(
            "filter",
            "-A INPUT ! -i lo -m policy --dir in --pol ipsec --strict --spi 0x10 --next ! --proto ah -j ACCEPT",
            NeverMatches,
            Some("-A INPUT -i sealane-ipsec -j ACCEPT"),
            &[DETAILS],
        );
    }

    #[test]
    fn others_are_left_alone() {
        for rule in [
            // As on Linux, packets of tunnels are not matched.
            "-A POSTROUTING -s 10.0.0.0/8 -o eth0 -m policy --dir out --pol none -j MASQUERADE",
            "-A INPUT -i eth0 -m policy --dir in --pol none -j DROP",
            "-A INPUT -p esp -m esp --espspi 1:9 -j ACCEPT",
            "-A INPUT -m comment --comment \"-m policy --pol ipsec\" -j ACCEPT",
            "-A INPUT -m statistic --mode random --probability 0.1 -j DROP",
        ] {
            assert_eq!(verdict("filter", rule), None, "{rule}");
        }
    }

    #[test]
    fn any_text_is_read() {
        for line in
            ["-A", "-A X", "-A X -m", "-A X -m policy", "-A X -m policy !", "-A X !", "[", "*", "-A X -m policy --dir"]
        {
            let _ = find(line, "iptables");
        }
    }
}
