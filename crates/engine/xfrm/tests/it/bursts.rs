//! With large tables a burst becomes what its packets would become one by one, also when states change between bursts.

use super::packets::Local;
use super::*;
use sealane_engine_xfrm::data::{BURST, Databases, Owner, Run};
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Mode, Proto, SaDir, SaId, SaSpec};
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::selector::Selector;
use sealane_net_ipsec::spd::{Action, Dir, Policy, Template};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::net::{IpAddr, Ipv4Addr};

/// Peers, each with hosts behind it; for some of them there is no policy, or no state.
const PEERS: u32 = 400;

fn here() -> IpAddr {
    Ipv4Addr::new(192, 0, 2, 1).into()
}

fn peer(n: u32) -> IpAddr {
    Ipv4Addr::from(0xc612_0000 + n).into()
}

/// The address of host `n`; the hosts of one `of` share a prefix of 28 bits.
fn host(n: u32, of: u32) -> Ipv4Addr {
    Ipv4Addr::from(0x0a10_0000 + n * 16 + of % 16)
}

/// Outbound for us, or of the peers.
fn spec(n: u32, back: bool, transform: &Transform) -> SaSpec {
    let (src, dst) = if back { (peer(n), here()) } else { (here(), peer(n)) };
    let dir = Some(if back { SaDir::In } else { SaDir::Out });
    SaSpec {
        reqid: n,
        dir,
        window_pkts: 64,
        ..SaSpec::tunnel(0x1000 + n * 2 + u32::from(back), src, dst, transform.clone())
    }
}

fn databases(transform: &Transform) -> Databases {
    let mut data = Databases::of(Owner::Alone, || 7);
    for n in 0..PEERS {
        if n % 11 != 0 {
            data.sad.add(spec(n, false, transform)).unwrap();
        }
        data.sad.add(spec(n, true, transform)).unwrap();
        if n % 13 == 0 {
            continue;
        }
        let (ours, theirs) = ((Ipv4Addr::new(10, 0, 0, 0).into(), 16), (host(n, 0).into(), 28));
        for (dir, selector, src, dst) in [
            (Dir::Out, Selector::between(ours, theirs), here(), peer(n)),
            (Dir::In, Selector::between(theirs, ours), peer(n), here()),
        ] {
            let mut policy = Policy { priority: n % 3, ..Policy::allow(dir, selector) };
            // Some leave the source to the route, some are for ports, some block.
            let src = if n % 17 == 0 && dir == Dir::Out { Ipv4Addr::UNSPECIFIED.into() } else { src };
            (policy.selector.dport, policy.selector.dport_mask) = if n % 5 == 0 { (7, 0xffff) } else { (0, 0) };
            (policy.selector.sport, policy.selector.sport_mask) =
                if n % 5 == 0 && dir == Dir::In { (7, 0xffff) } else { (0, 0) };
            if dir == Dir::In {
                (policy.selector.dport, policy.selector.dport_mask) = (0, 0);
            }
            policy.action = if n % 19 == 0 { Action::Block } else { Action::Allow };
            let (proto, mode) = (Proto::Esp, Mode::Tunnel);
            policy.templates.push(Template { src, dst, proto, mode, reqid: n, spi: 0, optional: n % 23 == 0 });
            data.spd.add(policy, false).unwrap();
        }
    }
    data
}

