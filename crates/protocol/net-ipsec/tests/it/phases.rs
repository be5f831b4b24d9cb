//! Sealing and opening in phases: the same bytes and verdicts as in one call, whatever other bursts are in flight and
//! wherever the crypto runs. Packets replayed, and associations deleted in the meantime, are still detected.

use core::net::IpAddr;
use sealane_crypto::{OpError, Status};
use sealane_net_ipsec::burst::{self, BURST, Direction, Item, Job, Jobs, SaKey};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::lifetime::Limits;
use sealane_net_ipsec::open::{self, Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, Proto, Sa, SaFlags, SaId, SaSpec, SaState};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{self, Outbound};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::collections::VecDeque;
use std::sync::Arc;

const KEY: [u8; 64] = [0x51; 64];

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) % n as u64) as usize
    }
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn transform(aead: &str, key_len: usize, enc: &str, esn: bool) -> Transform {
    let mut transforms = Transforms::new(Arc::new(sealane_crypto_portable::registry()));
    let keyed = |name, len: usize| Keyed { name, key: &KEY[..len] };
    let spec = match (aead, enc) {
        ("", "") => TransformSpec::Auth { auth: keyed("hmac(sha1)", 20), icv_bits: 0 },
        ("", _) => TransformSpec::EncAuth { enc: keyed(enc, key_len), auth: keyed("hmac(sha256)", 32), icv_bits: 128 },
        _ => TransformSpec::Aead { aead: keyed(aead, key_len), icv_bits: 128 },
    };
    transforms.prepare(&spec, esn).unwrap()
}

/// Associations of every task, with and without extended numbers, UDP over both families.
fn specs() -> Vec<SaSpec> {
    let (a, b, a6, b6) = (addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1"), addr("2001:db8::2"));
    let udp = Some(Encap::udp(4500, 4500));
    let gcm = || transform("rfc4106(gcm(aes))", 20, "", false);
    let esn = SaFlags { esn: true, ..SaFlags::default() };
    let all = vec![
        SaSpec::tunnel(1, a, b, gcm()),
        SaSpec { encap: udp, ..SaSpec::tunnel(2, a6, b6, gcm()) },
        SaSpec { flags: esn, ..SaSpec::tunnel(3, a, b, transform("rfc7539esp(chacha20,poly1305)", 36, "", true)) },
        SaSpec { encap: udp, ..SaSpec::tunnel(4, a, b, transform("", 16, "cbc(aes)", false)) },
        SaSpec { flags: esn, ..SaSpec::tunnel(5, a6, b6, transform("", 0, "ecb(cipher_null)", true)) },
        SaSpec { proto: Proto::Ah, ..SaSpec::tunnel(6, a, b, transform("", 0, "", false)) },
    ];
    all.into_iter().map(|spec| SaSpec { window_pkts: 256, ..spec }).collect()
}

fn database() -> (Sad, Vec<SaId>) {
    let mut sad = Sad::new(7);
    let ids = specs().into_iter().map(|spec| sad.add(spec).unwrap()).collect();
    (sad, ids)
}

fn plain(n: usize, len: usize) -> Vec<u8> {
    let mut packet = vec![n as u8; 20 + len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 5]);
    packet[2..4].copy_from_slice(&((20 + len) as u16).to_be_bytes());
    sealane_wire::walk::set_v4_checksum(&mut packet);
    packet
}

