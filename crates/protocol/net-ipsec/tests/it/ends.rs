//! Two ends that exchange packets: every transform, mode and family, cases that Linux cannot be asked for, limits and
//! events, and the complete packet of RFC 7634.

use crate::hex::hex;
use core::net::IpAddr;
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::event::Event;
use sealane_net_ipsec::lifetime::{Limits, Usage};
use sealane_net_ipsec::open::{Inbound, MAX_DEPTH, Opened, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, Mode, Proto, SaDir, SaError, SaFlags, SaId, SaSpec, SaState};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::selector::{Mark, Selector};
use sealane_net_ipsec::seq::Lease;
use sealane_net_ipsec::transform::{Keyed, Transform, TransformError, TransformSpec, Transforms};
use sealane_wire::ip::{self, Layout};
use sealane_wire::walk::{Walk, set_v4_checksum};
use std::sync::{Arc, LazyLock, Mutex};

static TRANSFORMS: LazyLock<Mutex<Transforms>> =
    LazyLock::new(|| Mutex::new(Transforms::new(Arc::new(sealane_crypto_portable::registry()))));

fn prepare(spec: &TransformSpec<'_>, esn: bool) -> Result<Transform, TransformError> {
    TRANSFORMS.lock().unwrap_or_else(|e| e.into_inner()).prepare(spec, esn)
}

const KEY: [u8; 64] = [0x2b; 64];

fn aead(name: &str, key_len: usize, icv_bits: u32) -> TransformSpec<'_> {
    TransformSpec::Aead { aead: Keyed { name, key: &KEY[..key_len] }, icv_bits }
}

fn enc_auth<'a>(enc: (&'a str, usize), auth: (&'a str, usize), icv_bits: u32) -> TransformSpec<'a> {
    let keyed = |(name, len): (&'a str, usize)| Keyed { name, key: &KEY[..len] };
    TransformSpec::EncAuth { enc: keyed(enc), auth: keyed(auth), icv_bits }
}

fn auth(name: &str, key_len: usize, icv_bits: u32) -> TransformSpec<'_> {
    TransformSpec::Auth { auth: Keyed { name, key: &KEY[..key_len] }, icv_bits }
}

fn esps() -> Vec<TransformSpec<'static>> {
    let mut all = vec![
        aead("rfc4106(gcm(aes))", 20, 64),
        aead("rfc4106(gcm(aes))", 36, 128),
        aead("rfc4543(gcm(aes))", 20, 128),
        aead("rfc4309(ccm(aes))", 19, 96),
        aead("rfc7539esp(chacha20,poly1305)", 36, 128),
    ];
    for mac in [
        ("hmac(md5)", 16),
        ("hmac(sha1)", 20),
        ("hmac(sha256)", 32),
        ("hmac(sha384)", 48),
        ("hmac(sha512)", 64),
        ("xcbc(aes)", 16),
        ("cmac(aes)", 16),
        // Those that Linux has no row for.
        ("hmac(rmd160)", 20),
        ("hmac(sha224)", 28),
        ("hmac(sha3-224)", 28),
        ("hmac(sha3-256)", 32),
        ("hmac(sha3-384)", 48),
        ("hmac(sha3-512)", 64),
        ("hmac(streebog256)", 32),
        ("hmac(streebog512)", 64),
        ("hmac(wp512)", 64),
        ("hmac(blake2b-160)", 20),
        ("hmac(blake2b-256)", 32),
        ("hmac(blake2b-384)", 48),
        ("hmac(blake2b-512)", 64),
        ("blake2b-160", 20),
        ("blake2b-256", 32),
        ("blake2b-384", 48),
        ("blake2b-512", 64),
        ("blake2s-128", 16),
        ("blake2s-160", 20),
        ("blake2s-224", 28),
        ("blake2s-256", 32),
        ("blake3", 32),
        ("kmac256-128", 32),
        ("cmac(camellia)", 16),
        ("cmac(sm4)", 16),
    ] {
        for enc in [("cbc(aes)", 16), ("rfc3686(ctr(aes))", 20), ("ecb(cipher_null)", 0)] {
            all.push(enc_auth(enc, mac, 0));
        }
    }
    all.push(enc_auth(("cbc(des3_ede)", 24), ("hmac(sha1)", 20), 160));
    all.push(enc_auth(("cbc(camellia)", 16), ("hmac(sha256)", 32), 128));
    all.push(enc_auth(("aes", 32), ("sha1", 20), 0));
    all
}

fn addr(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn v4(src: &str, dst: &str, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 0, 0, 7, 0x40, 0, 64, 17, 0, 0];
    for text in [src, dst] {
        let IpAddr::V4(a) = addr(text) else { panic!("{text}") };
        packet.extend(a.octets());
    }
    packet.extend(data);
    let len = packet.len() as u16;
    packet[2..4].copy_from_slice(&len.to_be_bytes());
    set_v4_checksum(&mut packet);
    packet
}

fn v6(src: &str, dst: &str, next: u8, data: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x6b, 0x91, 0x23, 0x45, 0, 0, next, 64];
    packet[4..6].copy_from_slice(&(data.len() as u16).to_be_bytes());
    for text in [src, dst] {
        let IpAddr::V6(a) = addr(text) else { panic!("{text}") };
        packet.extend(a.octets());
    }
    packet.extend(data);
    packet
}

const IN4: (&str, &str) = ("10.1.0.5", "10.2.0.5");
const IN6: (&str, &str) = ("fd01::5", "fd02::5");

fn host(text: &str) -> (IpAddr, u8) {
    (addr(text), if text.contains(':') { 128 } else { 32 })
}

