//! The UDP sockets of a thread: those of port 4500, which are opened at the start, and those of other ports, which are
//! opened by the first thread that sends by them and are closed when no state has them any more. Where key managers have
//! bound such a port of one address, one thread reads one more for this address.

use crate::groups::Port;
use crate::shared::Shared;
use crate::sockets::LentSockets;
use sealane_packets::esp::UdpEsp;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The states that are looked at while the engine is locked once.
const LOOKS: usize = 4096;

/// The UDP sockets of one thread.
pub(crate) struct Ports {
    /// The sockets that the worker reads: of port 4500 first, then of others.
    own: Vec<Arc<UdpEsp>>,
    /// The number of sockets of port 4500. All threads have those; one of them reads them.
    common: usize,
    /// Sockets of other ports that other workers opened and read.
    lent: LentSockets,
    /// Its own that no state had when they were last looked at.
    unused: BTreeSet<Port>,
    /// The most that it can wait for.
    most: usize,
    /// Whether workers of the stack use each other's.
    lends: bool,
    /// There are sockets of one address that no key manager is beside any more.
    left: bool,
}

fn port_of(socket: &UdpEsp) -> Port {
    (socket.is_v6(), socket.port())
}

impl Ports {
    /// Starts with these of port 4500, and room for so many in all. Workers of the stack lend theirs to each other.
    pub(crate) fn new(common: Vec<Arc<UdpEsp>>, most: usize, lends: bool) -> Self {
        let (lent, unused) = (LentSockets::new(), BTreeSet::new());
        Ports { common: common.len(), own: common, lent, unused, most, lends, left: false }
    }

    /// The sockets that this thread reads.
    pub(crate) fn own(&self) -> &[Arc<UdpEsp>] {
        &self.own
    }

    /// The number of sockets of port 4500, which come first.
    pub(crate) fn common(&self) -> usize {
        self.common
    }

    /// Whether there are any of other ports.
    pub(crate) fn has_others(&self) -> bool {
        self.own.len() > self.common
    }

    /// The socket of a port. It is opened where there is none yet and there is room.
    pub(crate) fn socket(&mut self, shared: &Shared, port: Port) -> Option<Arc<UdpEsp>> {
        let Ports { own, lent, most, lends, .. } = self;
        if let Some(socket) = own.iter().find(|socket| port_of(socket) == port && socket.at().ip().is_unspecified()) {
            return Some(socket.clone());
        }
        if let Some(at) = lent.iter().position(|(of, _)| *of == port) {
            match lent[at].1.upgrade() {
                None => lent.swap_remove(at),
                socket => return socket,
            };
        }
        let room = own.len() < *most;
        let open = || shared.groups.lock().open(port, shared.bits.exempt, 1).ok()?.pop();
        let mut all = shared.ports.lock();
        let mut others = all.iter().filter(|(of, _)| *lends && *of == port);
        if let Some(socket) = others.find_map(|(_, socket)| socket.upgrade()) {
            lent.push((port, Arc::downgrade(&socket)));
            return Some(socket);
        }
        let socket = if room { open() } else { None }?;
        shared.note_request();
        own.push(socket.clone());
        if *lends {
            all.push((port, Arc::downgrade(&socket)));
        }
        Some(socket)
    }

    /// Reads all sockets that there are beside those of key managers which are bound to one address.
    pub(crate) fn join_key_managers(&mut self, shared: &Shared) {
        let Ports { own, most, left, .. } = self;
        let mut groups = shared.groups.lock();
        groups.drop_beside(|socket| {
            let new = own.iter().all(|own| !Arc::ptr_eq(own, socket));
            let room = own.len() < *most;
            if new && room {
                own.push(socket.clone());
            }
            !new || room
        });
        *left = groups.has_left();
    }

    /// Whether there are sockets of one address that no key manager is beside any more.
    pub(crate) fn has_left(&self) -> bool {
        self.left
    }

