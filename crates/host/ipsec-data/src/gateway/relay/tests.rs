//! Packets and chunks between threads.

use super::*;
use sealane_sys::poll::ready;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// Relays of threads that have so many chunks each, and their wakers.
fn relays(chunks: &[usize]) -> (Vec<Relay>, Vec<Arc<Waker>>) {
    let wakers: Vec<Arc<Waker>> = chunks.iter().map(|_| Arc::new(Waker::new().expect("a descriptor"))).collect();
    (Relay::connect(&wakers, chunks), wakers)
}

fn packet(memory: &mut Vec<Frame>, number: usize) -> RelayedFrame {
    RelayedFrame { frame: memory.pop().expect("a chunk"), at: (number, number + 1) }
}

fn numbers<const N: usize>(relay: &mut Relay) -> (Vec<usize>, Vec<Frame>) {
    let mut packets: ArrayVec<RelayedFrame, N> = ArrayVec::new();
    relay.take(&mut packets);
    packets.into_iter().map(|RelayedFrame { frame, at }| (at.0, frame)).unzip()
}

fn is_woken(waker: &Waker) -> bool {
    ready::<1>(core::iter::once(waker.as_fd()), Duration::ZERO)[0]
}

#[test]
fn packets_come_in_their_order_and_from_everybody() {
    let (mut relays, _) = relays(&[8, 8, 8]);
    let mut chunks = Frame::some(12);
    for number in 0..6 {
        relays[0].pass(2, packet(&mut chunks, number)).expect("room");
        relays[1].pass(2, packet(&mut chunks, 10 + number)).expect("room");
    }
    assert!(relays[0].pass(0, packet(&mut Frame::some(1), 0)).is_err(), "to itself");
    assert!(relays[0].pass(3, packet(&mut Frame::some(1), 0)).is_err(), "to nobody");
    // The first ring may fill it; the other one is next then.
    let (mut all, _) = numbers::<4>(&mut relays[2]);
    all.extend(numbers::<4>(&mut relays[2]).0);
    assert!(all.iter().any(|n| *n < 10) && all.iter().any(|n| *n >= 10), "{all:?}");
    all.extend(numbers::<64>(&mut relays[2]).0);
    let of = |low: bool| all.iter().copied().filter(|n| (*n < 10) == low).collect::<Vec<_>>();
    assert_eq!((of(true), of(false)), ((0..6).collect(), (10..16).collect()));
    assert!(numbers::<64>(&mut relays[2]).0.is_empty());
}

#[test]
fn a_full_ring_gives_back_and_holds_nobody_up() {
    let (mut relays, _) = relays(&[8, 8, 8]);
    let mut chunks = Frame::some(DEPTH + 2);
    for number in 0..DEPTH {
        relays[0].pass(1, packet(&mut chunks, number)).expect("room");
    }
    let back = relays[0].pass(1, packet(&mut chunks, DEPTH)).expect_err("no room");
    assert_eq!(back.at.0, DEPTH);
    relays[0].pass(2, packet(&mut chunks, 7)).expect("another's ring");
    assert_eq!(numbers::<8>(&mut relays[2]).0, [7]);
    assert_eq!(numbers::<1>(&mut relays[1]).0, [0]);
    relays[0].pass(1, back).expect("room again");
}

#[test]
fn who_sleeps_is_woken_once_and_who_does_not_is_not() {
    let (mut relays, wakers) = relays(&[8, 8]);
    let mut chunks = Frame::some(8);
    relays[0].pass(1, packet(&mut chunks, 1)).unwrap();
    relays[0].wake_threads();
    assert!(!is_woken(&wakers[1]), "it is awake");
    assert!(relays[1].arm(), "and sees it before it sleeps");
    assert_eq!(numbers::<8>(&mut relays[1]).0, [1]);
    relays[1].disarm();
    assert!(!relays[1].arm());
    relays[0].pass(1, packet(&mut chunks, 2)).unwrap();
    assert!(!is_woken(&wakers[1]), "it is told of several together");
    relays[0].wake_threads();
    assert!(is_woken(&wakers[1]));
    wakers[1].drain();
    relays[0].pass(1, packet(&mut chunks, 3)).unwrap();
    relays[0].wake_threads();
    assert!(!is_woken(&wakers[1]), "it is on its way");
    // A single thread waits for nobody.
    assert!(!Relay::connect(&wakers[..1], &[8])[0].arm());
}

#[test]
fn nothing_is_lost_between_two_threads() {
    const COUNT: usize = 200_000;
    let (relays, wakers) = relays(&[64, 64]);
    let [mut a, mut b] = <[Relay; 2]>::try_from(relays).map_err(|_| "two").unwrap();
    let start = Instant::now();
    let producer = std::thread::spawn(move || {
        let mut number = 0;
        while number < COUNT {
            let mut one = Some(packet(&mut Frame::some(1), number));
            while let Some(packet) = one.take() {
                one = a.pass(1, packet).err();
                // The consumer is not woken each time, but it must be at the end, and when there is no room.
                if one.is_some() || number % 7 == 0 || number + 1 == COUNT {
                    a.wake_threads();
                }
            }
            number += 1;
        }
        a.wake_threads();
    });
    let mut next = 0;
    while next < COUNT {
        assert!(start.elapsed() < LIMIT, "{next} came");
        let wait = if b.arm() { Duration::ZERO } else { LIMIT };
        let woken = ready::<1>(core::iter::once(wakers[1].as_fd()), wait);
        b.disarm();
        if woken[0] {
            wakers[1].drain();
        }
        for number in numbers::<64>(&mut b).0 {
            assert_eq!(number, next);
            next += 1;
        }
    }
    producer.join().expect("it ended");
}
