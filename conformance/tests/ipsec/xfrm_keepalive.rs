//! NAT keep-alives, as a real kernel sends them.

use sealane_conformance::ipsec::{LIMIT, Tapped, program};

#[test]
fn at_once_and_every_two_seconds() {
    const TEST: &str = "xfrm_keepalive::at_once_and_every_two_seconds";
    let Some(Tapped { mut guest, host, lab }) = Tapped::new(TEST, "[ipsec]\n") else { return };
    let program = program("xfrm_keepalive.py");

    let mut here = lab.start(&host.space, &["python3", &program, "10.81.0.1"]);
    here.expect("listening", 1);
    guest.must(&format!("python3 {program} 10.81.0.2 10.81.0.1"));
    let (_, of_linux) = here.finish(LIMIT);

    let file = lab.folder().join("received").to_string_lossy().into_owned();
    guest.must(&format!(
        "(python3 {program} 10.81.0.2 > {file} 2>&1 &); while ! grep -q listening {file}; do sleep 0.1; done"
    ));
    let (status, text) = host.run(&lab, &["python3", &program, "10.81.0.1", "10.81.0.2"]);
    assert_eq!(status, Some(0), "{text}");
    guest.must(&format!("while ! grep -q -e three -e Error {file}; do sleep 0.1; done"));
    let of_ours = std::fs::read_to_string(&file).expect("a file");

    assert_eq!(of_linux, "listening\nthree, two seconds apart\n");
    assert_eq!(of_ours, of_linux);
}
