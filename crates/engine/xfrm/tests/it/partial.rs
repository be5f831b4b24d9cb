//! States with partial MACs: off by default, refused where they may not be, and never a number twice under a key.

use super::numbers::{Storage, number, policed};
use super::packets::{datagram, receive, send};
use super::*;
use sealane_engine_xfrm::device::{Caps, Device, DeviceEvent, OffloadRequest, PolicyKey, Refusal, StateKey};
use sealane_engine_xfrm::numbers::{FOR_GOOD, LeaseError};
use sealane_net_ipsec::lifetime::Usage;
use sealane_net_ipsec::open::Opened;
use sealane_net_ipsec::sa::SaStat;
use sealane_net_ipsec::spd::Policy;

const QUARTER: &str = "partial(cmac(aes),1/4)";
const KEY: [u8; 16] = [7; 16];

fn crypt(name: &str, key: &[u8]) -> Attribute {
    Attribute::AlgCrypt(Algo { alg_name: name_field(name), alg_key_len: key.len() as u32 * 8, alg_key: Key::new(key) })
}

fn null() -> Attribute {
    crypt("ecb(cipher_null)", &[])
}

fn info(spi: u32) -> UsersaInfo {
    UsersaInfo { flags: XFRM_STATE_ESN, ..state(spi) }
}

/// The request for a state without encryption.
fn partial(spi: u32, name: &str) -> XfrmMessage {
    XfrmMessage::new(Body::NewSa(info(spi))).with(auth(name, &KEY, 0)).with(null()).with(esn())
}

fn allowing() -> Xfrm {
    let mut xfrm = xfrm();
    assert!(xfrm.allow_partial_macs(true).is_empty());
    xfrm
}

/// The error number and text of a refusal.
fn said(xfrm: &mut Xfrm, message: &XfrmMessage) -> (i32, String) {
    let replies = call(xfrm, message, at(0));
    let bytes = replies.unicast.last().unwrap();
    let text: String =
        bytes[36..].iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { char::from(*b) } else { '\n' }).collect();
    (answer(&replies).0, text)
}

fn refuses(xfrm: &mut Xfrm, message: &XfrmMessage, errno: Errno, text: &str) {
    let before = count(xfrm);
    let (number, said) = said(xfrm, message);
    assert!(number == errno.number() && said.contains(text), "{number}: {said}; not {text}");
    assert_eq!(count(xfrm), before);
}

fn delete(xfrm: &mut Xfrm, spi: u32) {
    let id = UsersaId { daddr: state(0).id.daddr, spi: spi.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    ok(xfrm, &XfrmMessage::new(Body::DelSa(id)), at(0));
}

#[test]
fn off_by_default() {
    let mut xfrm = xfrm();
    for mac in ["gmac(aes)", "cmac(aes)", "hmac(sha1)", "hmac(sha256)"] {
        for fraction in ["1", "1/2", "1/4", "1/8"] {
            let order = partial(0x100, &format!("partial({mac},{fraction})"));
            let text = "Partial MACs let parts of packets be altered unnoticed: set allow-partial-macs in [ipsec]";
            refuses(&mut xfrm, &order, Errno::ENOSYS, text);
            assert!(xfrm.series_of(&order.encode(NLM_F_REQUEST, 1, 0)).is_empty());
        }
    }
    assert!(xfrm.allow_partial_macs(true).is_empty());
    ok(&mut xfrm, &partial(0x100, QUARTER), at(0));
    // A name that is none is unknown, allowed or not.
    for name in ["partial(cmac(aes),1/3)", "partial(hmac(md5),1/4)", "partial(cmac(aes))"] {
        refuses(&mut xfrm, &partial(0x101, name), Errno::ENOSYS, Reason::AuthTruncUnknown.text());
    }
}

/// Two ends take each other's packets, and what is told of a state is what makes it again.
#[test]
fn two_ends() {
    let ciphers = [null(), crypt("cbc(aes)", &[3; 16]), crypt("rfc3686(ctr(aes))", &[3; 20])];
    for (cipher, name) in ciphers.iter().zip([QUARTER, "partial(gmac(aes),1/8)", "partial(hmac(sha1),1/2)"]) {
        let (mut left, mut right) = (allowing(), allowing());
        let order =
            XfrmMessage::new(Body::NewSa(info(0x100))).with(auth(name, &KEY, 0)).with(cipher.clone()).with(esn());
        policed(&mut left);
        ok(&mut left, &order, at(0));
        ok(&mut right, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(tmpl()), at(0));
        ok(&mut right, &order, at(0));
        for _ in 0..5 {
            let mut sealed = send(&mut left, at(1)).0.unwrap();
            let at_byte = sealed.len() - 1;
            sealed[at_byte] ^= 1;
            assert_eq!(receive(&mut right, &sealed, at(1)), Err(DropReason::Icv));
            sealed[at_byte] ^= 1;
            assert_eq!(receive(&mut right, &sealed, at(1)), Ok(Opened::Packet));
            assert_eq!(receive(&mut right, &sealed, at(1)), Err(DropReason::Replayed));
        }
        assert!(send(&mut left, at(1)).0.unwrap().len() > datagram().len());
        let told = packets::asked(&mut right, at(2));
        let icv_bits = told.attrs.iter().find_map(|a| match a {
            Attribute::AlgAuthTrunc(told) if told.name() == name.as_bytes() => Some(told.alg_trunc_len),
            _ => None,
        });
        assert_eq!(icv_bits, Some(if name.contains("gmac") { 128 } else { 96 }));
        let again = told.encode(NLM_F_REQUEST, 1, 0);
        let mut next = allowing();
        next.restore_state(&again, None, None, at(3)).unwrap();
        ok(&mut next, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_IN))).with(tmpl()), at(3));
        let sealed = send(&mut left, at(4)).0.unwrap();
        assert_eq!(receive(&mut next, &sealed, at(4)), Ok(Opened::Packet));
    }
}

