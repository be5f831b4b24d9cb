//! Tests that the ring has seen the packets that the rules drop, and that a raw socket receives all others, which need root;
//! and by evaluation.

use super::*;
use crate::eval::{Device, Packet, Verdict};
use sealane_packets::esp::RawEsp;
use sealane_packets::raw::Raw;
use sealane_packets::ring::Ring;
use sealane_packets::shard::Shard;
use sealane_sys::marks::Marks;
use sealane_sys::{link, testing};
use std::time::{Duration, Instant};

const SPI: u32 = 0x1001;
const MARK: u32 = 0x5ea1_1a42;

/// An ESP packet from 10.77.0.1 to 10.77.0.2, or from fd77::1 to fd77::2.
fn esp(v6: bool, spi: u32, number: u32) -> Vec<u8> {
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, 0, 24, 50, 64];
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip
    } else {
        vec![0x45, 0, 0, 44, 0, 1, 0x40, 0, 64, 50, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]
    };
    packet.extend_from_slice(&spi.to_be_bytes());
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&[0xaa; 16]);
    packet
}

/// The sequence numbers of packets in a ring.
fn ring_has(ring: &mut Ring, v6: bool) -> Vec<u32> {
    let mut numbers = Vec::new();
    ring.read(64, |frame| {
        let at = if v6 { 44 } else { 24 };
        numbers.push(u32::from_be_bytes(*frame.packet()[at..].first_chunk().expect("a number")));
    });
    let next = ring.next();
    ring.release(next);
    numbers
}

/// The sequence numbers and marks of packets in a raw socket.
fn socket_has(socket: &RawEsp, v6: bool) -> Vec<(u32, u32)> {
    let mut numbers = Vec::new();
    let mut buf = [0; 2048];
    while let Some(read) = socket.receive(&mut buf).expect("a socket") {
        let at = if v6 { 4 } else { 24 };
        numbers.push((u32::from_be_bytes(*buf[at..].first_chunk().expect("a number")), read.mark));
    }
    numbers
}

/// Reads until there are `count` items, even if they arrive late.
fn arrived<T>(count: usize, mut read: impl FnMut() -> Vec<T>) -> Vec<T> {
    let end = Instant::now() + Duration::from_secs(20);
    let mut items = read();
    while items.len() < count && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        items.extend(read());
    }
    items
}

#[test]
fn the_rules_take_what_the_ring_has_seen() {
    const TEST: &str = "rules::ingress";
    let Some((a, b)) = testing::pair(TEST) else { return };
    let raw = a.run(|| Raw::open(Marks::draw())).expect("sockets");
    let sockets = b
        .run(|| Ok([RawEsp::open(false, 50, 1, Shard::ALL)?, RawEsp::open(true, 50, 1, Shard::ALL)?]))
        .expect("sockets");
    let opened = b.run(|| {
        sockets.iter().try_for_each(RawEsp::tell_marks)?;
        let device = link::index("b")?;
        let mut table = IngressTable::new(MARK, 0)?;
        table.add_device(device, "b")?;
        Ok((device, table, Ring::open_esp(device, 1500, Shard::ALL)?))
    });
    let (device, mut table, mut ring) = match opened {
        Err(error) if testing::missing(TEST, &error) => return,
        opened => opened.expect("a table"),
    };
    for v6 in [false, true] {
        let destination = if v6 { "fd77::2" } else { "10.77.0.2" }.parse().expect("an address");
        let way = EspFlow { device, destination, spi: SPI };
        let send = |packets: &[Vec<u8>]| {
            let packets: Vec<&[u8]> = packets.iter().map(|p| &p[..]).collect();
            a.run(|| Ok(raw.send(&packets, 0, false))).expect("sent");
            std::thread::sleep(Duration::from_millis(50));
        };
        // Neighbour discovery takes a while for IPv6 on a new device.
        let found = (0..100).any(|_| {
            send(&[esp(v6, SPI, 1)]);
            !ring_has(&mut ring, v6).is_empty()
        });
        assert!(found);
        std::thread::sleep(Duration::from_millis(50));
        ring_has(&mut ring, v6);
        socket_has(&sockets[usize::from(v6)], v6);
        let mut fragment = esp(v6, SPI, 6);
        let all = [esp(v6, SPI, 2), esp(v6, SPI, 0x100), esp(v6, SPI + 1, 4), esp(v6, SPI, 5)];
        send(&all);
        let both = [2, 0x100, 4, 5];
        assert_eq!(arrived(4, || ring_has(&mut ring, v6)), both);
        assert_eq!(arrived(4, || socket_has(&sockets[usize::from(v6)], v6)), both.map(|n| (n, 0)));
        table.take(way, true).expect("taken");
        send(&all);
        assert_eq!(arrived(4, || ring_has(&mut ring, v6)), both);
        assert_eq!(
            arrived(2, || socket_has(&sockets[usize::from(v6)], v6)),
            [(0x100, MARK), (4, 0)],
            "others, and one to show that it passes"
        );
        if !v6 {
            // A fragment reaches neither; a packet with options reaches the stack.
            fragment[6] = 0x20;
            let mut options = esp(v6, SPI, 7);
            options[0] = 0x46;
            options[3] += 4;
            options.splice(20..20, [1, 1, 1, 0]);
            send(&[fragment, options]);
            assert_eq!(ring_has(&mut ring, v6), [0; 0]);
            let seen = arrived(1, || socket_has(&sockets[0], v6));
            assert_eq!(seen.len(), 1, "{seen:?}");
        }
        table.take(way, false).expect("left");
        send(&all[..1]);
        assert_eq!(arrived(1, || socket_has(&sockets[usize::from(v6)], v6)), [(2, 0)]);
        arrived(1, || ring_has(&mut ring, v6));
        table.take(way, true).expect("taken");
    }
    // The table is removed with its owner.
    drop(table);
    let packet = esp(false, SPI, 9);
    a.run(|| Ok(raw.send(&[&packet], 0, false))).expect("sent");
    assert_eq!(arrived(1, || socket_has(&sockets[0], false)), [(9, 0)]);
}

