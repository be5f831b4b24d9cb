//! ESP with partial MACs: two ends, what is covered always, what is not, and that nobody else takes such a packet.

use crate::random::Random;
use core::net::IpAddr;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::open::{Inbound, Opened, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::partial::{FRONT_LEN, TAIL_LEN};
use sealane_net_ipsec::sa::{Encap, Mode, Proto, SaError, SaFlags, SaId, SaSpec, may_have_partial_mac};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::selector::Selector;
use sealane_net_ipsec::transform::{Keyed, Transform, TransformError, TransformSpec, Transforms};
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock, Mutex};

static TRANSFORMS: LazyLock<Mutex<Transforms>> =
    LazyLock::new(|| Mutex::new(Transforms::new(Arc::new(sealane_crypto_portable::registry()))));

const KEY: [u8; 36] = [0x2b; 36];
const SPI: u32 = 0x1234;
const MACS: [&str; 4] = ["gmac(aes)", "cmac(aes)", "hmac(sha1)", "hmac(sha256)"];
const FRACTIONS: [&str; 4] = ["1", "1/2", "1/4", "1/8"];
/// Ciphers, and the lengths of their keys and IVs.
const CIPHERS: [(&str, usize, usize); 3] =
    [("ecb(cipher_null)", 0, 0), ("cbc(aes)", 16, 16), ("rfc3686(ctr(aes))", 20, 8)];
/// Outer IPv4 header.
const OUTER_LEN: usize = 20;

fn prepare(spec: &TransformSpec<'_>, esn: bool) -> Result<Transform, TransformError> {
    TRANSFORMS.lock().unwrap_or_else(|e| e.into_inner()).prepare(spec, esn)
}

fn partial(cipher: (&str, usize, usize), mac: &str, fraction: &str) -> Transform {
    let name = format!("partial({mac},{fraction})");
    let (enc, auth) = (Keyed { name: cipher.0, key: &KEY[..cipher.1] }, Keyed { name: &name, key: &KEY[..20] });
    prepare(&TransformSpec::Partial { enc, auth, icv_bits: 0, spi: SPI }, true).unwrap()
}

/// The same cipher and key with the whole MAC.
fn whole(cipher: (&str, usize, usize), mac: &str) -> Transform {
    let (enc, auth) = (Keyed { name: cipher.0, key: &KEY[..cipher.1] }, Keyed { name: mac, key: &KEY[..16] });
    prepare(&TransformSpec::EncAuth { enc, auth, icv_bits: 0 }, true).unwrap()
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn spec(transform: Transform, mode: Mode) -> SaSpec {
    let (src, dst) = if mode == Mode::Transport { ("10.1.0.5", "10.2.0.5") } else { ("192.0.2.1", "192.0.2.2") };
    let host = |text| (addr(text), 32);
    SaSpec {
        mode,
        selector: Selector::between(host("10.1.0.5"), host("10.2.0.5")),
        flags: SaFlags { esn: true, ..SaFlags::default() },
        window_pkts: 64,
        out_number: 0xffff_fffc,
        in_number: 0xffff_fffc,
        iv_salt: *b"random, not this",
        now_s: 1000,
        ..SaSpec::tunnel(SPI, addr(src), addr(dst), transform)
    }
}

fn tunnel(cipher: (&str, usize, usize), mac: &str, fraction: &str) -> SaSpec {
    spec(partial(cipher, mac, fraction), Mode::Tunnel)
}

/// A UDP datagram in IPv4 of so many bytes in all.
fn datagram(len: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0, 10, 1, 0, 5, 10, 2, 0, 5];
    packet.extend([0x30, 0x39, 0, 7, 0, 0, 0, 0]);
    packet.extend((packet.len()..len).map(|at| (at * 7) as u8));
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[24..26].copy_from_slice(&((len - 20) as u16).to_be_bytes());
    sealane_wire::walk::set_v4_checksum(&mut packet);
    packet
}

fn send(sad: &mut Sad, id: SaId, plain: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buf = [&[0xee; HEADROOM][..], plain, &[0xee; TAILROOM]].concat();
    let mut burst = [Outbound::new(id, Packet::new(&mut buf, HEADROOM, HEADROOM + plain.len()))];
    seal(sad, &mut burst, 1001, &mut Vec::new());
    burst[0].status.map(|()| burst[0].packet.bytes().to_vec())
}

