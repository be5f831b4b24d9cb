//! Whether the kernel has a module, or may load it.

use super::facts::ModuleState;

/// The texts from which the state of modules follows.
#[derive(Debug, Default)]
pub(crate) struct Texts {
    /// `/proc/modules`.
    pub(crate) loaded: String,
    /// `modules.builtin` of the running kernel.
    pub(crate) built_in: String,
    /// `modules.dep` of the running kernel; `None` if this machine does not have the list.
    pub(crate) on_disk: Option<String>,
    /// Files of modprobe.d: name and content, in the order in which modprobe reads them.
    pub(crate) configuration: Vec<(String, String)>,
    /// `/proc/cmdline`.
    pub(crate) command_line: String,
}

/// modprobe takes '-' and '_' for the same.
fn same(a: &str, b: &str) -> bool {
    a.len() == b.len() && a.bytes().zip(b.bytes()).all(|(a, b)| a == b || (b"-_".contains(&a) && b"-_".contains(&b)))
}

/// Whether a list of files of modules has it: `kernel/net/ipv4/esp4.ko.xz: ...`.
fn listed(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let file = line.split(':').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
        file.split_once(".ko").is_some_and(|(stem, _)| same(stem, name))
    })
}

impl Texts {
    /// The state of a module.
    pub(crate) fn state(&self, name: &str) -> ModuleState {
        if self.loaded.lines().any(|line| line.split(' ').next().is_some_and(|first| same(first, name))) {
            return ModuleState::Loaded;
        }
        if listed(&self.built_in, name) {
            return ModuleState::BuiltIn;
        }
        match &self.on_disk {
            None => ModuleState::Unknown,
            Some(list) if !listed(list, name) => ModuleState::Missing,
            Some(_) => self.blocked(name).map_or(ModuleState::Loadable, ModuleState::Blocked),
        }
    }

    /// The file that keeps a module from being loaded when the kernel asks for it.
    fn blocked(&self, name: &str) -> Option<String> {
        let by_kernel = self.command_line.split_whitespace().any(|word| {
            word.split_once('=').is_some_and(|(key, list)| {
                matches!(key, "module_blacklist" | "modprobe.blacklist") && list.split(',').any(|n| same(n, name))
            })
        });
        if by_kernel {
            return Some("the kernel's command line".to_owned());
        }
        let blocks = |text: &str| {
            text.lines().any(|line| {
                let words: Vec<&str> = line.split_whitespace().collect();
                match words[..] {
                    ["install", module, ref command @ ..] => {
                        let does_nothing = |c: &&str| matches!(c.rsplit('/').next(), Some("false" | "true"));
                        same(module, name) && command.first().is_some_and(does_nothing)
                    }
                    // The kernel asks by aliases, which a blacklist ignores.
                    ["blacklist", module, ..] => same(module, name),
                    _ => false,
                }
            })
        };
        self.configuration.iter().find(|(_, text)| blocks(text)).map(|(file, _)| file.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts() -> Texts {
        Texts {
            loaded: "esp6 28672 0 - Live 0x0\nalgif_hash 16384 1 - Live 0x0\n".into(),
            built_in: "kernel/drivers/net/tun.ko\n".into(),
            on_disk: Some(
                "kernel/net/ipv4/esp4.ko.xz: kernel/a.ko\nkernel/net/ipv6/esp6.ko:\nkernel/crypto/algif_aead.ko.zst:\n\
                      kernel/crypto/algif_rng.ko:\nkernel/crypto/algif_skcipher.ko:\n"
                    .into(),
            ),
            configuration: vec![
                ("/etc/modprobe.d/a.conf".into(), "# install esp4 /bin/false\noptions esp4 x=1\n".into()),
                ("/etc/modprobe.d/b.conf".into(), "install esp4 /bin/false\ninstall algif-aead /usr/bin/true\n".into()),
                (
                    "/etc/modprobe.d/c.conf".into(),
                    "install algif_rng /sbin/modprobe --ignore-install algif_rng\n".into(),
                ),
            ],
            command_line: "quiet module_blacklist=x,algif_skcipher".into(),
        }
    }

    #[test]
    fn states_are_those_of_modprobe() {
        let state = |name| texts().state(name);
        assert_eq!(state("esp4"), ModuleState::Blocked("/etc/modprobe.d/b.conf".into()));
        assert_eq!(state("esp6"), ModuleState::Loaded);
        assert_eq!(state("tun"), ModuleState::BuiltIn);
        assert_eq!(state("algif_aead"), ModuleState::Blocked("/etc/modprobe.d/b.conf".into()), "'-' is '_'");
        assert_eq!(state("algif_rng"), ModuleState::Loadable, "a command that loads it");
        assert_eq!(state("algif_skcipher"), ModuleState::Blocked("the kernel's command line".into()));
        assert_eq!(state("ah4"), ModuleState::Missing);
        let in_container = Texts { on_disk: None, ..texts() };
        assert_eq!(in_container.state("esp4"), ModuleState::Unknown);
        assert_eq!(in_container.state("esp6"), ModuleState::Loaded);
    }
}
