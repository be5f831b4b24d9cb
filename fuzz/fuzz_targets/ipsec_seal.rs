//! Any outbound packet: flow, policy, association, seal, with any mode, flags, padding, MTU and transform. The result
//! fits the path, opens to the original exactly once, and does not open with a flipped bit.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealane_fuzz::{Input, registry};
use sealane_net_ipsec::drop::DropReason;
use sealane_net_ipsec::icmp::{MAX_ERROR_LEN, Trouble, parse_too_big, write_error};
use sealane_net_ipsec::open::{Inbound, Opened, open};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::{Encap, Mode, Proto, SaFlags, SaId, SaSpec};
use sealane_net_ipsec::sad::Sad;
use sealane_net_ipsec::seal::{Outbound, seal};
use sealane_net_ipsec::selector::{Flow, Selector};
use sealane_net_ipsec::spd::cache::FlowCache;
use sealane_net_ipsec::spd::resolve::{Decision, OutboundQuery};
use sealane_net_ipsec::spd::{Dir, Policy, Spd, Template};
use sealane_net_ipsec::transform::{Keyed, Transform, TransformSpec, Transforms};
use sealane_wire::ip::Family;
use sealane_wire::proto;
use sealane_wire::walk::{Walk, addresses, ds_field, set_ds_field, set_total_len, set_v4_checksum, unfragmentable};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};

const KEY: [u8; 64] = [7; 64];
const SPI: u32 = 0x1234;
/// The longest requested padding.
const MAX_TFC: u32 = 2047;

/// Transforms: GCM, CBC with SHA-1, null with SHA-1, ChaCha20-Poly1305, all without and with extended numbers; then AH.
static TRANSFORMS: LazyLock<Vec<Transform>> = LazyLock::new(|| {
    let mut transforms = Transforms::new(Arc::new(registry()));
    let keyed = |name, len: usize| Keyed { name, key: &KEY[..len] };
    let auth = keyed("hmac(sha1)", 20);
    let specs = [
        TransformSpec::Aead { aead: keyed("rfc4106(gcm(aes))", 20), icv_bits: 128 },
        TransformSpec::EncAuth { enc: keyed("cbc(aes)", 16), auth, icv_bits: 96 },
        TransformSpec::EncAuth { enc: keyed("ecb(cipher_null)", 0), auth, icv_bits: 96 },
        TransformSpec::Aead { aead: keyed("rfc7539esp(chacha20,poly1305)", 36), icv_bits: 128 },
        TransformSpec::Auth { auth, icv_bits: 96 },
    ];
    specs.iter().flat_map(|spec| [false, true].map(|esn| transforms.prepare(spec, esn).expect("a good spec"))).collect()
});