/// A state with this mode and these families.
fn spec(transform: Transform, mode: Mode, inner_v4: bool, outer_v4: bool) -> SaSpec {
    let inner = if inner_v4 { IN4 } else { IN6 };
    let outer = match mode {
        Mode::Transport => inner,
        _ if outer_v4 => ("192.0.2.1", "192.0.2.2"),
        _ => ("2001:db8::1", "2001:db8::2"),
    };
    SaSpec {
        mode,
        selector: Selector::between(host(inner.0), host(inner.1)),
        window_pkts: 64,
        iv_salt: *b"random, not this",
        now_s: 1000,
        ..SaSpec::tunnel(0x1234, addr(outer.0), addr(outer.1), transform)
    }
}

/// Both ends: the same state in two databases.
struct Ends {
    out: Sad,
    inn: Sad,
    id: SaId,
    events: Vec<Event>,
}

impl Ends {
    fn new(spec: impl Fn() -> SaSpec) -> Self {
        let (mut out, mut inn) = (Sad::new(1), Sad::new(2));
        let id = out.add(spec()).unwrap();
        inn.add(spec()).unwrap();
        Ends { out, inn, id, events: Vec::new() }
    }

    fn seal(&mut self, plains: &[Vec<u8>]) -> Vec<Result<Vec<u8>, DropReason>> {
        seal_by(&mut self.out, self.id, plains, &mut self.events)
    }

    fn open(&mut self, wires: &[Vec<u8>]) -> Vec<Result<Vec<u8>, DropReason>> {
        open_by(&mut self.inn, wires, &mut self.events)
    }

    fn wire(&mut self, plain: &[u8]) -> Vec<u8> {
        self.seal(&[plain.to_vec()]).remove(0).unwrap()
    }
}

fn seal_by(sad: &mut Sad, id: SaId, plains: &[Vec<u8>], events: &mut Vec<Event>) -> Vec<Result<Vec<u8>, DropReason>> {
    let mut bufs: Vec<Vec<u8>> =
        plains.iter().map(|plain| [&[0xee; HEADROOM][..], plain, &[0xee; TAILROOM + 2000]].concat()).collect();
    let mut packets: Vec<Outbound<'_>> = bufs
        .iter_mut()
        .zip(plains)
        .map(|(buf, plain)| Outbound::new(id, Packet::new(buf, HEADROOM, HEADROOM + plain.len())))
        .collect();
    seal(sad, &mut packets, 1001, events);
    packets.iter().map(|p| p.status.map(|()| p.packet.bytes().to_vec())).collect()
}

fn status_by(
    sad: &mut Sad,
    wires: &[Vec<u8>],
    udp_encap: bool,
    events: &mut Vec<Event>,
) -> Vec<(Result<Opened, DropReason>, Vec<u8>, usize)> {
    let mut bufs: Vec<Vec<u8>> = wires.iter().map(|wire| [&[0xee; HEADROOM][..], wire, &[0xee; 8]].concat()).collect();
    let mut packets: Vec<Inbound<'_>> = bufs
        .iter_mut()
        .map(|buf| {
            let end = buf.len();
            Inbound { udp_encap, ..Inbound::new(Packet::new(buf, HEADROOM, end)) }
        })
        .collect();
    open(sad, &mut packets, 1001, events);
    packets.iter().map(|p| (p.status, p.packet.bytes().to_vec(), p.path.len())).collect()
}

fn open_by(sad: &mut Sad, wires: &[Vec<u8>], events: &mut Vec<Event>) -> Vec<Result<Vec<u8>, DropReason>> {
    let found = status_by(sad, wires, true, events);
    found
        .into_iter()
        .map(|(status, packet, _)| {
            status.map(|opened| {
                assert!(matches!(opened, Opened::Packet), "{opened:?}");
                packet
            })
        })
        .collect()
}

#[test]
fn every_transform_mode_and_family() {
    for spec_of in esps() {
        for esn in [false, true] {
            let transform = prepare(&spec_of, esn).unwrap();
            for (mode, inner_v4, outer_v4) in [
                (Mode::Tunnel, true, true),
                (Mode::Tunnel, true, false),
                (Mode::Tunnel, false, true),
                (Mode::Tunnel, false, false),
                (Mode::Beet, true, true),
                (Mode::Beet, false, true),
                (Mode::Beet, true, false),
                (Mode::Beet, false, false),
                (Mode::Transport, true, true),
                (Mode::Transport, false, false),
            ] {
                for encap in [None, Some(Encap::udp(4500, 4500))] {
                    let start = if esn { 0xffff_fffc } else { 0 };
                    let mut ends = Ends::new(|| SaSpec {
                        flags: SaFlags { esn, ..SaFlags::default() },
                        out_number: start,
                        in_number: start,
                        encap,
                        ..spec(transform.clone(), mode, inner_v4, outer_v4)
                    });
                    // All lengths of a block, and across the border of 2^32 with extended numbers. In UDP, a payload
                    // shorter than an IP header would be dropped.
                    let least = if encap.is_some() { 40 } else { 0 };
                    let plains: Vec<Vec<u8>> = (1..=20u8)
                        .map(|n| {
                            let data = vec![n; least + usize::from(n)];
                            if inner_v4 { v4(IN4.0, IN4.1, &data) } else { v6(IN6.0, IN6.1, 17, &data) }
                        })
                        .collect();
                    let wires: Vec<Vec<u8>> = ends.seal(&plains).into_iter().map(Result::unwrap).collect();
                    let opened: Vec<Vec<u8>> = ends.open(&wires).into_iter().map(Result::unwrap).collect();
                    // BEET mode between families loses IPv4's identification and IPv6's flow label.
                    let mut expected = plains.clone();
                    for packet in expected.iter_mut().filter(|_| mode == Mode::Beet && inner_v4 != outer_v4) {
                        if inner_v4 {
                            packet[5] = 0;
                            set_v4_checksum(packet);
                        } else {
                            packet[1..4].copy_from_slice(&[0x90, 0, 0]);
                        }
                    }
                    assert_eq!(opened, expected, "{mode:?} {inner_v4} {outer_v4} {encap:?}");
                    assert!(ends.open(&wires).into_iter().all(|r| r == Err(DropReason::Replayed)));
                    let mut forged = ends.wire(&plains[9]);
                    for at in [forged.len() - 1, forged.len() - 25] {
                        forged[at] ^= 0x40;
                        let found = ends.open(&[forged.clone()]).remove(0);
                        assert!(
                            matches!(found, Err(DropReason::Icv | DropReason::Short | DropReason::NoState)),
                            "{found:?}"
                        );
                        forged[at] ^= 0x40;
                    }
                    assert_eq!(
                        ends.open(&[forged]).remove(0).unwrap(),
                        expected[9],
                        "a forgery does not use the number up"
                    );
                    assert!(ends.events.is_empty());
                }
            }
        }
    }
}

