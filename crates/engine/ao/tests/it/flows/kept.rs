//! Sockets with keys of programs that another process takes over.

use super::{A_ISN, ACK, B_ISN, End, MSS, SYN, connected, facts, packet};
use sealane_abi::tcp::State;
use sealane_engine_ao::{Change, Ends, KeptSocket, SocketId, Verdict};
use sealane_net_ao::drop::DropReason;
use sealane_wire::tcp::{Flags, Segment};

/// The sockets that have changed or, where it is `None`, are gone, by their number.
fn changes(end: &mut End) -> Vec<(u64, Option<KeptSocket>)> {
    assert!(end.engine.has_changes());
    let mut list: Vec<_> =
        end.engine.take_changes().into_iter().map(|Change { number, socket }| (number, socket)).collect();
    list.sort_by_key(|(number, _)| *number);
    assert!(!end.engine.has_changes() && end.engine.take_changes().is_empty());
    list
}

/// The end with another engine, which has nothing but what the one before kept.
fn taken_over(mut end: End) -> (End, Vec<KeptSocket>) {
    end.engine.note_changes();
    let kept: Vec<_> = changes(&mut end).into_iter().filter_map(|(_, socket)| socket).collect();
    let mut next = End::new(&end.addr.to_string());
    next.kernel = end.kernel;
    for socket in &kept {
        assert!(next.engine.restore_kept(socket).1, "its keys can be derived");
    }
    (next, kept)
}

fn exchange(a: &mut End, b: &mut End, (a_at, b_at): (u32, u32)) {
    let (at, to) = (a.addr, b.addr);
    let (verdict, out) = a.send(&packet(at, to, ACK, a_at, b_at, &[], b"over"));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    assert_eq!(Segment::parse(&b.receive(&out[0]).unwrap()).unwrap().payload(), b"over");
    let (verdict, out) = b.send(&packet(to, at, ACK, b_at, a_at.wrapping_add(4), &[], b"back"));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    assert_eq!(Segment::parse(&a.receive(&out[0]).unwrap()).unwrap().payload(), b"back");
}

#[test]
fn a_connection_goes_on_at_both_ends() {
    let (a, b) = connected();
    let (mut a, kept) = taken_over(a);
    assert_eq!(kept.iter().map(|k| (k.cookie, k.keys.len(), k.conn.is_some())).collect::<Vec<_>>(), [(1, 2, true)]);
    let (mut b, kept) = taken_over(b);
    // The accepted socket is not known by its cookie yet.
    let mut told: Vec<_> = kept.iter().map(|k| (k.cookie, k.keys.len(), k.conn.is_some(), k.listening)).collect();
    told.sort_unstable();
    assert_eq!(told, [(0, 2, true, false), (2, 2, false, true)]);
    exchange(&mut a, &mut b, (A_ISN + 1, B_ISN + 1));
    // Unsigned segments are dropped as before, and new connections find the listener's keys.
    let (at, to) = (a.addr, b.addr);
    assert_eq!(
        b.receive(&packet(at, to, ACK, A_ISN + 5, B_ISN + 5, &[], b"bare")),
        Err(Verdict::Drop(DropReason::Required))
    );
    b.engine.adopt(SocketId(77), &facts(State::Established, Some(to), Some(at)));
    assert!(b.engine.info(SocketId(77)).is_some_and(|info| info.keys().len() == 2));
    // Twice is as good as once.
    let (mut a, _) = taken_over(a);
    let (mut b, _) = taken_over(b);
    exchange(&mut a, &mut b, (A_ISN + 5, B_ISN + 5));
}

#[test]
fn changes_are_told_once() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    b.engine.note_changes();
    assert_eq!(changes(&mut b).len(), 2);
    // Packets alone change nothing that has to be kept.
    a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"data"));
    exchange(&mut a, &mut b, (A_ISN + 1, B_ISN + 1));
    b.engine.note_progress();
    assert!(!b.engine.has_changes());
    b.key(2, "10.0.0.9:0".parse().unwrap(), "hmac(sha1)", 1, 1);
    let [(2, Some(listener))] = &changes(&mut b)[..] else { panic!("the listener alone") };
    assert_eq!(listener.keys.len(), 3);
    assert_eq!(listener.keys[0].peer.addr.to_string(), "10.0.0.9", "the newest first");
    // The end of a socket: its connection is kept for TIME_WAIT, and then is gone.
    b.engine.adopt(SocketId(77), &facts(State::Established, Some(to), Some(at)));
    let adopted = changes(&mut b);
    assert!(matches!(adopted[..], [(77, Some(_)), (_, None)]), "{}", adopted.len());
    b.engine.destroyed(SocketId(77), Some(Ends::new(to, at)), 0);
    b.engine.expire(10_000_000);
    assert!(matches!(changes(&mut b)[..], [(77, None)]));
    // Sockets that never had keys are nobody's concern.
    b.engine.destroyed(SocketId(500), None, 0);
    assert!(!b.engine.has_changes());
}

