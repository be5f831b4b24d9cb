//! Parcels between workers.

use super::*;

fn lanes(of: usize) -> Vec<Lane> {
    let worker = |_| (Arc::new(Waker::new().expect("a descriptor")), Arc::default());
    Lane::all(&(0..of).map(worker).collect::<Vec<_>>())
}

/// A frame at this place.
fn frame(range: Range<usize>) -> Frame {
    Frame { range, offload: Offload::default(), origin: Origin::default() }
}

/// A parcel of frames of these lengths, numbered from `first` on.
fn parcel(first: u8, lens: &[usize]) -> Box<Parcel> {
    let mut parcel = Box::new(Parcel::new(2 * FRAME_LEN));
    let mut at = 0;
    for (number, len) in (first..).zip(lens) {
        parcel.buffer[at..at + len].fill(number);
        parcel.frames.push(frame(at..at + len));
        at += len;
    }
    parcel
}

fn numbers(parcel: &Parcel) -> Vec<(u8, usize)> {
    parcel.packets().map(|packet| (packet[0], packet.len())).collect()
}

fn taken(lane: &mut Lane) -> Option<Vec<(u8, usize)>> {
    let mut parcel = parcel(0, &[]);
    lane.take(&mut parcel).then(|| numbers(&parcel))
}

#[test]
fn each_frame_goes_to_its_worker_in_its_order() {
    let mut lanes = lanes(3);
    let mut own = parcel(1, &[100, 60_000, 7, 20, 20]);
    lanes[0].sort(&mut own, &[1, 0, 1, 2, 0]);
    assert_eq!(numbers(&own), [(2, 60_000), (5, 20)]);
    let mut other = parcel(6, &[40]);
    lanes[0].sort(&mut other, &[1]);
    assert!(numbers(&other).is_empty(), "it has gone whole");
    assert_eq!(taken(&mut lanes[1]), Some(vec![(1, 100), (3, 7)]));
    assert_eq!(taken(&mut lanes[1]), Some(vec![(6, 40)]));
    assert_eq!(taken(&mut lanes[1]), None);
    assert_eq!(taken(&mut lanes[2]), Some(vec![(4, 20)]));
    assert_eq!(lanes[0].counts.handed_over.load(Relaxed), 4);
    assert_eq!(lanes[1].counts.taken_over.load(Relaxed), 3);
}

#[test]
fn what_has_no_room_waits_and_its_owner_is_woken_for_it() {
    let mut lanes = lanes(2);
    let (from, to) = lanes.split_at_mut(1);
    let (from, to) = (&mut from[0], &mut to[0]);
    let depth = DEPTH as u8 / 2;
    for n in 0..=depth {
        from.sort(&mut parcel(n, &[64]), &[1]);
    }
    assert_eq!(from.counts.full.load(Relaxed), 1);
    assert_eq!(from.parked.len(), 1);
    let readable = |lane: &Lane| {
        use sealane_sys::poll::ready;
        use std::os::fd::AsFd;
        ready::<1>(core::iter::once(lane.doorbell.waker().as_fd()), std::time::Duration::ZERO)[0]
    };
    assert!(!readable(from));
    assert_eq!(taken(to), Some(vec![(0, 64)]));
    assert!(readable(from), "there is room");
    assert!(from.post_parked());
    for n in 1..=depth {
        assert_eq!(taken(to), Some(vec![(n, 64)]));
    }
    assert_eq!(taken(to), None);
}

#[test]
fn who_sleeps_is_woken_once() {
    use sealane_sys::poll::ready;
    use std::os::fd::AsFd;
    let mut lanes = lanes(2);
    let sleeper = Intake::new(lanes.pop());
    let readable = |intake: &Intake| {
        let waker = intake.lane.iter().map(|lane| lane.doorbell.waker().as_fd());
        ready::<1>(waker, std::time::Duration::ZERO)[0]
    };
    lanes[0].sort(&mut parcel(1, &[64]), &[1]);
    assert!(!readable(&sleeper), "it is awake");
    assert!(sleeper.arm(), "something is there already");
    lanes[0].sort(&mut parcel(2, &[64]), &[1]);
    assert!(readable(&sleeper));
    sleeper.disarm();
}

#[test]
fn buffers_go_round() {
    let mut lanes = lanes(2);
    let mut sent = Vec::new();
    let mut held = parcel(0, &[]);
    for n in 0..50 {
        let mut next = lanes[0].empty();
        sent.push(next.buffer.as_ptr());
        next.frames.push(frame(0..64));
        next.buffer[..64].fill(n);
        lanes[0].post(1, next);
        assert!(lanes[1].take(&mut held));
        assert_eq!(numbers(&held), [(n, 64)]);
    }
    sent.sort_unstable();
    sent.dedup();
    assert!(sent.len() <= 3, "{} buffers", sent.len());
}
