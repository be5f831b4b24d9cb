//! Inbound packets with ESP, AH and ESP in UDP, with a valid ICV so that the code behind it is reached, too; and any
//! packet sealed and opened again in every mode.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_crypto::Kind;
use sealane_crypto::mac::MacTfm;
use sealane_fuzz::{Input, registry};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::icmp::{MAX_ERROR_LEN, Trouble, V4_MIN_MTU, parse_too_big, quoted, write_error};
use sealane_net_ipsec::open::{Inbound, Opened, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, Mode, Proto, SaFlags, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::selector::{Flow, Selector};
use sealane_net_ipsec::spd::check::{InboundQuery, check};
use sealane_net_ipsec::spd::{Dir, Policy, Spd};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use sealane_wire::ip::Family;
use sealane_wire::proto;
use sealane_wire::walk::{Walk, ds_field};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

const KEY: [u8; 20] = [7; 20];
const ICV_LEN: usize = 12;

struct Fixed {
    null: Transform,
    ah: Transform,
    gcm: Transform,
    mac: MacTfm,
}

static FIXED: LazyLock<Fixed> = LazyLock::new(|| {
    let registry = Arc::new(registry());
    let mac = registry.lookup(Kind::Hash, "hmac(sha1)").expect("a known name").mac(&KEY).expect("a good key");
    let mut transforms = Transforms::new(registry);
    let auth = Keyed { name: "hmac(sha1)", key: &KEY };
    let null = TransformSpec::EncAuth { enc: Keyed { name: "ecb(cipher_null)", key: &[] }, auth, icv_bits: 96 };
    let gcm = TransformSpec::Aead { aead: Keyed { name: "rfc4106(gcm(aes))", key: &KEY }, icv_bits: 128 };
    let mut prepare = |spec: &TransformSpec<'_>| transforms.prepare(spec, false).expect("a good spec");
    Fixed { null: prepare(&null), ah: prepare(&TransformSpec::Auth { auth, icv_bits: 96 }), gcm: prepare(&gcm), mac }
});

const V4: [&str; 2] = ["192.0.2.1", "192.0.2.2"];
const V6: [&str; 2] = ["2001:db8::1", "2001:db8::2"];
const INNER: [[&str; 2]; 2] = [["10.1.0.5", "10.2.0.5"], ["fd01::5", "fd02::5"]];

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

/// The states of every mode and family, selected by the SPI.
fn states() -> (Sad, Vec<SaId>) {
    let mut sad = Sad::new(0);
    let mut ids = Vec::new();
    for outer in [V4, V6] {
        for (n, (mode, proto, inner)) in [
            (Mode::Tunnel, Proto::Esp, 0),
            (Mode::Transport, Proto::Esp, 0),
            (Mode::Beet, Proto::Esp, 0),
            (Mode::Beet, Proto::Esp, 1),
            (Mode::Tunnel, Proto::Ah, 0),
            (Mode::Transport, Proto::Ah, 0),
        ]
        .into_iter()
        .enumerate()
        {
            for (more, transform) in [(0, &FIXED.null), (16, &FIXED.gcm), (32, &FIXED.null)] {
                let transform = if proto == Proto::Ah { &FIXED.ah } else { transform };
                let encap = (more == 32).then_some(Encap::udp(4500, 4500));
                if proto == Proto::Ah && more != 0 {
                    continue;
                }
                let [source, destination] = INNER[inner];
                let host = |text: &str| (addr(text), if text.contains(':') { 128 } else { 32 });
                let spec = SaSpec {
                    mode,
                    proto,
                    encap,
                    selector: if mode == Mode::Beet {
                        Selector::between(host(source), host(destination))
                    } else {
                        Selector::ANY
                    },
                    flags: SaFlags { decap_dscp: n % 2 == 1, ..SaFlags::default() },
                    ..SaSpec::tunnel(0x100 + more + n as u32, addr(outer[0]), addr(outer[1]), transform.clone())
                };
                ids.push(sad.add(spec).expect("SPIs differ"));
            }
        }
    }
    (sad, ids)
}

/// Writes a valid ICV of ESP with null encryption.
fn repair(packet: &mut [u8]) {
    let Ok(walk) = Walk::find(packet) else { return };
    let (at, end) = match walk.upper {
        proto::ESP => (walk.upper_at, walk.end),
        proto::UDP if walk.end - walk.upper_at > 16 => {
            let len = usize::from(u16::from_be_bytes([packet[walk.upper_at + 4], packet[walk.upper_at + 5]]));
            (walk.upper_at + 8, (walk.upper_at + len).min(walk.end))
        }
        _ => return,
    };
    if end < at + 8 + ICV_LEN {
        return;
    }
    let (covered, icv) = packet[..end].split_at_mut(end - ICV_LEN);
    FIXED.mac.sign(&[&covered[at..]], icv).expect("it signs");
}

fn opened(sad: &mut Sad, bytes: &[u8], udp_encap: bool) -> (Result<Opened, DropReason>, Vec<u8>, Vec<SaId>) {
    let mut buf = [&[0; HEADROOM][..], bytes].concat();
    let end = buf.len();
    let mut burst = [Inbound { udp_encap, ..Inbound::new(Packet::new(&mut buf, HEADROOM, end)) }];
    open(sad, &mut burst, 9, &mut Vec::new());
    (burst[0].status, burst[0].packet.bytes().to_vec(), burst[0].path.to_vec())
}

/// Tests ICMP errors: parses them, and builds them for any packet.
fn icmp(bytes: &[u8]) {
    let report = parse_too_big(bytes, 4500);
    assert!(report.is_none_or(|r| r.mtu >= V4_MIN_MTU));
    if let Ok(flow) = Flow::of(bytes, 7, 3)
        && let Some(back) = quoted(bytes, &flow)
    {
        assert_eq!((back.source.is_ipv4(), back.destination.is_ipv4()), (flow.source.is_ipv4(), flow.source.is_ipv4()));
        assert_eq!((back.mark, back.ifindex), (7, 3));
    }
    let mut out = [0; MAX_ERROR_LEN];
    for from in [V4[0], V6[0]] {
        for trouble in [Trouble::TooBig(1400), Trouble::Unreachable] {
            if let Some(len) = write_error(bytes, trouble, addr(from), &mut out) {
                assert_eq!(Walk::find(&out[..len]).map(|walk| walk.end), Ok(len));
                let report = parse_too_big(&out[..len], 4500);
                assert!(report.is_none_or(|r| r.mtu == 1400 && trouble != Trouble::Unreachable));
            }
        }
    }
}

fn inbound(bytes: &[u8], udp_encap: bool) {
    icmp(bytes);
    let (mut sad, _) = states();
    let (status, packet, path) = opened(&mut sad, bytes, udp_encap);
    match status {
        Ok(Opened::Waiting) => panic!("nothing is left waiting"),
        Ok(Opened::Packet) => {
            let walk = Walk::find(&packet).expect("what comes out is a packet");
            assert_eq!(walk.end, packet.len());
            assert!(!path.is_empty());
            let flow = Flow::of(&packet, 0, 0).expect("what comes out is a packet");
            let mut spd = Spd::new(0);
            let any = if walk.family == Family::V4 { INNER[0] } else { INNER[1] };
            let all = Selector::between((addr(any[0]), 0), (addr(any[1]), 0));
            spd.add(Policy::allow(Dir::In, all), false).expect("the first one");
            let arrived = InboundQuery { dir: Dir::In, flow: &flow, if_id: 0, path: &path, verified: 0 };
            let tunnel = path.iter().any(|id| sad.get(*id).is_some_and(|sa| sa.mode != Mode::Transport));
            assert!(check(&spd, &sad, &arrived).is_err() || !tunnel, "a tunnel that no template asks for");
        }
        Ok(Opened::Aggregate) => panic!("there is no IP-TFS"),
        Ok(Opened::Clear | Opened::Ike | Opened::Keepalive) => {
            assert_eq!(packet, bytes[..packet.len()]);
            assert!(path.is_empty());
        }
        Err(reason) => assert!(!reason.help().is_empty()),
    }
}

/// Tests that a sealed packet opens to the original.
fn round_trip(plain: &[u8]) {
    let (mut sad, ids) = states();
    let mut other = states().0;
    for id in ids {
        let mut buf = [&[0; HEADROOM][..], plain, &[0; TAILROOM]].concat();
        let mut burst = [Outbound::new(id, Packet::new(&mut buf, HEADROOM, HEADROOM + plain.len()))];
        seal(&mut sad, &mut burst, 9, &mut Vec::new());
        if burst[0].status.is_err() {
            continue;
        }
        let wire = burst[0].packet.bytes().to_vec();
        let sa = sad.get(id).expect("it is there");
        let (mode, decap_dscp) = (sa.mode, sa.flags.decap_dscp);
        let walk = Walk::find(&wire).expect("what is sealed is a packet");
        assert_eq!((walk.end, walk.fragment), (wire.len(), None));
        if mode == Mode::Tunnel {
            let (status, found, _) = opened(&mut other, &wire, true);
            match Walk::find(plain) {
                Ok(inner) => {
                    assert_eq!(status, Ok(Opened::Packet));
                    let mut want = plain[..inner.end].to_vec();
                    if decap_dscp {
                        sealane_wire::walk::set_ds_field(&mut want, inner.family, ds_field(plain, inner.family));
                    }
                    assert_eq!(found, want);
                }
                Err(_) => assert!(matches!(status, Err(DropReason::Malformed | DropReason::InMode)), "{status:?}"),
            }
        }
        // States of other modes have fixed addresses, or remove several layers; they must not panic.
        let _ = opened(&mut other, &wire, false);
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let bytes = input.0;
    if bytes.len() > 4000 {
        return;
    }
    match how % 4 {
        0 => inbound(bytes, how & 4 != 0),
        1 | 2 => {
            let mut bytes = bytes.to_vec();
            repair(&mut bytes);
            inbound(&bytes, how & 4 != 0);
        }
        _ => round_trip(bytes),
    }
});
