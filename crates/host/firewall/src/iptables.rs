//! iptables and ip6tables: `iptables-save`, files for `iptables-restore` (those of ufw, too), and scripts that call it.

use crate::finding::{Finding, Report, Unreadable};
use crate::rewrite::{self, Hook, Match, Part, Rule, Sense, Way, Words};

/// The options of commands that make a rule. Each is followed by the name of a chain.
const MAKES: [&str; 6] = ["-A", "--append", "-I", "--insert", "-R", "--replace"];

const WORDS: Words = Words {
    in_by: ["-i sealane-ipsec", "! -i sealane-ipsec"],
    out_by: ["-o sealane-ipsec", "! -o sealane-ipsec"],
    marked: ["-m mark --mark 0x20000000/0x20000000", "-m mark ! --mark 0x20000000/0x20000000"],
    networks: ["-s NETWORKS", "-d NETWORKS"],
    several_interfaces: false,
};

/// Whether a text has rules of iptables, or is a file of `iptables-save` without any.
pub(crate) fn is_ours(text: &str) -> bool {
    let ours = |line: &str| line.starts_with('*') || line.split_whitespace().any(|word| MAKES.contains(&word));
    text.lines().map(str::trim_start).any(|line| !line.starts_with('#') && ours(line))
}

pub(crate) fn examine(text: &str, devices: &[String]) -> Result<Report, Unreadable> {
    let mut report = Report::default();
    let mut table = "filter".to_owned();
    let mut lines = text.lines().zip(1..);
    while let Some((first, line)) = lines.next() {
        let mut command = first.trim().to_owned();
        // Scripts continue their commands.
        while command.ends_with('\\') {
            command.pop();
            command.push_str(lines.next().map_or("", |(more, _)| more.trim_end()));
        }
        if let Some(name) = command.strip_prefix('*') {
            name.trim_end().clone_into(&mut table);
        } else if !command.starts_with('#') {
            let words = words(&command);
            let Some(at) = words.iter().position(|word| MAKES.contains(word)) else { continue };
            let named = words.iter().position(|word| matches!(*word, "-t" | "--table"));
            let table = named.and_then(|at| words.get(at + 1)).map_or(&*table, |name| *name);
            let chain = words.get(at + 1).copied().unwrap_or_default();
            report.findings.extend(rule(&words, table, chain, line, devices)?);
        }
    }
    Ok(report)
}

