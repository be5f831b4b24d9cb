//! The UDP sockets that ESP comes by, and those of key managers beside them. Where a key manager has bound a port of one
//! address, as libreswan does, the kernel gives its socket all that comes for this address, and there must be one more of ours.

use sealane_packets::esp::UdpEsp;
use sealane_packets::udp_group::UdpGroup;
use sealane_packets::udp_table::Bound;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use tracing::warn;

/// Whether it is a port of IPv6, and its number.
pub(crate) type Port = (bool, u16);

/// The sockets of a namespace's data path.
#[derive(Default)]
pub(crate) struct Groups {
    groups: Vec<UdpGroup>,
    /// Those of one address. One worker of the stack reads them.
    beside: Vec<Arc<UdpEsp>>,
    /// Their worker can wait for no more sockets.
    full: bool,
    /// Addresses at which none could be opened.
    refused: BTreeSet<SocketAddr>,
    /// Our user's sockets, as they were at the last look.
    table: Vec<Bound>,
    /// The number of groups that have been opened.
    opened: u64,
}

impl Groups {
    /// Opens `count` sockets of a port on all addresses, which send with this mark; ESP is distributed over them by its sender.
    /// Those of others are taken from the last look.
    ///
    /// # Errors
    /// The kernel's; `EADDRINUSE` when another socket has the port without `SO_REUSEPORT`.
    pub(crate) fn open(&mut self, (v6, port): Port, mark: u32, count: u32) -> io::Result<Vec<Arc<UdpEsp>>> {
        let any = if v6 { IpAddr::V6(Ipv6Addr::UNSPECIFIED) } else { IpAddr::V4(Ipv4Addr::UNSPECIFIED) };
        self.open_at(SocketAddr::new(any, port), mark, count)
    }

    fn open_at(&mut self, at: SocketAddr, mark: u32, count: u32) -> io::Result<Vec<Arc<UdpEsp>>> {
        self.forget_closed();
        self.opened += 1;
        let (group, sockets) = UdpGroup::open(at, mark, count, &self.table)?;
        self.groups.push(group);
        Ok(sockets)
    }

    /// Forgets groups without an open socket of ours, and leaves sockets of ours out of the last look that are closed: what is
    /// bound beside those that are left would get a wrong place.
    fn forget_closed(&mut self) {
        let closed: BTreeSet<u64> = self.groups.iter().flat_map(UdpGroup::closed).collect();
        self.table.retain(|bound| !closed.contains(&bound.inode));
        self.groups.retain(UdpGroup::is_open);
    }

    /// The number of groups that have been opened so far: a table from before that lacks those of ours.
    pub(crate) fn opened(&self) -> u64 {
        self.opened
    }