fn receive(sad: &mut Sad, wire: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buf = [&[0xee; HEADROOM][..], wire, &[0xee; 8]].concat();
    let mut burst = [Inbound::new(Packet::new(&mut buf, HEADROOM, HEADROOM + wire.len()))];
    open(sad, &mut burst, 1001, &mut Vec::new());
    burst[0].status.map(|opened| {
        assert_eq!(opened, Opened::Packet);
        burst[0].packet.bytes().to_vec()
    })
}

/// Both ends of a state.
struct Ends {
    out: Sad,
    inn: Sad,
    id: SaId,
}

impl Ends {
    fn new(spec: impl Fn() -> SaSpec) -> Self {
        Ends::between(spec(), spec())
    }

    fn between(sender: SaSpec, receiver: SaSpec) -> Self {
        let (mut out, mut inn) = (Sad::new(1), Sad::new(2));
        let id = out.add(sender).unwrap();
        inn.add(receiver).unwrap();
        Ends { out, inn, id }
    }

    fn wire(&mut self, plain: &[u8]) -> Vec<u8> {
        send(&mut self.out, self.id, plain).unwrap()
    }

    fn receive(&mut self, wire: &[u8]) -> Result<Vec<u8>, DropReason> {
        receive(&mut self.inn, wire)
    }
}

#[test]
fn two_ends() {
    for cipher in CIPHERS {
        for (mac, fraction) in MACS.iter().flat_map(|mac| FRACTIONS.map(|fraction| (*mac, fraction))) {
            for mode in [Mode::Tunnel, Mode::Transport] {
                // The numbers pass the border of 2^32.
                let mut ends = Ends::new(|| spec(partial(cipher, mac, fraction), mode));
                for len in [29, 30, 31, 32, 140, 160, 200, 1419, 1420, 9000] {
                    let plain = datagram(len);
                    let wire = ends.wire(&plain);
                    assert_eq!(ends.receive(&wire), Ok(plain), "{cipher:?} {mac} {fraction} {mode:?} {len}");
                    assert_eq!(ends.receive(&wire), Err(DropReason::Replayed));
                }
            }
        }
    }
}

/// In one burst with other states each packet is what it is alone.
#[test]
fn beside_other_states() {
    let transforms = [
        partial(CIPHERS[0], "gmac(aes)", "1/4"),
        whole(CIPHERS[1], "hmac(sha256)"),
        partial(CIPHERS[1], "cmac(aes)", "1/2"),
        whole(CIPHERS[0], "cmac(aes)"),
        partial(CIPHERS[2], "hmac(sha1)", "1/8"),
        partial(CIPHERS[0], "gmac(aes)", "1"),
    ];
    let specs = || transforms.iter().zip(1..).map(|(t, n)| SaSpec { spi: n, ..spec(t.clone(), Mode::Tunnel) });
    let fill = |seed| {
        let mut sad = Sad::new(seed);
        let ids: Vec<SaId> = specs().map(|spec| sad.add(spec).unwrap()).collect();
        (sad, ids)
    };
    let plains: Vec<Vec<u8>> = (0..60).map(|n| datagram(100 + 20 * n)).collect();
    let (mut sad, ids) = fill(1);
    let alone: Vec<Vec<u8>> =
        plains.iter().zip(ids.iter().cycle()).map(|(plain, id)| send(&mut sad, *id, plain).unwrap()).collect();
    let (mut sad, ids) = fill(2);
    let mut bufs: Vec<Vec<u8>> =
        plains.iter().map(|plain| [&[0xee; HEADROOM][..], plain, &[0xee; TAILROOM]].concat()).collect();
    let mut burst: Vec<Outbound<'_>> = (bufs.iter_mut().zip(&plains).zip(ids.iter().cycle()))
        .map(|((buf, plain), id)| Outbound::new(*id, Packet::new(buf, HEADROOM, HEADROOM + plain.len())))
        .collect();
    seal(&mut sad, &mut burst, 1001, &mut Vec::new());
    let mut wires: Vec<Vec<u8>> = burst.iter().map(|one| one.packet.bytes().to_vec()).collect();
    assert!(burst.iter().all(|one| one.status.is_ok()) && wires == alone);
    // One of each state is forged.
    let is_forged = |at: usize| (12..18).contains(&at);
    wires.iter_mut().enumerate().filter(|(at, _)| is_forged(*at)).for_each(|(_, wire)| wire[60] ^= 1);
    let (mut sad, _) = fill(3);
    let mut burst: Vec<Inbound<'_>> = wires
        .iter_mut()
        .map(|wire| {
            let end = wire.len();
            Inbound::new(Packet::new(wire, 0, end))
        })
        .collect();
    open(&mut sad, &mut burst, 1001, &mut Vec::new());
    for (at, (one, plain)) in burst.iter().zip(&plains).enumerate() {
        match is_forged(at) {
            true => assert_eq!(one.status, Err(DropReason::Icv), "packet {at}"),
            false => assert_eq!((one.status, one.packet.bytes()), (Ok(Opened::Packet), &plain[..]), "packet {at}"),
        }
    }
}