#[test]
fn states_that_may_have_none() {
    let mut xfrm = allowing();
    const HERE: &str = "A partial MAC is for ESP with ESN, in tunnel mode, or in transport mode without encapsulation";
    let udp = || {
        let (sport, dport) = (4500.into(), 4500.into());
        Attribute::Encap(EncapTmpl {
            encap_type: UDP_ENCAP_ESPINUDP,
            encap_sport: sport,
            encap_dport: dport,
            ..EncapTmpl::default()
        })
    };
    let of = |info: UsersaInfo| XfrmMessage::new(Body::NewSa(info)).with(auth(QUARTER, &KEY, 0)).with(null());
    let transport = UsersaInfo { mode: XFRM_MODE_TRANSPORT, ..info(0x100) };
    refuses(&mut xfrm, &of(UsersaInfo { replay_window: 32, ..state(0x100) }), Errno::EINVAL, HERE);
    refuses(&mut xfrm, &of(transport).with(esn()).with(udp()), Errno::EINVAL, HERE);
    let beet = UsersaInfo { mode: XFRM_MODE_BEET, sel: policy(0).sel, ..info(0x100) };
    refuses(&mut xfrm, &of(beet).with(esn()), Errno::EINVAL, HERE);
    let iptfs = of(UsersaInfo { mode: XFRM_MODE_IPTFS, ..info(0x100) }).with(esn());
    refuses(&mut xfrm, &iptfs.with(Attribute::SaDir(XFRM_SA_DIR_IN)), Errno::EINVAL, HERE);
    let ah = Id { proto: IPPROTO_AH, ..state(0x100).id };
    let ah =
        XfrmMessage::new(Body::NewSa(UsersaInfo { id: ah, ..info(0x100) })).with(auth(QUARTER, &KEY, 0)).with(esn());
    refuses(&mut xfrm, &ah, Errno::EINVAL, HERE);
    // Nor is a tag cut, or a name taken where lengths are not given.
    for (name, bits) in [(QUARTER, 88), ("partial(gmac(aes),1/4)", 96), ("partial(hmac(sha256),1/4)", 96)] {
        let short = XfrmMessage::new(Body::NewSa(info(0x100))).with(auth(name, &KEY, bits)).with(null()).with(esn());
        refuses(&mut xfrm, &short, Errno::EINVAL, "The tag of a partial MAC must not be truncated so far");
    }
    let long = XfrmMessage::new(Body::NewSa(info(0x100))).with(auth(QUARTER, &KEY, 136)).with(null()).with(esn());
    refuses(&mut xfrm, &long, Errno::EINVAL, Reason::TruncLength.text());
    let plain = Algo { alg_name: name_field(QUARTER), alg_key_len: 128, alg_key: Key::new(&KEY) };
    let plain = XfrmMessage::new(Body::NewSa(info(0x100))).with(Attribute::AlgAuth(plain)).with(null()).with(esn());
    refuses(&mut xfrm, &plain, Errno::ENOSYS, Reason::AuthUnknown.text());
    let short = XfrmMessage::new(Body::NewSa(info(0x100))).with(auth(QUARTER, &KEY[..15], 0)).with(null()).with(esn());
    assert_eq!(said(&mut xfrm, &short).0, Errno::EINVAL.number());
    // The whole MAC may be in all of these, and the partial one in tunnel mode behind a NAT.
    ok(&mut xfrm, &of(info(0x100)).with(esn()).with(udp()), at(0));
    // In transport mode, none comes behind a NAT by moving, either.
    let other = XfrmMessage::new(Body::NewSa(UsersaInfo { id: Id { spi: 0x200.into(), ..transport.id }, ..transport }));
    ok(&mut xfrm, &other.with(auth(QUARTER, &[8; 16], 0)).with(null()).with(esn()), at(0));
    let id = UsersaId { daddr: state(0).id.daddr, spi: 0x200.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
    let moved = UserMigrateState {
        id,
        new_daddr: address("192.0.2.9"),
        new_saddr: address("192.0.2.1"),
        new_sel: Selector { family: AF_INET, ..Selector::default() },
        new_reqid: 7,
        new_family: AF_INET,
        ..UserMigrateState::default()
    };
    refuses(&mut xfrm, &XfrmMessage::new(Body::MigrateState(moved)).with(udp()), Errno::EINVAL, HERE);
    ok(&mut xfrm, &XfrmMessage::new(Body::MigrateState(moved)), at(0));
}

/// A device that takes all that it is given.
struct Card;

impl Device for Card {
    fn caps(&self) -> Caps {
        Caps { states: true, esn: true, policies: true }
    }

    fn state_add(&mut self, _: OffloadRequest<'_>) -> Result<(), Refusal> {
        Ok(())
    }

    fn state_del(&mut self, _: StateKey) {}

    fn advance_esn(&mut self, _: StateKey, _: u32) {}

    fn policy_add(&mut self, _: PolicyKey, _: &Policy, _: &XfrmMessage) -> Result<(), Refusal> {
        Ok(())
    }

    fn policy_del(&mut self, _: PolicyKey) {}

    fn counters(&self, _: StateKey) -> Option<(Usage, SaStat)> {
        None
    }

    fn events(&mut self, _: &mut Vec<DeviceEvent>) {}
}

#[test]
fn no_device_takes_one() {
    let mut xfrm = allowing();
    xfrm.add_device(5, Box::new(Card));
    for flags in [0, XFRM_OFFLOAD_INBOUND, XFRM_OFFLOAD_PACKET, XFRM_OFFLOAD_PACKET | XFRM_OFFLOAD_INBOUND] {
        let offload = Attribute::OffloadDev(UserOffload { ifindex: 5, flags, pad: [0; 3] });
        let order = partial(0x100, QUARTER).with(offload.clone());
        refuses(&mut xfrm, &order, Errno::EINVAL, "A state with a partial MAC cannot be offloaded");
        let whole =
            XfrmMessage::new(Body::NewSa(info(0x100))).with(auth("cmac(aes)", &KEY, 0)).with(null()).with(esn());
        ok(&mut xfrm, &whole.with(offload), at(0));
        delete(&mut xfrm, 0x100);
    }
}

/// Whatever stands beside a MAC's key, its numbers are one series.
#[test]
fn the_numbers_are_those_of_the_key() {
    let storage = Storage::default();
    let mut xfrm = storage.boot();
    let _none = xfrm.allow_partial_macs(true);
    policed(&mut xfrm);
    let series = |xfrm: &mut Xfrm, message: &XfrmMessage| {
        let mut all = xfrm.series_of(&message.encode(NLM_F_REQUEST, 1, 0));
        all.pop().filter(|_| all.is_empty()).expect("one").to_vec()
    };
    let marked = partial(0x100, QUARTER).with(Attribute::Mark(Mark { v: 1, m: 1 }));
    let elsewhere = UsersaInfo { id: Id { daddr: address("192.0.2.7"), ..info(0x100).id }, ..info(0x100) };
    let cipher = |key: u8| crypt("cbc(aes)", &[key; 16]);
    let with =
        |info, name, cipher| XfrmMessage::new(Body::NewSa(info)).with(auth(name, &KEY, 0)).with(cipher).with(esn());
    let orders = [
        partial(0x100, QUARTER),
        partial(0x101, QUARTER),
        partial(0x100, "partial(cmac(aes),1/8)"),
        partial(0x100, "partial(cmac(aes),1)"),
        partial(0x100, "partial(gmac(aes),1/4)"),
        with(info(0x100), QUARTER, cipher(1)),
        with(info(0x100), QUARTER, cipher(2)),
        with(info(0x100), QUARTER, crypt("rfc3686(ctr(aes))", &[1; 20])),
        with(elsewhere, QUARTER, null()),
        marked,
    ];
    let all: Vec<Vec<u8>> = orders.iter().map(|order| series(&mut xfrm, order)).collect();
    assert!(all.iter().all(|one| *one == all[0]));
    let other = XfrmMessage::new(Body::NewSa(info(0x100))).with(auth(QUARTER, &[8; 16], 0)).with(null()).with(esn());
    let whole = XfrmMessage::new(Body::NewSa(info(0x100))).with(auth("cmac(aes)", &KEY, 0)).with(null()).with(esn());
    assert!(series(&mut xfrm, &other) != all[0] && series(&mut xfrm, &whole) != all[0]);
    // One after the other they go on counting, each where the one before has ended: no number comes twice.
    let mut last = 0;
    for order in orders.iter().filter(|order| !order.attrs.iter().any(|a| matches!(a, Attribute::Mark(_)))) {
        ok(&mut xfrm, order, at(0));
        for _ in 0..3 {
            let Ok(sent) = number(&mut xfrm) else { continue };
            assert!(sent > last, "{sent} after {last}");
            last = sent;
        }
        ok(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })), at(0));
    }
    // All but the one elsewhere, which the policy does not find, have sent three each.
    assert_eq!(last, 3 * 8);
    // After a crash too.
    drop(xfrm);
    let mut xfrm = storage.boot();
    let _none = xfrm.allow_partial_macs(true);
    policed(&mut xfrm);
    ok(&mut xfrm, &partial(0x300, "partial(hmac(sha1),1/8)"), at(0));
    assert!(number(&mut xfrm).unwrap() > last);
}

