//! Sockets of one address and port that daemon and key managers share, and the program by which the kernel chooses one of
//! them for a datagram: ESP is for the daemon, IKE for the key manager (RFC 3948 section 2.2).
//!
//! Such a program names a socket by its place among those that share the port (`SO_REUSEPORT`). The kernel appends a socket
//! that is bound, and in the place of one that is closed it puts the last (`net/core/sock_reuseport.c`,
//! `__reuseport_detach_sock`). Nobody can ask for the places, but `/proc/net/udp` tells which sockets there are, so they are
//! followed from look to look.

use super::esp::UdpEsp;
use super::shard::{peer, reckon};
use super::udp_table::Bound;
use sealane_sys::cbpf::{NEXT, Program, Size};
use sealane_sys::socket;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;

/// The time in which sockets are read that got something by a former program.
const SETTLED: Duration = Duration::from_secs(1);

/// The sockets of one address, or of all, and one port.
#[derive(Debug)]
pub struct UdpGroup {
    at: SocketAddr,
    /// The inode of each socket, in the kernel's order.
    order: Vec<u64>,
    /// The same, in the order in which they were bound.
    age: Vec<u64>,
    ours: Vec<(u64, Weak<UdpEsp>)>,
    /// The places that the program in force knows, and since when.
    places: Option<(Places, Instant)>,
    /// IKE has come to one of ours since the last look.
    misled: bool,
}

/// The places to which the program sends datagrams.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Places {
    /// Of each of ours, in the order of workers.
    esp: Vec<u32>,
    /// Of the key manager. Where there is none it is a place without a socket, for which the kernel chooses one itself.
    ike: u32,
}

impl UdpGroup {
    /// Opens `count` sockets of an address and port beside those that `table` shows there; ESP is distributed over them by its
    /// sender. They send with this mark.
    ///
    /// # Errors
    /// The kernel's; `EADDRINUSE` when another socket has the port without `SO_REUSEPORT`.
    pub fn open(at: SocketAddr, mark: u32, count: u32, table: &[Bound]) -> io::Result<(Self, Vec<Arc<UdpEsp>>)> {
        let mut group =
            UdpGroup { at, order: Vec::new(), age: Vec::new(), ours: Vec::new(), places: None, misled: false };
        group.follow(table);
        let open = |_| UdpEsp::open(at, mark).map(Arc::new);
        let sockets: Vec<_> = (0..count).map(open).collect::<io::Result<_>>()?;
        for socket in &sockets {
            let inode = rustix::fs::fstat(socket)?.st_ino;
            group.ours.push((inode, Arc::downgrade(socket)));
            group.order.push(inode);
            group.age.push(inode);
        }
        group.steer()?;
        Ok((group, sockets))
    }