/// Tries every byte behind the outer header: those that are always covered are found out whatever the fraction, the others block by
/// block. The window does not move for any of it.
#[test]
fn what_is_covered_always() {
    for cipher in CIPHERS {
        for (mac, fraction) in MACS.iter().flat_map(|mac| FRACTIONS.map(|fraction| (*mac, fraction))) {
            let mut ends = Ends::new(|| tunnel(cipher, mac, fraction));
            let plain = datagram(600);
            let wire = ends.wire(&plain);
            let icv_len = match mac {
                "cmac(aes)" | "hmac(sha1)" => 12,
                _ => 16,
            };
            let body = OUTER_LEN + 8 + cipher.2 + FRONT_LEN..wire.len() - icv_len - TAIL_LEN;
            let what = format!("{cipher:?} {mac} {fraction}");
            let (mut passed, mut blocks) = (0, 0);
            for at in OUTER_LEN..wire.len() {
                // A byte of each block of the body: they are covered together.
                if body.contains(&at) && !(at - body.start).is_multiple_of(16) {
                    continue;
                }
                let mut forged = wire.clone();
                forged[at] ^= 0x10;
                // A packet that passes uses its number up: each try has a receiver of its own.
                let mut inn = Sad::new(3);
                inn.add(tunnel(cipher, mac, fraction)).unwrap();
                let found = receive(&mut inn, &forged);
                if body.contains(&at) {
                    blocks += 1;
                    passed += usize::from(found.is_ok());
                    if let Ok(opened) = &found {
                        assert_ne!(*opened, plain, "{what}: what passes has been altered");
                    } else {
                        assert_eq!(found, Err(DropReason::Icv), "{what}: byte {at}");
                    }
                } else {
                    let wanted = if at < OUTER_LEN + 4 { DropReason::NoState } else { DropReason::Icv };
                    // A number far below is behind the window.
                    let behind = at < OUTER_LEN + 8 && found == Err(DropReason::BehindWindow);
                    assert!(behind || found == Err(wanted), "{what}: byte {at}: {found:?}");
                }
                if found.is_err() {
                    assert_eq!(receive(&mut inn, &wire), Ok(plain.clone()), "{what}: the window has not moved");
                }
            }
            assert!(
                blocks >= 26 && (passed == 0) == (fraction == "1") && passed < blocks,
                "{what}: {passed} of {blocks}"
            );
        }
    }
}

/// The longest headers there are in IPv4 and TCP, and the longest trailer of ours, are covered in every packet.
#[test]
fn headers_and_trailer_are_in_what_is_covered() {
    // 40 bytes of options in both, of one byte each, and a payload for which the trailer of AES-CBC has 17 bytes.
    let mut plain = datagram(28);
    plain.truncate(20);
    (plain[0], plain[9]) = (0x4f, 6);
    plain.extend([1; 40]);
    plain.extend([0x30, 0x39, 0, 179, 0, 0, 0, 1, 0, 0, 0, 1, 0xf0, 0x10, 1, 0, 0, 0, 0, 0]);
    plain.extend([1; 40]);
    plain.extend([7; 703 - 120]);
    plain[2..4].copy_from_slice(&703u16.to_be_bytes());
    sealane_wire::walk::set_v4_checksum(&mut plain);
    for cipher in CIPHERS {
        for mode in [Mode::Tunnel, Mode::Transport] {
            let mut ends = Ends::new(|| spec(partial(cipher, "cmac(aes)", "1/8"), mode));
            for _ in 0..5 {
                let wire = ends.wire(&plain);
                let text_at = if mode == Mode::Tunnel { 20 } else { 60 } + 8 + cipher.2;
                let (headers, icv_at) = (if mode == Mode::Tunnel { 120 } else { 60 }, wire.len() - 12);
                // In CBC mode a plaintext depends on the block before its own as well: that of the trailer on 33 bytes and more.
                for at in (text_at..text_at + headers).chain(icv_at - 48..icv_at) {
                    let mut forged = wire.clone();
                    forged[at] ^= 0x20;
                    assert_eq!(ends.receive(&forged), Err(DropReason::Icv), "{cipher:?} {mode:?}: byte {at}");
                }
                assert_eq!(ends.receive(&wire), Ok(plain.clone()));
            }
        }
    }
}

