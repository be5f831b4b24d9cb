//! Replay events caused by packets and timers, and NAT keep-alives.

use super::packets::send;
use super::*;

fn ms(ms: u64) -> Now {
    Now { monotonic_ns: ms * 1_000_000, wall_s: START_S + ms / 1000 }
}

/// Flags of the events of replay, which is what all of these are.
fn flags(events: &[Body]) -> Vec<u32> {
    let of = |event: &Body| {
        let Body::NewAe(id) = event else { panic!("another message") };
        id.flags
    };
    events.iter().map(of).collect()
}

fn timeout(xfrm: &mut Xfrm, now: Now) -> Vec<u32> {
    flags(&xfrm.handle_timeout(now).iter().map(|n| body(&n.bytes)).collect::<Vec<_>>())
}

#[test]
fn numbers_are_told_when_somebody_listens() {
    let mut xfrm = xfrm();
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), ms(0));
    xfrm.set_aevent_defaults(3, 5);
    ok(&mut xfrm, &new_state(state(0x100)), ms(0));
    let packet = |xfrm: &mut Xfrm, at| flags(&send(xfrm, ms(at)).1);
    // Nobody does.
    for at in 0..10 {
        assert_eq!(packet(&mut xfrm, at), []);
    }
    assert_eq!(xfrm.poll_timeout(ms(10)), None);
    xfrm.set_aevent_listeners(true, ms(10));
    assert_eq!(packet(&mut xfrm, 11), [XFRM_AE_CR], "far more than three");
    assert_eq!(packet(&mut xfrm, 12), []);
    assert_eq!(packet(&mut xfrm, 13), []);
    assert_eq!(packet(&mut xfrm, 14), [XFRM_AE_CR]);
    assert_eq!(packet(&mut xfrm, 20), []);
    assert_eq!(xfrm.poll_timeout(ms(100)), Some(Duration::from_millis(414)));
    assert_eq!(timeout(&mut xfrm, ms(513)), []);
    assert_eq!(timeout(&mut xfrm, ms(514)), [XFRM_AE_CE]);
    // Nothing moves: the next packet tells.
    assert_eq!(timeout(&mut xfrm, ms(1014)), []);
    assert_eq!(xfrm.poll_timeout(ms(1014)), None);
    assert_eq!(packet(&mut xfrm, 5000), [XFRM_AE_CE]);
    assert_eq!(packet(&mut xfrm, 5001), []);
    assert_eq!(timeout(&mut xfrm, ms(5500)), [XFRM_AE_CE]);
    // Deleted or unheard, no timer is left.
    xfrm.set_aevent_listeners(false, ms(5600));
    assert_eq!(xfrm.poll_timeout(ms(5600)), None);
    assert_eq!(packet(&mut xfrm, 5601), []);
    xfrm.set_aevent_listeners(true, ms(5700));
    assert_eq!(xfrm.poll_timeout(ms(5700)), Some(Duration::from_millis(300)));
    ok(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })), ms(5701));
    assert_eq!(xfrm.poll_timeout(ms(5701)), None);
}

#[test]
fn keepalives_of_states_that_are_idle() {
    let mut xfrm = xfrm();
    ok(&mut xfrm, &XfrmMessage::new(Body::NewPolicy(policy(XFRM_POLICY_OUT))).with(tmpl()), at(0));
    let encap = EncapTmpl { encap_type: 2, encap_sport: 4500.into(), encap_dport: 4501.into(), ..EncapTmpl::default() };
    let message = new_state(state(0x100)).with(Attribute::Encap(encap)).with(Attribute::SaDir(XFRM_SA_DIR_OUT));
    ok(&mut xfrm, &message.with(Attribute::NatKeepaliveInterval(20)), at(0));
    assert_eq!(xfrm.poll_timeout(at(0)), Some(Duration::ZERO));
    let due = xfrm.keepalives(at(0));
    assert_eq!((due.len(), due[0].sport, due[0].dport), (1, 4500, 4501));
    assert_eq!(due[0].destination.to_string(), "192.0.2.2");
    assert_eq!(xfrm.poll_timeout(at(1)), Some(Duration::from_secs(19)));
    assert_eq!(xfrm.keepalives(at(19)), []);
    assert_eq!(xfrm.keepalives(at(20)).len(), 1);
    // A state that was used needs no keep-alive for an interval.
    send(&mut xfrm, at(30)).0.unwrap();
    assert_eq!(xfrm.keepalives(at(40)), []);
    assert_eq!(xfrm.poll_timeout(at(40)), Some(Duration::from_secs(10)));
    assert_eq!(xfrm.keepalives(at(50)).len(), 1);
    ok(&mut xfrm, &XfrmMessage::new(Body::FlushSa(UsersaFlush { proto: IPPROTO_ESP })), at(51));
    assert_eq!(xfrm.poll_timeout(at(51)), None);
}
