//! The kernel's modules: which there are, which are loaded, and which are blocked.

use crate::modprobe::{Block, canonical};
use std::collections::{BTreeMap, BTreeSet};

/// A module, and the ways in which the kernel knows it.
#[derive(Debug, Clone, Copy)]
pub struct Module {
    /// Its name.
    pub name: &'static str,
    /// The option that builds it, without `CONFIG_`.
    pub option: &'static str,
    /// Whether the kernel asks for it by an alias such as `net-pf-38`. It asks for AF_ALG's types by the modules' own
    /// names, which `blacklist` does not concern (`alg_get_type`, modprobe.d(5)).
    pub by_alias: bool,
}

const fn by_alias(name: &'static str, option: &'static str) -> Module {
    Module { name, option, by_alias: true }
}

const fn by_name(name: &'static str, option: &'static str) -> Module {
    Module { name, option, by_alias: false }
}

/// The modules that are looked for.
pub const MODULES: [Module; 14] = [
    by_alias("af_alg", "CRYPTO_USER_API"),
    by_name("algif_hash", "CRYPTO_USER_API_HASH"),
    by_name("algif_skcipher", "CRYPTO_USER_API_SKCIPHER"),
    by_name("algif_aead", "CRYPTO_USER_API_AEAD"),
    by_name("algif_rng", "CRYPTO_USER_API_RNG"),
    by_alias("xfrm_user", "XFRM_USER"),
    by_alias("esp4", "INET_ESP"),
    by_alias("esp6", "INET6_ESP"),
    by_alias("ah4", "INET_AH"),
    by_alias("ah6", "INET6_AH"),
    by_alias("tun", "TUN"),
    by_alias("nf_tables", "NF_TABLES"),
    by_alias("nfnetlink_queue", "NETFILTER_NETLINK_QUEUE"),
    by_alias("tcp_diag", "INET_TCP_DIAG"),
];

/// The presence of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It is a part of the kernel.
    BuiltIn,
    /// It is loaded; with what blocks it from the next start on.
    Loaded(Option<String>),
    /// The kernel loads it when it is asked for.
    Module,
    /// It is kept from being loaded, by this file or setting.
    Blocked(String),
    /// This kernel does not have it.
    Missing,
    /// It could not be seen.
    Unseen,
}

impl State {
    /// Whether the kernel uses it when a program asks; `None` if that could not be seen.
    #[must_use]
    pub fn is_usable(&self) -> Option<bool> {
        match self {
            State::BuiltIn | State::Loaded(_) | State::Module => Some(true),
            State::Blocked(_) | State::Missing => Some(false),
            State::Unseen => None,
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            State::BuiltIn => write!(f, "built in"),
            State::Loaded(None) => write!(f, "loaded"),
            State::Loaded(Some(by)) => write!(f, "loaded, blocked from the next start on by {by}"),
            State::Module => write!(f, "a module"),
            State::Blocked(by) => write!(f, "blocked by {by}"),
            State::Missing => write!(f, "missing"),
            State::Unseen => write!(f, "could not be seen"),
        }
    }
}

/// The texts that tell about modules, read. `None` is one that could not be read.
#[derive(Debug, Default)]
pub struct Evidence {
    /// The names in `/proc/modules` ([`loaded`]).
    pub loaded: BTreeSet<String>,
    /// The names in `modules.dep` ([`file_names`]).
    pub files: Option<BTreeSet<String>>,
    /// The names in `modules.builtin` ([`file_names`]).
    pub built_in: Option<BTreeSet<String>>,
    /// The kernel's options ([`options`]).
    pub options: Option<BTreeMap<String, bool>>,
    /// The lines that block modules, each with the place where it stands.
    pub blocks: Vec<(String, Block)>,
    /// Whether no module can be loaded any more (`kernel.modules_disabled`).
    pub is_closed: bool,
}

impl Evidence {
    /// The state of a module.
    #[must_use]
    pub fn state(&self, module: &Module) -> State {
        let has = |names: &Option<BTreeSet<String>>| names.as_ref().map(|names| names.contains(module.name));
        let option = self.options.as_ref().map(|options| options.get(module.option).copied());
        if has(&self.built_in) == Some(true) || option == Some(Some(true)) {
            return State::BuiltIn;
        }
        let blocked = self.blocked(module);
        if self.loaded.contains(module.name) {
            return State::Loaded(blocked);
        }
        let is_known = self.built_in.is_some() || option.is_some();
        match (has(&self.files), blocked) {
            _ if option == Some(None) => State::Missing,
            (Some(false), _) if is_known => State::Missing,
            (_, Some(by)) => State::Blocked(by),
            (Some(true), None) if self.is_closed => State::Blocked("kernel.modules_disabled".to_owned()),
            (Some(true), None) => State::Module,
            _ => State::Unseen,
        }
    }

    /// The place of the line that keeps the kernel from loading a module.
    fn blocked(&self, module: &Module) -> Option<String> {
        let stops = |block: &Block| match block {
            Block::Always(name) => name == module.name,
            Block::ByAlias(name) => module.by_alias && name == module.name,
        };
        self.blocks.iter().find(|(_, block)| stops(block)).map(|(place, _)| place.clone())
    }

