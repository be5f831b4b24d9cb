//! Connections between the same addresses and ports in two VRFs.

use super::*;
use sealane_engine_ao::Interfaces;
use std::collections::HashSet;

const RED: i32 = 10;
const BLUE: i32 = 20;

/// Two VRFs, and nothing in them.
struct Two;

impl Interfaces for Two {
    fn vrf(&self, ifindex: i32) -> i32 {
        if [RED, BLUE].contains(&ifindex) { ifindex } else { 0 }
    }
}

/// A kernel whose sockets are bound to VRFs, by VRF and peer.
#[derive(Default)]
struct Bound(HashMap<(u32, Option<SocketAddr>), Found>);

impl Kernel for Bound {
    fn find(&mut self, _: SocketAddr, remote: SocketAddr, device: u32) -> Option<Found> {
        self.0.get(&(device, Some(remote))).or_else(|| self.0.get(&(device, None))).copied()
    }
}

/// A router with a listener in each VRF.
struct Router {
    engine: Namespace,
    kernel: Bound,
}

impl Router {
    fn send(&mut self, vrf: i32, packet: &[u8]) -> (Verdict, Vec<Vec<u8>>) {
        let located = Located::sent(packet).map(|located| located.in_vrf(vrf));
        let mut burst = [Outbound { located, device: vrf.cast_unsigned(), ..leaving(packet) }];
        let mut out = Vec::new();
        self.engine.output(&mut burst, &mut self.kernel, 0, |piece| out.push(piece.packet.to_vec()));
        (burst[0].verdict, out)
    }

    fn receive(&mut self, vrf: i32, packet: &[u8]) -> Verdict {
        let mut bytes = packet.to_vec();
        let located = Located::received(&bytes).map(|located| located.in_vrf(vrf));
        let mut burst = [Inbound { located, device: vrf.cast_unsigned(), ..arriving(&mut bytes) }];
        self.engine.input(&mut burst, &mut self.kernel, 0);
        burst[0].verdict
    }
}

fn in_vrf(vrf: i32, state: State, ends: Option<Ends>) -> SocketFacts<'static> {
    let facts = facts(state, ends.map(|ends| ends.local), ends.map(|ends| ends.remote));
    SocketFacts { bound_ifindex: vrf, interfaces: &Two, ..facts }
}

fn is_delivered(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Deliver(..))
}