fn room(packet: &[u8]) -> Vec<u8> {
    [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat()
}

/// Packets in buffers of their own, ready to be moved to another thread.
struct Flight {
    bufs: Vec<(Vec<u8>, usize, usize)>,
    jobs: Jobs,
    keys: Vec<Option<SaKey>>,
    done: Vec<Status>,
}

impl Flight {
    fn new(sad: &Sad, jobs: Jobs, bufs: Vec<(Vec<u8>, usize, usize)>) -> Self {
        let keys = jobs.iter().map(|job| sad.key(job.sa())).collect();
        let done = vec![burst::NOT_RUN; jobs.len()];
        Flight { bufs, jobs, keys, done }
    }

    /// Runs the crypto in another thread without a database.
    fn run(&mut self, dir: Direction) {
        let Flight { bufs, jobs, keys, done } = self;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut packets: Vec<Packet<'_>> = bufs.iter_mut().map(|(b, s, e)| Packet::new(b, *s, *e)).collect();
                let mut items: Vec<Item<'_, '_>> = Vec::new();
                let mut rest = jobs.iter().zip(&*keys).peekable();
                for (at, packet) in packets.iter_mut().enumerate() {
                    if let Some((job, key)) = rest.next_if(|(job, _)| job.packet() == at) {
                        items.push(Item::new(job, key.as_ref().unwrap(), packet));
                    }
                }
                burst::run(dir, &mut items);
                *done = items.iter().map(|item| item.done).collect();
            });
        });
    }
}

fn seal_begin(sad: &mut Sad, burst: &[(SaId, Vec<u8>)]) -> (Flight, Vec<Result<(), DropReason>>) {
    let mut bufs: Vec<Vec<u8>> = burst.iter().map(|(_, plain)| room(plain)).collect();
    let mut packets: Vec<Outbound<'_>> = bufs
        .iter_mut()
        .zip(burst)
        .map(|(buf, (id, plain))| Outbound::new(*id, Packet::new(buf, HEADROOM, HEADROOM + plain.len())))
        .collect();
    let mut jobs = Jobs::new();
    seal::begin(sad, &mut packets, 1, &mut Vec::new(), &mut jobs);
    let statuses: Vec<_> = packets.iter().map(|out| out.status).collect();
    for job in &jobs {
        assert!(statuses[job.packet()].is_err(), "nothing may leave before the end");
    }
    let bounds: Vec<_> = packets.iter().map(|out| (out.packet.start(), out.packet.end())).collect();
    let bufs = bufs.into_iter().zip(bounds).map(|(buf, (start, end))| (buf, start, end)).collect();
    (Flight::new(sad, jobs, bufs), statuses)
}

fn seal_end(mut flight: Flight, before: &[Result<(), DropReason>]) -> Vec<Result<Vec<u8>, DropReason>> {
    let mut packets: Vec<Outbound<'_>> = flight
        .bufs
        .iter_mut()
        .zip(before)
        .map(|((buf, s, e), status)| Outbound {
            status: *status,
            ..Outbound::new(SaId::NONE, Packet::new(buf, *s, *e))
        })
        .collect();
    seal::end(&mut packets, &flight.jobs, &flight.done);
    packets.iter().map(|out| out.status.map(|()| out.packet.bytes().to_vec())).collect()
}

fn seal_at_once(sad: &mut Sad, burst: &[(SaId, Vec<u8>)]) -> Vec<Result<Vec<u8>, DropReason>> {
    let mut bufs: Vec<Vec<u8>> = burst.iter().map(|(_, plain)| room(plain)).collect();
    let mut packets: Vec<Outbound<'_>> = bufs
        .iter_mut()
        .zip(burst)
        .map(|(buf, (id, plain))| Outbound::new(*id, Packet::new(buf, HEADROOM, HEADROOM + plain.len())))
        .collect();
    seal::seal(sad, &mut packets, 1, &mut Vec::new());
    packets.iter().map(|out| out.status.map(|()| out.packet.bytes().to_vec())).collect()
}

type Verdict = Result<(Opened, Vec<u8>), DropReason>;