/// Without a storage that keeps them for good there is none that may send.
#[test]
fn numbers_are_kept_for_good_or_there_are_none() {
    let storage = Storage::default();
    let mut xfrm = storage.boot();
    let _none = xfrm.allow_partial_macs(true);
    let order = partial(0x100, QUARTER);
    let identity = xfrm.series_of(&order.encode(NLM_F_REQUEST, 1, 0)).pop().unwrap();
    assert_eq!(identity[0], FOR_GOOD);
    let reserved = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info: state(0), min: 0x100, max: 0x100 }));
    let update = XfrmMessage { body: Body::UpdSa(info(0x100)), ..partial(0x100, QUARTER) };
    for (why, errno, text) in [
        (LeaseError::Volatile, Errno::ENOSYS, "must outlive a boot: the daemon needs a STATE_DIRECTORY"),
        (LeaseError::Nameless, Errno::ENOSYS, "must outlive a boot: name the namespace in [ipsec], by no pattern"),
        (LeaseError::Full, Errno::ENOSPC, "Numbers of too many keys of partial MACs are kept already"),
    ] {
        storage.refuse(Some(why));
        refuses(&mut xfrm, &order, errno, text);
        assert_eq!(xfrm.restore_state(&order.encode(NLM_F_REQUEST, 1, 0), None, None, at(1)), Err(errno));
        // One that only receives uses none, and every other MAC may be.
        ok(&mut xfrm, &partial(0x100, QUARTER).with(Attribute::SaDir(XFRM_SA_DIR_IN)), at(0));
        delete(&mut xfrm, 0x100);
        let whole =
            XfrmMessage::new(Body::NewSa(info(0x100))).with(auth("cmac(aes)", &KEY, 0)).with(null()).with(esn());
        ok(&mut xfrm, &whole, at(0));
        delete(&mut xfrm, 0x100);
        // An SPI that was reserved stays so.
        ok(&mut xfrm, &reserved, at(0));
        refuses(&mut xfrm, &update, errno, text);
        storage.refuse(None);
        ok(&mut xfrm, &update, at(0));
        delete(&mut xfrm, 0x100);
    }
}