#[test]
fn ah_of_both_families() {
    for name in [("hmac(sha256)", 32, 128), ("hmac(sha1)", 20, 0), ("cmac(aes)", 16, 0)] {
        for esn in [false, true] {
            for (mode, inner_v4, outer_v4) in [
                (Mode::Tunnel, true, true),
                (Mode::Tunnel, true, false),
                (Mode::Tunnel, false, true),
                (Mode::Transport, true, true),
                (Mode::Transport, false, false),
            ] {
                let transform = prepare(&auth(name.0, name.1, name.2), esn).unwrap();
                let mut ends = Ends::new(|| SaSpec {
                    proto: Proto::Ah,
                    flags: SaFlags { esn, ..SaFlags::default() },
                    ..spec(transform.clone(), mode, inner_v4, outer_v4)
                });
                // Destination options that change in transit (type 0x3e), in front of UDP.
                let options = [17, 0, 0x3e, 4, 9, 9, 9, 9, 1, 2, 3, 4];
                let plain = if inner_v4 { v4(IN4.0, IN4.1, b"payload") } else { v6(IN6.0, IN6.1, 60, &options) };
                let mut wire = ends.wire(&plain);
                // Fields that routers change are not covered ...
                if wire[0] >> 4 == 4 {
                    (wire[1], wire[8]) = (3, 9);
                    set_v4_checksum(&mut wire);
                } else {
                    (wire[1], wire[3], wire[7]) = (0x31, 7, 9);
                }
                let opened = ends.open(&[wire.clone()]).remove(0).unwrap();
                if mode == Mode::Tunnel {
                    let ce = plain[0] >> 4 == 6;
                    assert!(opened == plain || ce, "ECN is copied from the outer header");
                } else {
                    assert_eq!(opened[20..], plain[20..]);
                }
                // ... and all others are.
                let mut wire = ends.wire(&plain);
                let at = if wire[0] >> 4 == 4 { 15 } else { 23 };
                wire[at] ^= 1;
                assert_eq!(ends.open(&[wire]), [Err(DropReason::Icv)]);
            }
        }
    }
}

#[test]
fn rfc_7634_appendix_a() {
    let key: Vec<u8> = (0x80..0xa0).chain([0xa0, 0xa1, 0xa2, 0xa3]).collect();
    let spec = TransformSpec::Aead { aead: Keyed { name: "rfc7539esp(chacha20,poly1305)", key: &key }, icv_bits: 128 };
    let inner = hex(concat!(
        "45000054a6f200004001e778c6336405c0000205",
        "08005b7a3a080000553bec1000073627",
        "08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222324252627",
        "28292a2b2c2d2e2f3031323334353637"
    ));
    let wire = hex(concat!(
        "4500008c23450000",
        "4032de5bcb007199cb007105",
        "0102030400000005",
        "1011121314151617",
        "24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f7",
        "2aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0",
        "76aaa8266b7fb0f7b11b369907e1ad43"
    ));
    let mut sad = Sad::new(0);
    let transform = prepare(&spec, false).unwrap();
    let mut state = SaSpec::tunnel(0x0102_0304, addr("203.0.113.153"), addr("203.0.113.5"), transform);
    state.window_pkts = 32;
    // The IV of number 5 is the RFC's.
    state.iv_salt[..8].copy_from_slice(&(0x1011_1213_1415_1617u64 ^ 5).to_be_bytes());
    (state.out_number, state.flags.nopmtudisc) = (4, true);
    let id = sad.add(state).unwrap();
    assert_eq!(open_by(&mut sad, std::slice::from_ref(&wire), &mut Vec::new()), [Ok(inner.clone())]);
    let sealed = seal_by(&mut sad, id, &[inner], &mut Vec::new()).remove(0).unwrap();
    assert_eq!(sealed[20..], wire[20..]);
}

fn gcm() -> Transform {
    prepare(&aead("rfc4106(gcm(aes))", 20, 128), false).unwrap()
}

fn plain() -> Vec<u8> {
    v4(IN4.0, IN4.1, b"some payload")
}