    /// The place of a `blacklist` line that does not keep the kernel from loading a module, although it seems to.
    #[must_use]
    pub fn blacklisted_in_vain(&self, module: &Module) -> Option<String> {
        let is_it = |block: &Block| matches!(block, Block::ByAlias(name) if name == module.name);
        let place = self.blocks.iter().find(|(_, block)| is_it(block)).map(|(place, _)| place.clone());
        place.filter(|_| {
            self.blocked(module).is_none() && matches!(self.state(module), State::Loaded(_) | State::Module)
        })
    }
}

/// The names of modules in `/proc/modules`.
#[must_use]
pub fn loaded(text: &str) -> BTreeSet<String> {
    text.lines().filter_map(|line| line.split_whitespace().next()).map(canonical).collect()
}

/// The names of modules in `modules.dep` or `modules.builtin`, whose lines begin with a path of `NAME.ko`, which may be
/// compressed.
#[must_use]
pub fn file_names(text: &str) -> BTreeSet<String> {
    let name = |line: &str| {
        let path = line.split(':').next()?.trim();
        let file = path.rsplit('/').next()?;
        file.split_once(".ko").map(|(name, _)| canonical(name)).filter(|name| !name.is_empty())
    };
    text.lines().filter_map(name).collect()
}

/// The options of a kernel's configuration that are set, without `CONFIG_`: true for what is built in, false for
/// modules.
#[must_use]
pub fn options(text: &str) -> BTreeMap<String, bool> {
    let option = |line: &str| {
        let (name, value) = line.strip_prefix("CONFIG_")?.split_once('=')?;
        match value.trim_end() {
            "y" => Some((name.to_owned(), true)),
            "m" => Some((name.to_owned(), false)),
            _ => None,
        }
    };
    text.lines().filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESP4: Module = by_alias("esp4", "INET_ESP");
    const AEAD: Module = by_name("algif_aead", "CRYPTO_USER_API_AEAD");

    fn names(list: &[&str]) -> BTreeSet<String> {
        list.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn lists_of_modules() {
        let dep =
            "kernel/net/ipv4/esp4.ko.xz: kernel/net/xfrm/xfrm_algo.ko.xz\nkernel/crypto/algif-aead.ko:\n\nx\n.ko\n";
        assert_eq!(file_names(dep), names(&["algif_aead", "esp4"]));
        assert_eq!(loaded("esp4 20480 0 - Live 0x0\ntcp_diag 1 0\n\n"), names(&["esp4", "tcp_diag"]));
        let config = options("CONFIG_TUN=m\n# CONFIG_INET_ESP is not set\nCONFIG_X=\"y\"\nCONFIG_NF_TABLES=y\n");
        assert_eq!(config, BTreeMap::from([("NF_TABLES".to_owned(), true), ("TUN".to_owned(), false)]));
    }

    #[test]
    fn every_state() {
        let block = |block| vec![("here".to_owned(), block)];
        let with = |files: &[&str]| Evidence {
            files: Some(names(files)),
            built_in: Some(BTreeSet::new()),
            ..Evidence::default()
        };
        assert_eq!(Evidence::default().state(&ESP4), State::Unseen);
        assert_eq!(with(&["esp4"]).state(&ESP4), State::Module);
        assert_eq!(with(&[]).state(&ESP4), State::Missing);
        assert_eq!(Evidence { built_in: Some(names(&["esp4"])), ..Evidence::default() }.state(&ESP4), State::BuiltIn);
        assert_eq!(
            Evidence { is_closed: true, ..with(&["esp4"]) }.state(&ESP4),
            State::Blocked("kernel.modules_disabled".into())
        );
        let blocks = block(Block::Always("esp4".into()));
        let blocked = Evidence { blocks: blocks.clone(), ..with(&["esp4"]) };
        assert_eq!(blocked.state(&ESP4), State::Blocked("here".into()));
        assert_eq!(Evidence { loaded: names(&["esp4"]), ..blocked }.state(&ESP4), State::Loaded(Some("here".into())));
        // What is not there cannot be blocked; what could not be seen can.
        assert_eq!(Evidence { blocks: blocks.clone(), ..with(&[]) }.state(&ESP4), State::Missing);
        assert_eq!(Evidence { blocks, ..Evidence::default() }.state(&ESP4), State::Blocked("here".into()));
        // The configuration alone tells what is built in and what is missing, and no more.
        let configured = |text: &str| Evidence { options: Some(options(text)), ..Evidence::default() };
        assert_eq!(configured("CONFIG_INET_ESP=y").state(&ESP4), State::BuiltIn);
        assert_eq!(configured("CONFIG_TUN=y").state(&ESP4), State::Missing);
        assert_eq!(configured("CONFIG_INET_ESP=m").state(&ESP4), State::Unseen);
    }

    #[test]
    fn a_blacklist_blocks_what_is_asked_for_by_an_alias() {
        let blacklist = |name: &str| Evidence {
            files: Some(names(&["esp4", "algif_aead"])),
            built_in: Some(BTreeSet::new()),
            blocks: vec![("here".to_owned(), Block::ByAlias(name.to_owned()))],
            ..Evidence::default()
        };
        assert_eq!(blacklist("esp4").state(&ESP4), State::Blocked("here".into()));
        assert_eq!(blacklist("esp4").blacklisted_in_vain(&ESP4), None);
        assert_eq!(blacklist("algif_aead").state(&AEAD), State::Module);
        assert_eq!(blacklist("algif_aead").blacklisted_in_vain(&AEAD), Some("here".into()));
    }
}
