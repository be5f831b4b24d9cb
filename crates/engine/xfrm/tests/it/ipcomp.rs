//! IPComp: states, and bundles of it and ESP from one engine to another.

use super::packets::Local;
use super::*;
use sealane_engine_xfrm::data::Run;
use sealane_net_ipsec::drop::Counter;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::seal::Outbound;
use std::net::IpAddr;

const CPI: u32 = 0x1234;
const ESP_SPI: u32 = 0x100;

/// The addresses of a bundle, and whether IPComp is in tunnel mode.
#[derive(Clone, Copy)]
struct Ends {
    outer: [&'static str; 2],
    inner: [&'static str; 2],
    tunnel: bool,
}

const V4: Ends = Ends { outer: ["192.0.2.1", "192.0.2.2"], inner: ["203.0.113.5", "198.51.100.9"], tunnel: true };
const V6: Ends = Ends { outer: ["2001:db8::1", "2001:db8::2"], inner: ["fd01::5", "fd02::9"], tunnel: true };
const ALL: [Ends; 4] =
    [V4, V6, Ends { inner: V4.outer, tunnel: false, ..V4 }, Ends { inner: V6.outer, tunnel: false, ..V6 }];

fn family(of: &str) -> u16 {
    if of.contains(':') { AF_INET6 } else { AF_INET }
}

impl Ends {
    fn info(&self, proto: u8, spi: u32, mode: u8) -> UsersaInfo {
        let [src, dst] = self.outer;
        let id = Id { daddr: address(dst), spi: spi.into(), proto, pad: [0; 3] };
        UsersaInfo { id, saddr: address(src), family: family(src), mode, ..state(spi) }
    }

    fn comp_mode(&self) -> u8 {
        if self.tunnel { XFRM_MODE_TUNNEL } else { XFRM_MODE_TRANSPORT }
    }

    fn comp(&self) -> UsersaInfo {
        self.info(IPPROTO_COMP, CPI, self.comp_mode())
    }

    fn esp(&self) -> UsersaInfo {
        self.info(IPPROTO_ESP, ESP_SPI, XFRM_MODE_TRANSPORT)
    }

    /// An engine with both states, and a policy for a bundle of them.
    fn engine(&self, dir: u8) -> Xfrm {
        let mut xfrm = xfrm();
        let (comp, esp) = (self.comp(), self.esp());
        ok(&mut xfrm, &comp_state(comp), at(0));
        ok(&mut xfrm, &new_state(esp), at(0));
        let [saddr, daddr] = self.inner.map(address);
        let len = if family(self.inner[0]) == AF_INET6 { 128 } else { 32 };
        let family = family(self.inner[0]);
        let sel = Selector { saddr, daddr, family, prefixlen_s: len, prefixlen_d: len, ..Selector::default() };
        let tmpl = |info: &UsersaInfo, optional| UserTmpl {
            id: Id { spi: 0.into(), ..info.id },
            saddr: info.saddr,
            family: info.family,
            reqid: info.reqid,
            mode: info.mode,
            optional,
            aalgos: u32::MAX,
            ealgos: u32::MAX,
            calgos: u32::MAX,
            ..UserTmpl::default()
        };
        let tmpls = vec![tmpl(&comp, u8::from(dir == XFRM_POLICY_IN)), tmpl(&esp, 0)];
        let order = XfrmMessage::new(Body::NewPolicy(UserpolicyInfo { sel, ..policy(dir) }));
        ok(&mut xfrm, &order.with(Attribute::Tmpl(tmpls)), at(0));
        xfrm
    }

    /// A UDP datagram between the inner addresses.
    fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let udp_len = 8 + payload.len() as u16;
        let [src, dst] = self.inner.map(|ip| ip.parse::<IpAddr>().unwrap());
        let mut packet = match (src, dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut header = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0];
                header[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
                header.extend(src.octets());
                header.extend(dst.octets());
                let sum: u32 = header.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
                let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
                header[10..12].copy_from_slice(&sum.to_be_bytes());
                header
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut header = vec![0x60, 0, 0, 0, 0, 0, 17, 64];
                header[4..6].copy_from_slice(&udp_len.to_be_bytes());
                header.extend(src.octets());
                header.extend(dst.octets());
                header
            }
            _ => unreachable!("both are of one family"),
        };
        packet.extend([0x30, 0x39, 0, 7]);
        packet.extend(udp_len.to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        packet
    }
}

fn deflate() -> Algo {
    Algo { alg_name: name_field("deflate"), alg_key_len: 0, alg_key: Key::new(&[]) }
}

fn comp_state(info: UsersaInfo) -> XfrmMessage {
    XfrmMessage::new(Body::NewSa(info)).with(Attribute::AlgComp(deflate()))
}

fn seal(xfrm: &mut Xfrm, packet: &[u8]) -> Result<Vec<u8>, DropReason> {
    let mut buffer = vec![0; HEADROOM + packet.len() + TAILROOM];
    buffer[HEADROOM..HEADROOM + packet.len()].copy_from_slice(packet);
    let mut burst = [Outbound::new(SaId::NONE, Packet::new(&mut buffer, HEADROOM, HEADROOM + packet.len()))];
    xfrm.outbound(&[Run::new(1)], &mut burst, &mut Local, 0, at(1));
    burst[0].status.map(|()| burst[0].packet.bytes().to_vec())
}

/// Opens a packet in a buffer that it fills; what comes out, and whether that is elsewhere.
fn open(xfrm: &mut Xfrm, packet: &[u8]) -> Result<(Vec<u8>, bool), DropReason> {
    let mut buffer = packet.to_vec();
    let end = buffer.len();
    let mut burst = [Inbound::new(Packet::new(&mut buffer, 0, end))];
    xfrm.inbound(&mut burst, &mut Local, at(1));
    let [Inbound { packet, status, .. }] = burst;
    assert_eq!(status.map(|opened| opened == Opened::Packet), status.map(|_| true));
    status.map(|_| (packet.bytes().to_vec(), packet.is_owned()))
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    core::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    })
    .take(len)
    .collect()
}

