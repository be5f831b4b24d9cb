//! Keys as URIs, for OpenSSL: `sealane://NAME`, `sealane://NAME?version=N`; the slashes may be left out.
//!
//! With them OpenSSL asks nobody but us. Without them it tries the whole text as the path of a file first (`OSSL_STORE_open_ex`).

use crate::key::Name;
use std::fmt;

/// The scheme, before the colon.
const SCHEME: &str = "sealane";

/// A key, and a version of it: 0 is the newest one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// The key's name.
    pub name: Name,
    /// The number of the version, or 0.
    pub version: u32,
}

impl fmt::Display for Uri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}://{}", self.name)?;
        if self.version == 0 { Ok(()) } else { write!(f, "?version={}", self.version) }
    }
}

/// A text that is no URI of a key; its text says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotAUri(String);

impl fmt::Display for NotAUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotAUri {}

impl Uri {
    /// Reads a text.
    ///
    /// # Errors
    /// The text is of another scheme, or has no name, or something behind it that is no version.
    pub fn parse(text: &str) -> Result<Self, NotAUri> {
        let wrong = |why: &str| NotAUri(format!("sealane: {text}: {why}"));
        let usage = "the name of a key is sealane://NAME or sealane://NAME?version=N";
        let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong(usage))?;
        if !scheme.eq_ignore_ascii_case(SCHEME) {
            return Err(wrong(usage));
        }
        let rest = rest.strip_prefix("//").unwrap_or(rest);
        let (name, query) = rest.split_once('?').map_or((rest, None), |(name, query)| (name, Some(query)));
        let name = Name::new(name).ok_or_else(|| wrong("a name has letters, digits, '.', '_' and '-', at most 64"))?;
        let version = match query.map(|query| query.strip_prefix("version=").ok_or_else(|| wrong(usage))) {
            None => 0,
            Some(number) => {
                let number = number?;
                let is_plain = number.bytes().all(|byte| byte.is_ascii_digit());
                let version = number.parse().ok().filter(|version| is_plain && *version > 0);
                version.ok_or_else(|| wrong("a version is a number from 1"))?
            }
        };
        Ok(Uri { name, version })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_are_read() {
        for (text, name, version) in [
            ("sealane:web", "web", 0),
            ("sealane://web", "web", 0),
            ("sealane://web?version=2", "web", 2),
            ("SEALANE:web.example.com", "web.example.com", 0),
            ("sealane:a?version=1", "a", 1),
            ("sealane:a?version=4294967295", "a", u32::MAX),
        ] {
            let uri = Uri::parse(text).unwrap();
            assert_eq!((uri.name.as_str(), uri.version), (name, version));
            assert_eq!(Uri::parse(&uri.to_string()), Ok(uri));
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (text, why) in [
            ("web", "the name of a key is"),
            ("file:web", "the name of a key is"),
            ("sealane:", "a name has"),
            ("sealane:/web", "a name has"),
            ("sealane:///web", "a name has"),
            ("sealane://", "a name has"),
            ("sealane://web/", "a name has"),
            ("sealane:../web", "a name has"),
            ("sealane:a%20b", "a name has"),
            ("sealane:a?", "the name of a key is"),
            ("sealane:a?Version=1", "the name of a key is"),
            ("sealane:a?version=", "a version is"),
            ("sealane:a?version=0", "a version is"),
            ("sealane:a?version=+1", "a version is"),
            ("sealane:a?version=1&x", "a version is"),
            ("sealane:a?version=4294967296", "a version is"),
        ] {
            let wrong = Uri::parse(text).unwrap_err().to_string();
            assert!(wrong.starts_with(&format!("sealane: {text}: {why}")), "{wrong}");
        }
    }
}