/// A datagram; some are fragments, the first of which alone has ports, and some are no packets at all.
fn datagram(source: Ipv4Addr, destination: Ipv4Addr, ports: [u8; 4], random: u64) -> Vec<u8> {
    let len = 32 + (random >> 20) as usize % 64;
    let mut packet = vec![random as u8; len];
    let fragment: [u8; 2] = match random % 40 {
        0 => [0x20, 0],
        1 => [0, 4],
        _ => [0x40, 0],
    };
    packet[..20].copy_from_slice(&[
        0x45,
        0,
        0,
        len as u8,
        0,
        9,
        fragment[0],
        fragment[1],
        64,
        17,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    packet[12..16].copy_from_slice(&source.octets());
    packet[16..20].copy_from_slice(&destination.octets());
    packet[20..24].copy_from_slice(&ports);
    if random.is_multiple_of(41) { packet[..20].to_vec() } else { packet }
}

/// The packets of a burst with their statuses, and the events.
type Fate<S> = (Vec<(S, Vec<u8>)>, Vec<Event>);

fn outbound(data: &mut Databases, runs: &[Run], packets: &[Vec<u8>]) -> Fate<(Result<(), DropReason>, bool, u32)> {
    let mut bufs: Vec<Vec<u8>> = packets.iter().map(|p| [&[0; HEADROOM][..], p, &[0; TAILROOM]].concat()).collect();
    let burst = bufs.iter_mut().zip(packets);
    let mut burst: Vec<Outbound<'_>> =
        burst.map(|(buf, p)| Outbound::new(SaId::NONE, Packet::new(buf, HEADROOM, HEADROOM + p.len()))).collect();
    data.tables(0, at(1)).outbound(runs, &mut burst, &mut Local);
    let fates = burst.iter().map(|o| ((o.status, o.sa == SaId::NONE, o.mtu), o.packet.bytes().to_vec())).collect();
    (fates, core::mem::take(&mut data.events))
}

fn inbound(data: &mut Databases, packets: &[Vec<u8>]) -> Fate<Result<Opened, DropReason>> {
    let mut bufs: Vec<Vec<u8>> = packets.iter().map(|p| [&[0; HEADROOM][..], p].concat()).collect();
    let burst = bufs.iter_mut().map(|buf| buf.len()).collect::<Vec<_>>();
    let burst = bufs.iter_mut().zip(burst).map(|(buf, end)| Inbound::new(Packet::new(buf, HEADROOM, end)));
    let mut burst: Vec<Inbound<'_>> = burst.collect();
    data.tables(0, at(1)).inbound(&mut burst, &mut Local);
    // Dropped packets may have been overwritten.
    let bytes = |i: &Inbound<'_>| i.status.map_or_else(|_| Vec::new(), |_| i.packet.bytes().to_vec());
    let fates = burst.iter().map(|i| (i.status, bytes(i))).collect();
    (fates, core::mem::take(&mut data.events))
}

#[test]
fn like_one_by_one() {
    let gcm = TransformSpec::Aead { aead: Keyed { name: "rfc4106(gcm(aes))", key: &[9; 20] }, icv_bits: 128 };
    let transform = Transforms::new(Arc::new(sealane_crypto_portable::registry())).prepare(&gcm, false).unwrap();
    let (mut together, mut alone) = (databases(&transform), databases(&transform));
    // The peers, who send back by states of the same keys and numbers.
    let mut peers = Databases::of(Owner::Alone, || 8);
    let ids: Vec<SaId> =
        (0..PEERS).map(|n| peers.sad.add(SaSpec { dir: None, ..spec(n, true, &transform) }).unwrap()).collect();
    let mut state = 88_172_645_463_325_252u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let (mut sealed, mut opened, mut clear, mut refused, mut asked) = (0, 0, 0, 0, 0);
    for step in 0..300u32 {
        let (mut runs, mut packets) = (Vec::new(), Vec::new());
        while packets.len() < BURST && runs.len() < 1 + step as usize % BURST {
            let (n, of) = (random() as u32 % PEERS, random() as u32);
            let run = (1 + random() as usize % 3).min(BURST - packets.len());
            let port = [7, 9][random() as usize % 2];
            for _ in 0..run {
                packets.push(datagram(Ipv4Addr::new(10, 0, 0, 1), host(n, of), [0, 5, 0, port], random()));
            }
            // Packets of a run are of one flow.
            let first = packets[packets.len() - run].clone();
            packets.iter_mut().rev().take(run).for_each(|packet| packet.clone_from(&first));
            runs.push(Run::new(run));
        }
        let (all, events) = outbound(&mut together, &runs, &packets);
        let (mut each, mut each_events, mut from) = (Vec::new(), Vec::new(), 0);
        for run in &runs {
            let (fates, events) = outbound(&mut alone, &[*run], &packets[from..from + run.packets]);
            each.extend(fates);
            each_events.extend(events);
            from += run.packets;
        }
        assert!(all.len() == packets.len() && all == each, "step {step}");
        let acquires = |events: &[Event]| events.iter().filter(|e| matches!(e, Event::Acquire { .. })).count();
        assert_eq!(acquires(&events), acquires(&each_events));
        asked += acquires(&events);
        for ((status, none, _), _) in &all {
            match status {
                Ok(()) if *none => clear += 1,
                Ok(()) => sealed += 1,
                Err(_) => refused += 1,
            }
        }

        let mut back: Vec<Vec<u8>> = Vec::new();
        for _ in 0..1 + random() as usize % BURST {
            // Of another peer's hosts sometimes, or what was there before.
            let (n, of) = (random() as u32 % PEERS, random() as u32);
            let inner = if random() % 30 == 0 { (n + 1) % PEERS } else { n };
            let packet = datagram(
                host(inner, of),
                Ipv4Addr::new(10, 0, 0, 1),
                [0, [7, 9][random() as usize % 2], 0, 5],
                random(),
            );
            let mut buf = [&[0; HEADROOM][..], &packet, &[0; TAILROOM]].concat();
            let packet = Packet::new(&mut buf, HEADROOM, HEADROOM + packet.len());
            let mut one = [Outbound::new(ids[n as usize], packet)];
            sealane_net_ipsec::seal::seal(&mut peers.sad, &mut one, 1, &mut Vec::new());
            back.push(one[0].packet.bytes().to_vec());
            if random() % 50 == 0 {
                back.push(back[back.len() - 1].clone());
            }
        }
        let (all, _) = inbound(&mut together, &back);
        let each: Vec<_> =
            back.iter().flat_map(|packet| inbound(&mut alone, core::slice::from_ref(packet)).0).collect();
        assert!(all == each, "step {step}");
        opened += all.iter().filter(|(status, _)| matches!(status, Ok(Opened::Packet))).count();
        refused += all.iter().filter(|(status, _)| status.is_err()).count();

        // The flow cache becomes invalid.
        if step % 7 == 0 {
            let n = random() as u32 % PEERS;
            for data in [&mut together, &mut alone] {
                let found =
                    data.sad.iter().find(|(_, sa)| sa.reqid == n && sa.dir == Some(SaDir::Out)).map(|(id, _)| id);
                match found {
                    Some(id) => drop(data.sad.remove(id).unwrap()),
                    None => drop(data.sad.add(spec(n, false, &transform)).unwrap()),
                }
            }
        }
    }
    assert_eq!(together.stat, alone.stat);
    let seen = [sealed, opened, clear, refused, asked];
    assert!(sealed > 4000 && opened > 3000 && clear > 300 && refused > 1000 && asked > 10, "{seen:?}");
}