/// Packets and bytes of a state.
fn used(xfrm: &mut Xfrm, info: &UsersaInfo) -> (u64, u64) {
    let id = UsersaId { daddr: info.id.daddr, spi: info.id.spi, family: info.family, proto: info.id.proto, pad: 0 };
    let message = XfrmMessage::new(Body::GetSa(id)).with(Attribute::Srcaddr(info.saddr));
    let replies = ok(xfrm, &message, at(2));
    let told = XfrmMessage::decode(&Messages::new(&replies.unicast[0]).next().unwrap()).unwrap();
    let Body::NewSa(info) = told.body else { panic!("no state") };
    (info.curlft.packets, info.curlft.bytes)
}

#[test]
fn bundles_shrink_what_can_shrink() {
    for ends in ALL {
        let (mut left, mut right) = (ends.engine(XFRM_POLICY_OUT), ends.engine(XFRM_POLICY_IN));
        let mut sent = (0, 0);
        for (payload, shrinks) in [
            (vec![b'x'; 1300], true),
            (vec![0; 60_000], true),
            (noise(1300), false),
            (b"short".to_vec(), false),
            ([noise(700), noise(700)].concat()[..1300].to_vec(), true),
        ] {
            let plain = ends.packet(&payload);
            let mut esp_only = xfrm();
            let sealed = match seal(&mut left, &plain) {
                // It is longer than the path carries before it is compressed, and its sender is told so as by Linux.
                Err(DropReason::TooBig) if plain.len() > 1500 => continue,
                sealed => sealed.unwrap(),
            };
            let overhead = 8
                + 8
                + 16
                + 2
                + 3
                + if !ends.tunnel {
                    0
                } else if ends.outer == V4.outer {
                    20
                } else {
                    40
                };
            assert_eq!(sealed.len() + 4 < plain.len() + overhead - 40, shrinks, "{} of {}", sealed.len(), plain.len());
            assert_eq!(open(&mut esp_only, &sealed), Err(DropReason::NoState));
            let (opened, elsewhere) = open(&mut right, &sealed).unwrap();
            assert_eq!(opened, plain, "{:?}, {} bytes", ends.outer, payload.len());
            assert_eq!(elsewhere, shrinks, "it has no room where it came in");
            let header = if ends.tunnel {
                0
            } else if family(ends.outer[0]) == AF_INET6 {
                40
            } else {
                20
            };
            sent = (sent.0 + 1, sent.1 + (plain.len() - header) as u64);
        }
        assert_eq!(used(&mut left, &ends.comp()), sent);
        assert!(sent.0 >= 4);
    }
}

