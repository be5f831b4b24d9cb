use super::*;
use crate::frames::Frames;
use crate::ring::{LINK_HEADER_LEN, Ring};
use crate::shard::Shard;
use crate::xsk::{Copying, Received, Sockets};
use sealane_sys::link;
use sealane_sys::marks::Marks;
use sealane_sys::netns::Netns;
use sealane_sys::poll::ready;
use sealane_sys::testing;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(20);

/// A packet of a protocol with this hop limit and payload.
fn packet(from: &str, to: &str, hops: u8, proto: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = match (from.parse().unwrap(), to.parse().unwrap()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, hops, proto, 0, 0];
            ip[3] = (20 + payload.len()) as u8;
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut ip = vec![0x60, 0, 0, 0, 0, payload.len() as u8, proto, hops];
            ip.extend(from.octets());
            ip.extend(to.octets());
            ip
        }
        _ => unreachable!("one family"),
    };
    packet.extend(payload);
    packet
}

fn udp(port: u16, more: &[u8]) -> Vec<u8> {
    let mut udp = vec![0x30, 0x39, 0, 0, 0, 8 + more.len() as u8, 0, 0];
    udp[2..4].copy_from_slice(&port.to_be_bytes());
    udp.extend(more);
    udp
}

/// The interface `a` with its program and sockets, and a sender in `b`.
struct Rig {
    a: Netns,
    b: Netns,
    tables: Tables,
    _attached: Attached,
    sockets: Sockets,
    frames: Frames,
    link: [u8; LINK_HEADER_LEN],
}

impl Rig {
    fn new(test: &str, mode: Mode) -> Option<Rig> {
        let (a, b) = testing::pair(test)?;
        let made = a.run(|| {
            let index = link::index("a")?;
            let tables = Tables::new()?;
            let address = link::facts(index)?.address;
            let attached = Attached::new(index, address, 1, &tables, mode)?;
            let sockets = Sockets::open(&[vec![(index, 0)]], Copying::Once)?.remove(0);
            attached.give(0, sockets.fd(0))?;
            Ok((address, tables, attached, sockets))
        });
        let (address, tables, _attached, sockets) = match made {
            Err(e) if testing::missing(test, &e) => return None,
            made => made.expect("a program and a socket"),
        };
        let frames = b.run(|| Frames::open(link::index("b")?, Marks::new(0))).expect("a socket");
        let mut link = [2; LINK_HEADER_LEN];
        link[..6].copy_from_slice(&address);
        Some(Rig { a, b, tables, _attached, sockets, frames, link })
    }