#[test]
fn what_algorithms_there_are_not() {
    let refused = |spec: &TransformSpec<'_>| prepare(spec, false).err().unwrap();
    assert_eq!(refused(&aead("rfc4106(gcm(aes))", 20, 32)), TransformError::NoAead);
    assert_eq!(refused(&aead("rfc4543(gcm(aes))", 20, 96)), TransformError::NoAead);
    assert_eq!(refused(&aead("gcm(aes)", 16, 128)), TransformError::NoAead);
    assert_eq!(refused(&enc_auth(("cbc(aes)", 16), ("digest_null", 0), 0)), TransformError::NullAuth);
    assert_eq!(refused(&enc_auth(("cbc(aes)", 16), ("hmac(md4)", 16), 0)), TransformError::NoAuth);
    // Without a key anybody computes it. Linux takes that, and short ICVs; its rows are as there.
    for mac in ["blake2b-256", "kmac256-128", "hmac(sha3-256)"] {
        assert!(matches!(refused(&auth(mac, 0, 0)), TransformError::Key(_)), "{mac}");
        assert!(matches!(refused(&enc_auth(("cbc(aes)", 16), (mac, 0), 0)), TransformError::Key(_)), "{mac}");
        assert_eq!(refused(&auth(mac, 32, 88)), TransformError::IcvLen, "{mac}");
    }
    assert!(prepare(&auth("hmac(sha1)", 0, 8), false).is_ok());
    assert_eq!(refused(&enc_auth(("ctr(aes)", 16), ("hmac(sha1)", 20), 0)), TransformError::NoEnc);
    assert_eq!(refused(&enc_auth(("cbc(aes)", 16), ("hmac(sha1)", 20), 168)), TransformError::IcvLen);
    assert_eq!(refused(&enc_auth(("cbc(aes)", 16), ("hmac(sha1)", 20), 90)), TransformError::IcvLen);
    assert!(matches!(refused(&enc_auth(("cbc(aes)", 17), ("hmac(sha1)", 20), 0)), TransformError::Key(_)));
    assert!(matches!(refused(&enc_auth(("ecb(cipher_null)", 1), ("hmac(sha1)", 20), 0)), TransformError::Key(_)));
    assert!(matches!(refused(&aead("rfc4106(gcm(aes))", 21, 128)), TransformError::Key(_)));
}

#[test]
fn what_associations_there_are_not() {
    let mut sad = Sad::new(3);
    let id = sad.add(spec(gcm(), Mode::Tunnel, true, true)).unwrap();
    let mut refused = |spec: SaSpec| sad.add(spec).err();
    let again = || spec(gcm(), Mode::Tunnel, true, true);
    assert_eq!(refused(again()), Some(SaError::Exists));
    assert_eq!(
        refused(SaSpec { mark: Mark { value: 1, mask: 1 }, ..again() }),
        Some(SaError::Exists),
        "no mark fits every mark"
    );
    assert_eq!(refused(SaSpec { spi: 9, src: addr("::1"), ..again() }), Some(SaError::Family));
    assert_eq!(refused(SaSpec { spi: 9, proto: Proto::Ah, ..again() }), Some(SaError::Transform));
    assert_eq!(refused(SaSpec { spi: 9, mode: Mode::Beet, selector: Selector::ANY, ..again() }), Some(SaError::Mode));
    assert_eq!(refused(SaSpec { spi: 9, mode: Mode::Transport, tfc_pad: 9, ..again() }), Some(SaError::Mode));
    let esn = SaFlags { esn: true, ..SaFlags::default() };
    assert_eq!(refused(SaSpec { spi: 9, flags: esn, window_pkts: 0, ..again() }), Some(SaError::Window));
    assert_eq!(refused(SaSpec { spi: 9, flags: esn, window_pkts: 0, dir: Some(SaDir::Out), ..again() }), None);
    // A handle becomes invalid with its association.
    assert!(sad.get(id).is_some());
    sad.remove(id).unwrap();
    let new = sad.add(spec(gcm(), Mode::Tunnel, true, true)).unwrap();
    assert!(sad.get(id).is_none() && sad.get(new).is_some() && sad.remove(id).is_none());
    assert_eq!(seal_by(&mut sad, id, &[plain()], &mut Vec::new()), [Err(DropReason::OutInvalid)]);
}

#[test]
fn one_burst_of_many_associations() {
    let mut sad = Sad::new(4);
    let specs: Vec<TransformSpec<'_>> = esps();
    let ids: Vec<SaId> = (0u32..)
        .zip(&specs)
        .map(|(i, s)| {
            sad.add(SaSpec { spi: 100 + i, ..spec(prepare(s, false).unwrap(), Mode::Tunnel, true, true) }).unwrap()
        })
        .collect();
    let plains: Vec<Vec<u8>> = (0..200u8).map(|n| v4(IN4.0, IN4.1, &vec![n; 1 + usize::from(n) * 3])).collect();
    let mut bufs: Vec<Vec<u8>> =
        plains.iter().map(|plain| [&[0; HEADROOM][..], plain, &[0; TAILROOM]].concat()).collect();
    let mut outs: Vec<Outbound<'_>> = bufs
        .iter_mut()
        .zip(&plains)
        .enumerate()
        .map(|(i, (buf, plain))| Outbound::new(ids[i % ids.len()], Packet::new(buf, HEADROOM, HEADROOM + plain.len())))
        .collect();
    // Some are not sealed, and each has its own verdict.
    outs[7].status = Err(DropReason::OutBlock);
    let stale = sad.add(SaSpec { spi: 9, ..spec(gcm(), Mode::Tunnel, true, true) }).unwrap();
    sad.remove(stale);
    outs[70].sa = stale;
    seal(&mut sad, &mut outs, 1, &mut Vec::new());
    let mut wires: Vec<Vec<u8>> = Vec::new();
    for (i, out) in outs.iter().enumerate() {
        match i {
            7 => assert_eq!(out.status, Err(DropReason::OutBlock)),
            70 => assert_eq!(out.status, Err(DropReason::OutInvalid)),
            _ => assert_eq!(out.status, Ok(())),
        }
        wires.push(out.packet.bytes().to_vec());
    }
    // Twice in one burst: only the first counts.
    wires[101] = wires[100].clone();
    wires[102][30] ^= 1;
    let found = status_by(&mut sad, &wires, false, &mut Vec::new());
    for (i, ((status, packet, depth), plain)) in found.iter().zip(&plains).enumerate() {
        match i {
            7 | 70 => assert_eq!(*status, Ok(Opened::Clear)),
            101 => assert_eq!(*status, Err(DropReason::Replayed)),
            102 => assert!(status.is_err()),
            _ => {
                assert_eq!((*status, *depth), (Ok(Opened::Packet), 1));
                assert_eq!(packet, plain);
            }
        }
    }
    let state = sad.find_in(100 + (100 % ids.len()) as u32, addr("192.0.2.2"), Proto::Esp, 0).unwrap();
    assert_eq!(sad.get(state).unwrap().stat.replay, 1);
}

