//! Policies whose marks are the keys of VTI devices.

use super::*;
use sealane_engine_xfrm::VtiKeys;
use sealane_net_ipsec::selector;
use sealane_net_ipsec::spd::Dir;

#[test]
fn policies_of_vti_devices_are_refused() {
    let mut xfrm = xfrm();
    let marked =
        |dir, v, m| XfrmMessage::new(Body::NewPolicy(policy(dir))).with(tmpl()).with(Attribute::Mark(Mark { v, m }));
    let vti = VtiKeys { input: 0x11, output: 0x12 };
    let refused = (Errno::EOPNOTSUPP.number(), Reason::Vti.text().to_owned());
    for (dir, v, m, fits) in [
        (XFRM_POLICY_OUT, 0x12, 0xff, true),
        (XFRM_POLICY_OUT, 0x12, u32::MAX, true),
        (XFRM_POLICY_OUT, 0x02, 0x0f, true),
        (XFRM_POLICY_OUT, 0x11, 0xff, false),
        (XFRM_POLICY_OUT, 0, 0, false),
        (XFRM_POLICY_IN, 0x11, 0xff, true),
        (XFRM_POLICY_IN, 0x12, 0xff, false),
        (XFRM_POLICY_FWD, 0x11, 0xff, true),
    ] {
        let message = marked(dir, v, m);
        let asked = Xfrm::marked_policies(&message.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0));
        assert_eq!(asked.iter().filter(|(dir, mark)| vti.fit(*dir, *mark)).count(), usize::from(fits), "{dir} {v} {m}");
        xfrm.set_vtis(vec![vti]);
        let said = answer(&call(&mut xfrm, &message, at(0)));
        assert_eq!(said, if fits { refused.clone() } else { (0, String::new()) }, "{dir} {v} {m}");
        // Nothing is left of it.
        xfrm.set_vtis(Vec::new());
        assert_eq!(answer(&call(&mut xfrm, &message, at(0))).0 == 0, fits, "{dir} {v} {m}");
    }
    // The packets of xfrm interfaces go by other policies.
    let of_interface = marked(XFRM_POLICY_OUT, 0x12, u32::MAX).with(Attribute::IfId(42));
    assert!(Xfrm::marked_policies(&of_interface.encode(NLM_F_REQUEST | NLM_F_ACK, 1, 0)).is_empty());
    xfrm.set_vtis(vec![vti]);
    ok(&mut xfrm, &of_interface, at(0));
    // A device without keys has no policies of its own.
    assert!(!VtiKeys { input: 0, output: 0 }.fit(Dir::Out, selector::Mark { value: 0, mask: u32::MAX }));
}