/// Blocks that are not covered pass in a share of packets that the formula says, whatever is done to them; so the number of a packet
/// selects, and what passes once does not pass with the next number.
#[test]
fn detection_through_both_ends() {
    const PACKETS: u64 = 2000;
    let mut random = Random(0x5ea1_a4e5);
    for (mac, fraction, share) in
        [("gmac(aes)", "1/2", 0.5_f64), ("cmac(aes)", "1/4", 0.25), ("hmac(sha1)", "1/8", 0.125)]
    {
        for m in [1, 2, 4, 8] {
            let mut ends = Ends::new(|| tunnel(CIPHERS[2], mac, fraction));
            let plain = datagram(700);
            let mut escaped = 0;
            for _ in 0..PACKETS {
                let mut wire = ends.wire(&plain);
                let body = OUTER_LEN + 8 + 8 + FRONT_LEN;
                let mut blocks = BTreeSet::new();
                while blocks.len() < m {
                    blocks.insert(random.below(32));
                }
                blocks
                    .iter()
                    .for_each(|block| wire[body + block * 16 + random.below(16)] ^= 1 + random.below(255) as u8);
                match ends.receive(&wire) {
                    Ok(opened) => {
                        assert_ne!(opened, plain);
                        escaped += 1;
                    }
                    Err(reason) => assert_eq!(reason, DropReason::Icv),
                }
            }
            let formula: f64 = (1.0 - share).powi(m as i32);
            let (mean, deviation) = (PACKETS as f64 * formula, (PACKETS as f64 * formula * (1.0 - formula)).sqrt());
            // The interval of 99.9 %, and the same numbers in every run.
            assert!(
                (f64::from(escaped) - mean).abs() < 3.29 * deviation + 0.5,
                "{mac} {fraction} m={m}: {escaped}, {mean}"
            );
        }
    }
}

/// Two packets with the same text and other numbers are covered in other places.
#[test]
fn no_selection_is_used_twice() {
    let mut ends = Ends::new(|| tunnel(CIPHERS[0], "cmac(aes)", "1/4"));
    let plain = datagram(1400);
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let wire = ends.wire(&plain);
        let body = OUTER_LEN + 8 + FRONT_LEN;
        let passes = |at: usize| {
            let mut inn = Sad::new(3);
            inn.add(tunnel(CIPHERS[0], "cmac(aes)", "1/4")).unwrap();
            let mut forged = wire.clone();
            forged[at] ^= 1;
            receive(&mut inn, &forged).is_ok()
        };
        let selection: Vec<bool> = (0..70).map(|block| passes(body + 16 * block)).collect();
        assert!(seen.insert(selection), "a selection comes again");
        // The ICV of one number is none of another one, even over the same text.
        let mut other = ends.wire(&plain);
        let icv_at = other.len() - 12;
        other[icv_at..].copy_from_slice(&wire[icv_at..]);
        assert_eq!(ends.receive(&other), Err(DropReason::Icv));
    }
}

#[test]
fn cut_and_lengthened() {
    for (mac, fraction) in MACS.iter().flat_map(|mac| FRACTIONS.map(|fraction| (*mac, fraction))) {
        let mut ends = Ends::new(|| tunnel(CIPHERS[0], mac, fraction));
        let plain = datagram(600);
        let wire = ends.wire(&plain);
        let with_len = |bytes: &[u8]| {
            let mut packet = bytes.to_vec();
            let len = packet.len() as u16;
            packet[2..4].copy_from_slice(&len.to_be_bytes());
            sealane_wire::walk::set_v4_checksum(&mut packet);
            packet
        };
        // At any end, and with whole blocks taken out of or put into the middle, where most are not covered.
        for len in [wire.len() - 1, wire.len() - 4, wire.len() - 16, 300, 80, 50] {
            let found = ends.receive(&with_len(&wire[..len]));
            assert!(matches!(found, Err(DropReason::Icv | DropReason::Short)), "{mac} {fraction} {len}: {found:?}");
        }
        for at in (OUTER_LEN + 8 + FRONT_LEN..450).step_by(16) {
            let shorter = [&wire[..at], &wire[at + 16..]].concat();
            let longer = [&wire[..at + 16], &wire[at..]].concat();
            for other in [shorter, longer] {
                assert_eq!(ends.receive(&with_len(&other)), Err(DropReason::Icv), "{mac} {fraction} at {at}");
            }
        }
        assert_eq!(ends.receive(&wire), Ok(plain));
    }
}

