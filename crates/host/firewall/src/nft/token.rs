//! The tokens of nft's language.

use crate::finding::Unreadable;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A word, a string with its quotes, an operator, or a comma.
    Word,
    /// `{`
    Open,
    /// `}`
    Close,
    /// The end of a statement.
    End,
    /// The comment of `nft -a`.
    Handle(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
    /// From 1.
    pub(super) line: usize,
}

/// Splits a text. A backslash at the end of a line joins it with the next one.
pub(super) fn tokens(text: &str) -> impl Iterator<Item = Result<Token<'_>, Unreadable>> {
    let (mut rest, mut line) = (text, 1);
    std::iter::from_fn(move || {
        loop {
            let first = rest.chars().next()?;
            let begin = line;
            let (kind, len) = match first {
                '\n' => (Some(Kind::End), 1),
                ';' => (Some(Kind::End), 1),
                '{' => (Some(Kind::Open), 1),
                '}' => (Some(Kind::Close), 1),
                ',' => (Some(Kind::Word), 1),
                '\\' if rest.starts_with("\\\n") => (None, 2),
                '\\' => (Some(Kind::Word), 1),
                '#' => {
                    let len = rest.find('\n').unwrap_or(rest.len());
                    let number = rest[..len].strip_prefix("# handle ").and_then(|n| n.trim_end().parse().ok());
                    (number.map(Kind::Handle), len)
                }
                '"' => match rest[1..].find('"') {
                    Some(len) => (Some(Kind::Word), len + 2),
                    None => {
                        rest = "";
                        return Some(Err(Unreadable { line, what: "a string has no end" }));
                    }
                },
                _ if is_operator(first) => (Some(Kind::Word), run(rest, is_operator)),
                _ if first.is_whitespace() => (None, first.len_utf8()),
                _ => (Some(Kind::Word), run(rest, is_word)),
            };
            let (text, after) = rest.split_at(len);
            rest = after;
            line += text.matches('\n').count();
            if let Some(kind) = kind {
                return Some(Ok(Token { kind, text, line: begin }));
            }
        }
    })
}

fn is_operator(c: char) -> bool {
    matches!(c, '=' | '!' | '<' | '>' | '+')
}

fn is_word(c: char) -> bool {
    !c.is_whitespace() && !is_operator(c) && !matches!(c, ';' | '{' | '}' | ',' | '\\' | '#' | '"')
}

/// The length in bytes of the characters at the start that are of a kind.
fn run(text: &str, is: impl Fn(char) -> bool) -> usize {
    text.find(|c| !is(c)).unwrap_or(text.len())
}
