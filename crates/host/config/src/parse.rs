//! Conversion of a document into a configuration.

use super::ipsec::{self, MAX_WORKERS};
use super::keys::{self, KeyChain};
use super::namespaces::Namespaces;
use super::peer::{self, Peer, Peers};
use super::secret::{KeyFiles, ReadKeyFile};
use super::section::{Mistake, Mistakes, Section, document};
use super::settings::{Config, Daemon};
use sealane_abi::admin::DataPath;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

/// The key chains of a document by name, with whether a peer uses them.
pub(super) struct Chains {
    by_name: HashMap<String, (Arc<KeyChain>, bool)>,
    order: Vec<String>,
}

impl Chains {
    fn read(root: &mut Section<'_>, files: &mut KeyFiles<'_>, mistakes: &mut Mistakes<'_>) -> Self {
        let mut chains = Chains { by_name: HashMap::new(), order: Vec::new() };
        for mut section in root.sections("key-chain", mistakes) {
            let name = section.string("name", mistakes);
            if section.value("name").is_none() {
                section.missing("name", mistakes);
            }
            let text = name.as_ref().map_or("", |at| at.value).to_owned();
            let chain = keys::chain(&mut section, text.clone(), files, mistakes);
            if chain.keys.is_empty() && section.value("key").is_none() {
                mistakes.at(&section.span, "a key chain needs a key: [[key-chain.key]]");
            }
            section.finish(mistakes);
            match name {
                Some(at) if chains.by_name.contains_key(at.value) => {
                    mistakes.at(&at.span, format!("there is another key chain '{}'", at.value.escape_debug()));
                }
                Some(_) => {
                    chains.order.push(text.clone());
                    chains.by_name.insert(text, (Arc::new(chain), false));
                }
                None => {}
            }
        }
        chains
    }

    /// The chain of a peer: a named one, or the peer's own keys.
    fn of_peer(
        &mut self,
        section: &mut Section<'_>,
        name: &str,
        files: &mut KeyFiles<'_>,
        mistakes: &mut Mistakes<'_>,
    ) -> Option<Arc<KeyChain>> {
        let named = section.string("key-chain", mistakes);
        let own = section.value("key");
        match (named, own) {
            (Some(at), None) => match self.by_name.get_mut(at.value) {
                Some((chain, used)) => {
                    *used = true;
                    Some(chain.clone())
                }
                None => {
                    mistakes.at(&at.span, format!("there is no key chain '{}'", at.value.escape_debug()));
                    None
                }
            },
            (None, Some(_)) => Some(Arc::new(keys::chain(section, name.to_owned(), files, mistakes))),
            (Some(at), Some(_)) => {
                mistakes.at(&at.span, "a peer has keys of its own or a key chain, not both");
                None
            }
            (None, None) => {
                if section.value("key-chain").is_none() {
                    mistakes.at(&section.span, "a peer needs keys: key-chain = \"...\" or [[peer.key]]");
                }
                None
            }
        }
    }
}

/// The sections that a configuration and a keys file have in common.
pub(super) struct Common {
    pub(super) peers: Peers,
    pub(super) chains: Chains,
}

impl Common {
    pub(super) fn read(root: &mut Section<'_>, files: &mut KeyFiles<'_>, mistakes: &mut Mistakes<'_>) -> Self {
        let mut chains = Chains::read(root, files, mistakes);
        let mut peers = Peers::default();
        let mut names = HashSet::new();
        for mut section in root.sections("peer", mistakes) {
            let span = section.span.clone();
            if let Some(peer) = peer(&mut section, &mut names, &mut chains, files, mistakes)
                && let Some((prefix, other)) = peers.add(peer)
            {
                mistakes.at(&span, format!("{prefix} is also that of peer '{}', for the same ports", other.name));
            }
            section.finish(mistakes);
        }
        Common { peers, chains }
    }

    /// All chains, those of single peers last, with whether they are used.
    pub(super) fn all_chains(&self) -> impl Iterator<Item = (&Arc<KeyChain>, bool)> {
        let named = self.chains.order.iter().map(|name| &self.chains.by_name[name]).map(|(c, used)| (c, *used));
        let by_name: HashSet<*const KeyChain> = self.chains.by_name.values().map(|(c, _)| Arc::as_ptr(c)).collect();
        let own = self.peers.list().iter().map(|p| &p.chain);
        named.chain(own.filter(move |c| !by_name.contains(&Arc::as_ptr(c))).map(|c| (c, true)))
    }
}