/// Nothing but the very same partial MAC takes a packet: not the whole one under the same key, not another fraction, MAC or SPI.
#[test]
fn nobody_else_takes_it() {
    let cipher = CIPHERS[0];
    // Of the same length of ICV, so that nothing but the MAC can refuse.
    for (mac, other) in [("cmac(aes)", "hmac(sha1)"), ("gmac(aes)", "hmac(sha256)")] {
        let plain = datagram(600);
        let refused = |sender: SaSpec, receiver: SaSpec, what: &str| {
            let mut ends = Ends::between(sender, receiver);
            let wire = ends.wire(&plain);
            assert_eq!(ends.receive(&wire), Err(DropReason::Icv), "{what}");
        };
        for fraction in FRACTIONS {
            let of = || tunnel(cipher, mac, fraction);
            // Of HMACs the whole one has the same length of ICV, under a key of any length.
            for whole_mac in MACS.into_iter().filter(|whole_mac| whole_mac.starts_with("hmac")) {
                let partial_of_it = || tunnel(cipher, whole_mac, fraction);
                let auth = Keyed { name: whole_mac, key: &KEY[..20] };
                let enc = Keyed { name: cipher.0, key: &[] };
                let transform = prepare(&TransformSpec::EncAuth { enc, auth, icv_bits: 0 }, true).unwrap();
                let the_whole = || spec(transform.clone(), Mode::Tunnel);
                refused(partial_of_it(), the_whole(), whole_mac);
                refused(the_whole(), partial_of_it(), whole_mac);
            }
            for another in FRACTIONS.into_iter().filter(|another| *another != fraction) {
                refused(of(), tunnel(cipher, mac, another), &format!("{mac} {fraction} {another}"));
            }
            refused(of(), tunnel(cipher, other, fraction), other);
            let name = format!("partial({mac},{fraction})");
            let (enc, auth) = (Keyed { name: cipher.0, key: &[] }, Keyed { name: &name, key: &KEY[..20] });
            let transform = prepare(&TransformSpec::Partial { enc, auth, icv_bits: 0, spi: SPI + 1 }, true).unwrap();
            refused(of(), spec(transform, Mode::Tunnel), "subkeys of another SPI");
            if mac == "cmac(aes)" {
                // A key that both take.
                let auth = Keyed { key: &KEY[..16], ..auth };
                let transform = prepare(&TransformSpec::Partial { enc, auth, icv_bits: 0, spi: SPI }, true).unwrap();
                let (partial, whole) =
                    (|| spec(transform.clone(), Mode::Tunnel), || spec(whole(cipher, mac), Mode::Tunnel));
                refused(partial(), whole(), "the whole MAC takes no partial one");
                refused(whole(), partial(), "a partial MAC takes no whole one");
            }
        }
    }
}

/// The high half of a number is not in the packet and covered all the same.
#[test]
fn the_high_half_is_covered() {
    for mac in MACS {
        let of = |high: u64| SaSpec {
            out_number: high << 32 | 7,
            in_number: high << 32 | 7,
            ..tunnel(CIPHERS[1], mac, "1/8")
        };
        let mut ends = Ends::between(of(3), of(4));
        let wire = ends.wire(&datagram(600));
        assert_eq!(ends.receive(&wire), Err(DropReason::Icv));
        let mut ends = Ends::between(of(3), of(3));
        let wire = ends.wire(&datagram(600));
        assert!(ends.receive(&wire).is_ok());
    }
}

