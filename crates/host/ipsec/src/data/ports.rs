//! Sockets of other ports of UDP than 4500: opened by who sends first, which reads them, and closed when no state has them any more.

use crate::control::path::Shared;
use crate::data::tables::Tables;
use sealane_sys::esp::UdpEsp;
use std::collections::BTreeSet;
use std::sync::{Arc, Weak};

/// How many states are looked at while the engine is locked.
const LOOKS: usize = 4096;

/// Whether it is one of IPv6, and its number.
pub(crate) type Port = (bool, u16);

/// Sockets that others read, and close.
pub(crate) type Lent = Vec<(Port, Weak<UdpEsp>)>;

fn port_of(socket: &UdpEsp) -> Port {
    (socket.is_v6(), socket.port())
}

/// The socket of a port, which is opened where there is none yet: a worker's own, of which it may have so many, or another one's of
/// the same stack.
pub(crate) fn socket(
    own: &mut Vec<Arc<UdpEsp>>,
    lent: &mut Lent,
    most: usize,
    shared: &Shared,
    tables: &Tables,
    port: Port,
) -> Option<Arc<UdpEsp>> {
    if let Some(socket) = own.iter().find(|socket| port_of(socket) == port) {
        return Some(socket.clone());
    }
    if let Some(at) = lent.iter().position(|(of, _)| *of == port) {
        match lent[at].1.upgrade() {
            None => lent.swap_remove(at),
            socket => return socket,
        };
    }
    let room = own.len() < most;
    let open = || if room { UdpEsp::open(port.0, port.1, shared.bits.exempt).ok().map(Arc::new) } else { None };
    let stack = !matches!(tables, Tables::Device(_));
    let mut all = shared.ports.lock();
    let mut others = all.iter().filter(|(of, _)| stack && *of == port);
    if let Some(socket) = others.find_map(|(_, socket)| socket.upgrade()) {
        lent.push((port, Arc::downgrade(&socket)));
        return Some(socket);
    }
    let socket = open()?;
    own.push(socket.clone());
    if stack {
        all.push((port, Arc::downgrade(&socket)));
    }
    Some(socket)
}

/// Closes those of a worker's `own` sockets, behind so many `common` ones, that no state had `before`, and none has now. Until the
/// next time it is to be called with the same `before`.
pub(crate) fn close_unused(own: &mut Vec<Arc<UdpEsp>>, common: usize, shared: &Shared, before: &mut BTreeSet<Port>) {
    let mut unused: BTreeSet<Port> = own.iter().skip(common).map(|socket| port_of(socket)).collect();
    let mut from = if unused.is_empty() { None } else { Some(0) };
    while let Some(next) = from {
        from = shared.xfrm().udp_ports(next, LOOKS, |v6, port| {
            unused.remove(&(v6, port));
        });
    }
    let mut at = 0..;
    own.retain(|socket| {
        let (port, common) = (port_of(socket), at.next() < Some(common));
        common || !before.contains(&port) || !unused.contains(&port)
    });
    shared.ports.lock().retain(|(_, socket)| socket.strong_count() > 0);
    *before = unused;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::worker::most_udp;
    use crate::tests::{TUNNEL, call, start, state_in_udp};
    use std::net::UdpSocket;

    #[test]
    fn a_thread_has_no_more_ports_than_it_can_wait_for() {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::ports") else { return };
        let path = start(&netns, 1);
        let (mut own, mut lent) = (Vec::new(), Vec::new());
        netns
            .run(|| {
                let (shared, tables, most) = (path.shared(), Tables::Stack, 3);
                let mut has = |port, most| socket(&mut own, &mut lent, most, shared, &tables, (false, port)).is_some();
                assert_eq!([5000, 5001, 5002, 5003, 5001].map(|port| has(port, most)), [true, true, true, false, true]);
                // What another worker has it can have, as long as that has it.
                let other = Arc::new(UdpEsp::open(false, 5004, 0)?);
                shared.ports.lock().push(((false, 5004), Arc::downgrade(&other)));
                assert_eq!([5004, 5005, 5004].map(|port| has(port, most)), [true, false, true]);
                drop(other);
                assert!(!has(5004, most) && has(5004, most + 1));
                Ok(())
            })
            .expect("sockets");
        assert_eq!((own.len(), lent.len()), (4, 0));
        path.stop();
        assert!(most_udp(4) > 100 && most_udp(64) > 32, "16 workers have 32 of port 4500, whose device reads them all");
    }

    #[test]
    fn ports_that_no_state_has_are_closed() {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::ports") else { return };
        let path = start(&netns, 1);
        let [a, b] = [1, 2].map(|last| [192, 0, 2, last].into());
        for (spi, ports) in [(7, [5000, 4500]), (8, [4500, 5001])] {
            call(&path, &state_in_udp(a, b, spi, TUNNEL, Some(ports)));
        }
        let (mut own, mut lent, mut before) = (Vec::new(), Vec::new(), BTreeSet::new());
        netns
            .run(|| {
                let (shared, tables) = (path.shared(), Tables::Stack);
                own.push(Arc::new(UdpEsp::open(false, 4999, 0)?));
                let ports = |own: &[Arc<UdpEsp>]| own.iter().map(|s| s.port()).collect::<Vec<_>>();
                for port in [5000, 5001, 5002, 5003] {
                    socket(&mut own, &mut lent, 9, shared, &tables, (false, port)).expect("a socket");
                }
                close_unused(&mut own, 1, shared, &mut before);
                assert_eq!(ports(&own), [4999, 5000, 5001, 5002, 5003], "a rekey may be under way");
                // One that begins to be used meanwhile; what is common stays.
                call(&path, &state_in_udp(a, b, 9, TUNNEL, Some([5003, 0])));
                let held = own[3].clone();
                close_unused(&mut own, 1, shared, &mut before);
                assert_eq!((ports(&own), shared.ports.lock().len()), (vec![4999, 5000, 5001, 5003], 4));
                assert!(UdpSocket::bind("0.0.0.0:5002").is_err(), "somebody is sending by it");
                drop(held);
                drop(UdpSocket::bind("0.0.0.0:5002")?);
                // It is opened again for who needs it.
                socket(&mut own, &mut lent, 9, shared, &tables, (false, 5002)).expect("a socket");
                assert_eq!((own.len(), lent.len()), (5, 0));
                Ok(())
            })
            .expect("sockets");
        path.stop();
    }
}
