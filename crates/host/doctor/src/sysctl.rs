//! The texts of sysctl.d(5).

use crate::lines::lines;

/// A line of sysctl.d.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// The path below `/proc/sys`, in which `*` stands for any part.
    pub key: String,
    /// The value; `None` for a line that only exempts the key from those with `*`.
    pub value: Option<String>,
}

/// The settings of a file, in their order.
#[must_use]
pub fn parse(text: &str) -> Vec<Setting> {
    lines(text).iter().filter_map(|line| setting(line)).collect()
}

fn setting(line: &str) -> Option<Setting> {
    let (key, value) = match line.split_once('=') {
        Some((key, value)) => (key.trim(), Some(value.trim().to_owned())),
        None => (line.strip_prefix('-').map(|_| line)?, None),
    };
    // A `-` before an assignment says that its failure is no error.
    let key = path(key.trim_start_matches('-'));
    (!key.is_empty()).then_some(Setting { key, value })
}

/// The path of a key, whose separators are those of a path, or dots with slashes for the dots in names.
fn path(key: &str) -> String {
    match key.find(['.', '/']) {
        Some(at) if key[at..].starts_with('.') => key
            .chars()
            .map(|c| {
                if c == '.' {
                    '/'
                } else if c == '/' {
                    '.'
                } else {
                    c
                }
            })
            .collect(),
        _ => key.to_owned(),
    }
}

/// Whether these settings make the source check of every new IPv4 interface strict: `rp_filter` of `*` is 1, and
/// `device` has no line of its own. The last assignment counts.
#[must_use]
pub fn makes_strict(settings: &[Setting], device: &str) -> bool {
    let own = format!("net/ipv4/conf/{device}/rp_filter");
    let of_all = settings.iter().rfind(|s| s.key == "net/ipv4/conf/*/rp_filter" && s.value.is_some());
    of_all.is_some_and(|s| s.value.as_deref() == Some("1")) && settings.iter().all(|s| s.key != own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_paths() {
        let key = |line: &str| setting(line).map(|s| s.key);
        assert_eq!(key("net.ipv4.ip_forward=1").as_deref(), Some("net/ipv4/ip_forward"));
        assert_eq!(key("-net/ipv4/conf/eth0.5/rp_filter = 2").as_deref(), Some("net/ipv4/conf/eth0.5/rp_filter"));
        assert_eq!(key("net.ipv4.conf.eth0/5.rp_filter=2").as_deref(), Some("net/ipv4/conf/eth0.5/rp_filter"));
        assert_eq!(setting("-net.ipv4.conf.x.rp_filter").map(|s| s.value), Some(None));
        assert_eq!(setting("nothing"), None);
        assert_eq!(parse("# a=b\n; c=d\n\nkernel.x = 1 2\n").len(), 1);
    }

    #[test]
    fn strict_for_new_interfaces() {
        let strict = |text: &str| makes_strict(&parse(text), sealane_config::DEVICE);
        assert!(strict("net.ipv4.conf.*.rp_filter = 1\n"));
        assert!(strict("net.ipv4.conf.*.rp_filter=2\nnet/ipv4/conf/*/rp_filter=1\n"));
        assert!(!strict("net.ipv4.conf.*.rp_filter=1\nnet.ipv4.conf.sealane-ipsec.rp_filter=2\n"));
        assert!(!strict("-net.ipv4.conf.sealane-ipsec.rp_filter\nnet.ipv4.conf.*.rp_filter=1\n"));
        assert!(!strict("net.ipv4.conf.all.rp_filter=1\nnet.ipv4.conf.default.rp_filter=1\n"));
        assert!(!strict("net.ipv4.conf.*.rp_filter=1\n-net.ipv4.conf.*.rp_filter=2\n"));
    }
}
