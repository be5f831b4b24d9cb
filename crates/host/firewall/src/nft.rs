//! nftables: scripts for `nft -f`, and the listing of `nft -a list ruleset`.
//!
//! Structure is read only as far as it tells which words are a rule, and of which chain: braces, statements, and the names
//! in front of them. Variables and sets are not resolved.

mod matches;
mod token;

use crate::finding::{Finding, Report, Unreadable};
use crate::rewrite::{Hook, Rule, Words};
use std::collections::BTreeMap;
use token::{Kind, Token};

/// The most braces inside each other.
const MAX_DEPTH: usize = 32;

const FAMILIES: [&str; 6] = ["ip", "ip6", "inet", "arp", "bridge", "netdev"];

/// The first words of statements outside of all blocks.
const STATEMENTS: [&str; 30] = [
    "add",
    "chain",
    "counter",
    "create",
    "ct",
    "define",
    "delete",
    "describe",
    "destroy",
    "element",
    "flowtable",
    "flush",
    "get",
    "include",
    "insert",
    "limit",
    "list",
    "map",
    "monitor",
    "quota",
    "redefine",
    "rename",
    "replace",
    "reset",
    "secmark",
    "set",
    "synproxy",
    "table",
    "tunnel",
    "undefine",
];

/// The block that a brace has opened.
enum Block {
    /// Its family and name.
    Table(String),
    /// The table and the name of a chain.
    Chain(String, String),
    /// Anything without rules: sets, maps, flowtables, objects.
    Other,
}

/// A statement up to the token that ends it.
#[derive(Default)]
struct Statement<'a> {
    words: Vec<&'a str>,
    line: usize,
    handle: Option<u64>,
    /// The number of braces in it that are open.
    depth: usize,
}

impl<'a> Statement<'a> {
    fn push(&mut self, token: &Token<'a>) {
        if self.words.is_empty() {
            self.line = token.line;
        }
        self.words.push(token.text);
    }

    /// Its words behind the verb that makes something.
    fn object(&self) -> &[&'a str] {
        match self.words[..] {
            ["add" | "insert" | "replace" | "create", ..] => &self.words[1..],
            _ => &self.words,
        }
    }

    /// Whether it is a rule that names its chain.
    fn is_rule(&self) -> bool {
        matches!(self.words[..], ["add" | "insert" | "replace" | "create", "rule", ..])
    }
}

/// Family and name of a table, and the words behind both.
fn table_of<'w, 'a>(words: &'w [&'a str]) -> Option<(String, &'w [&'a str])> {
    let (family, words) = match words.split_first() {
        Some((first, rest)) if FAMILIES.contains(first) => (*first, rest),
        _ => ("ip", words),
    };
    let (name, rest) = words.split_first()?;
    Some((format!("{family} {}", unquoted(name)), rest))
}

fn unquoted(word: &str) -> &str {
    word.trim_matches('"')
}

struct Reader<'d> {
    devices: &'d [String],
    blocks: Vec<(Block, usize)>,
    hooks: BTreeMap<(String, String), Hook>,
    report: Report,
}

pub(crate) fn examine(text: &str, devices: &[String]) -> Result<Report, Unreadable> {
    let mut reader = Reader { devices, blocks: Vec::new(), hooks: BTreeMap::new(), report: Report::default() };
    let mut statement = Statement::default();
    for token in token::tokens(text) {
        let token = token?;
        let line = token.line;
        match token.kind {
            Kind::Word => statement.push(&token),
            Kind::Open if reader.in_rule(&statement) => {
                statement.push(&token);
                statement.depth += 1;
            }
            Kind::Open if statement.words.is_empty() => {
                return Err(Unreadable { line, what: "a brace has no words before it; JSON is not read" });
            }
            Kind::Open => {
                reader.open(&statement, line)?;
                statement = Statement::default();
            }
            Kind::Close if statement.depth > 0 => {
                if statement.words.last() == Some(&";") {
                    statement.words.pop();
                }
                statement.push(&token);
                statement.depth -= 1;
            }
            Kind::Close => {
                reader.end(&std::mem::take(&mut statement))?;
                if reader.blocks.pop().is_none() {
                    return Err(Unreadable { line, what: "a brace closes what none has opened" });
                }
            }
            // A chain without a name has statements of its own; lists go on in the next line.
            Kind::End if statement.depth > 0 => {
                if !matches!(statement.words.last(), Some(&("{" | "," | ";"))) {
                    statement.words.push(";");
                }
            }
            Kind::End => reader.end(&std::mem::take(&mut statement))?,
            Kind::Handle(number) => statement.handle = Some(number),
        }
        if reader.blocks.len() + statement.depth > MAX_DEPTH {
            return Err(Unreadable { line, what: "too many braces inside each other" });
        }
    }
    if statement.depth > 0 {
        return Err(Unreadable { line: statement.line, what: "a brace of this rule is not closed" });
    }
    reader.end(&statement)?;
    match reader.blocks.pop() {
        Some((_, line)) => Err(Unreadable { line, what: "this brace is not closed" }),
        None => Ok(reader.report),
    }
}