    /// Looks for sockets of key managers in the `table` of the calling thread's namespace, and opens those that are missing
    /// beside them. Returns for how many ports IKE that came to ours told that they had been taken for theirs.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn look(&mut self, mark: u32, table: Vec<Bound>) -> io::Result<u64> {
        self.table = table;
        self.forget_closed();
        let mut swaps = 0;
        for group in &mut self.groups {
            if group.look(&self.table)? {
                swaps += 1;
                warn!(
                    "xfrm: IKE for {} came to the daemon's socket: it is steered to the key manager's again",
                    group.at()
                );
            }
        }
        let ports: BTreeSet<u16> = self.groups.iter().map(|group| group.at().port()).collect();
        // No socket of ours is in one group with one of IPv6 for an address of IPv4.
        let one = |ip: IpAddr| !ip.is_unspecified() && !matches!(ip, IpAddr::V6(ip) if ip.to_ipv4_mapped().is_some());
        let there: BTreeSet<SocketAddr> =
            self.table.iter().map(|bound| bound.at).filter(|at| one(at.ip()) && ports.contains(&at.port())).collect();
        self.refused.retain(|at| there.contains(at));
        for at in there {
            if self.full || self.groups.iter().any(|group| group.at() == at) {
                continue;
            }
            match self.open_at(at, mark, 1) {
                Ok(sockets) => self.beside.extend(sockets),
                // It came without a launcher.
                Err(e) if self.refused.insert(at) => {
                    warn!(error = %e, "xfrm: ESP in UDP for {at} goes to the socket of another program: {e}");
                }
                Err(_) => {}
            }
        }
        Ok(swaps)
    }

    /// Notes an IKE message that a socket of ours received.
    pub(crate) fn note_ike(&mut self, socket: &UdpEsp) {
        self.groups.iter_mut().filter(|group| group.at() == socket.at()).for_each(UdpGroup::note_ike);
    }

    /// The sockets of one address.
    pub(crate) fn beside(&self) -> &[Arc<UdpEsp>] {
        &self.beside
    }

    /// Closes sockets of one address for which a worker has no room.
    pub(crate) fn drop_beside(&mut self, mut has_room: impl FnMut(&Arc<UdpEsp>) -> bool) {
        self.beside.retain(|socket| {
            let room = has_room(socket);
            if !room {
                self.full = true;
                warn!("xfrm: ESP in UDP for {} goes to the socket of another program: too many addresses", socket.at());
            }
            room
        });
    }

    /// Whether there are sockets that no key manager is beside any more.
    pub(crate) fn has_left(&self) -> bool {
        self.groups.iter().any(|group| !group.at().ip().is_unspecified() && !group.has_others())
    }

    /// Closes those, but for what their worker still has of them: what comes for their addresses is again for sockets that are
    /// bound to all.
    pub(crate) fn close_left(&mut self) {
        let left = |at| self.groups.iter().any(|group| group.at() == at && !group.has_others());
        self.beside.retain(|socket| !left(socket.at()));
        self.full = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sealane_packets::udp_table;

    const AT: ([u8; 4], u16) = ([127, 0, 0, 1], 4500);

    /// In a network namespace of its own, beside our socket for all addresses.
    fn beside_all(test: impl FnOnce(&mut Groups) -> io::Result<()> + Send) {
        let Some(netns) = sealane_sys::testing::namespace("xfrm::groups") else { return };
        netns
            .run(|| {
                let mut groups = Groups::default();
                let _all = groups.open((false, 4500), 0, 2)?;
                test(&mut groups)
            })
            .expect("sockets");
    }

    /// A key manager's sockets. It shares its port, as all do whom a launcher has seen.
    fn manager() -> io::Result<impl Sized> {
        UdpGroup::open(AT.into(), 0, 1, &[]).map(|(_, sockets)| sockets)
    }

    /// Whether ESP in UDP comes to the first of our sockets beside those of key managers.
    fn esp_is_ours(groups: &Groups) -> io::Result<bool> {
        std::net::UdpSocket::bind("127.0.0.1:0")?.send_to(&[1; 8], SocketAddr::from(AT))?;
        Ok(groups.beside()[0].receive(&mut [0; 64])?.is_some())
    }

    /// A key manager that follows another takes its address while the socket of ours beside the first is closed, and after the
    /// sockets have been listed: ESP is ours all the same.
    #[test]
    fn a_socket_that_is_closed_after_the_look_has_no_place() {
        beside_all(|groups| {
            let first = manager()?;
            groups.look(0, udp_table::read()?)?;
            drop(first);
            groups.look(0, udp_table::read()?)?;
            let _second = manager()?;
            let table = udp_table::read()?;
            groups.close_left();
            groups.look(0, table)?;
            assert_eq!(groups.beside().len(), 1);
            assert!(esp_is_ours(groups)?);
            Ok(())
        });
    }

    #[test]
    fn key_managers_at_one_address() {
        beside_all(|groups| {
            let look = |groups: &mut Groups| groups.look(0, udp_table::read()?);
            let beside = |groups: &mut Groups| look(groups).map(|_| groups.beside().len());
            assert_eq!(beside(groups)?, 0);
            let first = manager()?;
            assert_eq!((beside(groups)?, beside(groups)?, groups.has_left()), (1, 1, false));
            assert!(esp_is_ours(groups)?);
            // One that follows at once finds it there.
            drop(first);
            let second = manager()?;
            assert_eq!((beside(groups)?, groups.has_left()), (1, false));
            drop(second);
            assert_eq!((beside(groups)?, groups.has_left()), (1, true));
            groups.close_left();
            assert_eq!((beside(groups)?, groups.has_left()), (0, false));
            // Without room it is not opened again and again.
            let third = manager()?;
            assert_eq!(beside(groups)?, 1);
            groups.drop_beside(|_| false);
            assert_eq!(beside(groups)?, 0);
            drop(third);
            groups.close_left();
            let _fourth = manager()?;
            assert_eq!(beside(groups)?, 1, "there is room again");
            Ok(())
        });
    }
}
