//! IP-TFS: states, their attributes, and packets from one engine to another.

use super::packets::Local;
use super::*;
use arrayvec::ArrayVec;
use sealane_engine_xfrm::RateRule;
use sealane_engine_xfrm::data::{BURST, Run};
use sealane_net_ipsec::burst::Jobs;
use sealane_net_ipsec::drop::Counter;
use sealane_net_ipsec::iptfs::Rate;
use sealane_net_ipsec::open::{Inbound, Opened};
use sealane_net_ipsec::packet::{HEADROOM, Packet, TAILROOM};
use sealane_net_ipsec::sa::SaId;
use sealane_net_ipsec::sad::pairs::PairView;
use sealane_net_ipsec::seal::Outbound;
use std::collections::BTreeMap;

const SPI: u32 = 0x100;
/// The bytes of packets in one outer packet of 1,500 bytes over IPv4: without headers, trailer, and ICV.
const MOST: usize = (1500 - 20 - 8 - 8 - 4 - 16) / 4 * 4 - 2;

fn info() -> UsersaInfo {
    UsersaInfo { mode: XFRM_MODE_IPTFS, ..state(SPI) }
}

fn iptfs_state(dir: u8, attrs: &[Attribute]) -> XfrmMessage {
    attrs.iter().fold(new_state(info()).with(Attribute::SaDir(dir)), |order, attr| order.with(attr.clone()))
}

/// An engine with a state and a policy of one direction.
fn engine(dir: u8, attrs: &[Attribute]) -> Xfrm {
    let mut xfrm = xfrm();
    let of = if dir == XFRM_POLICY_OUT { XFRM_SA_DIR_OUT } else { XFRM_SA_DIR_IN };
    ok(&mut xfrm, &iptfs_state(of, attrs), at(0));
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(dir))).with(iptfs_tmpl()), at(0));
    xfrm
}

fn iptfs_tmpl() -> Attribute {
    let Attribute::Tmpl(tmpls) = tmpl() else { unreachable!("templates") };
    Attribute::Tmpl(tmpls.into_iter().map(|tmpl| UserTmpl { mode: XFRM_MODE_IPTFS, ..tmpl }).collect())
}

/// A packet of the policy's with so many bytes, of which each is `fill`.
fn packet(len: usize, fill: u8) -> Vec<u8> {
    let mut packet = vec![fill; len];
    packet[..20].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 203, 0, 113, 5, 198, 51, 100, 9]);
    packet[2..4].copy_from_slice(&(len as u16).to_be_bytes());
    packet[20..24].copy_from_slice(&[0x30, 0x39, 0, 7]);
    packet
}

/// Hands packets of one frame over to the engine: whether they were taken, or why not, and the MTU that is told.
fn push(xfrm: &mut Xfrm, packets: &[Vec<u8>], now: Now) -> Vec<(Result<(), DropReason>, u32)> {
    let mut buffers: Vec<Vec<u8>> =
        packets.iter().map(|packet| [&[0; HEADROOM][..], packet, &[0; TAILROOM]].concat()).collect();
    let each = buffers.iter_mut().map(|buffer| {
        let end = buffer.len() - TAILROOM;
        Outbound::new(SaId::NONE, Packet::new(buffer, HEADROOM, end))
    });
    let mut burst: Vec<Outbound<'_>> = each.collect();
    xfrm.outbound(&[Run::new(packets.len())], &mut burst, &mut Local, 0, now);
    let result = |out: &Outbound<'_>| match out.status {
        Err(_) if out.gathered => (Ok(()), 0),
        Err(reason) => (Err(reason), out.inner_mtu),
        Ok(()) => panic!("it would leave as it is"),
    };
    burst.iter().map(result).collect()
}

/// The packets that leave at this time.
fn sealed(xfrm: &mut Xfrm, now: Now) -> Vec<Vec<u8>> {
    leaving(xfrm, now, false)
}

