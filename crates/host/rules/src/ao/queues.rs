//! Tests with real packets between two namespaces that pass queues. They need root.

use super::{Connection, Options, PeerTable};
use sealane_packets::nfqueue::{Packet, Queue, Verdict, Verdicts};
use sealane_sys::marks::Marks;
use sealane_sys::netns::Netns;
use sealane_sys::poll::ready;
use sealane_sys::testing;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Two namespaces; packets between them pass two queues of the first: outgoing packets the first queue.
fn queued(test: &str) -> Option<(Netns, Netns, [Queue; 2], PeerTable)> {
    let (a, b) = testing::pair(test)?;
    let made = a.run(|| {
        let queues = [Queue::open(7, true)?, Queue::open(8, true)?];
        let options = Options {
            output_queue: queues[0].number(),
            input_queue: queues[1].number(),
            newcomers_queue: queues[1].number(),
            queues: 1,
            marks: Marks::draw(),
            any_option: None,
        };
        let peers = [("10.77.0.2".parse().expect("v4"), 32), ("fd77::2".parse().expect("v6"), 128)];
        Ok((queues, PeerTable::install(options, &peers, None)?))
    });
    match made {
        Ok((queues, table)) => Some((a, b, queues, table)),
        Err(error) if testing::missing(test, &error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Waits for packets and hands those of all queues to `judge`, until `done`.
fn serve(queues: &mut [Queue], done: impl Fn() -> bool, mut judge: impl FnMut(usize, Packet<'_>, &mut Verdicts<'_>)) {
    while !done() {
        ready::<3>(queues.iter().map(AsFd::as_fd), Duration::from_millis(20));
        for (i, queue) in queues.iter_mut().enumerate() {
            queue.receive().expect("a batch");
            let (packets, mut verdicts) = queue.split();
            for packet in packets {
                judge(i, packet, &mut verdicts);
            }
            queue.finish().expect("verdicts");
        }
    }
}

/// Sends `len` bytes from `a` to `address` in `b` and returns what arrives.
fn transfer(a: &Netns, b: &Netns, address: &str, len: usize) -> io::Result<Vec<u8>> {
    let address: std::net::SocketAddr = address.parse().expect("an address");
    let listener = b.run(|| TcpListener::bind(address))?;
    let mut stream = a.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(5)))?;
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut stream, _) = listener.accept()?;
            let mut bytes = Vec::new();
            stream.read_to_end(&mut bytes)?;
            Ok(bytes)
        });
        stream.set_write_timeout(Some(Duration::from_secs(5)))?;
        let bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
        stream.write_all(&bytes)?;
        drop(stream);
        reader.join().expect("the reader does not panic")
    })
}

/// A connection is moved to the queue of known ones and back: each of its segments comes by the queue that is meant.
#[test]
fn known_connections_have_a_queue_of_their_own() {
    const TEST: &str = "rules::queues::known_connections";
    let Some((a, b)) = testing::pair(TEST) else { return };
    let made = a.run(|| {
        let queues = [Queue::open(7, true)?, Queue::open(8, false)?, Queue::open(9, false)?];
        let options = Options {
            output_queue: queues[0].number(),
            input_queue: queues[1].number(),
            newcomers_queue: queues[2].number(),
            queues: 1,
            marks: Marks::draw(),
            any_option: None,
        };
        let peers = [("10.77.0.0".parse().expect("v4"), 24), ("fd77::2".parse().expect("v6"), 128)];
        Ok((queues, PeerTable::install(options, &peers, None)?))
    });
    let (mut queues, mut table) = match made {
        Ok(made) => made,
        Err(error) if testing::missing(TEST, &error) => return,
        Err(error) => panic!("{error}"),
    };
    for address in ["10.77.0.1:7102", "[fd77::1]:7102"] {
        let address: std::net::SocketAddr = address.parse().expect("an address");
        let listener = a.run(|| TcpListener::bind(address)).expect("a listener");
        let (done, seen) = (AtomicBool::new(false), [const { AtomicUsize::new(0) }; 3]);
        let queues = &mut queues;
        let table = &mut table;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                serve(
                    queues,
                    || done.load(Ordering::Acquire),
                    |i, packet, verdicts| {
                        seen[i].fetch_add(1, Ordering::AcqRel);
                        verdicts.judge(packet.id, Verdict::Accept);
                    },
                );
            });
            let work = || -> io::Result<()> {
                let mut stream = b.run(|| TcpStream::connect_timeout(&address, Duration::from_secs(10)))?;
                let (mut here, remote) = listener.accept()?;
                let mut send = || -> io::Result<(usize, usize)> {
                    seen.iter().for_each(|n| n.store(0, Ordering::Release));
                    let mut byte = [1];
                    for _ in 0..3 {
                        stream.write_all(&byte)?;
                        here.read_exact(&mut byte)?;
                        here.write_all(&byte)?;
                        stream.read_exact(&mut byte)?;
                    }
                    Ok((seen[1].load(Ordering::Acquire), seen[2].load(Ordering::Acquire)))
                };
                assert!(matches!(send()?, (0, 3..)), "a newcomer");
                let connection = Connection { remote, local: address };
                let other = Connection { local: "10.77.0.1:1".parse().expect("ends"), ..connection };
                table.know([connection])?;
                assert_eq!(table.known().count(), 1);
                // A last acknowledgement may still be on its way.
                send()?;
                assert!(matches!(send()?, (3.., 0)), "known");
                table.restore()?;
                assert!(matches!(send()?, (3.., 0)), "after the rules were written again");
                table.unknow(&[other])?;
                table.unknow(&[connection])?;
                send()?;
                assert!(matches!(send()?, (0, 3..)), "no longer");
                Ok(())
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            done.store(true, Ordering::Release);
            match result {
                Ok(worked) => worked.expect("a connection"),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
    }
}