#[test]
fn layers() {
    // ESP in transport mode within AH in transport mode (RFC 4301 section 4.5), both removed in one call.
    let mut sad = Sad::new(5);
    let inner = sad.add(spec(gcm(), Mode::Transport, true, true)).unwrap();
    let ah = prepare(&auth("hmac(sha256)", 32, 128), false).unwrap();
    let outer = sad.add(SaSpec { proto: Proto::Ah, ..spec(ah, Mode::Transport, true, true) }).unwrap();
    let mut events = Vec::new();
    let once = seal_by(&mut sad, inner, &[plain()], &mut events).remove(0).unwrap();
    let wire = seal_by(&mut sad, outer, &[once], &mut events).remove(0).unwrap();
    let found = status_by(&mut sad, &[wire], false, &mut events).remove(0);
    assert_eq!(found, (Ok(Opened::Packet), plain(), 2));
    // More than six layers.
    let mut wire = plain();
    for _ in 0..=MAX_DEPTH {
        wire = seal_by(&mut sad, inner, &[wire], &mut events).remove(0).unwrap();
    }
    let found = status_by(&mut sad, &[wire], false, &mut events).remove(0);
    assert_eq!((found.0, found.2), (Err(DropReason::Depth), MAX_DEPTH));
}

#[test]
fn checksums_that_a_nat_has_made_wrong() {
    let encap = Some(Encap::udp(4500, 4500));
    let open = |encap, mode, packet: &[u8]| {
        let mut ends = Ends::new(|| SaSpec { encap, ..spec(gcm(), mode, true, true) });
        let wire = ends.wire(packet);
        let found = status_by(&mut ends.inn, &[wire], encap.is_some(), &mut ends.events);
        assert_eq!(found[0].0, Ok(Opened::Packet));
        found[0].1.clone()
    };
    let layout = |packet: &[u8]| {
        let Walk { family, upper_at, end, .. } = Walk::find(packet).unwrap();
        Layout { family, tcp_at: upper_at, payload_at: end, end }
    };
    let (mut udp, mut tcp) = (v4(IN4.0, IN4.1, &[0; 48]), v4(IN4.0, IN4.1, &[1; 48]));
    udp[25] = 28 + 20;
    tcp[9] = 6;
    set_v4_checksum(&mut tcp);
    // Both are as long.
    let at = layout(&udp);
    ip::set_udp_checksum(&mut udp, &at);
    ip::set_tcp_checksum(&mut tcp, &at);
    for (right, place) in [(&udp, 26), (&tcp, 36)] {
        let mut wrong = right.clone();
        wrong[place] ^= 0x5a;
        assert_eq!(open(encap, Mode::Transport, &wrong), *right);
        for (encap, mode) in [(None, Mode::Transport), (encap, Mode::Tunnel), (None, Mode::Tunnel)] {
            assert_eq!(open(encap, mode, &wrong), wrong, "the sender's own mistake: {mode:?}");
        }
    }
    // Datagrams without a checksum, and what is no datagram, stay as they are.
    let mut without = udp.clone();
    without[26..28].fill(0);
    let mut short = udp.clone();
    short[25] -= 1;
    for packet in [without, short, v4(IN4.0, IN4.1, &[7; 7])] {
        assert_eq!(open(encap, Mode::Transport, &packet), packet);
    }
}

#[test]
fn udp_port_of_ike() {
    let encap = Some(Encap::udp(4500, 4500));
    let mut ends = Ends::new(|| SaSpec { encap, ..spec(gcm(), Mode::Transport, true, true) });
    let datagram = |sport: u16, data: &[u8]| {
        let len = (8 + data.len()) as u16;
        v4(
            IN4.0,
            IN4.1,
            &[&sport.to_be_bytes()[..], &4500u16.to_be_bytes(), &len.to_be_bytes(), &[0, 0], data].concat(),
        )
    };
    let mut wire = ends.wire(&plain());
    let found = status_by(
        &mut ends.inn,
        &[
            datagram(4500, &[0xff]),
            datagram(4500, &[0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]),
            datagram(4500, &[1, 2]),
            wire.clone(),
            plain(),
        ],
        true,
        &mut ends.events,
    );
    assert_eq!(found[0].0, Ok(Opened::Keepalive));
    assert_eq!((found[1].0, found[2].0), (Ok(Opened::Ike), Ok(Opened::Ike)));
    assert_eq!((found[3].0, &found[3].1), (Ok(Opened::Packet), &plain()));
    assert_eq!(found[4].0, Err(DropReason::Malformed), "a wrong UDP length");
    // Without the socket it is ordinary UDP.
    assert_eq!(status_by(&mut ends.inn, &[wire.clone()], false, &mut Vec::new())[0].0, Ok(Opened::Clear));
    // The NAT has given the peer another port.
    wire = ends.wire(&plain());
    wire[20..22].copy_from_slice(&40000u16.to_be_bytes());
    assert!(ends.events.is_empty());
    let id = ends.id;
    ends.open(&[wire]).remove(0).unwrap();
    assert_eq!(ends.events, [Event::Mapping { state: id, address: addr(IN4.0), port: 40000 }]);
    // A state with UDP refuses ESP without UDP, and the reverse.
    let mut bare = Ends::new(|| spec(gcm(), Mode::Transport, true, true));
    let wire = bare.wire(&plain());
    assert_eq!(ends.open(&[wire]), [Err(DropReason::Encap)]);
}