/// The packets that leave at this time, with more to follow at once or without.
fn leaving(xfrm: &mut Xfrm, now: Now, more: bool) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    loop {
        let mut buffer = vec![0; 20_000];
        let mut packets: ArrayVec<Outbound<'_>, BURST> = ArrayVec::new();
        let mut jobs = Jobs::new();
        let mut tables = xfrm.tables(0, now);
        tables.gathered_begin(&mut buffer, &mut packets, &mut Local, &mut jobs, more);
        tables.outbound_finish(&mut packets, &jobs);
        if packets.is_empty() {
            return all;
        }
        all.extend(packets.iter().map(|out| {
            assert_eq!(out.status, Ok(()));
            out.packet.bytes().to_vec()
        }));
    }
}

fn receive(xfrm: &mut Xfrm, packets: &[Vec<u8>], now: Now) -> Vec<Vec<u8>> {
    for packet in packets {
        let mut buffer = packet.clone();
        let end = buffer.len();
        let mut burst = [Inbound::new(Packet::new(&mut buffer, 0, end))];
        xfrm.inbound(&mut burst, &mut Local, now);
        assert_eq!(burst[0].status, Ok(Opened::Aggregate));
    }
    xfrm.take_emerged().iter().map(|inner| inner.packet.bytes().to_vec()).collect()
}

fn just(now_us: u64) -> Now {
    Now { monotonic_ns: now_us * 1000, ..at(0) }
}

#[test]
fn packets_leave_together_and_in_pieces() {
    let (mut left, mut right) = (engine(XFRM_POLICY_OUT, &[]), engine(XFRM_POLICY_IN, &[]));
    let sizes = [100, 200, 300, MOST, MOST + 1, 5000, 28, 60, MOST - 6];
    let all: Vec<Vec<u8>> = sizes.iter().zip(1..).map(|(len, fill)| packet(*len, fill)).collect();
    assert_eq!(push(&mut left, &all, just(5)), vec![(Ok(()), 0); all.len()]);
    assert_eq!(left.tables(0, just(5)).poll_gathered(), Some(5000));
    let outer = sealed(&mut left, just(5));
    assert_eq!(left.tables(0, just(5)).poll_gathered(), None);
    // Linux would make 9 of them: 600 bytes, one whole, two pieces, four pieces with 28 and 60 bytes behind them, one.
    assert_eq!(outer.len(), all.concat().len().div_ceil(MOST));
    assert!(outer.iter().all(|packet| packet.len() <= 1500 && packet[1] == 0 && packet[6] == 0x40));
    assert_eq!(outer.iter().filter(|packet| packet.len() == 1500).count(), outer.len() - 1);
    assert_eq!(receive(&mut right, &outer, just(9)), all);
    let used = |xfrm: &mut Xfrm| {
        let Body::NewSa(info) = packets::asked(xfrm, at(2)).body else { panic!("no state") };
        (info.curlft.packets, info.curlft.bytes)
    };
    let bytes = (all.concat().len() + 4 * outer.len()) as u64;
    assert_eq!((used(&mut left), used(&mut right)), ((7, bytes), (7, bytes)), "of outer packets");
    for xfrm in [&left, &right] {
        let errors: u64 = Counter::ALL.iter().map(|counter| xfrm.stat().value(*counter)).sum();
        assert_eq!(errors, 0);
    }
}