#[test]
fn superframes_cross_once_and_come_through() {
    let Some((a, b, mut queues, _table)) = queued("rules::queues::superframes") else { return };
    for address in ["10.77.0.2:7101", "[fd77::2]:7101"] {
        let (done, longest) = (AtomicBool::new(false), AtomicUsize::new(0));
        let bytes = std::thread::scope(|scope| {
            scope.spawn(|| {
                serve(
                    &mut queues,
                    || done.load(Ordering::Relaxed),
                    |i, packet, verdicts| {
                        assert_eq!((packet.out_device != 0, packet.in_device != 0), (i == 0, i == 1));
                        let len = match packet.bytes[0] >> 4 {
                            4 => usize::from(u16::from_be_bytes([packet.bytes[2], packet.bytes[3]])),
                            _ => 40 + usize::from(u16::from_be_bytes([packet.bytes[4], packet.bytes[5]])),
                        };
                        assert_eq!(len, packet.bytes.len());
                        assert_eq!(packet.superframe, len > 1500);
                        longest.fetch_max(len, Ordering::Relaxed);
                        verdicts.judge(packet.id, Verdict::Accept);
                    },
                );
            });
            let bytes = transfer(&a, &b, address, 4 << 20);
            done.store(true, Ordering::Relaxed);
            bytes.expect("a transfer")
        });
        assert_eq!(bytes.len(), 4 << 20);
        assert!(bytes.iter().enumerate().all(|(i, b)| *b == (i % 251) as u8));
        assert!(longest.into_inner() > 20_000, "superframes");
        assert_eq!(queues[0].overruns(), 0);
    }
}

#[test]
fn packets_change_in_length_and_those_without_a_verdict_are_dropped() {
    let Some((a, b, mut queues, _table)) = queued("rules::queues::changes") else { return };
    let done = AtomicBool::new(false);
    let (mut dropped, mut changed) = (0, 0);
    let bytes = std::thread::scope(|scope| {
        scope.spawn(|| {
            serve(
                &mut queues,
                || done.load(Ordering::Relaxed),
                |_, packet, verdicts| {
                    let syn = packet.bytes[33] & 0x12 == 2;
                    if syn && dropped == 0 {
                        // The first SYN gets no verdict: TCP sends it again a second later.
                        dropped += 1;
                    } else if syn {
                        // Appends an unknown option of four bytes; the kernel ignores it.
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
                },
            );
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
    let Some((a, _b, mut queues, _table)) = queued("rules::queues::losses") else { return };
    queues[0].set_receive_buffer(4096).expect("a small buffer");
    // A hundred SYNs that are not read in time; those read later show the gaps.
    let connect = |n: u16| {
        a.run(|| {
            let socket = std::net::SocketAddr::from(([10, 77, 0, 2], 7200 + n));
            Ok(TcpStream::connect_timeout(&socket, Duration::from_millis(1)).is_ok())
        })
    };
    for n in 0..100 {
        assert!(!connect(n).expect("a thread"));
    }
    let end = Instant::now() + Duration::from_secs(20);
    while queues[0].overruns() == 0 && Instant::now() < end {
        let start = Instant::now();
        serve(&mut queues, || start.elapsed() > Duration::from_millis(20), |_, _, _| {});
        assert!(!connect(200).expect("a thread"));
    }
    assert!(queues[0].overruns() > 0);
}
