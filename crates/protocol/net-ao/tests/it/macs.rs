//! Bursts against a MAC input put together step by step as RFC 5925 section 5.1 says: any mix of algorithms, families,
//! lengths and coverages, more segments than fit into one burst.

use crate::common::{algorithms, mkt, segment, spec};
use crate::random::Random;
use core::net::SocketAddr;
use sealane_crypto::mac::MacTfm;
use sealane_net_ao::drop::DropReason;
use sealane_net_ao::kdf::Context;
use sealane_net_ao::mac::{BURST, Checksum, Coverage, Sign, Verify, sign, verify};
use sealane_net_ao::mkt::{Mkt, MktSpec};
use sealane_net_ao::output::OptionFields;
use sealane_net_ao::segment::insert;
use sealane_wire::ip::{self, Layout};
use sealane_wire::tcp::{Flags, Segment};
use std::sync::Arc;

struct One {
    mkt: Arc<Mkt>,
    tfm: MacTfm,
    packet: Vec<u8>,
    at: Layout,
    cover: Coverage,
    checksum: Checksum,
}

fn one(random: &mut Random, keys: &[Arc<Mkt>]) -> One {
    let mkt = keys[random.below(keys.len())].clone();
    let ends = if random.one_in(2) { ["192.0.2.1:1", "192.0.2.2:2"] } else { ["[2001:db8::1]:1", "[2001:db8::2]:2"] };
    let [source, destination] = ends.map(|end| -> SocketAddr { end.parse().unwrap() });
    let options = [&[][..], &[1, 1, 8, 10, 1, 2, 3, 4, 5, 6, 7, 8]][random.below(2)];
    // Around the length from which a payload is not copied, and often the same.
    let len = [0, 1, 80, 80, 80, 255, 256, 257, 600][random.below(9)];
    let payload: Vec<u8> = (0..len).map(|_| random.next() as u8).collect();
    let plain = segment(source, destination, random.next() as u32, 7, Flags::ACK, options, &payload);
    let fields = OptionFields { key_id: mkt.send_id, rnext_key_id: 9, mac_len: mkt.mac_len };
    // Behind the packet its buffer may go on.
    let mut packet = vec![0xee; plain.len() + 20 + random.below(70)];
    let at = insert(&Segment::parse(&plain).unwrap(), &fields, &mut packet).unwrap();
    packet[at.tcp_at + 24..at.tcp_at + 24 + mkt.mac_len].fill(0x77);
    let isn = random.next() as u32;
    let tfm = mkt.traffic_mac(&Context { source, destination, source_isn: isn, destination_isn: 1 }).unwrap();
    let cover = Coverage {
        mac_at: 24,
        mac_len: mkt.mac_len,
        sne: random.next() as u32 & 3,
        exclude_options: mkt.exclude_options,
    };
    let checksum = if random.one_in(2) { Checksum::Full } else { Checksum::Partial };
    One { mkt, tfm, packet, at, cover, checksum }
}

/// The MAC of the packet, the slow way.
fn expected(one: &One) -> Vec<u8> {
    let (packet, at) = (&one.packet[..one.at.end], &one.at);
    let mut input = one.cover.sne.to_be_bytes().to_vec();
    let tcp_len = (packet.len() - at.tcp_at) as u16;
    if at.tcp_at == 20 {
        input.extend(&packet[12..20]);
        input.extend([0, 6]);
        input.extend(tcp_len.to_be_bytes());
    } else {
        input.extend(&packet[8..40]);
        input.extend(u32::from(tcp_len).to_be_bytes());
        input.extend([0, 0, 0, 6]);
    }
    let mut tcp = packet[at.tcp_at..].to_vec();
    tcp[16..18].fill(0);
    tcp[24..24 + one.cover.mac_len].fill(0);
    if one.cover.exclude_options {
        tcp.drain(24 + one.cover.mac_len..at.tcp_header_len());
    }
    input.extend(tcp);
    let mut tag = vec![0; one.cover.mac_len];
    one.tfm.sign(&[&input], &mut tag).unwrap();
    tag
}

#[test]
fn bursts_agree_with_the_rfc_step_by_step() {
    let mut random = Random(5);
    let keys: Vec<Arc<Mkt>> = ["hmac(sha1)", "cmac(aes128)", "hmac(sha512)", "kmac256-128"]
        .into_iter()
        .flat_map(|name| {
            [(12, false), (16, true), (7, false), (1, true)].map(|(mac_len, exclude)| (name, mac_len, exclude))
        })
        .map(|(name, mac_len, exclude_options)| mkt(&MktSpec { mac_len, exclude_options, ..spec(name, 1, 2) }))
        .collect();
    for count in [1, 2, 3, 17, BURST, BURST + 1, 150] {
        for keys in [&keys[..1], &keys[..8], &keys[..]] {
            let mut all: Vec<One> = (0..count).map(|_| one(&mut random, keys)).collect();
            let want: Vec<Vec<u8>> = all.iter().map(expected).collect();
            let behind: Vec<Vec<u8>> = all.iter().map(|o| o.packet[o.at.end..].to_vec()).collect();
            let mut ops: Vec<Sign<'_>> = all
                .iter_mut()
                .map(|o| Sign {
                    tfm: &o.tfm,
                    packet: &mut o.packet,
                    at: o.at,
                    cover: o.cover,
                    checksum: o.checksum,
                    status: Err(DropReason::Driver),
                })
                .collect();
            sign(&mut ops);
            assert!(ops.iter().all(|op| op.status == Ok(())));
            for ((o, want), behind) in all.iter().zip(&want).zip(&behind) {
                assert_eq!(o.packet[o.at.tcp_at + 24..][..want.len()], *want, "{}", o.mkt.algorithm.name);
                assert_eq!(o.packet[o.at.end..], *behind, "what lies behind the packet");
                assert_eq!(ip::tcp_checksum_ok(&o.packet[..o.at.end], &o.at), o.checksum == Checksum::Full);
            }
            // Some are changed; which ones, the verdicts say in the same order.
            let bad: Vec<bool> = all.iter().map(|_| random.one_in(4)).collect();
            for (o, bad) in all.iter_mut().zip(&bad) {
                let covered = if o.at.payload_len() > 0 { o.at.end - 1 } else { o.at.tcp_at + 5 };
                o.packet[covered] ^= u8::from(*bad);
            }
            let mut ops: Vec<Verify<'_>> = all
                .iter()
                .map(|o| Verify {
                    tfm: &o.tfm,
                    packet: &o.packet,
                    at: o.at,
                    cover: o.cover,
                    status: Err(DropReason::Driver),
                })
                .collect();
            verify(&mut ops);
            for ((op, one), bad) in ops.iter().zip(&all).zip(bad) {
                // A MAC of one byte lets a change pass now and then.
                let lucky = one.cover.mac_len == 1
                    && op.status.is_ok()
                    && expected(one) == one.packet[one.at.tcp_at + 24..][..1];
                assert!(lucky || op.status == if bad { Err(DropReason::Mac) } else { Ok(()) });
            }
        }
    }
    sign(&mut []);
    verify(&mut []);
}

/// They would let parts of a segment be altered: TCP-AO has none, by a whole name or by a short one.
#[test]
fn partial_macs_are_no_algorithms() {
    for name in ["partial(cmac(aes),1/4)", "partial(hmac(sha1),1/2)", "partial(gmac(aes),1)", "partial"] {
        assert!(algorithms().get(name).is_none(), "{name}");
    }
}
