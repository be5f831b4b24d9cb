//! NAT keep-alives, as a real kernel sends them.

use sealane_conformance::ipsec::{KERNEL, LIMIT, OUTER, Peer, Wired, program};
use sealane_conformance::lab::Lab;
use sealane_conformance::recorded::Sequence;

const TEST: &str = "xfrm_keepalive::at_once_and_every_two_seconds";
const PROGRAM: &str = "xfrm_keepalive.py";
const SOURCES: [&str; 2] = ["conformance/programs/xfrm_keepalive.py", "conformance/tests/ipsec/xfrm_keepalive.rs"];

/// Returns what an end of a wire receives while `send` runs.
fn received(lab: &Lab, space: &str, address: &str, send: impl FnOnce(&[&str])) -> String {
    let program = program(PROGRAM);
    let mut listening = lab.start(space, &["python3", &program, address]);
    listening.expect("listening", 1);
    let from = OUTER[0].into_iter().find(|from| *from != address).expect("the other end");
    send(&["python3", &program, from, address]);
    listening.finish(LIMIT).1
}

#[test]
fn at_once_and_every_two_seconds() {
    let [here, there] = OUTER[0];
    let of_linux = Sequence::new(KERNEL, "xfrm-keepalive").files(&SOURCES).answer(TEST, || {
        let Wired { mut peer, host, lab } = Wired::new(TEST, "[ipsec]\n", true)?;
        Some(received(&lab, &host.space, here, |send| drop(peer.must(&lab, &send.join(" ")))))
    });
    let Some(of_linux) = of_linux else { return };
    let Some(Wired { peer: Peer::Daemon(peer), host, lab }) = Wired::new(TEST, "[ipsec]\n", false) else { return };
    let of_ours = received(&lab, &peer.space, there, |send| {
        let (status, text) = host.run(&lab, send);
        assert_eq!(status, Some(0), "{text}");
    });
    assert_eq!(of_linux, "listening\nthree, two seconds apart\n");
    assert_eq!(of_ours, of_linux);
}
