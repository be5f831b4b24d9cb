//! firewalld: direct rules (`direct.xml`), whose text is iptables'. Zones and policies cannot ask for IPsec.

use crate::finding::{Report, Unreadable};
use crate::iptables;

/// The elements that a file of firewalld has as its root.
const ROOTS: [&str; 8] = ["direct", "zone", "policy", "service", "ipset", "icmptype", "helper", "lockdown"];

/// A tag without its brackets, and the text up to the next one.
struct Piece<'a> {
    tag: &'a str,
    text: &'a str,
    line: usize,
}

pub(crate) fn examine(text: &str, devices: &[String]) -> Result<Report, Unreadable> {
    let mut report = Report::default();
    let mut known = false;
    for piece in pieces(text) {
        let Piece { tag, text, line } = piece?;
        let name = tag.split([' ', '\t', '\n', '/']).next().unwrap_or_default();
        known |= ROOTS.contains(&name);
        if !matches!(name, "rule" | "passthrough") || text.trim().is_empty() {
            continue;
        }
        let text = unescaped(text);
        let words = iptables::words(&text);
        let attribute = |name: &str| attribute(tag, name).unwrap_or_default();
        let (table, chain) = match name {
            "rule" => (attribute("table"), attribute("chain")),
            _ => (
                option(&words, "-t").unwrap_or("filter"),
                option(&words, "-A").or(option(&words, "-I")).unwrap_or_default(),
            ),
        };
        report.findings.extend(iptables::rule(&words, table, chain, line, devices)?);
    }
    if known { Ok(report) } else { Err(Unreadable { line: 1, what: "this is no file of firewalld" }) }
}

/// The word behind an option.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().position(|word| *word == name).and_then(|at| words.get(at + 1)).copied()
}

/// The value of an attribute.
fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = tag.split_once(&format!(" {name}="))?;
    let quote = rest.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    rest[1..].split(quote).next()
}

/// The tags of a text, without comments.
fn pieces(text: &str) -> impl Iterator<Item = Result<Piece<'_>, Unreadable>> {
    let (mut rest, mut line) = (text, 1);
    std::iter::from_fn(move || {
        loop {
            let at = rest.find('<')?;
            line += rest[..at].matches('\n').count();
            rest = &rest[at + 1..];
            let (comment, end) = if rest.starts_with("!--") { (true, "-->") } else { (false, ">") };
            let Some((tag, after)) = rest.split_once(end) else {
                rest = "";
                return Some(Err(Unreadable { line, what: "a tag has no end" }));
            };
            let begin = line;
            line += tag.matches('\n').count();
            rest = after;
            if !comment {
                let text = &rest[..rest.find('<').unwrap_or(rest.len())];
                return Some(Ok(Piece { tag, text, line: begin }));
            }
        }
    })
}

fn unescaped(text: &str) -> String {
    let pairs = [("&quot;", "\""), ("&apos;", "'"), ("&lt;", "<"), ("&gt;", ">"), ("&amp;", "&")];
    pairs.iter().fold(text.trim().to_owned(), |text, (from, to)| text.replace(from, to))
}