#[test]
fn names_lead_to_it_in_one_way_only() {
    let (enc, null) = (Keyed { name: "cbc(aes)", key: &KEY[..16] }, Keyed { name: "ecb(cipher_null)", key: &[] });
    for name in MACS.iter().flat_map(|mac| FRACTIONS.map(|fraction| format!("partial({mac},{fraction})"))) {
        let auth = Keyed { name: &name, key: &KEY[..20] };
        for esn in [false, true] {
            for spec in [
                TransformSpec::Auth { auth, icv_bits: 96 },
                TransformSpec::EncAuth { enc, auth, icv_bits: 96 },
                TransformSpec::EncAuth { enc: null, auth, icv_bits: 96 },
            ] {
                assert_eq!(prepare(&spec, esn).err(), Some(TransformError::NoAuth), "{name}");
            }
        }
        let aead = TransformSpec::Aead { aead: auth, icv_bits: 128 };
        assert_eq!(prepare(&aead, true).err(), Some(TransformError::NoAead));
        let of = |icv_bits| TransformSpec::Partial { enc, auth, icv_bits, spi: SPI };
        assert_eq!(prepare(&of(0), false).err(), Some(TransformError::PartialNumbers));
        for bits in [8, 64, 88, 95, 97, 264, 512] {
            assert_eq!(prepare(&of(bits), true).err(), Some(TransformError::IcvLen), "{name} {bits}");
        }
        let short = TransformSpec::Partial { enc, auth: Keyed { key: &KEY[..15], ..auth }, icv_bits: 0, spi: SPI };
        assert!(matches!(prepare(&short, true).err(), Some(TransformError::Key(_))), "{name}");
    }
    for name in ["cmac(aes)", "hmac(sha1)", "gmac(aes)"] {
        let spec = TransformSpec::Partial { enc, auth: Keyed { name, key: &KEY[..16] }, icv_bits: 0, spi: SPI };
        assert_eq!(prepare(&spec, true).err(), Some(TransformError::NoAuth), "{name} is none");
    }
}

#[test]
fn states_that_may_have_one() {
    let transform = partial(CIPHERS[0], "cmac(aes)", "1/4");
    for mode in [Mode::Tunnel, Mode::Transport, Mode::Beet, Mode::Iptfs] {
        for encap in [None, Some(Encap::udp(4500, 4500)), Some(Encap::tcp(4500, 4500))] {
            for (proto, esn) in [(Proto::Esp, true), (Proto::Esp, false), (Proto::Ah, true)] {
                let fits = match mode {
                    Mode::Tunnel => true,
                    Mode::Transport => encap.is_none(),
                    Mode::Beet | Mode::Iptfs => false,
                };
                let wanted = fits && (proto, esn) == (Proto::Esp, true);
                assert_eq!(may_have_partial_mac(proto, mode, encap.is_some(), esn), wanted);
                let flags = SaFlags { esn, ..SaFlags::default() };
                let (out_number, in_number) = (0, 0);
                let of = SaSpec { proto, encap, flags, out_number, in_number, ..spec(transform.clone(), mode) };
                let added = Sad::new(1).add(of).err();
                assert_eq!(added, (!wanted).then_some(SaError::Transform), "{mode:?} {encap:?} {proto:?} {esn}");
            }
        }
    }
}