#[test]
fn traffic_flow_confidentiality() {
    let mut ends = Ends::new(|| SaSpec { tfc_pad: 300, ..spec(gcm(), Mode::Tunnel, true, true) });
    let long = v4(IN4.0, IN4.1, &[1; 400]);
    let wires: Vec<Vec<u8>> = ends.seal(&[plain(), long.clone()]).into_iter().map(Result::unwrap).collect();
    // 20 IP, 8 ESP, 8 IV, 300 padded, 4 trailer, 16 ICV.
    assert_eq!(wires[0].len(), 356);
    assert_eq!(ends.open(&wires), [Ok(plain()), Ok(long)]);
    // Padding stops at the MTU.
    let mut buf = [&[0; HEADROOM][..], &plain(), &[0; 400]].concat();
    let mut out = [Outbound { mtu: 200, ..Outbound::new(ends.id, Packet::new(&mut buf, HEADROOM, HEADROOM + 32)) }];
    seal(&mut ends.out, &mut out, 1, &mut Vec::new());
    assert_eq!((out[0].status, out[0].packet.len()), (Ok(()), 200));
    // Without room for the padding nothing is sent.
    let mut buf = [&[0; HEADROOM][..], &plain(), &[0; 100]].concat();
    let mut out = [Outbound::new(ends.id, Packet::new(&mut buf, HEADROOM, HEADROOM + 32))];
    seal(&mut ends.out, &mut out, 1, &mut Vec::new());
    assert_eq!(out[0].status, Err(DropReason::NoRoom));
}

#[test]
fn what_has_to_be_cut() {
    for mode in [Mode::Tunnel, Mode::Beet] {
        let mut ends = Ends::new(|| spec(gcm(), mode, false, true));
        // Whether cutting is forbidden, and the identification that the pieces have.
        let mut sealed = |len: usize, mtu: u32| {
            let packet = v6(IN6.0, IN6.1, 17, &vec![0; len - 40]);
            let mut buf = [&[0; HEADROOM][..], &packet, &[0; TAILROOM]].concat();
            let mut out = [Outbound { mtu, ..Outbound::new(ends.id, Packet::new(&mut buf, HEADROOM, HEADROOM + len)) }];
            seal(&mut ends.out, &mut out, 1, &mut Vec::new());
            let bytes = out[0].packet.bytes();
            out[0].status.map(|()| (bytes[6] & 0x40 != 0, [bytes[4], bytes[5]]))
        };
        // Senders of IPv6 do not believe in an MTU of less than 1,280 bytes.
        assert_eq!(sealed(1280, 1500), Ok((true, [0, 0])), "{mode:?}");
        assert_eq!(sealed(1280, 1300), Ok((false, [0, 2])), "{mode:?}");
        assert_eq!(sealed(1200, 1300), Ok((true, [0, 0])), "{mode:?}");
        assert_eq!(sealed(1281, 1300), Err(DropReason::TooBig), "{mode:?}");
    }
}

#[test]
fn garbage_inside() {
    // Sealed in transport mode and opened as a tunnel: the payload is not a packet. And padding, next header, lengths.
    let transform = prepare(&enc_auth(("ecb(cipher_null)", 0), ("hmac(sha1)", 20), 0), false).unwrap();
    let outer = ("192.0.2.1", "192.0.2.2");
    let mut out = Sad::new(1);
    let id = out.add(SaSpec { mode: Mode::Transport, ..spec(transform.clone(), Mode::Tunnel, true, true) }).unwrap();
    let mut inn = Sad::new(1);
    inn.add(spec(transform, Mode::Tunnel, true, true)).unwrap();
    let mut try_it = |proto: u8, payload: &[u8]| {
        let mut packet = v4(outer.0, outer.1, payload);
        packet[9] = proto;
        let wire = seal_by(&mut out, id, &[packet], &mut Vec::new()).remove(0).unwrap();
        open_by(&mut inn, &[wire], &mut Vec::new()).remove(0)
    };
    assert_eq!(try_it(17, b"payload"), Err(DropReason::InMode));
    assert_eq!(try_it(4, b"too short for IP"), Err(DropReason::InMode));
    assert_eq!(try_it(41, &[0x60; 39]), Err(DropReason::InMode));
    assert_eq!(try_it(4, &[0x45; 40]), Err(DropReason::Malformed), "a wrong length");
    assert_eq!(
        try_it(4, &v6(IN6.0, IN6.1, 17, b"x")),
        Err(DropReason::Malformed),
        "another version than the next header"
    );
    assert_eq!(try_it(59, b"dummy"), Err(DropReason::Dummy));
    assert_eq!(try_it(4, &plain()), Ok(plain()));
    assert_eq!(try_it(4, &[]), Err(DropReason::Padding), "an empty text");
    let mut piece = v4(outer.0, outer.1, b"12345678");
    (piece[6], piece[9]) = (0x20, 50);
    assert_eq!(open_by(&mut inn, &[piece], &mut Vec::new()), [Err(DropReason::Fragment)]);
}

