//! Published test vectors, embedded as text: `vectors/<family>.txt`.
//!
//! ```text
//! # source: RFC 4231
//! alg = hmac(sha256)
//! key = 0b0b0b0b
//! in = 4869205468657265
//! out = b0344c61
//! ```
//!
//! An empty line ends a vector. Values are hex and may be empty; `fail = auth` and `alg` are words. [`FIELDS`] lists
//! the fields that a vector may have.

/// The files, one for each family. A new file is added here.
const FILES: &[&str] = &[
    include_str!("../../vectors/hash.txt"),
    include_str!("../../vectors/mac.txt"),
    include_str!("../../vectors/skcipher.txt"),
    include_str!("../../vectors/nonce_mac.txt"),
    include_str!("../../vectors/optional_key.txt"),
    include_str!("../../vectors/aead.txt"),
    include_str!("../../vectors/wide.txt"),
    include_str!("../../vectors/rng.txt"),
];

/// The fields that a vector may have.
///
/// `out` is the digest, the tag of a MAC, the ciphertext, or the output of a generator's last request. `ivout` is the
/// IV on return from a cipher. For generators, whose `alg` is the driver's name (they all are `stdrng`): `entropy`
/// (with the nonce at its end), `pers`, `addtl` and `addtl2` of two requests, and for those with prediction resistance
/// `entropy2` and `entropy3`.
pub const FIELDS: &[&str] = &[
    "alg", "key", "iv", "aad", "in", "out", "tag", "ivout", "fail", "entropy", "entropy2", "entropy3", "pers", "addtl",
    "addtl2",
];

/// One vector.
#[derive(Debug, Clone)]
pub struct Vector<'a> {
    /// The line of its `alg` in its file, from 1.
    pub line: usize,
    /// Name of the algorithm.
    pub alg: &'a str,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Vector<'a> {
    /// Whether it has this field, even if empty.
    #[must_use]
    pub fn has(&self, field: &str) -> bool {
        self.word(field).is_some()
    }

    /// A field as it is written in the file.
    #[must_use]
    pub fn word(&self, field: &str) -> Option<&'a str> {
        self.fields.iter().find(|(name, _)| *name == field).map(|(_, value)| *value)
    }

    /// A field in bytes; a missing one is empty.
    ///
    /// # Errors
    /// When it is not hex.
    pub fn bytes(&self, field: &str) -> Result<Vec<u8>, String> {
        let hex = self.word(field).unwrap_or("");
        unhex(hex).ok_or_else(|| format!("vector at line {}: {field} is not hex", self.line))
    }
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let nibble = |c: u8| char::from(c).to_digit(16).map(|n| n as u8);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    pairs.iter().map(|[hi, lo]| Some(nibble(*hi)? << 4 | nibble(*lo)?)).collect()
}

/// All vectors of an algorithm.
#[must_use]
pub fn of(alg: &str) -> Vec<Vector<'static>> {
    FILES.iter().flat_map(|text| parse(text, |name| name == alg)).collect()
}

/// All vectors of this crate.
#[must_use]
pub fn all() -> Vec<Vector<'static>> {
    FILES.iter().flat_map(|text| parse(text, |_| true)).collect()
}

/// The vectors in `text` for whose algorithm `want` is true. Lines other than `field = value` are ignored; a test of
/// this crate checks that there are none.
pub(crate) fn parse<'a>(text: &'a str, want: impl Fn(&str) -> bool) -> Vec<Vector<'a>> {
    let mut found: Vec<Vector<'a>> = Vec::new();
    let mut inside = false;
    for (at, line) in text.lines().enumerate() {
        if line.is_empty() {
            inside = false;
            continue;
        }
        if let Some(alg) = line.strip_prefix("alg = ") {
            inside = want(alg);
            if inside {
                found.push(Vector { line: at + 1, alg, fields: Vec::new() });
            }
        } else if inside
            && !line.starts_with('#')
            && let Some((name, value)) = line.split_once(" =")
            && let Some(vector) = found.last_mut()
        {
            vector.fields.push((name, value.trim_start()));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        for text in FILES {
            let mut inside = false;
            for (at, line) in text.lines().enumerate() {
                if line.is_empty() || line.starts_with('#') {
                    inside &= !line.is_empty();
                    continue;
                }
                let (name, value) = line.split_once(" =").unwrap_or_else(|| panic!("line {}: {line}", at + 1));
                assert!(FIELDS.contains(&name), "line {}: {line}", at + 1);
                assert!(inside || name == "alg", "line {}: a vector starts with alg, not {line}", at + 1);
                assert!(!inside || name != "alg", "line {}: an empty line ends a vector", at + 1);
                inside = true;
                let hex = value.trim_start();
                if !matches!(name, "alg" | "fail") {
                    assert!(unhex(hex).is_some(), "line {}: {line}", at + 1);
                }
            }
        }
    }

    #[test]
    fn vectors_are_read() {
        let text = "# source: none\nalg = a\nkey = 00ff\nin =\n\nalg = b\nout = 1\n";
        let found = parse(text, |_| true);
        assert_eq!(found.iter().map(|v| (v.line, v.alg)).collect::<Vec<_>>(), [(2, "a"), (6, "b")]);
        assert_eq!(found[0].bytes("key").unwrap(), [0, 0xff]);
        assert!(found[0].has("in") && found[0].bytes("in").unwrap().is_empty());
        assert!(!found[0].has("iv") && found[0].bytes("iv").unwrap().is_empty());
        assert!(found[1].bytes("out").is_err());
        assert_eq!(parse(text, |name| name == "b").len(), 1);
    }
}