impl Reader<'_> {
    /// Whether braces in a statement belong to it.
    fn in_rule(&self, statement: &Statement<'_>) -> bool {
        matches!(self.blocks.last(), Some((Block::Chain(..), _))) || statement.is_rule()
    }

    fn open(&mut self, statement: &Statement<'_>, line: usize) -> Result<(), Unreadable> {
        self.check(statement)?;
        let words = statement.object();
        let block = match (words.split_first(), self.blocks.last()) {
            (Some((&"table", rest)), None) => table_of(rest).map(|(table, _)| Block::Table(table)),
            (Some((&"chain", [name, ..])), Some((Block::Table(table), _))) => {
                Some(Block::Chain(table.clone(), unquoted(name).to_owned()))
            }
            (Some((&"chain", rest)), None) => {
                table_of(rest).and_then(|(table, rest)| Some(Block::Chain(table, unquoted(rest.first()?).to_owned())))
            }
            _ => None,
        };
        self.blocks.push((block.unwrap_or(Block::Other), line));
        Ok(())
    }

    /// Refuses statements outside of all blocks that are not nft's, so that no other text passes for a firewall without
    /// findings.
    fn check(&self, statement: &Statement<'_>) -> Result<(), Unreadable> {
        match statement.words.first() {
            Some(first) if self.blocks.is_empty() && !STATEMENTS.contains(first) => {
                Err(Unreadable { line: statement.line, what: "this is no statement of nft" })
            }
            _ => Ok(()),
        }
    }

    fn end(&mut self, statement: &Statement<'_>) -> Result<(), Unreadable> {
        self.check(statement)?;
        if let ["include", file] = statement.words[..] {
            self.report.includes.push((statement.line, unquoted(file).to_owned()));
            return Ok(());
        }
        match self.blocks.last() {
            Some((Block::Chain(table, chain), _)) => {
                let (table, chain) = (table.clone(), chain.clone());
                match hook_of(&statement.words) {
                    Some(hook) => _ = self.hooks.insert((table, chain), hook),
                    None => self.rule(table, chain, &statement.words, statement.line, statement.handle),
                }
            }
            Some((Block::Table(_), _)) | None if statement.is_rule() => {
                let Some((table, [chain, rule @ ..])) = table_of(&statement.words[2..]) else { return Ok(()) };
                let rule = match rule {
                    ["handle" | "position" | "index", _, rule @ ..] => rule,
                    rule => rule,
                };
                self.rule(table, unquoted(chain).to_owned(), rule, statement.line, None);
            }
            _ => {}
        }
        Ok(())
    }

    fn rule(&mut self, table: String, chain: String, words: &[&str], line: usize, handle: Option<u64>) {
        let parts = matches::of(words, self.devices);
        let translates = words.iter().any(|word| matches!(*word, "masquerade" | "snat"));
        let known = self.hooks.get(&(table.clone(), chain.clone())).copied();
        let hook = known.unwrap_or(if translates { Hook::Routed } else { Hook::Marked });
        let language = if table.starts_with("ip6 ") { &WORDS_V6 } else { &WORDS };
        let rule = Rule { words, parts, hook, language };
        let whys = rule.whys();
        if !whys.is_empty() {
            let instead = rule.instead().iter().map(|words| joined(words)).collect();
            self.report.findings.push(Finding { line, table, chain, handle, rule: joined(words), whys, instead });
        }
    }
}

const WORDS: Words = Words {
    in_by: ["iifname \"sealane-ipsec\"", "iifname != \"sealane-ipsec\""],
    out_by: ["oifname \"sealane-ipsec\"", "oifname != \"sealane-ipsec\""],
    marked: ["meta mark & 0x20000000 != 0", "meta mark & 0x20000000 == 0"],
    networks: ["ip saddr NETWORKS", "ip daddr NETWORKS"],
    several_interfaces: true,
};
const WORDS_V6: Words = Words { networks: ["ip6 saddr NETWORKS", "ip6 daddr NETWORKS"], ..WORDS };

/// The hook of `type filter hook output priority filter + 10`.
fn hook_of(words: &[&str]) -> Option<Hook> {
    let ["type", _, "hook", hook, rest @ ..] = words else { return None };
    let priority = rest.iter().position(|word| *word == "priority").map_or(&[][..], |at| &rest[at + 1..]);
    Some(match *hook {
        "output" if priority_of(priority) < MARKED_AT => Hook::BeforeMark,
        "output" => Hook::Marked,
        _ => Hook::Routed,
    })
}

/// The priority of the chain in which Sealane marks packets of this host.
const MARKED_AT: i32 = -99;

/// A priority by number or by name (`nft`'s `std_prios`); that of `filter` if it is another one.
fn priority_of(words: &[&str]) -> i32 {
    let name = |word: &str| -> i32 {
        match word {
            "raw" => -300,
            "mangle" => -150,
            "dstnat" => -100,
            "security" => 50,
            "srcnat" => 100,
            number => number.parse().unwrap_or(0),
        }
    };
    match words {
        [base, sign @ ("+" | "-"), more, ..] => {
            let more = name(more);
            name(base).saturating_add(if *sign == "-" { more.saturating_neg() } else { more })
        }
        ["-", number, ..] => name(number).saturating_neg(),
        [one, ..] => name(one),
        [] => 0,
    }
}

/// A rule in one line, as `nft` prints it.
fn joined(words: &[&str]) -> String {
    let mut line = String::new();
    for word in words.iter().filter(|word| !word.is_empty()) {
        if !line.is_empty() && !matches!(*word, "," | ";") {
            line.push(' ');
        }
        line.push_str(word);
    }
    line
}