    fn send(&mut self, packet: &[u8]) {
        let protocol: u16 = if packet[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
        self.link[12..].copy_from_slice(&protocol.to_be_bytes());
        assert_eq!(self.frames.send(&self.link, &[packet]).taken, 1);
    }

    /// The next packet, without its link header.
    fn next(&mut self) -> Vec<u8> {
        let start = Instant::now();
        let memory = self.sockets.memory();
        loop {
            let mut packet = None;
            let mut take = |mut got: Received| {
                packet = Some((memory.bytes(&mut got.frame)[got.start + LINK_HEADER_LEN..got.end].to_vec(), got.frame));
            };
            self.sockets.receive(0, 1, &mut take);
            if let Some((packet, frame)) = packet {
                self.sockets.put(frame);
                self.sockets.flush();
                return packet;
            }
            assert!(start.elapsed() < LIMIT, "nothing came");
            ready::<1>(core::iter::once(self.sockets.fd(0)), Duration::from_millis(100));
        }
    }
}

#[test]
fn only_what_is_ours_is_taken() {
    for mode in [Mode::Native, Mode::Generic] {
        let Some(mut rig) = Rig::new("sys::xdp", mode) else { return };
        let prefix = |text: &str, len| Prefix::new(text.parse().unwrap(), len);
        let t = &rig.tables;
        t.to(prefix("10.99.0.0", 16), Some(1)).unwrap();
        t.to(prefix("10.99.7.0", 24), Some(0)).unwrap();
        t.to(prefix("fd99::", 16), Some(2)).unwrap();
        t.from(1, prefix("10.77.0.0", 24), Some(true)).unwrap();
        t.from(1, prefix("10.77.0.9", 32), Some(false)).unwrap();
        t.from(2, prefix("fd77::", 64), Some(true)).unwrap();
        t.state("10.77.0.1".parse().unwrap(), 0x1001, true).unwrap();
        t.state("fd77::1".parse().unwrap(), 0x1002, true).unwrap();
        let esp = |spi: u32| [&spi.to_be_bytes()[..], &[0; 20]].concat();
        let (a, b, far) = (["10.77.0.1", "fd77::1"], ["10.77.0.2", "fd77::2"], ["10.99.1.1", "fd99::1"]);
        for family in 0..2 {
            let (ours, other) = ([0x1001, 0x1002][family], [0x1002, 0x1001][family]);
            let taken = [
                packet(b[family], a[family], 1, 50, &esp(ours)),
                packet(b[family], a[family], 64, 17, &udp(4500, &esp(ours))),
                packet(b[family], far[family], 2, 17, &udp(7, &[1; 20])),
                packet(b[family], far[family], 64, 6, &[9; 60]),
                packet(b[family], far[family], 64, 50, &esp(ours)),
            ];
            let mut left = vec![
                packet(b[family], a[family], 64, 50, &esp(other)),
                packet(b[family], a[family], 64, 17, &udp(4500, &esp(0))),
                packet(b[family], a[family], 64, 17, &udp(500, &esp(ours))),
                packet(b[family], a[family], 64, 17, &udp(7, &[1; 20])),
                packet(b[family], far[family], 1, 17, &udp(7, &[1; 20])),
                packet(["10.77.1.2", "fd78::2"][family], far[family], 64, 17, &udp(7, &[1; 20])),
                packet(b[family], ["10.98.1.1", "fd98::1"][family], 64, 17, &udp(7, &[1; 20])),
            ];
            if family == 0 {
                left.push(packet("10.77.0.9", far[0], 64, 17, &udp(7, &[1; 20])));
                left.push(packet(b[0], "10.99.7.1", 64, 17, &udp(7, &[1; 20])));
                let mut piece = taken[2].clone();
                piece[6] = 0x20;
                left.push(piece);
                let mut options = packet(b[0], far[0], 64, 17, &[[1; 4].to_vec(), udp(7, &[1; 20])].concat());
                options[0] = 0x46;
                left.push(options);
            } else {
                left.push(packet(b[1], far[1], 64, 44, &[17, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0]));
                left.push(packet(b[1], far[1], 64, 0, &[17, 0, 5, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]));
            }
            // Each packet for the stack is followed by one that is not: nothing else may arrive before that.
            for (i, packet) in left.iter().enumerate() {
                rig.send(packet);
                rig.send(&taken[0]);
                assert_eq!(rig.next(), taken[0], "{mode:?} {family}: packet {i} is the stack's");
            }
            for (i, packet) in taken.iter().enumerate() {
                rig.send(packet);
                assert_eq!(&rig.next(), packet, "{mode:?} {family}: packet {i}");
            }
        }
        // A frame to another hardware address, and entries that were removed.
        let (one, other) = (packet(b[0], a[0], 64, 50, &esp(0x1001)), packet(b[1], far[1], 64, 6, &[9; 60]));
        rig.link[5] ^= 1;
        rig.send(&one);
        rig.link[5] ^= 1;
        rig.tables.state(a[0].parse().unwrap(), 0x1001, false).unwrap();
        rig.send(&one);
        rig.send(&other);
        assert_eq!(rig.next(), other);
        rig.tables.from(2, prefix("fd77::", 64), None).unwrap();
        rig.send(&other);
        rig.tables.from(1, prefix("10.77.0.9", 32), None).unwrap();
        let now = packet("10.77.0.9", far[0], 64, 17, &udp(7, &[1; 20]));
        rig.send(&now);
        assert_eq!(rig.next(), now);
    }
}

#[test]
fn a_chunk_is_known_by_its_share() {
    let Some((a, _b)) = testing::pair("sys::xsk") else { return };
    let made = a.run(|| Sockets::open(&[vec![], vec![(link::index("a")?, 0)], vec![]], Copying::Once));
    let mut all = match made {
        Err(e) if testing::missing("sys::xsk", &e) => return,
        made => made.expect("sockets"),
    };
    let [first, second, third] = &mut all[..] else { unreachable!("three shares") };
    assert_eq!([0, 1, 2].map(|share| first.chunks(share)), [0, second.chunks(1), 0]);
    assert!(second.chunks(1) >= 2048 && !second.is_short());
    // Chunks that are not in the fill ring travel through another share.
    let mut frames = second.all_free();
    assert!(frames.len() >= 1024, "{}", frames.len());
    assert!(!second.is_short(), "the kernel has a ring of them");
    let mine = frames.split_off(frames.len() / 2);
    mine.into_iter().for_each(|frame| second.put(frame));
    assert!(second.stray().is_none());
    let count = frames.len();
    frames.into_iter().for_each(|frame| third.put(frame));
    let mut back = 0;
    while let Some((share, frame)) = third.stray() {
        assert_eq!(share, 1);
        second.put(frame);
        back += 1;
    }
    assert_eq!((back, second.all_free().len()), (count, second.chunks(1) - 1024));
}

#[test]
fn frames_leave_and_rings_go_round() {
    let Some(mut rig) = Rig::new("sys::xdp", Mode::Native) else { return };
    let mut ring = rig.b.run(|| Ring::open_esp(link::index("b")?, 1500, Shard::ALL)).expect("a ring");
    let address = rig.b.run(|| Ok(link::facts(link::index("b")?)?.address)).unwrap();
    let a = rig.a.run(|| link::index("a")).unwrap();
    assert_ne!(a, 0);
    rig.tables.state("10.77.0.1".parse().unwrap(), 7, true).unwrap();
    let memory = rig.sockets.memory();
    // More frames than any ring has entries: each arrives, and leaves again with its addresses swapped.
    const COUNT: u32 = 5000;
    let mut seen = 0;
    for number in 0..COUNT {
        let esp = [&7u32.to_be_bytes()[..], &number.to_be_bytes(), &[0; 12]].concat();
        rig.send(&packet("10.77.0.2", "10.77.0.1", 64, 50, &esp));
        let start = Instant::now();
        let mut got = None;
        while got.is_none() {
            assert!(start.elapsed() < LIMIT, "nothing came");
            if rig.sockets.receive(0, 1, |one| got = Some(one)) == 0 {
                ready::<1>(core::iter::once(rig.sockets.fd(0)), Duration::from_millis(100));
            }
        }
        let mut got = got.unwrap();
        let bytes = &mut memory.bytes(&mut got.frame)[got.start..got.end];
        assert_eq!(bytes[LINK_HEADER_LEN + 24..LINK_HEADER_LEN + 28], number.to_be_bytes());
        let (to, from) = (rig.link, address);
        bytes[..6].copy_from_slice(&from);
        bytes[6..12].copy_from_slice(&to[..6]);
        assert!(rig.sockets.send(0, got.frame, got.start, got.end));
        rig.sockets.flush();
        let start = Instant::now();
        while seen <= number {
            assert!(start.elapsed() < LIMIT, "nothing left");
            ready::<1>(core::iter::once(ring.as_fd()), Duration::from_millis(100));
            ring.read(64, |frame| {
                assert_eq!(frame.packet()[24..28], seen.to_be_bytes());
                seen += 1;
            });
            ring.release(ring.next());
        }
    }
    assert!(!rig.sockets.is_sending());
    assert_eq!(rig.sockets.lost(0).dropped, 0);
}

#[test]
fn an_interface_has_one_program() {
    let Some(rig) = Rig::new("sys::xdp", Mode::Native) else { return };
    let again = rig.a.run(|| Attached::new(link::index("a")?, [0; 6], 1, &rig.tables, Mode::Native).map(|_| ()));
    assert_eq!(again.expect_err("there is one").raw_os_error(), Some(libc::EBUSY));
}
