//! A burst of packets gets the same verdicts as its packets one by one: windows that jump, numbers across 2^32,
//! forgeries between authentic packets, duplicates, limits reached within the burst.

use core::net::IpAddr;
use sealane_net_ipsec::burst::BURST;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::lifetime::Limits;
use sealane_net_ipsec::open::{Inbound, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, SaFlags, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use std::sync::Arc;

const WRAP: u64 = 1 << 32;
const KEY: [u8; 20] = [0x33; 20];

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % n
    }
}

/// A pair of associations, and a receiver's limits.
struct Pair {
    transforms: Transforms,
    window_pkts: u32,
    esn: bool,
    encap: Option<Encap>,
    top: u64,
    limits: Limits,
}

impl Pair {
    fn spec(&mut self, spi: u32) -> SaSpec {
        let [a, b]: [IpAddr; 2] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        let aead = Keyed { name: "rfc4106(gcm(aes))", key: &KEY };
        let transform: Transform =
            self.transforms.prepare(&TransformSpec::Aead { aead, icv_bits: 128 }, self.esn).unwrap();
        let flags = SaFlags { esn: self.esn, ..SaFlags::default() };
        SaSpec { flags, encap: self.encap, window_pkts: self.window_pkts, ..SaSpec::tunnel(spi, a, b, transform) }
    }

    /// Seals a packet with this number.
    fn seal(&mut self, spi: u32, number: u64) -> Vec<u8> {
        let mut sad = Sad::new(1);
        let spec = SaSpec { out_number: number - 1, ..self.spec(spi) };
        let id = sad.add(spec).unwrap();
        let len = 20 + number as usize % 50;
        let mut plain = vec![number as u8; len];
        plain[..20].copy_from_slice(&[0x45, 0, 0, len as u8, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 5]);
        let mut buf = [&[0; HEADROOM][..], &plain, &[0; TAILROOM]].concat();
        let mut packets = [Outbound::new(id, Packet::new(&mut buf, HEADROOM, HEADROOM + len))];
        seal(&mut sad, &mut packets, 1, &mut Vec::new());
        packets[0].status.unwrap();
        let mut wire = packets[0].packet.bytes().to_vec();
        if self.encap.is_some() && number.is_multiple_of(3) {
            // The IP packet is longer than the UDP length.
            wire.extend([0; 5]);
            let len = wire.len() as u16;
            wire[2..4].copy_from_slice(&len.to_be_bytes());
            sealane_wire::walk::set_v4_checksum(&mut wire);
        }
        wire
    }

    fn receiver(&mut self) -> (Sad, [SaId; 2]) {
        let mut sad = Sad::new(1);
        let (in_number, limits) = (self.top, self.limits);
        let ids = [1, 2].map(|spi| sad.add(SaSpec { in_number, limits, ..self.spec(spi) }).unwrap());
        (sad, ids)
    }
}

/// Opens packets in bursts of this size, and returns their verdicts and the events.
fn verdicts(sad: &mut Sad, wires: &[Vec<u8>], together: usize) -> (Vec<String>, Vec<Event>) {
    let (mut found, mut events) = (Vec::new(), Vec::new());
    for wires in wires.chunks(together) {
        let mut bufs: Vec<Vec<u8>> =
            wires.iter().map(|wire| [&[0; HEADROOM][..], wire, &[0; TAILROOM]].concat()).collect();
        let mut packets: Vec<Inbound<'_>> = bufs
            .iter_mut()
            .zip(wires)
            .map(|(buf, wire)| Inbound {
                udp_encap: true,
                ..Inbound::new(Packet::new(buf, HEADROOM, HEADROOM + wire.len()))
            })
            .collect();
        open(sad, &mut packets, 1, &mut events);
        found.extend(packets.iter().map(|inn| match inn.status {
            Ok(opened) => format!("{opened:?} {:?}", inn.packet.bytes()),
            Err(reason) => format!("{reason:?}"),
        }));
    }
    (found, events)
}

#[test]
fn a_burst_is_judged_as_one_by_one() {
    let registry = Arc::new(sealane_crypto_portable::registry());
    let (mut refused, mut opened, mut expired) = ([0; 3], 0, 0);
    for seed in 0..600u64 {
        let mut rng = Rng(seed);
        let esn = rng.below(3) != 0;
        let window_pkts = [1, 32, 64, 100, 128, 4096, 0][rng.below(if esn { 6 } else { 7 }) as usize];
        let top = match rng.below(6) {
            0 => 0,
            1 if esn => 5 * WRAP + 10,
            2 if esn => WRAP + 3000,
            _ => WRAP - 1 - rng.below(150),
        };
        let mut limits = Limits::NONE;
        match rng.below(4) {
            0 => limits.hard_packets = 10 + rng.below(100),
            1 => limits.hard_bytes = 500 + rng.below(8000),
            _ => {}
        }
        limits.soft_packets = 5 + rng.below(50);
        let encap = (rng.below(3) == 0).then_some(Encap::udp(4500, 4500));
        let mut pair = Pair { transforms: Transforms::new(registry.clone()), window_pkts, esn, encap, top, limits };
        let last = if esn { u64::MAX - 1 } else { WRAP - 1 };
        let mut at = top;
        let wires: Vec<Vec<u8>> = (0..BURST as u64 * 3)
            .map(|_| {
                at = match rng.below(40) {
                    0 => at + u64::from(window_pkts),
                    1 => at.saturating_sub(u64::from(window_pkts)),
                    2 if esn => at + WRAP - rng.below(200),
                    3 if esn => at.saturating_sub(WRAP),
                    n if n < 30 => at + 1,
                    n => (at + n).saturating_sub(35),
                };
                let mut wire = pair.seal(1 + (rng.below(5) == 0) as u32, at.clamp(1, last));
                if rng.below(6) == 0 {
                    *wire.get_mut(60).unwrap() ^= 1;
                }
                wire
            })
            .collect();
        let ((mut together, ids), (mut alone, _)) = (pair.receiver(), pair.receiver());
        let size = 1 + rng.below(BURST as u64) as usize;
        let found = verdicts(&mut together, &wires, size);
        let wanted = verdicts(&mut alone, &wires, 1);
        for (i, (found, wanted)) in found.0.iter().zip(&wanted.0).enumerate() {
            assert_eq!(found, wanted, "seed {seed}: packet {i} of bursts of {size}: {esn} {window_pkts} {top:#x}");
        }
        let sorted = |events: &[Event]| {
            let mut texts: Vec<String> = events.iter().map(|event| format!("{event:?}")).collect();
            texts.sort();
            texts
        };
        assert_eq!(sorted(&found.1), sorted(&wanted.1), "seed {seed}");
        for id in ids {
            let (a, b) = (together.get(id).unwrap(), alone.get(id).unwrap());
            assert_eq!((a.stat, a.window().top()), (b.stat, b.window().top()), "seed {seed}");
            assert_eq!((together.usage(id), together.state(id)), (alone.usage(id), alone.state(id)), "seed {seed}");
            let counted = [b.stat.replay, b.stat.replay_window, b.stat.integrity_failed];
            refused.iter_mut().zip(counted).for_each(|(all, n)| *all += n);
            opened += alone.usage(id).unwrap().packets;
        }
        expired += wanted.1.iter().filter(|event| matches!(event, Event::HardExpire(_))).count();
    }
    assert!(refused.iter().all(|n| *n > 500) && opened > 10_000 && expired > 50, "{refused:?} {opened} {expired}");
}