/// An outer packet that more packets may fill waits for them, and nothing else does.
#[test]
fn outer_packets_are_filled_by_what_follows() {
    let (mut left, mut right) = (engine(XFRM_POLICY_OUT, &[]), engine(XFRM_POLICY_IN, &[]));
    let rest = |xfrm: &mut Xfrm, more| leaving(xfrm, just(5), more).iter().map(Vec::len).collect::<Vec<_>>();
    let all: Vec<Vec<u8>> = (1..=4).map(|fill| packet(1000, fill)).collect();
    push(&mut left, &all[..1], just(5));
    assert!(leaving(&mut left, just(5), true).is_empty());
    assert_eq!(left.tables(0, just(5)).poll_gathered(), Some(0), "it is due all the same");
    push(&mut left, &all[1..2], just(5));
    let mut outer = leaving(&mut left, just(5), true);
    assert_eq!(outer.iter().map(Vec::len).collect::<Vec<_>>(), [1500]);
    push(&mut left, &all[2..], just(5));
    outer.extend(leaving(&mut left, just(5), true));
    assert_eq!(outer.len(), 4000 / MOST);
    outer.extend(leaving(&mut left, just(5), false));
    assert_eq!((outer.len(), left.tables(0, just(5)).poll_gathered()), (4000_usize.div_ceil(MOST), None));
    assert_eq!(receive(&mut right, &outer, just(9)), all);
    // What may not be cut does not fill up anything.
    let mut whole = engine(XFRM_POLICY_OUT, &[Attribute::IptfsDontFrag(())]);
    push(&mut whole, &all, just(5));
    assert_eq!(rest(&mut whole, true).len(), 4);
    // Packets that wait for others wait as long as ever.
    let mut slow = engine(XFRM_POLICY_OUT, &[Attribute::IptfsInitDelay(100)]);
    push(&mut slow, &all, just(5));
    assert_eq!((rest(&mut slow, true).len(), slow.tables(0, just(5)).poll_gathered()), (0, Some(105_000)));
}

/// A packet that is sealed in one burst is opened with the others' numbers in another order.
#[test]
fn outer_packets_may_be_late() {
    let (mut left, mut right) = (engine(XFRM_POLICY_OUT, &[]), engine(XFRM_POLICY_IN, &[]));
    let all: Vec<Vec<u8>> = (1..9).map(|fill| packet(3000, fill)).collect();
    push(&mut left, &all, just(0));
    let outer = sealed(&mut left, just(0));
    assert_eq!(outer.len(), (8 * 3000_usize).div_ceil(MOST));
    let mut mixed = outer.clone();
    mixed[1..].chunks_mut(3).for_each(<[_]>::reverse);
    assert_eq!(receive(&mut right, &mixed, just(0)), all);
    // One is lost: it takes its packet with it, when its time is over.
    push(&mut left, &all, just(0));
    let mut outer = sealed(&mut left, just(0));
    outer.truncate(6);
    outer.remove(1);
    assert_eq!(receive(&mut right, &outer[..3], just(10)), Vec::<Vec<u8>>::new());
    let due = right.tables(0, just(10)).poll_gathered();
    assert_eq!(due, Some(1_000_010_000), "the packet of which a part has come");
    let late = just(1_000_011);
    assert_eq!(sealed(&mut right, late), Vec::<Vec<u8>>::new());
    assert_eq!(receive(&mut right, &outer[3..], late), all[1..2]);
    assert_eq!(right.stat().value(Counter::InIptfsError), 0, "given up in time");
}

#[test]
fn limits_of_a_state_are_kept() {
    let narrow = [Attribute::IptfsDontFrag(()), Attribute::IptfsPktSize(600), Attribute::IptfsInitDelay(250)];
    let mut left = engine(XFRM_POLICY_OUT, &narrow);
    // Linux leaves out trailer and ICV.
    let most = 600 - 40;
    let sent = push(&mut left, &[packet(most, 1), packet(most + 1, 2), packet(40, 3)], just(0));
    assert_eq!(sent, [(Ok(()), 0), (Err(DropReason::IptfsTooBig), most as u32), (Ok(()), 0)]);
    assert_eq!(left.stat().value(Counter::OutError), 1);
    assert_eq!(left.tables(0, just(0)).poll_gathered(), Some(250_000));
    assert_eq!(sealed(&mut left, just(249)), Vec::<Vec<u8>>::new());
    assert_eq!(sealed(&mut left, just(250)).iter().map(Vec::len).collect::<Vec<_>>(), [620, 100]);
    let mut left = engine(XFRM_POLICY_OUT, &[Attribute::IptfsMaxQsize(1000)]);
    let sent = push(&mut left, &[packet(600, 1), packet(600, 2), packet(60, 3)], just(0));
    let full = (Err(DropReason::IptfsQueue), 0);
    assert_eq!(sent, [(Ok(()), 0), full, full], "those behind it in its frame, too");
    assert_eq!(left.stat().value(Counter::OutNoQueueSpace), 2);
    // With the state goes what waits in it.
    ok(&mut left, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: 0 })), at(0));
    assert_eq!(left.tables(0, at(0)).poll_gathered(), None);
    assert_eq!(sealed(&mut left, at(1)), Vec::<Vec<u8>>::new());
}

