//! The parsed configuration.

use super::ipsec::{Ipsec, PARTIAL_MACS_RISK};
use super::keys::{KeyChain, WhenExpired};
use super::namespaces::Namespaces;
use super::peer::{Flow, Peer, Peers};
use super::time::rfc3339;
use sealane_abi::admin::DataPath;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// Settings of the daemon itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// The address at which metrics are served to Prometheus over HTTP; `None` if they are not.
    pub metrics: Option<SocketAddr>,
    /// The data path of segments. Read only at the start of the daemon.
    pub data_path: DataPath,
    /// The number of threads that process TCP-AO segments in each network namespace. Read only at the start of the daemon.
    pub workers: u16,
    /// The socket of the keeper that has the keys which say so; `None` for the usual one. Read only at the start of the daemon.
    pub keeper: Option<PathBuf>,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon { metrics: None, data_path: DataPath::default(), workers: 1, keeper: None }
    }
}

/// A valid configuration.
pub struct Config {
    /// Settings of the daemon itself.
    pub daemon: Daemon,
    /// The network namespaces in which programs under `sealane run --tcp-ao` are served.
    pub programs: Namespaces,
    /// The settings of IPsec; `None` if it is not served.
    pub ipsec: Option<Ipsec>,
    pub(super) peers: Peers,
    /// All chains, those of single peers last, with whether a peer uses them.
    pub chains: Vec<(Arc<KeyChain>, bool)>,
}

impl Config {
    /// The peers to protect, in the order of the file.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        self.peers.list()
    }

    /// The peer whose keys a connection uses: the one with the longest matching prefix.
    #[must_use]
    pub fn peer_of(&self, flow: &Flow<'_>) -> Option<&Peer> {
        self.peers.lookup(flow)
    }

    /// Warnings about settings that are valid but probably not intended, at `now_s`.
    #[must_use]
    pub fn warnings(&self, now_s: i64) -> Vec<String> {
        let mut warnings = Vec::new();
        for (chain, used) in &self.chains {
            let name = &chain.name;
            if !used {
                warnings.push(format!("key chain '{name}' is used by no peer"));
            }
            for gap in chain.gaps() {
                warnings.push(format!("key chain '{name}' has no key to send with: {gap}"));
            }
            if chain.preferred(now_s).is_none() {
                warnings.push(format!("key chain '{name}' has no key to send with now: its peers are cut off"));
            } else if let Some(end) = chain.end_s() {
                let then = match chain.when_expired {
                    WhenExpired::Stop => "its peers are cut off",
                    WhenExpired::KeepLast => "its last key stays in use",
                };
                warnings.push(format!("key chain '{name}' ends {}: then {then}", rfc3339(end)));
            }
        }
        for peer in self.peers() {
            if let Some(wide) = peer.prefixes.iter().find(|p| p.len == 0 && peer.ports.0.is_empty()) {
                warnings.push(format!("peer '{}' is every connection there is ({wide}, all ports)", peer.name));
            }
        }
        if self.ipsec.as_ref().is_some_and(|ipsec| ipsec.partial_macs) {
            warnings.push(format!("'allow-partial-macs' is set: {PARTIAL_MACS_RISK}, of states that ask for it"));
        }
        warnings
    }
}