#[test]
fn limits_of_volume() {
    let limits = Limits { soft_packets: 3, hard_packets: 5, ..Limits::NONE };
    let mut ends = Ends::new(|| SaSpec { limits, ..spec(gcm(), Mode::Tunnel, true, true) });
    let sealed = ends.seal(&vec![plain(); 8]);
    let good: Vec<Vec<u8>> = sealed.iter().filter_map(|r| r.clone().ok()).collect();
    assert_eq!(good.len(), 5);
    assert_eq!(sealed[5..], [Err(DropReason::OutExpired), Err(DropReason::OutInvalid), Err(DropReason::OutInvalid)]);
    assert_eq!(ends.events, [Event::SoftExpire(ends.id), Event::HardExpire(ends.id)]);
    assert_eq!(ends.out.state(ends.id), SaState::Expired);
    let used = ends.out.usage(ends.id).unwrap();
    assert_eq!((used.packets, used.bytes, used.use_time_s), (5, 5 * 32, 1001));
    // The same in one burst as one by one.
    ends.events.clear();
    let more: Vec<Vec<u8>> = [&good[..], &good[..1]].concat();
    let found = ends.open(&more);
    assert_eq!(found.iter().filter(|r| r.is_ok()).count(), 5);
    assert_eq!(ends.events.iter().filter(|e| matches!(e, Event::SoftExpire(_))).count(), 1);
    let bytes = Limits { soft_bytes: 40, hard_bytes: 64, ..Limits::NONE };
    let mut ends = Ends::new(|| SaSpec { limits: bytes, ..spec(gcm(), Mode::Tunnel, true, true) });
    let sealed = ends.seal(&vec![plain(); 3]);
    assert_eq!(sealed.iter().filter(|r| r.is_ok()).count(), 2, "the packet that reaches a limit is the last one");
    assert_eq!(ends.events, [Event::HardExpire(ends.id)], "the soft limit was skipped");
}

/// A key manager may set the usage to any value.
#[test]
fn what_is_used_wraps() {
    let mut ends = Ends::new(|| spec(gcm(), Mode::Tunnel, true, true));
    let used = Usage { bytes: u64::MAX - 10, packets: u64::MAX - 1, add_time_s: 1, use_time_s: 2 };
    ends.out.set_usage(ends.id, &used, 1000);
    assert_eq!(ends.out.usage(ends.id), Some(used));
    assert!(ends.seal(&vec![plain(); 3]).iter().all(Result::is_ok));
    let told = ends.out.usage(ends.id).unwrap();
    assert_eq!((told.packets, told.bytes), (1, 3 * 32 - 11), "as the kernel's counters do");
}

#[test]
fn limits_of_time() {
    let limits = Limits { soft_add_s: 10, hard_add_s: 20, soft_use_s: 3, hard_use_s: 500, ..Limits::NONE };
    let mut ends = Ends::new(|| SaSpec { limits, ..spec(gcm(), Mode::Tunnel, true, true) });
    assert_eq!(ends.out.poll_timeout(), Some(1003), "as if it had been used at once");
    ends.wire(&plain());
    let (id, mut events) = (ends.id, Vec::new());
    ends.out.handle_timeout(1003, &mut events);
    assert!(events.is_empty());
    ends.out.handle_timeout(1004, &mut events);
    assert_eq!(events, [Event::SoftExpire(id)]);
    ends.out.handle_timeout(1019, &mut events);
    assert_eq!(events.len(), 1, "one event only");
    ends.out.handle_timeout(1020, &mut events);
    assert_eq!(events[1..], [Event::HardExpire(id)]);
    assert_eq!(ends.seal(&[plain()]), [Err(DropReason::OutInvalid)]);
    assert_eq!(ends.out.poll_timeout(), None);
}

#[test]
fn leases() {
    let lease = Lease { end: 8, block: 8 };
    let mut ends = Ends::new(|| SaSpec { lease, ..spec(gcm(), Mode::Tunnel, true, true) });
    let sealed = ends.seal(&vec![plain(); 10]);
    assert_eq!(sealed.iter().filter(|r| r.is_ok()).count(), 8);
    assert_eq!(sealed[8], Err(DropReason::OutLease));
    assert_eq!(ends.events, [Event::LeaseLow(ends.id)], "when half is left");
    ends.out.renew_lease(ends.id, Lease::after(8, 8));
    assert!(ends.seal(&vec![plain(); 8]).iter().all(Result::is_ok));
    assert_eq!(ends.out.out_number(ends.id), Some(16));
    assert_eq!(ends.seal(&[plain()]), [Err(DropReason::OutLease)]);
    assert_eq!(ends.events.len(), 2);
    // A refused packet takes no number.
    ends.out.renew_lease(ends.id, Lease::ALL);
    let mut piece = plain();
    piece.truncate(10);
    assert_eq!(ends.seal(&[piece]), [Err(DropReason::Malformed)]);
    assert_eq!(ends.out.out_number(ends.id), Some(16));
}