/// A peer that compresses nothing is heard by a state of IP in IP, which comes and goes with those of IPComp.
#[test]
fn ip_in_ip_of_an_optional_template() {
    for ends in [V4, V6] {
        let (mut left, mut right) = (ends.engine(XFRM_POLICY_OUT), ends.engine(XFRM_POLICY_IN));
        let plain = ends.packet(&noise(500));
        assert_eq!(open(&mut right, &seal(&mut left, &plain).unwrap()), Ok((plain.clone(), false)));
        let number = if ends.outer == V4.outer { (4, 0xc000_0201) } else { (41, 1) };
        let tunnel = ends.info(number.0, number.1, XFRM_MODE_TUNNEL);
        assert_eq!(used(&mut right, &tunnel), (1, plain.len() as u64));
        assert_eq!(used(&mut right, &ends.comp()), (0, 0));
        assert_eq!(count(&mut right), 3);
        let id = |info: &UsersaInfo| {
            let id = &info.id;
            let id = UsersaId { daddr: id.daddr, spi: id.spi, family: info.family, proto: id.proto, pad: 0 };
            XfrmMessage::new(Body::DelSa(id)).with(Attribute::Srcaddr(info.saddr))
        };
        let refused = answer(&call(&mut right, &id(&tunnel), at(2)));
        assert_eq!(refused, (Errno::EPERM.number(), "SA is in use by tunnels".to_owned()));
        // Another state shares it.
        ok(&mut right, &comp_state(ends.info(IPPROTO_COMP, 0x1235, XFRM_MODE_TUNNEL)), at(2));
        assert_eq!(count(&mut right), 4);
        ok(&mut right, &id(&ends.comp()), at(2));
        assert_eq!(open(&mut right, &seal(&mut left, &plain).unwrap()), Ok((plain.clone(), false)));
        ok(&mut right, &id(&ends.info(IPPROTO_COMP, 0x1235, XFRM_MODE_TUNNEL)), at(2));
        assert_eq!((count(&mut right), right.sad().len()), (1, 1), "ESP's");
        // Without it, IP in IP is the packet that came, and no policy lets it in.
        assert!(open(&mut right, &seal(&mut left, &plain).unwrap()).is_ok_and(|(opened, _)| opened != plain));
        let mut gone = ends.engine(XFRM_POLICY_IN);
        ok(&mut gone, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: 0 })), at(2));
        assert_eq!((count(&mut gone), gone.sad().len()), (0, 0));
    }
}

/// Broken streams and those that inflate to more than a packet holds are dropped and counted as in Linux.
#[test]
fn what_cannot_be_inflated_is_dropped() {
    let ends = ALL[2];
    let (mut left, mut right) = (ends.engine(XFRM_POLICY_OUT), ends.engine(XFRM_POLICY_IN));
    // ESP alone, around what a hostile peer made.
    let mut evil = xfrm();
    ok(&mut evil, &new_state(ends.esp()), at(0));
    let order = XfrmMessage::new(Body::NewPolicy(UserpolicyInfo {
        sel: Selector { family: AF_INET, ..Selector::default() },
        ..policy(XFRM_POLICY_OUT)
    }));
    let tmpl = UserTmpl {
        id: Id { proto: IPPROTO_ESP, daddr: Address::default(), spi: 0.into(), pad: [0; 3] },
        family: AF_INET,
        reqid: 7,
        mode: XFRM_MODE_TRANSPORT,
        ..UserTmpl::default()
    };
    ok(&mut evil, &order.with(Attribute::Tmpl(vec![tmpl])), at(0));
    let mut inside = |proto: u8, payload: &[u8]| {
        let mut packet = ends.packet(payload);
        packet.drain(20..28);
        packet[9] = proto;
        packet[2..4].copy_from_slice(&(20 + payload.len() as u16).to_be_bytes());
        let sealed = seal(&mut evil, &packet).unwrap();
        open(&mut right, &sealed)
    };
    let cpi = (CPI as u16).to_be_bytes();
    let comp = |rest: &[u8]| [&[17, 0, cpi[0], cpi[1]], rest].concat();
    // A kilobyte of zeros, again and again: a stored block, then one with a fixed code that repeats it.
    for broken in [&[][..], &[7], &[0xff; 40], &[1, 3, 0, 0xfc, 0xff, 1, 2, 3]] {
        assert_eq!(inside(108, &comp(broken)), Err(DropReason::Inflate), "{broken:02x?}");
    }
    assert_eq!(inside(108, &[17, 0, 0x12]), Err(DropReason::Header));
    assert_eq!(inside(108, &[17, 0, 0x12, 0x35, 1]), Err(DropReason::NoState));
    assert_eq!(right.stat().value(Counter::InStateProtoError), 4);
    assert_eq!((right.stat().value(Counter::InHdrError), right.stat().value(Counter::InNoStates)), (1, 1));
    let _ = seal(&mut left, &ends.packet(&[0; 1000])).unwrap();
}

#[test]
fn requests_are_answered_as_by_linux() {
    let mut xfrm = xfrm();
    let beet = V4.info(IPPROTO_COMP, CPI, XFRM_MODE_BEET);
    let mode = (Errno::EINVAL.number(), "Unsupported XFRM mode for IPcomp".to_owned());
    assert_eq!(answer(&call(&mut xfrm, &comp_state(beet), at(0))), mode);
    let unknown = Algo { alg_name: name_field("lzs"), ..deflate() };
    let order = XfrmMessage::new(Body::NewSa(V4.comp())).with(Attribute::AlgComp(unknown));
    let none = (Errno::ENOSYS.number(), "Requested COMP algorithm not found".to_owned());
    assert_eq!(answer(&call(&mut xfrm, &order, at(0))), none);
    let reserve = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info: V4.comp(), min: CPI, max: CPI }));
    ok(&mut xfrm, &reserve, at(0));
    let keys = XfrmMessage::new(Body::UpdSa(V4.comp())).with(Attribute::AlgComp(deflate()));
    ok(&mut xfrm, &keys, at(0));
    assert_eq!(count(&mut xfrm), 2);
}