    /// The address and port.
    #[must_use]
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Whether one of our sockets is still open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.ours.iter().any(|(_, socket)| socket.strong_count() > 0)
    }

    /// The inodes of ours that have been closed since the last look.
    pub fn closed(&self) -> impl Iterator<Item = u64> {
        self.ours.iter().filter(|(_, socket)| socket.strong_count() == 0).map(|(inode, _)| *inode)
    }

    /// Whether anybody else has a socket here, as the last look showed.
    #[must_use]
    pub fn has_others(&self) -> bool {
        self.order.iter().any(|inode| !self.is_ours(*inode))
    }

    /// Notes an IKE message that one of ours received. Unless the next look explains it, the order is another one.
    pub fn note_ike(&mut self) {
        self.misled = true;
    }

    /// Looks at the sockets that there are now, and tells the kernel of their places if those have changed. Returns whether
    /// nothing but a message of IKE that came to one of ours told so.
    ///
    /// # Errors
    /// The kernel's.
    pub fn look(&mut self, table: &[Bound]) -> io::Result<bool> {
        self.follow(table);
        self.ours.retain(|(_, socket)| socket.strong_count() > 0);
        let settled = self.places.as_ref().is_some_and(|(_, since)| since.elapsed() > SETTLED);
        let turn = self.misled && settled && self.has_others() && !self.has_moved();
        if turn {
            // Several came and went between two looks.
            self.turn();
        }
        self.misled = false;
        self.steer()?;
        Ok(turn)
    }

    fn is_ours(&self, inode: u64) -> bool {
        self.ours.iter().any(|(ours, _)| *ours == inode)
    }

    /// Brings the order up to date as the kernel does.
    fn follow(&mut self, table: &[Bound]) {
        let here: Vec<u64> = table.iter().filter(|bound| bound.at == self.at).map(|bound| bound.inode).collect();
        // Of several that are gone a program that ends has closed the oldest first.
        for gone in self.age.iter().filter(|inode| !here.contains(inode)) {
            if let Some(at) = self.order.iter().position(|inode| inode == gone) {
                self.order.swap_remove(at);
            }
        }
        let new = here.iter().filter(|inode| !self.age.contains(inode));
        self.order.extend(new);
        self.age = here;
    }

    /// Takes the others' places for ours, and ours for theirs.
    fn turn(&mut self) {
        let (mut ours, others): (Vec<u64>, Vec<u64>) = self.order.iter().partition(|inode| self.is_ours(**inode));
        if self.order.first().is_some_and(|first| self.is_ours(*first)) {
            self.order = others.into_iter().chain(ours).collect();
        } else {
            ours.extend(others);
            self.order = ours;
        }
    }

    /// The places in the present order. None: none of ours is open.
    fn find(&self) -> Option<Places> {
        let place = |wanted: u64| self.order.iter().position(|inode| *inode == wanted).map(|at| at as u32);
        let esp: Vec<u32> = self.ours.iter().filter_map(|(inode, _)| place(*inode)).collect();
        // A key manager that ends may overlap with the one that follows it.
        let latest = self.age.iter().rev().find(|inode| !self.is_ours(**inode));
        let ike = latest.and_then(|latest| place(*latest)).unwrap_or(self.order.len() as u32);
        (!esp.is_empty()).then_some(Places { esp, ike })
    }

    /// Whether the program in force does not know the present order.
    fn has_moved(&self) -> bool {
        self.places.as_ref().map(|(places, _)| places) != self.find().as_ref()
    }

    /// Attaches the program for the present order, if it is not in force.
    fn steer(&mut self) -> io::Result<()> {
        let places = self.find();
        let socket = self.ours.iter().find_map(|(_, socket)| socket.upgrade());
        let (Some(socket), Some(places)) = (socket, places) else { return Ok(()) };
        if self.has_moved() {
            let mut program = program(self.at.is_ipv6(), &places);
            let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
            socket::set_option(socket.as_fd(), libc::SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &filter)?;
            self.places = Some((places, Instant::now()));
        }
        Ok(())
    }
}

/// The program that tells ESP and NAT keep-alives from IKE by the non-ESP marker, and distributes ESP by peer.
///
/// ESP cannot be distributed by SPI: the kernel merges datagrams of one peer (GRO) before it runs the program on the first of
/// them.
fn program(v6: bool, places: &Places) -> Vec<libc::sock_filter> {
    let Places { esp, ike } = places;
    let (first, count) = (esp[0], esp.len() as u32);
    let mut program = Program::new();
    // A NAT keep-alive is no more the key manager's than ESP is (`__xfrm4_udp_encap_rcv`). It is too short for the marker: the
    // load would fail, which chooses the first place.
    program.load_len().jump(libc::BPF_JEQ, 1, NEXT, "longer");
    program.load(Size::Byte, 0).jump(libc::BPF_JEQ, 0xff, NEXT, "longer").ret(first).label("longer");
    program.load(Size::Word, 0).jump(libc::BPF_JEQ, 0, NEXT, "ESP").ret(*ike).label("ESP");
    if count > 1 {
        peer(&mut program, v6);
        reckon(&mut program, count);
        if esp.iter().copied().eq(first..first + count) {
            program.alu(libc::BPF_ADD, first).ret_a();
            return program.assemble();
        }
        for (worker, place) in (0..).zip(esp) {
            program.jump(libc::BPF_JEQ, worker, NEXT, "next worker").ret(*place).label("next worker");
        }
    }
    program.ret(first);
    program.assemble()
}

#[cfg(test)]
mod tests {
    use super::super::esp;
    use super::super::udp_table;
    use super::*;
    use sealane_sys::testing;

    #[test]
    fn ike_that_comes_to_us_tells_of_another_order() {
        let Some(netns) = testing::namespace("sys::udp_group") else { return };
        netns
            .run(|| {
                let at = SocketAddr::from(([0, 0, 0, 0], 4500));
                let _manager = esp::bound(at)?;
                let (mut group, _ours) = UdpGroup::open(at, 0, 1, &udp_table::read()?)?;
                let right = group.find();
                let look = |group: &mut UdpGroup| group.look(&udp_table::read()?);
                group.order.reverse();
                assert!(!look(&mut group)?, "nothing tells");
                group.note_ike();
                assert!(!look(&mut group)?, "it may have waited in the socket");
                let wrong = group.find();
                group.places = group.places.take().map(|(places, _)| (places, Instant::now() - 2 * SETTLED));
                assert!(!look(&mut group)?, "an old message");
                group.note_ike();
                assert!(look(&mut group)?);
                assert_eq!((group.find() == right, group.has_moved(), wrong == right), (true, false, false));
                Ok(())
            })
            .expect("sockets");
    }
}