fn open_begin(sad: &mut Sad, burst: &[Vec<u8>]) -> (Flight, Vec<Result<Opened, DropReason>>) {
    let mut bufs: Vec<Vec<u8>> = burst.iter().map(|wire| room(wire)).collect();
    let ends = burst.iter().map(|wire| HEADROOM + wire.len());
    let mut packets: Vec<Inbound<'_>> = bufs
        .iter_mut()
        .zip(ends)
        .map(|(buf, end)| Inbound { udp_encap: true, ..Inbound::new(Packet::new(buf, HEADROOM, end)) })
        .collect();
    let mut jobs = Jobs::new();
    open::begin(sad, &mut packets, 1, &mut Vec::new(), &mut jobs);
    let statuses: Vec<_> = packets.iter().map(|inn| inn.status).collect();
    let bounds: Vec<_> = packets.iter().map(|inn| (inn.packet.start(), inn.packet.end())).collect();
    let bufs = bufs.into_iter().zip(bounds).map(|(buf, (start, end))| (buf, start, end)).collect();
    (Flight::new(sad, jobs, bufs), statuses)
}

fn open_end(sad: &mut Sad, mut flight: Flight, before: &[Result<Opened, DropReason>]) -> Vec<Verdict> {
    let mut packets: Vec<Inbound<'_>> = flight
        .bufs
        .iter_mut()
        .zip(before)
        .map(|((buf, s, e), status)| {
            let packet = Packet::new(buf, *s, *e);
            Inbound { udp_encap: true, status: *status, ..Inbound::new(packet) }
        })
        .collect();
    open::end(sad, &mut packets, &flight.jobs, &flight.done, 1, &mut Vec::new());
    // Some packets had to wait for others.
    open::open(sad, &mut packets, 1, &mut Vec::new());
    packets.iter().map(|inn| inn.status.map(|opened| (opened, inn.packet.bytes().to_vec()))).collect()
}

fn open_at_once(sad: &mut Sad, burst: &[Vec<u8>]) -> Vec<Verdict> {
    let mut bufs: Vec<Vec<u8>> = burst.iter().map(|wire| room(wire)).collect();
    let mut packets: Vec<Inbound<'_>> = bufs
        .iter_mut()
        .zip(burst)
        .map(|(buf, wire)| {
            let packet = Packet::new(buf, HEADROOM, HEADROOM + wire.len());
            Inbound { udp_encap: true, ..Inbound::new(packet) }
        })
        .collect();
    open::open(sad, &mut packets, 1, &mut Vec::new());
    packets.iter().map(|inn| inn.status.map(|opened| (opened, inn.packet.bytes().to_vec()))).collect()
}

fn short(verdict: &Verdict) -> Result<Opened, DropReason> {
    verdict.as_ref().map(|(opened, _)| *opened).map_err(|reason| *reason)
}

/// A burst of packets for random associations, some without one, some for a deleted one.
fn random_burst(rng: &mut Rng, ids: &[SaId], gone: SaId) -> Vec<(SaId, Vec<u8>)> {
    (0..1 + rng.below(BURST))
        .map(|_| {
            let id = match rng.below(20) {
                0 => SaId::NONE,
                1 => gone,
                _ => ids[rng.below(ids.len())],
            };
            let (n, len) = (rng.below(256), rng.below(300));
            (id, plain(n, len))
        })
        .collect()
}

