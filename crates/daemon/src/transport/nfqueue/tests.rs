//! Tests with real packets between two namespaces. They need root.

use super::super::{netns::Netns, nft, testing};
use super::*;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Two namespaces; packets from the first to the second pass a queue of the first.
fn queued(test: &str) -> Option<(Netns, Netns, Queue, nft::Table)> {
    let (a, b) = testing::pair(test)?;
    let made = a.run(|| {
        let queue = Queue::open(7, true)?;
        let options = nft::Options {
            output_queue: queue.number(),
            input_queue: queue.number() + 1,
            marks: nft::Marks::default(),
            any_option: false,
        };
        let peers = [("10.77.0.2".parse().expect("v4"), 32), ("fd77::2".parse().expect("v6"), 128)];
        Ok((queue, nft::Table::install(options, &peers)?))
    });
    match made {
        Ok((queue, table)) => Some((a, b, queue, table)),
        Err(error) if testing::missing(test, &error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits for packets, and reads them.
fn wait(queue: &mut Queue) -> usize {
    let mut poll = libc::pollfd { fd: queue.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry.
    unsafe { libc::poll(&mut poll, 1, 20) };
    queue.receive().expect("a batch")
}

/// Sends `len` bytes from `a` to `address` in `b` and returns what arrives.
fn transfer(a: &Netns, b: &Netns, address: &str, len: usize) -> io::Result<Vec<u8>> {
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let listener = b.run(|| TcpListener::bind(address))?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        let mut stream = a.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))?;
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        stream.write_all(&bytes)?;
        drop(stream);
        reader.join().expect("the reader does not panic")
    })
}

#[test]
fn superframes_cross_once_and_come_through() {
    let Some((a, b, mut queue, _table)) = queued("transport::nfqueue::superframes") else { return };
    for address in ["10.77.0.2:7101", "[fd77::2]:7101"] {
        let (done, longest) = (AtomicBool::new(false), AtomicUsize::new(0));
        let bytes = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    wait(&mut queue);
                    let (packets, mut verdicts) = queue.split();
                    for packet in packets {
                        assert_ne!(packet.out_device, 0);
                        assert_eq!((packet.in_device, packet.mark), (0, 0));
                        let len = match packet.bytes[0] >> 4 {
                            4 => usize::from(u16::from_be_bytes([packet.bytes[2], packet.bytes[3]])),
                            _ => 40 + usize::from(u16::from_be_bytes([packet.bytes[4], packet.bytes[5]])),
                        };
                        assert_eq!(len, packet.bytes.len());
                        assert_eq!(packet.superframe, len > 1500);
                        longest.fetch_max(len, Ordering::Relaxed);
                        verdicts.judge(packet.id, Verdict::Accept);
                    }
                    queue.finish().expect("verdicts");
                }
            });
            let bytes = transfer(&a, &b, address, 4 << 20);
            done.store(true, Ordering::Relaxed);
            bytes.expect("a transfer")
        });
        assert_eq!(bytes.len(), 4 << 20);
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
        assert!(longest.into_inner() > 20_000, "superframes");
        assert_eq!(queue.overruns(), 0);
    }
}

#[test]
fn packets_change_in_length_and_those_without_a_verdict_are_dropped() {
    let Some((a, b, mut queue, _table)) = queued("transport::nfqueue::changes") else { return };
    let done = AtomicBool::new(false);
    let (mut dropped, mut changed) = (0, 0);
    let bytes = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                wait(&mut queue);
                let (packets, mut verdicts) = queue.split();
                for packet in packets {
                    let syn = packet.bytes[33] & 2 != 0;
                    if syn && dropped == 0 {
                        // The first SYN has no verdict: it is sent again a second later.
                        dropped += 1;
                    } else if syn {
                        // An option that nobody knows, four bytes long, behind the others; the kernel does not mind.
                        let mut bytes = packet.bytes.to_vec();
                        bytes.extend_from_slice(&[253, 4, 0, 0]);
                        bytes[3] += 4;
                        bytes[32] += 0x10;
                        checksums(&mut bytes);
                        changed += 1;
                        verdicts.judge(packet.id, Verdict::Replace(&bytes));
                    } else {
                        verdicts.judge(packet.id, Verdict::Accept);
                    }
                }
                queue.finish().expect("verdicts");
            }
        });
        let bytes = transfer(&a, &b, "10.77.0.2:7102", 1000);
        done.store(true, Ordering::Relaxed);
        bytes.expect("a transfer")
    });
    assert_eq!((bytes.len(), dropped, changed), (1000, 1, 1));
}

/// Both checksums of an IPv4 TCP packet without IP options.
fn checksums(packet: &mut [u8]) {
    let sum = |bytes: &[u8], start: u32| {
        let words = bytes.chunks(2).map(|c| u32::from(c[0]) << 8 | u32::from(*c.get(1).unwrap_or(&0)));
        let mut sum = start + words.sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    };
    packet[10..12].fill(0);
    let ip = sum(&packet[..20], 0);
    packet[10..12].copy_from_slice(&ip.to_be_bytes());
    packet[36..38].fill(0);
    let len = packet.len() as u32 - 20;
    let addresses = !sum(&packet[12..20], 6 + len);
    let tcp = sum(&packet[20..], u32::from(addresses));
    packet[36..38].copy_from_slice(&tcp.to_be_bytes());
}

#[test]
fn losses_of_a_full_socket_are_counted() {
    let Some((a, _b, mut queue, _table)) = queued("transport::nfqueue::losses") else { return };
    queue.set_receive_buffer(4096).expect("a small buffer");
    // A hundred SYNs that nobody reads in time; what is read later has gaps before it.
    let connect = |n: u16| {
        a.run(|| {
            let socket = std::net::SocketAddr::from(([10, 77, 0, 2], 7200 + n));
            Ok(TcpStream::connect_timeout(&socket, Duration::from_millis(1)).is_ok())
        })
    };
    for n in 0..100 {
        assert!(!connect(n).expect("a thread"));
    }
    let end = Instant::now() + Duration::from_secs(5);
    while queue.overruns() == 0 && Instant::now() < end {
        wait(&mut queue);
        queue.finish().expect("verdicts");
        assert!(!connect(200).expect("a thread"));
    }
    assert!(queue.overruns() > 0);
}

#[test]
fn a_taken_queue_is_passed_over() {
    let Some(a) = testing::namespace("transport::nfqueue::taken") else { return };
    a.run(|| {
        let (one, two) = (Queue::open(7, false)?, Queue::open(7, false)?);
        assert_eq!((one.number(), two.number()), (7, 8));
        Ok(())
    })
    .expect("two queues");
}
