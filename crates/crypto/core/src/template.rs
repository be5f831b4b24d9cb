//! Algorithm names: `gcm(aes)`, `authenc(hmac(sha256),cbc(aes))`, `sha256`.
//!
//! The grammar is the kernel's (`crypto/algapi.c`): a word, or a word with arguments in parentheses separated by
//! commas. Driver names use the same grammar (`cbc(ecb(aes-generic))`, `gcm-aes-awslc`).

use crate::error::LookupError;

/// The longest name that the kernel's ABI carries: `CRYPTO_MAX_ALG_NAME` is 128 with the closing NUL.
pub const MAX_NAME_LEN: usize = 127;

/// The depth to which parentheses may nest. The kernel's longest real names nest three deep.
pub const MAX_DEPTH: usize = 8;

/// A parsed name. Every piece borrows from the name itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name<'a> {
    /// The whole piece, arguments included.
    pub text: &'a str,
    /// The word before the parenthesis, or all of it.
    pub head: &'a str,
    /// The arguments; empty for a plain word.
    pub args: Vec<Name<'a>>,
}

impl<'a> Name<'a> {
    /// Reads a name.
    ///
    /// # Errors
    /// [`LookupError::Name`] with the offset of the first byte that does not fit.
    pub fn parse(text: &'a str) -> Result<Self, LookupError> {
        if text.len() > MAX_NAME_LEN {
            return Err(LookupError::Name { at: MAX_NAME_LEN, expected: "a name of at most 127 bytes" });
        }
        let (name, end) = parse_at(text, 0, 0)?;
        if end != text.len() {
            return Err(LookupError::Name { at: end, expected: "the end of the name" });
        }
        Ok(name)
    }

    /// The argument, if there is exactly one.
    #[must_use]
    pub fn only_arg(&self) -> Option<&Name<'a>> {
        match &self.args[..] {
            [arg] => Some(arg),
            _ => None,
        }
    }
}

fn parse_at(text: &str, start: usize, depth: usize) -> Result<(Name<'_>, usize), LookupError> {
    if depth >= MAX_DEPTH {
        return Err(LookupError::Name { at: start, expected: "at most 8 levels of parentheses" });
    }
    let bytes = text.as_bytes();
    let word_end = bytes[start..]
        .iter()
        .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.' | b'/' | b'+' | b'@')))
        .map_or(bytes.len(), |n| start + n);
    if word_end == start {
        return Err(LookupError::Name { at: start, expected: "an algorithm name" });
    }
    let head = &text[start..word_end];
    if bytes.get(word_end) != Some(&b'(') {
        return Ok((Name { text: head, head, args: Vec::new() }, word_end));
    }
    let mut args = Vec::new();
    let mut at = word_end;
    loop {
        let (arg, end) = parse_at(text, at + 1, depth + 1)?;
        args.push(arg);
        at = end;
        match bytes.get(at) {
            Some(b',') => {}
            Some(b')') => break,
            _ => return Err(LookupError::Name { at, expected: "',' or ')'" }),
        }
    }
    Ok((Name { text: &text[start..=at], head, args }, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_nested_names() {
        let n = Name::parse("authenc(hmac(sha256),cbc(aes))").unwrap();
        assert_eq!(n.head, "authenc");
        assert_eq!(n.args.iter().map(|a| a.text).collect::<Vec<_>>(), ["hmac(sha256)", "cbc(aes)"]);
        assert_eq!(n.args[0].only_arg().unwrap().text, "sha256");
    }

    #[test]
    fn names_the_offending_byte() {
        for (text, at) in [("", 0), ("gcm(", 4), ("gcm(aes", 7), ("gcm(aes))", 8), ("gcm()", 4), ("a b", 1), ("a,b", 1)]
        {
            match Name::parse(text) {
                Err(LookupError::Name { at: got, .. }) => assert_eq!(got, at, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
        assert!(Name::parse(&"a".repeat(128)).is_err());
        assert!(Name::parse(&"a(".repeat(20)).is_err());
    }
}
