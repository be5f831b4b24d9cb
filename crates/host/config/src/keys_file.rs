//! Keys for the analysis of captures: `sealane tcp-ao verify --keys FILE`.
//!
//! The file is the daemon's own configuration, or one with only `[[key]]` sections. `[[connection]]` sections give the
//! initial sequence numbers of connections whose handshake was not captured.

use super::keys::{self, Key, KeyChain};
use super::parse::{Common, with_root};
use super::peer::{Peer, Ports, prefixes};
use super::secret::ReadKeyFile;
use super::section::{At, Mistake, Mistakes, Section};
use super::{LoadError, load};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The initial sequence numbers of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Both ends.
    pub ends: [SocketAddr; 2],
    /// The initial sequence number of each end's own segments.
    pub isns: [u32; 2],
}

/// The contents of a keys file.
pub struct KeysFile {
    /// The owners of the keys: peers of the configuration, then single keys (as peers with any port).
    pub peers: Vec<Peer>,
    /// Connections whose initial sequence numbers are known.
    pub known: Vec<Known>,
}

impl KeysFile {
    /// Reads the keys file `path`. If it contains a secret, only its owner may be able to read it.
    ///
    /// # Errors
    /// As for a configuration.
    pub fn load(path: &Path) -> Result<KeysFile, LoadError> {
        load(path, parse)
    }

    /// Parses `text`.
    ///
    /// # Errors
    /// Every mistake, in the order of the text.
    pub fn parse(text: &str, read: ReadKeyFile<'_>) -> Result<KeysFile, Vec<Mistake>> {
        parse(text, read).map(|(file, _)| file)
    }
}

fn parse(text: &str, read: ReadKeyFile<'_>) -> Result<(KeysFile, Option<usize>), Vec<Mistake>> {
    with_root(text, read, |root, files, mistakes| {
        // The daemon's settings are ignored here.
        root.value("daemon");
        let mut peers = Common::read(root, files, mistakes).peers.into_list();
        for (place, mut section) in (1..).zip(root.sections("key", mistakes)) {
            let prefixes = match section.value("prefix") {
                Some(_) => prefixes(&mut section, mistakes),
                None => {
                    vec![super::Prefix { addr: [0; 4].into(), len: 0 }, super::Prefix { addr: [0; 16].into(), len: 0 }]
                }
            };
            if let Some(key) = keys::key(&mut section, place, 0, files, mistakes) {
                peers.push(lone(place, prefixes, key));
            }
            section.finish(mistakes);
        }
        let known = root.sections("connection", mistakes).into_iter().filter_map(|s| connection(s, mistakes)).collect();
        KeysFile { peers, known }
    })
}

/// Turns a key without a peer into a peer with any port.
fn lone(place: u64, prefixes: Vec<super::Prefix>, key: Key) -> Peer {
    let name = format!("key {place}");
    let chain = Arc::new(KeyChain { name: name.clone(), keys: vec![key], ..KeyChain::default() });
    Peer { name, prefixes, ports: Ports::default(), netns: None, vrf: None, accept_icmps: false, chain }
}

fn connection(mut section: Section<'_>, mistakes: &mut Mistakes<'_>) -> Option<Known> {
    let mut end = |name| match section.string(name, mistakes) {
        Some(At { value, span }) => {
            let parsed: Option<SocketAddr> = value.parse().ok();
            if parsed.is_none() {
                mistakes.at(&span, format!("'{name}' is an address and a port, as \"192.0.2.1:179\" or \"[::1]:179\""));
            }
            parsed
        }
        None => {
            section.missing(name, mistakes);
            None
        }
    };
    let ends = (end("client"), end("server"));
    let mut isn = |name| {
        let isn = section.integer::<u32>(name, 0..=u32::MAX.into(), mistakes).map(|at| at.value);
        if section.value(name).is_none() {
            section.missing(name, mistakes);
        }
        isn
    };
    let isns = (isn("client-isn"), isn("server-isn"));
    section.finish(mistakes);
    let ((Some(client), Some(server)), (Some(client_isn), Some(server_isn))) = (ends, isns) else { return None };
    Some(Known { ends: [client, server], isns: [client_isn, server_isn] })
}