/// Splits a line into words, as a shell does; quotes stay.
pub(crate) fn words(line: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let (mut begin, mut quote, mut escaped) = (None, None, false);
    for (at, c) in line.char_indices() {
        let blank = quote.is_none() && c.is_whitespace();
        match begin {
            None if !blank => begin = Some(at),
            Some(first) if blank => {
                words.push(&line[first..at]);
                begin = None;
            }
            _ => {}
        }
        match quote {
            _ if escaped => escaped = false,
            Some(open) if c == open => quote = None,
            None | Some('"') if c == '\\' => escaped = true,
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
    }
    words.extend(begin.map(|first| &line[first..]));
    words
}

/// Examines one rule.
pub(crate) fn rule(
    words: &[&str],
    table: &str,
    chain: &str,
    line: usize,
    devices: &[String],
) -> Result<Option<Finding>, Unreadable> {
    let parts = matches(words, devices).map_err(|what| Unreadable { line, what })?;
    let jumps = |to: &[&str]| words.windows(2).any(|pair| matches!(pair[0], "-j" | "--jump") && to.contains(&pair[1]));
    let hook = match (chain, table) {
        ("OUTPUT", "raw" | "mangle" | "nat") => Hook::BeforeMark,
        ("FORWARD" | "POSTROUTING", _) => Hook::Routed,
        _ if jumps(&["MASQUERADE", "SNAT", "NETMAP"]) && table == "nat" => Hook::Routed,
        _ => Hook::Marked,
    };
    let rule = Rule { words, parts, hook, language: &WORDS };
    let whys = rule.whys();
    Ok((!whys.is_empty()).then(|| Finding {
        line,
        table: table.to_owned(),
        chain: chain.to_owned(),
        handle: None,
        rule: words.join(" "),
        instead: rule.instead().iter().map(|words| words.join(" ")).collect(),
        whys,
    }))
}

/// The matches of a rule that matter here, in their order.
fn matches(words: &[&str], devices: &[String]) -> Result<Vec<Part>, &'static str> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < words.len() {
        let not = words[at] == "!";
        let begin = at;
        at += usize::from(not);
        let option = words.get(at).copied().unwrap_or_default();
        let value = words.get(at + 1).copied();
        let interface = |way| {
            let ours = value.is_some_and(|name| rewrite::is_ours(unquoted(name), '+', devices));
            Some(Match::Interface { way, not, ours })
        };
        let loaded = match option {
            "-m" | "--match" => value,
            _ => option.strip_prefix("-m").filter(|_| !option.starts_with("--")).or(option.strip_prefix("--match=")),
        };
        let is = match (option, loaded) {
            ("-i" | "--in-interface", _) => interface(Way::In),
            ("-o" | "--out-interface", _) => interface(Way::Out),
            ("-s" | "--source" | "--src", _) => Some(Match::Address(Way::In)),
            ("-d" | "--destination" | "--dst", _) => Some(Match::Address(Way::Out)),
            (_, Some(name @ ("policy" | "rpfilter"))) => {
                at += if matches!(option, "-m" | "--match") { 2 } else { 1 };
                let end = at + options(&words[at..]);
                let is = if name == "policy" { Some(policy(&words[at..end])?) } else { reverse_path(&words[at..end]) };
                parts.extend(is.map(|is| Part { at: begin..end, is }));
                at = end;
                continue;
            }
            _ => None,
        };
        at = (at + if is.is_some() { 2 } else { 1 }).min(words.len());
        parts.extend(is.map(|is| Part { at: begin..at, is }));
    }
    Ok(parts)
}

/// The number of words at the start that are options of the matches `policy` and `rpfilter`.
fn options(words: &[&str]) -> usize {
    let mut at = 0;
    loop {
        let not = usize::from(words.get(at) == Some(&"!"));
        let takes = match words.get(at + not) {
            Some(&("--strict" | "--next" | "--loose" | "--validmark" | "--accept-local" | "--invert")) => 1,
            Some(
                &("--dir" | "--pol" | "--reqid" | "--spi" | "--proto" | "--mode" | "--tunnel-src" | "--tunnel-dst"),
            ) => 2 + usize::from(words.get(at + not + 1) == Some(&"!")),
            _ => return at,
        };
        at = (at + not + takes).min(words.len());
    }
}

/// The question of `-m policy`, by its options.
fn policy(options: &[&str]) -> Result<Match, &'static str> {
    let value = |name| options.iter().position(|word| *word == name).and_then(|at| options.get(at + 1)).copied();
    let way = match value("--dir") {
        Some("in") => Way::In,
        Some("out") => Way::Out,
        _ => return Err("-m policy has no --dir in or --dir out behind it"),
    };
    let one = ["--reqid", "--spi", "--tunnel-src", "--tunnel-dst"].iter().any(|name| options.contains(name));
    match value("--pol") {
        Some("ipsec") if one => Ok(Match::Ipsec(way, Sense::OneTunnel)),
        Some("ipsec") => Ok(Match::Ipsec(way, Sense::Tunnel)),
        Some("none") => Ok(Match::Ipsec(way, Sense::Others)),
        _ => Err("-m policy has no --pol ipsec or --pol none behind it"),
    }
}

/// The question of `-m rpfilter`; none if any route back is good.
fn reverse_path(options: &[&str]) -> Option<Match> {
    (!options.contains(&"--loose")).then(|| Match::ReversePath { passes: !options.contains(&"--invert") })
}

fn unquoted(word: &str) -> &str {
    word.trim_matches(['"', '\''])
}