/// Packets that come out go by the policies, each for itself.
#[test]
fn policies_judge_what_comes_out() {
    let (mut left, mut right) = (engine(XFRM_POLICY_OUT, &[]), engine(XFRM_POLICY_IN, &[]));
    let mut stranger = packet(90, 2);
    stranger[14] = 99;
    // The sender is free to send it, as a peer may be.
    let sel = Selector { family: AF_INET, ..Selector::default() };
    let wide = XfrmMessage::new(Body::NewPolicy(UserpolicyInfo { sel, ..policy(XFRM_POLICY_OUT) }));
    ok(&mut left, &wide.with(iptfs_tmpl()), at(0));
    let block = UserpolicyInfo {
        sel: Selector { family: AF_INET, ..Selector::default() },
        action: XFRM_POLICY_BLOCK,
        priority: 9,
        ..policy(XFRM_POLICY_IN)
    };
    ok(&mut right, &XfrmMessage::new(Body::NewPolicy(block)), at(0));
    let all = [packet(70, 1), stranger, packet(80, 3)];
    assert_eq!(push(&mut left, &all[..1], just(0)), [(Ok(()), 0)]);
    assert_eq!(push(&mut left, &all[1..2], just(0)), [(Ok(()), 0)]);
    assert_eq!(push(&mut left, &all[2..], just(0)), [(Ok(()), 0)]);
    let outer = sealed(&mut left, just(0));
    assert_eq!(outer.len(), 1);
    assert_eq!(receive(&mut right, &outer, just(0)), [all[0].clone(), all[2].clone()]);
    assert_eq!(right.stat().value(Counter::InPolBlock), 1);
}

#[test]
fn attributes_are_told() {
    let refused = |dir, attrs: &[Attribute]| answer(&call(&mut xfrm(), &iptfs_state(dir, attrs), at(0)));
    let size = (Errno::EINVAL.number(), "Packet size must be 0 or greater than IPTFS/ESP header length".to_owned());
    assert_eq!(refused(XFRM_SA_DIR_OUT, &[IptfsPktSize(40)]), size);
    assert_eq!(refused(XFRM_SA_DIR_OUT, &[IptfsPktSize(41)]).0, 0);
    // Of a connection Linux counts the length of a message alone (`esp_init_state`).
    for (encap_type, most) in [(UDP_ENCAP_ESPINUDP, 48), (TCP_ENCAP_ESPINTCP, 42)] {
        let encap = Attribute::Encap(EncapTmpl { encap_type, ..EncapTmpl::default() });
        let sized = |size| refused(XFRM_SA_DIR_OUT, &[encap.clone(), IptfsPktSize(size)]);
        assert_eq!((sized(most), sized(most + 1).0), (size.clone(), 0), "{encap_type}");
    }
    // Those of IP-TFS, as they are in a message.
    let bytes = |attrs: Vec<Attribute>| {
        let message = attrs.into_iter().fold(new_state(info()), XfrmMessage::with);
        message.encode(0, 0, 0).to_vec()
    };
    let told = |dir, attrs: &[Attribute]| {
        let mut xfrm = xfrm();
        ok(&mut xfrm, &iptfs_state(dir, attrs), at(0));
        let told = packets::asked(&mut xfrm, at(0)).attrs;
        bytes(told.into_iter().filter(is_of_iptfs).collect())
    };
    use Attribute::{IptfsDontFrag, IptfsDropTime, IptfsInitDelay, IptfsMaxQsize, IptfsPktSize, IptfsReorderWindow};
    assert_eq!(told(XFRM_SA_DIR_IN, &[]), bytes(vec![IptfsDropTime(1_000_000), IptfsReorderWindow(3)]));
    let given = vec![IptfsDropTime(77), IptfsReorderWindow(0)];
    assert_eq!(told(XFRM_SA_DIR_IN, &given), bytes(given));
    let plain = vec![IptfsInitDelay(0), IptfsMaxQsize(10_485_760), IptfsPktSize(0)];
    assert_eq!(told(XFRM_SA_DIR_OUT, &[]), bytes(plain));
    let given = vec![IptfsDontFrag(()), IptfsInitDelay(9), IptfsMaxQsize(0), IptfsPktSize(1400)];
    assert_eq!(told(XFRM_SA_DIR_OUT, &given), bytes(given));
}

