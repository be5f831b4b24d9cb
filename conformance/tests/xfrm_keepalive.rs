//! NAT keep-alives, as a real kernel sends them.

use sealane_conformance::ipsec::{Guest, Host, LIMIT};
use sealane_conformance::lab::Lab;
use sealane_conformance::skip::skip_without;
use sealane_conformance::target::{Target, root};

const KERNEL: &str = "linux-7.3";

#[test]
fn at_once_and_every_two_seconds() {
    const TEST: &str = "xfrm_keepalive::at_once_and_every_two_seconds";
    if skip_without(TEST, &[&Target::sealane("open"), &Target::kernel(KERNEL)]) {
        return;
    }
    let Some(mut lab) = Lab::new(TEST) else { return };
    let space = lab.space("a");
    lab.ip(&space, "tuntap add kernel mode tap");
    lab.address(&space, "kernel", "10.81.0.1/24", "fd81::1/64");
    let host = Host::new(&lab, &space);
    let mut guest = Guest::boot(&lab, &space, "kernel", KERNEL, &["10.81.0.2/24"]);
    guest.must("ping -q -c 1 -W 5 10.81.0.1");
    let program = root().join("conformance/programs/xfrm_keepalive.py").to_string_lossy().into_owned();

    let mut here = lab.start(&space, &["python3", &program, "10.81.0.1"]);
    here.expect("listening", 1);
    guest.must(&format!("python3 {program} 10.81.0.2 10.81.0.1"));
    let (_, of_linux) = here.finish(LIMIT);

    let file = lab.folder().join("received").to_string_lossy().into_owned();
    guest.must(&format!(
        "(python3 {program} 10.81.0.2 > {file} 2>&1 &); while ! grep -q listening {file}; do sleep 0.1; done"
    ));
    let (status, text) = host.run(&lab, &["python3", &program, "10.81.0.1", "10.81.0.2"]);
    assert_eq!(status, Some(0), "{text}");
    guest.must(&format!("while ! grep -q -e gaps -e Error {file}; do sleep 0.1; done"));
    let of_ours = std::fs::read_to_string(&file).expect("a file");

    assert_eq!(of_linux, "listening\ngaps 2 2\n");
    assert_eq!(of_ours, of_linux);
}
