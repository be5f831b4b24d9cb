//! Bursts of a device in crypto offload: begun by the tables, run with the device's keys, ended by the tables.

use super::packets::{Local, datagram, receive};
use super::*;
use sealane_engine_xfrm::data::Run;
use sealane_engine_xfrm::device::crypto::{Crypto, CryptoBurst, Direction, Queue, Slot};
use sealane_engine_xfrm::device::{Caps, Device, DeviceEvent, Mode, OffloadRequest, PolicyKey, Refusal, StateKey};
use sealane_net_ipsec::burst::{Keys, NOT_RUN, SaKey};
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{SaId, SaStat};
use sealane_net_ipsec::seal::Outbound;
use sealane_net_ipsec::spd::Policy;
use std::collections::BTreeMap;
use std::sync::Mutex;

type Held = Arc<Mutex<BTreeMap<StateKey, SaKey>>>;

/// A device that keeps keys; who asks it for a queue gets none.
struct Keeper(Held);

struct NoQueue;

impl Crypto for NoQueue {
    fn queue(&self, _: Box<dyn Fn() + Send>) -> Option<Box<dyn Queue>> {
        None
    }
}

impl Device for Keeper {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: false }
    }

    fn state_add(&mut self, state: OffloadRequest<'_>) -> Result<(), Refusal> {
        assert_eq!(state.mode, Mode::Crypto);
        let key = state.spec.expect("it has keys").transform.key();
        self.0.lock().unwrap().insert(state.key, key);
        Ok(())
    }

    fn state_del(&mut self, key: StateKey) {
        self.0.lock().unwrap().remove(&key).expect("it was there");
    }

    fn advance_esn(&mut self, _: StateKey, _: u32) {}

    fn policy_add(&mut self, _: PolicyKey, _: &Policy, _: &XfrmMessage) -> Result<(), Refusal> {
        Err(Refusal { errno: Errno::EINVAL, text: None })
    }

    fn policy_del(&mut self, _: PolicyKey) {}

    fn counters(&self, _: StateKey) -> Option<(Usage, SaStat)> {
        None
    }

    fn crypto(&self) -> Option<Arc<dyn Crypto>> {
        Some(Arc::new(NoQueue))
    }

    fn events(&mut self, _: &mut Vec<DeviceEvent>) {}
}

fn offload(flags: u8) -> Attribute {
    Attribute::OffloadDev(UserOffload { ifindex: 5, flags, pad: [0; 3] })
}

/// An end with a device, its state in crypto offload where `flags` are told.
fn end(dir: u8, flags: Option<u8>) -> (Xfrm, Held) {
    let (mut xfrm, held) = (xfrm(), Held::default());
    xfrm.add_device(5, Box::new(Keeper(held.clone())));
    let mut order = new_state(UsersaInfo { replay_window: 32, ..state(0x100) });
    if let Some(flags) = flags {
        order = order.with(offload(flags));
    }
    ok(&mut xfrm, &order, at(0));
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(dir))).with(tmpl()), at(0));
    (xfrm, held)
}

/// Begins a burst of `n` datagrams; statuses of its packets.
fn begin_out(xfrm: &mut Xfrm, n: usize) -> (CryptoBurst, Vec<Result<(), DropReason>>) {
    let mut burst = CryptoBurst::new(n * 512);
    let plain = datagram();
    let mut jobs = core::mem::take(&mut burst.jobs);
    let mut statuses = Vec::new();
    let mut packets: Vec<Outbound<'_>> = Vec::new();
    for slot in burst.buffer.chunks_mut(512) {
        slot[HEADROOM..HEADROOM + plain.len()].copy_from_slice(&plain);
        let slot = &mut slot[..HEADROOM + plain.len() + TAILROOM];
        packets.push(Outbound::new(SaId::NONE, Packet::new(slot, HEADROOM, HEADROOM + plain.len())));
    }
    xfrm.tables(0, at(1)).outbound_begin(&[Run::new(n)], &mut packets, &mut Local, &mut jobs);
    let slots: Vec<Slot> = packets.iter().enumerate().map(|(i, out)| Slot::new(i * 512, &out.packet)).collect();
    statuses.extend(packets.iter().map(|out| out.status));
    drop(packets);
    burst.slots.extend(slots);
    named(xfrm, &mut burst, jobs);
    (burst, statuses)
}

fn named(xfrm: &Xfrm, burst: &mut CryptoBurst, jobs: sealane_net_ipsec::burst::Jobs) {
    burst.keys.extend(jobs.iter().map(|job| Some(StateKey(xfrm.sad().crypto_device(job.sa())?.key))));
    burst.done.extend(jobs.iter().map(|_| NOT_RUN));
    burst.jobs = jobs;
}