fn is_of_iptfs(attr: &Attribute) -> bool {
    matches!(
        attr,
        Attribute::IptfsDontFrag(_)
            | Attribute::IptfsDropTime(_)
            | Attribute::IptfsInitDelay(_)
            | Attribute::IptfsMaxQsize(_)
            | Attribute::IptfsPktSize(_)
            | Attribute::IptfsReorderWindow(_)
    )
}

/// The keys of an SPI that was reserved for such a state.
#[test]
fn a_reserved_spi_gets_its_keys() {
    let mut xfrm = xfrm();
    let dir = Attribute::SaDir(XFRM_SA_DIR_IN);
    let reserve = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info: info(), min: SPI, max: SPI }));
    ok(&mut xfrm, &reserve.with(dir.clone()), at(0));
    let keys = XfrmMessage::new(Body::UpdSa(info())).with(aead()).with(dir);
    ok(&mut xfrm, &keys, at(0));
    assert_eq!((count(&mut xfrm), xfrm.sad().len()), (1, 1));
}

const INTERVAL_US: u64 = 10_000;

fn rate(reqid: Option<u32>) -> RateRule {
    let rate = Rate { interval_ns: INTERVAL_US * 1000, packet_len: 1000, congestion_control: false };
    RateRule { remote: None, reqid, if_id: None, rate }
}

#[test]
fn a_constant_rate_tells_nothing() {
    let (mut left, mut right) = (engine(XFRM_POLICY_OUT, &[]), engine(XFRM_POLICY_IN, &[]));
    left.set_rates(vec![rate(Some(u32::MAX))]);
    assert_eq!(left.tables(0, just(5)).poll_gathered(), None, "of another state");
    left.set_rates(vec![rate(Some(u32::MAX)), rate(None)]);
    assert_eq!(left.tables(0, just(5)).poll_gathered(), Some(0));
    assert_eq!(left.unused_rates(), [rate(Some(u32::MAX))]);
    let (mut outer, inner) = (Vec::new(), [packet(100, 1), packet(3000, 2), packet(60, 3)]);
    for turn in 0..20 {
        let now_us = 5 + turn * INTERVAL_US;
        if turn == 7 {
            assert_eq!(push(&mut left, &inner, just(now_us - 1)), vec![(Ok(()), 0); 3]);
            assert!(sealed(&mut left, just(now_us - 1)).is_empty());
        }
        assert_eq!(left.tables(0, just(now_us)).poll_gathered(), Some(if turn == 0 { 0 } else { now_us * 1000 }));
        outer.extend(sealed(&mut left, just(now_us)));
        assert_eq!(outer.len() as u64, turn + 1);
    }
    assert!(outer.iter().all(|packet| packet.len() == 1000 && packet[1] == 0 && packet[6] == 0x40));
    assert_eq!(receive(&mut right, &outer, just(9)), inner);
    assert_eq!(right.stat().value(Counter::InIptfsError), 0);
    // One direction of a pair has it, and padding can be taken off again.
    right.set_rates(vec![rate(None)]);
    assert_eq!(right.unused_rates(), [rate(None)], "its state is inbound");
    assert_eq!(right.tables(0, just(9)).poll_gathered(), None);
    push(&mut left, &inner[..1], just(300_000));
    left.set_rates(Vec::new());
    assert_eq!(sealed(&mut left, just(300_000)).len(), 1, "what waits leaves");
    assert_eq!(left.tables(0, just(300_000)).poll_gathered(), None);
}

