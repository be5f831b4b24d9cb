//! Functions common to `sealane tcp-ao verify` and `sign`: loading keys into an observer, and opening captures.

use anyhow::{Context, Result, bail};
use sealane_capture::Reader;
use sealane_config::{KeysFile, Known, Peer, Secret};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::mkt::{Mkt, MktSpec, Prefix};
use sealane_net_ao::observe::{Observer, WatchKey};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// The description of a key in reports.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct KeyLabel {
    /// The name of the peer in the configuration, or the number of the key in a file that contains only keys.
    pub(crate) peer: String,
    pub(crate) id: u64,
    pub(crate) send_id: u8,
    pub(crate) recv_id: u8,
    pub(crate) algorithm: &'static str,
}

/// An observer, with the descriptions of its keys in the same order.
pub(crate) struct Watch {
    pub(crate) observer: Observer,
    pub(crate) labels: Vec<KeyLabel>,
}

/// Loads the keys of a file into an observer, with the initial sequence numbers of `--isn`.
pub(crate) fn watch(keys: &Path, isns: &[String]) -> Result<Watch> {
    let file = KeysFile::load(keys)?;
    let registry = super::registry()?;
    let algorithms = Arc::new(Algorithms::new(&registry));
    let (mut list, mut labels) = (Vec::new(), Vec::new());
    for peer in &file.peers {
        add(peer, &algorithms, &mut list, &mut labels)?;
    }
    if list.is_empty() {
        bail!("{}: no key whose secret is in the file", keys.display());
    }
    let mut observer = Observer::new(list, algorithms);
    let given = isns.iter().map(|text| known(text).with_context(|| format!("--isn '{text}'")));
    for known in file.known.into_iter().map(Ok).chain(given) {
        let Known { ends: [a, b], isns: [isn_a, isn_b] } = known?;
        observer.know(a, b, isn_a, isn_b);
    }
    Ok(Watch { observer, labels })
}

fn add(peer: &Peer, algorithms: &Algorithms, list: &mut Vec<WatchKey>, labels: &mut Vec<KeyLabel>) -> Result<()> {
    for key in &peer.chain.keys {
        let name = || format!("peer '{}', key {}", peer.name, key.id);
        let algorithm = algorithms
            .get(&key.algorithm)
            .with_context(|| format!("{}: algorithm {} is not available", name(), key.algorithm))?;
        let Secret::Bytes(secret) = &key.secret else {
            eprintln!("sealane: {}: its secret is in the keeper: nothing is verified by it", name());
            continue;
        };
        for prefix in &peer.prefixes {
            let spec = MktSpec {
                algorithm,
                key: secret,
                send_id: key.send_id,
                recv_id: key.recv_id,
                mac_len: key.mac_len.into(),
                exclude_options: key.exclude_options,
                peer: Prefix { addr: prefix.addr, len: prefix.len },
                ifindex: None,
            };
            list.push(WatchKey {
                mkt: Arc::new(Mkt::new(&spec).with_context(name)?),
                ports: peer.ports.0.clone(),
                send: key.send.start_s..key.send.end_s,
                accept: key.accept.start_s..key.accept.end_s,
            });
            labels.push(KeyLabel {
                peer: peer.name.clone(),
                id: key.id,
                send_id: key.send_id,
                recv_id: key.recv_id,
                algorithm: algorithm.name,
            });
        }
    }
    Ok(())
}

/// Parses an argument of `--isn`: `A,B=ISN,ISN`.
fn known(text: &str) -> Result<Known> {
    let form = "expected ADDRESS:PORT,ADDRESS:PORT=ISN,ISN";
    let (ends, isns) = text.split_once('=').context(form)?;
    let pair = |text: &str| text.split_once(',').map(|(a, b)| [a.trim().to_owned(), b.trim().to_owned()]);
    let [a, b] = pair(ends).context(form)?;
    let end = |text: &str| text.parse::<SocketAddr>().with_context(|| format!("'{text}' is not ADDRESS:PORT"));
    let [isn_a, isn_b] = pair(isns).context(form)?;
    let isn = |text: &str| {
        let parsed = match text.strip_prefix("0x") {
            Some(digits) => u32::from_str_radix(digits, 16),
            None => text.parse(),
        };
        parsed.with_context(|| format!("'{text}' is not a sequence number"))
    };
    Ok(Known { ends: [end(&a)?, end(&b)?], isns: [isn(&isn_a)?, isn(&isn_b)?] })
}

/// Opens a capture file; `-` is standard input.
pub(crate) fn open(path: &Path) -> Result<Reader<'static>> {
    let name = || path.display().to_string();
    let input: Box<dyn Read + Send> =
        if path == Path::new("-") { Box::new(io::stdin()) } else { Box::new(File::open(path).with_context(name)?) };
    Reader::new(input).with_context(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_sequence_numbers_are_read() {
        let Known { ends, isns } = known("192.0.2.1:5,[::1]:179 = 0xfbfbab5a, 7").unwrap();
        assert_eq!(ends, ["192.0.2.1:5".parse().unwrap(), "[::1]:179".parse().unwrap()]);
        assert_eq!(isns, [0xfbfb_ab5a, 7]);
        for wrong in [
            "",
            "192.0.2.1:5",
            "192.0.2.1:5,x=1,2",
            "192.0.2.1:5,192.0.2.1:6=1",
            "192.0.2.1:5,192.0.2.1:6=1,4294967296",
        ] {
            assert!(known(wrong).is_err(), "{wrong}");
        }
    }
}
