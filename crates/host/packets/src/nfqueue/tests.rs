//! Tests of queues without packets; those of packets are where the rules are. One needs root.

use super::*;
use sealane_sys::testing;

#[test]
fn a_taken_queue_is_passed_over() {
    let Some(a) = testing::namespace("sys::nfqueue::taken") else { return };
    a.run(|| {
        let (one, two) = (Queue::open(7, false)?, Queue::open(7, false)?);
        assert_eq!((one.number(), two.number()), (7, 8));
        Ok(())
    })
    .expect("two queues");
}

#[test]
fn reads_are_for_about_as_many_packets_as_come() {
    let rooms = [(1, 1), (2, 1), (1, 0), (1, 1), (2, 2), (4, 4), (8, 8), (16, 16), (16, 5), (5, 5), (10, 3)];
    for (at, &(room, n)) in rooms.iter().enumerate().take(rooms.len() - 1) {
        assert_eq!(room_after(room, n), rooms[at + 1].0, "after {n} of {room}");
    }
    assert_eq!((room_after(BATCH, BATCH), room_after(9, 9)), (BATCH, BATCH));
}