    /// Closes sockets of one address that no key manager is beside any more.
    pub(crate) fn close_left(&mut self, shared: &Shared) {
        let mut groups = shared.groups.lock();
        groups.close_left();
        self.left = false;
        let kept = groups.beside();
        self.own.retain(|own| own.at().ip().is_unspecified() || kept.iter().any(|kept| Arc::ptr_eq(kept, own)));
    }

    /// Closes sockets of other ports than 4500 that no state had when this was called the last time, and none has now.
    pub(crate) fn close_unused(&mut self, shared: &Shared) {
        let Ports { own, common, unused: before, .. } = self;
        let mut unused: BTreeSet<Port> = own.iter().skip(*common).map(|socket| port_of(socket)).collect();
        let mut from = if unused.is_empty() { None } else { Some(0) };
        while let Some(next) = from {
            from = shared.xfrm().udp_ports(next, LOOKS, |v6, port| {
                unused.remove(&(v6, port));
            });
        }
        // Closed before anybody takes them for closed.
        let _groups = shared.groups.lock();
        let mut at = 0..;
        own.retain(|socket| {
            let (port, common) = (port_of(socket), at.next() < Some(*common));
            common || !socket.at().ip().is_unspecified() || !before.contains(&port) || !unused.contains(&port)
        });
        shared.ports.lock().retain(|(_, socket)| socket.strong_count() > 0);
        *before = unused;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::most_udp;
    use crate::tests::{add_state, shared};
    use std::net::UdpSocket;

    #[test]
    fn a_thread_has_no_more_ports_than_it_can_wait_for() {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::ports") else { return };
        let shared = &*shared(&netns);
        let mut ports = Ports::new(Vec::new(), 3, true);
        netns
            .run(|| {
                let most = 3;
                let mut has = |port, most| {
                    ports.most = most;
                    ports.socket(shared, (false, port)).is_some()
                };
                assert_eq!([5000, 5001, 5002, 5003, 5001].map(|port| has(port, most)), [true, true, true, false, true]);
                // It shares another worker's socket, as long as that has it.
                let other = shared.groups.lock().open((false, 5004), 0, 1)?.remove(0);
                shared.ports.lock().push(((false, 5004), Arc::downgrade(&other)));
                assert_eq!([5004, 5005, 5004].map(|port| has(port, most)), [true, false, true]);
                drop(other);
                assert!(!has(5004, most) && has(5004, most + 1));
                Ok(())
            })
            .expect("sockets");
        assert_eq!((ports.own.len(), ports.lent.len()), (4, 0));
        assert!(most_udp(4) > 100 && most_udp(64) > 32, "16 workers have 32 of port 4500, whose device reads them all");
    }

    #[test]
    fn ports_that_no_state_has_are_closed() {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::ports") else { return };
        let shared = &*shared(&netns);
        for (spi, ports) in [(7, [5000, 4500]), (8, [4500, 5001])] {
            add_state(shared, spi, ports);
        }
        netns
            .run(|| {
                let common = shared.groups.lock().open((false, 4999), 0, 1)?;
                let mut ports = Ports::new(common, 9, true);
                let numbers = |ports: &Ports| ports.own.iter().map(|s| s.port()).collect::<Vec<_>>();
                for port in [5000, 5001, 5002, 5003] {
                    ports.socket(shared, (false, port)).expect("a socket");
                }
                ports.close_unused(shared);
                assert_eq!(numbers(&ports), [4999, 5000, 5001, 5002, 5003], "a rekey may be under way");
                // One that begins to be used meanwhile; what is common stays.
                add_state(shared, 9, [5003, 0]);
                let held = ports.own[3].clone();
                ports.close_unused(shared);
                assert_eq!((numbers(&ports), shared.ports.lock().len()), (vec![4999, 5000, 5001, 5003], 4));
                assert!(UdpSocket::bind("0.0.0.0:5002").is_err(), "somebody is sending by it");
                drop(held);
                drop(UdpSocket::bind("0.0.0.0:5002")?);
                // It is opened again when it is needed.
                ports.socket(shared, (false, 5002)).expect("a socket");
                assert_eq!((ports.own.len(), ports.lent.len()), (5, 0));
                Ok(())
            })
            .expect("sockets");
    }
}
