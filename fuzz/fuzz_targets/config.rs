//! Configurations and key files: mistakes have a position, and an accepted configuration has a key schedule that ends.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_config::{Config, Flow, KeyChain, KeysFile, Mistake};
use std::path::Path;
use zeroize::Zeroizing;

/// Reads a key file, whose contents depend on its name; some cannot be read.
fn key_file(path: &Path) -> std::io::Result<Zeroizing<Vec<u8>>> {
    let name = path.as_os_str().as_encoded_bytes();
    if name.first() == Some(&b'/') {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    Ok(Zeroizing::new(name.to_vec()))
}

fn check_mistakes(text: &str, list: &[Mistake]) {
    assert!(!list.is_empty());
    let lines = text.split('\n').count();
    assert!(list.iter().all(|m| (1..=lines).contains(&m.line) && m.column >= 1 && !m.what.is_empty()), "{list:?}");
    assert!(list.is_sorted());
}

/// Follows a chain through every change.
fn check_schedule(chain: &KeyChain) {
    let mut now_s = i64::MIN;
    // Each key has four edges.
    for _ in 0..chain.keys.len() * 4 + 2 {
        let accepted = chain.accepted(now_s);
        let preferred = chain.preferred(now_s);
        assert!(preferred.is_none_or(|k| chain.may_send(k, now_s)));
        for k in 0..chain.keys.len() {
            assert_eq!(chain.accepts(k, now_s), accepted.contains(&k));
            assert!(!chain.may_send(k, now_s) || accepted.contains(&k));
        }
        for (i, &a) in accepted.iter().enumerate() {
            let (a, others) = (&chain.keys[a], &accepted[i + 1..]);
            assert!(others.iter().all(|&b| a.send_id != chain.keys[b].send_id && a.recv_id != chain.keys[b].recv_id));
        }
        match chain.next_change_s(now_s) {
            Some(next) => {
                assert!(next > now_s);
                now_s = next;
            }
            None => return,
        }
    }
    panic!("more changes than edges");
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match Config::parse(text, &mut key_file) {
        Ok(config) => {
            let _ = config.warnings(0);
            config.chains.iter().for_each(|(chain, _)| check_schedule(chain));
            for peer in config.peers() {
                let prefix = peer.prefixes[0];
                let end = |port| std::net::SocketAddr::new(prefix.addr, port);
                let (netns, vrf) = (peer.netns.as_deref(), peer.vrf.as_deref());
                if peer.ports.contains(1, 179) {
                    let found = config.peer_of(&Flow { netns, vrf, local: end(1), remote: end(179) });
                    assert!(found.is_some_and(|p| p.prefixes.iter().any(|p| p.len >= prefix.len)));
                }
            }
        }
        Err(list) => check_mistakes(text, &list),
    }
    if let Err(list) = KeysFile::parse(text, &mut key_file) {
        check_mistakes(text, &list);
    }
});