fn end_out(
    xfrm: &mut Xfrm,
    burst: &mut CryptoBurst,
    before: &[Result<(), DropReason>],
) -> Vec<Result<Vec<u8>, DropReason>> {
    let (jobs, done) = (burst.jobs.clone(), burst.done.clone());
    let packets = burst.packets();
    let mut packets: Vec<Outbound<'_>> = packets
        .into_iter()
        .zip(before)
        .map(|(packet, status)| Outbound { status: *status, ..Outbound::new(SaId::NONE, packet) })
        .collect();
    xfrm.tables(0, at(1)).outbound_end(&mut packets, &jobs, &done);
    packets.iter().map(|out| out.status.map(|()| out.packet.bytes().to_vec())).collect()
}

fn run(held: &Held, burst: &mut CryptoBurst) {
    let keys = held.lock().unwrap();
    burst.run(|name| keys.get(&name));
}

#[test]
fn a_device_seals_and_opens() {
    let (mut left, seals) = end(XFRM_POLICY_OUT, Some(0));
    let (mut right, opens) = end(XFRM_POLICY_IN, Some(XFRM_OFFLOAD_INBOUND));
    let (mut burst, before) = begin_out(&mut left, 10);
    assert_eq!((burst.jobs.len(), burst.keys.iter().flatten().count()), (10, 10));
    run(&seals, &mut burst);
    let wires: Vec<Vec<u8>> = end_out(&mut left, &mut burst, &before).into_iter().map(Result::unwrap).collect();

    let mut burst = CryptoBurst { dir: Direction::Decrypt, ..CryptoBurst::new(10 * 512) };
    let mut jobs = core::mem::take(&mut burst.jobs);
    let mut packets: Vec<Inbound<'_>> = Vec::new();
    for (slot, wire) in burst.buffer.chunks_mut(512).zip(&wires) {
        slot[64..64 + wire.len()].copy_from_slice(wire);
        packets.push(Inbound::new(Packet::new(slot, 64, 64 + wire.len())));
    }
    right.tables(0, at(2)).inbound_begin(&mut packets, &mut jobs);
    let slots: Vec<Slot> = packets.iter().enumerate().map(|(i, inn)| Slot::new(i * 512, &inn.packet)).collect();
    let paths: Vec<_> = packets.iter().map(|inn| inn.path.clone()).collect();
    drop(packets);
    burst.slots.extend(slots);
    named(&right, &mut burst, jobs);
    run(&opens, &mut burst);
    let (jobs, done) = (burst.jobs.clone(), burst.done.clone());
    let mut packets: Vec<Inbound<'_>> =
        burst.packets().into_iter().zip(paths).map(|(packet, path)| Inbound { path, ..Inbound::new(packet) }).collect();
    right.tables(0, at(2)).inbound_end(&mut packets, &mut Local, &jobs, &done);
    for inn in &packets {
        assert!(matches!(inn.status, Ok(Opened::Packet)), "{:?}", inn.status);
        assert_eq!(inn.packet.bytes(), datagram());
    }
    // A number that the device has opened counts as seen for everybody.
    assert_eq!(receive(&mut right, &wires[3], at(3)), Err(DropReason::Replayed));
    assert_eq!(right.sad().usage(packets[0].path[0]).unwrap().packets, 10);
}

#[test]
fn what_was_deleted_in_flight_is_neither_sealed_nor_sent() {
    let (mut left, held) = end(XFRM_POLICY_OUT, Some(0));
    let (mut burst, before) = begin_out(&mut left, 3);
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    ok(&mut left, &XfrmMessage::new(Body::DelSa(id)), at(1));
    assert!(held.lock().unwrap().is_empty());
    run(&held, &mut burst);
    assert_eq!(end_out(&mut left, &mut burst, &before), vec![Err(DropReason::Driver); 3]);
    assert_eq!(left.stat().value(sealane_net_ipsec::drop::Counter::OutStateProtoError), 3);
}

#[test]
fn what_is_not_the_devices_the_stack_runs() {
    let (mut left, held) = end(XFRM_POLICY_OUT, None);
    assert!(held.lock().unwrap().is_empty());
    let (mut right, _) = end(XFRM_POLICY_IN, None);
    let (mut burst, before) = begin_out(&mut left, 5);
    assert_eq!(burst.keys.iter().flatten().count(), 0);
    run(&held, &mut burst);
    assert!(burst.done.iter().all(|done| *done == NOT_RUN), "the device leaves it alone");
    let mut keys = Keys::default();
    left.sad().keys(&burst.jobs, &mut keys);
    burst.run_here(&keys);
    for wire in end_out(&mut left, &mut burst, &before) {
        assert!(matches!(receive(&mut right, &wire.unwrap(), at(2)), Ok(Opened::Packet)));
    }
}