/// As key managers do it. A refusal leaves the SPI to who has reserved it.
#[test]
fn a_reserved_spi_gets_a_partial_mac() {
    let mut xfrm = allowing();
    ok(&mut xfrm, &partial(0x200, QUARTER), at(0));
    let reserved = XfrmMessage::new(Body::AllocSpi(UserspiInfo { info: state(0), min: 0x100, max: 0x100 }));
    ok(&mut xfrm, &reserved, at(0));
    let update = |key: u8| {
        XfrmMessage::new(Body::UpdSa(info(0x100))).with(auth(QUARTER, &[key; 16], 0)).with(null()).with(esn())
    };
    refuses(&mut xfrm, &update(7), Errno::EEXIST, "Another state has this key of a partial MAC");
    ok(&mut xfrm, &update(8), at(0));
    assert_eq!((count(&mut xfrm), xfrm.sad().len()), (2, 2));
    // Where the other one has gone, the same request is as good.
    delete(&mut xfrm, 0x100);
    ok(&mut xfrm, &reserved, at(0));
    refuses(&mut xfrm, &update(7), Errno::EEXIST, "Another state has this key of a partial MAC");
    delete(&mut xfrm, 0x200);
    ok(&mut xfrm, &update(7), at(0));
    assert_eq!((count(&mut xfrm), xfrm.sad().len()), (1, 1));
}

