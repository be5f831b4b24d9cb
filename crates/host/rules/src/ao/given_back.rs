//! A test with segments between two namespaces: dropped by rules, received by a ring, and returned by a TAP device. It needs
//! root.

use super::{Flow, Options, PeerTable};
use rustix::net::RecvFlags;
use sealane_packets::raw::Raw;
use sealane_packets::ring::Ring;
use sealane_packets::tap::{Headers, Tap};
use sealane_sys::marks::Marks;
use sealane_sys::testing::{self, segment};
use sealane_sys::{link, peer};
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

const MARKS: Marks = Marks::new(0x5ea1_1a40);
const AO: [u8; 16] = [29, 16, 1, 2, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9];

/// The packets that arrive in a ring within a moment.
fn arrived(ring: &mut Ring, at_least: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    let end = Instant::now() + Duration::from_millis(if at_least == 0 { 50 } else { 20_000 });
    while Instant::now() < end && (at_least == 0 || out.len() < at_least) {
        ring.read(64, |frame| out.push(frame.packet().to_vec()));
        let next = ring.next();
        ring.release(next);
        std::thread::sleep(Duration::from_millis(1));
    }
    out
}

/// A packet that the rules drop on the wire comes back through a TAP device, to a socket bound to the real device.
#[test]
fn what_is_given_back_comes_in_by_the_device() {
    let Some((a, b)) = testing::pair("rules::given_back") else { return };
    let raw = a.run(|| Raw::open(MARKS)).expect("sockets");
    let marks = MARKS;
    let made = b.run(|| {
        let device = link::index("b")?;
        let facts = link::facts(device)?;
        let options =
            Options { output_queue: 40, input_queue: 41, newcomers_queue: 41, queues: 1, marks, any_option: Some(42) };
        let table = PeerTable::install(options, &[("10.77.0.1".parse().expect("v4"), 32)], None)?;
        Ok((device, Ring::open(device, facts.mtu, marks)?, Tap::open(device, &facts, marks)?, table))
    });
    let (device, mut ring, mut tap, mut table) = match made {
        Ok(made) => made,
        Err(error) if testing::missing("rules::given_back", &error) => return,
        Err(error) => panic!("{error}"),
    };
    table.add_device(device, "b").expect("a chain");
    for (v6, own, peer) in [(false, "10.77.0.2", "10.77.0.1"), (true, "fd77::2", "fd77::1")] {
        let address = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let flow = Flow { device, source: (address(peer), 7000).into(), destination: (address(own), 7000).into() };
        table.add_flow(flow).expect("a flow");
        // A raw TCP socket sees packets that have passed the input hook.
        let sniffer = b.run(|| testing::sniffer(v6, "b")).expect("a raw socket");
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
        assert_eq!(arrived(&mut ring, 0).len(), 0, "and the ring has not seen it again");
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

/// The next packet of a raw socket within `ms` milliseconds, ignoring our own answers.
fn read(socket: &OwnedFd, ms: i32) -> Option<Vec<u8>> {
    if !peer::readable(socket.as_fd(), ms) {
        return None;
    }
    let mut bytes = vec![0u8; 70_000];
    let (n, _) = rustix::net::recv(socket, &mut bytes[..], RecvFlags::empty()).ok()?;
    bytes.truncate(n);
    Some(bytes)
}
