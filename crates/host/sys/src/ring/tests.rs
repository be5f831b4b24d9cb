//! Tests with segments between two namespaces: received by rings, sent as frames and returned by TAP devices. They need
//! root.

use super::super::frames::Frames;
use super::super::netns::Netns;
use super::super::raw::Raw;
use super::super::tap::{Headers, Tap};
use super::super::{link, nft, testing};
use super::*;
use rustix::net::RecvFlags;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A TCP segment from 10.77.0.1 to 10.77.0.2, or from fd77::1 to fd77::2, with these options and a wrong checksum.
fn segment(v6: bool, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let tcp_len = 20 + options.len() + payload.len();
    let mut packet = if v6 {
        let mut ip = vec![0x60, 0, 0, 0, 0, tcp_len as u8, 6, 64];
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        ip.extend_from_slice(&[0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]);
        ip
    } else {
        vec![0x45, 0, 0, 20 + tcp_len as u8, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2]
    };
    packet.extend_from_slice(&[0x1b, 0x58, 0x1b, 0x58, 0, 0, 0, 1, 0, 0, 0, 2]);
    packet.extend_from_slice(&[((20 + options.len()) * 4) as u8, 0x10, 1, 0, 0, 0, 0, 0]);
    packet.extend_from_slice(options);
    packet.extend_from_slice(payload);
    packet
}

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

/// A packet that the rules drop on the wire comes back through a TAP device, to a socket bound to the real device.
#[test]
fn what_is_given_back_comes_in_by_the_device() {
    let Some((a, b)) = testing::pair("sys::ring::given_back") else { return };
    let raw = a.run(|| Raw::open(MARKS)).expect("sockets");
    let marks = MARKS;
    let made = b.run(|| {
        let device = link::index("b")?;
        let facts = link::facts(device)?;
        let options = nft::Options {
            output_queue: 40,
            input_queue: 41,
            newcomers_queue: 41,
            queues: 1,
            marks,
            any_option: Some(42),
        };
        let table = nft::Table::install(options, &[("10.77.0.1".parse().expect("v4"), 32)], None)?;
        Ok((device, Ring::open(device, facts.mtu, marks)?, Tap::open(device, &facts, marks)?, table))
    });
    let (device, mut ring, mut tap, mut table) = match made {
        Ok(made) => made,
        Err(error) if testing::missing("sys::ring::given_back", &error) => return,
        Err(error) => panic!("{error}"),
    };
    table.add_device(device, "b").expect("a chain");
    for (v6, own, peer) in [(false, "10.77.0.2", "10.77.0.1"), (true, "fd77::2", "fd77::1")] {
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let flow = nft::Flow { device, source: (address(peer), 7000).into(), destination: (address(own), 7000).into() };
        table.add_flow(flow).expect("a flow");
        // A raw TCP socket sees packets that have passed the input hook.
        let sniffer = b.run(|| sniffer(v6, "b")).expect("a raw socket");
        let signed = segment(v6, &AO, &[5; 100]);
        raw.send(&[&signed], 0, false);
        assert_eq!(arrived(&mut ring, 1).len(), 1);
        assert_eq!(read(&sniffer, 50), None, "the rule dropped it");
        // Two segments' payload in one superframe, without the option.
        let plain = segment(v6, &[], &[]);
        let tcp_at = if v6 { 40 } else { 20 };
        let mut headers = plain.clone();
        let payload = [6u8; 200];
        fix(&mut headers, payload.len());
        let (one, two) = payload.split_at(100);
        let given = Headers { bytes: &headers, tcp_at, partial_checksum: true, gso_size: Some(100) };
        tap.give(given, [one, two].into_iter()).expect("given");
        let got = read(&sniffer, 5000).expect("it came in by the device");
        assert_eq!(got.len() - if v6 { 0 } else { 20 }, 20 + 200, "one superframe");
        assert!(got.ends_with(&payload));
        assert_eq!(arrived(&mut ring, 0), [], "and the ring has not seen it again");
        // A single segment with a complete checksum.
        let mut alone = plain.clone();
        alone.extend_from_slice(&payload[..100]);
        fix(&mut alone, 0);
        complete(&mut alone, tcp_at);
        let given = Headers { bytes: &alone[..tcp_at + 20], tcp_at, partial_checksum: false, gso_size: None };
        tap.give(given, [&payload[..100]].into_iter()).expect("given");
        assert!(read(&sniffer, 5000).expect("it came in").ends_with(&payload[..100]));
        // Without the rule for the flow, the segment from the wire reaches the queue, which has no listener.
        table.remove_flow(flow).expect("no flow");
        raw.send(&[&signed], 0, false);
        assert_eq!(read(&sniffer, 50), None);
        assert_eq!(arrived(&mut ring, 1).len(), 1);
    }
}

/// Sets lengths and checksums in headers before `payload_len` bytes of payload; TCP's is the sum of the pseudo-header.
fn fix(headers: &mut [u8], payload_len: usize) {
    let v6 = headers[0] >> 4 == 6;
    let ip_len = if v6 { 40 } else { 20 };
    let tcp_len = headers.len() - ip_len + payload_len;
    if v6 {
        headers[4..6].copy_from_slice(&(tcp_len as u16).to_be_bytes());
    } else {
        headers[2..4].copy_from_slice(&((20 + tcp_len) as u16).to_be_bytes());
        headers[10..12].fill(0);
        let sum = !fold(&headers[..20], 0);
        headers[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let addresses = if v6 { 8..40 } else { 12..20 };
    let sum = fold(&headers[addresses], 6 + tcp_len as u32);
    headers[ip_len + 16..ip_len + 18].copy_from_slice(&sum.to_be_bytes());
}

/// Turns the sum of the pseudo-header into the checksum.
fn complete(packet: &mut [u8], tcp_at: usize) {
    let sum = !fold(&packet[tcp_at..], 0);
    packet[tcp_at + 16..tcp_at + 18].copy_from_slice(&sum.to_be_bytes());
}

fn fold(bytes: &[u8], start: u32) -> u16 {
    let mut sum =
        bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0))).sum::<u32>() + start;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A raw socket that receives the TCP segments of one device.
fn sniffer(v6: bool, device: &str) -> io::Result<OwnedFd> {
    let family = if v6 { libc::AF_INET6 } else { libc::AF_INET };
    let fd = crate::socket(family, libc::SOCK_RAW, libc::IPPROTO_TCP)?;
    crate::set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device)?;
    Ok(fd)
}

/// The next packet of a raw socket within `ms` milliseconds, ignoring our own answers.
fn read(socket: &OwnedFd, ms: i32) -> Option<Vec<u8>> {
    if !crate::peer::readable(socket.as_fd(), ms) {
        return None;
    }
    let mut bytes = vec![0u8; 70_000];
    let (n, _) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()).ok()?;
    bytes.truncate(n);
    Some(bytes)
}