#[test]
fn the_documentation_shows_the_rules() {
    let mut table = table(0, MARK);
    table.sets[0].elements = vec![EspFlow { device: 2, destination: [192, 0, 2, 1].into(), spi: SPI }.element()];
    table.chains.push(of_device(2, "eth0"));
    let shown = table.to_string();
    assert_eq!(shown, include_str!("picture.txt"), "ingress/picture.txt has to be\n{shown}");
}

#[test]
fn what_is_taken_is_dropped_but_for_one_in_256() {
    let mut table = table(1, MARK);
    for (at, destination) in ["10.77.0.2", "fd77::2"].into_iter().enumerate() {
        let destination = destination.parse().expect("an address");
        table.sets[at].elements = vec![EspFlow { device: 2, destination, spi: SPI }.element()];
    }
    table.chains.extend([of_device(2, "b"), of_device(3, "c")]);
    let judge = |chain, index, change: &dyn Fn(&mut Packet), bytes: Vec<u8>| {
        let ether_type: [u8; 2] = if bytes[0] >> 4 == 4 { [8, 0] } else { [0x86, 0xdd] };
        let from = Device { index, ..Device::default() };
        let mut packet = Packet { bytes, from, ..Packet::new([0; 4].into(), [0; 4].into(), 0, &[]) };
        packet.link[12..].copy_from_slice(&ether_type);
        change(&mut packet);
        (table.judge(chain, &mut packet).0, packet.mark)
    };
    let as_it_is = |_: &mut Packet| {};
    let (drop, pass) = ((Verdict::Drop, 0), (Verdict::Accept, 0));
    for v6 in [false, true] {
        assert_eq!(judge("in2", 2, &as_it_is, esp(v6, SPI, 1)), drop);
        assert_eq!(judge("in2", 2, &as_it_is, esp(v6, SPI, 0x100)), (Verdict::Accept, MARK));
        assert_eq!(judge("in2", 2, &as_it_is, esp(v6, SPI + 1, 1)), pass, "another state");
        assert_eq!(judge("in3", 3, &as_it_is, esp(v6, SPI, 1)), pass, "another device");
        assert_eq!(judge("in2", 2, &|packet| packet.packet_type = 3, esp(v6, SPI, 1)), pass, "for another host");
        assert_eq!(judge("in2", 2, &|packet| packet.link[12] = 0x81, esp(v6, SPI, 1)), pass, "with a VLAN tag");
    }
    assert_eq!(judge("in2", 2, &|packet| packet.bytes[6] = 0x20, esp(false, SPI, 1)), pass, "a fragment");
    assert_eq!(judge("in2", 2, &|packet| packet.bytes[0] = 0x46, esp(false, SPI, 1)), pass, "with options");
}
