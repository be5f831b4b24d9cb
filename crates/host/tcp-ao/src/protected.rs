//! The protected peers of a namespace. The rules cover a peer before its first key is set, and until long after its
//! last key is gone.

use super::covered::Protected;
use super::path::Shared;
use parking_lot::MutexGuard;
use sealane_net_ao::mkt::Prefix;
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};
use tracing::debug;

/// The time for which a prefix has to be unused before it is removed: longer than the kernel retries a SYN-ACK or keeps
/// TIME_WAIT.
const GRACE: Duration = Duration::from_secs(180);
/// The most prefixes that are removed at a time, which takes about 12 ms.
const MAX_GOING: usize = 4096;

/// A guard while which no prefix is removed, so that a key can be set under the rule.
pub struct KeyGuard<'a>(#[expect(dead_code, reason = "held, not looked at")] MutexGuard<'a, Protected>);

impl Shared {
    /// Protects the peers of a prefix for good: no segment to or from them passes the rules from now on.
    ///
    /// # Errors
    /// The kernel's; the peers are not protected then.
    pub(super) fn protect(&self, prefix: Prefix) -> io::Result<()> {
        let mut protected = self.protected.lock();
        if !protected.has(&prefix) {
            self.write_rules(&[prefix])?;
        }
        protected.by_keys.remove(&prefix);
        protected.fixed.insert(prefix);
        Ok(())
    }

