//! The network namespaces that a section is about: names, and patterns of the names of others that come and go.

use super::section::{Mistakes, Section, kind};

/// The usual limit of [`Namespaces::max_found`]: whoever may name a network namespace makes the daemon keep threads, descriptors
/// and memory for it.
const MAX_FOUND: u32 = 256;
/// The highest one.
const HIGHEST_MAX_FOUND: i64 = 4096;
/// The characters of patterns: any text, and any character.
const WILD: [char; 2] = ['*', '?'];

/// Network namespaces in which a section has the daemon serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespaces {
    /// Those with names, without duplicates; `None` is the daemon's own.
    pub netns: Vec<Option<String>>,
    /// Patterns of the names of others that come and go, without duplicates: names of `ip netns`, or paths, whose last part has
    /// `*` or `?`.
    pub patterns: Vec<String>,
    /// The most that are served by patterns at once.
    pub max_found: u32,
}

impl Default for Namespaces {
    /// None.
    fn default() -> Self {
        Namespaces { netns: Vec::new(), patterns: Vec::new(), max_found: MAX_FOUND }
    }
}

impl Namespaces {
    /// Whether there are neither names nor patterns.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.netns.is_empty() && self.patterns.is_empty()
    }

    /// Reads `netns` and `max-found` of a section: by default the daemon's own namespace.
    pub(super) fn read(section: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Self {
        let mut read = Namespaces::default();
        let Namespaces { netns, patterns, max_found } = &mut read;
        for at in section.one_or_many("netns") {
            let wrong = match at.value.as_str() {
                None => Some(format!("'netns' has to be a string, not {}", kind(at.value))),
                Some(name) if name.contains('\0') => Some("'netns' is not a valid name".to_owned()),
                Some(pattern) if pattern.contains(WILD) => {
                    let twice = patterns.iter().any(|known| known == pattern).then_some("this pattern is there twice");
                    let wrong = wrong_pattern(pattern).or(twice);
                    if wrong.is_none() {
                        patterns.push(pattern.to_owned());
                    }
                    wrong.map(str::to_owned)
                }
                Some(name) => {
                    let name = namespace(name);
                    let twice = netns.contains(&name).then(|| "this network namespace is there twice".to_owned());
                    netns.push(name);
                    twice
                }
            };
            wrong.into_iter().for_each(|what| mistakes.at(&at.span, what));
        }
        if section.value("netns").is_none() {
            netns.push(None);
        }
        if let Some(at) = section.integer::<u32>("max-found", 1..=HIGHEST_MAX_FOUND, mistakes) {
            *max_found = at.value;
        }
        read
    }
}

/// Converts a name; the empty one stands for the daemon's own namespace.
pub(super) fn namespace(name: &str) -> Option<String> {
    Some(name.to_owned()).filter(|n| !n.is_empty())
}

/// The mistake in a pattern of names, if there is one.
fn wrong_pattern(pattern: &str) -> Option<&'static str> {
    match pattern.rsplit_once('/') {
        Some((folder, _)) if folder.contains(WILD) => Some("'*' and '?' are for the last part of a path only"),
        Some(_) if !pattern.starts_with('/') => Some("a pattern is one of names, or of a path that begins with /"),
        _ if pattern.contains(char::is_control) => Some("'netns' is not a valid name"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::Config;
    use super::*;

    /// Those of both sections, which read them alike.
    fn read(text: &str) -> Result<Namespaces, String> {
        let of = |section: &str| {
            let text = format!("[{section}]\n{text}");
            let config = Config::parse(&text, &mut |_| unreachable!("there are no key files"));
            config.map_err(|list| list.iter().map(|m| m.to_string() + "\n").collect::<String>())
        };
        let programs = of("tcp-ao").map(|config| config.programs);
        assert_eq!(programs, of("ipsec").map(|config| config.ipsec.expect("it is there").spaces));
        programs
    }

    #[test]
    fn patterns() {
        let all = |list: &[&str], max_found| {
            let patterns = list.iter().map(|&p| p.to_owned()).collect();
            Ok(Namespaces { netns: vec![None], patterns, max_found })
        };
        assert_eq!(read("netns = [\"\", \"*\", \"/run/x/cni-?\"]"), all(&["*", "/run/x/cni-?"], 256));
        assert_eq!(read("max-found = 4096"), all(&[], 4096));
        let only = read("netns = \"*\"").expect("good");
        assert!(only.netns.is_empty() && !only.is_empty());
        for (text, what) in [
            ("netns = [\"a*\", \"a*\"]", "2:16: this pattern is there twice"),
            ("netns = [\"a\", \"a\"]", "2:15: this network namespace is there twice"),
            ("netns = \"/run/*/a\"", "last part"),
            ("netns = \"run/a*\"", "begins with /"),
            ("netns = 1", "not a number"),
            ("max-found = 0", "'max-found' has to be"),
            ("max-found = 4097", "'max-found' has to be"),
        ] {
            let said = read(text).expect_err(text);
            assert!(said.contains(what), "{text}: {said}");
        }
    }
}