#[test]
fn larval_and_directions() {
    let mut sad = Sad::new(6);
    let larval = sad.add(spec(Transform::larval(), Mode::Tunnel, true, true)).unwrap();
    assert_eq!(sad.state(larval), SaState::Acquiring);
    assert_eq!(seal_by(&mut sad, larval, &[plain()], &mut Vec::new()), [Err(DropReason::OutInvalid)]);
    let mut ends = Ends::new(|| spec(gcm(), Mode::Tunnel, true, true));
    let wire = ends.wire(&plain());
    assert_eq!(open_by(&mut sad, std::slice::from_ref(&wire), &mut Vec::new()), [Err(DropReason::Acquiring)]);
    let one_way = |dir| {
        let mut sad = Sad::new(6);
        let id = sad.add(SaSpec { dir: Some(dir), ..spec(gcm(), Mode::Tunnel, true, true) }).unwrap();
        let sealed = seal_by(&mut sad, id, &[plain()], &mut Vec::new()).remove(0).is_ok();
        (sealed, open_by(&mut sad, std::slice::from_ref(&wire), &mut Vec::new()).remove(0).is_ok())
    };
    assert_eq!((one_way(SaDir::Out), one_way(SaDir::In)), ((true, false), (false, true)));
}

#[test]
fn taken_over_from_another_machine() {
    let mut ends = Ends::new(|| spec(gcm(), Mode::Tunnel, true, true));
    let wires: Vec<Vec<u8>> = ends.seal(&vec![plain(); 10]).into_iter().map(Result::unwrap).collect();
    let mut standby = Sad::new(9);
    let id = standby.add(spec(gcm(), Mode::Tunnel, true, true)).unwrap();
    standby.set_replay(id, 10, 8, [8, 6, 5, 2]).unwrap();
    let found = open_by(&mut standby, &wires, &mut Vec::new());
    let taken: Vec<usize> = (1..).zip(&found).filter(|(_, f)| f.is_ok()).map(|(n, _)| n).collect();
    assert_eq!(taken, [1, 3, 4, 7, 9, 10]);
    // Numbers that were sent are never sent again.
    let next = seal_by(&mut standby, id, &[plain()], &mut Vec::new()).remove(0).unwrap();
    assert_eq!(next[24..28], 11u32.to_be_bytes());
    assert_eq!(standby.set_replay(id, 10, 8, []), Err(SaError::Backward));
    assert_eq!(standby.set_replay(id, 11, 1 << 32, []), Err(SaError::Window), "a number of 33 bits");
    standby.remove(id);
    assert_eq!(standby.set_replay(id, 99, 0, []), Err(SaError::Gone));
}

#[test]
fn migrated() {
    let limits = Limits { soft_packets: 4, hard_packets: 6, ..Limits::NONE };
    let mut ends = Ends::new(|| SaSpec { limits, ..spec(gcm(), Mode::Tunnel, true, true) });
    let other = SaSpec { spi: 0x1234, dst: addr("192.0.2.7"), ..spec(gcm(), Mode::Tunnel, true, true) };
    let other = ends.out.add(other).unwrap();
    assert_eq!(ends.out.migrate(ends.id, addr("192.0.2.1"), addr("192.0.2.7")), Err(SaError::Exists));
    assert_eq!(ends.out.migrate(ends.id, addr("192.0.2.1"), addr("::1")), Err(SaError::Family));
    ends.out.remove(other);
    let old = ends.wire(&plain());
    let inn = ends.inn.find_in(0x1234, addr("192.0.2.2"), Proto::Esp, 0).unwrap();
    open_by(&mut ends.inn, std::slice::from_ref(&old), &mut Vec::new()).remove(0).unwrap();
    for (sad, id) in [(&mut ends.out, ends.id), (&mut ends.inn, inn)] {
        let new = sad.migrate(id, addr("2001:db8::1"), addr("2001:db8::7")).unwrap();
        assert!(sad.get(id).is_none());
        assert_eq!((sad.len(), sad.usage(new).unwrap().packets), (1, 1));
        assert_eq!(sad.find_in(0x1234, addr("192.0.2.2"), Proto::Esp, 0), None);
        assert_eq!(sad.find_in(0x1234, addr("2001:db8::7"), Proto::Esp, 0), Some(new));
    }
    ends.id = ends.out.find_in(0x1234, addr("2001:db8::7"), Proto::Esp, 0).unwrap();
    // Numbers, window and limits continue.
    let sealed = ends.seal(&vec![plain(); 6]);
    assert_eq!(sealed.iter().filter(|r| r.is_ok()).count(), 5);
    assert_eq!(ends.events, [Event::SoftExpire(ends.id), Event::HardExpire(ends.id)]);
    let first = sealed[0].clone().unwrap();
    assert_eq!((first[0], &first[44..48]), (0x60, &2u32.to_be_bytes()[..]));
    let mut again = first.clone();
    again[44..48].copy_from_slice(&1u32.to_be_bytes());
    assert_eq!(ends.open(&[again]), [Err(DropReason::Replayed)], "number 1 came over the old addresses");
    assert_eq!(ends.open(&[first]), [Ok(plain())]);
    assert_eq!(ends.out.migrate(inn, addr("::1"), addr("::2")), Err(SaError::Gone));
}

#[test]
fn other_ports() {
    let encap = Some(Encap::udp(4500, 4500));
    let mut ends = Ends::new(|| SaSpec { encap, ..spec(gcm(), Mode::Tunnel, true, true) });
    ends.out.set_ports(ends.id, Encap::udp(4500, 40000));
    let wire = ends.wire(&plain());
    assert_eq!(wire[20..24], [0x11, 0x94, 0x9c, 0x40]);
    let mut bare = Ends::new(|| spec(gcm(), Mode::Tunnel, true, true));
    bare.out.set_ports(bare.id, Encap::udp(1, 2));
    assert_eq!(bare.wire(&plain())[9], 50, "no UDP where there was none");
}