    /// Protects the peers of prefixes for a key that is set while the returned guard lives.
    ///
    /// # Errors
    /// As [`Shared::protect`].
    pub(super) fn protect_for_key(&self, prefixes: &[Prefix]) -> io::Result<KeyGuard<'_>> {
        let mut protected = self.protected.lock();
        let new: Vec<Prefix> = prefixes.iter().filter(|p| !protected.has(p)).copied().collect();
        if !new.is_empty() {
            self.write_rules(&new)?;
            protected.by_keys.extend(new.into_iter().map(|p| (p, None)));
        }
        Ok(KeyGuard(protected))
    }

    fn write_rules(&self, prefixes: &[Prefix]) -> io::Result<()> {
        let list: Vec<_> = prefixes.iter().map(|p| (p.addr, p.len)).collect();
        self.table.lock().as_mut().ok_or(io::ErrorKind::NotConnected)?.protect(&list)?;
        debug!(peers = list.len(), "TCP-AO: the rules cover more peers");
        Ok(())
    }

    /// Removes prefixes from the rules that no key and no connection has used for a while. To be called about once a
    /// minute.
    ///
    /// # Errors
    /// The kernel's; the prefixes stay then.
    pub(super) fn unprotect_unused(&self, now: Instant) -> io::Result<()> {
        // While a key is being set, this can wait.
        let Some(mut protected) = self.protected.try_lock() else { return Ok(()) };
        if protected.by_keys.is_empty() {
            return Ok(());
        }
        let mut unused: HashSet<Prefix> = protected.by_keys.keys().copied().collect();
        {
            let engine = self.engine.lock();
            for peer in engine.key_peers() {
                unused.remove(&peer);
                if !protected.has(&peer) {
                    // This must not be. Nothing is removed if it is.
                    return Ok(());
                }
            }
            if engine.requires() {
                unused.clear();
            }
            let nets: Vec<Prefix> = unused.iter().filter(|p| **p != Prefix::host(p.addr)).copied().collect();
            for (ends, _) in engine.connections() {
                unused.remove(&Prefix::host(ends.remote.ip()));
                for net in nets.iter().filter(|net| net.contains(ends.remote.ip())) {
                    unused.remove(net);
                }
            }
        }
        let mut going = Vec::new();
        for (prefix, since) in &mut protected.by_keys {
            *since = unused.contains(prefix).then(|| since.unwrap_or(now));
            if since.is_some_and(|since| now.duration_since(since) >= GRACE) && going.len() < MAX_GOING {
                going.push(*prefix);
            }
        }
        if going.is_empty() {
            return Ok(());
        }
        let list: Vec<_> = going.iter().map(|p| (p.addr, p.len)).collect();
        if let Some(table) = self.table.lock().as_mut() {
            table.unprotect(&list)?;
        }
        debug!(peers = list.len(), "TCP-AO: the rules cover fewer peers");
        for prefix in going {
            protected.by_keys.remove(&prefix);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Spaces;
    use sealane_abi::Profile;
    use sealane_abi::admin::DataPath;
    use sealane_abi::tcp::{State, TCP_AO_ADD_KEY, TCP_AO_DEL_KEY};
    use sealane_engine_ao::{Family, NoVrfs, SocketFacts, SocketId};
    use sealane_net_ao::alg::Algorithms;
    use sealane_rules::ao::left;
    use sealane_sys::testing;

    fn facts() -> SocketFacts<'static> {
        SocketFacts {
            family: Family::V4,
            state: State::Close,
            local: None,
            peer: None,
            v6only: false,
            bound_ifindex: 0,
            repair: None,
            net_admin: true,
            interfaces: &NoVrfs,
        }
    }

    #[test]
    fn a_peer_without_keys_goes_out_of_the_rules_in_time() {
        let Some(ns) = testing::namespace("ao::protected") else { return };
        let spaces = Spaces::new(Profile::Open, Algorithms::new(&sealane_drivers::system_registry().0), DataPath::Auto);
        let space = spaces.of(ns.try_clone().expect("a descriptor"), true).expect("it can be served").expect("made");
        let shared = space.shared();
        let rules = || {
            let mut list = ns.run(left).expect("the rules");
            list.sort();
            list.into_iter().map(|(addr, len)| format!("{addr}/{len}")).collect::<Vec<_>>()
        };
        let set = |name, peer: [u8; 4], len: u8, value: &mut [u8]| {
            value[..2].copy_from_slice(&2u16.to_ne_bytes());
            value[4..8].copy_from_slice(&peer);
            let held = shared.protect_for_key(&[Prefix { addr: peer.into(), len }]).expect("a rule");
            let len = value.len() as i32;
            space.engine().setsockopt(SocketId(1), &facts(), name, value, len).expect("it is well formed");
            drop(held);
        };
        let add = |peer, len| {
            let mut value = vec![0; 288];
            value[128..138].copy_from_slice(b"hmac(sha1)");
            value[202..208].copy_from_slice(&[len, 1, 1, 0, 0, 6]);
            set(TCP_AO_ADD_KEY, peer, len, &mut value);
        };
        let del = |peer, len| {
            let mut value = vec![0; 144];
            value[138..141].copy_from_slice(&[len, 1, 1]);
            set(TCP_AO_DEL_KEY, peer, len, &mut value);
        };
        let later = |s| Instant::now() + Duration::from_secs(s);
        shared.protect(Prefix::host([192, 0, 2, 1].into())).expect("a rule");
        add([10, 0, 0, 0], 8);
        add([203, 0, 113, 7], 32);
        let all = ["10.0.0.0/8", "192.0.2.1/32", "203.0.113.7/32"];
        shared.unprotect_unused(later(0)).expect("nothing");
        shared.unprotect_unused(later(1_000)).expect("nothing");
        assert_eq!(rules(), all);
        del([10, 0, 0, 0], 8);
        del([203, 0, 113, 7], 32);
        add([10, 1, 0, 0], 16);
        shared.unprotect_unused(later(2_000)).expect("it begins to count");
        shared.unprotect_unused(later(2_179)).expect("too early");
        assert_eq!(rules(), all, "the wider one stands for the narrower");
        add([203, 0, 113, 7], 32);
        shared.unprotect_unused(later(2_181)).expect("one goes");
        assert_eq!(
            rules(),
            ["10.1.0.0/16", "192.0.2.1/32", "203.0.113.7/32"],
            "what has a key, and what was put there for good"
        );
        spaces.stop(|_| true);
    }
}