/// A packet with an inner one, or with a quoted one: nobody's policies see a header that is not always covered.
#[test]
fn headers_within_packets() {
    const LEN: usize = 600;
    // An IPv4 header with options of so many bytes, in front of a payload.
    let v4 = |proto: u8, options: usize, payload: &[u8]| {
        let mut packet = datagram(20);
        (packet[0], packet[9]) = (0x45 + (options / 4) as u8, proto);
        packet.truncate(20);
        packet.extend(vec![1; options]);
        packet.extend(payload);
        let len = packet.len() as u16;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        sealane_wire::walk::set_v4_checksum(&mut packet);
        packet
    };
    let v6 = |next: u8, options: usize, payload: &[u8]| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, if options == 0 { next } else { 60 }, 64];
        packet.extend([7; 32]);
        if options != 0 {
            packet.extend([next, (options / 8 - 1) as u8, 1, (options - 4) as u8]);
            packet.resize(40 + options, 0);
        }
        packet.extend(payload);
        let payload_len = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        packet
    };
    let rest = vec![9; LEN];
    let icmp = |kind: u8, quoted: &[u8]| [&[kind, 0, 0, 0, 0, 0, 0, 0], quoted].concat();
    let sent: Vec<(&str, Vec<u8>)> = vec![
        ("IPv4 in IPv4, all options", v4(4, 40, &v4(17, 40, &rest))),
        ("IPv6 in IPv4", v4(41, 0, &v6(17, 56, &rest))),
        ("IPv6 in IPv6", v6(41, 0, &v6(17, 40, &rest))),
        ("three", v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(17, 0, &rest))))))),
        ("echo", v4(1, 0, &icmp(8, &rest))),
        ("echo of IPv6", v6(58, 0, &icmp(128, &rest))),
        ("error", v4(1, 0, &icmp(3, &v4(17, 40, &rest)))),
        // The quoted one is cut, as they are.
        ("error of IPv6", v6(58, 0, &icmp(1, &v6(17, 32, &rest)[..400]))),
        ("covered to its end", v6(41, 0, &v6(17, 48, &[]))),
        ("ESP in IP", v4(4, 0, &v4(50, 0, &rest))),
    ];
    let refused: Vec<(&str, Vec<u8>)> = vec![
        ("IPv6 in IPv4", v4(41, 0, &v6(17, 64, &rest))),
        ("IPv6 in IPv6", v6(41, 0, &v6(17, 48, &rest))),
        ("six", v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(4, 0, &v4(17, 0, &rest)))))))),
        ("compressed in IP", v4(4, 0, &v4(108, 0, &rest))),
        ("error", v4(1, 20, &icmp(3, &v6(17, 40, &rest)))),
        ("error of IPv6", v6(58, 0, &icmp(1, &v6(17, 40, &rest)[..400]))),
        ("an error that quotes an error", v6(58, 0, &icmp(3, &v6(58, 0, &icmp(1, &v6(17, 0, &rest)))))),
        ("not IP", v4(4, 0, &rest)),
    ];
    for (cipher, mode) in CIPHERS.into_iter().flat_map(|c| [(c, Mode::Tunnel), (c, Mode::Transport)]) {
        let mut ends = Ends::new(|| spec(partial(cipher, "cmac(aes)", "1/8"), mode));
        let fits = |packet: &[u8]| mode == Mode::Tunnel || packet[0] >> 4 == 4;
        for (what, packet) in sent.iter().filter(|(_, packet)| fits(packet)) {
            assert!(send(&mut ends.out, ends.id, packet).is_ok(), "{what} {mode:?}");
        }
        for (what, packet) in refused.iter().filter(|(_, packet)| fits(packet)) {
            assert_eq!(send(&mut ends.out, ends.id, packet), Err(DropReason::OutMode), "{what} {mode:?}");
        }
        // A later fragment has no headers, whatever protocol it is of.
        let mut later = v4(4, 0, &rest);
        (later[6], later[7]) = (0, 100);
        sealane_wire::walk::set_v4_checksum(&mut later);
        if mode == Mode::Tunnel {
            assert!(send(&mut ends.out, ends.id, &later).is_ok());
        }
    }
}

/// Packets whose headers are longer than what is always covered are not sent, and take no number; nor are compressed ones.
#[test]
fn long_headers_are_not_sent() {
    let v6 = |ext_len: usize, len: usize| {
        let mut packet = vec![0x60, 0, 0, 0, 0, 0, 60, 64];
        for text in ["fd01::5", "fd02::5"] {
            let IpAddr::V6(a) = addr(text) else { panic!("{text}") };
            packet.extend(a.octets());
        }
        // Destination options, filled by one option of padding.
        packet.extend([17, (ext_len / 8 - 1) as u8, 1, (ext_len - 4) as u8]);
        packet.resize(40 + ext_len, 0);
        packet.extend((0..len - packet.len()).map(|at| at as u8));
        let payload_len = (packet.len() - 40) as u16;
        packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
        packet
    };
    for cipher in CIPHERS {
        let mut ends = Ends::new(|| tunnel(cipher, "gmac(aes)", "1/8"));
        let first = ends.wire(&datagram(600));
        assert_eq!(send(&mut ends.out, ends.id, &v6(32, 600)), Err(DropReason::OutMode));
        let mut compressed = datagram(600);
        compressed[9] = 108;
        sealane_wire::walk::set_v4_checksum(&mut compressed);
        assert_eq!(send(&mut ends.out, ends.id, &compressed), Err(DropReason::OutMode));
        let low = |wire: &[u8]| u32::from_be_bytes(*wire[OUTER_LEN + 4..].first_chunk().unwrap());
        for plain in [v6(24, 600), v6(32, 128), datagram(600)] {
            let wire = ends.wire(&plain);
            assert_eq!(ends.receive(&wire), Ok(plain));
        }
        assert_eq!(low(&ends.wire(&datagram(600))), low(&first).wrapping_add(4));
    }
}