#[test]
fn connections_between_the_same_ends() {
    let mut router = Router { engine: End::new("10.0.0.2:179").engine, kernel: Bound::default() };
    let mut peers = [RED, BLUE].map(|vrf| (vrf, End::new("10.0.0.1:40000")));
    let (at, to) = (peers[0].1.addr, "10.0.0.2:179".parse().expect("an address"));
    let secret = |vrf: i32| format!("secret of {vrf}");
    for (vrf, peer) in &mut peers {
        let listener = SocketId(vrf.cast_unsigned().into());
        let mut key = add(at, "hmac(sha1)", 2, 1, secret(*vrf).as_bytes());
        key[192..196].copy_from_slice(&vrf.to_ne_bytes());
        key[206] = tcp::TCP_AO_KEYF_IFINDEX;
        let facts_there = in_vrf(*vrf, State::Close, None);
        let len = key.len() as i32;
        router.engine.setsockopt(listener, &facts_there, tcp::TCP_AO_ADD_KEY, &key, len).expect("a key");
        let found = Found { id: listener, state: State::Listen, vrf: *vrf };
        router.kernel.0.insert((vrf.cast_unsigned(), None), found);
        let key = add(to, "hmac(sha1)", 1, 2, secret(*vrf).as_bytes());
        let own = facts(State::Close, None, None);
        peer.engine.setsockopt(SocketId(1), &own, tcp::TCP_AO_ADD_KEY, &key, len).expect("a key");
        peer.engine.connect(SocketId(1), &own, to).expect("it has a key");
        peer.socket(1, Some(to), State::SynSent);
    }
    // Both handshakes at the same time.
    let syns = peers.each_mut().map(|(_, peer)| peer.send(&packet(at, to, SYN, A_ISN, 0, &MSS, &[])).1.remove(0));
    assert_eq!(router.receive(BLUE, &syns[0]), Verdict::Drop(DropReason::Mac), "of the other VRF");
    for ((vrf, _), syn) in peers.iter().zip(&syns) {
        assert!(is_delivered(router.receive(*vrf, syn)));
    }
    for (vrf, peer) in &mut peers {
        let isn = B_ISN.wrapping_add(vrf.cast_unsigned());
        let (verdict, out) = router.send(*vrf, &packet(to, at, SYN | ACK, isn, A_ISN + 1, &MSS, &[]));
        assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
        peer.receive(&out[0]).expect("the answer of its own VRF");
        peer.socket(1, Some(to), State::Established);
        let (_, out) = peer.send(&packet(at, to, ACK, A_ISN + 1, isn.wrapping_add(1), &[], &[]));
        assert!(is_delivered(router.receive(*vrf, &out[0])));
    }
    // Each has its own keys and numbers.
    for (vrf, peer) in &mut peers {
        let isn = B_ISN.wrapping_add(vrf.cast_unsigned());
        let (_, out) = peer.send(&packet(at, to, ACK, A_ISN + 1, isn.wrapping_add(1), &[], b"data"));
        assert_eq!(router.receive(RED + BLUE - *vrf, &out[0]), Verdict::Drop(DropReason::Mac));
        assert!(is_delivered(router.receive(*vrf, &out[0])));
        let bare = packet(at, to, ACK, A_ISN + 1, isn.wrapping_add(1), &[], b"data");
        assert_eq!(router.receive(*vrf, &bare), Verdict::Drop(DropReason::Required));
        let (_, out) = router.send(*vrf, &packet(to, at, ACK, isn.wrapping_add(1), A_ISN + 5, &[], b"answer"));
        assert!(peer.receive(&out[0]).is_ok());
    }
    let ends = Ends::new(to, at);
    let accepted = SocketId(77);
    // A device that leaves the VRF takes the connection of a socket that is bound to it along, before the cookie is known.
    let there = ends.in_vrf(BLUE);
    router.engine.moved(&[(accepted, RED, ends)], &HashSet::from([ends, there]));
    assert!(!router.engine.tracks(&ends), "a socket that is bound to the VRF stays");
    router.engine.moved(&[(accepted, 3, ends), (SocketId(78), 4, there)], &HashSet::from([ends, there]));
    let isn = B_ISN.wrapping_add(RED.cast_unsigned());
    let (verdict, out) = router.send(0, &packet(to, at, ACK, isn.wrapping_add(7), A_ISN + 5, &[], b"more"));
    assert_eq!((verdict, out.len()), (Verdict::Sent, 1));
    peers[0].1.receive(&out[0]).expect("signed as before");
    let bare = packet(at, to, ACK, A_ISN + 5, isn.wrapping_add(11), &[], b"data");
    assert_eq!(router.receive(0, &bare), Verdict::Drop(DropReason::Required));
    // The same for a socket that is bound to no device, whose route has come to lead through a VRF.
    let unknown = Found { id: SocketId(99), state: State::Established, vrf: RED };
    router.kernel.0.insert((RED.cast_unsigned(), Some(at)), unknown);
    let (verdict, _) = router.send(RED, &packet(to, at, ACK, isn.wrapping_add(11), A_ISN + 5, &[], b"bare"));
    assert_eq!(verdict, Verdict::Drop(DropReason::NoSendKey));
    router.engine.adopt(accepted, &in_vrf(0, State::Established, Some(ends)));
    let keys: Vec<_> = router.engine.info(accepted).expect("a connection").keys().iter().collect();
    assert_eq!((keys.len(), keys[0].1.mkt.key()), (1, secret(RED).as_bytes()));
    // The end of one is none of the other.
    router.engine.destroyed(accepted, Some(ends), 0);
    router.engine.expire(10_000_000);
    assert_eq!([0, RED, BLUE].map(|vrf| router.engine.tracks(&ends.in_vrf(vrf))), [false, false, true]);
}
