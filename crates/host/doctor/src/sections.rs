//! Files with sections and assignments: units of systemd, and configurations of its services (systemd.syntax(7)).

use crate::lines::lines;

/// The assignments of a file and of its drop-ins, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sections(Vec<Assignment>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Assignment {
    section: String,
    key: String,
    value: String,
}

impl Sections {
    /// Adds the assignments of a text, a drop-in after the file that it belongs to. Lines that are none are left out.
    pub fn read(&mut self, text: &str) {
        let mut section = String::new();
        for line in lines(text) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                name.clone_into(&mut section);
            } else if let Some((key, value)) = line.split_once('=') {
                let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
                self.0.push(Assignment { section: section.clone(), key, value });
            }
        }
    }

    fn values<'a>(&'a self, section: &str, key: &str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |a| a.section == section && a.key == key).map(|a| a.value.as_str())
    }

    /// The values of a setting that may be assigned several times. An empty one takes back those before it.
    #[must_use]
    pub fn list(&self, section: &str, key: &str) -> Vec<&str> {
        let mut list = Vec::new();
        for value in self.values(section, key) {
            match value {
                "" => list.clear(),
                value => list.push(value),
            }
        }
        list
    }

    /// The words of [`Sections::list`].
    #[must_use]
    pub fn words(&self, section: &str, key: &str) -> Vec<&str> {
        self.list(section, key).into_iter().flat_map(str::split_whitespace).collect()
    }

    /// The value of a setting that counts once: the last one, unless it is empty.
    #[must_use]
    pub fn last(&self, section: &str, key: &str) -> Option<&str> {
        self.values(section, key).last().filter(|value| !value.is_empty())
    }

    /// A setting that is yes or no; `None` if it is not set, or neither.
    #[must_use]
    pub fn is_on(&self, section: &str, key: &str) -> Option<bool> {
        match self.last(section, key)?.to_ascii_lowercase().as_str() {
            "1" | "yes" | "y" | "true" | "t" | "on" => Some(true),
            "0" | "no" | "n" | "false" | "f" | "off" => Some(false),
            _ => None,
        }
    }

    /// Whether a unit's `RestrictAddressFamilies=` refuses sockets of a family such as `AF_ALG`.
    #[must_use]
    pub fn refuses_family(&self, family: &str) -> bool {
        let words = self.words("Service", "RestrictAddressFamilies");
        match words.first() {
            None => false,
            // A first `~` makes it a list of what is refused.
            Some(first) if first.starts_with('~') => words.iter().any(|word| word.trim_start_matches('~') == family),
            Some(_) => !words.contains(&family),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sections(texts: &[&str]) -> Sections {
        let mut sections = Sections::default();
        texts.iter().for_each(|text| sections.read(text));
        sections
    }

    #[test]
    fn drop_ins_come_after_their_unit() {
        let unit = "Key=before all\n[Unit]\nAfter=a.service \\\n# no\n  b.service\n[Service]\nType=notify\n\
                    ExecStart=/usr/sbin/charon-systemd --x=y\n[broken\nnothing\n";
        let drop_in =
            "[Service]\nExecStart=\nExecStart = /usr/local/bin/sealane run -- /usr/sbin/charon-systemd\nType=\n";
        let both = sections(&[unit, drop_in]);
        assert_eq!(both.words("Unit", "After"), ["a.service", "b.service"]);
        assert_eq!(both.list("Service", "ExecStart"), ["/usr/local/bin/sealane run -- /usr/sbin/charon-systemd"]);
        assert_eq!(both.last("Service", "Type"), None);
        assert_eq!(sections(&[unit]).last("Service", "Type"), Some("notify"));
        assert_eq!(both.list("", "Key"), ["before all"]);
    }

    #[test]
    fn yes_and_no() {
        let text = "[Network]\nManageForeignRoutes=yes\nManageForeignRoutes=Off\nX=perhaps\n";
        assert_eq!(sections(&[text]).is_on("Network", "ManageForeignRoutes"), Some(false));
        assert_eq!(sections(&[text]).is_on("Network", "X"), None);
    }

    #[test]
    fn families_of_addresses() {
        let refuses = |value: &str| {
            sections(&["[Service]", &format!("[Service]\nRestrictAddressFamilies={value}\n")]).refuses_family("AF_ALG")
        };
        assert!(refuses("AF_UNIX AF_INET") && refuses("none") && refuses("~AF_PACKET AF_ALG"));
        assert!(!refuses("AF_UNIX AF_ALG") && !refuses("") && !refuses("~AF_PACKET"));
    }
}
