//! Packets from one namespace to another. They need root.

use super::*;
use sealane_abi::netlink as nl;
use sealane_packets::esp::RawEsp;
use sealane_packets::fast_path::FRESH;
use sealane_packets::shard::Shard;
use sealane_sys::netlink::{Messages, Socket};
use sealane_sys::netns::Netns;
use sealane_sys::testing;

/// An ESP packet from `a` to `b` with this number.
fn esp(v6: bool, number: u32) -> Vec<u8> {
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, 0, 24, ESP, 64];
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip
    } else {
        // With its checksum, as the engine writes it.
        vec![0x45, 0, 0, 44, 0, 0, 0x40, 0, 64, ESP, 0x26, 0x04, 10, 77, 0, 1, 10, 77, 0, 2]
    };
    packet.extend_from_slice(&0x1001u32.to_be_bytes());
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[0xaa; 16]);
    packet
}

struct Bench {
    a: Netns,
    receivers: [RawEsp; 2],
    raw: Raw,
    out: FastOut,
    counters: Counters,
    now: Instant,
    number: u32,
}

impl Bench {
    fn new(test: &str) -> Option<Self> {
        let (a, b) = testing::pair(test)?;
        let receivers = b
            .run(|| Ok([RawEsp::open(false, ESP, 1, Shard::ALL)?, RawEsp::open(true, ESP, 1, Shard::ALL)?]))
            .expect("receivers");
        let marks = Marks::draw();
        let raw = a.run(|| Raw::open(marks)).expect("sockets");
        let out = FastOut::new(&raw, marks).expect("a kernel that keeps frames");
        let bench = Bench { a, receivers, raw, out, counters: Counters::default(), now: Instant::now(), number: 0 };
        // Neighbours are looked for, which takes IPv6 a while on a new device.
        for v6 in [false, true] {
            let packet = esp(v6, 0);
            let found = (0..200).any(|_| {
                bench.a.run(|| Ok(bench.raw.send(&[&packet], 0, false))).expect("sent");
                std::thread::sleep(Duration::from_millis(50));
                bench.receive(v6, &mut [0; 2048]).is_some()
            });
            assert!(found);
            std::thread::sleep(Duration::from_millis(50));
            while bench.receive(v6, &mut [0; 2048]).is_some() {}
        }
        Some(bench)
    }

    fn receive(&self, v6: bool, buf: &mut [u8]) -> Option<usize> {
        self.receivers[usize::from(v6)].receive(buf).expect("a socket").map(|read| read.len)
    }

    /// Sends a burst later than the one before, sees it arrive in its order, and says how many went past the stack.
    fn burst(&mut self, v6: bool, count: usize) -> u64 {
        self.now += FRESH + Duration::from_millis(1);
        let first = self.number + 1;
        let packets: Vec<Vec<u8>> = (0..count).map(|i| esp(v6, first + i as u32)).collect();
        self.number += count as u32;
        let slices: Vec<&[u8]> = packets.iter().map(|p| &p[..]).collect();
        let before = self.counters.fast_out.load(Relaxed);
        let Bench { a, raw, out, counters, now, .. } = self;
        let sent = a.run(|| Ok(out.send(raw, &slices, counters, *now))).expect("sent");
        assert_eq!((sent.taken, sent.refused), (count, 0));
        for packet in &packets {
            let mut buf = [0; 2048];
            let got = (0..5000).find_map(|_| {
                self.receive(v6, &mut buf).or_else(|| {
                    std::thread::sleep(Duration::from_millis(1));
                    None
                })
            });
            let got = got.expect("it arrives");
            let esp = &packet[if v6 { 40 } else { 20 }..];
            assert_eq!(&buf[got - esp.len()..got], esp);
        }
        self.counters.fast_out.load(Relaxed) - before
    }
}

#[test]
fn a_busy_flow_goes_past_the_stack() {
    let Some(mut bench) = Bench::new("xfrm::fast_out") else { return };
    for v6 in [false, true] {
        assert_eq!(bench.burst(v6, 4), 0, "few packets are not worth it");
        assert_eq!(bench.burst(v6, 20), 0, "nothing is known yet");
        assert_eq!(bench.burst(v6, 20), 19, "all but the one that asks");
        assert_eq!(bench.burst(v6, 2), 1, "it was busy");
        assert_eq!(bench.burst(v6, 20), 0, "it was not");
    }
}

#[test]
fn the_neighbour_and_the_device_change() {
    let Some(mut bench) = Bench::new("xfrm::fast_out") else { return };
    bench.burst(false, 20);
    assert_eq!(bench.burst(false, 20), 19);
    // Another address on the link: the frames go to it at once after the stack has been asked.
    let link =
        |bench: &Bench| bench.out.flows.values().next().and_then(|known| known.link.header().copied()).expect("a link");
    let before = link(&bench);
    let index = bench
        .a
        .run(|| {
            link::set_up("a", false)?;
            let index = link::index("a")?;
            let mut messages = Messages::new();
            messages.push(libc::RTM_NEWLINK, nl::NLM_F_ACK, &link::ifinfomsg(index), |to| {
                to.put(libc::IFLA_ADDRESS, &[2, 0, 0, 0, 0, 9]);
            });
            Socket::open(libc::NETLINK_ROUTE)?.transact(&messages)?;
            link::set_up("a", true)?;
            Ok(index)
        })
        .expect("an address");
    assert_eq!(bench.burst(false, 20), 19);
    let after = link(&bench);
    assert_eq!((before.0, after.0), (index, index));
    assert_eq!(after.1[6..12], [2, 0, 0, 0, 0, 9]);
    assert_ne!(before.1, after.1);
    // Down: what is refused is counted, and the header forgotten.
    bench.a.run(|| link::set_up("a", false)).expect("down");
    let packet = esp(false, 1000);
    let Bench { a, raw, out, counters, now, .. } = &mut bench;
    let sent = a.run(|| Ok(out.send(raw, &[&packet], counters, *now))).expect("sent");
    assert_eq!((sent.taken, sent.refused), (0, 1));
    assert!(out.flows.values().all(|known| known.link.header().is_none()));
}

#[test]
fn what_is_no_esp_and_what_was_changed_on_the_way_is_not_learnt_from() {
    let packet = esp(false, 1);
    let flow = OuterFlow::of(&packet).expect("a flow");
    assert_eq!((flow.protocol, flow.spi), (ESP, 0x1001));
    for (at, value) in [(6, 0x20), (7, 1), (9, 17), (0, 0x46)] {
        let mut other = packet.clone();
        other[at] = value;
        assert_eq!(OuterFlow::of(&other), None, "{at}");
    }
    for len in 0..24 {
        assert_eq!(OuterFlow::of(&packet[..len]), None, "{len}");
    }
    // The stack writes identification and checksum; any other change comes from rules.
    let mut same = packet.clone();
    (same[5], same[10]) = (7, 7);
    assert_eq!(read_front(&same), read_front(&packet));
    for at in [1, 8, 12, 19, 20, 27] {
        let mut other = packet.clone();
        other[at] ^= 4;
        assert_ne!(read_front(&other), read_front(&packet), "{at}");
    }
}
