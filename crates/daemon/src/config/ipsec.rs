//! `[ipsec]`: where the daemon stands for the kernel's IPsec.

use super::section::{Mistakes, Section, kind};

/// What `[ipsec]` says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ipsec {
    /// The network namespaces to serve, without repetition; `None` is the daemon's own.
    pub netns: Vec<Option<String>>,
}

/// Reads the section, if there is one.
pub(super) fn ipsec(root: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Option<Ipsec> {
    let mut section = root.section("ipsec", mistakes)?;
    let mut netns: Vec<Option<String>> = Vec::new();
    for at in section.one_or_many("netns") {
        match at.value.as_str() {
            None => mistakes.at(&at.span, format!("'netns' has to be a string, not {}", kind(at.value))),
            Some(name) if name.contains('\0') => mistakes.at(&at.span, "'netns' is the name of none"),
            Some(name) => {
                // The empty name is that of the namespace that needs none.
                let name = Some(name.to_owned()).filter(|n| !n.is_empty());
                if netns.contains(&name) {
                    mistakes.at(&at.span, "this network namespace is there twice");
                }
                netns.push(name);
            }
        }
    }
    if section.value("netns").is_none() {
        netns.push(None);
    }
    section.finish(mistakes);
    Some(Ipsec { netns })
}

#[cfg(test)]
mod tests {
    use super::super::Config;

    fn parse(text: &str) -> Result<Option<Vec<Option<String>>>, String> {
        let config = Config::parse(text, &mut |_| unreachable!("there are no key files"));
        config.map(|c| c.ipsec.map(|i| i.netns)).map_err(|list| list[0].what.clone())
    }

    #[test]
    fn namespaces() {
        let named = |n: &str| Some(n.to_owned());
        assert_eq!(parse(""), Ok(None));
        assert_eq!(parse("[ipsec]"), Ok(Some(vec![None])));
        assert_eq!(parse("[ipsec]\nnetns = \"a\""), Ok(Some(vec![named("a")])));
        assert_eq!(parse("[ipsec]\nnetns = [\"a\", \"\"]"), Ok(Some(vec![named("a"), None])));
        assert_eq!(parse("[ipsec]\nnetns = []"), Ok(Some(Vec::new())));
        assert!(parse("[ipsec]\nnetns = [\"a\", \"a\"]").unwrap_err().contains("twice"));
        assert!(parse("[ipsec]\nnetns = 1").unwrap_err().contains("not a number"));
        assert!(parse("[ipsec]\nnetn = 1").unwrap_err().contains("did you mean 'netns'"));
        assert!(parse("ipsec = 1").unwrap_err().contains("table"));
    }
}