fn addr(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn pair(family: Family, net: u8) -> [IpAddr; 2] {
    match family {
        Family::V4 => [1, 2].map(|n| addr(&format!("192.0.{net}.{n}"))),
        Family::V6 => [1, 2].map(|n| addr(&format!("2001:db8:{net}::{n}"))),
    }
}

/// The choices made from an input.
struct Case {
    mode: Mode,
    proto: Proto,
    inner: Family,
    outer: Family,
    encap: bool,
    tfc_pad: u32,
    flags: SaFlags,
    transform: usize,
    out_number: u64,
    mtu: u32,
    flip: usize,
}

impl Case {
    fn of(input: &mut Input<'_>, first: u8) -> Self {
        let (shape, flags, mtu, tfc) = (input.byte(), input.byte(), input.word(), input.word());
        let bit = |n: u8| flags >> n & 1 != 0;
        let mode = [Mode::Tunnel, Mode::Transport, Mode::Beet, Mode::Tunnel][usize::from(shape & 3)];
        let proto = if shape & 0x1c == 0x1c && mode != Mode::Beet { Proto::Ah } else { Proto::Esp };
        let inner = if first >> 4 == 6 { Family::V6 } else { Family::V4 };
        let outer = match mode {
            Mode::Transport => inner,
            _ if shape & 0x20 != 0 => Family::V6,
            _ => Family::V4,
        };
        let esn = bit(0);
        let kind = if proto == Proto::Ah { 4 } else { usize::from(shape >> 2) & 3 };
        Case {
            mode,
            proto,
            inner,
            outer,
            encap: shape & 0x40 != 0 && proto == Proto::Esp,
            tfc_pad: if shape & 0x80 != 0 && mode == Mode::Tunnel { u32::from(tfc) & MAX_TFC } else { 0 },
            flags: SaFlags {
                esn,
                noecn: bit(1),
                decap_dscp: bit(2),
                nopmtudisc: bit(3),
                align4: bit(4),
                dont_encap_dscp: bit(5),
                ..SaFlags::default()
            },
            transform: kind * 2 + usize::from(esn),
            // The number after the next one has another high half.
            out_number: if esn && bit(6) { 0xffff_fffe } else { 0 },
            mtu: if bit(7) { u32::from(mtu) } else { 0 },
            flip: usize::from(tfc) ^ usize::from(mtu),
        }
    }

    fn ends(&self) -> [IpAddr; 2] {
        match self.mode {
            Mode::Transport => pair(self.inner, 2),
            Mode::Tunnel | Mode::Beet | Mode::Iptfs => pair(self.inner, 7),
        }
    }

    fn spec(&self) -> SaSpec {
        let [src, dst] = pair(self.outer, 2);
        let full = if self.inner == Family::V4 { 32 } else { 128 };
        let [from, to] = self.ends();
        SaSpec {
            mode: self.mode,
            proto: self.proto,
            reqid: 5,
            encap: self.encap.then_some(Encap::udp(4500, 4501)),
            selector: if self.mode == Mode::Beet { Selector::between((from, full), (to, full)) } else { Selector::ANY },
            flags: self.flags,
            tfc_pad: self.tfc_pad,
            window_pkts: 64,
            out_number: self.out_number,
            in_number: self.out_number,
            ..SaSpec::tunnel(SPI, src, dst, TRANSFORMS[self.transform].clone())
        }
    }

    /// Returns the association of the policy, which the flow cache has to know, too.
    fn resolve(&self, sad: &mut Sad, packet: &[u8], id: SaId) -> Result<(), DropReason> {
        let flow = Flow::of(packet, 0, 0).map_err(|_| DropReason::Malformed)?;
        let [src, dst] = pair(self.outer, 2);
        let mut spd = Spd::new(1);
        let mut policy = Policy::allow(Dir::Out, Selector::between((flow.source, 3), (flow.destination, 5)));
        let Case { mode, proto, .. } = *self;
        policy.templates.push(Template { src, dst, proto, mode, reqid: 5, spi: 0, optional: false });
        let policy = spd.add(policy, false).expect("the first one");
        let mut cache = FlowCache::new(4, 2);
        let leaving = OutboundQuery { flow: &flow, if_id: 0, cpu: 0, local: src, now_s: 1 };
        for _ in 0..2 {
            cache.warm(&flow, 0);
            let way = cache.resolve(&spd, sad, &leaving, &mut Vec::new()).cloned();
            assert_eq!(spd.lookup(Dir::Out, &flow, 0), Some(policy));
            match way {
                Ok(Decision::Protect(by, bundle)) => assert_eq!((by, &bundle[..]), (policy, &[id][..])),
                // Between hosts the state is looked for by the packet's own addresses.
                Err(DropReason::OutNoState) if mode != Mode::Tunnel => return Ok(()),
                other => panic!("{other:?}"),
            }
        }
        Ok(())
    }
}

/// Sets lengths and checksum, and the addresses of the association.
fn patch(packet: &mut [u8], [from, to]: [IpAddr; 2]) {
    match (from, to, packet.first().map(|b| b >> 4)) {
        (IpAddr::V4(from), IpAddr::V4(to), Some(4)) if packet.len() >= 20 => {
            if usize::from(packet[0] & 15) * 4 > packet.len() || packet[0] & 15 < 5 {
                packet[0] = 0x45;
            }
            packet[12..16].copy_from_slice(&from.octets());
            packet[16..20].copy_from_slice(&to.octets());
            let _ = set_total_len(packet, Family::V4);
        }
        (IpAddr::V6(from), IpAddr::V6(to), Some(6)) if packet.len() >= 40 => {
            packet[8..24].copy_from_slice(&from.octets());
            packet[24..40].copy_from_slice(&to.octets());
            let _ = set_total_len(packet, Family::V6);
        }
        _ => {}
    }
}

fn opened(sad: &mut Sad, wire: &[u8], udp_encap: bool) -> (Result<Opened, DropReason>, Vec<u8>) {
    let mut buf = [&[0; HEADROOM][..], wire].concat();
    let end = buf.len();
    let mut burst = [Inbound { udp_encap, ..Inbound::new(Packet::new(&mut buf, HEADROOM, end)) }];
    open(sad, &mut burst, 9, &mut Vec::new());
    (burst[0].status, burst[0].packet.bytes().to_vec())
}

/// Returns the expected result at the receiver for `plain`; `None` where several are right.
fn expected(case: &Case, plain: &[u8], wire: &[u8]) -> Option<Vec<u8>> {
    let walk = Walk::find(plain).ok()?;
    // ESP in UDP that is shorter than its IP header is dropped, as by Linux.
    let outer = Walk::find(wire).ok()?;
    if case.encap && outer.end - outer.upper_at - 8 < outer.upper_at {
        return None;
    }
    let mut want = plain[..walk.end].to_vec();
    match case.mode {
        Mode::Tunnel if case.flags.decap_dscp => {
            let (inner, outer) = (ds_field(plain, walk.family), ds_field(wire, case.outer));
            set_ds_field(&mut want, walk.family, outer & !3 | inner & 3);
        }
        Mode::Tunnel => {}
        // The payload may be parsed as another layer, or as a dummy packet.
        Mode::Transport if matches!(walk.upper, proto::ESP | proto::AH | proto::UDP | proto::NONE) => return None,
        // It is for another host.
        Mode::Transport if <[IpAddr; 2]>::from(addresses(plain, walk.family)) != case.ends() => return None,
        // ESP without payload is refused, as by Linux.
        Mode::Transport if unfragmentable(plain, &walk).is_ok_and(|(at, _)| at == walk.end) => return None,
        Mode::Transport => {}
        // The inner header is rebuilt from the outer one.
        Mode::Beet | Mode::Iptfs => return None,
    }
    Some(want)
}

/// Whether there may be an IPv4 source route option, loose or strict.
fn is_source_routed(packet: &[u8]) -> bool {
    let options = packet.get(20..usize::from(packet[0] & 15) * 4).unwrap_or_default();
    packet[0] >> 4 == 4 && options.iter().any(|b| matches!(b, 0x83 | 0x89))
}

fn run(case: &Case, plain: &[u8]) {
    let (mut sad, mut other) = (Sad::new(1), Sad::new(2));
    let (Ok(id), Ok(_)) = (sad.add(case.spec()), other.add(case.spec())) else { return };
    let resolved = case.resolve(&mut sad, plain, id);
    let room = TAILROOM + MAX_TFC as usize;
    let mut bufs = [(); 2].map(|()| [&[0; HEADROOM][..], plain, &vec![0; room]].concat());
    let mut burst = bufs
        .each_mut()
        .map(|buf| Outbound { mtu: case.mtu, ..Outbound::new(id, Packet::new(buf, HEADROOM, HEADROOM + plain.len())) });
    seal(&mut sad, &mut burst, 9, &mut Vec::new());
    assert_eq!(burst[0].status, burst[1].status, "the same packet twice");
    match burst[0].status {
        Ok(()) => {}
        Err(DropReason::TooBig) => {
            let mtu = burst[0].inner_mtu;
            assert!((mtu as usize) < plain.len());
            let mut out = [0; MAX_ERROR_LEN];
            let [from, _] = pair(case.inner, 9);
            if let Some(len) = write_error(plain, Trouble::TooBig(mtu), from, &mut out) {
                assert_eq!(Walk::find(&out[..len]).map(|walk| walk.end), Ok(len));
                let _ = parse_too_big(&out[..len], 4500);
            }
            return;
        }
        Err(reason) => {
            assert!(!reason.help().is_empty());
            assert!(resolved.is_err() || case.mode != Mode::Tunnel || reason == DropReason::TooLong, "{reason:?}");
            return;
        }
    }
    let wires = burst.each_ref().map(|out| out.packet.bytes().to_vec());
    let walk = Walk::find(&wires[0]).expect("what is sealed is a packet");
    assert_eq!((walk.end, walk.family, walk.fragment.is_none()), (wires[0].len(), case.outer, true));
    let forbids = match case.inner {
        Family::V4 => plain[6] & 0x40 != 0,
        Family::V6 => plain.len() > 1280,
    };
    // The overhead of BEET mode between families is computed as in the kernel, which can be some bytes too many.
    if case.mtu != 0 && forbids && case.mode != Mode::Beet {
        assert!(wires[0].len() <= case.mtu as usize, "{} bytes through {}", wires[0].len(), case.mtu);
    }

    // A forgery first, which must not move the window.
    let at = walk.upper_at + if case.encap { 8 } else { 0 };
    let mut forged = wires[0].clone();
    let bit = case.flip % ((forged.len() - at) * 8);
    forged[at + bit / 8] ^= 1 << (bit % 8);
    let (status, _) = opened(&mut other, &forged, case.encap);
    // A datagram with SPI 0 is not ESP.
    assert!(matches!(status, Err(_) | Ok(Opened::Ike)), "a bit was another: {status:?}");

    // AH covers the final destination of a source route, at which the packet is opened, and not here.
    if case.proto == Proto::Ah && case.mode == Mode::Transport && is_source_routed(plain) {
        return;
    }
    for wire in &wires {
        let (status, found) = opened(&mut other, wire, case.encap);
        match expected(case, plain, wire) {
            Some(want) => {
                assert!(matches!(status, Ok(Opened::Packet)), "{status:?}");
                assert_eq!(found, want);
            }
            None => assert_ne!(status, Err(DropReason::Icv)),
        }
        let (status, _) = opened(&mut other, wire, case.encap);
        assert!(status.is_err(), "a second time");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let how = input.byte();
    let first = data.get(7).copied().unwrap_or(0);
    let case = Case::of(&mut input, first);
    let mut plain = input.0.to_vec();
    if plain.is_empty() || plain.len() > 4000 {
        return;
    }
    if how & 1 == 0 {
        patch(&mut plain, case.ends());
    } else if first >> 4 == 4 && plain.len() >= usize::from(first & 15) * 4 && first & 15 >= 5 {
        set_v4_checksum(&mut plain);
    }
    run(&case, &plain);
});