#[test]
fn phases_do_what_is_done_at_once() {
    for seed in 0..20 {
        let mut rng = Rng(seed);
        let ((mut phased, ids), (mut once, _)) = (database(), database());
        let ((mut opener, _), (mut opener_once, _)) = (database(), database());
        let gone = SaSpec::tunnel(9, addr("192.0.2.8"), addr("192.0.2.9"), Transform::larval());
        let gone = [&mut phased, &mut once].map(|sad| {
            let id = sad.add(SaSpec {
                dst: gone.dst,
                src: gone.src,
                ..SaSpec::tunnel(9, gone.src, gone.dst, Transform::larval())
            });
            let id = id.unwrap();
            sad.remove(id);
            id
        })[0];
        let (mut sealing, mut opening) = (VecDeque::new(), VecDeque::new());
        let mut history: Vec<Vec<u8>> = Vec::new();
        for step in 0..24 {
            // Numbers are taken in the order of the calls of `begin`; the crypto runs later, in any order.
            let burst = random_burst(&mut rng, &ids, gone);
            let (mut flight, before) = seal_begin(&mut phased, &burst);
            if rng.below(2) == 0 {
                flight.run(Direction::Encrypt);
                sealing.push_back((flight, before, burst, true));
            } else {
                sealing.push_back((flight, before, burst, false));
            }
            while sealing.len() > 3 || (step == 23 && !sealing.is_empty()) {
                let (mut flight, before, burst, ran) = sealing.pop_front().unwrap();
                if !ran {
                    flight.run(Direction::Encrypt);
                }
                let sealed = seal_end(flight, &before);
                assert!(sealed == seal_at_once(&mut once, &burst), "seed {seed}: other bytes or verdicts");
                let through = sealed.into_iter().zip(&burst).filter(|(_, (id, _))| *id != SaId::NONE);
                let wires: Vec<Vec<u8>> = through.filter_map(|(sealed, _)| sealed.ok()).collect();
                history.extend(wires);
            }
            // Inbound packets: old and new, duplicates within a burst and across bursts, some of them forged.
            let mut arrived: Vec<Vec<u8>> = (0..rng.below(BURST))
                .filter_map(|_| {
                    let recent = history.len().min(150);
                    let at = history.len() - recent + rng.below(recent.max(1));
                    history.get(at).cloned()
                })
                .collect();
            for wire in &mut arrived {
                if rng.below(8) == 0 {
                    let at = wire.len() - 1 - rng.below(20);
                    wire[at] ^= 4;
                }
            }
            let (flight, before) = open_begin(&mut opener, &arrived);
            opening.push_back((flight, before, arrived));
            while opening.len() > 3 || (step == 23 && !opening.is_empty()) {
                let (mut flight, before, arrived) = opening.pop_front().unwrap();
                flight.run(Direction::Decrypt);
                let found = open_end(&mut opener, flight, &before);
                for (found, once) in found.iter().zip(open_at_once(&mut opener_once, &arrived)) {
                    // A forged copy of a packet that an earlier burst has in flight is refused for its ICV, not for its
                    // number.
                    let early = *found == Err(DropReason::Icv) && once == Err(DropReason::Replayed);
                    assert!(*found == once || early, "seed {seed}: {:?} for {:?}", short(found), short(&once));
                }
            }
        }
        for id in &ids {
            assert_eq!(phased.usage(*id), once.usage(*id));
            assert_eq!(phased.out_number(*id), once.out_number(*id));
            assert_eq!(opener.usage(*id), opener_once.usage(*id));
            assert!(opener.usage(*id).unwrap().packets > 0, "each of them has opened something");
            let (a, b) = (opener.get(*id).unwrap(), opener_once.get(*id).unwrap());
            assert_eq!(a.window().top(), b.window().top());
            let counted = |sa: &Sa| sa.stat.replay + sa.stat.integrity_failed;
            assert_eq!((counted(a), a.stat.replay_window), (counted(b), b.stat.replay_window));
            assert!(a.stat.replay > 0 && a.stat.integrity_failed > 0, "some were refused");
        }
    }
}

#[test]
fn a_replay_in_flight_is_caught() {
    let ((mut out, ids), (mut inn, _)) = (database(), database());
    let wires: Vec<Vec<u8>> =
        ids.iter().map(|id| seal_at_once(&mut out, &[(*id, plain(1, 50))]).remove(0).unwrap()).collect();
    let (mut a, before_a) = open_begin(&mut inn, &wires);
    let (mut b, before_b) = open_begin(&mut inn, &wires);
    assert_eq!(b.jobs.len(), wires.len(), "neither is known yet");
    b.run(Direction::Decrypt);
    a.run(Direction::Decrypt);
    assert!(open_end(&mut inn, b, &before_b).iter().all(|v| matches!(v, Ok((Opened::Packet, _)))));
    assert!(open_end(&mut inn, a, &before_a).iter().all(|v| *v == Err(DropReason::Replayed)));
}

