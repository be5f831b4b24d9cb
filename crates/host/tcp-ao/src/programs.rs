//! Sockets whose programs set keys, across a restart of the daemon.
//!
//! Sockets of before are restored with their keys and connections. Where what was kept is lost, nobody knows which
//! connections had keys: the peers that the rules still cover are cut off then, except for sockets that get new keys.

use super::kept::{Left, Store};
use super::path::{Shared, maybe_unbound};
use sealane_abi::tcp::State;
use sealane_engine_ao::{ConfiguredPeer, Ends, KeptSocket, SocketId};
use sealane_net_ao::alg::Algorithms;
use sealane_net_ao::mkt::Prefix;
use sealane_rules::ao::left;
use sealane_sys::netns::Netns;
use sealane_sys::sock_diag::SockDiag;
use std::collections::HashSet;
use std::io;
use tracing::{error, info, warn};

/// The name of the peer that stands for all whose keys are lost.
pub(super) const LOST: &str = "keys that are lost";
/// Its number. Those of configured peers count from 0.
pub(super) const LOST_NUMBER: u32 = u32::MAX;
/// The same for the peers of VRFs that are not there.
pub(super) const ABSENT: &str = "VRFs that are not there";
pub(super) const ABSENT_NUMBER: u32 = u32::MAX - 1;

/// The remains of a predecessor in a namespace whose programs are served.
pub(super) struct Before {
    store: Store,
    sockets: Vec<KeptSocket>,
    /// The peers that the rules cover.
    pub(super) covered: Vec<Prefix>,
    /// The peers that are cut off, because what was kept is lost.
    pub(super) lost: Vec<Prefix>,
}

impl Before {
    /// Looks for it.
    ///
    /// # Errors
    /// The kernel's.
    pub(super) fn find(store: Store, algorithms: &Algorithms, netns: &Netns) -> io::Result<Before> {
        let covered: Vec<Prefix> = netns.run(left)?.into_iter().map(|(addr, len)| Prefix { addr, len }).collect();
        let (sockets, is_lost) = match store.read(algorithms) {
            Left::Sockets(sockets) => (sockets, false),
            Left::Nothing => (Vec::new(), true),
            Left::Unreadable => (Vec::new(), true),
        };
        let lost = if is_lost { covered.clone() } else { Vec::new() };
        let keys = sockets.iter().flat_map(|socket| &socket.keys).map(|mkt| mkt.peer);
        let covered: HashSet<Prefix> = covered.into_iter().chain(keys).collect();
        Ok(Before { store, sockets, covered: covered.into_iter().collect(), lost })
    }

    /// Cuts off the peers whose keys are lost, except for those of the configuration.
    pub(super) fn cut_off(&mut self, configured: &[Prefix], shared: &Shared) {
        self.lost.retain(|prefix| !configured.contains(prefix));
        if !self.lost.is_empty() {
            let peers = self.lost.iter().map(Prefix::to_string).collect::<Vec<_>>().join(", ");
            error!(
                peers,
                "TCP-AO: the keys that programs had set for {peers} are lost: these peers are cut off until they get new ones"
            );
            let keys = Vec::new();
            let lost = ConfiguredPeer { number: LOST_NUMBER, name: LOST, keys, accept_icmps: false };
            shared.engine.lock().configure(&[lost]);
        }
    }

    /// Restores the sockets, and keeps them and all others for the next daemon.
    pub(super) fn restore(self, shared: &Shared, netns: &Netns) {
        let mut going_on = 0;
        if !self.sockets.is_empty() {
            let alive = Alive::ask(shared, netns);
            if let Err(e) = &alive {
                warn!(error = %e, "TCP-AO: which sockets are left: {e}");
            }
            let mut engine = shared.engine.lock();
            for kept in &self.sockets {
                let (id, is_keyed) = engine.restore_kept(kept);
                if !is_keyed {
                    error!(
                        cookie = kept.cookie,
                        "TCP-AO: the keys of a socket of before cannot be derived: it is cut off"
                    );
                }
                let Ok(alive) = &alive else { continue };
                match &kept.conn {
                    Some(conn) => {
                        let ends = Ends::new(conn.local, conn.remote).in_vrf(kept.vrf);
                        if maybe_unbound(ends).iter().any(|ends| alive.connections.contains(ends)) {
                            going_on += usize::from(kept.keyed);
                        } else {
                            engine.destroyed(id, Some(ends), shared.now_ms());
                        }
                    }
                    None if kept.listening && !alive.listeners.contains(&id) => drop(engine.closed(id)),
                    None => {}
                }
            }
        }
        if going_on > 0 {
            info!(connections = going_on, "{going_on} connections of programs go on");
        }
        self.keep(shared);
    }

    /// Keeps the sockets of programs from now on.
    pub(super) fn keep(self, shared: &Shared) {
        begin(self.store, shared);
    }
}

/// Keeps the sockets of a namespace's programs from now on.
pub(super) fn begin(store: Store, shared: &Shared) {
    shared.kept.get_or_init(|| store.begin(&mut shared.engine.lock()).into());
}

/// The sockets that a namespace has.
struct Alive {
    connections: HashSet<Ends>,
    listeners: HashSet<SocketId>,
}

impl Alive {
    fn ask(shared: &Shared, netns: &Netns) -> io::Result<Self> {
        let mut alive = Alive { connections: HashSet::new(), listeners: HashSet::new() };
        netns.run(|| {
            let mut diag = SockDiag::open()?;
            diag.connections(|e| {
                if e.state != State::TimeWait {
                    alive.connections.insert(shared.ends_of(&e));
                }
            })?;
            diag.listeners(|e| {
                alive.listeners.insert(SocketId(e.cookie));
            })
        })?;
        Ok(alive)
    }
}
