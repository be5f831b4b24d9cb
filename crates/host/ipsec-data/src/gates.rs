//! The xfrm interfaces that opened packets come out of.

use crate::join::{Joins, UnfinishedSuperframe};
use parking_lot::{MappedMutexGuard, Mutex, MutexGuard, RwLock};
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_packets::tun::Tun;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The device by which packets opened by states with an interface id go up to the stack.
pub struct Gate {
    /// Its name among the devices of the namespace; none while it is in another one.
    pub name: Mutex<Option<String>>,
    if_id: u32,
    to: Mutex<(Tun, UnfinishedSuperframe)>,
}

impl Gate {
    /// The gate of a TUN device, by its name in the namespace, if it is there.
    #[must_use]
    pub fn new(name: Option<String>, if_id: u32, tun: Tun) -> Self {
        Gate { name: Mutex::new(name), if_id, to: Mutex::new((tun, UnfinishedSuperframe::new())) }
    }

    /// Its device. No packet of the gate goes up meanwhile.
    pub fn tun(&self) -> MappedMutexGuard<'_, Tun> {
        MutexGuard::map(self.to.lock(), |(tun, _)| tun)
    }
}

/// The gates of all xfrm interfaces of a namespace.
#[derive(Default)]
pub struct Gates {
    list: RwLock<Vec<Arc<Gate>>>,
    any: AtomicBool,
}

impl Gates {
    /// Whether there are any. A stale answer only makes a worker hold the tables longer for one burst.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Replaces them by these.
    pub fn set(&self, gates: Vec<Arc<Gate>>) {
        let mut list = self.list.write();
        self.any.store(!gates.is_empty(), Ordering::Relaxed);
        *list = gates;
    }

    /// The names of the interfaces that are in the namespace.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.list.read().iter().filter_map(|gate| gate.name.lock().clone()).collect()
    }

    /// Their interface ids.
    #[must_use]
    pub fn if_ids(&self) -> Vec<u32> {
        self.list.read().iter().map(|gate| gate.if_id).collect()
    }

    /// Gives opened packets of interfaces to the stack. Returns how many it did not take, or have no interface.
    pub(crate) fn deliver(&self, packets: &[Inbound<'_>]) -> u64 {
        let list = self.list.read();
        let opened = |packet: &&Inbound<'_>| matches!(packet.status, Ok(Opened::Packet)) && packet.if_id != 0;
        let all = || packets.iter().filter(opened);
        let mut lost = all().filter(|packet| !list.iter().any(|gate| gate.if_id == packet.if_id)).count() as u64;
        for gate in list.iter().filter(|gate| all().any(|packet| packet.if_id == gate.if_id)) {
            let (tun, unfinished) = &mut *gate.to.lock();
            let mut joins = Joins::new(unfinished);
            for packet in all().filter(|packet| packet.if_id == gate.if_id) {
                lost += u64::from(joins.push(packet.packet.bytes(), None, tun).is_err());
            }
            // Several threads have packets for it, so none knows whether more follow.
            lost += u64::from(joins.finish(false, tun).is_err());
        }
        lost
    }
}