fn peer(
    section: &mut Section<'_>,
    names: &mut HashSet<String>,
    chains: &mut Chains,
    files: &mut KeyFiles<'_>,
    mistakes: &mut Mistakes<'_>,
) -> Option<Peer> {
    let given = section.string("name", mistakes);
    let prefixes = peer::prefixes(section, mistakes);
    let name = match given {
        Some(at) => {
            if names.contains(at.value) {
                mistakes.at(&at.span, format!("there is another peer '{}'", at.value.escape_debug()));
            }
            at.value.to_owned()
        }
        None => {
            let first = prefixes.first().map_or_else(String::new, ToString::to_string);
            let numbered = (2..).map(|n| format!("{first} ({n})"));
            std::iter::once(first.clone()).chain(numbered).find(|n| !names.contains(n)).unwrap_or_default()
        }
    };
    names.insert(name.clone());
    let ports = peer::ports(section, mistakes);
    let mut non_empty = |field| {
        let at = section.string(field, mistakes)?;
        if at.value.is_empty() || at.value.contains('\0') {
            mistakes.at(&at.span, format!("'{field}' is not a valid name"));
        }
        Some(at.value.to_owned())
    };
    let (netns, vrf) = (non_empty("netns"), non_empty("vrf"));
    let accept_icmps = section.boolean("accept-icmp-errors", mistakes).unwrap_or(false);
    // For a peer with keys of its own, this also reads the settings of its chain.
    let chain = chains.of_peer(section, &name, files, mistakes)?;
    Some(Peer { name, prefixes, ports, netns, vrf, accept_icmps, chain })
}

fn daemon(root: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Daemon {
    let Some(mut section) = root.section("daemon", mistakes) else { return Daemon::default() };
    let metrics = section.string("metrics", mistakes).and_then(|at| match at.value.parse() {
        Ok(addr) => Some(addr),
        Err(_) => {
            mistakes.at(&at.span, "'metrics' is an address and a port, as \"127.0.0.1:9187\" or \"[::1]:9187\"");
            None
        }
    });
    let data_path = section.string("data-path", mistakes).and_then(|at| {
        let named = DataPath::named(at.value);
        if named.is_none() {
            mistakes.at(&at.span, "'data-path' is \"auto\" or \"queue\"");
        }
        named
    });
    let workers = section.integer::<u16>("workers", 1..=MAX_WORKERS.into(), mistakes).map_or(1, |at| at.value);
    let keeper = section.string("keeper", mistakes).and_then(|at| {
        let path = PathBuf::from(at.value);
        if !path.is_absolute() {
            mistakes.at(&at.span, "'keeper' is the absolute path of a socket, such as /run/sealane-keeper/socket");
            return None;
        }
        Some(path)
    });
    section.finish(mistakes);
    Daemon { metrics, data_path: data_path.unwrap_or_default(), workers, keeper }
}

/// Reads `[tcp-ao]`, if it is there: the network namespaces whose programs are served.
fn programs(root: &mut Section<'_>, mistakes: &mut Mistakes<'_>) -> Namespaces {
    let Some(mut section) = root.section("tcp-ao", mistakes) else { return Namespaces::default() };
    let programs = Namespaces::read(&mut section, mistakes);
    section.finish(mistakes);
    programs
}

/// Parses `text`. Returns the configuration, and the line of a secret in it, if any.
///
/// # Errors
/// Every mistake, in the order of the text.
pub(super) fn config(text: &str, read: ReadKeyFile<'_>) -> Result<(Config, Option<usize>), Vec<Mistake>> {
    with_root(text, read, |root, files, mistakes| {
        let daemon = daemon(root, mistakes);
        let ipsec = ipsec::ipsec(root, mistakes);
        let programs = programs(root, mistakes);
        let common = Common::read(root, files, mistakes);
        for name in ["key", "connection"] {
            if let Some(at) = root.value(name) {
                mistakes
                    .at(&at.span, format!("[[{name}]] belongs in a keys file of 'sealane tcp-ao verify' or 'sign'"));
            }
        }
        let chains = common.all_chains().map(|(c, used)| (c.clone(), used)).collect();
        Config { daemon, programs, ipsec, peers: common.peers, chains }
    })
}

/// Reads a document with `read_root`; settings that it does not read are mistakes.
pub(super) fn with_root<T>(
    text: &str,
    read: ReadKeyFile<'_>,
    read_root: impl FnOnce(&mut Section<'_>, &mut KeyFiles<'_>, &mut Mistakes<'_>) -> T,
) -> Result<(T, Option<usize>), Vec<Mistake>> {
    let mut mistakes = Mistakes::new(text);
    let table = document(text, &mut mistakes);
    let mut files = KeyFiles { read, inline: None };
    let mut root = Section::new(table.get_ref(), 0..0);
    let value = read_root(&mut root, &mut files, &mut mistakes);
    root.finish(&mut mistakes);
    let inline = files.inline.map(|span| super::section::place(text, span.start).0);
    match mistakes.into_sorted() {
        none if none.is_empty() => Ok((value, inline)),
        list => Err(list),
    }
}
