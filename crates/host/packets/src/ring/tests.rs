//! Tests with segments between two namespaces: received by rings and sent as frames. They need root.

use super::super::frames::Frames;
use super::super::raw::Raw;
use super::*;
use sealane_sys::link;
use sealane_sys::netns::Netns;
use sealane_sys::testing::{self, segment};
use std::time::{Duration, Instant};

const MARKS: Marks = Marks::new(0x5ea1_1a40);
const AO: [u8; 16] = [29, 16, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];

fn ring(namespace: &Netns, name: &str) -> io::Result<(Ring, u32)> {
    namespace.run(|| {
        let device = link::index(name)?;
        Ok((Ring::open(device, 1500, MARKS)?, device))
    })
}

/// The packets that arrive in a ring within a moment, each with whether it is outgoing.
fn arrived(ring: &mut Ring, at_least: usize) -> Vec<(bool, Vec<u8>)> {
    let mut out = Vec::new();
    let end = Instant::now() + Duration::from_millis(if at_least == 0 { 50 } else { 20_000 });
    while Instant::now() < end && (at_least == 0 || out.len() < at_least) {
        let first = ring.next();
        ring.read(64, |frame| {
            assert!(!frame.truncated && frame.number >= first);
            out.push((frame.leaves, frame.packet().to_vec()));
        });
        let next = ring.next();
        ring.release(next);
        std::thread::sleep(Duration::from_millis(1));
    }
    out
}

fn until(mut done: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        assert!(Instant::now() < end, "it does not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the kernel has filled a frame that has not been read yet.
fn is_filled(ring: &Ring, number: u64) -> bool {
    let at = number as usize * ring.frame_len;
    // SAFETY: a frame within the mapping, as in `Ring::read`.
    let status = unsafe { AtomicU32::from_ptr(ring.map.start().as_ptr().add(at).cast()) };
    status.load(Ordering::Acquire) & TP_STATUS_USER != 0
}

#[test]
fn only_segments_with_the_option_are_seen() {
    let Some((a, b)) = testing::pair("sys::ring::only") else { return };
    let raw = a.run(|| Raw::open(MARKS)).expect("sockets");
    let (mut ring, _) = ring(&b, "b").expect("a ring");
    for v6 in [false, true] {
        let wanted = segment(v6, &AO, b"payload");
        let mut moved = [1u8; 20];
        moved[4..].copy_from_slice(&AO);
        let others = [segment(v6, &[], b"payload"), segment(v6, &[], &AO), segment(v6, &moved, b"")];
        for other in &others {
            raw.send(&[other], 0, false);
        }
        raw.send(&[&wanted], 0, false);
        if !v6 {
            let mut fragment = wanted.clone();
            fragment[6] = 0x20;
            raw.send(&[&fragment], 0, false);
            let mut udp = wanted.clone();
            udp[9] = 17;
            raw.send(&[&udp], 0, false);
            // IP options move the TCP header.
            let mut with_options = wanted.clone();
            with_options[0] = 0x46;
            with_options[3] += 4;
            with_options.splice(20..20, [1, 1, 1, 0]);
            raw.send(&[&with_options], 0, false);
        }
        raw.send(&[&wanted], 0, false);
        let seen = arrived(&mut ring, if v6 { 2 } else { 3 });
        assert!(seen.iter().all(|(leaves, p)| !leaves && p[p.len() - 7..] == *b"payload"));
        assert_eq!(seen[0].1[if v6 { 8 } else { 12 }..], wanted[if v6 { 8 } else { 12 }..]);
        assert_eq!(arrived(&mut ring, 0), []);
    }
    assert_eq!(ring.drops(), 0);
    assert!(!ring.failed());
}

#[test]
fn a_learnt_link_header_sends_past_the_stack() {
    let Some((a, b)) = testing::pair("sys::ring::learnt") else { return };
    let raw = a.run(|| Raw::open(MARKS)).expect("sockets");
    let (mut here, device) = ring(&a, "a").expect("a ring");
    let (mut there, _) = ring(&b, "b").expect("a ring");
    let frames = a.run(|| Frames::open(device, MARKS)).expect("a socket");
    for v6 in [false, true] {
        let packet = segment(v6, &AO, &[7; 160]);
        raw.send(&[&packet], 0, false);
        assert_eq!(arrived(&mut there, 1).len(), 1);
        assert_eq!(arrived(&mut here, 0), [], "only the mark for learning is looked at");
        raw.send(&[&packet], 0, true);
        let mut link = None;
        let end = Instant::now() + Duration::from_secs(20);
        while link.is_none() && Instant::now() < end {
            here.read(1, |frame| {
                assert!(frame.leaves && !frame.truncated && frame.packet.len() < packet.len());
                link = Some(frame.link);
            });
            let next = here.next();
            here.release(next);
        }
        let link = link.expect("our own frame");
        assert_eq!(arrived(&mut there, 1).len(), 1);
        let packets: Vec<&[u8]> = vec![&packet; 100];
        assert_eq!(frames.send(&link, &packets).taken, 100);
        let seen = arrived(&mut there, 100);
        assert!(seen.len() == 100 && seen.iter().all(|(_, p)| *p == packet));
    }
}

#[test]
fn a_full_ring_drops_and_goes_on() {
    let Some((a, b)) = testing::pair("sys::ring::full") else { return };
    let raw = a.run(|| Raw::open(MARKS)).expect("sockets");
    let (mut ring, _) = ring(&b, "b").expect("a ring");
    let packets: Vec<Vec<u8>> = (0..5000u16).map(|i| segment(false, &AO, &i.to_be_bytes())).collect();
    // Fewer at a time than may wait for a busy CPU (`net.core.netdev_max_backlog`).
    for (i, part) in packets.chunks(100).enumerate() {
        part.iter().for_each(|packet| _ = raw.send(&[packet], 0, false));
        let sent = (i + 1) as u64 * 100;
        let in_ring = sent.min(FRAMES.into());
        until(|| is_filled(&ring, in_ring - 1) && ring.drops() == sent - in_ring);
    }
    let (mut seen, mut numbers) = (0u16, Vec::new());
    while ring.read(64, |frame| {
        numbers.push(frame.number);
        assert_eq!(frame.packet()[56..58], seen.to_be_bytes());
        seen += 1;
    }) > 0
    {
        // The first two are not released.
        let next = ring.next();
        assert_eq!(ring.bytes(1, 56..58), [0, 1]);
        assert_eq!(ring.bytes(next - 1, 56..58), ((next - 1) as u16).to_be_bytes());
    }
    assert_eq!(u32::from(seen), FRAMES);
    ring.release(2);
    for packet in &packets[..3] {
        raw.send(&[packet], 0, false);
    }
    assert_eq!(arrived(&mut ring, 2).len(), 2);
    until(|| ring.drops() == 5000 - u64::from(FRAMES) + 1);
    let next = ring.next();
    ring.release(next);
    raw.send(&[&packets[0]], 0, false);
    assert_eq!(arrived(&mut ring, 1).len(), 1);
}

#[test]
fn a_dead_device_is_noticed() {
    let Some((_a, b)) = testing::pair("sys::ring::dead") else { return };
    let (ring, _) = ring(&b, "b").expect("a ring");
    assert!(!ring.failed());
    b.run(|| link::set_up("b", false)).expect("down");
    assert!(ring.failed());
    b.run(|| link::set_up("b", true)).expect("up");
    assert!(!ring.failed());
}