#[test]
fn what_was_not_run_neither_leaves_nor_arrives() {
    let ((mut out, ids), (mut inn, _)) = (database(), database());
    let burst: Vec<(SaId, Vec<u8>)> = ids.iter().map(|id| (*id, plain(2, 70))).collect();
    let (flight, before) = seal_begin(&mut out, &burst);
    assert!(seal_end(flight, &before).iter().all(|r| *r == Err(DropReason::Driver)));
    let wires: Vec<Vec<u8>> = seal_at_once(&mut out, &burst).into_iter().map(Result::unwrap).collect();
    let (flight, before) = open_begin(&mut inn, &wires);
    assert!(open_end(&mut inn, flight, &before).iter().all(|r| *r == Err(DropReason::InDriver)));
    // The number was not marked as seen: the sender's packet is still accepted.
    assert!(open_at_once(&mut inn, &wires).iter().all(Result::is_ok));
}

#[test]
fn a_key_of_another_kind_seals_nothing() {
    let (mut out, ids) = database();
    let (flight, _) = seal_begin(&mut out, &[(ids[0], plain(3, 10))]);
    let wrong = out.key(ids[5]).unwrap();
    let Flight { mut bufs, jobs, .. } = flight;
    let (buf, start, end) = &mut bufs[0];
    let (before, job): (Vec<u8>, &Job) = (buf.clone(), &jobs[0]);
    let mut packet = Packet::new(buf, *start, *end);
    let mut items = [Item::new(job, &wrong, &mut packet)];
    burst::run(Direction::Encrypt, &mut items);
    assert_eq!(items[0].done, Err(OpError::Driver));
    assert_eq!(before, *buf);
}

#[test]
fn gone_meanwhile() {
    let ((mut out, ids), (mut inn, _)) = (database(), database());
    let burst: Vec<(SaId, Vec<u8>)> = ids.iter().map(|id| (*id, plain(4, 70))).collect();
    let (mut flight, before) = seal_begin(&mut out, &burst);
    flight.run(Direction::Encrypt);
    ids.iter().for_each(|id| drop(out.remove(*id)));
    let wires: Vec<Vec<u8>> = seal_end(flight, &before).into_iter().map(Result::unwrap).collect();
    let (mut flight, before) = open_begin(&mut inn, &wires);
    flight.run(Direction::Decrypt);
    ids.iter().for_each(|id| drop(inn.remove(*id)));
    // The slots are reused at once for the same SPIs, but with other handles.
    for spec in specs() {
        inn.add(spec).unwrap();
    }
    assert!(open_end(&mut inn, flight, &before).iter().all(|r| *r == Err(DropReason::InInvalid)));
    assert!(inn.iter().all(|(id, sa)| sa.window().top() == 0 && inn.usage(id).unwrap().packets == 0));
}

#[test]
fn a_hard_limit_reached_in_flight_drops() {
    let ((mut out, ids), (mut inn, _)) = (database(), database());
    inn.set_limits(ids[0], Limits { hard_packets: 10, ..Limits::NONE }, 1);
    let burst: Vec<(SaId, Vec<u8>)> = (0..8).map(|n| (ids[0], plain(n, 40))).collect();
    let wires: Vec<Vec<u8>> = (0..2).flat_map(|_| seal_at_once(&mut out, &burst)).map(Result::unwrap).collect();
    let (mut a, before_a) = open_begin(&mut inn, &wires[..8]);
    let (mut b, before_b) = open_begin(&mut inn, &wires[8..]);
    assert_eq!((a.jobs.len(), b.jobs.len()), (8, 8));
    a.run(Direction::Decrypt);
    b.run(Direction::Decrypt);
    assert!(open_end(&mut inn, a, &before_a).iter().all(Result::is_ok));
    let found = open_end(&mut inn, b, &before_b);
    assert!(found[..2].iter().all(Result::is_ok));
    assert_eq!(found[2], Err(DropReason::InExpired));
    assert!(found[3..].iter().all(|r| *r == Err(DropReason::InInvalid)));
    assert_eq!(inn.state(ids[0]), SaState::Expired);
}