/// A state that cannot be what it would become by moving stays where it is.
#[test]
fn what_may_not_be_moves_nowhere() {
    let mut xfrm = allowing();
    xfrm.add_device(5, Box::new(Card));
    let udp = Attribute::Encap(EncapTmpl { encap_type: UDP_ENCAP_ESPINUDP, ..EncapTmpl::default() });
    let offload = || Attribute::OffloadDev(UserOffload { ifindex: 5, flags: 0, pad: [0; 3] });
    const NO_DEVICE: &str = "A state with a partial MAC cannot be offloaded";
    const HERE: &str = "A partial MAC is for ESP with ESN, in tunnel mode, or in transport mode without encapsulation";
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    for mode in [XFRM_MODE_TUNNEL, XFRM_MODE_TRANSPORT] {
        let order = XfrmMessage::new(Body::NewSa(UsersaInfo { mode, ..info(0x100) }));
        ok(&mut xfrm, &order.with(auth(QUARTER, &KEY, 0)).with(null()).with(esn()), at(0));
        let step = UserMigrate {
            old_daddr: address("192.0.2.2"),
            old_saddr: address("192.0.2.1"),
            new_daddr: address("192.0.2.9"),
            new_saddr: address("192.0.2.1"),
            proto: IPPROTO_ESP,
            mode,
            reserved: 0,
            reqid: 7,
            old_family: AF_INET,
            new_family: AF_INET,
        };
        let id = UserpolicyId { sel: policy(0).sel, dir: XFRM_POLICY_OUT, ..UserpolicyId::default() };
        let legacy = || XfrmMessage::new(Body::Migrate(id)).with(Attribute::Migrate(vec![step]));
        let of = UsersaId { daddr: state(0).id.daddr, spi: 0x100.into(), family: AF_INET, proto: IPPROTO_ESP, pad: 0 };
        let moved = UserMigrateState {
            id: of,
            new_daddr: step.new_daddr,
            new_saddr: step.new_saddr,
            new_sel: Selector { family: AF_INET, ..Selector::default() },
            new_reqid: 7,
            new_family: AF_INET,
            ..UserMigrateState::default()
        };
        refuses(&mut xfrm, &legacy().with(offload()), Errno::EINVAL, NO_DEVICE);
        refuses(&mut xfrm, &XfrmMessage::new(Body::MigrateState(moved)).with(offload()), Errno::EINVAL, NO_DEVICE);
        if mode == XFRM_MODE_TRANSPORT {
            refuses(&mut xfrm, &legacy().with(udp.clone()), Errno::ENODATA, HERE);
        }
        // It is where it was, and without all of that it moves.
        ok(&mut xfrm, &XfrmMessage::new(Body::GetSa(of)), at(0));
        ok(&mut xfrm, &XfrmMessage::new(Body::MigrateState(moved)), at(0));
        ok(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })), at(0));
    }
}