/// Sequence numbers that have gone far are kept again, or the next process would take them for those of another round.
#[test]
fn far_sequence_numbers_are_kept_again() {
    let (mut a, mut b) = connected();
    a.engine.note_changes();
    changes(&mut a);
    let conn = |end: &mut End| end.engine.info_mut(SocketId(1)).and_then(|i| i.conn_mut()).map(|c| &mut c.rcv).copied();
    let before = conn(&mut a).expect("it has one");
    changes(&mut a);
    let (at, to) = (a.addr, b.addr);
    for step in 1..=5u32 {
        let seq = B_ISN.wrapping_add(1).wrapping_add(step * (1 << 26));
        let (_, out) = b.send(&packet(to, at, ACK, seq, A_ISN + 1, &[], b"far"));
        assert!(a.receive(&out[0]).is_ok());
        a.engine.note_progress();
        assert_eq!(a.engine.has_changes(), step == 5, "step {step}");
    }
    let [(1, Some(kept))] =
        &{ a.engine.take_changes() }.into_iter().map(|c| (c.number, c.socket)).collect::<Vec<_>>()[..]
    else {
        panic!("its connection")
    };
    let rcv = kept.conn.expect("it has one").rcv;
    assert!(rcv.base != before.base && (rcv.ext, before.ext) == (1, 0), "the numbers have wrapped");
    a.engine.note_progress();
    assert!(!a.engine.has_changes());
}

#[test]
fn programs_without_keys_are_cut_off() {
    let (mut a, mut b) = connected();
    let (at, to) = (a.addr, b.addr);
    b.engine.forget_programs();
    let (_, out) = a.send(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"data"));
    assert!(matches!(b.receive(&out[0]), Err(Verdict::Drop(_))));
    assert!(matches!(b.send(&packet(to, at, ACK, B_ISN + 1, A_ISN + 1, &[], b"data")).0, Verdict::Drop(_)));
    assert_eq!(
        b.receive(&packet(at, to, ACK, A_ISN + 1, B_ISN + 1, &[], b"bare")),
        Err(Verdict::Drop(DropReason::Required))
    );
}

/// The answer to a SYN of before may find its socket closed: the kernel's RST to it is signed.
#[test]
fn a_handshake_that_another_process_began_ends_signed() {
    let (mut a, mut b) = (End::new("10.0.0.1:40000"), End::new("10.0.0.2:179"));
    let (at, to) = (a.addr, b.addr);
    a.key(1, to, "hmac(sha1)", 1, 2);
    b.key(2, at, "hmac(sha1)", 2, 1);
    a.engine.connect(SocketId(1), &facts(State::Close, None, None), to).unwrap();
    a.socket(1, Some(to), State::SynSent);
    b.socket(2, None, State::Listen);
    let (_, out) = a.send(&packet(at, to, SYN, A_ISN, 0, &MSS, &[]));
    assert!(b.receive(&out[0]).is_ok());
    let (mut a, _) = taken_over(a);
    let (_, out) = b.send(&packet(to, at, SYN | ACK, B_ISN, A_ISN + 1, &MSS, &[]));
    assert!(a.receive(&out[0]).is_ok());
    a.kernel.0.clear();
    a.engine.destroyed(SocketId(1), None, 0);
    let (verdict, out) = a.send(&packet(at, to, Flags::RST, A_ISN + 1, 0, &[], &[]));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    assert!(b.receive(&out[0]).is_ok());
}

/// A process may end between a connect() that it allowed and its SYN.
#[test]
fn a_syn_that_was_allowed_before_is_signed() {
    let (mut a, peer) = (End::new("10.0.0.1:40000"), "10.0.0.2:179".parse().unwrap());
    a.key(1, peer, "hmac(sha1)", 1, 2);
    a.engine.connect(SocketId(1), &facts(State::Close, None, None), peer).unwrap();
    let (mut a, _) = taken_over(a);
    a.socket(1, Some(peer), State::SynSent);
    for _ in 0..2 {
        let (verdict, out) = a.send(&packet(a.addr, peer, SYN, A_ISN, 0, &MSS, &[]));
        assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
        // And so is the same SYN when it is repeated, after another process has taken over.
        a = taken_over(a).0;
    }
}