#[test]
fn a_rate_follows_a_new_interface_id() {
    let mut left = engine(XFRM_POLICY_OUT, &[]);
    left.set_rates(vec![RateRule { if_id: Some(9), ..rate(None) }]);
    assert_eq!(left.tables(0, just(5)).poll_gathered(), None, "of another interface");
    let update = |if_id| {
        let message = XfrmMessage::new(Body::UpdSa(info())).with(aead()).with(Attribute::SaDir(XFRM_SA_DIR_OUT));
        message.with(Attribute::IfId(if_id))
    };
    ok(&mut left, &update(9), at(0));
    assert_eq!((left.tables(0, just(5)).poll_gathered(), left.unused_rates()), (Some(0), Vec::new()));
    ok(&mut left, &update(8), at(0));
    assert_eq!(left.tables(0, just(5)).poll_gathered(), None, "it has left");
}

/// Two states of one tunnel, one of which is to replace the other, send at the rate of one; a state that is gone sends nothing.
#[test]
fn a_constant_rate_survives_new_keys() {
    let mut left = engine(XFRM_POLICY_OUT, &[]);
    left.set_rates(vec![rate(None)]);
    let delete = |spi: u32| {
        let id = UsersaId { daddr: info().id.daddr, spi: spi.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
        XfrmMessage::new(Body::DelSa(id))
    };
    let spis = |xfrm: &mut Xfrm, now_us: u64| -> Vec<u32> {
        let outer = sealed(xfrm, just(now_us));
        outer.iter().map(|packet| u32::from_be_bytes(*packet[20..].first_chunk().expect("an SPI"))).collect()
    };
    assert_eq!(spis(&mut left, 1), [SPI]);
    let newer = UsersaInfo { mode: XFRM_MODE_IPTFS, ..state(SPI + 1) };
    ok(&mut left, &new_state(newer).with(Attribute::SaDir(XFRM_SA_DIR_OUT)), at(0));
    assert_eq!(spis(&mut left, 2), [SPI + 1]);
    for turn in 1..9 {
        assert_eq!(spis(&mut left, 2 + turn * INTERVAL_US), [SPI + 1]);
    }
    ok(&mut left, &delete(SPI + 1), at(0));
    assert_eq!(spis(&mut left, 2 + 9 * INTERVAL_US), [SPI], "it goes on");
    ok(&mut left, &delete(SPI), at(0));
    assert_eq!((spis(&mut left, 2 + 99 * INTERVAL_US), left.tables(0, just(0)).poll_gathered()), (vec![], None));
}

/// On a path that is narrower than what is asked for all outer packets are as short, the first one too.
#[test]
fn a_constant_rate_on_a_narrow_path() {
    let mut left = engine(XFRM_POLICY_OUT, &[]);
    let rule = rate(None);
    left.set_rates(vec![RateRule { rate: Rate { packet_len: 9000, ..rule.rate }, ..rule }]);
    let mut outer = sealed(&mut left, just(5));
    push(&mut left, &[packet(4000, 1)], just(6));
    outer.extend((1..6).flat_map(|turn| sealed(&mut left, just(5 + turn * INTERVAL_US))));
    assert_eq!(outer.iter().map(Vec::len).collect::<Vec<_>>(), [1500; 6]);
    // Two states of one tunnel begin at the same time: the older one, which sends nothing, has its turn first.
    let mut left = engine(XFRM_POLICY_OUT, &[]);
    let newer = UsersaInfo { mode: XFRM_MODE_IPTFS, ..state(SPI + 1) };
    ok(&mut left, &new_state(newer).with(Attribute::SaDir(XFRM_SA_DIR_OUT)), at(0));
    left.set_rates(vec![RateRule { rate: Rate { packet_len: 9000, ..rule.rate }, ..rule }]);
    assert_eq!(sealed(&mut left, just(5)).iter().map(Vec::len).collect::<Vec<_>>(), [1500]);
}

/// Adds the states of one of two ends: those from the first one have this SPI, and those to it the next.
fn add_both(xfrm: &mut Xfrm, end: usize, spi: u32) {
    let there = UsersaInfo { mode: XFRM_MODE_IPTFS, ..state(spi) };
    let (saddr, daddr) = (there.id.daddr, there.saddr);
    let back = UsersaInfo { mode: XFRM_MODE_IPTFS, saddr, ..state(spi + 1) };
    let back = UsersaInfo { id: Id { daddr, ..back.id }, ..back };
    for (from, info) in [there, back].into_iter().enumerate() {
        let dir = if from == end { XFRM_SA_DIR_OUT } else { XFRM_SA_DIR_IN };
        ok(xfrm, &new_state(info).with(Attribute::SaDir(dir)), at(0));
    }
}

/// Two ends that send at a rate of at most 100 packets a second, which follows congestion.
fn both_ends() -> [Xfrm; 2] {
    [0, 1].map(|end| {
        let mut xfrm = xfrm();
        let rule = rate(None);
        xfrm.set_rates(vec![RateRule { rate: Rate { congestion_control: true, ..rule.rate }, ..rule }]);
        add_both(&mut xfrm, end, SPI);
        xfrm
    })
}

fn view(xfrm: &Xfrm) -> PairView {
    let all: Vec<PairView> = xfrm.sad().pairs().collect();
    assert_eq!(all.len(), 1);
    all[0]
}

/// A path between two ends of 5 ms.
#[derive(Default)]
struct Path {
    now_ms: u64,
    /// Milliseconds that a packet of the first end takes, for four of which there is room; 0 for as many as there are.
    each_ms: u64,
    free_ms: u64,
    is_broken: bool,
    marks: bool,
    /// By their time and order: the end that they go to.
    on_their_way: BTreeMap<(u64, usize), (usize, Vec<u8>)>,
    order: usize,
}

impl Path {
    fn carry(&mut self, from: usize, mut packet: Vec<u8>) {
        assert_eq!((packet.len(), packet[1]), (1000, 0), "of one length, and without ECN");
        let each_ms = if from == 0 { self.each_ms } else { 0 };
        if self.is_broken || each_ms > 0 && self.free_ms.saturating_sub(self.now_ms) >= 4 * each_ms {
            return;
        }
        let mut at_ms = self.now_ms + 5;
        if each_ms > 0 {
            self.free_ms = self.free_ms.max(self.now_ms) + each_ms;
            at_ms = self.free_ms + 5;
        }
        packet[1] = if self.marks { 3 } else { 0 };
        self.order += 1;
        self.on_their_way.insert((at_ms, self.order), (1 - from, packet));
    }
}

/// Lets both ends send until this time. Returns how many packets each has sent.
fn talk(ends: &mut [Xfrm; 2], path: &mut Path, until_s: u64) -> [u64; 2] {
    let mut sent = [0, 0];
    while path.now_ms < until_s * 1000 {
        path.now_ms += 1;
        let now = just(path.now_ms * 1000);
        for (from, end) in ends.iter_mut().enumerate() {
            for packet in sealed(end, now) {
                sent[from] += 1;
                path.carry(from, packet);
            }
        }
        while let Some(entry) = path.on_their_way.first_entry().filter(|entry| entry.key().0 <= path.now_ms) {
            let (to, packet) = entry.remove();
            assert!(receive(&mut ends[to], &[packet], now).is_empty(), "padding");
        }
    }
    sent
}

#[test]
fn a_rate_follows_congestion() {
    let (mut ends, mut path) = (both_ends(), Path { each_ms: 25, ..Path::default() });
    assert_eq!(view(&ends[0]).interval_ns, 1_000_000_000, "at first");
    talk(&mut ends, &mut path, 15);
    let sent = talk(&mut ends, &mut path, 30);
    // 40 a second find their way, and 100 a second is the highest rate.
    assert!((540..=780).contains(&sent[0]) && sent[1] > 1400, "{sent:?}");
    let [left, right] = [0, 1].map(|end| view(&ends[end]));
    assert!(left.loss_interval > 0 && left.rtt_us > 10_000 && !left.is_silent, "{left:?}");
    assert!(right.loss_interval == 0 && right.interval_ns == 10_000_000, "{right:?}");
    // New keys change nothing of that.
    for (end, xfrm) in ends.iter_mut().enumerate() {
        add_both(xfrm, end, SPI + 2);
    }
    assert_eq!([0, 1].map(|end| view(&ends[end])), [left, right]);
    talk(&mut ends, &mut path, 31);
    for xfrm in &mut ends {
        for (spi, daddr) in [(SPI, "192.0.2.2"), (SPI + 1, "192.0.2.1")] {
            let daddr = address(daddr);
            let id = UsersaId { daddr, spi: spi.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
            ok(xfrm, &XfrmMessage::new(Body::DelSa(id)), at(0));
        }
    }
    let sent = talk(&mut ends, &mut path, 36);
    assert!((150..=300).contains(&sent[0]) && sent[1] > 450, "{sent:?}");
    // The path becomes wide.
    path.each_ms = 0;
    talk(&mut ends, &mut path, 46);
    let sent = talk(&mut ends, &mut path, 51);
    assert!(sent[0] > 400, "{sent:?}");
    for xfrm in &mut ends {
        let errors: u64 = Counter::ALL.iter().map(|counter| xfrm.stat().value(*counter)).sum();
        assert_eq!(errors, 0);
        ok(xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: 0 })), at(0));
        assert_eq!((xfrm.sad().pairs().count(), xfrm.tables(0, at(99)).poll_gathered()), (0, None));
    }
}

