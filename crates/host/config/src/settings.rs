//! A configuration, as it is used.

use super::ipsec::Ipsec;
use super::keys::{KeyChain, WhenExpired};
use super::peer::{Flow, Peer, Peers};
use super::time::rfc3339;
use sealane_abi::admin::DataPath;
use std::net::SocketAddr;
use std::sync::Arc;

/// What the daemon itself is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Where Prometheus may ask for metrics over HTTP. `None`: nowhere.
    pub metrics: Option<SocketAddr>,
    /// How segments may travel. Read at the start only.
    pub data_path: DataPath,
    /// The number of threads that move the segments of TCP-AO in each network namespace. Read at the start only.
    pub workers: u16,
}

impl Default for Daemon {
    fn default() -> Self {
        Daemon { metrics: None, data_path: DataPath::default(), workers: 1 }
    }
}

/// A configuration without mistakes.
pub struct Config {
    /// Settings of the daemon itself.
    pub daemon: Daemon,
    /// Where IPsec is served. `None`: nowhere.
    pub ipsec: Option<Ipsec>,
    pub(super) peers: Peers,
    /// Every chain, those of single peers last, and whether a peer uses it.
    pub chains: Vec<(Arc<KeyChain>, bool)>,
}

impl Config {
    /// Peers to protect, in the order of the file.
    #[must_use]
    pub fn peers(&self) -> &[Peer] {
        self.peers.list()
    }

    /// The peer whose keys a connection has: the one with the longest prefix.
    #[must_use]
    pub fn peer_of(&self, flow: &Flow<'_>) -> Option<&Peer> {
        self.peers.lookup(flow)
    }

    /// What can be meant, but seldom is, at `now_s`.
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
        warnings
    }
}