#[test]
fn two_states_have_no_key_in_common() {
    let mut xfrm = allowing();
    ok(&mut xfrm, &partial(0x100, QUARTER), at(0));
    const IN_USE: &str = "Another state has this key of a partial MAC: each direction needs its own";
    for (spi, name) in [(0x101, QUARTER), (0x102, "partial(cmac(aes),1/8)"), (0x103, "partial(gmac(aes),1/4)")] {
        refuses(&mut xfrm, &partial(spi, name), Errno::EEXIST, IN_USE);
        let inbound = partial(spi, name).with(Attribute::SaDir(XFRM_SA_DIR_IN));
        refuses(&mut xfrm, &inbound, Errno::EEXIST, IN_USE);
    }
    // The same state twice is what it is on Linux.
    assert_eq!(answer(&call(&mut xfrm, &partial(0x100, QUARTER), at(0))).0, Errno::EEXIST.number());
    delete(&mut xfrm, 0x100);
    ok(&mut xfrm, &partial(0x101, QUARTER), at(0));
}

#[test]
fn no_update_makes_another_mac_of_one() {
    const NO: &str = "An update cannot turn a partial MAC into another MAC, or another one into it";
    let mut xfrm = allowing();
    let with = |update: bool, name: &str, key: &[u8], bits| {
        let body = if update { Body::UpdSa(info(0x100)) } else { Body::NewSa(info(0x100)) };
        XfrmMessage::new(body).with(auth(name, key, bits)).with(null()).with(esn())
    };
    ok(&mut xfrm, &with(false, QUARTER, &KEY, 0), at(0));
    for (name, key, bits) in [
        ("cmac(aes)", KEY, 0),
        ("hmac(sha1)", KEY, 0),
        ("partial(cmac(aes),1/2)", KEY, 0),
        ("partial(cmac(aes),1)", KEY, 0),
        (QUARTER, [8; 16], 0),
        (QUARTER, KEY, 128),
    ] {
        refuses(&mut xfrm, &with(true, name, &key, bits), Errno::EINVAL, NO);
    }
    let aead = XfrmMessage::new(Body::UpdSa(info(0x100))).with(aead()).with(esn());
    refuses(&mut xfrm, &aead, Errno::EINVAL, NO);
    ok(&mut xfrm, &with(true, QUARTER, &KEY, 0), at(0));
    delete(&mut xfrm, 0x100);
    ok(&mut xfrm, &with(false, "cmac(aes)", &KEY, 0), at(0));
    refuses(&mut xfrm, &with(true, QUARTER, &KEY, 0), Errno::EINVAL, NO);
    ok(&mut xfrm, &with(true, "cmac(aes)", &KEY, 0), at(0));
}

/// States that are not allowed any more end, all of them and no others, and come back by no way.
#[test]
fn whoever_takes_it_back_ends_them() {
    let mut xfrm = allowing();
    policed(&mut xfrm);
    let order = |spi: u32, key: u8| {
        XfrmMessage::new(Body::NewSa(info(spi))).with(auth(QUARTER, &[key; 16], 0)).with(null()).with(esn())
    };
    for spi in 1..=3 {
        ok(&mut xfrm, &order(spi, spi as u8), at(0));
    }
    let whole = XfrmMessage::new(Body::NewSa(info(9))).with(auth("cmac(aes)", &KEY, 0)).with(null()).with(esn());
    ok(&mut xfrm, &whole, at(0));
    let record = order(1, 1).encode(NLM_F_REQUEST, 1, 0);
    let told = xfrm.allow_partial_macs(false);
    assert_eq!((told.len(), count(&mut xfrm), xfrm.sad().len()), (3, 1, 1));
    for notice in &told {
        assert_eq!(notice.group, XFRMNLGRP_EXPIRE);
        assert!(matches!(body(&notice.bytes), Body::Expire(e) if e.hard == 1 && e.state.id.spi.get() <= 3));
    }
    assert!(xfrm.allow_partial_macs(false).is_empty());
    assert_eq!(said(&mut xfrm, &order(1, 1)).0, Errno::ENOSYS.number());
    // That of a former daemon comes with the leave only.
    assert_eq!(xfrm.restore_state(&record, None, None, at(1)), Err(Errno::ENOSYS));
    assert_eq!(count(&mut xfrm), 1);
    assert!(xfrm.allow_partial_macs(true).is_empty());
    assert_eq!(xfrm.restore_state(&record, None, None, at(1)), Ok(()));
    assert_eq!(count(&mut xfrm), 2);
}