#[test]
fn a_rate_is_low_without_feedback() {
    let (mut ends, mut path) = (both_ends(), Path::default());
    talk(&mut ends, &mut path, 15);
    assert!(ends[0].take_silent_pairs().is_empty());
    path.is_broken = true;
    talk(&mut ends, &mut path, 40);
    let sent = talk(&mut ends, &mut path, 50);
    assert!(sent.iter().all(|sent| (4..=6).contains(sent)), "{sent:?}");
    for end in &mut ends {
        let told = end.take_silent_pairs();
        assert_eq!((told.len(), told[0].interval_ns, told[0].is_silent), (1, 2_000_000_000, true));
        assert_eq!((told[0].key.reqid, told[0].key.if_id, told[0].key.cpu), (7, 0, None));
        assert!(end.take_silent_pairs().is_empty(), "told once");
    }
    path.is_broken = false;
    talk(&mut ends, &mut path, 80);
    let sent = talk(&mut ends, &mut path, 85);
    assert!(sent.iter().all(|sent| *sent > 400), "{sent:?}");
    // Without congestion control the rate is the highest one, whatever comes back.
    ends[0].set_rates(vec![rate(None)]);
    assert_eq!(ends[0].sad().pairs().count(), 0);
    assert_eq!(talk(&mut ends, &mut path, 86)[0], 100);
}

#[test]
fn a_mark_counts_as_a_loss() {
    let (mut ends, mut path) = (both_ends(), Path::default());
    talk(&mut ends, &mut path, 15);
    assert_eq!(view(&ends[0]).loss_interval, 0);
    path.marks = true;
    talk(&mut ends, &mut path, 16);
    let [left, right] = [0, 1].map(|end| view(&ends[end]));
    assert!(left.loss_interval > 0 && right.loss_interval > 0, "{left:?} {right:?}");
}
